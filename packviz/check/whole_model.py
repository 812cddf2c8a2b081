"""Finds out whether what a model returns depends on the padding of its input."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from threading import get_ident

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.nn.parameter import is_lazy

from packviz.check.compare import keeping_modes
from packviz.core.layout import Layout, require_steps, sequence_name
from packviz.core.numbers import HasNumbers, Row
from packviz.core.padded import Padded, is_constant
from packviz.core.validation import kind_of, share
from packviz.draw.text import table
from packviz.ops.agreement import parts, scales
from packviz.ops.masks import Lengths, lengths_tensor, require_width
from packviz.ops.private import UnpackingWider, is_batched
from packviz.ops.tolerance import of_states

Model = Callable[[Tensor], object]
"""A module or a function that takes a padded batch alone."""

Run = Callable[[Tensor], dict[str, Tensor]]
"""A function that runs the model on a batch, and returns its results by name."""

Reading = Callable[[Tensor], Tensor]
"""A function that takes a result and returns a row for each cell or sequence."""

VALUES = "the values in the padding"
AMOUNT = "how much padding there is"
WIDER = 8
"""The number of time steps of padding that are added to the batch."""


@dataclass(frozen=True)
class Output:
    """One tensor that a model returned.

    Attributes:
        name: its place in the model's result, such as `[0]`; `output` if the result is one tensor.
        places: the things that were compared, `"real cells"`, `"sequences"` or `"entries"`.
        compared: how many of them were compared.
        differing: how many of them depend on the padding; `None` if nothing can be concluded.
        sequences: the sequences that depend on the padding.
        reason: what the result depends on, or why nothing can be concluded.
    """

    name: str
    places: str
    compared: int
    differing: int | None
    sequences: tuple[str, ...] = ()
    reason: str = VALUES

    @property
    def verdict(self) -> str:
        """The comparison in words."""
        if self.differing is None:
            return f"cannot be judged: {self.reason}"
        if not self.differing:
            return "does not depend on the padding"
        where = f" ({', '.join(self.sequences)})" if self.sequences else ""
        share_of = f"{self.differing:,} of {self.compared:,} {self.places}"
        return f"depends on {self.reason}: {share_of}{where}"


@dataclass(frozen=True)
class PaddingComparison(HasNumbers):
    """A comparison of what a model returns with clean and with poisoned padding.

    Attributes:
        layout: the layout of the batch.
        outputs: the tensors that the model returned, and all other numbers together.
        notes: what was not tested.
        is_complete: whether it was tested, too, how much padding there is.
    """

    layout: Layout
    outputs: tuple[Output, ...]
    notes: tuple[str, ...] = ()
    is_complete: bool = True

    @property
    def agrees(self) -> bool | None:
        """Whether nothing depends on the padding; `None` if that cannot be determined."""
        if any(output.differing for output in self.outputs):
            return False
        is_judged = self.is_complete and bool(self.outputs) and self.layout.n_padding > 0
        return True if is_judged and all(o.differing == 0 for o in self.outputs) else None

    @property
    def summary(self) -> str:
        """The verdict in a sentence."""
        if not self.layout.n_padding:
            return "The batch has no padding, so it shows nothing. Give one with padding."
        if not self.outputs:
            return "The model returned no numbers to compare."
        if self.agrees:
            return "Nothing that the model returned depends on the padding."
        named = [output.name for output in self.outputs if output.differing]
        if named:
            return f"What the model returned depends on the padding: {', '.join(named)}."
        if not any(output.differing is None for output in self.outputs):
            return f"Nothing depends on {VALUES}, but {AMOUNT} was not tested."
        return "It is unclear whether the padding spoils what the model returned."

    def numbers(self) -> list[Row]:
        """Returns a row for each tensor that the model returned."""
        rows: list[Row] = []
        for output in self.outputs:
            size = {"compared": output.compared, "of": output.places}
            rows.append({"output": output.name, **size, "differing": output.differing})
        return rows

    def to_text(self) -> str:
        """Returns the verdict, a line for each tensor, and the notes."""
        lines = [[output.name, output.verdict] for output in self.outputs]
        return "\n".join([self.summary, "", *table(lines, "  <  <"), *self.notes])


def compare_padding(
    model: Model, x: Tensor, lengths: Lengths, batch_first: bool | None, tolerance: float | None
) -> PaddingComparison:
    """Runs a model with clean and with poisoned padding. See `packviz.check.compare.compare`."""
    whole = lengths_tensor(lengths)
    shape = Padded.fitting(len(whole), x.shape, batch_first)
    require_width(lengths, shape.steps)
    if shape.batch == shape.steps:
        raise ValueError(
            "x has as many sequences as time steps, so the axes of a result cannot be told apart:"
            " leave a sequence out, or add a step of padding"
        )
    layout = require_steps(Layout.from_padded(x.shape, whole, shape.batch_first))
    x = x.detach()
    real = torch.tensor(layout.mask)  # on the CPU, it can index a tensor on any device
    axis = int(shape.batch_first)
    unread: dict[str, str] = {}
    run = partial(_run, model, unread)
    with evaluating(nn.ModuleList(_modules_of(model)), others=True) as trained:
        clean, has_fixed = _clean(run, x, real, shape)
        added = shape.steps - clean.shape[axis]
        shape = shape._replace(steps=clean.shape[axis])
        real = real[:, : shape.steps]
        mask = real if shape.batch_first else real.T
        poisoned = _poisoned(clean, mask)
        runs = [run(batch) for batch in (clean, clean, poisoned)]
        # On a GPU, an index out of range could not be caught.
        for more in (added + WIDER if x.is_cpu else 0, added):
            if more and len(runs) == 3:
                added = more
                runs += _wider_runs(run, clean, mask, axis, added)
    notes = []
    norms = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
    if any(isinstance(part, norms) for part in trained):
        notes.append(
            "The model was judged in eval mode. In training, BatchNorm takes its mean and variance"
            " from all cells, those of the padding, too."
        )
    # More zeros in a row that has some already would show little.
    is_complete = len(runs) > 3 and shape.steps == max(layout.lengths)
    if not is_complete:
        notes.append(
            f"Not tested: {AMOUNT}. That takes sequences of different lengths, and a model for"
            " batches of any width, so give a mask the width of what it hides, as in"
            " pv.real_mask(lengths, output.shape[1]). On the CPU, give an x that is as wide as its"
            " longest sequence; on a GPU, one that is a step wider."
        )
    outputs = []
    missing = torch.empty(0)
    compared = partial(_compared, real=real, shape=shape, added=added, tolerance=tolerance)
    for name in dict.fromkeys(name for run in runs for name in run):
        values = [run.get(name, missing) for run in runs]
        outputs.append(_judged(partial(compared, name), values, shape.steps, has_fixed))
    for name, kind in unread.items():
        reason = f"it is {kind}, and only tensors, arrays, numbers and text are compared"
        outputs.append(Output(name, "entries", 0, None, reason=reason))
    return PaddingComparison(layout, tuple(outputs), tuple(notes), is_complete)


def _modules_of(model: object) -> Iterator[nn.Module]:
    """Yields the modules that a model consists of, belongs to or, as a function, names."""
    values = [getattr(model, "__self__", None)]
    if isinstance(model, nn.Module):
        yield model
    elif isinstance(model, partial):
        values += [*model.args, *model.keywords.values()]
        yield from _modules_of(model.func)
    elif inspect.isfunction(model):
        # A variable may have no value yet, and what is wrapped may be no function.
        with suppress(ValueError, TypeError):
            names = inspect.getclosurevars(inspect.unwrap(model))
            values += names.nonlocals.values()
            values += names.globals.values()
    for value in values:
        if isinstance(value, nn.Module):
            yield value


@contextmanager
def evaluating(model: nn.Module, others: bool = False) -> Iterator[list[nn.Module]]:
    """Sets a model to eval mode without gradients.

    Afterwards, its modes, its buffers and the random state are as they were.

    Args:
        model: the model.
        others: whether to do the same with any other module, as soon as this thread calls it.

    Yields:
        The modules that were in training mode. The list grows with the other modules.
    """
    is_used = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    devices = range(torch.cuda.device_count()) if is_used else ()
    random_state = torch.random.fork_rng(devices)
    thread_id = get_ident()
    trained = [part for part in model.modules() if part.training]
    with ExitStack() as after, random_state, torch.no_grad():

        def evaluate(called: nn.Module, inputs: object) -> None:
            if called.training and get_ident() == thread_id:
                trained.extend(part for part in called.modules() if part.training)
                after.enter_context(_eval_mode(called, called_only=True))

        after.enter_context(_eval_mode(model))
        if others:
            after.enter_context(register_module_forward_pre_hook(evaluate))
        yield trained


@contextmanager
def _eval_mode(model: nn.Module, called_only: bool = False) -> Iterator[None]:
    """Sets a model to eval mode. Afterwards, its modes and its buffers are as they were.

    If the model was found because it was called, its buffers get their values back, but are not put
    back in their places, because torch.func may have lent them for this call.
    """
    with ExitStack() as after, keeping_modes(model):
        for part in model.modules():
            for name, buffer in part.named_buffers(recurse=False):
                if is_lazy(buffer) or is_batched(buffer):
                    continue
                if not called_only:
                    after.callback(setattr, part, name, buffer)
                after.callback(_restore, buffer, buffer.clone())
        with suppress(NotImplementedError):  # an exported program has no modes
            model.eval()
        yield


def _restore(buffer: Tensor, values: Tensor) -> None:
    """Copies values into a buffer, unless it has them: an expanded buffer cannot be written to."""
    if not torch.equal(buffer, values):
        buffer.data.copy_(values)


def _clean(run: Run, x: Tensor, real: Tensor, shape: Padded) -> tuple[Tensor, bool]:
    """Returns the batch to begin with, and whether all of its padding has the value that `x` has.

    Steps that are padding in every row are left out if the model takes the batch without them.
    Padding of several values becomes 0, and so does padding that makes a result NaN.
    """
    axis = int(shape.batch_first)
    mask = real if shape.batch_first else real.T
    zeros = x.clone()
    if x.is_floating_point():
        zeros[~mask] = 0
    has_fixed = not x.is_floating_point() or is_constant(x[~mask])
    own = x if has_fixed else zeros
    lengths = real.sum(1)
    longest = int(lengths.max())
    widths = [longest, shape.steps]
    if longest in (shape.batch, lengths.min()):
        widths = [shape.steps]
    for width in widths:
        for batch in (own, zeros):
            narrow = batch.narrow(axis, 0, width)
            with suppress(Exception):
                results = run(narrow).values()
                follows = all(width == shape.steps or shape.steps not in r.shape for r in results)
                if follows and not any(result.isnan().any() for result in results):
                    return narrow, has_fixed and batch is own
    return zeros, has_fixed


def _run(model: Model, unread: dict[str, str], batch: Tensor) -> dict[str, Tensor]:
    """Returns the tensors in a model's result by name, and its other numbers as one tensor.

    In `unread`, it notes what can become neither, by name.
    """
    results = {}
    numbers = []
    for name, value in parts(model(batch.clone())):
        is_array = isinstance(value, np.ndarray) and value.dtype.kind in "biufc"
        is_complex = isinstance(value, (complex, np.complexfloating))
        if is_array or is_complex:
            value = torch.tensor(np.array(value))
        if isinstance(value, Tensor):
            # A copy, because the next run may write into the model's own tensor.
            value = value.detach().to_dense().clone()
            named = {name or "output": value}
            if value.is_complex():
                named = {f"{name}.real": value.real, f"{name}.imag": value.imag}
            results.update(named)
        elif isinstance(value, (int, float, np.number, np.bool_)):
            numbers.append(value)
        elif isinstance(value, str):
            numbers.append(hash(value))
        elif value is not None:
            unread[name or "output"] = kind_of(value)
    if numbers:
        results["numbers"] = torch.tensor(numbers)
    return results


def _wider_runs(
    run: Run, clean: Tensor, mask: Tensor, axis: int, added: int
) -> list[dict[str, Tensor]]:
    """Runs the model on batches with more time steps; empty if it takes none.

    Returns:
        The results of a batch whose real cells are alike, of the batch with more of its own
        padding, of the batch with data in these steps, and of the first one with more padding. (If
        all cells are alike, a zero in the padding is nearly always a feature's largest value.)
    """
    steps = clean.narrow(axis, 0, 1).repeat_interleave(added, axis)
    padding = clean[~mask]
    same = clean.clone()
    same[mask] = _alike(clean[mask], padding)
    more = padding[:1].expand_as(steps) if len(padding) else steps
    longer = [torch.cat([clean, more], axis), torch.cat([clean, steps], axis)]
    longer.append(torch.cat([same, more], axis))
    unpacking = UnpackingWider(added)
    with suppress(Exception):
        first = run(same)
        with suppress(Exception), unpacking:
            return [first, *map(run, longer)]
        if not unpacking.has_widened:
            return [first, *map(run, longer)]
    return []


def _alike(real: Tensor, padding: Tensor) -> Tensor:
    """Returns multiples of the cell with the largest number, or one id that is not padding.

    The multiples differ, because a model may divide by what its cells differ in, or sort them.
    """
    is_float = real.is_floating_point()
    if len(padding) and not is_float:
        is_other = (real != padding[:1]).reshape(len(real), -1).any(1)
        real = real[is_other] if is_other.any() else real
    sizes = real.reshape(len(real), -1).to(torch.complex128).abs()
    largest = sizes.nan_to_num(0, 0).amax(1)
    cell = real[largest.argmax()]
    if not is_float:
        return cell
    generator = torch.Generator().manual_seed(0)
    factors = 1 - torch.rand(len(real), generator=generator) / 2
    return cell * factors.to(real).reshape(-1, *[1] * cell.dim())


def _poisoned(clean: Tensor, mask: Tensor) -> Tensor:
    """Fills the padding with other values: random numbers, or ids from real cells.

    Raises:
        ValueError: all ids are 0.
    """
    generator = torch.Generator().manual_seed(0)
    real = clean[mask]
    padding = int((~mask).sum())
    poisoned = clean.clone()
    if not padding:
        return poisoned
    if clean.is_floating_point():
        noise = torch.randn(padding, *real.shape[1:], generator=generator)
        largest = real.abs().nan_to_num(0, 0).max()
        poisoned[~mask] = noise.to(real) * largest.clamp(min=1)
        return poisoned
    others = real[real.reshape(len(real), -1).any(1)]
    if not len(others):
        raise ValueError(
            "the real cells of x contain only the id 0, so no other id can replace the padding;"
            " give at least two different ids"
        )
    rows = torch.randint(len(others), (padding,), generator=generator)
    poisoned[~mask] = others[rows.to(others.device)]
    return poisoned


def _judged(
    compared: Callable[[Tensor, Tensor], Output],
    results: Sequence[Tensor],
    steps: int,
    has_fixed: bool,
) -> Output:
    """Judges one result.

    Args:
        compared: a function that compares it in two runs.
        results: its values in the runs: clean, clean again, poisoned, and perhaps those of
            `_wider_runs`.
        steps: the number of time steps.
        has_fixed: whether the padding has a single value, for which a model may look.
    """
    clean, again, poisoned, *wider = results
    output = compared(clean, again)
    if output.differing:
        return _unclear(output, "it differs between two equal runs, or is not finite")
    output = compared(clean, poisoned)
    is_resized = False
    if wider:
        same, longer, read, same_longer = wider
        widened = compared(clean, longer)
        # Results may be ranks, which are arbitrary among equal ids, or NaN, if a spread is 0.
        is_usable = same.is_floating_point() and not compared(same, same).differing
        if is_usable and not widened.differing:
            widened = compared(same, same_longer)
        is_resized = clean.shape != longer.shape and widened.places != "real cells"
        if not is_resized:
            if not output.differing and widened.differing:
                return replace(widened, reason=AMOUNT)
            # A model that reads no further steps has not been tested with more padding.
            is_tested = has_fixed and compared(clean, read).differing and not widened.differing
            if is_tested and output.differing:
                return _unclear(
                    output,
                    f"it depends on {VALUES}, but not on {AMOUNT}; that is right only if the"
                    " padding always holds the same value",
                )
    if output.differing and clean.shape == poisoned.shape:
        if is_resized:
            return _unclear(output, "it differs, and may contain results of the padding itself")
        if output.places != "real cells" and steps in clean.shape:
            reason = "it differs, and its axes of batch and time cannot be told apart"
            return _unclear(output, reason)
    return output


def _unclear(output: Output, reason: str) -> Output:
    return replace(output, differing=None, sequences=(), reason=reason)


def _readings(size: torch.Size, shape: Padded, real: Tensor) -> Iterator[Reading]:
    """Yields the ways to read a result of a size as cells: those at real steps are returned."""
    batch, steps, first = shape

    def cells(result: Tensor, axes: tuple[int, int]) -> Tensor:
        own = result[tuple(map(slice, size))]  # without the steps of a wider batch, on any axis
        return own.movedim(axes, (0, 1))[real]

    def flat_cells(result: Tensor, by_step: bool) -> Tensor:
        order = (-1, batch) if by_step else (batch, -1)
        rows = result.reshape(*order, *result.shape[1:])
        if by_step:
            rows = rows.transpose(0, 1)
        return rows[(slice(batch), slice(steps), *map(slice, size[1:]))][real]

    pairs = [
        (i, j) for i, n in enumerate(size) for j, m in enumerate(size) if (n, m) == (batch, steps)
    ]
    if len(pairs) == 1 or (int(not first), int(first)) in pairs:
        for axes in pairs:
            yield partial(cells, axes=axes)
    if size and size[0] == batch * steps:
        yield partial(flat_cells, by_step=False)
        yield partial(flat_cells, by_step=True)


def _fits(result: Tensor, size: torch.Size, shape: Padded, added: int) -> bool:
    """Returns whether a result has a size, or the size that added steps make of it."""
    wider = shape.steps + added
    grown = {shape.steps: wider, shape.batch * shape.steps: shape.batch * wider}
    if result.ndim != len(size):
        return False
    pairs = zip(size, result.shape, strict=True)
    return all(new in (old, grown.get(old)) for old, new in pairs)


def _compared(
    name: str,
    clean: Tensor,
    other: Tensor,
    real: Tensor,
    shape: Padded,
    added: int,
    tolerance: float | None,
) -> Output:
    """Compares one tensor of two runs, cell by cell, row by row or as a whole."""
    allowed = of_states(clean.dtype, clean.device.type)
    if tolerance is not None and clean.is_floating_point():
        allowed = share("tolerance", tolerance)
    compared = []
    readings = (
        _readings(clean.shape, shape, real) if _fits(other, clean.shape, shape, added) else ()
    )
    for read in readings:
        owner = real.nonzero()[:, 0]
        compared.append(_rows(name, "real cells", read(clean), read(other), owner, allowed))
    if compared:
        return min(compared, key=lambda output: output.differing or 0)
    if clean.shape != other.shape:
        largest = max(clean.numel(), other.numel())
        return Output(name, "entries", largest, largest)
    if clean.shape.count(shape.batch) == 1:  # otherwise it could be any of these dimensions
        axis = clean.shape.index(shape.batch)
        owner = torch.arange(shape.batch)
        rows = clean.movedim(axis, 0)
        return _rows(name, "sequences", rows, other.movedim(axis, 0), owner, allowed)
    owner = torch.empty(0, dtype=torch.int64)
    return _rows(name, "entries", clean.flatten(), other.flatten(), owner, allowed)


def _rows(
    name: str, places: str, clean: Tensor, other: Tensor, owner: Tensor, allowed: float
) -> Output:
    """Compares rows. What rounding explains is a share of the sequence's largest changed value.

    Values that are the same in both runs, such as the −1e9 of a mask, say nothing about rounding.

    Args:
        name: the name of the output.
        places: what the rows are.
        clean: the rows of the first run.
        other: the rows of the second run.
        owner: the sequence of each row; empty if it is not known.
        allowed: the share.
    """
    if torch.equal(clean, other):
        return Output(name, places, len(clean), 0)
    changed, before, after = (
        rows.cpu().double().unsqueeze(-1).flatten(1) for rows in (clean != other, clean, other)
    )
    gap = (before - after).abs()
    largest = scales(before, changed)
    groups = owner if len(owner) else torch.zeros(len(gap), dtype=torch.int64)
    scale = torch.zeros(1 + max(groups.tolist(), default=0), dtype=torch.float64)
    scale.scatter_reduce_(0, groups, pad(largest, (0, 1)).amax(1), "amax")
    limit = allowed * scale[groups].unsqueeze(1)
    differs = (changed.bool() & ~(gap <= limit)).any(1)  # NaN differs from itself
    named = sorted({*owner[differs[: len(owner)]].tolist()})
    return Output(name, places, len(gap), int(differs.sum()), (*map(sequence_name, named),))
