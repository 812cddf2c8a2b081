"""Describes the layout of a ragged batch: everything that follows from its lengths alone.

The layout of a batch is fully described by the length of each sequence. `Layout` stores the
lengths, and derives from them the mask, the sort order, the batch sizes and the place of every cell
in the packed data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import Any, TypeGuard, TypeVar

import numpy as np
import numpy.typing as npt

from packviz.core.padded import PaddedShape, describe_shape
from packviz.core.validation import (
    kind_of,
    reject_entries,
    reject_meta,
    require_at_least,
    require_plain_values,
)

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
_Array = TypeVar("_Array", bound=npt.NDArray[np.generic])

MAX_STEPS = 10_000_000
"""The largest number of time steps in a `Layout`. A larger number needs huge arrays, and is
probably a typo."""


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Layout:
    """The place of every cell of a ragged batch, in both the padded and the packed data.

    `B` is the number of sequences, `T` the padded number of time steps, and `N` the number of real
    cells.

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
        >>> layout.batch_sizes.tolist()  # the sequences that still run at each time step
        [3, 3, 2, 1, 1]
        >>> layout.n_padding, layout.n_cells
        (5, 15)
    """

    lengths: IntArray
    max_len: int
    sorted_indices: IntArray

    def __init__(
        self, lengths: object, max_len: int | None = None, *, sorted_indices: object = None
    ) -> None:
        """Describes a batch with these lengths.

        Args:
            lengths: `(B,)` whole numbers of at least 0: a list, an array, a tensor on any device,
                or anything that NumPy can turn into an array, such as a pandas Series. Floats are
                allowed if they are whole. If you pass a `Layout`, its `max_len` and
                `sorted_indices` become the defaults of the other arguments. You can also pass a
                mask, `(B, T)`, as an array or a tensor (see `from_mask`), whose `T` becomes the
                default of `max_len`.
            max_len: `T`, the padded length in time steps. Defaults to `max(lengths)`.
            sorted_indices: `(B,)` the order of packing, longest first. By default, the sort is
                stable, so sequences of equal length keep their order. (torch's own sort is not
                stable. To use torch's order, pass a `PackedSequence` to `from_packed`.)

        Raises:
            ValueError: `lengths` is empty, is neither one-dimensional nor a mask, or is on the meta
                device; a length is not a whole number of at least 0, or exceeds `max_len` or
                `MAX_STEPS`; `max_len` is not a whole number, or exceeds `MAX_STEPS`; or
                `sorted_indices` is not a permutation that puts longer sequences first.
            TypeError: the lengths are a nested, sparse or quantised tensor, or a masked array.
        """
        if isinstance(lengths, Layout):
            max_len = lengths.max_len if max_len is None else max_len
            sorted_indices = lengths.sorted_indices if sorted_indices is None else sorted_indices
        elif max_len is None and is_mask(lengths):
            max_len = lengths.shape[1]
        n = read_lengths(lengths)
        reject_entries(n, n < 0, "lengths", "a sequence has at least 0 time steps")
        limit = f"a Layout has at most {MAX_STEPS:,} time steps"
        reject_entries(n, n > MAX_STEPS, "lengths", limit)
        max_len = int(n.max()) if max_len is None else require_at_least("max_len", max_len, 0)
        if max_len > MAX_STEPS:
            raise ValueError(f"max_len is {max_len}: {limit}")
        length_problem = f"longer than max_len={max_len}; shorten it, or raise max_len"
        reject_entries(n, n > max_len, "lengths", length_problem)
        if sorted_indices is None:
            order = np.argsort(-n, kind="stable")
        else:
            order = _read_permutation(sorted_indices, n.size, "sorted_indices")
            sorted_lengths = n[order]
            is_increasing = np.diff(sorted_lengths, prepend=sorted_lengths[0]) > 0
            why = "this sequence is longer than the one before it; put longer sequences first"
            reject_entries(order, is_increasing, "sorted_indices", why)
        vars(self).update(
            lengths=make_read_only(n), max_len=max_len, sorted_indices=make_read_only(order)
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
        for name in ("data", "batch_sizes", "sorted_indices"):
            if not hasattr(packed, name):
                raise TypeError(
                    f"packed has no {name!r}: give a torch PackedSequence, not"
                    f" {kind_of(packed)} (for plain lengths, call Layout(lengths))"
                )
        name = "packed.batch_sizes"
        sizes = _read_whole_numbers(packed.batch_sizes, name, "give one size per time step")
        reject_entries(sizes, sizes < 1, name, "every time step needs at least one sequence")
        size_changes = np.diff(sizes, prepend=sizes[0])
        reject_entries(
            sizes, size_changes > 0, name, "more than the size before it; sizes never grow"
        )
        rows = len(packed.data)
        if rows != sizes.sum():
            mismatch_text = f"{name} adds up to {sizes.sum()}, but len(packed.data) is {rows}"
            raise ValueError(f"{mismatch_text}; both must be the number of real cells")
        # The length of a rank is the number of steps with more sequences than this rank.
        lengths_by_rank = np.searchsorted(-sizes, -np.arange(sizes[0]))
        if packed.sorted_indices is None:
            return cls(lengths_by_rank)
        order = _read_permutation(
            packed.sorted_indices, lengths_by_rank.size, "packed.sorted_indices"
        )
        return cls(lengths_by_rank[np.argsort(order)], sorted_indices=order)

    @classmethod
    def from_padded(
        cls, shape: Sequence[int], lengths: object, batch_first: bool | None = None
    ) -> Layout:
        """Describes a padded batch with this shape and these lengths.

        Args:
            shape: the shape of the batch, `(T, B, …)`, or `(B, T, …)` with `batch_first`.
            lengths: `(B,)` the lengths of the sequences, as in `Layout`.
            batch_first: whether the batch is the first dimension. Defaults to False, as in torch,
                with a warning if `B` equals `T`.

        Raises:
            ValueError: a length is not valid or exceeds `T`, or there are not `B` of them. The
                width of a mask is ignored.
        """
        layout = cls(lengths)
        padded = PaddedShape.from_checked_shape(layout.batch_size, shape, batch_first)
        padded.require_fitting_lengths(layout.lengths, describe_shape(shape, batch_first))
        return cls(layout, int(padded.steps))

    @classmethod
    def from_mask(cls, mask: object) -> Layout:
        """Reads the layout from a mask, such as a tokenizer's `attention_mask`.

        Args:
            mask: `(B, T)` booleans (or 0 and 1), True at real cells, which must come first in every
                row.

        Raises:
            ValueError: the mask is not two-dimensional, contains other values, or has no real cell;
                or a row has padding before a real cell.
        """
        m = _require_right_padded(mask)
        return cls(m.sum(axis=1), max_len=m.shape[1])

    @classmethod
    def from_offsets(cls, offsets: object) -> Layout:
        """Reads the layout of flat rows, in which the sequences follow one another.

        Args:
            offsets: `(B + 1,)` the flat row at which each sequence begins, followed by the number
                of rows. The `offsets()` method of a jagged tensor returns these numbers, and
                attention kernels call them `cu_seqlens`.

        Raises:
            ValueError: `offsets` contains a number that is not whole, does not begin with 0, has
                only one entry, or decreases from one entry to the next.
        """
        advice = "give the row at which each sequence begins, and the row count"
        starts = _read_whole_numbers(offsets, "offsets", advice)
        if starts[0] != 0 or starts.size == 1:
            raise ValueError(
                f"offsets is {_excerpt(starts)}; give 0, and then the row after the end of each"
                " sequence, as in [0, 5, 8, 10]; for plain lengths, call Layout(lengths)"
            )
        lengths = np.diff(starts)
        is_decreasing = np.diff(starts, prepend=0) < 0
        reject_entries(
            starts, is_decreasing, "offsets", "less than the offset before it; offsets never fall"
        )
        return cls(lengths)

    @property
    def batch_size(self) -> int:
        """`B`, the number of sequences."""
        return self.lengths.size

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
        """The number of padding cells, which is `n_cells - n_real`."""
        return self.n_cells - self.n_real

    @property
    def is_sorted(self) -> bool:
        """True if the caller's order is already the packing order."""
        return bool((self.sorted_indices == np.arange(self.batch_size)).all())

    @cached_property
    def unsorted_indices(self) -> IntArray:
        """`(B,)` The rank of each sequence in packing order, the inverse of `sorted_indices`."""
        return make_read_only(np.argsort(self.sorted_indices))

    @cached_property
    def batch_sizes(self) -> IntArray:
        """`(max(lengths),)` The number of sequences that are still running at each time step."""
        return make_read_only(count_running_sequences(self.lengths))

    @cached_property
    def offsets(self) -> IntArray:
        """`(max(lengths) + 1,)` The packed row at which each time step begins, followed by `N`."""
        return make_read_only(np.concatenate(([0], np.cumsum(self.batch_sizes))))

    @cached_property
    def mask(self) -> BoolArray:
        """`(B, T)` Booleans that are True at real cells."""
        return make_read_only(np.arange(self.max_len) < self.lengths[:, None])

    @cached_property
    def packed_index(self) -> IntArray:
        """`(B, T)` The packed row of each cell, or -1 for padding."""
        starts = np.zeros(self.max_len, dtype=np.int64)
        starts[: self.batch_sizes.size] = self.offsets[:-1]
        return make_read_only(np.where(self.mask, starts + self.unsorted_indices[:, None], -1))

    @cached_property
    def source(self) -> IntArray:
        """`(N, 2)` The cell `(b, t)` from which each packed row is taken."""
        t = np.repeat(np.arange(self.batch_sizes.size), self.batch_sizes)
        rank = np.arange(self.n_real) - self.offsets[t]
        return make_read_only(np.stack([self.sorted_indices[rank], t], axis=1))

    @cached_property
    def starts(self) -> IntArray:
        """`(B + 1,)` The flat row at which each sequence begins, followed by `N`.

        In the flat rows, the sequences follow one another in the caller's order. Attention kernels
        call these numbers `cu_seqlens`, and the `offsets()` method of a jagged tensor returns them.
        By contrast, the `offsets` of a layout are the packed rows at which time steps begin.
        """
        return make_read_only(np.concatenate(([0], np.cumsum(self.lengths))))

    @cached_property
    def flat_rows(self) -> IntArray:
        """`(N,)` The flat row of each packed row, so that `packed = flat[flat_rows]`."""
        b, t = self.source.T
        return make_read_only(self.starts[b] + t)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Layout):
            return NotImplemented
        return self._comparison_key == other._comparison_key

    def __hash__(self) -> int:
        return hash(self._comparison_key)

    def __repr__(self) -> str:
        arguments = _excerpt(self.lengths)
        if self.max_len != self.lengths.max():
            arguments += f", max_len={self.max_len}"
        return f"Layout({arguments}): {self.n_cells} cells, {self.n_real} real"

    @property
    def _comparison_key(self) -> tuple[bytes, int, bytes]:
        return self.lengths.tobytes(), self.max_len, self.sorted_indices.tobytes()


def count_running_sequences(lengths: IntArray) -> IntArray:
    """Returns the number of sequences that are still running at each time step."""
    ending_counts = np.bincount(lengths)[1:]  # the number of sequences of length 1, 2, …
    running_counts = np.cumsum(ending_counts[::-1])[::-1]
    return running_counts.copy()  # torch rejects arrays with negative strides


def require_nonempty_sequences(layout: Layout) -> Layout:
    """Returns the layout if no sequence is empty.

    Packing functions call this, because torch rejects empty sequences.

    Raises:
        ValueError: a sequence is empty.
    """
    n = layout.lengths
    why = "every sequence needs at least one time step here; drop the empty ones"
    reject_entries(n, n < 1, "lengths", why)
    return layout


def sequence_name(index: int) -> str:
    """Returns the default name of a sequence: a … z, then aa, ab, …, as in a spreadsheet."""
    name = ""
    index += 1
    while index:
        index, letter_index = divmod(index - 1, 26)
        name = chr(ord("a") + letter_index) + name
    return name


def to_numpy(values: object) -> npt.NDArray[Any]:
    """Converts a list, an array or a tensor on any device to a NumPy array.

    A `Layout` is converted to its lengths.

    Raises:
        ValueError: `values` contains rows of unequal length.
    """
    if isinstance(values, Layout):
        return values.lengths
    if hasattr(values, "detach"):
        tensor: Any = values.detach().cpu()
        if "bfloat16" in str(tensor.dtype):  # NumPy has no such numbers
            tensor = tensor.float()
        values = tensor
    array = np.asarray(values, order="C")  # torch takes no negative strides
    if array.dtype != object or array.ndim != 1:
        return array
    # NumPy stores integers of more than 64 bits as objects.
    are_whole = all(isinstance(entry, Integral) for entry in array)
    return array.astype(float) if are_whole else array


def is_mask(values: object) -> TypeGuard[npt.NDArray[np.generic]]:
    """Returns whether lengths are given as a mask: an array or a tensor of two dimensions.

    Nested lists are never a mask, because they could be sequences or batches.
    """
    return getattr(values, "ndim", None) == 2


def read_lengths(lengths: object, allow_empty: bool = False) -> IntArray:
    """Returns lengths as a new array, `(B,)`.

    `Layout` and most other functions that take lengths call this function.

    Args:
        lengths: a list, an array, a tensor on any device, a `Layout`, or anything that NumPy can
            turn into an array, such as a pandas Series. Floats are allowed if they are whole. An
            array or a tensor of two dimensions is read as a mask (see `Layout.from_mask`).
        allow_empty: whether an empty array is allowed.

    Returns:
        The lengths as whole numbers. Their range is not checked.

    Raises:
        ValueError: the lengths are not whole numbers, not one-dimensional, on the meta device, or
            empty although `allow_empty` is False; or a mask is not one that `Layout.from_mask`
            accepts.
        TypeError: the lengths are a nested, sparse or quantised tensor, or a masked array.
    """
    if is_mask(lengths):
        counts: IntArray = _require_right_padded(lengths, "lengths").sum(axis=1)
        return counts
    return _read_whole_numbers(lengths, "lengths", _LENGTHS_HINT, allow_empty)


_LENGTHS_HINT = (
    "list the number of real time steps of each sequence, as in [5, 3, 2], or give a mask (B, T) as"
    " an array or a tensor"
)
BOOLEANS_MESSAGE = f"lengths contains booleans: {_LENGTHS_HINT}"


def read_mask(mask: object, name: str = "mask") -> BoolArray:
    """Returns a mask as an array of booleans, `(B, T)`, after checking its values."""
    require_plain_values(name, mask)
    reject_meta(name, mask)
    try:
        array = to_numpy(mask)
    except ValueError:  # NumPy raises this error for rows of unequal length
        raise ValueError(f"{name} has rows of different lengths; a mask is (B, T)") from None
    if array.ndim != 2 or array.size == 0:
        raise ValueError(
            f"{name} of shape {array.shape} is not a mask (B, T) of at least one sequence and one"
            " time step"
        )
    if not np.isin(array, (0, 1)).all():
        raise ValueError(
            f"{name} of shape {array.shape} holds values other than 0 and 1, so it is not a mask;"
            " give True where a cell is real (lengths have one dimension, not two)"
        )
    return array.astype(bool)


def _require_right_padded(mask: object, name: str = "mask") -> BoolArray:
    """Returns a mask as an array, `(B, T)`, in which every row begins with its real cells."""
    real = read_mask(mask, name)
    lengths = real.sum(axis=1)
    if not lengths.any():
        raise ValueError("the mask has no real cell; if it is True at padding, pass mask == 0")
    is_gap = ~real & (np.arange(real.shape[1]) < lengths[:, None])
    if is_gap.any():
        b, t = np.argwhere(is_gap)[0]
        problem = f"row {b} of the mask has padding at time step {t} before real cells"
        fix = (
            "move the padding to the right with pv.align(x, mask, padding_side='right',"
            " batch_first=…), and give mask.sum(1) as the lengths"
        )
        if real[b, -lengths[b] :].all():
            fix = f"if the mask is True at padding, pass mask == 0; otherwise {fix}"
        raise ValueError(f"{problem}; {fix}")
    return real


def _read_whole_numbers(
    values: object, name: str, advice: str, allow_empty: bool = False
) -> IntArray:
    require_plain_values(name, values)
    reject_meta(name, values)
    try:
        array = to_numpy(values)
    except ValueError:  # NumPy raises this error for rows of unequal length
        raise ValueError(f"{name} has rows of different lengths: {advice}") from None
    if array.ndim == 0:
        shown = repr(values)
        if len(shown) >= 30:
            shown = kind_of(values)
        raise ValueError(f"{name} is {shown}; {advice}")
    if array.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, got shape {array.shape}: {advice}")
    if array.size == 0 and not allow_empty:
        raise ValueError(f"{name} is empty: {advice}")
    if array.dtype == np.bool_:
        raise ValueError(f"{name} contains booleans: {advice}")
    if array.dtype.kind not in "iuf":
        raise ValueError(f"{name} must contain whole numbers, got {_excerpt(array)}: {advice}")
    if array.dtype.kind != "i":
        reject_entries(array, ~np.isfinite(array), name, "not a whole number")
        fraction_problem = "not a whole number; torch would silently drop the fraction"
        reject_entries(array, array != np.round(array), name, fraction_problem)
        exceeds_int64 = abs(array.astype(float)) >= 2**63
        reject_entries(array, exceeds_int64, name, "too large for a 64-bit whole number")
    return np.array(array, dtype=np.int64)


def _read_permutation(values: object, size: int, name: str) -> IntArray:
    order = _read_whole_numbers(values, name, "give one index per sequence, longest first")
    if not np.array_equal(np.sort(order), np.arange(size)):
        required_indices = f"each of 0 … {size - 1} exactly once"
        raise ValueError(f"{name} must contain {required_indices}, got {_excerpt(order)}")
    return order


def _excerpt(array: npt.NDArray[np.generic]) -> str:
    shown = ", ".join(map(repr, array[:12].tolist()))
    return f"[{shown}, …]" if array.size > 12 else f"[{shown}]"


def make_read_only(array: _Array) -> _Array:
    """Makes an array read-only, and returns it."""
    array.setflags(write=False)
    return array
