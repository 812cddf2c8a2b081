"""Judges from the data whether the sequences in a padded batch are where the lengths put them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from packviz.check.findings import UNDECIDED, Finding
from packviz.core.layout import BoolArray, IntArray, host_array, sequence_name
from packviz.core.padded import Padded, batch_is_first, order
from packviz.core.validation import kind_of, require_dense
from packviz.draw.text import count

SURE = 0.1
"""A mistake is reported if the probability that the data look wrong by chance is below this value.
With a larger value, more than 1 % of small batches whose data are sometimes zero would cause a
false alarm. The test `tests/unit/check/test_odds.py` prints the rate of false alarms for every kind
of data."""

RARE = 0.1
"""The assumed probability that the padding of a correct batch is not constant."""

CERTAIN = 1e-6
"""The probability, for data that look wrong by chance, below which a mistake is almost certain and thus an error."""

TOO_LONG = "padding inside the length"
AFTER = "data after the length"

_Cell = tuple[int, int]


class Batch:
    """A padded batch, stored batch first, with its lengths."""

    def __init__(self, x: Tensor, lengths: Any, batch_first: bool | None) -> None:
        self.order = order(batch_first)
        if not isinstance(x, Tensor):
            hint = (
                "; pass it as packed=…, and the padded batch as x"
                if hasattr(x, "batch_sizes")
                else ""
            )
            raise TypeError(
                f"x is {kind_of(x)}; give the padded batch as a tensor {self.order}{hint}"
            )
        require_dense("x", x)
        if x.ndim < 2:
            raise ValueError(f"x must be {self.order}, got shape {tuple(x.shape)}")
        self.size, self.steps, self.batch_first = Padded.of(
            x.shape, batch_is_first(batch_first, x.shape)
        )
        self.extra = x.ndim - 2  # dimensions of a cell
        x = x.detach() if batch_first else x.detach().transpose(0, 1)
        self.x = x.flatten(2) if x.ndim > 2 else x.unsqueeze(2)
        require_dense("lengths", lengths)
        try:
            values = (
                lengths.detach()
                if isinstance(lengths, Tensor)
                else torch.tensor(host_array(lengths))
            )
        except (TypeError, ValueError, RuntimeError):
            raise ValueError(
                f"lengths must be a list or a tensor of numbers, got {lengths!r}"
            ) from None
        if values.ndim != 1 or values.dtype == torch.bool or values.is_complex():
            got = f"{values.dtype} of shape {tuple(values.shape)}"
            raise ValueError(f"lengths must hold one number per sequence, got {got}")
        self.device = values.device
        self.values: npt.NDArray[Any] = (
            np.zeros(0) if values.is_meta else values.cpu().double().numpy()
        )
        self.readable = not values.is_meta and bool(np.isfinite(self.values).all())

    @cached_property
    def n(self) -> IntArray:
        """`(B,)` the lengths as torch reads them, truncated to whole numbers."""
        cut: IntArray = np.trunc(self.values).astype(np.int64)
        return cut

    @cached_property
    def filled(self) -> BoolArray:
        """`(B, T)` true where a cell is padding and contains no NaN."""
        return ~self.mask & ~self.nan

    @cached_property
    def filling(self) -> tuple[Tensor, IntArray, IntArray]:
        """The cells of the padding that contain no NaN, `(N, …)`, and the sequence and the step of each, `(N,)`."""
        cells = self.x[torch.from_numpy(self.filled).to(self.x.device)].cpu()
        b, t = np.nonzero(self.filled)
        return cells if cells.is_complex() else cells.double(), b, t

    @property
    def possible(self) -> bool:
        """True if every length is a whole number from 1 to `T`."""
        return bool(((self.values == self.n) & (self.n >= 1) & (self.n <= self.steps)).all())

    @property
    def fits(self) -> bool:
        """True if `x` is not empty and has one length for each sequence, so that data and lengths can be compared."""
        return len(self.n) == self.size and self.x.numel() > 0

    @cached_property
    def mask(self) -> BoolArray:
        """`(B, T)` true where a cell is real according to the lengths."""
        return np.arange(self.steps) < self.n[:, None]

    @cached_property
    def are_ids(self) -> bool:
        """True if `x` contains only integers of at least 0, which are taken for token ids rather than a recording."""
        x = self.x
        return not (
            x.is_floating_point() or x.is_complex() or x.dtype == torch.bool or bool((x < 0).any())
        )

    @cached_property
    def zero(self) -> BoolArray:
        """`(B, T)` true where a cell is zero."""
        return _on_host((self.x == 0).all(-1))

    @cached_property
    def nan(self) -> BoolArray:
        """`(B, T)` true where a cell contains a NaN."""
        return _on_host(self.x.isnan().any(-1))

    @cached_property
    def padding(self) -> BoolArray | None:
        """`(B, T)` true where a cell has the padding's value; `None` if this value cannot be
        determined.

        If there is no padding, zero counts as its value. If all cells of the padding contain NaN,
        the value is NaN. The value cannot be determined if the padding is not constant, or if it is
        a single nonzero cell.
        """
        if not self.filled.any():
            return self.zero if self.mask.all() else self.nan
        same, cell = self.value(*_last_of(self.filled))
        alone = cell is not None and self.filled.sum() == 1  # a single cell always equals itself
        return same if same[self.filled].all() and not alone else None

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
            slack = 4 * torch.finfo(cell.dtype).eps * cell.abs().nan_to_num(0, 0).max()
            same |= (self.x - cell).abs() <= slack
        return _on_host(same.all(-1)), (b, t)

    @cached_property
    def commonest_end(self) -> _Cell:
        """The place `(b, t)` of a cell that has the most common value in the last time step."""
        rows = self.x[:, -1].contiguous().view(torch.uint8).cpu().numpy()
        _, first, counts = np.unique(rows, axis=0, return_index=True, return_counts=True)
        return int(first[counts.argmax()]), self.steps - 1

    def repeats(self, along: int) -> BoolArray:
        """Returns a mask of the cells that equal the cell before them.

        Args:
            along: 1 to compare along time, which gives a mask `(B, T - 1)`, or 0 to compare along
                the batch, which gives a mask `(T, B - 1)`.
        """
        x = self.x if along else self.x.transpose(0, 1)
        return _on_host((x[:, 1:] == x[:, :-1]).all(-1))


def _on_host(cells: Tensor) -> BoolArray:
    found: BoolArray = cells.cpu().numpy()
    return found


@dataclass(frozen=True)
class _Reading:
    """Another way to read the batch: different cells are data, and all remaining cells have the
    padding's value.

    Attributes:
        finding: the finding to report if this reading is right.
        real: `(B, T)` true where a cell is data in this reading.
        same: `(B, T)` true where a cell has the padding's value.
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
        """`(B, T)` true where a cell is data in this reading but has the padding's value."""
        return self.real & self.same

    def are_marks(self, batch: Batch) -> bool:
        """Returns whether the data are plausible if every sequence ends in the same number of end marks."""
        end, blank = self.real.sum(axis=1), self.same.all(axis=1)
        marks = int((batch.n - end)[~blank].min(initial=batch.steps))
        if self.finding.rule != TOO_LONG or not marks:
            return False
        beyond = replace(
            self, choices=_choices(batch, np.where(blank, end, batch.n - marks), end, self.cell)
        )
        return beyond.chance(batch, marks) >= SURE

    def chance(self, batch: Batch, marks: int = 0) -> float:
        """Returns the probability that data have the padding's value by chance where this reading
        sees padding.

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
        # Padding in the right place needs no explanation.
        doubtful = ~self.real & (
            (np.arange(batch.steps) < batch.n[:, None] - marks) | (broken & ~batch.mask)
        )
        if self.cell:
            doubtful[self.cell] = False
        doubtful, real, inside = (
            one if self.along else one.T for one in (doubtful, self.real, self.inside)
        )
        behind, again = real[:, 1:] & inside[:, :-1], inside[:, 1:]
        if not behind.any():
            behind, again = real[:, 1:] & real[:, :-1], batch.repeats(self.along)
        first = int(doubtful.any(axis=1).sum())
        chance = self.choices + math.log(RARE if broken else 1) + _succession(first, inside, real)
        chance += _succession(int(doubtful.sum()) - first, behind & again, behind)
        return math.exp(min(chance, 0)) if first else 1.0


def _succession(more: int, hits: BoolArray, tried: BoolArray) -> float:
    """Returns the log probability, by Laplace's rule of succession, that the next `more` cells are all hits."""
    k, n = int(hits.sum()), int(tried.sum())
    return (
        math.lgamma(k + 1 + more)
        - math.lgamma(k + 1)
        - math.lgamma(n + 2 + more)
        + math.lgamma(n + 2)
    )


def judge(batch: Batch) -> Iterator[Finding]:
    """Yields findings if the padding is missing, misplaced or impossible to locate, or if it contains NaN."""
    if batch.x.is_meta:
        yield _undecided("x is on the meta device and has no values", "pass a batch with values")
        return
    clue = None
    if judged := [(one.chance(batch), one) for one in _readings(batch)]:
        chance, one = min(judged, key=itemgetter(0))
        clue = _clue(batch, one, chance)
    if clue and batch.padding is None and (pattern := _pattern(batch, clue.rule)):
        clue = _undecided(*pattern)  # the cells in the padding are not data
    yield from filter(None, [clue, _unjudged(batch, clue)])
    if (hidden := batch.nan & ~batch.mask).any():
        message = (
            f"NaN is in {int(hidden.sum()):,} of {count(int((~batch.mask).sum()), 'padding cell')}. A packed RNN reads"
            " none of them. A padded one does, and all weights get NaN gradients, even from a loss over the real steps."
        )
        mask = (
            "pv.real_mask(lengths, x.shape[1])"
            if batch.batch_first
            else "pv.real_mask(lengths, x.shape[0]).T"
        )
        mask += ".to(x.device)" * (not batch.x.is_cpu) + "[..., None]" * batch.extra
        fix = f"pack, or clean the padding first: x = x.masked_fill(~{mask}, 0)"
        yield about(hidden.any(axis=1), "warning", "NaN in the padding", message, fix)


def _clue(batch: Batch, one: _Reading, chance: float) -> Finding | None:
    """Returns a reading's finding, whose message says how certain it is; `None` if chance explains the data."""
    found, inside, others = (
        one.finding,
        int(one.inside.sum()),
        count(int(one.real.sum()), "other step"),
    )
    marks = one.are_marks(batch)
    if chance < SURE and not marks and found.level != "info":
        # The data cannot show whether lengths are too long by mistake or on purpose, so TOO_LONG is
        # never certain.
        certain = chance < CERTAIN and found.rule != TOO_LONG
        sure = "almost certain" if certain else "very likely" if chance < 1e-3 else "likely"
        look = "look" if inside > 1 else "looks"
        if one.purpose:
            message = f"{found.message} Or {one.purpose}; diagnose cannot tell which."
            return replace(found, level="warning", rule=UNDECIDED, message=message)
        message = f"{found.message} This is {sure}, because {inside or 'none'} of {others} {look} like padding."
        return replace(found, level="error" if certain else found.level, message=message)
    if found.rule == TOO_LONG and (chance < SURE or not inside):
        why = (
            "end marks, because every sequence ends like this"
            if marks
            else f"data; {others} cannot rule this out"
        )
        return replace(found, level="info", message=f"{found.message} They may also be {why}.")
    return None


def _unjudged(batch: Batch, clue: Finding | None) -> Finding | None:
    """Returns a finding if the data do not show whether the lengths or `batch_first` are right.

    `clue` is the finding that the data support, if any.
    """
    if batch.padding is None:
        return None if clue and clue.level != "info" else _undecided(*_uneven(batch))
    if batch.padding.all() and not batch.mask.all():
        return _undecided(
            "x is the same everywhere, so its padding looks like data",
            "pass a batch with data in it",
        )
    square = batch.size == batch.steps > 1
    if batch.mask.all() and clue and clue.level == "warning":
        why = f"every length is T = {batch.steps}, and the same value ends several sequences"
        return replace(_undecided(why, ""), fix=clue.fix)
    if batch.mask.all() and batch.steps > 1 and not clue:
        message = f"Every length is T = {batch.steps}, so x has no padding to judge the lengths by, and no value at"
        message += (
            " its ends looks like padding."
            + f" B is {batch.steps}, too, so batch_first is unclear." * square
        )
        return Finding(
            "info", "no padding", message, fix="none is needed if every sequence is as long as x"
        )
    if square and not clue and (batch.mask == batch.mask.T).all():
        message = f"B and T are both {batch.steps}, and the lengths fit the padding along either dimension. So x does"
        message += " not show whether batch_first is right."
        return Finding(
            "info", "batch or time", message, fix="none is needed if x is " + batch.order
        )
    return None


def _undecided(why: str, fix: str) -> Finding:
    message = f"diagnose cannot judge where the sequences lie in x, because {why}."
    return Finding("warning", UNDECIDED, message, fix=f"{fix}, and the same lengths")


_UNEVEN = "the padding is not constant"


def _uneven(batch: Batch) -> tuple[str, str]:
    """Returns a possible reason why the padding is not constant, and a fix that names the tensor to pass instead."""
    if batch.filled.sum() == 1:
        return "the padding is a single cell, which is not zero", "pass a batch with more padding"
    why = "as after a convolution, attention, or an RNN over padded data, or dropout on top of another layer"
    fix = "pass a tensor from before the first layer that mixes steps or drops values, ideally x as it was padded"
    return _pattern(batch, AFTER) or (f"{_UNEVEN}, {why}", fix)


def _pattern(batch: Batch, rule: str) -> tuple[str, str] | None:
    """Returns a likely reason why the padding is not constant, and a fix, if it has a pattern that real data do not."""
    cells, b, t = batch.filling
    if batch.x.is_floating_point() and _dropped(cells):
        return (
            f"{_UNEVEN}: numbers in it are zero at random, as after dropout",
            "pass what went into the dropout",
        )
    last = batch.x[np.arange(batch.size), batch.n - 1].cpu().to(cells.dtype)[b]
    repeated = len(cells) > 1 and torch.allclose(cells, last, rtol=1e-6, atol=1e-6)
    if rule == AFTER and _alike(cells, t):
        why = "it depends on the step alone, as after adding positions"
        return f"{_UNEVEN}: {why}", "pass what the positions were added to"
    if (rule in (AFTER, TOO_LONG) and repeated) or (rule == AFTER and _alike(cells, b)):
        why = "each sequence has its own value, as after padding with its last step, or normalising it"
        return f"{_UNEVEN}: {why}", "pass the tensor from before that operation"
    return None


def _alike(cells: Tensor, group: IntArray) -> bool:
    """Returns whether cells are equal within each group but not across groups. Groups of one cell do not count."""
    _, first, which, size = np.unique(
        group, return_index=True, return_inverse=True, return_counts=True
    )
    several = cells[first[size > 1]]
    one_each = torch.allclose(cells, cells[first[which]], rtol=1e-6, atol=1e-6)
    return len(several) > 1 and one_each and not torch.allclose(several, several[:1])


def _dropped(cells: Tensor) -> bool:
    """Returns whether the cells look like copies of one vector after dropout, with each feature kept or set to zero."""
    big = cells.amax(0).where(cells.amax(0) > 0, cells.amin(0))
    zero = cells[:, big != 0] == 0
    partly = bool((zero.any(1) & ~zero.all(1)).any()) and bool(
        ((~zero).sum(1) > 1).any()
    )  # unlike one-hot vectors
    again = (~zero).sum() - zero.shape[1]  # the number of repeated values
    return (
        partly and bool(again > 2) and bool(torch.isclose(cells, big).logical_or(cells == 0).all())
    )


def _readings(batch: Batch) -> Iterator[_Reading]:
    """Yields the alternative readings of the batch in which all padding has one value."""
    if batch.padding is not None:
        yield from _ending(batch, batch.padding, None)
        same, cell = batch.value(*batch.commonest_end)
        if (
            batch.mask.all() and same[:, -1].sum() > 1
        ):  # rows with equal ends reveal padding that is not zero
            yield from _ending(batch, same, cell)
        return
    message = "Every sequence lies at the end of its row, after its padding. Packing takes the first steps of each"
    message += " row."
    fix = f"move the data first: x = pv.align(x, lengths, padding_side='right', batch_first={batch.batch_first})"
    yield from _lying(batch, "left-padded", message, fix, batch.mask[:, ::-1])
    if batch.size == batch.steps:
        message = f"B and T are both {batch.steps}, so torch cannot tell them apart. The padding in x fits these"
        message += " lengths along the other dimension, but not along this one."
        yield from _lying(
            batch, "batch and time swapped", message, turned(batch), batch.mask.T, along=0
        )
    yield from _ending(batch, batch.zero, None)
    yield from _ending(batch, *batch.value(*batch.commonest_end))


def _lying(
    batch: Batch, rule: str, message: str, fix: str, real: BoolArray, along: int = 1
) -> Iterator[_Reading]:
    """Yields a reading in which the data are the cells in `real`, if all other cells have the same value."""
    same, cell = batch.value(*_last_of(~real))
    if same[~real].all():
        astray = real & ~batch.mask
        message += f" As the lengths are read now, {count(int(astray.sum()), 'cell')} of data lie in the padding, and"
        message += " as many cells of padding are packed as data."
        yield _Reading(
            about(astray.any(axis=1), "error", rule, message, fix), real, same, cell, along
        )


def _ending(batch: Batch, same: BoolArray, cell: _Cell | None) -> Iterator[_Reading]:
    """Yields readings in which sequences end elsewhere, because the cells that `same` marks at
    their ends are padding.

    In the first reading, every sequence ends where its data end. In the second, only the sequences
    whose data continue beyond their lengths end elsewhere.
    """
    n, steps = batch.n, batch.steps
    data = ~same[:, ::-1]
    ends = np.where(
        data.any(axis=1), steps - data.argmax(axis=1), n
    )  # a row of this value alone shows nothing
    for read in (ends, np.maximum(n, ends)):
        if (read == n).all():
            continue
        late, purpose = read > n, ""
        b = int(np.argmax(late if late.any() else read != n))
        at, choices = f"lengths[{b}] is {batch.n[b]}, but the data", _choices(batch, n, read, cell)
        if np.array_equal(np.sort(read), np.sort(n)):
            choices = min(choices, math.lgamma(len(n) + 1))
            message = f"In a different order, these lengths fit the data: {at} end at {read[b]}."
            fix = "give the lengths in the order of x; if you sorted one of the two, sort the other in the same way"
            found = about(read != n, "error", "lengths in another order", message, fix)
        elif late.any():
            found, purpose = _cut(batch, read, cell, at), _purpose(batch, read, cell)
            more = "; if x comes from a convolution, pass what went into it" * (
                "convolution" in purpose
            )
            found = replace(found, fix=found.fix + more)
        else:
            found = _overlong(batch, read, at)
        yield _Reading(
            found, np.arange(steps) < read[:, None], same, cell, choices=choices, purpose=purpose
        )


def _cut(batch: Batch, read: IntArray, cell: _Cell | None, at: str) -> Finding:
    """Returns a finding that some lengths are too short. `at` begins a sentence about the first of them."""
    late = read > batch.n
    lost, b = int((read - batch.n)[late].sum()), int(np.argmax(late))
    lie = f"in {count(int(late.sum()), 'sequence')} {'lies' if lost == 1 else 'lie'} beyond the stated length"
    after = (
        f", with {'padding' if cell else 'zeros'} after them"
        if (read[late] < batch.steps).any()
        else ""
    )
    message = f"{count(lost, 'step')} of data {lie}{after}: {at} continue to {read[b]}."
    message += " Packing silently leaves out these steps."
    return about(
        late,
        "warning",
        AFTER,
        message,
        "give the full lengths; if you cut on purpose, cut x as well",
    )


def _overlong(batch: Batch, read: IntArray, at: str) -> Finding:
    """Returns a finding that some lengths are too long. `at` begins a sentence about the first of them."""
    n, steps, wrong = batch.n, batch.steps, read != batch.n
    over, b = int((n - read).sum()), int(np.argmax(wrong))
    ending = (
        f"{'step' if over == 1 else f'{over:,} steps'} of {count(int(wrong.sum()), 'sequence')}"
    )
    message = (
        f"The last {ending} {'looks' if over == 1 else 'look'} like padding: {at} end at {read[b]}."
    )
    message += " If this is padding, the RNN reads it, and h_n is the state after it."
    fix = "none is needed if these are data; otherwise give each sequence's own length"
    fix += ", not the width of x" * bool((n == steps).all())
    single = (
        np.array_equal(wrong, n < steps) and wrong.sum() == 1
    )  # its padding may repeat its last value
    uncounted = (
        (n == n[0]).all() and (read < n).mean() > 0.6 and (2 * read < n).any()
    )  # too much to be silence
    level = (
        "warning" if uncounted or (batch.are_ids and not single) else "info"
    )  # recordings may end in silence
    return about(wrong, level, TOO_LONG, message, fix)


def _purpose(batch: Batch, read: IntArray, cell: _Cell | None) -> str:
    """Returns a legitimate reason why data may continue beyond the lengths; empty if there is none."""
    n, late, by = batch.n, read > batch.n, int((read - batch.n).max())
    if (
        batch.x.is_floating_point()
        and cell
        and np.array_equal(np.minimum(n + by, batch.steps), read)
    ):
        return "x comes from a convolution, which spreads data that far"  # its bias makes the padding nonzero
    if (late.sum() > 1 or by == 1) and np.array_equal(np.maximum(read - by, 1), n):
        return f"every sequence is cut by {count(by, 'step')} on purpose, as captions often lose their last word"
    if (late.sum() > 1 or n.max() == 1) and (n[late] == n.max()).all():
        return f"long sequences are cut at {count(int(n.max()), 'step')} on purpose"
    return ""


def _choices(batch: Batch, n: IntArray, read: IntArray, cell: _Cell | None) -> float:
    """Returns the logarithm of the number of possible mistakes of the kind in `n`, if the data end at `read`."""
    wrong, other = read != n, max(batch.steps - 1, 1)
    choices = math.comb(len(n), many := int(wrong.sum())) * other**many
    same = (n == n[0]).all()
    if same and not cell and many > len(n) / 2:
        choices = other * len(n)  # all have one length
    elif (
        many
        and not same
        and np.array_equal(np.clip(read + (n - read)[wrong][0], 1, batch.steps), n)
    ):
        choices = other  # all are off by the same amount, as far as possible
    return math.log(choices) + (
        math.log(len(n)) if cell else 0
    )  # any row might have given the value


def _last_of(cells: BoolArray) -> _Cell:
    return divmod(int(np.flatnonzero(cells)[-1]), int(cells.shape[1]))


def turned(batch: Batch) -> str:
    """Returns the fix for an `x` whose batch and time dimensions are swapped."""
    return f"pass batch_first={not batch.batch_first}, or transpose x"


def about(which: BoolArray | np.bool_, level: str, rule: str, message: str, fix: str) -> Finding:
    """Returns a finding about some sequences, which contains their names and indices."""
    rows = np.flatnonzero(which).tolist()
    more = f" and {len(rows) - 8} more" if len(rows) > 8 else ""
    where = f"sequence{'s' * (len(rows) > 1)} {', '.join(map(sequence_name, rows[:8]))}{more}"
    return Finding(level, rule, message, where, fix, tuple(rows))
