"""Finds out whether what a model returns depends on the padding of its input."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from torch.nn.parameter import is_lazy

from packviz.check.compare import keeping_modes
from packviz.core.layout import Layout, require_steps, sequence_name
from packviz.core.numbers import HasNumbers, Row
from packviz.core.padded import Padded
from packviz.core.validation import share
from packviz.draw.text import table
from packviz.ops.agreement import parts
from packviz.ops.masks import Lengths, lengths_tensor, require_width
from packviz.ops.private import UnpackingWider
from packviz.ops.tolerance import of_states

Model = Callable[[Tensor], object]
"""A module or a function that takes a padded batch alone."""

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
    """

    layout: Layout
    outputs: tuple[Output, ...]
    notes: tuple[str, ...] = ()

    @property
    def agrees(self) -> bool | None:
        """Whether nothing depends on the padding; `None` if that cannot be determined."""
        if any(output.differing for output in self.outputs):
            return False
        is_judged = bool(self.outputs) and self.layout.n_padding > 0
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
    real = torch.tensor(layout.mask)  # on the CPU, it can index a result on any device
    mask = (real if shape.batch_first else real.T).to(x.device)
    clean = x.detach().clone()
    if clean.is_floating_point():
        clean[~mask] = 0
    poisoned = _poisoned(clean, mask)
    notes = []
    module = nn.ModuleList(_modules_of(model))
    norms = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
    if any(isinstance(part, norms) and part.training for part in module.modules()):
        notes.append(
            "The model was judged in eval mode. In training, BatchNorm takes its mean and variance"
            " from all cells, those of the padding, too."
        )
    with evaluating(module):
        runs = [_run(model, batch) for batch in (clean, clean, poisoned)]
        if x.is_cpu:  # on a GPU, an index out of range could not be caught
            wider = _wider(clean, mask, shape)
            with suppress(Exception), UnpackingWider(WIDER):
                runs += [_run(model, batch) for batch in wider]
            if len(runs) == 3:
                with suppress(Exception):
                    runs += [_run(model, batch) for batch in wider]
    if len(runs) == 3:
        notes.append(
            f"Not tested: {AMOUNT}, because the model does not take a wider batch, or the batch is"
            " not on the CPU."
        )
    is_constant = not (x.is_floating_point() and x[~mask].any())
    outputs = []
    missing = torch.empty(0)
    for name in dict.fromkeys(name for run in runs for name in run):
        values = [run.get(name, missing) for run in runs]
        outputs.append(_judged(name, values, real, shape, tolerance, is_constant))
    return PaddingComparison(layout, tuple(outputs), tuple(notes))


def _modules_of(model: Model) -> Iterator[nn.Module]:
    """Yields the modules that a model consists of, or that a function names or belongs to."""
    values: list[object] = [model, getattr(model, "__self__", None)]
    if isinstance(model, partial):
        values += [model.func, *model.args, *model.keywords.values()]
    if inspect.isfunction(model):
        with suppress(ValueError):  # a variable has no value yet
            names = inspect.getclosurevars(model)
            values += [*names.nonlocals.values(), *names.globals.values()]
    for value in values:
        if isinstance(value, nn.Module):
            yield value


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Sets a model to eval mode without gradients.

    Afterwards, its modes, its buffers and the random state are as they were.
    """
    is_used = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    devices = range(torch.cuda.device_count()) if is_used else ()
    random_state = torch.random.fork_rng(devices)
    with ExitStack() as after, keeping_modes(model), random_state, torch.no_grad():
        for part in model.modules():
            for name, buffer in part.named_buffers(recurse=False):
                if is_lazy(buffer):
                    continue
                after.callback(setattr, part, name, buffer)
                after.callback(_restore, buffer, buffer.clone())
        with suppress(NotImplementedError):  # an exported program has no modes
            model.eval()
        yield


def _restore(buffer: Tensor, values: Tensor) -> None:
    """Copies values into a buffer, unless it has them: an expanded buffer cannot be written to."""
    if not torch.equal(buffer, values):
        buffer.data.copy_(values)


def _run(model: Model, batch: Tensor) -> dict[str, Tensor]:
    """Returns the tensors in a model's result by name, and its other numbers as one tensor."""
    results = {}
    numbers = []
    for name, value in parts(model(batch.clone())):
        if isinstance(value, np.ndarray) and value.dtype.kind in "biufc":
            value = torch.from_numpy(value.copy())
        if isinstance(value, Tensor):
            value = value.detach().clone()  # the next run may write into the model's own tensor
            named = {name or "output": value}
            if value.is_complex():
                named = {f"{name}.real": value.real, f"{name}.imag": value.imag}
            results.update(named)
        elif isinstance(value, (int, float, np.integer, np.floating)):
            numbers.append(value)
    if numbers:
        results["numbers"] = torch.tensor(numbers)
    return results


def _wider(clean: Tensor, mask: Tensor, shape: Padded) -> list[Tensor]:
    """Returns the batch with more steps of its own padding, and with data in these steps."""
    axis = int(shape.batch_first)
    steps = clean.narrow(axis, 0, 1).repeat_interleave(WIDER, axis)
    padding = clean[~mask]
    more = padding[:1].expand_as(steps) if len(padding) else steps
    return [torch.cat([clean, added], axis) for added in (more, steps)]


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
    name: str,
    results: Sequence[Tensor],
    real: Tensor,
    shape: Padded,
    tolerance: float | None,
    is_constant: bool,
) -> Output:
    """Compares one tensor of the runs: clean, clean again, poisoned, and perhaps two wider ones.

    `is_constant` says that the padding of the batch holds ids, or nothing but zeros.
    """
    clean, again, poisoned, *wider = results
    output = _compared(name, clean, again, real, shape, tolerance)
    if output.differing:
        reason = "it differs between two equal runs, or is not finite"
        return replace(output, differing=None, sequences=(), reason=reason)
    output = _compared(name, clean, poisoned, real, shape, tolerance)
    if wider:
        widened, read = (_compared(name, clean, other, real, shape, tolerance) for other in wider)
        if widened.places == "real cells" or clean.shape == wider[0].shape:
            if not output.differing and widened.differing:
                return replace(widened, reason=AMOUNT)
            # A model that reads no further steps has not been tested with more padding.
            is_tested = is_constant and read.differing and not widened.differing
            if is_tested and output.differing:
                reason = (
                    f"it depends on {VALUES}, but not on {AMOUNT}; that is right only if the"
                    " padding always holds the same value"
                )
                return replace(output, differing=None, sequences=(), reason=reason)
    is_resized = clean.shape != poisoned.shape
    is_clear = is_resized or output.places == "real cells" or shape.steps not in clean.shape
    if output.differing and not is_clear:
        reason = "it differs, and its axes of batch and time cannot be told apart"
        return replace(output, differing=None, sequences=(), reason=reason)
    return output


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


def _fits(result: Tensor, size: torch.Size, shape: Padded) -> bool:
    """Returns whether a result has a size, or the size that more padding makes of it."""
    wider = shape.steps + WIDER
    grown = {shape.steps: wider, shape.batch * shape.steps: shape.batch * wider}
    if result.ndim != len(size):
        return False
    pairs = zip(size, result.shape, strict=True)
    return all(new in (old, grown.get(old)) for old, new in pairs)


def _compared(
    name: str, clean: Tensor, other: Tensor, real: Tensor, shape: Padded, tolerance: float | None
) -> Output:
    """Compares one tensor of two runs, cell by cell, row by row or as a whole."""
    allowed = of_states(clean.dtype, clean.device.type)
    if tolerance is not None and clean.is_floating_point():
        allowed = share("tolerance", tolerance)
    compared = []
    readings = _readings(clean.shape, shape, real) if _fits(other, clean.shape, shape) else ()
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
    largest = before.abs().where(changed.bool() & before.isfinite(), 0.0)
    groups = owner if len(owner) else torch.zeros(len(gap), dtype=torch.int64)
    scale = torch.zeros(1 + max(groups.tolist(), default=0), dtype=torch.float64)
    scale.scatter_reduce_(0, groups, pad(largest, (0, 1)).amax(1), "amax")
    limit = allowed * scale[groups].unsqueeze(1)
    differs = (changed.bool() & ~(gap <= limit)).any(1)  # NaN differs from itself
    named = sorted({*owner[differs[: len(owner)]].tolist()})
    return Output(name, places, len(gap), int(differs.sum()), (*map(sequence_name, named),))
