"""`diagnose`: the mistakes with packed sequences that torch does not mention, found by what the data show."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from packviz.check.findings import UNDECIDED, Finding, Findings
from packviz.core.layout import BoolArray, IntArray, Layout, Packed, host_array, sequence_name
from packviz.core.padded import Padded, batch_is_first, order
from packviz.core.validation import require_dense
from packviz.draw.text import count, numbers

SURE = 0.1
"""Whatever is less likely by chance than this is reported as a mistake. A larger value gives more than 1 % of false
alarms on small batches of data that are sometimes zero: `tests/unit/check/test_odds.py` prints how many, for every kind
of data."""

_UNEVEN = "the padding is not constant"

RARE = 0.1
"""How likely it is that the padding holds this and that without a mistake."""

CERTAIN = 1e-6
"""What chance makes less likely than this is almost certain, and so an error."""

TOO_LONG = "padding inside the length"


def diagnose(
    x: Tensor,
    lengths: Any,
    batch_first: bool | None = None,
    packed: Packed | None = None,
    *,
    last: Tensor | None = None,
    hx: Any = None,
) -> Findings:
    """Looks for the traps of packing: what torch takes without a word, and what it will refuse.

    Padding is recognised by its value: all cells behind the lengths hold the same vector, zeros or not, apart from
    rounding. What data may show by chance is judged by odds, and the finding says how sure it is: three sequences are
    enough if the data never hold what the padding holds. What is almost certain is an error.

    If the padding is not constant, as after dropout on an embedding, a convolution or an RNN, nothing tells where the
    sequences end. `diagnose` then warns that this is undecided, and names an earlier tensor to pass. What is undecided
    is not `ok`. If there is no padding, or if the lengths fit along either dimension, an info says so.

    `diagnose` waits for the device a few times, so use it on some batches and not in a training loop.

    Args:
        x: `(T, B, …)`, or `(B, T, …)` with `batch_first`: what was, or will be, packed. Any dtype, any device.
        lengths: `(B,)` as they were, or will be, passed to `pack_padded_sequence`: a list, an array or a tensor.
        batch_first: as given to `pack_padded_sequence`. Defaults to False, as there, with a warning if `B` equals `T`.
        packed: the `PackedSequence` that was made of them (or of an RNN's result), to see whether its rows come back
            in the order of `lengths`.
        last: `(B, …)` what was taken from `x` as the last step of each sequence, such as `x[:, -1]`.
        hx: the initial state, `(L·D, B, H)` or a pair of them, as given to the RNN along with the packed batch.

    Returns:
        The findings, gravest first. `"error"`: torch will refuse it, or the result is wrong, or almost certainly so.
        `"warning"`: probably wrong, or undecided. `"info"`: good to know. The result is `ok` if there is no error and
        nothing is undecided, and `clean` if there is no finding at all.

    Raises:
        TypeError: `x` is not a dense tensor, or `packed` is not a packed sequence.
        ValueError: `x` has no time and batch dimension, the lengths are not a list of numbers, or `last` does not fit.

    Examples:
        >>> import packviz as pv, torch
        >>> x = torch.zeros(3, 5, 2)
        >>> x[0], x[1, :3], x[2, :2] = 1, 1, 1
        >>> findings = pv.diagnose(x, [5, 2, 2], batch_first=True)  # b has 3 steps, not 2
        >>> findings.ok, findings[0].indices
        (True, (1,))
    """
    batch = _Batch(x, lengths, batch_first)
    found = [*_lengths_alone(batch)]
    if batch.readable:
        found += _counts(batch)
        if batch.fits:
            found += [*(_data(batch) if batch.possible else ()), *_widths(batch)]
            if packed is not None:
                found += _order(batch, packed)
            if last is not None:
                found += _last(batch, last)
    if hx is not None:
        found += _states(batch, hx)
    return Findings(f"x of shape {tuple(x.shape)}, read as {batch.order}", tuple(found))


class _Batch:
    """What was given, batch first, with lengths as torch will read them."""

    def __init__(self, x: Tensor, lengths: Any, batch_first: bool | None) -> None:
        self.order = order(batch_first)
        if not isinstance(x, Tensor):
            hint = "; pass it as packed=…, and as x the padded batch" if hasattr(x, "batch_sizes") else ""
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
            raise ValueError(
                f"lengths must hold one number per sequence, got {values.dtype} of shape {tuple(values.shape)}"
            )
        self.device = values.device
        self.readable = not values.is_meta
        self.values: npt.NDArray[Any] = np.zeros(0) if values.is_meta else values.cpu().double().numpy()
        self.readable &= bool(np.isfinite(self.values).all())

    @cached_property
    def n(self) -> IntArray:
        """`(B,)` the lengths as torch reads them: cut off behind the point."""
        cut: IntArray = np.trunc(self.values).astype(np.int64)
        return cut

    @cached_property
    def filling(self) -> tuple[Tensor, IntArray, IntArray]:
        """`(N, …)` the cells of the padding that hold no NaN; and of each its sequence and its step."""
        filled = ~self.mask & ~self.nan
        cells = self.x[torch.from_numpy(filled).to(self.x.device)].cpu()
        b, t = np.nonzero(filled)
        return cells if cells.is_complex() else cells.double(), b, t

    @property
    def possible(self) -> bool:
        """Whether every length is one that a sequence of x can have."""
        return bool(((self.values == self.n) & (self.n >= 1) & (self.n <= self.steps)).all())

    @property
    def fits(self) -> bool:
        """Whether every sequence of x has its length, so that data and lengths can be compared."""
        return len(self.n) == self.size and self.x.numel() > 0

    @cached_property
    def mask(self) -> BoolArray:
        """`(B, T)` true where a cell is real by the lengths."""
        return np.arange(self.steps) < self.n[:, None]

    def like(self, b: int, t: int) -> BoolArray:
        """`(B, T)` true where a cell holds what cell `(b, t)` holds, apart from rounding.

        A linear layer, for one, does not round alike in all rows of a batch.
        """
        if self.nan[b, t]:
            return self.nan
        cell = self.x[b, t]
        if not cell.is_floating_point():
            return self._where(lambda x: (x == cell).all(-1))
        slack = 4 * torch.finfo(cell.dtype).eps * cell.abs().nan_to_num(0, 0).max()
        return self._where(lambda x: ((x == cell) | ((x - cell).abs() <= slack)).all(-1))

    @cached_property
    def zero(self) -> BoolArray:
        """`(B, T)` true where a cell is zero."""
        return self._where(lambda x: (x == 0).all(-1))

    @cached_property
    def nan(self) -> BoolArray:
        """`(B, T)` true where a cell holds a NaN."""
        return self._where(lambda x: x.isnan().any(-1))

    @cached_property
    def padding(self) -> BoolArray | None:
        """`(B, T)` true where a cell holds what all padding holds; or zero, if there is no padding."""
        filled = ~self.mask & ~self.nan
        if not filled.any():
            return self.zero if self.mask.all() else self.nan
        same, cell = self.value(*_last_of(filled))
        alone = cell is not None and filled.sum() == 1  # one cell is like itself, whatever it holds
        return same if same[filled].all() and not alone else None

    def value(self, b: int, t: int) -> tuple[BoolArray, tuple[int, int] | None]:
        """`(B, T)` true where a cell holds what cell `(b, t)` holds; and this cell, unless that is zero."""
        return (self.zero, None) if self.zero[b, t] else (self.like(b, t), (b, t))

    @cached_property
    def commonest_end(self) -> tuple[int, int]:
        """A cell of the last step that holds what most sequences hold there."""
        rows = self.x[:, -1].contiguous().view(torch.uint8).cpu().numpy()
        _, first, counts = np.unique(rows, axis=0, return_index=True, return_counts=True)
        return int(first[counts.argmax()]), self.steps - 1

    def repeats(self, along: int) -> BoolArray:
        """True where a cell holds what the one before it holds: `(B, T - 1)`, or `(T, B - 1)` along the sequences."""
        x = self.x if along else self.x.transpose(0, 1)
        return self._where(lambda _: (x[:, 1:] == x[:, :-1]).all(-1))

    def _where(self, test: Callable[[Tensor], Tensor]) -> BoolArray:
        found: BoolArray = test(self.x).cpu().numpy()
        return found


# What the lengths alone say.


def _lengths_alone(batch: _Batch) -> Iterator[Finding]:
    if batch.device.type != "cpu":
        message = f"lengths are on {batch.device}. torch reads them on the CPU, to plan the steps, and refuses others."
        fix = "pass lengths.cpu(), or better, never move them: x alone goes to the device"
        yield Finding("error", "lengths not on the CPU", message, fix=fix)
    finite = np.isfinite(batch.values)
    message = ". torch makes a whole number of it, which says nothing of the sequence."
    fix = "count the steps again: a share is NaN or infinite where it was divided by 0"
    yield from _entries(batch, ~finite, "no number", message, fix)
    message = (
        ". torch cuts off what is behind the point, without a word: 3.9 becomes 3, and every share times T that falls"
        " short by rounding loses a step."
    )
    fix = "round first: lengths = torch.as_tensor(lengths).round().long()"
    yield from _entries(batch, finite & (batch.values != np.trunc(batch.values)), "fractional length", message, fix)


def _entries(batch: _Batch, wrong: BoolArray, rule: str, message: str, fix: str) -> Iterator[Finding]:
    """Yields an error if any of the lengths are wrong; `message` continues the text after the first of them."""
    if wrong.any():
        more = f" (and {wrong.sum() - 1} more)" if wrong.sum() > 1 else ""
        b = int(np.argmax(wrong))
        value = np.format_float_positional(batch.values[b], trim="-")  # in full: 5.9999995 is not 6
        yield _about(wrong, "error", rule, f"lengths[{b}] is {value}{more}{message}", fix)


def _counts(batch: _Batch) -> Iterator[Finding]:
    n, size, steps = batch.n, batch.size, batch.steps
    if not batch.x.numel():
        message = f"x, read as {batch.order} with B = {size} and T = {steps}, is empty. torch packs no empty tensor."
        yield Finding("error", "empty batch", message, fix="leave this batch out")
        return
    if len(n) != size:
        message = f"lengths has {count(len(n), 'entry', 'entries')}, but x, read as {batch.order}, has B = {size}"
        if len(n) == steps:
            message = f"{message} and T = {steps}. {_uncounted(batch)}"
            yield Finding("error", "batch and time swapped", message, fix=_turned(batch))
            return  # the other lengths are counted along the wrong dimension
        fix = "give one length for each sequence, in the order of x"
        yield Finding("error", "wrong count", f"{message}. {_uncounted(batch)}", fix=fix)
    fix = "drop these rows before packing, and put zeros back for them afterwards"
    yield from _entries(batch, n < 1, "empty sequence", ". torch packs no empty sequence.", fix)
    message = (
        f", but x, read as {batch.order}, has T = {steps}. torch packs it all the same:"
        f" {np.minimum(n, steps).sum()} rows of data where the lengths say {n.sum()}. The error comes later, from the"
        " RNN or from unpacking, and names neither."
    )
    fix = "give the lengths of this x: were they taken before it was cut, or with added start and end marks?"
    yield from _entries(batch, n > steps, "longer than x", message, fix)


def _uncounted(batch: _Batch) -> str:
    """What torch does with so many lengths."""
    missing = batch.size - len(batch.n)
    if missing > 0 and (batch.n <= batch.steps).all():
        return f"With enforce_sorted=False torch drops {count(missing, 'sequence')} without a word."
    return "With enforce_sorted=False torch complains about an index, or later about a shape, and does not say why."


# What the data say.


@dataclass(frozen=True)
class _Reading:
    """Another way to read the batch: some cells are data, and all others hold one value, the padding's."""

    level: str
    rule: str
    message: str
    fix: str
    wrong: BoolArray | np.bool_
    """`(B,)` the sequences that do not lie where the lengths put them."""
    real: BoolArray
    """`(B, T)` where the data lie, read like this."""
    same: BoolArray
    """`(B, T)` where a cell holds the value."""
    cell: tuple[int, int] | None
    """Where the value was taken from; none for zeros, which need no example."""
    along: int = 1
    """The axis of time."""
    choices: float = 0.0
    """The logarithm of the number of mistakes of this kind."""
    spread: bool = False
    """Whether a convolution may have spread the data as far: all end so many steps behind their lengths."""

    @cached_property
    def inside(self) -> BoolArray:
        """`(B, T)` where data hold the value."""
        return self.real & self.same

    def are_marks(self, batch: _Batch) -> bool:
        """Whether these may be end marks, written like padding: all sequences end so, and go beyond that by chance."""
        end, blank = self.real.sum(axis=1), self.same.all(axis=1)
        marks = int((batch.n - end)[~blank].min(initial=batch.steps))
        if self.rule != TOO_LONG or not marks:
            return False
        beyond = replace(self, choices=_choices(batch, np.where(blank, end, batch.n - marks), end, self.cell))
        return beyond.chance(batch, marks) >= SURE

    def chance(self, batch: _Batch, marks: int = 0) -> float:
        """How likely it is that data hold the value just there by chance, judged by the other data.

        Say that data hold it at some rate, and where they do, hold it on at another. After `k` of `n` steps that did,
        the next one does with probability `(k + 1) / (n + 2)`, by Laplace's rule of succession, and so on:

            chance = choices · p(all first cells, after k of n) · p(all further cells, after k' of n')

        The first cell of each run is compared with the `k` of all `n` steps of data that hold the value. The further
        ones are compared with the `k'` of `n'` steps behind such a step that hold it again; or if data hold it nowhere,
        with the steps that repeat the one before, whatever it is. So zeros tell much where data are never zero, and
        little where they are sparse, fall silent or stand still. Where the lengths leave data in the padding, that has
        to be chance, too: `RARE`. So many `marks` at the end of each sequence need no explanation.
        """
        broken = batch.padding is None
        # Nor does padding that is as it should be.
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
    """The logarithm of how likely it is that so many more cells are all hits, by Laplace's rule."""
    k, n = int(hits.sum()), int(tried.sum())
    return math.lgamma(k + 1 + more) - math.lgamma(k + 1) - math.lgamma(n + 2 + more) + math.lgamma(n + 2)


def _data(batch: _Batch) -> Iterator[Finding]:
    """Where the cells that hold one and the same value lie, against where the lengths put the padding."""
    if batch.x.is_meta:
        yield _undecided("x is on the device meta and has no values", "pass a batch with values")
        return
    clue = None
    if judged := [(one.chance(batch), one) for one in _readings(batch)]:
        chance, one = min(judged, key=itemgetter(0))
        k, others = int(one.inside.sum()), count(int(one.real.sum()), "other step")
        marks = one.are_marks(batch)
        if chance < SURE and not marks:
            # Lengths that differ have been counted: the data may end in silence, which is no matter of chance.
            certain = chance < CERTAIN and (one.rule != TOO_LONG or bool(batch.mask.all()))
            level, rule = "error" if certain else one.level, one.rule
            sure = "almost certain" if certain else "very likely" if chance < 1e-3 else "likely"
            are = "are" if k > 1 else "is"
            message = f"{one.message} This is {sure}: of {others}, {k or 'none'} {are} like padding."
            if one.spread:  # padding that is not zero, as a convolution's bias makes it
                message = f"{one.message} Or x comes from a convolution, which spreads data that far; diagnose"
                message += " cannot tell."
                level, rule = "warning", UNDECIDED
            clue = _about(one.wrong, level, rule, message, one.fix)
        elif one.rule == TOO_LONG and (chance < SURE or not k):
            why = "end marks: every sequence ends so" if marks else f"data that end so: {others} do not rule it out"
            message = f"{one.message} They may as well be {why}."
            clue = _about(one.wrong, "info", one.rule, message, one.fix)
    if clue and clue.rule == "data after the length" and batch.padding is None and (pattern := _pattern(batch)):
        clue = _undecided(*pattern)  # what lies there is not data
    yield from filter(None, [clue, _unjudged(batch, clue)])
    if (hidden := batch.nan & ~batch.mask).any():
        message = (
            f"{count(int(hidden.sum()), 'cell')} of {int((~batch.mask).sum())} of the padding hold NaN. Packed, nothing"
            " reads them. Padded, the gradients of all weights become NaN, even of a loss over the real steps."
        )
        mask = "pv.real_mask(lengths, x.shape[1])" if batch.batch_first else "pv.real_mask(lengths, x.shape[0]).T"
        mask += ".to(x.device)" * (not batch.x.is_cpu) + "[..., None]" * batch.extra
        fix = f"pack, or clean the padding first: x = x.masked_fill(~{mask}, 0)"
        yield _about(hidden.any(axis=1), "warning", "NaN in the padding", message, fix)


def _unjudged(batch: _Batch, clue: Finding | None) -> Finding | None:
    """What the data do not tell, if they do not, beside the clue that they give."""
    if batch.padding is None:
        return None if clue and clue.level != "info" else _undecided(*_uneven(batch))
    if batch.padding.all() and not batch.mask.all():
        return _undecided("x holds the same everywhere, so its padding looks like data", "pass a batch with data in it")
    square = batch.size == batch.steps > 1
    if batch.mask.all() and batch.steps > 1 and not clue:
        message = f"Every length is T = {batch.steps}, so x has no padding to judge them by. If it does have some, and"
        message += (
            " not zeros, this does not show." + f" Nor does batch_first, because B is {batch.steps}, too." * square
        )
        return Finding("info", "no padding", message, fix="nothing, if every sequence is as long as x")
    if square and not clue and (batch.mask == batch.mask.T).all():
        message = f"B and T are both {batch.steps}, and the lengths fit the padding along either dimension. So x does"
        message += " not show whether batch_first is right."
        return Finding("info", "batch or time", message, fix="nothing, if x is " + batch.order)
    return None


def _undecided(why: str, fix: str) -> Finding:
    message = f"diagnose cannot judge where the sequences lie in x: {why}."
    return Finding("warning", UNDECIDED, message, fix=f"{fix}, with the same lengths")


def _uneven(batch: _Batch) -> tuple[str, str]:
    """Why padding that is not constant may be so, and which tensor to give instead."""
    filled = ~batch.mask & ~batch.nan
    if filled.sum() == 1:
        return "the padding is a single cell, and not zero, so nothing is like it", "pass a batch with more padding"
    if pattern := _pattern(batch):
        return pattern
    cells, b, t = batch.filling
    # How far inside the padding: a convolution reads data before it, and what it puts around x behind it.
    depth = np.minimum(t - batch.n[b], batch.steps - 1 - t)
    other = ~batch.like(*(int(at[depth.argmax()]) for at in (b, t)))[filled]
    inner = depth > depth[other].max(initial=0)
    if batch.x.is_floating_point() and _dropped(cells):
        return f"{_UNEVEN}: numbers in it are zero at random, as after dropout", "pass what went into the dropout"
    if inner.sum() > 1:
        why = "it differs only near its borders, as after a convolution"
        return f"{_UNEVEN}: {why}", "pass what went into the convolution"
    why = "as after an RNN over padded data, attention, or dropout on top of another layer"
    fix = "pass a tensor from before the first layer that mixes steps or drops at random, at best x as it was padded"
    return f"{_UNEVEN}: {why}", fix


def _pattern(batch: _Batch) -> tuple[str, str] | None:
    """Why padding that is not constant may be so, and what to give instead, if its cells show that they are no data."""
    cells, b, t = batch.filling
    if _alike(cells, t):
        why = "it depends on the step alone, as after adding positions"
        return f"{_UNEVEN}: {why}", "pass what the positions were added to"
    if _alike(cells, b):
        why = "each sequence has its own, as after padding with its last step, or normalising each sequence"
        return f"{_UNEVEN}: {why}", "pass what came before that"
    return None


def _alike(cells: Tensor, group: IntArray) -> bool:
    """Whether all cells of a group hold the same, and groups of several cells differ."""
    _, first, which, size = np.unique(group, return_index=True, return_inverse=True, return_counts=True)
    several = cells[first[size > 1]]
    one_each = torch.allclose(cells, cells[first[which]], rtol=1e-6, atol=1e-6)
    return len(several) > 1 and one_each and not torch.allclose(several, several[:1])


def _dropped(cells: Tensor) -> bool:
    """Whether every feature of these cells is zero or one number."""
    big = cells.amax(0).where(cells.amax(0) > 0, cells.amin(0))
    return bool((cells == 0).any()) and bool(torch.isclose(cells, big).logical_or(cells == 0).all())


def _readings(batch: _Batch) -> Iterator[_Reading]:
    """Every other way to read the batch in which all padding holds one value."""
    if batch.padding is not None:
        yield from _ending(batch, batch.padding, None)
        return
    message = "Every sequence lies at the end of its row, behind its padding. Packing takes the first steps of each"
    message += " row."
    fix = f"move the data first: x = pv.align(x, lengths, padding_side='right', batch_first={batch.batch_first})"
    yield from _lying(batch, "left-padded", message, fix, batch.mask[:, ::-1])
    if batch.size == batch.steps:
        message = (
            f"B and T are both {batch.steps}, so torch cannot tell them apart. The padding in x fits these lengths"
            " along the other dimension, and not along this one."
        )
        yield from _lying(batch, "batch and time swapped", message, _turned(batch), batch.mask.T, along=0)
    yield from _ending(batch, batch.zero, None)
    yield from _ending(batch, *batch.value(*batch.commonest_end))


def _lying(batch: _Batch, rule: str, message: str, fix: str, real: BoolArray, along: int = 1) -> Iterator[_Reading]:
    """Sequences that lie elsewhere."""
    same, cell = batch.value(*_last_of(~real))
    if same[~real].all():
        astray = real & ~batch.mask
        message += (
            f" As the lengths are read now, {count(int(astray.sum()), 'cell')} of data lie in the padding, and as many"
            " of padding are packed as data."
        )
        yield _Reading("error", rule, message, fix, astray.any(axis=1), real, same, cell, along)


def _ending(batch: _Batch, same: BoolArray, cell: tuple[int, int] | None) -> Iterator[_Reading]:
    """Sequences that end elsewhere, if this value is the padding: all of them, and only those that are longer."""
    n, steps = batch.n, batch.steps
    last = _ends(same)
    ends = np.where(last > 0, last, n)  # a row of nothing else tells nothing
    for read in (ends, np.maximum(n, ends)):
        late, wrong = read > n, read != n
        if not wrong.any():
            continue
        choices, spread = _choices(batch, n, read, cell), False
        b = int(np.argmax(late if late.any() else wrong))
        at = f"lengths[{b}] is {batch.n[b]}, the data"
        if np.array_equal(np.sort(read), np.sort(n)):
            level, rule, choices = "error", "lengths in another order", min(choices, math.lgamma(len(n) + 1))
            message = f"In another order, these lengths fit the data: {at} end at {read[b]}."
            fix = "give the lengths in the order of x; if you sorted one of the two, sort the other alike"
        elif late.any():
            level, rule, wrong = "warning", "data after the length", late
            lost = int((read - n)[late].sum())
            after = f", and {'padding' if cell else 'zeros'} after them" if (read[late] < steps).any() else ""
            message = (
                f"{count(lost, 'step')} of data in {count(int(late.sum()), 'sequence')}"
                f" {'lies' if lost == 1 else 'lie'} behind the stated length{after}: {at} continue to {read[b]}."
                " Packing leaves these steps out without a word."
            )
            fix = "give the full lengths; if you shorten on purpose, cut x as well"
            spread = batch.x.is_floating_point() and np.array_equal(np.minimum(n + (read - n).max(), steps), read)
            if spread:
                fix += "; if x comes from a convolution, pass what went into it"
        else:
            level, rule = "warning", TOO_LONG
            over = int((n - read).sum())
            ending = f"{'step' if over == 1 else f'{over:,} steps'} of {count(int(wrong.sum()), 'sequence')}"
            message = (
                f"The last {ending} {'looks' if over == 1 else 'look'} like padding:"
                f" {at} end at {read[b]}. If it is padding, the RNN reads it, and h_n is the state after it."
            )
            fix = "nothing, if these are data; else give each sequence's own length"
            fix += ", not the width of x" * bool((n == steps).all())
        real = np.arange(steps) < read[:, None]
        spread = spread and cell is not None
        yield _Reading(level, rule, message, fix, wrong, real, same, cell, choices=choices, spread=spread)


def _choices(batch: _Batch, n: IntArray, read: IntArray, cell: tuple[int, int] | None) -> float:
    """The logarithm of the number of mistakes of this kind: to give these lengths where data end as they are read."""
    wrong, other = read != n, max(batch.steps - 1, 1)
    choices = math.comb(len(n), many := int(wrong.sum())) * other**many
    if many and np.array_equal(np.clip(read + (n - read)[wrong][0], 1, batch.steps), n):
        choices = other  # all are off by the same, as far as may be
    return math.log(choices) + (math.log(len(n)) if cell else 0)  # so many values might have been taken for the padding


# What the shapes, the packed batch, the last step and the state say.


def _widths(batch: _Batch) -> Iterator[Finding]:
    longest = int(batch.n.max())
    if not 0 < longest < batch.steps:
        return
    workers = torch.distributed.is_available() and torch.distributed.is_initialized()
    several = torch.distributed.get_world_size() if workers else 1
    message = f"The longest sequence has {longest} steps, x has {batch.steps}. pad_packed_sequence gives {longest}."
    if several > 1:
        message += f" There are {several} workers, and each gets the width of its own longest sequence: putting their"
        message += " outputs together fails."
    first = "batch_first=True, " * batch.batch_first
    fix = f"pad_packed_sequence(packed, {first}total_length=x.shape[{1 if batch.batch_first else 0}])"
    yield Finding("warning" if several > 1 else "info", "narrower when unpacked", message, fix=fix)


def _order(batch: _Batch, packed: Packed) -> Iterator[Finding]:
    """Whether the rows of a packed batch come back in the order of the lengths."""
    try:
        layout = Layout.from_packed(packed)
    except ValueError as error:
        yield Finding("error", "broken packed sequence", f"{error}.", fix="pack again, from x and its lengths")
        return
    size = layout.batch_size
    sort, back = (
        None if index is None else np.asarray(index.cpu())
        for index in (packed.sorted_indices, getattr(packed, "unsorted_indices", None))
    )
    if (sort is None) != (back is None) or (back is not None and not np.array_equal(back, layout.unsorted_indices)):
        message = (
            f"sorted_indices is {_shown(sort)} and unsorted_indices {_shown(back)}; one must undo the other. The RNN"
            " sorts h_0 by the first and unpacking restores by the second: states and outputs belong to different"
            " sequences."
        )
        fix = "packed._replace(data=data) keeps both; building one by hand, pass sorted_indices and leave the other out"
        yield Finding("error", "contradicting indices", message, fix=fix)
        return
    if size != batch.size or not np.array_equal(np.sort(layout.lengths), np.sort(batch.n)):
        message = f"packed holds lengths {numbers(layout.lengths)}, which are not those given, {numbers(batch.n)}."
        yield Finding("error", "another batch", message, fix="pass the packed sequence that was made of this x")
        return
    came = _came(batch, layout, packed.data)
    wrong = layout.lengths != batch.n if came is None else came != np.arange(size)
    if not wrong.any():
        return
    i = int(np.argmax(wrong))
    if came is None:
        what = f"row {i} will have {count(int(layout.lengths[i]), 'step')}, while lengths[{i}] is {batch.n[i]}"
    else:
        what = f"row {i} will be sequence {sequence_name(int(came[i]))}, not {sequence_name(i)}"
    message = (
        f"Unpacked, {what}: packed holds {'no indices' if back is None else 'other indices'} to restore your order."
        " Outputs and h_n then meet the labels of other sequences, without an error."
    )
    fix = (
        "put new data into a packed sequence with packed._replace(data=data), and let enforce_sorted=False sort; if you"
        " have sorted x yourself, put output and h_n back with the inverse of your sort"
    )
    yield _about(wrong, "warning", "order lost", message, fix)


def _came(batch: _Batch, layout: Layout, data: Tensor) -> IntArray | None:
    """`(B,)` the sequence of x in each row of the unpacked batch; none if the packed data are not those of x."""
    if data.dtype != batch.x.dtype or data.numel() != layout.n_valid * batch.x.shape[2] or data.is_meta:
        return None
    rows = data.flatten(1) if data.ndim > 1 else data.unsqueeze(1)
    theirs, ours = (v.detach().contiguous().view(torch.uint8).cpu().numpy() for v in (rows, batch.x))
    named: dict[bytes, list[int]] = {}
    for b, n in enumerate(batch.n.tolist()):
        named.setdefault(ours[b, :n].tobytes(), []).append(b)
    came = []
    for i, index in enumerate(layout.packed_index):
        candidates = named.get(theirs[index[index >= 0]].tobytes())
        if candidates is None:
            return None
        came.append(i if i in candidates else candidates[0])
    return np.array(came)


def _last(batch: _Batch, last: Tensor) -> Iterator[Finding]:
    if not isinstance(last, Tensor) or last.numel() != batch.size * batch.x.shape[2]:
        got = f"shape {tuple(last.shape)}" if isinstance(last, Tensor) else type(last).__name__
        raise ValueError(f"last must hold one step of x for each of {batch.size} sequences, got {got}")
    taken = last.detach().reshape(batch.size, -1).to(batch.x)
    n = torch.tensor(np.clip(batch.n, 1, batch.steps), device=batch.x.device)
    right = batch.x[torch.arange(batch.size, device=n.device), n - 1]
    wrong = ((taken == batch.x[:, -1]).all(-1) & (taken != right).any(-1)).cpu().numpy()
    if wrong.any():
        b = int(np.argmax(wrong))
        at = "x[:, -1]" if batch.batch_first else "x[-1]"
        message = (
            f"What was taken of {count(int(wrong.sum()), 'sequence')} is {at}, step {batch.steps - 1}, which is"
            f" padding: sequence {sequence_name(b)} ends with step {batch.n[b] - 1}."
        )
        fix = "use h_n of the packed run; or gather step lengths - 1 of each sequence"
        yield _about(wrong, "error", "read at the padding", message, fix)


def _states(batch: _Batch, hx: Any) -> Iterator[Finding]:
    for name, state in zip(("h_0", "c_0"), hx if isinstance(hx, (tuple, list)) else (hx,), strict=False):
        if not isinstance(state, Tensor) or state.ndim != 3:
            got = f"shape {tuple(state.shape)}" if isinstance(state, Tensor) else type(state).__name__
            raise ValueError(f"hx must be (L·D, B, H), or a pair of them, got {got}")
        rows = state.shape[1]
        if rows == batch.size:
            continue
        message = f"{name} of shape {tuple(state.shape)} is read as (L·D, B, H), so it has {count(rows, 'row')} for"
        message += f" {count(batch.size, 'sequence')}."
        fix = "give one row per sequence"
        if rows > batch.size:
            message += " With enforce_sorted=False torch takes the first and drops the rest without a word."
            fix = f"{name}[:, :{batch.size}], if its first rows are those of this batch"
        if state.shape[0] == batch.size:
            fix = f"{name}.transpose(0, 1): states are never batch first, whatever batch_first says"
        yield Finding("error", "rows of the state", message, fix=fix)


# Counting and naming.


def _last_of(cells: BoolArray) -> tuple[int, int]:
    return divmod(int(np.flatnonzero(cells)[-1]), int(cells.shape[1]))


def _ends(blank: BoolArray) -> IntArray:
    """`(B,)` one more than the last step that is not blank."""
    filled = ~blank[:, ::-1]
    return np.where(filled.any(axis=1), blank.shape[1] - filled.argmax(axis=1), 0)


def _turned(batch: _Batch) -> str:
    return f"pass batch_first={not batch.batch_first}, or transpose x"


def _about(which: BoolArray | np.bool_, level: str, rule: str, message: str, fix: str) -> Finding:
    """Returns a finding about some sequences, which it names by their letters and numbers."""
    rows = np.flatnonzero(which).tolist()
    more = f" and {len(rows) - 8} more" if len(rows) > 8 else ""
    where = f"sequence{'s' * (len(rows) > 1)} {', '.join(map(sequence_name, rows[:8]))}{more}"
    return Finding(level, rule, message, where, fix, tuple(rows))


def _shown(index: IntArray | None) -> str:
    return "None" if index is None else numbers(index)
