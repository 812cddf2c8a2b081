"""A padded batch drawn cell by cell, with its padding on either side: as SVG and as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from packviz.core.given import SENSE_REVERSED, one_of, renamed
from packviz.core.layout import Layout, sequence_name
from packviz.core.padded import batch_is_first, order
from packviz.draw import palette, text
from packviz.draw.drawn import Drawn
from packviz.draw.sheet import HATCHED, Sheet, width_of
from packviz.draw.text import FEW

_WIDTH = 900  # px: a JupyterLab cell
_MARGIN, _TOP, _HEIGHT = 26.0, 42.0, 24.0  # px: left of a grid, above it, of a row


@dataclass(frozen=True, eq=False, repr=False)
class Aligned(Drawn):
    """One padded batch, drawn.

    Attributes:
        title: what it is.
        labels: `(B, T)` what stands in each cell.
        real: `(B, T)` booleans, true where a cell is real. The others are hatched.
        wrong: `(B, T)` booleans, true where a cell shall be framed; none if there are no such cells.
        parts: the stretches that the time axis is divided into, by name the time steps of each; none if it is whole.
    """

    title: str
    labels: Sequence[Sequence[str]]
    real: npt.NDArray[np.bool_]
    wrong: npt.NDArray[np.bool_] | None = None
    parts: Mapping[str, int] = field(default_factory=dict)

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
        parts: Mapping[str, int] | None = None,
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
            parts: as above, such as `{"past": 4, "future": 3}`.

        Raises:
            ValueError: `x` is not a small padded batch, the lengths or the parts do not fit it, or there is no such
                side.
        """
        one_of("padding_side", padding_side, ("right", "left"))
        first = bool(batch_first)
        values = _grid(x, "x", first)
        real = _mask(lengths, values.shape, first, padding_side)
        batch_is_first(batch_first, values.shape)
        if parts and sum(parts.values()) != values.shape[1]:
            raise ValueError(f"parts have {sum(parts.values())} time steps in all, x has {values.shape[1]}")
        labels = [[_label(v) for v in row] for row in values.tolist()]
        wrong = None if like is None else values != _grid(like, "like", first)
        return cls(title, labels, real, wrong, dict(parts or {}))

    def to_text(self) -> str:
        """The batch in words, a line per sequence: `·` before padding, `!` before a cell that is framed."""
        marked = [[self._marks(b, t) + label for t, label in enumerate(row)] for b, row in enumerate(self.labels)]
        width = max(len(cell) for row in marked for cell in row)
        legend = "· marks padding" + (", ! a wrong cell" if self.wrong is not None and self.wrong.any() else "")
        lines = [f"{self.title or 'padded batch'} ({legend})"]
        if self.parts:
            parts = (f"{name}: {text.count(steps, 'time step')}" for name, steps in self.parts.items())
            lines.append(f"    {', then '.join(parts)}")
        for b, row in enumerate(marked):
            words = ["| " * (t in self._borders) + cell.rjust(width) for t, cell in enumerate(row)]
            lines.append(f" {sequence_name(b)}  " + " ".join(words))
        return "\n".join(lines)

    def sheet(self, theme: str) -> Sheet:
        """The batch, a row for each sequence."""
        return beside([self], theme)

    @property
    def head(self) -> float:
        """The room above its rows, in px."""
        return _TOP + 18 * bool(self.parts)

    @property
    def _borders(self) -> list[int]:
        """The first time step of each part but the first."""
        return [*accumulate(self.parts.values())][:-1]

    def _marks(self, b: int, t: int) -> str:
        return ("!" if self.is_wrong(b, t) else "") + ("" if self.real[b, t] else "·")

    def is_wrong(self, b: int, t: int) -> bool:
        """Whether this cell is framed."""
        return self.wrong is not None and bool(self.wrong[b, t])


def beside(batches: Sequence[Aligned], theme: str) -> Sheet:
    """Draws batches beside each other as they fit."""
    sheet = Sheet(theme, "\n\n".join(batch.to_text() for batch in batches))
    x = y = below = right = 0.0
    for batch in batches:
        cell = max(26.0, 8 + max(width_of(label) for row in batch.labels for label in row))
        width = max(_MARGIN + cell * batch.real.shape[1], width_of(batch.title)) + 24
        if x and x + width > _WIDTH:
            x, y, below = 0.0, y + below, 0.0
        _batch(sheet, batch, 4 + x, y, cell)
        x, below = x + width, max(below, batch.head + _HEIGHT * len(batch.labels) + 14)
        right = max(right, x)
    sheet.size(max(right, 300), y + below)
    return sheet


def _batch(sheet: Sheet, batch: Aligned, x: float, y: float, cell: float) -> None:
    left, top, muted = x + _MARGIN, y + batch.head, sheet.colours.muted
    sheet.text(x, y + 15, batch.title, bold=True)
    sheet.text(left - 5, top - 7, "t =", anchor="end", size=11, ink=muted)
    for t in range(batch.real.shape[1]):
        sheet.text(left + (t + 0.5) * cell, top - 7, str(t), anchor="middle", size=11, ink=muted)
    for b, row in enumerate(batch.labels):
        sheet.text(x + 2, top + (b + 0.5) * _HEIGHT + 4, sequence_name(b), bold=True)
        for t, label in enumerate(row):
            fill = palette.sequence_colour(b) if batch.real[b, t] else HATCHED
            sheet.cell(left + t * cell, top + b * _HEIGHT, cell, _HEIGHT, fill, label)
    for start, (name, steps) in zip([0, *batch._borders], batch.parts.items(), strict=False):
        border, foot = left + start * cell, top + len(batch.labels) * _HEIGHT + 8
        sheet.text(border + steps / 2 * cell, y + 32, name, anchor="middle", bold=True)
        if start:
            sheet.line([(border, y + 22), (border, foot)], sheet.colours.accent, width=3)
    framed = np.argwhere(batch.wrong).tolist() if batch.wrong is not None else []
    for stroke, thick in ((sheet.colours.ground, 6), (sheet.colours.wrong, 3)):  # a rim parts the frame from any fill
        sheet.layer()
        for b, t in framed:
            sheet.box(left + t * cell, top + b * _HEIGHT, cell, _HEIGHT, stroke=stroke, thick=thick)


def _grid(values: Any, name: str, batch_first: bool) -> npt.NDArray[Any]:
    array = np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)
    if array.ndim != 2:
        raise ValueError(f"{name} must be {order(batch_first, '')}, one number per cell, got shape {array.shape}")
    if max(array.shape) > FEW:
        raise ValueError(f"{name} has shape {array.shape}; up to {FEW} sequences of {FEW} time steps can be drawn")
    return array if batch_first else array.T


def _mask(lengths: Any, shape: tuple[int, ...], batch_first: bool, padding_side: str) -> npt.NDArray[np.bool_]:
    if getattr(lengths, "ndim", 1) == 2:
        mask = np.asarray(lengths.cpu() if hasattr(lengths, "cpu") else lengths)
        if mask.shape != shape or mask.dtype != np.bool_:
            raise ValueError(f"a mask must hold booleans of shape {shape}, got {mask.dtype} of shape {mask.shape}")
        if padding_side != "right":
            raise ValueError(f"padding_side is {padding_side!r}, but a mask shows where the padding is: leave it out")
        return mask
    real = Layout.from_padded(shape if batch_first else shape[::-1], lengths, batch_first).mask
    return real if padding_side == "right" else real[:, ::-1]


def _label(value: Any) -> str:
    """Whole numbers as they are, others to two digits."""
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, float) and not value.is_integer():
        return f"{value:.2g}"
    return str(int(value)) if isinstance(value, (int, float)) else str(value)
