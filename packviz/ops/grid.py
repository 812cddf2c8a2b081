"""Maps the cells of a staircase, in the order in which kernels take them, to the rows of a padded tensor."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from packviz.core.cuts import rectangles
from packviz.core.layout import IntArray
from packviz.core.padded import Padded
from packviz.ops.index import mapped, placed

MOST_SHAPES = 4
"""The largest number of padded shapes for which the indices of one batch are kept."""


class _Cells:
    """The rectangles of a staircase, whose cells may be anywhere in a padded tensor."""

    def __init__(self, rectangles: Sequence[tuple[int, int, Tensor, Tensor]], n_rows: int) -> None:
        """Stores the rectangles, and the number of rows of the tensor.

        Args:
            rectangles: for each rectangle, the number of time steps `t`, the number of sequences
                `n`, the tensor rows that its cells occupy (`t · n` different numbers), and the
                indices of the padding among these cells.
            n_rows: number of rows of the tensor.
        """
        self._rectangles, self._n_rows = rectangles, n_rows

    def take(self, x: Tensor, features: int) -> list[Tensor]:
        """Returns copies of the rectangles, `(t, n, F)` each, with zeros at padding."""
        flat, taken = x.reshape(-1, features), []
        for steps, sequences, rows, waste in self._rectangles:
            cells = flat.index_select(0, rows)
            cells = cells.index_fill_(0, waste, 0) if len(waste) else cells
            taken.append(cells.view(steps, sequences, -1))
        return taken

    def put(self, values: Sequence[Tensor], shape: tuple[int, ...], padding_value: float) -> Tensor:
        """Returns a tensor of the given shape with the real cells in their places, and `padding_value` elsewhere."""
        padding = values[0].new_full((1, values[0].shape[-1]), padding_value)
        cells = torch.cat([*(value.flatten(0, 1) for value in values), padding])
        # A gather is faster than a scatter, because it writes in order and fills the padding in the
        # same pass. Autograd lets nobody change a view made here in place, so the result gets its
        # shape first.
        out = cells.new_empty(shape)
        torch.index_select(cells, 0, self._origin, out=out.view(self._n_rows, -1))
        return out

    @cached_property
    def _origin(self) -> Tensor:
        """`(n_rows,)` the index of the cell that goes to each row of the tensor; at padding, the number of cells."""
        with torch.inference_mode(False):  # otherwise autograd could not save it
            rows = torch.cat([own for _, _, own, _ in self._rectangles])
            cells, start = torch.arange(len(rows), device=rows.device), 0
            for _, _, own, waste in self._rectangles:
                cells[start : start + len(own)].index_fill_(0, waste, len(rows))
                start += len(own)
            return cells.new_full((self._n_rows,), len(rows)).index_copy_(0, rows, cells)


class _Whole:
    """Rectangles that are slices of a padded batch, because each contains every sequence, in the
    caller's order.

    The methods are the same as those of `_Cells`. If there is only one rectangle, a tensor may
    contain the features of two directions side by side.
    """

    def __init__(
        self,
        shape: Padded,
        spans: Sequence[tuple[int, int]],
        padding: IntArray,
        waste: Sequence[Tensor],
    ) -> None:
        """Stores the shape of the batch, the time steps of each rectangle, and the places of the
        padding.

        Args:
            shape: the shape of the batch.
            spans: for each rectangle, its first time step and the step after its last one.
            padding: the indices of the padding among the cells `(t, B)`, where `t` is the longest
                length.
            waste: for each rectangle, the indices of the padding among its cells.
        """
        self._shape, self._spans, self._padding, self._waste = shape, spans, padding, waste

    def take(self, x: Tensor, features: int) -> list[Tensor]:
        """Returns the rectangles, as in `_Cells`. Rectangles without padding are views of the tensor."""
        taken = []
        for part in self._time_major(x).split(features, 2):  # type: ignore[no-untyped-call]
            for (start, end), waste in zip(self._spans, self._waste, strict=True):
                cells = part[start:end]
                if len(waste):
                    cells = cells.clone(memory_format=torch.contiguous_format)
                    cells.flatten(0, 1).index_fill_(0, waste, 0)
                taken.append(cells)
        return taken

    def put(self, values: Sequence[Tensor], shape: tuple[int, ...], padding_value: float) -> Tensor:
        """Returns a tensor with the rectangles in their places, as in `_Cells`."""
        out, steps = values[0].new_empty(shape), self._spans[-1][1]
        rows = self._time_major(out)
        torch.cat([*values], 0 if len(self._spans) > 1 else 2, out=rows[:steps])
        if self._shape.steps > steps:
            rows[steps:].fill_(padding_value)
        out.view(-1, shape[-1]).index_fill_(0, self._waste_rows, padding_value)
        return out

    def _time_major(self, x: Tensor) -> Tensor:
        return x.transpose(0, 1) if self._shape.batch_first else x

    @cached_property
    def _waste_rows(self) -> Tensor:
        step, sequence = np.divmod(self._padding, self._shape.batch)
        return placed(self._waste[0].device, self._shape.rows(sequence, step))[0]


class Grid:
    """The cells of a staircase, rectangle by rectangle.

    Each rectangle is time-major, with the longest sequences first. However, if every rectangle
    contains all sequences, nothing has to be sorted, so the sequences stay in the caller's order.

    Attributes:
        rectangles: for each rectangle, `(first step, step after the last, number of sequences)`.
        waste: for each rectangle, the indices of the padding among its cells.
        ends: for each rectangle, the indices (among its cells) of the last cells of the sequences
            that end in it, and the number of sequences that continue.
        order: `(B,)` the caller's index of each sequence, longest sequence first; `None` if the
            sequences stay in the caller's order.
        rank: `(B,)` the position of each of the caller's sequences in `order`; `None` if `order` is
            `None`.
    """

    def __init__(self, lengths: Sequence[int], cuts: Sequence[int], device: torch.device) -> None:
        """Computes the staircase of a batch with these lengths and cuts. See `packviz.core.cuts.rectangles`."""
        self.rectangles, n = rectangles(lengths, cuts), np.array(lengths)
        is_ordered = self.rectangles[-1][2] < len(n)
        self._device, self._order = (
            device,
            np.argsort(-n, kind="stable") if is_ordered else np.arange(len(n)),
        )
        self._lengths = n[self._order]
        self._masks = [
            np.arange(a, b)[:, None] >= self._lengths[:n] for a, b, n in self.rectangles
        ]  # True at padding
        left = [n for _, _, n in self.rectangles[1:]] + [0]
        ends = [
            (self._lengths[k:n] - 1 - a) * n + np.arange(k, n)
            for (a, _, n), k in zip(self.rectangles, left, strict=True)
        ]
        orders = [self._order, np.argsort(self._order)] if is_ordered else []
        found = placed(device, *map(np.flatnonzero, self._masks), *ends, *orders)
        self.waste, count = found[: len(ends)], len(ends)
        self.ends = list(zip(found[count : 2 * count], left, strict=True))
        self.order: Tensor | None = found[-2] if is_ordered else None
        self.rank: Tensor | None = found[-1] if is_ordered else None
        self._cells: dict[tuple[Padded, range, int], _Cells | _Whole] = {}

    def mark(self, i: int, like: Tensor) -> Tensor:
        """Returns a column `(t, n, 1)` that is 1 at the padding of rectangle `i` and 0 elsewhere.

        The column has the same `t`, `n`, dtype and device as `like`, which is the input of the
        rectangle.
        """
        return (
            like.new_zeros(like.shape[0] * like.shape[1], 1)
            .index_fill_(0, self.waste[i], 1)
            .view(*like.shape[:2], 1)
        )

    def source(self, shape: Padded, direction: int) -> _Cells | _Whole:
        """Locates the cells of a direction in a padded batch.

        Direction 1 is the reverse one, which begins at the end of each sequence.
        """
        return self._found(shape, range(direction, direction + 1), 1)

    def target(self, shape: Padded, directions: int) -> _Cells | _Whole:
        """Locates the cells of all directions, one after the other, in a padded batch with `D` rows per cell."""
        return self._found(shape, range(directions), directions)

    def _found(self, shape: Padded, which: range, directions: int) -> _Cells | _Whole:
        key = shape, which, directions
        if key not in self._cells:
            if len(self._cells) == 2 * MOST_SHAPES:
                self._cells.clear()
            self._cells[key] = self._find(*key)
        return self._cells[key]

    def _find(self, shape: Padded, which: range, directions: int) -> _Cells | _Whole:
        if self.order is None and directions == 1 and which == range(1):
            padding = np.flatnonzero(np.concatenate(self._masks))
            return _Whole(shape, [(a, b) for a, b, _ in self.rectangles], padding, self.waste)
        found: list[IntArray] = []
        for d in which:
            for (a, b, n), mask in zip(self.rectangles, self._masks, strict=True):
                step, sequence = np.arange(a, b)[:, None], self._order[:n]
                if d:
                    step = np.where(mask, step, self._lengths[:n] - 1 - step)
                rows = shape.rows(sequence, step)
                if directions > 1:
                    rows = rows * directions + d
                found.append(rows.ravel())
        each = [
            (b - a, n, waste) for (a, b, n), waste in zip(self.rectangles, self.waste, strict=True)
        ] * len(which)
        placed_rows = placed(self._device, *found)
        cells = [
            (steps, n, rows, waste)
            for (steps, n, waste), rows in zip(each, placed_rows, strict=True)
        ]
        return _Cells(cells, shape.batch * shape.steps * directions)


def taken(x: Tensor, features: int, cells: _Cells | _Whole) -> Sequence[Tensor]:
    """Calls `cells.take` so that the result can be differentiated any number of times."""
    take, shape = (lambda x: tuple(cells.take(x, features))), x.shape
    found: Sequence[Tensor] = mapped(take, take, lambda *values: cells.put(values, shape, 0.0), x)
    return found


def put(
    values: Sequence[Tensor], shape: tuple[int, ...], cells: _Cells | _Whole, padding_value: float
) -> Tensor:
    """Calls `cells.put` so that the result can be differentiated any number of times."""
    features = values[0].shape[-1]
    found: Tensor = mapped(
        lambda *values: cells.put(values, shape, padding_value),
        lambda *values: cells.put(values, shape, 0.0),
        lambda x: tuple(cells.take(x, features)),
        *values,
    )
    return found
