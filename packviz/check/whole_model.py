"""Finds out whether what a model returns depends on the padding of its input."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from threading import get_ident

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.nn.parameter import is_lazy

from packviz.check.extra_padding import ExtraPaddingMode
from packviz.core.layout import Layout, require_nonempty_sequences, sequence_name
from packviz.core.numbers import HasNumbers, Row
from packviz.core.padded import PaddedShape, is_constant
from packviz.core.validation import kind_of, require_nonnegative
from packviz.draw.text import table
from packviz.ops.agreement import parts, rounding_scales
from packviz.ops.masks import Lengths, lengths_tensor, require_mask_width
from packviz.ops.private import is_vmapped
from packviz.ops.tolerance import state_tolerance

Model = Callable[[Tensor], object]
"""A module or a function that takes a padded batch alone."""

Results = dict[str, Tensor]
"""The tensors in a model's result, by name."""

RunModel = Callable[[Tensor], Results]
"""A function that runs the model on a batch, and returns its results by name."""

CellReader = Callable[[Tensor], Tensor]
"""A function that takes a result and returns a row for each cell or sequence."""

PADDING_VALUES_TEXT = "the values in the padding"
PADDING_AMOUNT_TEXT = "how much padding there is"
N_ADDED_STEPS = 8
"""The number of time steps of padding that are added to the batch."""


@dataclass(frozen=True)
class Output:
    """One tensor that a model returned.

    Attributes:
        name: its place in the model's result, such as `[0]`; `output` if the result is one tensor.
        item_kind: the things that were compared, `"real cells"`, `"sequences"` or `"entries"`.
        n_compared: how many of them were compared.
        n_differing: how many of them depend on the padding; `None` if nothing can be concluded.
        sequences: the sequences that depend on the padding.
        reason: what the result depends on, or why nothing can be concluded.
    """

    name: str
    item_kind: str
    n_compared: int
    n_differing: int | None
    sequences: tuple[str, ...] = ()
    reason: str = PADDING_VALUES_TEXT

    @property
    def verdict(self) -> str:
        """The comparison in words."""
        if self.n_differing is None:
            return f"cannot be judged: {self.reason}"
        if not self.n_differing:
            return "does not depend on the padding"
        where = f" ({', '.join(self.sequences)})" if self.sequences else ""
        fraction_text = f"{self.n_differing:,} of {self.n_compared:,} {self.item_kind}"
        return f"depends on {self.reason}: {fraction_text} change{where}"


@dataclass(frozen=True)
class PaddingComparison(HasNumbers):
    """A comparison of what a model returns with clean and with poisoned padding.

    Attributes:
        layout: the layout of the batch.
        outputs: the tensors that the model returned, and all other numbers together.
        notes: what was not tested.
        is_padding_amount_tested: whether it was tested, too, how much padding there is.
    """

    layout: Layout
    outputs: tuple[Output, ...]
    notes: tuple[str, ...] = ()
    is_padding_amount_tested: bool = True

    @property
    def agrees(self) -> bool | None:
        """Whether nothing depends on the padding; `None` if that cannot be determined."""
        if any(output.n_differing for output in self.outputs):
            return False
        is_conclusive = self.is_padding_amount_tested and self.outputs and self.layout.n_padding
        return True if is_conclusive and all(o.n_differing == 0 for o in self.outputs) else None

    @property
    def summary(self) -> str:
        """The verdict in a sentence."""
        if not self.layout.n_padding:
            return "The batch has no padding, so it shows nothing. Give one with padding."
        if not self.outputs:
            return "The model returned no numbers to compare."
        if self.agrees:
            return "Nothing that the model returned depends on the padding."
        differing_names = [output.name for output in self.outputs if output.n_differing]
        if differing_names:
            return f"What the model returned depends on the padding: {', '.join(differing_names)}."
        if not any(output.n_differing is None for output in self.outputs):
            return (
                f"Nothing depends on {PADDING_VALUES_TEXT}, but {PADDING_AMOUNT_TEXT} was not"
                " tested."
            )
        return "It is unclear whether the padding spoils what the model returned."

    def numbers(self) -> list[Row]:
        """Returns a row for each tensor that the model returned."""
        return [
            {
                "output": output.name,
                "compared": output.n_compared,
                "of": output.item_kind,
                "differing": output.n_differing,
            }
            for output in self.outputs
        ]

    def to_text(self) -> str:
        """Returns the verdict, a line for each tensor, and the notes."""
        lines = [[output.name, output.verdict] for output in self.outputs]
        return "\n".join([self.summary, "", *table(lines, "  <  <"), *self.notes])


def compare_padding(
    model: Model, x: Tensor, lengths: Lengths, batch_first: bool | None, tolerance: float | None
) -> PaddingComparison:
    """Runs a model with clean and with poisoned padding. See `packviz.check.compare.compare`."""
    int_lengths = lengths_tensor(lengths)
    shape = PaddedShape.from_checked_shape(len(int_lengths), x.shape, batch_first)
    require_mask_width(lengths, shape.steps)
    if shape.batch == shape.steps:
        raise ValueError(
            "x has as many sequences as time steps, so the axes of a result cannot be told apart:"
            " leave a sequence out, or add a step of padding"
        )
    layout = require_nonempty_sequences(Layout.from_padded(x.shape, int_lengths, shape.batch_first))
    x = x.detach()
    real = torch.tensor(layout.mask)  # on the CPU, it can index a tensor on any device
    axis = int(shape.batch_first)
    incomparable_types: dict[str, str] = {}
    sorted_names_by_run: list[set[str]] = []
    order = int_lengths.sort(descending=True).indices.to(x.device)
    sort = partial(torch.index_select, dim=1 - axis, index=order)
    run_model = partial(_run, model, incomparable_types, sorted_names_by_run, sort)
    with evaluating(
        nn.ModuleList(_find_modules(model)), include_called_modules=True
    ) as training_modules:
        clean_batch, has_fixed_padding = _choose_clean_batch(run_model, x, real, shape)
        n_added = shape.steps - clean_batch.shape[axis]
        shape = shape._replace(steps=clean_batch.shape[axis])
        real = real[:, : shape.steps]
        mask = real if shape.batch_first else real.T
        runs = [run_model(clean_batch), run_model(clean_batch)]
        runs.append(_run_poisoned_batch(run_model, clean_batch, mask))
        # On a GPU, an index out of range could not be caught.
        for n_steps in (n_added + N_ADDED_STEPS if x.is_cpu else 0, n_added):
            if n_steps and len(runs) == 3:
                n_added = n_steps
                runs += _run_wider_batches(run_model, clean_batch, mask, axis, n_added)
    notes = []
    if any("BatchNorm" in type(part).__name__ for part in training_modules):
        notes.append(
            "The model was judged in eval mode. In training, BatchNorm takes its mean and variance"
            " from all cells, those of the padding, too."
        )
    # More zeros in a row that has some already would show little.
    is_padding_amount_tested = len(runs) > 3 and shape.steps == max(layout.lengths)
    if not is_padding_amount_tested:
        notes.append(
            f"Not tested: {PADDING_AMOUNT_TEXT}. That takes sequences of different lengths, and a"
            " model for batches of any width, so give a mask the width of what it hides, as in"
            " pv.real_mask(lengths, output.shape[1]). On the CPU, give an x that is as wide as its"
            " longest sequence; on a GPU, one that is a step wider."
        )
    outputs = []
    compare_results = partial(
        _compare_tensors, real=real, shape=shape, n_added=n_added, tolerance=tolerance
    )
    # In a sorted batch, the real cells are at other places.
    sorted_names = set.intersection(*sorted_names_by_run)
    for name in dict.fromkeys(name for results in runs for name in results):
        if name in sorted_names:
            continue
        values_by_run = [results.get(name, torch.empty(0)) for results in runs]
        outputs.append(
            _judge_output(
                partial(compare_results, name),
                values_by_run,
                shape.steps,
                has_fixed_padding,
                x.is_floating_point(),
            )
        )
    for name, kind in incomparable_types.items():
        reason = f"it is {kind}, and only tensors, arrays, numbers and text are compared"
        outputs.append(Output(name, "entries", 0, None, reason=reason))
    return PaddingComparison(layout, tuple(outputs), tuple(notes), is_padding_amount_tested)


def _find_modules(model: object) -> Iterator[nn.Module]:
    """Yields the modules that a model consists of, belongs to or, as a function, names."""
    values = [getattr(model, "__self__", None)]
    if isinstance(model, nn.Module):
        yield model
    elif isinstance(model, partial):
        values += [*model.args, *model.keywords.values()]
        yield from _find_modules(model.func)
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
def evaluating(model: nn.Module, include_called_modules: bool = False) -> Iterator[list[nn.Module]]:
    """Sets a model to eval mode without gradients.

    Afterwards, its modes, its buffers and the random state are as they were.

    Args:
        model: the model.
        include_called_modules: whether to do the same with any other module, as soon as this thread
            calls it. If such a module replaces a buffer, the new one stays.

    Yields:
        The modules that were in training mode. The list grows with the other modules.
    """
    is_cuda_used = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    devices = range(torch.cuda.device_count()) if is_cuda_used else ()
    forked_rng = torch.random.fork_rng(devices)
    thread_id = get_ident()
    with ExitStack() as exit_stack, forked_rng, torch.no_grad():

        def evaluate(module: nn.Module, inputs: object) -> None:
            if getattr(module, "training", False) and get_ident() == thread_id:
                training_modules.extend(_set_eval_mode(module, exit_stack, is_being_called=True))

        training_modules = _set_eval_mode(model, exit_stack)
        if include_called_modules:
            exit_stack.enter_context(register_module_forward_pre_hook(evaluate))
        yield training_modules


def _set_eval_mode(
    model: nn.Module, exit_stack: ExitStack, is_being_called: bool = False
) -> list[nn.Module]:
    """Sets a model to eval mode, and returns the modules that were in training mode.

    When the stack unwinds, the model's modes and its buffers are as they were. If the model was
    found because it was called, its buffers get their values back, but are not put back in their
    places, because torch.func may have lent them for this call.
    """
    # A frozen module of TorchScript has no mode.
    parts_with_mode = [part for part in model.modules() if hasattr(part, "training")]
    training_modules = [part for part in parts_with_mode if part.training]
    for part in parts_with_mode:
        exit_stack.callback(setattr, part, "training", part.training)
    # The stack unwinds in reverse, and a module's `train` sets the modes of all its parts.
    for part in reversed(parts_with_mode):
        for name, buffer in part.named_buffers(recurse=False):
            if is_lazy(buffer) or is_vmapped(buffer):
                continue
            if not is_being_called:
                exit_stack.callback(setattr, part, name, buffer)
            exit_stack.callback(_restore_buffer, buffer, buffer.clone())
        # A model's own `train` may switch more than modes, but it may also be its training loop.
        with suppress(Exception):
            if [*inspect.signature(part.train).parameters] == ["mode"]:
                part.eval()
                exit_stack.callback(part.train, part in training_modules)
        part.training = False
    return training_modules


def _restore_buffer(buffer: Tensor, values: Tensor) -> None:
    """Copies values into a buffer, unless it has them: an expanded buffer cannot be written to."""
    if not torch.equal(buffer, values):
        buffer.data.copy_(values)


def _choose_clean_batch(
    run_model: RunModel, x: Tensor, real: Tensor, shape: PaddedShape
) -> tuple[Tensor, bool]:
    """Returns the batch to begin with, and whether all of its padding has the value that `x` has.

    Steps that are padding in every row are left out if the model takes the batch without them.
    Padding of several values becomes 0, and so does padding that makes a result NaN.
    """
    mask = real if shape.batch_first else real.T
    zero_padded = x.clone()
    if x.is_floating_point():
        zero_padded[~mask] = 0
    has_fixed_padding = not x.is_floating_point() or is_constant(x[~mask])
    preferred_batch = x if has_fixed_padding else zero_padded
    lengths = real.sum(1)
    longest = int(lengths.max())
    widths = [longest, shape.steps]
    if longest in (shape.batch, lengths.min()):
        widths = [shape.steps]
    for width in widths:
        for batch in (preferred_batch, zero_padded):
            narrow_batch = batch.narrow(int(shape.batch_first), 0, width)
            with suppress(Exception):
                results = run_model(narrow_batch).values()
                results_follow_width = all(
                    width == shape.steps or shape.steps not in r.shape for r in results
                )
                if results_follow_width and not any(result.isnan().any() for result in results):
                    return narrow_batch, has_fixed_padding and batch is preferred_batch
    return zero_padded, has_fixed_padding


def _run(
    model: Model,
    incomparable_types: dict[str, str],
    sorted_names_by_run: list[set[str]],
    sort: Callable[[Tensor], Tensor],
    batch: Tensor,
) -> Results:
    """Returns the tensors in a model's result by name, and its other numbers as one tensor.

    In `incomparable_types`, it notes what can become neither, by name, and in `sorted_names_by_run`
    the names of results that are the batch itself, sorted by length.
    """
    sorted_batch = sort(batch)
    sorted_names = set()
    results = {}
    numbers = []
    for name, value in parts(model(batch.clone())):
        is_array = isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "biufc"
        if is_array or isinstance(value, complex):
            value = torch.tensor(np.array(value))
        if isinstance(value, Tensor):
            # A copy, because the next run may write into the model's own tensor.
            value = value.detach().to_dense().clone()
            is_batch_like = value.dtype == batch.dtype and value.device == batch.device
            if is_batch_like and value.equal(sorted_batch) and not value.equal(batch):
                sorted_names.add(name or "output")
            tensors = {name or "output": value}
            if value.is_complex():
                tensors = {f"{name}.real": value.real, f"{name}.imag": value.imag}
            results.update(tensors)
        elif isinstance(value, (int, float)):
            numbers.append(value)
        elif isinstance(value, str):
            numbers.append(hash(value))
        elif value is not None:
            incomparable_types[name or "output"] = kind_of(value)
    if numbers:
        results["numbers"] = torch.tensor(numbers)
    sorted_names_by_run.append(sorted_names)
    return results


def _run_wider_batches(
    run_model: RunModel, clean_batch: Tensor, mask: Tensor, axis: int, n_added: int
) -> list[Results]:
    """Runs the model on batches with more time steps; empty if it takes none.

    Returns:
        The results of a batch whose real cells are alike, of the batch with data in these steps,
        of the batch with more of its own padding, and of the first one with more padding. (If all
        cells are alike, a zero in the padding is nearly always a feature's largest value.)
    """
    data_steps = clean_batch.narrow(axis, 0, 1).repeat_interleave(n_added, axis)
    padding = clean_batch[~mask]
    uniform_batch = clean_batch.clone()
    uniform_batch[mask] = _make_uniform_cells(clean_batch[mask], padding)
    padding_steps = padding[:1].expand_as(data_steps) if len(padding) else data_steps
    more_padding_batches = [
        torch.cat([batch, padding_steps], axis) for batch in (clean_batch, uniform_batch)
    ]
    extra_padding_mode = ExtraPaddingMode(n_added, mask.sum(axis).tolist())
    with suppress(Exception):
        # A model that finds the lengths in the data finds all steps real, so it adds no padding.
        more_data_results = run_model(torch.cat([clean_batch, data_steps], axis))
        other_results = [run_model(uniform_batch), more_data_results]
        for mode in (extra_padding_mode, nullcontext()):
            if not extra_padding_mode.has_widened:
                with suppress(Exception), mode:
                    return [*other_results, *map(run_model, more_padding_batches)]
    return []


def _make_uniform_cells(real: Tensor, padding: Tensor) -> Tensor:
    """Returns cells like the one with the largest number, or one id that is not padding.

    Each number is a share of that cell's: at least half of it, and all different, because a model
    may sort its cells, or divide by their spread, after it has made them equally long.
    """
    is_float = real.is_floating_point()
    if len(padding) and not is_float:
        differs_from_padding = (real != padding[:1]).reshape(len(real), -1).any(1)
        real = real[differs_from_padding] if differs_from_padding.any() else real
    magnitudes = real.reshape(len(real), -1).to(torch.complex128).abs()
    largest = magnitudes.nan_to_num(0, 0).amax(1)
    cell = real[largest.argmax()]
    if not is_float:
        return cell
    generator = torch.Generator().manual_seed(0)
    shares = 1 - torch.rand(real.shape, generator=generator) / 2
    return cell * shares.to(real)


def _run_poisoned_batch(run_model: RunModel, clean_batch: Tensor, mask: Tensor) -> Results:
    """Runs the model with other values in the padding: random numbers, or ids from real cells.

    If the model refuses these numbers, as it may if some are categories or have to be positive, the
    padding gets the least or the largest value that its feature has at real cells.

    Raises:
        ValueError: all ids are 0.
    """
    generator = torch.Generator().manual_seed(0)
    real = clean_batch[mask]
    n_padding = int((~mask).sum())
    poisoned_batch = clean_batch.clone()
    if not n_padding:
        return run_model(poisoned_batch)
    if clean_batch.is_floating_point():
        noise = torch.randn(n_padding, *real.shape[1:], generator=generator).to(real)
        finite_real = real.nan_to_num(0, 0, 0)
        with suppress(Exception):
            poisoned_batch[~mask] = noise * finite_real.abs().max().clamp(min=1)
            return run_model(poisoned_batch)
        least, largest = finite_real.aminmax(dim=0)
        poisoned_batch[~mask] = largest.where(noise > 0, least)
    else:
        nonzero_ids = real[real.reshape(len(real), -1).any(1)]
        if not len(nonzero_ids):
            raise ValueError(
                "the real cells of x contain only the id 0, so no other id can replace the padding;"
                " give at least two different ids"
            )
        id_indices = torch.randint(len(nonzero_ids), (n_padding,), generator=generator)
        poisoned_batch[~mask] = nonzero_ids[id_indices.to(nonzero_ids.device)]
    return run_model(poisoned_batch)


def _judge_output(
    compare_results: Callable[[Tensor, Tensor], Output],
    results: Sequence[Tensor],
    steps: int,
    has_fixed_padding: bool,
    uniform_cells_differ: bool,
) -> Output:
    """Judges one result.

    Args:
        compare_results: a function that compares it in two runs.
        results: its values in the runs: clean, clean again, poisoned, and perhaps those of
            `_run_wider_batches`.
        steps: the number of time steps.
        has_fixed_padding: whether the padding has a single value, for which a model may look.
        uniform_cells_differ: whether the cells of `_make_uniform_cells` differ from each other.
    """
    clean_result, repeated_result, poisoned_result, *wider_results = results
    output = compare_results(clean_result, repeated_result)
    if output.n_differing:
        return _unclear_output(output, "it differs between two equal runs, or is not finite")
    output = compare_results(clean_result, poisoned_result)
    is_resized = False
    if wider_results:
        uniform_result, more_data_result, more_padding_result, uniform_more_padding_result = (
            wider_results
        )
        more_padding_output = compare_results(clean_result, more_padding_result)
        # Results may be ranks, which are arbitrary among equal ids, or NaN, if a spread is 0.
        is_uniform_usable = (
            uniform_cells_differ or uniform_result.is_floating_point()
        ) and not compare_results(uniform_result, uniform_result).n_differing
        if is_uniform_usable and not more_padding_output.n_differing:
            more_padding_output = compare_results(uniform_result, uniform_more_padding_result)
        is_resized = (
            clean_result.shape != more_padding_result.shape
            and more_padding_output.item_kind != "real cells"
        )
        if not is_resized:
            if not output.n_differing and more_padding_output.n_differing:
                # A sequence that is wrong already may not change any more.
                return replace(more_padding_output, reason=PADDING_AMOUNT_TEXT, sequences=())
            # A model that reads no further steps has not been tested with more padding.
            ignores_padding_amount = (
                has_fixed_padding
                and compare_results(clean_result, more_data_result).n_differing
                and not more_padding_output.n_differing
            )
            if ignores_padding_amount and output.n_differing:
                return _unclear_output(
                    output,
                    f"it depends on {PADDING_VALUES_TEXT}, but not on {PADDING_AMOUNT_TEXT}; that"
                    " is right only if the padding always holds the same value",
                )
    if output.n_differing and clean_result.shape == poisoned_result.shape:
        if is_resized:
            return _unclear_output(
                output, "it differs, and may contain results of the padding itself"
            )
        if output.item_kind != "real cells" and steps in clean_result.shape:
            return _unclear_output(
                output, "it differs, and its axes of batch and time cannot be told apart"
            )
    return output


def _unclear_output(output: Output, reason: str) -> Output:
    return replace(output, n_differing=None, sequences=(), reason=reason)


def _cell_readers(size: torch.Size, shape: PaddedShape, real: Tensor) -> Iterator[CellReader]:
    """Yields the ways to read a result of a size as cells: those at real steps are returned."""
    batch, steps, batch_first = shape

    def read_cells(result: Tensor, axes: tuple[int, int]) -> Tensor:
        # The steps of a wider batch are left out, on any axis.
        narrow_result = result[tuple(map(slice, size))]
        return narrow_result.movedim(axes, (0, 1))[real]

    def read_flat_cells(result: Tensor, is_time_first: bool) -> Tensor:
        leading_shape = (-1, batch) if is_time_first else (batch, -1)
        rows = result.reshape(*leading_shape, *result.shape[1:])
        if is_time_first:
            rows = rows.transpose(0, 1)
        return rows[(slice(batch), slice(steps), *map(slice, size[1:]))][real]

    pairs = [
        (i, j) for i, n in enumerate(size) for j, m in enumerate(size) if (n, m) == (batch, steps)
    ]
    if len(pairs) == 1 or (int(not batch_first), int(batch_first)) in pairs:
        for axes in pairs:
            yield partial(read_cells, axes=axes)
    if size and size[0] == batch * steps:
        yield partial(read_flat_cells, is_time_first=False)
        yield partial(read_flat_cells, is_time_first=True)


def _has_size(result: Tensor, size: torch.Size, shape: PaddedShape, n_added: int) -> bool:
    """Returns whether a result has a size, or the size that added steps make of it."""
    wider_steps = shape.steps + n_added
    grown_sizes = {shape.steps: wider_steps, shape.batch * shape.steps: shape.batch * wider_steps}
    if result.ndim != len(size):
        return False
    pairs = zip(size, result.shape, strict=True)
    return all(new in (old, grown_sizes.get(old)) for old, new in pairs)


def _compare_tensors(
    name: str,
    clean_result: Tensor,
    other_result: Tensor,
    real: Tensor,
    shape: PaddedShape,
    n_added: int,
    tolerance: float | None,
) -> Output:
    """Compares one tensor of two runs, cell by cell, row by row or as a whole."""
    relative_tolerance = state_tolerance(clean_result.dtype, clean_result.device.type)
    if tolerance is not None and clean_result.is_floating_point():
        relative_tolerance = require_nonnegative("tolerance", tolerance)
    compare_rows = partial(_compare_rows, name, relative_tolerance)
    if _has_size(other_result, clean_result.shape, shape, n_added):
        outputs_by_reader = [
            compare_rows("real cells", read(clean_result), read(other_result), real.nonzero()[:, 0])
            for read in _cell_readers(clean_result.shape, shape, real)
        ]
        if outputs_by_reader:
            return min(outputs_by_reader, key=lambda output: output.n_differing or 0)
    if clean_result.shape != other_result.shape:
        largest = max(clean_result.numel(), other_result.numel())
        return Output(name, "entries", largest, largest)
    if clean_result.shape.count(shape.batch) == 1:  # otherwise it could be any of these dimensions
        axis = clean_result.shape.index(shape.batch)
        rows, other_rows = (result.movedim(axis, 0) for result in (clean_result, other_result))
        return compare_rows("sequences", rows, other_rows, torch.arange(shape.batch))
    no_sequences = torch.empty(0, dtype=torch.int64)
    return compare_rows("entries", clean_result.flatten(), other_result.flatten(), no_sequences)


def _compare_rows(
    name: str,
    relative_tolerance: float,
    item_kind: str,
    clean_rows: Tensor,
    other_rows: Tensor,
    row_sequences: Tensor,
) -> Output:
    """Compares rows. What rounding explains is a share of the sequence's largest changed value.

    Values that are the same in both runs, such as the −1e9 of a mask, say nothing about rounding.

    Args:
        name: the name of the output.
        relative_tolerance: the share.
        item_kind: what the rows are.
        clean_rows: the rows of the first run.
        other_rows: the rows of the second run.
        row_sequences: the sequence of each row; empty if it is not known.
    """
    if torch.equal(clean_rows, other_rows):
        return Output(name, item_kind, len(clean_rows), 0)
    is_changed, values, other_values = (
        rows.cpu().double().unsqueeze(-1).flatten(1)
        for rows in (clean_rows != other_rows, clean_rows, other_rows)
    )
    abs_difference = (values - other_values).abs()
    largest = rounding_scales(values, is_changed)
    row_groups = (
        row_sequences if len(row_sequences) else torch.zeros(len(abs_difference), dtype=torch.int64)
    )
    scale = torch.zeros(1 + max(row_groups.tolist(), default=0), dtype=torch.float64)
    scale.scatter_reduce_(0, row_groups, pad(largest, (0, 1)).amax(1), "amax")
    max_difference = relative_tolerance * scale[row_groups].unsqueeze(1)
    # NaN differs from itself.
    differs = (is_changed.bool() & ~(abs_difference < max_difference)).any(1)
    differing_sequences = sorted({*row_sequences[differs[: len(row_sequences)]].tolist()})
    return Output(
        name,
        item_kind,
        len(abs_difference),
        int(differs.sum()),
        (*map(sequence_name, differing_sequences),),
    )
