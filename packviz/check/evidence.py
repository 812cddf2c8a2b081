"""Judges from the data whether the sequences in a padded batch are where the lengths put them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from operator import itemgetter
from textwrap import shorten

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from packviz.check.findings import UNDECIDED_RULE, Finding
from packviz.core.layout import BoolArray, IntArray, Layout, is_mask, sequence_name, to_numpy
from packviz.core.padded import PaddedShape, dimension_order, resolve_batch_first
from packviz.core.validation import require_plain_values
from packviz.draw.text import with_noun
from packviz.ops.arguments import require_padded
from packviz.ops.masks import require_mask_width

MAX_CHANCE = 0.1
"""A mistake is reported if the probability that the data look wrong by chance is below this value.
With a larger value, more than 1 % of small batches whose data are sometimes zero would cause a
false alarm. The test `tests/unit/check/test_evidence.py` prints how often."""

UNEVEN_PADDING_RATE = 0.1
"""The assumed probability that the padding of a correct batch is not constant."""

MAX_ERROR_CHANCE = 1e-6
"""A mistake is an error if the data look wrong by chance with a probability below this value."""

PADDING_INSIDE_LENGTH = "padding inside the length"
DATA_AFTER_LENGTH = "data after the length"
BATCH_TIME_SWAPPED = "batch and time swapped"

_CellIndex = tuple[int, int]


class Batch:
    """A padded batch with its lengths.

    Attributes:
        x: `(B, T, I)` the batch on the CPU, unless it is on the meta device.
        values: `(B,)` the lengths as they were given, perhaps not whole; empty if they are on the
            meta device.
        size: `B`, the number of sequences.
        steps: `T`, the number of time steps.
        batch_first: whether the batch was given as `(B, T, …)`.
        order: the names of the dimensions.
    """

    def __init__(self, x: Tensor, lengths: object, batch_first: bool | None) -> None:
        require_padded(x)
        self.order = dimension_order(batch_first)
        if x.ndim < 2:
            raise ValueError(f"x must be {self.order}, got shape {tuple(x.shape)}")
        is_batch_first = resolve_batch_first(batch_first, x.shape)
        self.size, self.steps, self.batch_first = PaddedShape.from_shape(x.shape, is_batch_first)
        if is_mask(lengths) and lengths.shape[0] == self.size:
            require_mask_width(lengths, self.steps)
        x = x.detach() if x.is_meta else x.detach().cpu()
        if not is_batch_first:
            x = x.transpose(0, 1)
        self.x = x.unsqueeze(-1).flatten(2)
        self.values = _length_values(lengths)
        self.has_readable_lengths = (
            not getattr(lengths, "is_meta", False) and np.isfinite(self.values).all()
        )

    @cached_property
    def n(self) -> IntArray:
        """`(B,)` the lengths as torch reads them, truncated to whole numbers."""
        return np.trunc(self.values).astype(np.int64)

    @property
    def has_valid_lengths(self) -> bool:
        """True if every length is a whole number from 1 to `T`."""
        is_in_range = (self.n >= 1) & (self.n <= self.steps)
        return bool((is_in_range & (self.values == self.n)).all())

    @property
    def has_length_per_sequence(self) -> bool:
        """True if `x` is not empty, and has one length for each sequence."""
        return len(self.n) == self.size and self.x.numel() > 0

    @cached_property
    def mask(self) -> BoolArray:
        """`(B, T)` booleans, True where a cell is real according to the lengths."""
        return np.arange(self.steps) < self.n[:, None]

    @cached_property
    def is_zero(self) -> BoolArray:
        """`(B, T)` booleans, True where all features of a cell are 0."""
        return (self.x == 0).all(-1).numpy()

    @cached_property
    def has_nan(self) -> BoolArray:
        """`(B, T)` booleans, True where a cell contains a NaN."""
        return self.x.isnan().any(-1).numpy()

    @cached_property
    def is_nan_free_padding(self) -> BoolArray:
        """`(B, T)` booleans, True where a cell is padding and contains no NaN."""
        return ~self.mask & ~self.has_nan

    @property
    def are_ids(self) -> bool:
        """True if `x` contains only integers of at least 0, which are read as token ids."""
        x = self.x
        if x.is_floating_point() or x.is_complex() or x.dtype == torch.bool:
            return False
        return not (x < 0).any()

    @cached_property
    def has_padding_value(self) -> BoolArray | None:
        """`(B, T)` booleans, True where a cell has the padding's value; `None` if it is unknown.

        If there is no padding, zero counts as its value. If all cells of the padding contain NaN,
        the value is NaN. The value cannot be determined if the padding is not constant, or if it is
        a single nonzero cell.
        """
        if self.mask.all():
            return self.is_zero
        if not self.is_nan_free_padding.any():
            return self.has_nan
        has_padding_value, padding_cell_index = self.cells_equal_to(
            *_last_true_cell(self.is_nan_free_padding)
        )
        # A single cell always equals itself.
        is_single_cell = padding_cell_index is not None and self.is_nan_free_padding.sum() == 1
        return (
            None
            if is_single_cell or not has_padding_value[self.is_nan_free_padding].all()
            else has_padding_value
        )

    def cells_equal_to(self, b: int, t: int) -> tuple[BoolArray, _CellIndex | None]:
        """Returns a mask `(B, T)` of the cells that equal cell `(b, t)`, and the pair `(b, t)`.

        If the cell is zero, `None` replaces the pair. The comparison ignores rounding, because a
        linear layer may round differently in each row of a batch.
        """
        if self.is_zero[b, t]:
            return self.is_zero, None
        if self.has_nan[b, t]:
            return self.has_nan, (b, t)
        cell = self.x[b, t]
        is_equal = self.x == cell
        if cell.is_floating_point():
            max_abs = cell.abs().nan_to_num(0, 0).max()
            max_rounding = 4 * torch.finfo(cell.dtype).eps * max_abs
            is_equal |= (self.x - cell).abs() <= max_rounding
        return is_equal.all(-1).numpy(), (b, t)

    @property
    def commonest_end_cell(self) -> _CellIndex:
        """The place `(b, t)` of a cell that has the most common value in the last time step."""
        rows = self.x[:, -1].contiguous().view(torch.uint8).numpy()
        _, first_rows, counts = np.unique(rows, axis=0, return_index=True, return_counts=True)
        return first_rows[counts.argmax()], self.steps - 1

    def repeats_previous(self, axis: int) -> BoolArray:
        """Returns a mask of the cells that equal the cell before them.

        Args:
            axis: 1 to compare along time, which gives a mask `(B, T - 1)`, or 0 to compare along
                the batch, which gives a mask `(T, B - 1)`.
        """
        x = self.x if axis else self.x.transpose(0, 1)
        is_equal = x[:, 1:] == x[:, :-1]
        return is_equal.all(-1).numpy()


def _length_values(lengths: object) -> npt.NDArray[np.float64]:
    """Returns lengths, or those of a mask, as numbers, which need not be whole."""
    require_plain_values("lengths", lengths)
    if getattr(lengths, "is_meta", False):
        return np.zeros(0)
    if is_mask(lengths):
        lengths = Layout.from_mask(lengths)
    with suppress(ValueError):  # rows of unequal length
        values = to_numpy(lengths)
        if values.ndim == 1 and values.dtype.kind in "iuf":
            return values.astype(float)
    lengths_text = shorten(repr(lengths), 60, placeholder=" …")
    raise ValueError(f"lengths must hold one number per sequence, got {lengths_text}")


@dataclass(frozen=True)
class _Reading:
    """Another way to read the batch: different cells are data, and all others are padding.

    Attributes:
        finding: the finding to report if this reading is right.
        is_real: `(B, T)` booleans, True where a cell is data in this reading.
        has_padding_value: `(B, T)` booleans, True where a cell has the padding's value.
        padding_cell_index: `(b, t)` of the cell from which the padding's value was taken; `None` if
            the value is zero.
        time_axis: the axis of time.
        log_n_mistakes: the logarithm of the number of possible mistakes of this kind.
        legitimate_reason: a legitimate reason for data that look just like this mistake; empty if
            there is none.
    """

    finding: Finding
    is_real: BoolArray
    has_padding_value: BoolArray
    padding_cell_index: _CellIndex | None
    time_axis: int = 1
    log_n_mistakes: float = 0.0
    legitimate_reason: str = ""

    @cached_property
    def data_like_padding(self) -> BoolArray:
        """`(B, T)` booleans, True where a cell of data in this reading has the padding's value."""
        return self.is_real & self.has_padding_value

    def may_be_end_marks(self, batch: Batch) -> bool:
        """Returns whether every sequence may end in the same number of end marks."""
        reading_lengths = self.is_real.sum(axis=1)
        is_blank_row = self.has_padding_value.all(axis=1)
        n_end_marks = (batch.n - reading_lengths)[~is_blank_row].min(initial=batch.steps)
        if self.finding.rule != PADDING_INSIDE_LENGTH or not n_end_marks:
            return False
        lengths_without_marks = np.where(is_blank_row, reading_lengths, batch.n - n_end_marks)
        end_marks_reading = replace(
            self,
            log_n_mistakes=_log_n_mistakes(
                batch, lengths_without_marks, reading_lengths, self.padding_cell_index
            ),
        )
        return end_marks_reading.chance(batch, n_end_marks) >= MAX_CHANCE

    def chance(self, batch: Batch, n_end_marks: int = 0) -> float:
        """Returns the probability that what this reading takes for padding is data, by chance.

        The estimate assumes that data take the padding's value at one rate, and keep it at another.
        By Laplace's rule of succession, what happened at `k` of `n` steps happens at the next step
        with probability `(k + 1) / (n + 2)`. Applied to one cell after another, the rule gives the
        result:

            chance = n_possible_mistakes · p(all first cells, after k of n)
                · p(all further cells, after k' of n')

        For the first cell of each run, `n` counts all steps of data, and `k` counts those that have
        the value. For the further cells, `n'` counts the steps of data that follow a step with the
        value, and `k'` counts how many of them have the value, too. If there are no such steps,
        `n'` counts all steps of data except the first of each sequence, and `k'` counts how many of
        them repeat the step before. Zeros are therefore strong evidence of padding if data are
        never zero, and weak evidence if data are sparse, silent or constant for a while. If the
        padding is not constant, the estimate is also multiplied by `UNEVEN_PADDING_RATE`, the
        assumed probability that the padding of a correct batch is not constant. The last
        `n_end_marks` steps of each sequence are not counted.
        """
        is_uneven = batch.has_padding_value is None
        is_disputed = np.arange(batch.steps) < batch.n[:, None] - n_end_marks
        if is_uneven:
            is_disputed |= ~batch.mask
        is_disputed &= ~self.is_real  # padding in the right place needs no explanation
        if self.padding_cell_index:
            is_disputed[self.padding_cell_index] = False
        is_real = self.is_real
        data_like_padding = self.data_like_padding
        if not self.time_axis:
            is_disputed, is_real, data_like_padding = is_disputed.T, is_real.T, data_like_padding.T
        is_further_trial = is_real[:, 1:] & data_like_padding[:, :-1]
        is_further_success = data_like_padding[:, 1:]
        if not is_further_trial.any():
            is_further_trial = is_real[:, 1:] & is_real[:, :-1]
            is_further_success = batch.repeats_previous(self.time_axis)
        n_first_cells = is_disputed.any(axis=1).sum()
        n_further_cells = is_disputed.sum() - n_first_cells
        if not n_first_cells:
            return 1.0
        log_chance = self.log_n_mistakes + _log_chance(n_first_cells, data_like_padding, is_real)
        log_chance += _log_chance(
            n_further_cells, is_further_trial & is_further_success, is_further_trial
        )
        if is_uneven:
            log_chance += math.log(UNEVEN_PADDING_RATE)
        return math.exp(min(log_chance, 0))


def _log_chance(n_cells: int, is_success: BoolArray, is_trial: BoolArray) -> float:
    """Returns the log probability, by Laplace's rule, that the next `n_cells` are all successes."""
    k = is_success.sum() + 1
    n = is_trial.sum() + 2
    log_numerator = math.lgamma(k + n_cells) - math.lgamma(k)
    log_denominator = math.lgamma(n + n_cells) - math.lgamma(n)
    return log_numerator - log_denominator


def judge_padding(batch: Batch) -> Iterator[Finding]:
    """Yields findings if the padding is missing, misplaced or impossible to locate."""
    reading_finding = None
    readings_with_chance = [(reading, reading.chance(batch)) for reading in _readings(batch)]
    if readings_with_chance:
        reading_finding = _judge_reading(batch, *min(readings_with_chance, key=itemgetter(1)))
    if (
        reading_finding
        and batch.has_padding_value is None
        and _has_padding_pattern(batch, reading_finding.rule)
    ):
        # The cells in the padding are not data.
        reading_finding = undecided_finding(*_UNEVEN_PADDING_TEXTS)
    yield from filter(None, [reading_finding, _ambiguity_finding(batch, reading_finding)])


def _judge_reading(batch: Batch, reading: _Reading, chance: float) -> Finding | None:
    """Returns a reading's finding and how certain it is; `None` if chance explains the data."""
    finding = reading.finding
    n_like_padding = reading.data_like_padding.sum()
    data_steps_text = with_noun(reading.is_real.sum(), "step of data", "steps of data")
    may_have_end_marks = reading.may_be_end_marks(batch)
    if chance < MAX_CHANCE and not may_have_end_marks and finding.level != "info":
        if reading.legitimate_reason:
            message = (
                f"{finding.message} Or {reading.legitimate_reason}; diagnose cannot tell which."
            )
            return replace(finding, level="warning", rule=UNDECIDED_RULE, message=message)
        certainty = "Very likely" if chance < 1e-3 else "Likely"
        level = finding.level
        # The data cannot show whether lengths are too long by mistake or on purpose.
        if chance < MAX_ERROR_CHANCE and finding.rule != PADDING_INSIDE_LENGTH:
            certainty = "Almost certain"
            level = "error"
        explanation = f"{n_like_padding or 'none'} of the {data_steps_text} could be padding"
        message = f"{finding.message} How sure is this? {certainty}: {explanation}."
        return replace(finding, level=level, message=message)
    if finding.rule == PADDING_INSIDE_LENGTH and (chance < MAX_CHANCE or not n_like_padding):
        explanation = f"data; {data_steps_text} cannot rule this out"
        if may_have_end_marks:
            explanation = "end marks, because every sequence ends like this"
        message = f"{finding.message} What looks like padding may also be {explanation}."
        return replace(finding, level="info", message=message)
    return None


def _ambiguity_finding(batch: Batch, reading_finding: Finding | None) -> Finding | None:
    """Returns a finding if the data do not show whether the lengths or `batch_first` are right.

    `reading_finding` is the finding that the data support, if any.
    """
    has_no_padding = batch.mask.all()
    if batch.has_padding_value is None:
        if reading_finding and reading_finding.level != "info":
            return None
        if batch.is_nan_free_padding.sum() == 1:
            reason = "the padding is a single cell, which is not zero"
            return undecided_finding(reason, "pass x padded to more time steps")
        return undecided_finding(*_UNEVEN_PADDING_TEXTS)
    if batch.has_padding_value.all() and not has_no_padding:
        reason = "x is the same everywhere, so its padding looks like data"
        return undecided_finding(reason, "pass a batch with data in it")
    if has_no_padding and reading_finding and reading_finding.level == "warning":
        reason = f"every length is T = {batch.steps}, and several sequences end in the same value"
        return replace(undecided_finding(reason, ""), fix=reading_finding.fix)
    is_square = batch.size == batch.steps > 1
    if reading_finding or batch.steps == 1:
        return None
    if has_no_padding:
        message = (
            f"Every length is T = {batch.steps}, so x has no padding to judge the lengths by, and"
            " no value at its ends looks like padding."
        )
        if is_square:
            message += f" B is {batch.steps}, too, so batch_first is unclear."
        fix = "none is needed if every sequence is as long as x"
        return Finding("info", "no padding", message, fix=fix)
    if is_square and (batch.mask == batch.mask.T).all():
        message = (
            f"B and T are both {batch.steps}, and the lengths fit the padding along either"
            " dimension. So x does not show whether batch_first is right."
        )
        fix = f"none is needed if x is {batch.order}"
        return Finding("info", "batch or time", message, fix=fix)
    return None


def undecided_finding(reason: str, fix: str) -> Finding:
    """Returns a finding which reports that the batch could not be judged."""
    message = f"diagnose cannot judge where the sequences lie in x, because {reason}."
    return Finding("warning", UNDECIDED_RULE, message, fix=f"{fix}, and the same lengths")


_UNEVEN_PADDING_TEXTS = (
    "the padding is not constant, as after dropout, positions, a convolution, attention, or an RNN"
    " over padded data, or where each sequence has its own value",
    "pass a tensor from before this operation, ideally x as it was padded",
)


def _has_padding_pattern(batch: Batch, rule: str) -> bool:
    """Returns whether padding that is not constant has a pattern that data do not have.

    Either numbers in it are zero at random, or, if the data would contradict the lengths, each step
    or each sequence has a value of its own.
    """
    cells = batch.x[torch.from_numpy(batch.is_nan_free_padding)]
    if not cells.is_complex():
        cells = cells.double()
    if batch.x.is_floating_point() and _has_dropout(cells):
        return True
    b, t = np.nonzero(batch.is_nan_free_padding)
    if rule == DATA_AFTER_LENGTH and (
        _is_equal_within_groups(cells, t) or _is_equal_within_groups(cells, b)
    ):
        return True
    end_steps = batch.n[b] - 1
    last_cells = batch.x[b, end_steps].to(cells.dtype)
    return (
        rule in (DATA_AFTER_LENGTH, PADDING_INSIDE_LENGTH)
        and len(cells) > 1
        and _are_close(cells, last_cells)
    )


def _are_close(cells: Tensor, others: Tensor) -> bool:
    return torch.allclose(cells, others, rtol=1e-6, atol=1e-6)


def _is_equal_within_groups(cells: Tensor, cell_groups: IntArray) -> bool:
    """Returns whether cells are equal within groups of two or more, but not across groups."""
    _, first_indices, group_index, group_sizes = np.unique(
        cell_groups, return_index=True, return_inverse=True, return_counts=True
    )
    group_first_cells = cells[first_indices[group_sizes > 1]]
    if len(group_first_cells) < 2 or torch.allclose(group_first_cells, group_first_cells[:1]):
        return False
    return _are_close(cells, cells[first_indices[group_index]])


def _has_dropout(cells: Tensor) -> bool:
    """Returns whether the cells look like copies of one vector after dropout."""
    feature_maxima = cells.amax(0)
    undropped_vector = feature_maxima.where(feature_maxima > 0, cells.amin(0))
    is_nonzero = cells[:, undropped_vector != 0] != 0
    is_partly_zero = (~is_nonzero).any(1) & is_nonzero.any(1)
    has_several_nonzero = is_nonzero.sum(1) > 1  # unlike one-hot vectors
    n_extra_nonzero = is_nonzero.sum() - is_nonzero.shape[1]
    if not is_partly_zero.any() or not has_several_nonzero.any() or n_extra_nonzero <= 2:
        return False
    return bool((torch.isclose(cells, undropped_vector) | (cells == 0)).all())


def _readings(batch: Batch) -> Iterator[_Reading]:
    """Yields the alternative readings of the batch in which all padding has one value."""
    if batch.has_padding_value is not None:
        yield from _length_readings(batch, batch.has_padding_value, None)
        has_padding_value, padding_cell_index = batch.cells_equal_to(*batch.commonest_end_cell)
        # Rows with equal ends reveal padding that is not zero.
        if batch.mask.all() and has_padding_value[:, -1].sum() > 1:
            yield from _length_readings(batch, has_padding_value, padding_cell_index)
        return
    message = (
        "Every sequence lies at the end of its row, after its padding. Packing takes the first"
        " steps of each row."
    )
    fix = (
        "move the data first: x = pv.align(x, lengths, padding_side='right',"
        f" batch_first={batch.batch_first})"
    )
    yield from _misplaced_readings(batch, "left-padded", message, fix, batch.mask[:, ::-1])
    if batch.size == batch.steps:
        message = (
            f"B and T are both {batch.steps}, so torch cannot tell them apart. The padding in x"
            " fits these lengths only if the two are swapped."
        )
        yield from _misplaced_readings(
            batch, BATCH_TIME_SWAPPED, message, swap_fix(batch), batch.mask.T, time_axis=0
        )
    yield from _length_readings(batch, batch.is_zero, None)
    yield from _length_readings(batch, *batch.cells_equal_to(*batch.commonest_end_cell))


def _misplaced_readings(
    batch: Batch, rule: str, message: str, fix: str, is_real: BoolArray, time_axis: int = 1
) -> Iterator[_Reading]:
    """Yields a reading whose data are the cells in `is_real`, if all others have the same value."""
    has_padding_value, padding_cell_index = batch.cells_equal_to(*_last_true_cell(~is_real))
    if has_padding_value[~is_real].all():
        is_misplaced = is_real & ~batch.mask
        message += (
            f" As the lengths are read now, {with_noun(is_misplaced.sum(), 'cell')} of data lie in"
            " the padding, and as many cells of padding are packed as data."
        )
        finding = finding_about_sequences(is_misplaced.any(axis=1), "error", rule, message, fix)
        yield _Reading(finding, is_real, has_padding_value, padding_cell_index, time_axis)


def _length_readings(
    batch: Batch, has_padding_value: BoolArray, padding_cell_index: _CellIndex | None
) -> Iterator[_Reading]:
    """Yields readings in which the ends of sequences that `has_padding_value` marks are padding.

    In the first reading, every sequence ends where its data end. In the second, only the sequences
    whose data continue beyond their lengths end elsewhere.
    """
    n = batch.n
    is_data = ~has_padding_value[:, ::-1]
    # A row of this value alone shows nothing.
    data_ends = batch.steps - is_data.argmax(axis=1)
    data_ends = np.where(is_data.any(axis=1), data_ends, n)
    for data_lengths in (data_ends, np.maximum(n, data_ends)):
        if (data_lengths == n).all():
            continue
        is_too_short = data_lengths > n
        log_n_mistakes = _log_n_mistakes(batch, n, data_lengths, padding_cell_index)
        legitimate_reason = ""
        if sorted(data_lengths) == sorted(n):
            log_n_mistakes = min(log_n_mistakes, math.lgamma(len(n) + 1))
            message = (
                "In a different order, these lengths fit the data:"
                f" {_describe_wrong_length(batch, data_lengths)}."
            )
            finding = finding_about_sequences(
                data_lengths != n,
                "error",
                "lengths in another order",
                message,
                "give the lengths in the order of x; if you sorted one of the two, sort the other"
                " in the same way",
            )
        elif is_too_short.any():
            finding = _short_lengths_finding(batch, data_lengths)
            legitimate_reason = _legitimate_reason(batch, data_lengths, padding_cell_index)
            if "convolution" in legitimate_reason:
                finding = replace(
                    finding,
                    fix=f"{finding.fix}; if x comes from a convolution, pass what went into it",
                )
        else:
            finding = _long_lengths_finding(batch, data_lengths)
        is_real = np.arange(batch.steps) < data_lengths[:, None]
        yield _Reading(
            finding,
            is_real,
            has_padding_value,
            padding_cell_index,
            log_n_mistakes=log_n_mistakes,
            legitimate_reason=legitimate_reason,
        )


def _describe_wrong_length(batch: Batch, data_lengths: IntArray) -> str:
    """Describes the first length that is too short or, if there is none, too long."""
    is_too_short = data_lengths > batch.n
    b = (is_too_short if is_too_short.any() else data_lengths != batch.n).argmax()
    verb = "continue to" if is_too_short[b] else "end at"
    return f"lengths[{b}] is {batch.n[b]}, but the data {verb} {data_lengths[b]}"


def _short_lengths_finding(batch: Batch, data_lengths: IntArray) -> Finding:
    """Returns a finding that some lengths are too short."""
    is_too_short = data_lengths > batch.n
    lost_steps_text = with_noun((data_lengths - batch.n)[is_too_short].sum(), "step")
    short_sequences_text = with_noun(is_too_short.sum(), "sequence")
    message = (
        f"Packing silently leaves out {lost_steps_text} of data at the end of"
        f" {short_sequences_text}: {_describe_wrong_length(batch, data_lengths)}."
    )
    fix = "give the full lengths; if you cut on purpose, cut x as well"
    return finding_about_sequences(is_too_short, "warning", DATA_AFTER_LENGTH, message, fix)


def _long_lengths_finding(batch: Batch, data_lengths: IntArray) -> Finding:
    """Returns a finding that some lengths are too long."""
    n = batch.n
    is_wrong = data_lengths != n
    extra_steps_text = with_noun((n - data_lengths).sum(), "step")
    long_sequences_text = with_noun(is_wrong.sum(), "sequence")
    message = (
        f"{extra_steps_text} at the end of {long_sequences_text} may be padding:"
        f" {_describe_wrong_length(batch, data_lengths)}. If so, the RNN reads padding, and h_n"
        " is the state after it."
    )
    fix = "leave it if these values are data; otherwise give each sequence's own length"
    if (n == batch.steps).all():
        fix += ", not the width of x"
    # A single sequence's padding may repeat its last value.
    is_only_padded_row = is_wrong.sum() == 1 and np.array_equal(is_wrong, n < batch.steps)
    # This is too much to be silence.
    is_mostly_padding = (data_lengths < n).mean() > 0.6 and (2 * data_lengths < n).any()
    has_implausible_lengths = is_mostly_padding and (n == n[0]).all()
    # Recordings may end in silence.
    is_warning = has_implausible_lengths or (batch.are_ids and not is_only_padded_row)
    return finding_about_sequences(
        is_wrong, "warning" if is_warning else "info", PADDING_INSIDE_LENGTH, message, fix
    )


def _legitimate_reason(
    batch: Batch, data_lengths: IntArray, padding_cell_index: _CellIndex | None
) -> str:
    """Returns a good reason for data beyond the lengths; empty if there is none."""
    n = batch.n
    is_too_short = data_lengths > n
    n_cut_steps = (data_lengths - n).max()
    is_spread_evenly = np.array_equal(np.minimum(n + n_cut_steps, batch.steps), data_lengths)
    # A convolution's bias makes the padding nonzero.
    if batch.x.is_floating_point() and padding_cell_index and is_spread_evenly:
        return "x comes from a convolution, which spreads data that far"
    is_shortened_evenly = np.array_equal(np.maximum(data_lengths - n_cut_steps, 1), n)
    if is_shortened_evenly and (is_too_short.sum() > 1 or n_cut_steps == 1):
        return (
            f"every sequence is cut by {with_noun(n_cut_steps, 'step')} on purpose, as captions"
            " often lose their last word"
        )
    longest = n.max()
    is_cut_at_longest = (n[is_too_short] == longest).all()
    if is_cut_at_longest and (is_too_short.sum() > 1 or longest == 1):
        return f"long sequences are cut at {with_noun(longest, 'step')} on purpose"
    return ""


def _log_n_mistakes(
    batch: Batch, n: IntArray, data_lengths: IntArray, padding_cell_index: _CellIndex | None
) -> float:
    """Returns the log of the number of mistakes like `n`, if the data end at `data_lengths`."""
    is_wrong = data_lengths != n
    n_wrong = int(is_wrong.sum())
    n_other_lengths = max(batch.steps - 1, 1)
    n_possible_mistakes = math.comb(len(n), n_wrong) * n_other_lengths**n_wrong
    if (n == n[0]).all():
        if not padding_cell_index and n_wrong > len(n) / 2:
            n_possible_mistakes = n_other_lengths * len(n)  # all have one length
    elif n_wrong:
        length_offset = (n - data_lengths)[is_wrong][0]
        if np.array_equal(np.clip(data_lengths + length_offset, 1, batch.steps), n):
            # Every length is off by one number, within 1 to T.
            n_possible_mistakes = n_other_lengths
    n_candidate_rows = len(n) if padding_cell_index else 1  # any row might have given the value
    return math.log(n_possible_mistakes) + math.log(n_candidate_rows)


def _last_true_cell(cells: BoolArray) -> _CellIndex:
    """Returns the place of the last cell of a mask."""
    b, t = np.argwhere(cells)[-1].tolist()
    return b, t


def swap_fix(batch: Batch) -> str:
    """Returns the fix for an `x` whose batch and time dimensions are swapped."""
    return f"pass batch_first={not batch.batch_first}, or transpose x"


def finding_about_sequences(
    is_affected: BoolArray | np.bool_, level: str, rule: str, message: str, fix: str
) -> Finding:
    """Returns a finding about some sequences, which contains their names and indices."""
    indices = np.flatnonzero(is_affected).tolist()
    names_text = ", ".join(map(sequence_name, indices[:8]))
    where = f"sequences {names_text}" if len(indices) > 1 else f"sequence {names_text}"
    if len(indices) > 8:
        where += f" and {len(indices) - 8} more"
    return Finding(level, rule, message, where, fix, tuple(indices))
