"""Estimates how likely it is that the sequences in a padded batch are not where the lengths put them."""

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
from packviz.core.validation import require_dense
from packviz.draw.text import count

SURE = 0.1
"""A mistake is reported if the probability that the data look like this by chance is below this value. With a larger
value, more than 1 % of small batches whose data are sometimes zero would cause a false alarm. The test
`tests/unit/check/test_odds.py` prints the rate of false alarms for every kind of data."""

RARE = 0.1
"""The assumed probability that the padding of a correct batch contains different values."""

CERTAIN = 1e-6
"""If the probability that the data look like this by chance is below this value, a mistake is almost certain and is
reported as an error."""

TOO_LONG = "padding inside the length"
AFTER = "data after the length"

_Cell = tuple[int, int]


class Batch:
    """A padded batch, batch first, with its lengths as torch reads them."""

    def __init__(self, x: Tensor, lengths: Any, batch_first: bool | None) -> None:
        self.order = order(batch_first)
        if not isinstance(x, Tensor):
            hint = "; pass it as packed=…, and the padded batch as x" if hasattr(x, "batch_sizes") else ""
            raise TypeError(f"x is a {type(x).__name__}; give the padded batch as a tensor {self.order}{hint}")
        require_dense("x", x)
        if x.ndim < 2:
            raise ValueError(f"x must be {self.order}, got shape {tuple(x.shape)}")
        self.size, self.steps, self.batch_first = Padded.of(x.shape, batch_is_first(batch_first, x.shape))
        self.extra = x.ndim - 2  # dimensions of a cell
        x = x.detach() if batch_first else x.detach().transpose(0, 1)
        self.x = x.flatten(2) if x.ndim > 2 else x.unsqueeze(2)
        require_dense("lengths", lengths)
        try:
            values = lengths.detach() if isinstance(lengths, Tensor) else torch.tensor(host_array(lengths))
        except (TypeError, ValueError, RuntimeError):
            raise ValueError(f"lengths must be a list or a tensor of numbers, got {lengths!r}") from None
        if values.ndim != 1 or values.dtype == torch.bool or values.is_complex():
            got = f"{values.dtype} of shape {tuple(values.shape)}"
            raise ValueError(f"lengths must hold one number per sequence, got {got}")
        self.device = values.device
        self.values: npt.NDArray[Any] = np.zeros(0) if values.is_meta else values.cpu().double().numpy()
        self.readable = not values.is_meta and bool(np.isfinite(self.values).all())

    @cached_property
    def n(self) -> IntArray:
        """`(B,)` the lengths as torch reads them, truncated to whole numbers."""
        cut: IntArray = np.trunc(self.values).astype(np.int64)
        return cut

    @cached_property
    def filled(self) -> BoolArray:
        """`(B, T)` true at cells of the padding that contain no NaN."""
        return ~self.mask & ~self.nan

    @cached_property
    def filling(self) -> tuple[Tensor, IntArray, IntArray]:
        """`(N, …)` the cells of the padding that contain no NaN, and the sequence and the step of each."""
        cells = self.x[torch.from_numpy(self.filled).to(self.x.device)].cpu()
        b, t = np.nonzero(self.filled)
        return cells if cells.is_complex() else cells.double(), b, t

    @property
    def possible(self) -> bool:
        """True if every length is possible for a sequence of x."""
        return bool(((self.values == self.n) & (self.n >= 1) & (self.n <= self.steps)).all())

    @property
    def fits(self) -> bool:
        """True if there is one length for each sequence of x, so that data and lengths can be compared."""
        return len(self.n) == self.size and self.x.numel() > 0

    @cached_property
    def mask(self) -> BoolArray:
        """`(B, T)` true where a cell is real according to the lengths."""
        return np.arange(self.steps) < self.n[:, None]

    @cached_property
    def are_ids(self) -> bool:
        """True if `x` contains only whole numbers of at least 0, such as token ids: none of them is silence."""
        x = self.x
        return not (x.is_floating_point() or x.is_complex() or x.dtype == torch.bool or bool((x < 0).any()))

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
        """`(B, T)` true where a cell has the padding's value, or is zero if there is no padding.

        It is `None` if the padding has no single value, or if one cell is too little to tell.
        """
        if not self.filled.any():
            return self.zero if self.mask.all() else self.nan
        same, cell = self.value(*_last_of(self.filled))
        alone = cell is not None and self.filled.sum() == 1  # a single cell always equals itself
        return same if same[self.filled].all() and not alone else None

    def value(self, b: int, t: int) -> tuple[BoolArray, _Cell | None]:
        """Returns a mask `(B, T)` of the cells that equal cell `(b, t)`, and that place, or `None` if the cell is zero.

        The comparison ignores rounding, because a linear layer may round differently in each row of a batch.
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
        """The place of a cell at the last step that has the most common value there."""
        rows = self.x[:, -1].contiguous().view(torch.uint8).cpu().numpy()
        _, first, counts = np.unique(rows, axis=0, return_index=True, return_counts=True)
        return int(first[counts.argmax()]), self.steps - 1

    def repeats(self, along: int) -> BoolArray:
        """Returns a mask of the cells that equal the one before: `(B, T - 1)` in time, or `(T, B - 1)` in the batch."""
        x = self.x if along else self.x.transpose(0, 1)
        return _on_host((x[:, 1:] == x[:, :-1]).all(-1))


def _on_host(cells: Tensor) -> BoolArray:
    found: BoolArray = cells.cpu().numpy()
    return found


@dataclass(frozen=True)
class _Reading:
    """A different reading of the batch, in which some cells are data and all others have one value, the padding's.

    Attributes:
        finding: the finding to report if this reading is right.
        real: `(B, T)` true where a cell is data in this reading.
        same: `(B, T)` true where a cell has the padding's value.
        cell: the cell from which the value was taken; `None` for zeros, which need no example.
        along: the axis of time.
        choices: the logarithm of the number of possible mistakes of this kind.
        purpose: a legitimate reason for data that look just like this mistake; empty if there is none.
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
        """`(B, T)` true where data have the padding's value."""
        return self.real & self.same

    def are_marks(self, batch: Batch) -> bool:
        """Returns whether these may be end marks: as many in every sequence, and any others explained by chance."""
        end, blank = self.real.sum(axis=1), self.same.all(axis=1)
        marks = int((batch.n - end)[~blank].min(initial=batch.steps))
        if self.finding.rule != TOO_LONG or not marks:
            return False
        beyond = replace(self, choices=_choices(batch, np.where(blank, end, batch.n - marks), end, self.cell))
        return beyond.chance(batch, marks) >= SURE

    def chance(self, batch: Batch, marks: int = 0) -> float:
        """Returns the probability that data have the padding's value in these places by chance.

        The estimate assumes that data take this value at one rate, and keep it at another. If `k` of `n` steps did so,
        then by Laplace's rule of succession the next step does so with probability `(k + 1) / (n + 2)`. Applied to one
        cell after another, the rule gives the result:

            chance = choices · p(all first cells, after k of n) · p(all further cells, after k' of n')

        For the first cell of each run, `n` counts all steps of data, and `k` counts those that have the value. For the
        further cells, `n'` counts the steps that follow a step with the value, and `k'` counts those that have it, too.
        If there are none, `n'` counts all steps that follow another, and `k'` counts those that repeat it. Zeros are
        therefore strong evidence if data are never zero, and weak evidence if data are sparse, silent or constant for a
        while. If the lengths leave data in the padding, the estimate assumes that this, too, happens by chance, with
        probability `RARE`. The last `marks` steps of each sequence are not counted.
        """
        broken = batch.padding is None
        # Padding in the right place needs no explanation.
        doubtful = ~self.real & ((np.arange(batch.steps) < batch.n[:, None] - marks) | (broken & ~batch.mask))
        if self.cell:
            doubtful[self.cell] = False
        doubtful, real, inside = (one if self.along else one.T for one in (doubtful, self.real, self.inside))
        behind, again = real[:, 1:] & inside[:, :-1], inside[:, 1:]
        if not behind.any():
            behind, again = real[:, 1:] & real[:, :-1], batch.repeats(self.along)
        first = int(doubtful.any(axis=1).sum())
        chance = self.choices + math.log(RARE if broken else 1) + _succession(first, inside, real)
        chance += _succession(int(doubtful.sum()) - first, behind & again, behind)
        return math.exp(min(chance, 0)) if first else 1.0


def _succession(more: int, hits: BoolArray, tried: BoolArray) -> float:
    """Returns the log probability that `more` further cells are all hits, by Laplace's rule."""
    k, n = int(hits.sum()), int(tried.sum())
    return math.lgamma(k + 1 + more) - math.lgamma(k + 1) - math.lgamma(n + 2 + more) + math.lgamma(n + 2)


def judge(batch: Batch) -> Iterator[Finding]:
    """Yields findings if the padding is not where the lengths put it, cannot be located, or contains NaN."""
    if batch.x.is_meta:
        yield _undecided("x is on the device meta and has no values", "pass a batch with values")
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
            f"{count(int(hidden.sum()), 'cell')} of {int((~batch.mask).sum())} of the padding hold NaN. Packed, nothing"
            " reads them. Padded, the gradients of all weights become NaN, even of a loss over the real steps."
        )
        mask = "pv.real_mask(lengths, x.shape[1])" if batch.batch_first else "pv.real_mask(lengths, x.shape[0]).T"
        mask += ".to(x.device)" * (not batch.x.is_cpu) + "[..., None]" * batch.extra
        fix = f"pack, or clean the padding first: x = x.masked_fill(~{mask}, 0)"
        yield about(hidden.any(axis=1), "warning", "NaN in the padding", message, fix)


def _clue(batch: Batch, one: _Reading, chance: float) -> Finding | None:
    """Returns the finding of a reading, with its certainty, or `None` if chance explains the data."""
    found, inside, others = one.finding, int(one.inside.sum()), count(int(one.real.sum()), "other step")
    marks = one.are_marks(batch)
    if chance < SURE and not marks and found.level != "info":
        # The data cannot show whether all lengths are the same by mistake or on purpose, so this is never certain.
        certain = chance < CERTAIN and found.rule != TOO_LONG
        sure = "almost certain" if certain else "very likely" if chance < 1e-3 else "likely"
        are = "are" if inside > 1 else "is"
        if one.purpose:
            message = f"{found.message} Or {one.purpose}; diagnose cannot tell."
            return replace(found, level="warning", rule=UNDECIDED, message=message)
        message = f"{found.message} This is {sure}: of {others}, {inside or 'none'} {are} like padding."
        return replace(found, level="error" if certain else found.level, message=message)
    if found.rule == TOO_LONG and (chance < SURE or not inside):
        why = "end marks: every sequence ends like this" if marks else f"data that end so: {others} do not exclude this"
        return replace(found, level="info", message=f"{found.message} They may also be {why}.")
    return None


def _unjudged(batch: Batch, clue: Finding | None) -> Finding | None:
    """Returns a finding about what the data do not show. The clue is the finding that they support, if any."""
    if batch.padding is None:
        return None if clue and clue.level != "info" else _undecided(*_uneven(batch))
    if batch.padding.all() and not batch.mask.all():
        return _undecided("x is the same everywhere, so its padding looks like data", "pass a batch with data in it")
    square = batch.size == batch.steps > 1
    if batch.mask.all() and batch.steps > 1 and not clue:
        message = f"Every length is T = {batch.steps}, so x has no padding to judge them by, and no value at its ends"
        message += " looks like some." + f" batch_first does not show either, because B is {batch.steps}, too." * square
        return Finding("info", "no padding", message, fix="nothing, if every sequence is as long as x")
    if square and not clue and (batch.mask == batch.mask.T).all():
        message = f"B and T are both {batch.steps}, and the lengths fit the padding along either dimension. So x does"
        message += " not show whether batch_first is right."
        return Finding("info", "batch or time", message, fix="nothing, if x is " + batch.order)
    return None


def _undecided(why: str, fix: str) -> Finding:
    message = f"diagnose cannot judge where the sequences lie in x: {why}."
    return Finding("warning", UNDECIDED, message, fix=f"{fix}, with the same lengths")


_UNEVEN = "the padding is not constant"


def _uneven(batch: Batch) -> tuple[str, str]:
    """Returns a possible reason why the padding is not constant, and a fix that names the tensor to pass instead."""
    if batch.filled.sum() == 1:
        return "the padding is a single cell, and not zero, so nothing is like it", "pass a batch with more padding"
    why = "as after a convolution, attention, or an RNN over padded data, or dropout on top of another layer"
    fix = "pass a tensor from before the first layer that mixes steps or drops at random, at best x as it was padded"
    return _pattern(batch, AFTER) or (f"{_UNEVEN}, {why}", fix)


def _pattern(batch: Batch, rule: str) -> tuple[str, str] | None:
    """Returns a reason and a fix if the values in the padding follow a pattern that shows they are not data."""
    cells, b, t = batch.filling
    if batch.x.is_floating_point() and _dropped(cells):
        return f"{_UNEVEN}: numbers in it are zero at random, as after dropout", "pass what went into the dropout"
    last = batch.x[np.arange(batch.size), batch.n - 1].cpu().to(cells.dtype)[b]
    repeated = len(cells) > 1 and torch.allclose(cells, last, rtol=1e-6, atol=1e-6)
    if rule == AFTER and _alike(cells, t):
        why = "it depends on the step alone, as after adding positions"
        return f"{_UNEVEN}: {why}", "pass what the positions were added to"
    if (rule in (AFTER, TOO_LONG) and repeated) or (rule == AFTER and _alike(cells, b)):
        why = "each sequence has its own, as after padding with its last step, or normalising each sequence"
        return f"{_UNEVEN}: {why}", "pass what came before that"
    return None


def _alike(cells: Tensor, group: IntArray) -> bool:
    """Returns whether the cells within each group are equal, while groups of several cells differ from each other."""
    _, first, which, size = np.unique(group, return_index=True, return_inverse=True, return_counts=True)
    several = cells[first[size > 1]]
    one_each = torch.allclose(cells, cells[first[which]], rtol=1e-6, atol=1e-6)
    return len(several) > 1 and one_each and not torch.allclose(several, several[:1])


def _dropped(cells: Tensor) -> bool:
    """Returns whether each feature is zero in some of these cells, and one fixed number in the others."""
    big = cells.amax(0).where(cells.amax(0) > 0, cells.amin(0))
    zero = cells[:, big != 0] == 0
    partly = bool((zero.any(1) & ~zero.all(1)).any()) and bool(((~zero).sum(1) > 1).any())  # unlike one-hot vectors
    again = (~zero).sum() - zero.shape[1]  # the number of repeated values
    return partly and bool(again > 2) and bool(torch.isclose(cells, big).logical_or(cells == 0).all())


def _readings(batch: Batch) -> Iterator[_Reading]:
    """Yields every other reading of the batch in which all padding has one value."""
    if batch.padding is not None:
        yield from _ending(batch, batch.padding, None)
        same, cell = batch.value(*batch.commonest_end)
        if batch.mask.all() and same[:, -1].sum() > 1:  # rows with equal ends reveal padding that is not zero
            yield from _ending(batch, same, cell)
        return
    message = "Every sequence lies at the end of its row, behind its padding. Packing takes the first steps of each"
    message += " row."
    fix = f"move the data first: x = pv.align(x, lengths, padding_side='right', batch_first={batch.batch_first})"
    yield from _lying(batch, "left-padded", message, fix, batch.mask[:, ::-1])
    if batch.size == batch.steps:
        message = f"B and T are both {batch.steps}, so torch cannot tell them apart. The padding in x fits these"
        message += " lengths along the other dimension, and not along this one."
        yield from _lying(batch, "batch and time swapped", message, turned(batch), batch.mask.T, along=0)
    yield from _ending(batch, batch.zero, None)
    yield from _ending(batch, *batch.value(*batch.commonest_end))


def _lying(batch: Batch, rule: str, message: str, fix: str, real: BoolArray, along: int = 1) -> Iterator[_Reading]:
    """Yields a reading in which the sequences lie elsewhere, if all remaining cells have one value."""
    same, cell = batch.value(*_last_of(~real))
    if same[~real].all():
        astray = real & ~batch.mask
        message += f" As the lengths are read now, {count(int(astray.sum()), 'cell')} of data lie in the padding, and"
        message += " as many of padding are packed as data."
        yield _Reading(about(astray.any(axis=1), "error", rule, message, fix), real, same, cell, along)


def _ending(batch: Batch, same: BoolArray, cell: _Cell | None) -> Iterator[_Reading]:
    """Yields readings in which this value is the padding, so that sequences end elsewhere.

    In the first reading, every sequence ends where its data end. In the second, only the sequences whose data continue
    beyond their lengths end elsewhere.
    """
    n, steps = batch.n, batch.steps
    data = ~same[:, ::-1]
    ends = np.where(data.any(axis=1), steps - data.argmax(axis=1), n)  # a row of this value alone shows nothing
    for read in (ends, np.maximum(n, ends)):
        if (read == n).all():
            continue
        late, purpose = read > n, ""
        b = int(np.argmax(late if late.any() else read != n))
        at, choices = f"lengths[{b}] is {batch.n[b]}, the data", _choices(batch, n, read, cell)
        if np.array_equal(np.sort(read), np.sort(n)):
            choices = min(choices, math.lgamma(len(n) + 1))
            message = f"In another order, these lengths fit the data: {at} end at {read[b]}."
            fix = "give the lengths in the order of x; if you sorted one of the two, sort the other in the same way"
            found = about(read != n, "error", "lengths in another order", message, fix)
        elif late.any():
            found, purpose = _cut(batch, read, cell, at), _purpose(batch, read, cell)
            more = "; if x comes from a convolution, pass what went into it" * ("convolution" in purpose)
            found = replace(found, fix=found.fix + more)
        else:
            found = _overlong(batch, read, at)
        yield _Reading(found, np.arange(steps) < read[:, None], same, cell, choices=choices, purpose=purpose)


def _cut(batch: Batch, read: IntArray, cell: _Cell | None, at: str) -> Finding:
    """Returns a finding that some lengths are too short. The text `at` describes the first of them."""
    late = read > batch.n
    lost, b = int((read - batch.n)[late].sum()), int(np.argmax(late))
    lie = f"in {count(int(late.sum()), 'sequence')} {'lies' if lost == 1 else 'lie'} behind the stated length"
    after = f", and {'padding' if cell else 'zeros'} after them" if (read[late] < batch.steps).any() else ""
    message = f"{count(lost, 'step')} of data {lie}{after}: {at} continue to {read[b]}."
    message += " Packing silently leaves out these steps."
    return about(late, "warning", AFTER, message, "give the full lengths; if you shorten on purpose, cut x as well")


def _overlong(batch: Batch, read: IntArray, at: str) -> Finding:
    """Returns a finding that some lengths are too long. The text `at` describes the first of them."""
    n, steps, wrong = batch.n, batch.steps, read != batch.n
    over, b = int((n - read).sum()), int(np.argmax(wrong))
    ending = f"{'step' if over == 1 else f'{over:,} steps'} of {count(int(wrong.sum()), 'sequence')}"
    message = f"The last {ending} {'looks' if over == 1 else 'look'} like padding: {at} end at {read[b]}."
    message += " If it is padding, the RNN reads it, and h_n is the state after it."
    fix = "nothing, if these are data; else give each sequence's own length"
    fix += ", not the width of x" * bool((n == steps).all())
    single = np.array_equal(wrong, n < steps) and wrong.sum() == 1  # its padding may repeat its last value
    uncounted = (n == n[0]).all() and (read < n).mean() > 0.6 and (2 * read < n).any()  # too much to be silence
    level = "warning" if uncounted or (batch.are_ids and not single) else "info"  # recordings may end in silence
    return about(wrong, level, TOO_LONG, message, fix)


def _purpose(batch: Batch, read: IntArray, cell: _Cell | None) -> str:
    """Returns a legitimate reason why data may continue beyond the lengths; empty if there is none."""
    n, late, by = batch.n, read > batch.n, int((read - batch.n).max())
    if batch.x.is_floating_point() and cell and np.array_equal(np.minimum(n + by, batch.steps), read):
        return "x comes from a convolution, which spreads data that far"  # its bias makes the padding nonzero
    if (late.sum() > 1 or by == 1) and np.array_equal(np.maximum(read - by, 1), n):
        return f"every sequence is cut by {count(by, 'step')} on purpose, as captions are by their last word"
    if (late.sum() > 1 or n.max() == 1) and (n[late] == n.max()).all():
        return f"long sequences are cut at {count(int(n.max()), 'step')} on purpose"
    return ""


def _choices(batch: Batch, n: IntArray, read: IntArray, cell: _Cell | None) -> float:
    """Returns the logarithm of the number of mistakes like the lengths `n` that are possible if data end at `read`."""
    wrong, other = read != n, max(batch.steps - 1, 1)
    choices = math.comb(len(n), many := int(wrong.sum())) * other**many
    same = (n == n[0]).all()
    if same and not cell and many > len(n) / 2:
        choices = other * len(n)  # all have one length
    elif many and not same and np.array_equal(np.clip(read + (n - read)[wrong][0], 1, batch.steps), n):
        choices = other  # all are off by the same amount, as far as possible
    return math.log(choices) + (math.log(len(n)) if cell else 0)  # any row might have given the value


def _last_of(cells: BoolArray) -> _Cell:
    return divmod(int(np.flatnonzero(cells)[-1]), int(cells.shape[1]))


def turned(batch: Batch) -> str:
    """Returns the fix for an x whose batch and time dimensions are swapped."""
    return f"pass batch_first={not batch.batch_first}, or transpose x"


def about(which: BoolArray | np.bool_, level: str, rule: str, message: str, fix: str) -> Finding:
    """Returns a finding about some sequences, with their letters and indices."""
    rows = np.flatnonzero(which).tolist()
    more = f" and {len(rows) - 8} more" if len(rows) > 8 else ""
    where = f"sequence{'s' * (len(rows) > 1)} {', '.join(map(sequence_name, rows[:8]))}{more}"
    return Finding(level, rule, message, where, fix, tuple(rows))
