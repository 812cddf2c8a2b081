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

from packviz.check.findings import UNDECIDED, Finding
from packviz.core.layout import BoolArray, IntArray, Layout, host_array, is_mask, sequence_name
from packviz.core.padded import Padded, batch_is_first, order
from packviz.core.validation import require_plain
from packviz.draw.text import count
from packviz.ops.arguments import require_padded
from packviz.ops.masks import require_width

SURE = 0.1
"""A mistake is reported if the probability that the data look wrong by chance is below this value.
With a larger value, more than 1 % of small batches whose data are sometimes zero would cause a
false alarm. The test `tests/unit/check/test_evidence.py` prints how often."""

RARE = 0.1
"""The assumed probability that the padding of a correct batch is not constant."""

CERTAIN = 1e-6
"""A mistake is an error if the data look wrong by chance with a probability below this value."""

TOO_LONG = "padding inside the length"
AFTER = "data after the length"
SWAPPED = "batch and time swapped"

_Cell = tuple[int, int]


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
        self.order = order(batch_first)
        if x.ndim < 2:
            raise ValueError(f"x must be {self.order}, got shape {tuple(x.shape)}")
        first = batch_is_first(batch_first, x.shape)
        self.size, self.steps, self.batch_first = Padded.of(x.shape, first)
        if is_mask(lengths) and lengths.shape[0] == self.size:
            require_width(lengths, self.steps)
        x = x.detach() if x.is_meta else x.detach().cpu()
        if not first:
            x = x.transpose(0, 1)
        self.x = x.unsqueeze(-1).flatten(2)
        self.values = _numbers(lengths)
        self.readable = not getattr(lengths, "is_meta", False) and np.isfinite(self.values).all()

    @cached_property
    def n(self) -> IntArray:
        """`(B,)` the lengths as torch reads them, truncated to whole numbers."""
        return np.trunc(self.values).astype(np.int64)

    @property
    def possible(self) -> bool:
        """True if every length is a whole number from 1 to `T`."""
        fitting = (self.n >= 1) & (self.n <= self.steps)
        return bool((fitting & (self.values == self.n)).all())

    @property
    def fits(self) -> bool:
        """True if `x` is not empty, and has one length for each sequence."""
        return len(self.n) == self.size and self.x.numel() > 0

    @cached_property
    def mask(self) -> BoolArray:
        """`(B, T)` booleans, True where a cell is real according to the lengths."""
        return np.arange(self.steps) < self.n[:, None]

    @cached_property
    def zero(self) -> BoolArray:
        """`(B, T)` booleans, True where all features of a cell are 0."""
        return (self.x == 0).all(-1).numpy()

    @cached_property
    def nan(self) -> BoolArray:
        """`(B, T)` booleans, True where a cell contains a NaN."""
        return self.x.isnan().any(-1).numpy()

    @cached_property
    def filled(self) -> BoolArray:
        """`(B, T)` booleans, True where a cell is padding and contains no NaN."""
        return ~self.mask & ~self.nan

    @property
    def are_ids(self) -> bool:
        """True if `x` contains only integers of at least 0, which are read as token ids."""
        x = self.x
        if x.is_floating_point() or x.is_complex() or x.dtype == torch.bool:
            return False
        return not (x < 0).any()

    @cached_property
    def padding(self) -> BoolArray | None:
        """`(B, T)` booleans, True where a cell has the padding's value; `None` if it is unknown.

        If there is no padding, zero counts as its value. If all cells of the padding contain NaN,
        the value is NaN. The value cannot be determined if the padding is not constant, or if it is
        a single nonzero cell.
        """
        if self.mask.all():
            return self.zero
        if not self.filled.any():
            return self.nan
        same, cell = self.value(*_last_of(self.filled))
        alone = cell is not None and self.filled.sum() == 1  # a single cell always equals itself
        return None if alone or not same[self.filled].all() else same

    def value(self, b: int, t: int) -> tuple[BoolArray, _Cell | None]:
        """Returns a mask `(B, T)` of the cells that equal cell `(b, t)`, and the pair `(b, t)`.

        If the cell is zero, `None` replaces the pair. The comparison ignores rounding, because a
        linear layer may round differently in each row of a batch.
        """
        if self.zero[b, t]:
            return self.zero, None
        if self.nan[b, t]:
            return self.nan, (b, t)
        cell = self.x[b, t]
        same = self.x == cell
        if cell.is_floating_point():
            largest = cell.abs().nan_to_num(0, 0).max()
            slack = 4 * torch.finfo(cell.dtype).eps * largest
            same |= (self.x - cell).abs() <= slack
        return same.all(-1).numpy(), (b, t)

    @property
    def commonest_end(self) -> _Cell:
        """The place `(b, t)` of a cell that has the most common value in the last time step."""
        rows = self.x[:, -1].contiguous().view(torch.uint8).numpy()
        _, first, counts = np.unique(rows, axis=0, return_index=True, return_counts=True)
        return first[counts.argmax()], self.steps - 1

    def repeats(self, along: int) -> BoolArray:
        """Returns a mask of the cells that equal the cell before them.

        Args:
            along: 1 to compare along time, which gives a mask `(B, T - 1)`, or 0 to compare along
                the batch, which gives a mask `(T, B - 1)`.
        """
        x = self.x if along else self.x.transpose(0, 1)
        same = x[:, 1:] == x[:, :-1]
        return same.all(-1).numpy()


def _numbers(lengths: object) -> npt.NDArray[np.float64]:
    """Returns lengths, or those of a mask, as numbers, which need not be whole."""
    require_plain("lengths", lengths)
    if getattr(lengths, "is_meta", False):
        return np.zeros(0)
    if is_mask(lengths):
        lengths = Layout.from_mask(lengths)
    with suppress(ValueError):  # rows of unequal length
        values = host_array(lengths)
        if values.ndim == 1 and values.dtype.kind in "iuf":
            return values.astype(float)
    given = shorten(repr(lengths), 60, placeholder=" …")
    raise ValueError(f"lengths must hold one number per sequence, got {given}")


@dataclass(frozen=True)
class _Reading:
    """Another way to read the batch: different cells are data, and all others are padding.

    Attributes:
        finding: the finding to report if this reading is right.
        real: `(B, T)` booleans, True where a cell is data in this reading.
        same: `(B, T)` booleans, True where a cell has the padding's value.
        cell: `(b, t)` of the cell from which the padding's value was taken; `None` if the value is
            zero.
        along: the axis of time.
        choices: the logarithm of the number of possible mistakes of this kind.
        purpose: a legitimate reason for data that look just like this mistake; empty if there is
            none.
    """

    finding: Finding
    real: BoolArray
    same: BoolArray
    cell: _Cell | None
    along: int = 1
    choices: float = 0.0
    purpose: str = ""

    @cached_property
    def inside(self) -> BoolArray:
        """`(B, T)` booleans, True where a cell of data in this reading has the padding's value."""
        return self.real & self.same

    def are_marks(self, batch: Batch) -> bool:
        """Returns whether every sequence may end in the same number of end marks."""
        end = self.real.sum(axis=1)
        blank = self.same.all(axis=1)
        marks = (batch.n - end)[~blank].min(initial=batch.steps)
        if self.finding.rule != TOO_LONG or not marks:
            return False
        before = np.where(blank, end, batch.n - marks)
        beyond = replace(self, choices=_log_choices(batch, before, end, self.cell))
        return beyond.chance(batch, marks) >= SURE

    def chance(self, batch: Batch, marks: int = 0) -> float:
        """Returns the probability that what this reading takes for padding is data, by chance.

        The estimate assumes that data take the padding's value at one rate, and keep it at another.
        By Laplace's rule of succession, what happened at `k` of `n` steps happens at the next step
        with probability `(k + 1) / (n + 2)`. Applied to one cell after another, the rule gives the
        result:

            chance = choices · p(all first cells, after k of n) · p(all further cells, after k' of
            n')

        For the first cell of each run, `n` counts all steps of data, and `k` counts those that have
        the value. For the further cells, `n'` counts the steps of data that follow a step with the
        value, and `k'` counts how many of them have the value, too. If there are no such steps,
        `n'` counts all steps of data except the first of each sequence, and `k'` counts how many of
        them repeat the step before. Zeros are therefore strong evidence of padding if data are
        never zero, and weak evidence if data are sparse, silent or constant for a while. If the
        padding is not constant, the estimate is also multiplied by `RARE`, the assumed probability
        that the padding of a correct batch is not constant. The last `marks` steps of each sequence
        are not counted.
        """
        broken = batch.padding is None
        doubtful = np.arange(batch.steps) < batch.n[:, None] - marks
        if broken:
            doubtful |= ~batch.mask
        doubtful &= ~self.real  # padding in the right place needs no explanation
        if self.cell:
            doubtful[self.cell] = False
        real = self.real
        inside = self.inside
        if not self.along:
            doubtful, real, inside = doubtful.T, real.T, inside.T
        behind = real[:, 1:] & inside[:, :-1]
        again = inside[:, 1:]
        if not behind.any():
            behind = real[:, 1:] & real[:, :-1]
            again = batch.repeats(self.along)
        first = doubtful.any(axis=1).sum()
        further = doubtful.sum() - first
        if not first:
            return 1.0
        chance = self.choices + _succession(first, inside, real)
        chance += _succession(further, behind & again, behind)
        if broken:
            chance += math.log(RARE)
        return math.exp(min(chance, 0))


def _succession(more: int, hits: BoolArray, tried: BoolArray) -> float:
    """Returns the log probability, by Laplace's rule, that the next `more` cells are all hits."""
    k = hits.sum() + 1
    n = tried.sum() + 2
    log_hits = math.lgamma(k + more) - math.lgamma(k)
    log_tried = math.lgamma(n + more) - math.lgamma(n)
    return log_hits - log_tried


def judge(batch: Batch) -> Iterator[Finding]:
    """Yields findings if the padding is missing, misplaced or impossible to locate."""
    clue = None
    chances = [(reading, reading.chance(batch)) for reading in _readings(batch)]
    if chances:
        clue = _clue(batch, *min(chances, key=itemgetter(1)))
    if clue and batch.padding is None and _has_pattern(batch, clue.rule):
        clue = undecided(*_UNEVEN)  # the cells in the padding are not data
    yield from filter(None, [clue, _unjudged(batch, clue)])


def _clue(batch: Batch, reading: _Reading, chance: float) -> Finding | None:
    """Returns a reading's finding and how certain it is; `None` if chance explains the data."""
    finding = reading.finding
    inside = reading.inside.sum()
    others = count(reading.real.sum(), "step of data", "steps of data")
    marks = reading.are_marks(batch)
    if chance < SURE and not marks and finding.level != "info":
        if reading.purpose:
            message = f"{finding.message} Or {reading.purpose}; diagnose cannot tell which."
            return replace(finding, level="warning", rule=UNDECIDED, message=message)
        sure = "Very likely" if chance < 1e-3 else "Likely"
        level = finding.level
        # The data cannot show whether lengths are too long by mistake or on purpose.
        if chance < CERTAIN and finding.rule != TOO_LONG:
            sure = "Almost certain"
            level = "error"
        why = f"{inside or 'none'} of the {others} could be padding"
        message = f"{finding.message} How sure is this? {sure}: {why}."
        return replace(finding, level=level, message=message)
    if finding.rule == TOO_LONG and (chance < SURE or not inside):
        why = f"data; {others} cannot rule this out"
        if marks:
            why = "end marks, because every sequence ends like this"
        message = f"{finding.message} What looks like padding may also be {why}."
        return replace(finding, level="info", message=message)
    return None


def _unjudged(batch: Batch, clue: Finding | None) -> Finding | None:
    """Returns a finding if the data do not show whether the lengths or `batch_first` are right.

    `clue` is the finding that the data support, if any.
    """
    full = batch.mask.all()
    if batch.padding is None:
        if clue and clue.level != "info":
            return None
        if batch.filled.sum() == 1:
            why = "the padding is a single cell, which is not zero"
            return undecided(why, "pass x padded to more time steps")
        return undecided(*_UNEVEN)
    if batch.padding.all() and not full:
        why = "x is the same everywhere, so its padding looks like data"
        return undecided(why, "pass a batch with data in it")
    if full and clue and clue.level == "warning":
        why = f"every length is T = {batch.steps}, and several sequences end in the same value"
        return replace(undecided(why, ""), fix=clue.fix)
    square = batch.size == batch.steps > 1
    if clue or batch.steps == 1:
        return None
    if full:
        message = (
            f"Every length is T = {batch.steps}, so x has no padding to judge the lengths by, and"
            " no value at its ends looks like padding."
        )
        if square:
            message += f" B is {batch.steps}, too, so batch_first is unclear."
        fix = "none is needed if every sequence is as long as x"
        return Finding("info", "no padding", message, fix=fix)
    if square and (batch.mask == batch.mask.T).all():
        message = (
            f"B and T are both {batch.steps}, and the lengths fit the padding along either"
            " dimension. So x does not show whether batch_first is right."
        )
        fix = f"none is needed if x is {batch.order}"
        return Finding("info", "batch or time", message, fix=fix)
    return None


def undecided(why: str, fix: str) -> Finding:
    """Returns a finding which reports that the batch could not be judged."""
    message = f"diagnose cannot judge where the sequences lie in x, because {why}."
    return Finding("warning", UNDECIDED, message, fix=f"{fix}, and the same lengths")


_UNEVEN = (
    "the padding is not constant, as after dropout, positions, a convolution, attention, or an RNN"
    " over padded data, or where each sequence has its own value",
    "pass a tensor from before this operation, ideally x as it was padded",
)


def _has_pattern(batch: Batch, rule: str) -> bool:
    """Returns whether padding that is not constant has a pattern that data do not have.

    Either numbers in it are zero at random, or, if the data would contradict the lengths, each step
    or each sequence has a value of its own.
    """
    cells = batch.x[torch.from_numpy(batch.filled)]
    if not cells.is_complex():
        cells = cells.double()
    if batch.x.is_floating_point() and _dropped(cells):
        return True
    b, t = np.nonzero(batch.filled)
    if rule == AFTER and (_alike(cells, t) or _alike(cells, b)):
        return True
    ends = batch.n[b] - 1
    last = batch.x[b, ends].to(cells.dtype)
    return rule in (AFTER, TOO_LONG) and len(cells) > 1 and _close(cells, last)


def _close(cells: Tensor, others: Tensor) -> bool:
    return torch.allclose(cells, others, rtol=1e-6, atol=1e-6)


def _alike(cells: Tensor, group: IntArray) -> bool:
    """Returns whether cells are equal within groups of two or more, but not across groups."""
    _, first, which, size = np.unique(
        group, return_index=True, return_inverse=True, return_counts=True
    )
    several = cells[first[size > 1]]
    if len(several) < 2 or torch.allclose(several, several[:1]):
        return False
    return _close(cells, cells[first[which]])


def _dropped(cells: Tensor) -> bool:
    """Returns whether the cells look like copies of one vector after dropout."""
    highest = cells.amax(0)
    vector = highest.where(highest > 0, cells.amin(0))
    kept = cells[:, vector != 0] != 0
    partly = (~kept).any(1) & kept.any(1)
    several = kept.sum(1) > 1  # unlike one-hot vectors
    repeats = kept.sum() - kept.shape[1]
    if not partly.any() or not several.any() or repeats <= 2:
        return False
    return bool((torch.isclose(cells, vector) | (cells == 0)).all())


def _readings(batch: Batch) -> Iterator[_Reading]:
    """Yields the alternative readings of the batch in which all padding has one value."""
    if batch.padding is not None:
        yield from _ending(batch, batch.padding, None)
        same, cell = batch.value(*batch.commonest_end)
        # Rows with equal ends reveal padding that is not zero.
        if batch.mask.all() and same[:, -1].sum() > 1:
            yield from _ending(batch, same, cell)
        return
    message = (
        "Every sequence lies at the end of its row, after its padding. Packing takes the first"
        " steps of each row."
    )
    fix = (
        "move the data first: x = pv.align(x, lengths, padding_side='right',"
        f" batch_first={batch.batch_first})"
    )
    yield from _lying(batch, "left-padded", message, fix, batch.mask[:, ::-1])
    if batch.size == batch.steps:
        message = (
            f"B and T are both {batch.steps}, so torch cannot tell them apart. The padding in x"
            " fits these lengths only if the two are swapped."
        )
        yield from _lying(batch, SWAPPED, message, turned(batch), batch.mask.T, along=0)
    yield from _ending(batch, batch.zero, None)
    yield from _ending(batch, *batch.value(*batch.commonest_end))


def _lying(
    batch: Batch, rule: str, message: str, fix: str, real: BoolArray, along: int = 1
) -> Iterator[_Reading]:
    """Yields a reading whose data are the cells in `real`, if all others have the same value."""
    same, cell = batch.value(*_last_of(~real))
    if same[~real].all():
        astray = real & ~batch.mask
        message += (
            f" As the lengths are read now, {count(astray.sum(), 'cell')} of data lie in the"
            " padding, and as many cells of padding are packed as data."
        )
        finding = about(astray.any(axis=1), "error", rule, message, fix)
        yield _Reading(finding, real, same, cell, along)


def _ending(batch: Batch, same: BoolArray, cell: _Cell | None) -> Iterator[_Reading]:
    """Yields readings in which the cells at the ends of sequences that `same` marks are padding.

    In the first reading, every sequence ends where its data end. In the second, only the sequences
    whose data continue beyond their lengths end elsewhere.
    """
    n = batch.n
    data = ~same[:, ::-1]
    # A row of this value alone shows nothing.
    ends = batch.steps - data.argmax(axis=1)
    ends = np.where(data.any(axis=1), ends, n)
    for read in (ends, np.maximum(n, ends)):
        if (read == n).all():
            continue
        late = read > n
        choices = _log_choices(batch, n, read, cell)
        purpose = ""
        if np.array_equal(np.sort(read), np.sort(n)):
            choices = min(choices, math.lgamma(len(n) + 1))
            message = f"In a different order, these lengths fit the data: {_first(batch, read)}."
            fix = (
                "give the lengths in the order of x; if you sorted one of the two, sort the other"
                " in the same way"
            )
            finding = about(read != n, "error", "lengths in another order", message, fix)
        elif late.any():
            finding = _cut(batch, read)
            purpose = _purpose(batch, read, cell)
            if "convolution" in purpose:
                more = "; if x comes from a convolution, pass what went into it"
                finding = replace(finding, fix=finding.fix + more)
        else:
            finding = _overlong(batch, read)
        real = np.arange(batch.steps) < read[:, None]
        yield _Reading(finding, real, same, cell, choices=choices, purpose=purpose)


def _first(batch: Batch, read: IntArray) -> str:
    """Describes the first length that is too short or, if there is none, too long."""
    late = read > batch.n
    b = np.argmax(late if late.any() else read != batch.n)
    end = "continue to" if late[b] else "end at"
    return f"lengths[{b}] is {batch.n[b]}, but the data {end} {read[b]}"


def _cut(batch: Batch, read: IntArray) -> Finding:
    """Returns a finding that some lengths are too short."""
    late = read > batch.n
    lost = count((read - batch.n)[late].sum(), "step")
    sequences = count(late.sum(), "sequence")
    message = f"Packing silently leaves out {lost} of data at the end of {sequences}:"
    message += f" {_first(batch, read)}."
    fix = "give the full lengths; if you cut on purpose, cut x as well"
    return about(late, "warning", AFTER, message, fix)


def _overlong(batch: Batch, read: IntArray) -> Finding:
    """Returns a finding that some lengths are too long."""
    n = batch.n
    wrong = read != n
    over = count((n - read).sum(), "step")
    sequences = count(wrong.sum(), "sequence")
    message = (
        f"{over} at the end of {sequences} may be padding: {_first(batch, read)}. If so, the"
        " RNN reads padding, and h_n is the state after it."
    )
    fix = "leave it if these values are data; otherwise give each sequence's own length"
    if (n == batch.steps).all():
        fix += ", not the width of x"
    # A single sequence's padding may repeat its last value.
    single = wrong.sum() == 1 and np.array_equal(wrong, n < batch.steps)
    # This is too much to be silence.
    mostly = (read < n).mean() > 0.6 and (2 * read < n).any()
    uncounted = mostly and (n == n[0]).all()
    serious = uncounted or (batch.are_ids and not single)  # recordings may end in silence
    return about(wrong, "warning" if serious else "info", TOO_LONG, message, fix)


def _purpose(batch: Batch, read: IntArray, cell: _Cell | None) -> str:
    """Returns a good reason for data beyond the lengths; empty if there is none."""
    n = batch.n
    late = read > n
    by = (read - n).max()
    spread = np.array_equal(np.minimum(n + by, batch.steps), read)
    if batch.x.is_floating_point() and cell and spread:  # its bias makes the padding nonzero
        return "x comes from a convolution, which spreads data that far"
    shortened = np.array_equal(np.maximum(read - by, 1), n)
    if shortened and (late.sum() > 1 or by == 1):
        steps = count(by, "step")
        return (
            f"every sequence is cut by {steps} on purpose, as captions often lose their last word"
        )
    longest = n.max()
    at_one_length = (n[late] == longest).all()
    if at_one_length and (late.sum() > 1 or longest == 1):
        return f"long sequences are cut at {count(longest, 'step')} on purpose"
    return ""


def _log_choices(batch: Batch, n: IntArray, read: IntArray, cell: _Cell | None) -> float:
    """Returns the logarithm of the number of mistakes like `n`, if the data end at `read`."""
    wrong = read != n
    size = int(wrong.sum())
    other = max(batch.steps - 1, 1)
    choices = math.comb(len(n), size) * other**size
    if (n == n[0]).all():
        if not cell and size > len(n) / 2:
            choices = other * len(n)  # all have one length
    elif size:
        by = (n - read)[wrong][0]
        if np.array_equal(np.clip(read + by, 1, batch.steps), n):
            choices = other  # every length is off by one number, within 1 to T
    rows = len(n) if cell else 1  # any row might have given the value
    return math.log(choices) + math.log(rows)


def _last_of(cells: BoolArray) -> _Cell:
    """Returns the place of the last cell of a mask."""
    b, t = np.argwhere(cells)[-1].tolist()
    return b, t


def turned(batch: Batch) -> str:
    """Returns the fix for an `x` whose batch and time dimensions are swapped."""
    return f"pass batch_first={not batch.batch_first}, or transpose x"


def about(rows: BoolArray | np.bool_, level: str, rule: str, message: str, fix: str) -> Finding:
    """Returns a finding about some sequences, which contains their names and indices."""
    indices = np.flatnonzero(rows).tolist()
    names = ", ".join(map(sequence_name, indices[:8]))
    where = f"sequences {names}" if len(indices) > 1 else f"sequence {names}"
    if len(indices) > 8:
        where += f" and {len(indices) - 8} more"
    return Finding(level, rule, message, where, fix, tuple(indices))
