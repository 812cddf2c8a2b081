"""Draws a small padded batch with its values, and frames those that are wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from packviz.core.layout import BoolArray, Layout, is_mask, read_mask, sequence_name, to_numpy
from packviz.core.padded import dimension_order, resolve_batch_first
from packviz.core.validation import require_one_of
from packviz.draw import text
from packviz.draw.drawing import Drawing
from packviz.draw.grid import Cell, CellTable
from packviz.draw.palette import sequence_colour
from packviz.draw.sheet import HATCHED, Sheet
from packviz.draw.text import MAX_LISTED, Labels


@dataclass(frozen=True, eq=False)
class Aligned(Drawing):
    """A drawing of a padded batch.

    Attributes:
        title: the title above the batch.
        labels: `(B, T)` the contents of the cells.
        real: `(B, T)` booleans, True at real cells. The other cells are hatched.
        wrong: `(B, T)` booleans, True at wrong cells, which are framed; `None` to frame no cells.
        columns: `(T,)` the names of the columns. Defaults to the numbers of the time steps.
    """

    title: str
    labels: Labels
    real: BoolArray
    wrong: BoolArray | None = None
    columns: Sequence[str] = ()

    @classmethod
    def of(
        cls,
        x: object,
        lengths: object,
        *,
        padding_side: str = "right",
        title: str = "",
        batch_first: bool | None = None,
        like: object = None,
    ) -> Aligned:
        """Draws a padded batch of numbers or booleans.

        Args:
            x: a tensor or an array of at most 16 × 16 cells: `(T, B)`, or `(B, T)` if `batch_first`
                is true.
            lengths: `(B,)` the number of real time steps of each sequence; or a mask, a tensor or
                array of `(B, T)` booleans (or 0 and 1), True at real cells.
            padding_side: the side of the padding, `"right"` (data first) or `"left"`. Don't pass it
                with a mask.
            title: the title above the batch.
            batch_first: whether the batch is the first dimension of `x`. Defaults to False, as in
                torch, with a warning if `B` equals `T`.
            like: the correct values, with the same shape as `x`. Cells with a different value are
                framed.

        Raises:
            ValueError: `x` or `like` is not a padded batch of at most 16 × 16 cells; the lengths or
                the mask do not fit `x`; or `padding_side` is unknown, or is `"left"` although a
                mask is given.
        """
        require_one_of("padding_side", padding_side, ("right", "left"))
        values = _read_padded(x, "x", batch_first)
        real = _real_mask(lengths, values.shape, batch_first, padding_side)
        labels = [[text.format_value(value) for value in row] for row in values.tolist()]
        if like is None:
            return cls(title, labels, real)
        correct_values = _read_padded(like, "like", batch_first)
        if correct_values.shape != values.shape:
            shapes = f"{to_numpy(x).shape}, got {to_numpy(like).shape}"
            raise ValueError(f"like must have the shape of x, {shapes}")
        both_nan = (values != values) & (correct_values != correct_values)
        return cls(title, labels, real, (values != correct_values) & ~both_nan)

    def to_text(self) -> str:
        """Returns a line of text for each sequence.

        A `·` marks padding, and a `!` marks a framed cell.
        """
        marks = []
        if not self.real.all():
            marks.append("· marks padding")
        if self.wrong is not None and self.wrong.any():
            marks.append("! marks a wrong cell")
        heading = self.title or "padded batch"
        if marks:
            heading += f" ({', '.join(marks)})"
        return "\n".join([heading, *self._cell_table.lines()])

    def sheet(self, theme: str) -> Sheet:
        """Draws a row for each sequence."""
        return self._cell_table.sheet(theme, self.to_text())

    @property
    def _cell_table(self) -> CellTable:
        wrong = self.wrong
        if wrong is None:
            wrong = np.zeros_like(self.real)
        rows = []
        for b, labels in enumerate(self.labels):
            colour = sequence_colour(b)
            cells = []
            for label, is_real, is_wrong in zip(labels, self.real[b], wrong[b], strict=True):
                fill = colour if is_real else HATCHED
                cells.append(Cell(fill, label, is_framed=is_wrong))
            rows.append(cells)
        names = [sequence_name(b) for b in range(len(rows))]
        if self.columns:
            return CellTable(self.title, names, self.columns, rows, axis="")
        step_names = list(map(str, range(self.real.shape[1])))
        return CellTable(self.title, names, step_names, rows)


def _read_padded(x: object, name: str, batch_first: bool | None) -> np.ndarray:
    """Returns the values of a small padded batch, `(B, T)`."""
    values = to_numpy(x)
    shape = values.shape
    if values.ndim != 2:
        expected = f"{dimension_order(batch_first, '')}, one number per cell"
        raise ValueError(f"{name} must be {expected}, got shape {shape}")
    if max(shape) > MAX_LISTED:
        size_limit_text = f"{MAX_LISTED} sequences of {MAX_LISTED} time steps"
        raise ValueError(f"{name} has shape {shape}; give at most {size_limit_text}")
    return values if batch_first else values.T


def _real_mask(
    lengths: object, shape: tuple[int, ...], batch_first: bool | None, padding_side: str
) -> BoolArray:
    """Returns a mask that is True at the real cells, `(B, T)`."""
    if is_mask(lengths):
        mask = read_mask(lengths)
        if mask.shape != shape:
            mismatch = f"lengths is a mask of shape {mask.shape}, but x needs a mask (B, T)"
            raise ValueError(f"{mismatch}, of shape {shape}; does batch_first fit x?")
        if padding_side != "right":
            raise ValueError(
                f"padding_side is {padding_side!r}, but a mask shows where the padding is:"
                " leave padding_side out"
            )
        resolve_batch_first(batch_first, shape)
        return mask
    x_shape = shape if batch_first else shape[::-1]
    mask = Layout.from_padded(x_shape, lengths, batch_first).mask
    return mask if padding_side == "right" else mask[:, ::-1]
