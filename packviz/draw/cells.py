"""A padded batch drawn cell by cell, with its padding on either side: as SVG and as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from packviz.core.layout import Layout, sequence_name
from packviz.core.padded import batch_is_first, order
from packviz.core.validation import SENSE_REVERSED, one_of, renamed
from packviz.draw import palette, text
from packviz.draw.cellgrid import WIDTH, Cell, CellGrid, array, wide_enough
from packviz.draw.drawing import Drawing
from packviz.draw.sheet import HATCHED, Sheet, row
from packviz.draw.text import FEW


@dataclass(frozen=True, eq=False, repr=False)
class Aligned(Drawing):
    """One padded batch, drawn.

    Attributes:
        title: what it is.
        labels: `(B, T)` what stands in each cell.
        real: `(B, T)` booleans, true where a cell is real. The others are hatched.
        wrong: `(B, T)` booleans, true where a cell shall be framed; none if there are no such cells.
        columns: `(T,)` names of the columns; empty if they are time steps.
    """

    title: str
    labels: Sequence[Sequence[str]]
    real: npt.NDArray[np.bool_]
    wrong: npt.NDArray[np.bool_] | None = None
    columns: Sequence[str] = ()

    @classmethod
    @renamed(SENSE_REVERSED, side="padding_side")
    def of(
        cls,
        x: Any,
        lengths: Any,
        *,
        padding_side: str = "right",
        title: str = "",
        batch_first: bool | None = None,
        like: Any = None,
    ) -> Aligned:
        """Draws a padded batch of numbers or booleans.

        Args:
            x: `(T, B)`, or `(B, T)` with `batch_first`: a tensor or an array, at most 16 × 16.
            lengths: `(B,)` the real time steps of each sequence; or `(B, T)` a mask, True at real cells.
            padding_side: the side of the padding: `"right"` (data first) or `"left"`. Not with a mask.
            title: what it is.
            batch_first: whether the batch is the first dimension of `x`. Defaults to False, as in torch, with a
                warning if `B` equals `T`.
            like: what `x` should be, of the same shape; cells that differ are framed.

        Raises:
            ValueError: `x` is not a small padded batch, the lengths do not fit it, or there is no such side.
        """
        one_of("padding_side", padding_side, ("right", "left"))
        first = bool(batch_first)
        values = _grid(x, "x", first)
        real = _mask(lengths, values.shape, first, padding_side)
        batch_is_first(batch_first, values.shape)
        labels = [[text.value(v) for v in row] for row in values.tolist()]
        wrong = None if like is None else values != _grid(like, "like", first)
        return cls(title, labels, real, wrong)

    def to_text(self) -> str:
        """The batch in words, a line per sequence: `·` before padding, `!` before a cell that is framed."""
        marked = [[self._marks(b, t) + label for t, label in enumerate(row)] for b, row in enumerate(self.labels)]
        width = max(len(cell) for row in [*marked, self.columns] for cell in row)
        wrong = self.wrong is not None and self.wrong.any()
        legend = ["· marks padding"] * (not self.real.all()) + ["! a wrong cell"] * bool(wrong)
        lines = [f"{self.title or 'padded batch'} ({', '.join(legend)})".removesuffix(" ()")]
        if self.columns:
            lines.append("    " + " ".join(name.rjust(width) for name in self.columns))
        for b, cells in enumerate(marked):
            lines.append(f" {sequence_name(b)}  " + " ".join(cell.rjust(width) for cell in cells))
        return "\n".join(lines)

    def sheet(self, theme: str) -> Sheet:
        """The batch, a row for each sequence."""
        sheet = Sheet(theme, self.to_text())
        wide = wide_enough(label for row in [*self.labels, self.columns] for label in row)
        rows, columns = self.real.shape
        grid = CellGrid(sheet, rows, columns, wide, left=30)
        sheet.title(self.title)
        grid.heads(self.columns or [str(t) for t in range(grid.columns)], "" if self.columns else "t =")
        grid.names([sequence_name(b) for b in range(grid.rows)])
        grid.draw(
            [Cell(palette.sequence_colour(b) if real else HATCHED, label) for label, real in zip(*cells, strict=True)]
            for b, cells in enumerate(zip(self.labels, self.real, strict=True))
        )
        framed = [] if self.wrong is None else np.argwhere(self.wrong).tolist()
        for stroke, thick in ((sheet.colours.ground, 6), (sheet.colours.wrong, 3)):  # the rim shows on any fill
            sheet.layer()
            for b, t in framed:
                grid.frame(b, t, stroke=stroke, thick=thick)
        return sheet

    def _marks(self, b: int, t: int) -> str:
        wrong = self.wrong is not None and self.wrong[b, t]
        return ("!" if wrong else "") + ("" if self.real[b, t] else "·")


def beside(batches: Sequence[Aligned], theme: str) -> Sheet:
    """Draws batches beside each other as they fit."""
    return row([batch.sheet(theme) for batch in batches], theme, 16, WIDTH)


def _grid(values: Any, name: str, batch_first: bool) -> npt.NDArray[Any]:
    grid: npt.NDArray[Any] = array(values)
    if grid.ndim != 2:
        raise ValueError(f"{name} must be {order(batch_first, '')}, one number per cell, got shape {grid.shape}")
    if max(grid.shape) > FEW:
        raise ValueError(f"{name} has shape {grid.shape}; up to {FEW} sequences of {FEW} time steps can be drawn")
    return grid if batch_first else grid.T


def _mask(lengths: Any, shape: tuple[int, ...], batch_first: bool, padding_side: str) -> npt.NDArray[np.bool_]:
    if getattr(lengths, "ndim", 1) == 2:
        mask: npt.NDArray[np.bool_] = array(lengths)
        if mask.shape != shape or mask.dtype != np.bool_:
            raise ValueError(f"a mask must hold booleans of shape {shape}, got {mask.dtype} of shape {mask.shape}")
        if padding_side != "right":
            raise ValueError(f"padding_side is {padding_side!r}, but a mask shows where the padding is: leave it out")
        return mask
    real = Layout.from_padded(shape if batch_first else shape[::-1], lengths, batch_first).mask
    return real if padding_side == "right" else real[:, ::-1]
