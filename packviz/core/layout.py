"""Describes the layout of a ragged batch: everything that follows from its lengths alone.

A batch of variable-length sequences is fully described by the length of each sequence. `Layout`
stores the lengths, and derives from them the mask, the sort order, the batch sizes and the place of
every cell in the packed data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from packviz.core.padded import Padded, reading
from packviz.core.validation import (
    kind_of,
    require_dense,
    require_none,
    require_values,
    require_whole,
)

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
_Array = TypeVar("_Array", bound=npt.NDArray[Any])

MOST_STEPS = 10_000_000
"""The largest number of time steps in a `Layout`. A larger number needs huge arrays, and is probably a typo."""


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Layout:
    """The place of every cell of a ragged batch, in both the padded and the packed data.

    `B` is the number of sequences, `T` the padded number of time steps, and `N` the number of real
    (valid) cells.

    Attributes:
        lengths: `(B,)` the length of each sequence in time steps, in the caller's order.
        max_len: `T`, the padded length in time steps, which is at least `max(lengths)`.
        sorted_indices: `(B,)` the packing order: the caller's index of each sequence, longest
            sequence first.

    The arrays are read-only. Two layouts are equal if their `lengths`, `max_len` and
    `sorted_indices` are equal.

    Examples:
        >>> import packviz as pv
        >>> layout = pv.Layout([5, 3, 2])
        >>> layout.batch_sizes.tolist()  # number of sequences that are still running at each time step
        [3, 3, 2, 1, 1]
        >>> layout.n_padding, layout.n_cells
        (5, 15)
    """

    lengths: IntArray
    max_len: int
    sorted_indices: IntArray

    def __init__(
        self, lengths: Any, max_len: int | None = None, *, sorted_indices: Any = None
    ) -> None:
        """Describes a batch with these lengths.

        Args:
            lengths: `(B,)` whole numbers of at least 0: a list, an array, a tensor on any device,
                or anything that NumPy can turn into an array, such as a pandas Series. Floats are
                allowed if they are whole. If you pass a `Layout`, its `max_len` and
                `sorted_indices` become the defaults of the other arguments.
            max_len: `T`, the padded length in time steps. Defaults to `max(lengths)`.
            sorted_indices: `(B,)` the order of packing, longest first. By default, the sort is
                stable, so sequences of equal length keep their order. (torch's own sort is not
                stable. To use torch's order, pass a `PackedSequence` to `from_packed`.)

        Raises:
            ValueError: `lengths` is empty, is not one-dimensional, or is on the meta device; a
                length is not a whole number of at least 0, or exceeds `max_len` or `MOST_STEPS`;
                `max_len` is not a whole number, or exceeds `MOST_STEPS`; or `sorted_indices` is not
                a permutation that puts longer sequences first.
            TypeError: the lengths are a nested or sparse tensor.
        """
        if isinstance(lengths, Layout):
            max_len = lengths.max_len if max_len is None else max_len
            sorted_indices = lengths.sorted_indices if sorted_indices is None else sorted_indices
        n = read_lengths(lengths)
        require_none(n, n < 0, "lengths", "a sequence has at least 0 time steps")
        require_none(
            n, n > MOST_STEPS, "lengths", f"a Layout has at most {MOST_STEPS:,} time steps"
        )
        longest = int(n.max())
        if max_len is None:
            max_len = longest
        elif isinstance(max_len, bool) or not isinstance(max_len, (int, np.integer)):
            raise ValueError(
                f"max_len is {max_len!r}; give a whole number of time steps, or leave it out"
            )
        elif max_len > MOST_STEPS:
            raise ValueError(
                f"max_len is {max_len}: a Layout has at most {MOST_STEPS:,} time steps"
            )
        require_none(
            n,
            n > max_len,
            "lengths",
            f"longer than max_len={max_len}; shorten it, or raise max_len",
        )

        if sorted_indices is None:
            order = np.argsort(-n, kind="stable")
        else:
            order = _order(
                sorted_indices,
                n.size,
                "sorted_indices",
                "give one index per sequence, longest first",
            )
            rising = np.flatnonzero(np.diff(n[order]) > 0)
            if rising.size:
                i = int(rising[0])
                raise ValueError(
                    f"sorted_indices must put longer sequences first, but entry {i} names sequence {order[i]} of length"
                    f" {n[order[i]]} and the next one sequence {order[i + 1]} of length {n[order[i + 1]]}"
                )
        for name, value in (("lengths", n), ("max_len", int(max_len)), ("sorted_indices", order)):
            object.__setattr__(
                self, name, frozen(value) if isinstance(value, np.ndarray) else value
            )

    @classmethod
    def from_packed(cls, packed: Any) -> Layout:
        """Reads the layout of a `PackedSequence`, even a hand-built one, and keeps its order.

        Args:
            packed: an object with the attributes `data`, `batch_sizes` and `sorted_indices` of
                torch's `PackedSequence`. If `sorted_indices` is `None`, because the caller has
                sorted the sequences or built the object by hand, the order is 0, 1, 2, ….

        Raises:
            TypeError: `packed` is not a packed sequence.
            ValueError: `batch_sizes` contains a number less than 1, increases at some step, or does
                not add up to the number of rows of `data`; or `sorted_indices` is not a
                permutation.
        """
        missing = [
            name for name in ("data", "batch_sizes", "sorted_indices") if not hasattr(packed, name)
        ]
        if missing:
            raise TypeError(
                f"packed has no {missing[0]!r}: give a torch PackedSequence, not {type(packed).__name__}"
                " (for plain lengths call Layout(lengths))"
            )
        sizes = _whole_numbers(
            packed.batch_sizes, "packed.batch_sizes", "give one size per time step"
        )
        require_none(
            sizes, sizes < 1, "packed.batch_sizes", "every time step needs at least one sequence"
        )
        growing = np.flatnonzero(np.diff(sizes) > 0)
        if growing.size:
            t = int(growing[0])
            raise ValueError(
                f"packed.batch_sizes must never grow, but is {sizes[t]} at time step {t} and {sizes[t + 1]} at the next"
            )
        rows = len(packed.data)
        if rows != sizes.sum():
            raise ValueError(
                f"packed.batch_sizes adds up to {sizes.sum()} but packed.data has {rows} rows"
            )
        by_rank = np.searchsorted(
            -sizes, -np.arange(sizes[0])
        )  # number of steps with more sequences than this rank
        if packed.sorted_indices is None:
            return cls(by_rank, sorted_indices=np.arange(by_rank.size))
        order = _order(
            packed.sorted_indices,
            by_rank.size,
            "packed.sorted_indices",
            "give one index per sequence",
        )
        return cls(by_rank[np.argsort(order)], sorted_indices=order)

    @classmethod
    def from_padded(
        cls, shape: Sequence[int], lengths: Any, batch_first: bool | None = None
    ) -> Layout:
        """Describes a padded batch with this shape and these lengths.

        Args:
            shape: the shape of the batch, `(T, B, …)`, or `(B, T, …)` with `batch_first`.
            lengths: `(B,)` the lengths of the sequences, as in `Layout`.
            batch_first: whether the batch is the first dimension. Defaults to False, as in torch,
                with a warning if `B` equals `T`.

        Raises:
            ValueError: the lengths are not valid, or do not fit the shape.
        """
        layout = cls(lengths)
        steps = Padded.fitting(layout.batch_size, shape, batch_first).steps
        if layout.lengths.max() > steps:
            b = int(np.argmax(layout.lengths > steps))
            raise ValueError(
                f"lengths[{b}] is {layout.lengths[b]}, but {reading(shape, batch_first)}, has T = {steps}"
            )
        return cls(layout, max_len=int(steps))

    @classmethod
    def from_mask(cls, mask: Any) -> Layout:
        """Reads the layout from a mask.

        Args:
            mask: `(B, T)` booleans (or 0 and 1), True at real cells, which must come first in every
                row.

        Raises:
            ValueError: the mask is not two-dimensional, contains other values, or has no real cell;
                or a row has padding before a real cell.
        """
        try:
            m = host_array(mask)
        except ValueError:  # NumPy raises this error for rows of unequal length
            raise ValueError(
                "mask must be two-dimensional (batch, time step), got rows of unequal length"
            ) from None
        if m.ndim != 2 or m.size == 0:
            raise ValueError(
                f"mask must be two-dimensional (batch, time step) and not empty, got shape {m.shape}"
            )
        if m.dtype != np.bool_:
            if not np.isin(m, (0, 1)).all():
                raise ValueError(
                    "mask must contain only True and False (or 1 and 0): True where a cell is real"
                )
            m = m.astype(bool)
        lengths = m.sum(axis=1)
        if not lengths.any():
            raise ValueError("mask has no real cell; if the mask is True at padding, pass ~mask")
        holes = np.flatnonzero((m != (np.arange(m.shape[1]) < lengths[:, None])).any(axis=1))
        if holes.size:
            b = int(holes[0])
            raise ValueError(
                f"mask row {b} has padding at time step {int(np.argmin(m[b]))} before real cells; if the mask is True"
                " at padding, pass ~mask; otherwise move the padding to the right first:"
                " pv.align(x, mask, padding_side='right', batch_first=…)"
            )
        return cls(lengths, max_len=m.shape[1])

    @classmethod
    def from_offsets(cls, offsets: Any) -> Layout:
        """Reads the layout of flat rows, in which the sequences follow one another.

        Args:
            offsets: `(B + 1,)` the flat row at which each sequence begins, followed by the number
                of rows. The `offsets()` method of a jagged tensor returns these numbers, and
                attention kernels call them `cu_seqlens`.

        Raises:
            ValueError: `offsets` contains a number that is not whole, does not begin with 0, has
                only one entry, or decreases from one entry to the next.
        """
        starts = _whole_numbers(
            offsets, "offsets", "give the row at which each sequence begins, and the row count"
        )
        if starts[0] != 0 or starts.size == 1:
            raise ValueError(
                f"offsets must begin with 0 and end with the number of rows, got {_some(starts)}; from lengths, compute"
                " Layout(lengths).starts"
            )
        lengths = np.diff(starts)
        if (lengths < 0).any():
            b = int(np.argmax(lengths < 0))
            raise ValueError(
                f"offsets must not decrease, but go from {starts[b]} to {starts[b + 1]} at entry {b + 1}"
            )
        return cls(lengths)

    @property
    def batch_size(self) -> int:
        """`B`, the number of sequences."""
        return int(self.lengths.size)

    @property
    def n_real(self) -> int:
        """`N`, the number of real cells, which is also the number of rows of the packed data."""
        return int(self.lengths.sum())

    @property
    def n_cells(self) -> int:
        """`B · T`, the number of cells of the padded batch."""
        return self.batch_size * self.max_len

    @property
    def n_padding(self) -> int:
        """The number of padding cells: `n_cells - n_real`."""
        return self.n_cells - self.n_real

    @property
    def is_sorted(self) -> bool:
        """True if the caller's order is already the packing order."""
        return bool((self.sorted_indices == np.arange(self.batch_size)).all())

    @cached_property
    def unsorted_indices(self) -> IntArray:
        """`(B,)` The rank of each sequence in the packing order. This is the inverse of `sorted_indices`."""
        return frozen(np.argsort(self.sorted_indices))

    @cached_property
    def batch_sizes(self) -> IntArray:
        """`(max(lengths),)` The number of sequences that are still running at each time step."""
        ends = np.bincount(self.lengths)[1:]  # the number of sequences of length 1, 2, …
        return frozen(
            np.cumsum(ends[::-1])[::-1].copy()
        )  # torch rejects arrays with negative strides

    @cached_property
    def offsets(self) -> IntArray:
        """`(max(lengths) + 1,)` The packed row at which each time step begins, followed by `N`."""
        return frozen(np.concatenate(([0], np.cumsum(self.batch_sizes))))

    @cached_property
    def mask(self) -> BoolArray:
        """`(B, T)` Booleans that are True at real cells."""
        return frozen(np.arange(self.max_len) < self.lengths[:, None])

    @cached_property
    def packed_index(self) -> IntArray:
        """`(B, T)` The packed row of each cell, or -1 for padding."""
        starts = np.zeros(self.max_len, dtype=np.int64)
        starts[: self.batch_sizes.size] = self.offsets[:-1]
        return frozen(np.where(self.mask, starts + self.unsorted_indices[:, None], -1))

    @cached_property
    def source(self) -> IntArray:
        """`(N, 2)` The cell `(b, t)` from which each packed row is taken."""
        t = np.repeat(np.arange(self.batch_sizes.size), self.batch_sizes)
        rank = np.arange(self.n_real) - self.offsets[t]
        return frozen(np.stack([self.sorted_indices[rank], t], axis=1))

    @cached_property
    def starts(self) -> IntArray:
        """`(B + 1,)` The flat row at which each sequence begins, followed by `N`.

        In the flat rows, the sequences follow one another in the caller's order. Attention kernels
        call these numbers `cu_seqlens`, and the `offsets()` method of a jagged tensor returns them.
        By contrast, the `offsets` of a layout are the packed rows at which time steps begin.
        """
        return frozen(np.concatenate(([0], np.cumsum(self.lengths))))

    @cached_property
    def flat_rows(self) -> IntArray:
        """`(N,)` The flat row that corresponds to each packed row, so that `packed = flat[flat_rows]`."""
        b, t = self.source.T
        return frozen(self.starts[b] + t)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Layout):
            return NotImplemented
        return self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        size = "" if self.max_len == self.lengths.max() else f", max_len={self.max_len}"
        return f"Layout({_some(self.lengths)}{size}): {self.n_cells} cells, {self.n_real} real"

    @property
    def _key(self) -> tuple[bytes, int, bytes]:
        return self.lengths.tobytes(), self.max_len, self.sorted_indices.tobytes()


def require_steps(layout: Layout) -> Layout:
    """Returns the layout if no sequence is empty. Packing functions call this, because torch
    rejects empty sequences.

    Raises:
        ValueError: a sequence is empty.
    """
    n = layout.lengths
    require_none(
        n, n < 1, "lengths", "every sequence needs at least one time step here; drop the empty ones"
    )
    return layout


def sequence_name(index: int) -> str:
    """Returns the default name of a sequence: a … z, then aa, ab, …, like the columns of a spreadsheet."""
    name = ""
    index += 1
    while index:
        index, letter = divmod(index - 1, 26)
        name = chr(ord("a") + letter) + name
    return name


def host_array(values: Any) -> npt.NDArray[Any]:
    """Converts a list, an array or a tensor on any device to a NumPy array. A `Layout` is converted
    to its lengths.

    Raises:
        ValueError: `values` contains rows of unequal length.
    """
    if isinstance(values, Layout):
        return values.lengths
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        values = values.double() if values.is_floating_point() else values  # NumPy has no bfloat16
    array = np.asarray(values, order="C")  # torch takes no negative strides
    whole = (
        array.dtype == object
        and array.ndim == 1
        and all(isinstance(value, Integral) for value in array)
    )
    return (
        array.astype(float) if whole else array
    )  # NumPy stores integers of more than 64 bits as objects


def read_lengths(lengths: Any, empty: bool = False) -> IntArray:
    """Returns lengths as a new array, `(B,)`. `Layout` and most other functions that take lengths
    call this function.

    Args:
        lengths: a list, an array, a tensor on any device, a `Layout`, or anything that NumPy can
            turn into an array, such as a pandas Series. Floats are allowed if they are whole.
        empty: whether an empty array is allowed.

    Returns:
        The lengths as whole numbers. Their range is not checked.

    Raises:
        ValueError: the lengths are not whole numbers, not one-dimensional, on the meta device, or
            empty although `empty` is False.
        TypeError: the lengths are a nested or sparse tensor.
    """
    return _whole_numbers(
        lengths, "lengths", "list the number of real time steps of each sequence", empty
    )


BOOLEANS = (
    "lengths contains booleans; for a mask (B, T) that is True at real cells, with the padding on the right, pass"
    " mask.sum(1)"
)


def _whole_numbers(values: Any, name: str, advice: str, empty: bool = False) -> IntArray:
    require_dense(name, values)
    require_values(name, values)
    try:
        array = host_array(values)
    except ValueError:  # NumPy raises this error for rows of unequal length
        raise ValueError(f"{name} must be one-dimensional: {advice}") from None
    if array.ndim == 0:
        shown = repr(values) if len(repr(values)) < 30 else kind_of(values)
        raise ValueError(f"{name} is {shown}; {advice}, as in [5, 3, 2]")
    if array.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, got shape {array.shape}: {advice}")
    if array.size == 0 and not empty:
        raise ValueError(f"{name} is empty: {advice}")
    if array.dtype == np.bool_:
        raise ValueError(BOOLEANS.replace("lengths", name, 1))
    if array.dtype.kind not in "iuf":
        raise ValueError(f"{name} must contain whole numbers, got {_some(array)}: {advice}")
    require_whole(array, name)
    return np.array(array, dtype=np.int64)


def _order(values: Any, size: int, name: str, advice: str) -> IntArray:
    order = _whole_numbers(values, name, advice)
    if not np.array_equal(np.sort(order), np.arange(size)):
        raise ValueError(
            f"{name} must contain each of 0 … {size - 1} exactly once, got {_some(order)}"
        )
    return order


def _some(array: npt.NDArray[Any], limit: int = 12) -> str:
    shown = ", ".join(repr(v) for v in array[:limit].tolist())
    return f"[{shown}{', …' if array.size > limit else ''}]"


def frozen(array: _Array) -> _Array:
    """Makes an array read-only, and returns it."""
    array.setflags(write=False)
    return array
