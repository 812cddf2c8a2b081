"""`diagnose`: the mistakes with packed sequences that torch does not mention, found by what the data show."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from packviz.check.findings import Finding, Findings
from packviz.core.layout import BoolArray, IntArray, Layout, Packed, sequence_name
from packviz.core.padded import Padded, order
from packviz.draw.text import count, numbers

CHANCE = 1e-4
"""A pattern in the data is evidence if it is less likely than this to come about by chance."""

AGAIN = 0.7
"""Where no two other steps of the data are alike: how likely, at most, one value shall be to come twice running."""


def diagnose(
    x: Tensor,
    lengths: Any,
    batch_first: bool = False,
    packed: Packed | None = None,
    *,
    last: Tensor | None = None,
    hx: Any = None,
) -> Findings:
    """Looks for the traps of packing: what torch takes without a word, and what it will refuse.

    A finding needs evidence in what was given. Where two readings explain the data equally well there is none: a batch
    and its transpose with `B = T`, sorted lengths 3, 2, 1 and zeros as padding, say. So nothing found is no proof.

    Padding is known by its value: cells behind the lengths that all hold the same vector, zeros or not. Looking for it
    waits for the device a few times, so this is for a look at some batches and not for a training loop.

    Args:
        x: `(T, B, …)`, or `(B, T, …)` with `batch_first`: what was, or will be, packed. Any dtype, any device.
        lengths: `(B,)` as they were, or will be, given to `pack_padded_sequence`: a list, an array or a tensor.
        batch_first: as given to `pack_padded_sequence`.
        packed: the `PackedSequence` that was made of them (or of an RNN's result), to see whether its rows come back
            in the order of `lengths`.
        last: `(B, …)` what was taken from `x` as the last step of each sequence, such as `x[:, -1]`.
        hx: the initial state, `(L·D, B, H)` or a pair of them, as given to the RNN along with the packed batch.

    Returns:
        The findings, gravest first. `"error"`: torch will refuse it, or the result is wrong. `"warning"`: very likely
        wrong. `"info"`: right, but it surprises many.

    Raises:
        TypeError: `x` is not a dense tensor, or `packed` is not a packed sequence.
        ValueError: `x` has no time and batch dimension, the lengths are not a list of numbers, or `last` does not fit.
    """
    batch = _Batch(x, lengths, batch_first)
    found = [*_lengths_alone(batch)]
    if batch.readable:
        found += _counts(batch)
        if batch.fits:
            found += [*_data(batch), *_widths(batch)]
            if packed is not None:
                found += _order(batch, packed)
            if last is not None:
                found += _last(batch, last)
    if hx is not None:
        found += _states(batch, hx)
    return Findings(f"x of shape {tuple(x.shape)}, read as {batch.order}", tuple(found))


class _Batch:
    """What was given, batch first, with lengths as torch will read them."""

    def __init__(self, x: Tensor, lengths: Any, batch_first: bool) -> None:
        self.order = order(batch_first)
        self.batch_first = batch_first
        if not isinstance(x, Tensor):
            hint = "; pass it as packed=…, and as x the padded batch" if hasattr(x, "batch_sizes") else ""
            raise TypeError(f"x is a {type(x).__name__}; give the padded batch as a tensor {self.order}{hint}")
        if x.is_nested or x.layout != torch.strided:
            raise TypeError(
                "x is a sparse or nested tensor; give the padded batch as a dense one: x.to_dense(), or"
                " torch.nested.to_padded_tensor(x, 0.0)"
            )
        if x.ndim < 2:
            raise ValueError(f"x must be {self.order}, got shape {tuple(x.shape)}")
        self.size, self.steps, _ = Padded.of(x.shape, batch_first)
        x = x.detach() if batch_first else x.detach().transpose(0, 1)
        self.x = x.flatten(2) if x.ndim > 2 else x.unsqueeze(2)
        try:
            given = lengths.detach() if isinstance(lengths, Tensor) else torch.tensor(np.array(lengths))
        except (TypeError, ValueError, RuntimeError):
            raise ValueError(f"lengths must be a list or a tensor of numbers, got {lengths!r}") from None
        if given.ndim != 1 or given.dtype == torch.bool or given.is_complex():
            raise ValueError(
                f"lengths must hold one number per sequence, got {given.dtype} of shape {tuple(given.shape)}"
            )
        self.device = given.device
        self.readable = not given.is_meta
        self.given: npt.NDArray[Any] = np.zeros(0) if given.is_meta else given.cpu().double().numpy()
        self.readable &= bool(np.isfinite(self.given).all())

    @cached_property
    def n(self) -> IntArray:
        """`(B,)` the lengths as torch reads them: cut off behind the point."""
        cut: IntArray = np.trunc(self.given).astype(np.int64)
        return cut

    @property
    def fits(self) -> bool:
        """Whether every sequence of x has its length, so that data and lengths can be held against each other."""
        return len(self.n) == self.size and self.size > 0 and self.steps > 0

    @cached_property
    def mask(self) -> BoolArray:
        """`(B, T)` true where a cell is real by the lengths."""
        return np.arange(self.steps) < self.n[:, None]

    def like(self, b: int, t: int) -> BoolArray:
        """`(B, T)` true where a cell holds what cell `(b, t)` holds."""
        if self.nan[b, t]:
            return self.nan
        return self._where(lambda x: (x == x[b, t]).all(-1))

    @cached_property
    def zero(self) -> BoolArray:
        """`(B, T)` true where a cell is zero."""
        return self._where(lambda x: (x == 0).all(-1))

    @cached_property
    def nan(self) -> BoolArray:
        """`(B, T)` true where a cell holds a NaN."""
        return self._where(lambda x: x.isnan().any(-1))

    def differs(self, cells: BoolArray) -> bool:
        """Whether no two of these cells hold the same."""
        rows = self.x[torch.tensor(cells, device=self.x.device)].view(torch.uint8).cpu().numpy()
        return len(np.unique(rows, axis=0)) == len(rows)

    def _where(self, test: Callable[[Tensor], Tensor]) -> BoolArray:
        if self.x.is_meta:  # no values, no evidence
            return np.zeros((self.size, self.steps), dtype=bool)
        found: BoolArray = test(self.x).cpu().numpy()
        return found


# What the lengths alone say.


def _lengths_alone(batch: _Batch) -> Iterator[Finding]:
    if batch.device.type != "cpu":
        said = f"lengths are on {batch.device}. torch reads them on the CPU, to plan the steps, and refuses others."
        fix = "pass lengths.cpu(), or better, never move them: x alone goes to the device"
        yield Finding("error", "lengths not on the CPU", said, fix=fix)
    finite = np.isfinite(batch.given)
    said = ". torch makes a whole number of it, which says nothing of the sequence."
    fix = "count the steps again: a share is NaN or infinite where it was divided by 0"
    yield from _entries(batch, ~finite, "no number", said, fix)
    said = (
        ". torch cuts off what is behind the point, without a word: 3.9 becomes 3, and every share times T that falls"
        " short by rounding loses a step."
    )
    fix = "round first, as in (share * T).round().long()"
    yield from _entries(batch, finite & (batch.given != np.trunc(batch.given)), "fractional length", said, fix)


def _entries(batch: _Batch, wrong: BoolArray, rule: str, said: str, fix: str) -> Iterator[Finding]:
    """An error, if any of the lengths are wrong; what is `said` goes on behind the first of them."""
    if wrong.any():
        more = f" (and {wrong.sum() - 1} more)" if wrong.sum() > 1 else ""
        b = int(np.argmax(wrong))
        yield Finding("error", rule, f"lengths[{b}] is {batch.given[b]:g}{more}{said}", _names(wrong), fix)


def _counts(batch: _Batch) -> Iterator[Finding]:
    n, size, steps = batch.n, batch.size, batch.steps
    if len(n) != size:
        said = f"lengths has {count(len(n), 'entry', 'entries')}, but x, read as {batch.order}, has B = {size}"
        if len(n) == steps:
            said = f"{said} and T = {steps}. {_uncounted(batch)}"
            yield Finding("error", "batch and time swapped", said, fix=_turned(batch))
            return  # the other lengths are counted along the wrong dimension
        fix = "give one length for each sequence, in the order of x"
        yield Finding("error", "wrong count", f"{said}. {_uncounted(batch)}", fix=fix)
    fix = "drop these rows before packing, and put zeros back for them afterwards"
    yield from _entries(batch, n < 1, "empty sequence", ". torch packs no empty sequence.", fix)
    said = (
        f", but x, read as {batch.order}, has T = {steps}. torch packs it all the same:"
        f" {np.minimum(n, steps).sum()} rows of data where the lengths say {n.sum()}. The error comes later, from the"
        " RNN or from unpacking, and names neither."
    )
    fix = "give the lengths of this x: were they taken before it was cut, or with added start and end marks?"
    yield from _entries(batch, n > steps, "longer than x", said, fix)


def _uncounted(batch: _Batch) -> str:
    """What torch does with so many lengths."""
    missing = batch.size - len(batch.n)
    if missing > 0 and (batch.n <= batch.steps).all():
        return f"With enforce_sorted=False torch drops {count(missing, 'sequence')} without a word."
    return "With enforce_sorted=False torch complains about an index, or later about a shape, and does not say why."


# What the data say.


@dataclass(frozen=True)
class _Reading:
    """Another way to read the batch."""

    rule: str
    real: BoolArray
    """`(B, T)` where the data lie, read like this."""
    along: int
    """The axis of time."""
    said: str
    fix: str


def _data(batch: _Batch) -> Iterator[Finding]:
    """Where the cells that hold one and the same value lie, against where the lengths put the padding."""
    padding = ~batch.mask
    if padding.any() and not batch.like(*_last_of(padding))[padding].all():
        other = next((r for r in _readings(batch) if _is_evident(batch, r)), None)
        if other is not None:
            astray = padding & other.real
            said = (
                f"{other.said} As the lengths are read now, {count(int(astray.sum()), 'cell')} of data lie in the"
                " padding, and as many of padding are packed as data."
            )
            yield Finding("error", other.rule, said, _names(astray.any(axis=1)), other.fix)
            return
        yield from _cut_off(batch)
    else:
        yield from _zeros_inside(batch)
    if (hidden := batch.nan & padding).any():
        said = (
            f"{count(int(hidden.sum()), 'cell')} of {int(padding.sum())} of the padding hold NaN. Packed, nothing reads"
            " them. Padded, the gradients of all weights become NaN, even of a loss over the real steps."
        )
        fix = "pack, or clean the padding first: x = x.masked_fill(~mask, 0)"
        yield Finding("warning", "NaN in the padding", said, _names(hidden.any(axis=1)), fix)


def _readings(batch: _Batch) -> Iterator[_Reading]:
    n, steps = np.clip(batch.n, 0, batch.steps), batch.steps
    yield _Reading(
        "right-aligned",
        np.arange(steps) >= steps - n[:, None],
        1,
        "Every sequence lies at the end of its row, behind its padding. Packing takes the first steps of each row.",
        "move the data first: pv.align(x, lengths, to='left', batch_first=…)",
    )
    if batch.size == steps:
        yield _Reading(
            "batch and time swapped",
            batch.mask.T,
            0,
            f"B and T are both {steps}, so torch cannot tell them apart. The padding in x fits these lengths along the"
            " other dimension, and not along this one.",
            _turned(batch),
        )


def _is_evident(batch: _Batch, reading: _Reading) -> bool:
    """Whether everything this reading calls padding holds one value, and too much of it to be chance."""
    padding = ~reading.real
    if not padding.any():
        return False
    cell = _last_of(padding)
    same = batch.like(*cell)
    if not same[padding].all():
        return False
    surprising = padding & batch.mask  # data, as the batch is read now
    if not batch.zero[cell]:
        surprising[cell] = False  # its value was taken from there
    same, data, surprising = (a if reading.along else a.T for a in (same, reading.real, surprising))
    rows, cells = int(surprising.any(axis=1).sum()), int(surprising.sum())
    # How often this value stands in the data, and how often another one follows it: never 0, for want of seeing.
    inside = same & data
    follows, after = int((inside[:, 1:] & inside[:, :-1]).sum()), int((inside[:, :-1] & data[:, 1:]).sum())
    once, again = (int(inside.sum()) + 1) / (int(data.sum()) + 2), (follows + 1) / (after + 2)
    return rows > 0 and once**rows * again ** (cells - rows) < CHANCE


def _cut_off(batch: _Batch) -> Iterator[Finding]:
    """Data after the stated length, and padding after that."""
    n, steps = batch.n, batch.steps
    shortest = int(np.argmin(n))
    for source in (None, shortest):
        blank = batch.zero if source is None else batch.like(source, steps - 1)
        ends = _ends(blank)
        late = ends > n
        rows = int((ends < steps).sum()) - (source is not None)  # the value was taken from one of them
        if late.any() and _chance(batch, blank, ends, rows, int((steps - ends).sum())) < CHANCE:
            b = int(np.argmax(late))
            said = (
                f"{count(int((ends - n)[late].sum()), 'step')} of data in {count(int(late.sum()), 'sequence')} lie"
                f" behind the stated length, and {'zeros' if source is None else 'padding'} after them: lengths[{b}] is"
                f" {n[b]}, the data go on to {ends[b]}. Packing leaves these steps out without a word."
            )
            fix = "give the full lengths; if you shorten on purpose, cut x as well"
            yield Finding("warning", "data after the length", said, _names(late), fix)
            return


def _zeros_inside(batch: _Batch) -> Iterator[Finding]:
    """What looks like padding, at the end of the stated length."""
    padding = ~batch.mask
    blank = batch.like(*_last_of(padding)) if padding.any() else batch.zero
    n = np.clip(batch.n, 0, batch.steps)
    ends = np.minimum(_ends(blank), n)
    short = (ends < n) & (ends > 0)
    if not short.any() or _chance(batch, blank, ends, int(short.sum()), int((n - ends).sum())) >= CHANCE:
        return
    # The same number in every sequence may be an end mark that is written like the padding.
    extra = (n - ends)[short]
    marks = bool((n - ends == extra[0]).all())
    b = int(np.argmax(short))
    said = (
        f"The last {count(int(extra.sum()), 'step')} of {count(int(short.sum()), 'sequence')} look like padding, a"
        f" value that the data hold nowhere else: lengths[{b}] is {n[b]}, the data end at {ends[b]}. If it is padding,"
        " the RNN reads it, and h_n is the state after it."
    )
    fix = f"nothing, if these are {'end marks' if marks else 'data'}; else give each sequence's own length"
    fix += ", not the width of x" * bool((n == batch.steps).all())
    yield Finding("info" if marks else "warning", "padding inside the length", said, _names(short), fix)


# What the shapes, the packed batch, the last step and the state say.


def _widths(batch: _Batch) -> Iterator[Finding]:
    longest = int(batch.n.max())
    if not 0 < longest < batch.steps:
        return
    workers = torch.distributed.is_available() and torch.distributed.is_initialized()
    several = torch.distributed.get_world_size() if workers else 1
    said = f"The longest sequence has {longest} steps, x has {batch.steps}. pad_packed_sequence gives {longest}."
    if several > 1:
        said += f" There are {several} workers, and each gets the width of its own longest sequence: putting their"
        said += " outputs together fails."
    fix = f"pad_packed_sequence(…, total_length=x.shape[{1 if batch.batch_first else 0}])"
    yield Finding("warning" if several > 1 else "info", "narrower when unpacked", said, fix=fix)


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
        said = (
            f"sorted_indices is {_said(sort)} and unsorted_indices {_said(back)}; one must undo the other. The RNN"
            " sorts h_0 by the first and unpacking restores by the second: states and outputs belong to different"
            " sequences."
        )
        fix = "packed._replace(data=…) keeps both; building one by hand, pass sorted_indices and leave the other out"
        yield Finding("error", "contradicting indices", said, fix=fix)
        return
    if size != batch.size or not np.array_equal(np.sort(layout.lengths), np.sort(batch.n)):
        said = f"packed holds lengths {numbers(layout.lengths)}, which are not those given, {numbers(batch.n)}."
        yield Finding("error", "another batch", said, fix="pass the packed sequence that was made of this x")
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
    said = (
        f"Unpacked, {what}: packed holds {'no indices' if back is None else 'other indices'} to restore your order."
        " Outputs and h_n then meet the labels of other sequences, without an error."
    )
    fix = (
        "put new data into a packed sequence with packed._replace(data=…), and let enforce_sorted=False sort; if you"
        " have sorted x yourself, put output and h_n back with the inverse of your sort"
    )
    yield Finding("warning", "order lost", said, _names(wrong), fix)


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
        said = (
            f"What was taken of {count(int(wrong.sum()), 'sequence')} is {at}, step {batch.steps - 1}, which is"
            f" padding: sequence {sequence_name(b)} ends with step {batch.n[b] - 1}."
        )
        fix = "use h_n of the packed run; or gather step lengths - 1 of each sequence"
        yield Finding("error", "read at the padding", said, _names(wrong), fix)


def _states(batch: _Batch, hx: Any) -> Iterator[Finding]:
    for name, state in zip(("h_0", "c_0"), hx if isinstance(hx, (tuple, list)) else (hx,), strict=False):
        if not isinstance(state, Tensor) or state.ndim != 3:
            got = f"shape {tuple(state.shape)}" if isinstance(state, Tensor) else type(state).__name__
            raise ValueError(f"hx must be (L·D, B, H), or a pair of them, got {got}")
        rows = state.shape[1]
        if rows == batch.size:
            continue
        said = f"{name} of shape {tuple(state.shape)} is read as (L·D, B, H), so it has {count(rows, 'row')} for"
        said += f" {count(batch.size, 'sequence')}."
        fix = "give one row per sequence"
        if rows > batch.size:
            said += " With enforce_sorted=False torch takes the first and drops the rest without a word."
            fix = f"{name}[:, :{batch.size}], if its first rows are those of this batch"
        if state.shape[0] == batch.size:
            fix = f"{name}.transpose(0, 1): states are never batch first, whatever batch_first says"
        yield Finding("error", "rows of the state", said, fix=fix)


# Counting, naming, and how likely it is that all this is chance.


def _last_of(cells: BoolArray) -> tuple[int, int]:
    b, t = np.argwhere(cells)[-1].tolist()
    return b, t


def _ends(blank: BoolArray) -> IntArray:
    """`(B,)` one more than the last step that is not blank."""
    filled = ~blank[:, ::-1]
    return np.where(filled.any(axis=1), blank.shape[1] - filled.argmax(axis=1), 0)


def _chance(batch: _Batch, blank: BoolArray, ends: IntArray, rows: int, blanks: int) -> float:
    """How likely it is, at most, that so many rows end in a value which their data hold nowhere else.

    Were it data, each cell might hold it with some probability q: so many ends of rows do, and no other cell. This is
    the largest value that binom(B, rows) · q^rows · (1 - q)^cells takes for any q: for the q that suits it best.

    Of each run only the first cell counts: data may fall silent. Where that is not enough, and no two other steps of
    the data are alike, each further cell counts as well, with the probability `AGAIN`.
    """
    cells = int(ends.sum())
    data = np.arange(blank.shape[1]) < ends[:, None]
    if rows < 1 or (blank & data).any():
        return 1.0
    q = rows / (rows + cells)
    chance = math.comb(len(ends), rows) * q**rows * (1 - q) ** cells
    further = chance * AGAIN ** (blanks - rows)
    return further if further < CHANCE <= chance and ends.all() and batch.differs(data) else chance


def _turned(batch: _Batch) -> str:
    return f"pass batch_first={not batch.batch_first}, or transpose x"


def _names(which: BoolArray | np.bool_) -> str:
    """The sequences, by their letters."""
    rows = np.flatnonzero(which).tolist()
    letters = [sequence_name(b) for b in rows[:8]]
    more = f" and {len(rows) - 8} more" if len(rows) > 8 else ""
    return f"sequence{'s' * (len(rows) > 1)} {', '.join(letters)}{more}"


def _said(index: IntArray | None) -> str:
    return "None" if index is None else numbers(index)
