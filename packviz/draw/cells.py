"""A padded batch drawn cell by cell, with its padding on either side: as SVG and as text."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from packviz.core.layout import Layout, sequence_name
from packviz.core.padded import order
from packviz.draw import layouts as svg
from packviz.draw import palette
from packviz.draw.drawn import Drawn
from packviz.draw.layouts import element, escape
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
    """

    title: str
    labels: Sequence[Sequence[str]]
    real: npt.NDArray[np.bool_]
    wrong: npt.NDArray[np.bool_] | None = None

    @classmethod
    def of(
        cls, x: Any, lengths: Any, side: str = "left", title: str = "", batch_first: bool = False, like: Any = None
    ) -> Aligned:
        """Draws a padded batch of numbers.

        Args:
            x: `(T, B)`, or `(B, T)` with `batch_first`: a tensor or an array, at most 16 × 16.
            lengths: `(B,)` the real time steps of each sequence; or `(B, T)` a mask, true at real cells.
            side: where the lengths lie: `"left"` (padding at the end) or `"right"` (padding at the start).
            title: what it is.
            batch_first: whether the batch is the first dimension of `x`, as in torch.
            like: what `x` should be, of the same shape; cells that differ are framed.

        Raises:
            ValueError: `x` is not a small padded batch, the lengths do not fit it, or there is no such side.
        """
        if side not in ("left", "right"):
            raise ValueError(f"side is {side!r}; choose 'left' (data first, padding at the end) or 'right'")
        values = _grid(x, "x", batch_first)
        real = _mask(lengths, values.shape, batch_first)
        real = real if side == "left" else real[:, ::-1]
        labels = [[_label(v) for v in row] for row in values.tolist()]
        return cls(title, labels, real, None if like is None else values != _grid(like, "like", batch_first))

    def to_text(self) -> str:
        """The batch in words, a line per sequence: `·` before padding, `!` before a cell that is framed."""
        marked = [[self._marks(b, t) + label for t, label in enumerate(row)] for b, row in enumerate(self.labels)]
        width = max(len(cell) for row in marked for cell in row)
        legend = "· marks padding" + (", ! a wrong cell" if self.wrong is not None and self.wrong.any() else "")
        lines = [f"{self.title or 'padded batch'} ({legend})"]
        lines += [f" {sequence_name(b)}  " + " ".join(c.rjust(width) for c in row) for b, row in enumerate(marked)]
        return "\n".join(lines)

    def to_svg(self, theme: str = "light") -> str:
        """The batch as a complete `<svg>` element."""
        return draw([self], theme)

    def _marks(self, b: int, t: int) -> str:
        return ("!" if self.is_wrong(b, t) else "") + ("" if self.real[b, t] else "·")

    def is_wrong(self, b: int, t: int) -> bool:
        """Whether this cell is framed."""
        return self.wrong is not None and bool(self.wrong[b, t])


def draw(batches: Sequence[Aligned], theme: str) -> str:
    """Draws batches beside each other as they fit, as a complete `<svg>` element."""
    colours = palette.THEMES[theme]
    said = "\n\n".join(batch.to_text() for batch in batches)
    hatch = f"packviz-{zlib.crc32((said + theme).encode()):08x}"
    body = [svg.hatch(hatch, colours)]
    x = y = below = right = 0.0
    for batch in batches:
        cell = _cell_width(batch)
        width = max(_MARGIN + cell * batch.real.shape[1], svg.CHAR * len(batch.title)) + 24
        if x and x + width > _WIDTH:
            x, y, below = 0.0, y + below, 0.0
        body += _batch(batch, 4 + x, y, cell, colours, hatch)
        x, below = x + width, max(below, _TOP + _HEIGHT * len(batch.labels) + 14)
        right = max(right, x)
    return element("".join(body), max(right, 300), y + below, said, theme)


def _batch(batch: Aligned, x: float, y: float, cell: float, colours: palette.Theme, hatch: str) -> list[str]:
    left, top = x + _MARGIN, y + _TOP
    muted = f'fill="{colours.muted}" font-size="11"'
    out = [f'<text x="{x:g}" y="{y + 15:g}" font-weight="bold">{escape(batch.title)}</text>']
    out.append(f'<text x="{left - 5:g}" y="{top - 7:g}" text-anchor="end" {muted}>t =</text>')
    fills: dict[str, list[str]] = defaultdict(list)
    frames, texts = [], []
    for t in range(batch.real.shape[1]):
        texts.append(f'<text x="{left + (t + 0.5) * cell:g}" y="{top - 7:g}" text-anchor="middle" {muted}>{t}</text>')
    for b, row in enumerate(batch.labels):
        middle = top + (b + 0.5) * _HEIGHT + 4
        texts.append(f'<text x="{x + 2:g}" y="{middle:g}" font-weight="bold">{sequence_name(b)}</text>')
        for t, label in enumerate(row):
            box = f"M{left + t * cell:g} {top + b * _HEIGHT:g}h{cell:g}v{_HEIGHT:g}h-{cell:g}z"
            fill, ink = f"url(#{hatch})", f'fill="{colours.muted}" stroke="{colours.padding}" stroke-width="4"'
            if batch.real[b, t]:
                fill = palette.sequence_colour(b)
                ink = f'fill="{palette.ink_on(fill)}"'
            else:
                ink += ' paint-order="stroke"'
            fills[fill].append(box)
            if batch.is_wrong(b, t):
                frames.append(box)
            where = f'x="{left + (t + 0.5) * cell:g}" y="{middle:g}" text-anchor="middle"'
            texts.append(f"<text {where} {ink}>{escape(label)}</text>")
    line = f'stroke="{colours.line}" stroke-width=".5"'
    out += [f'<path d="{"".join(boxes)}" fill="{fill}" {line}/>' for fill, boxes in fills.items()]
    if frames:
        out.append(f'<path d="{"".join(frames)}" fill="none" stroke="{colours.wrong}" stroke-width="3"/>')
    return out + texts


def _cell_width(batch: Aligned) -> float:
    return max(26.0, 8 + svg.CHAR * max(len(label) for row in batch.labels for label in row))


def _grid(values: Any, name: str, batch_first: bool) -> npt.NDArray[Any]:
    array = np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)
    if array.ndim != 2:
        raise ValueError(f"{name} must be {order(batch_first, '')}, one number per cell, got shape {array.shape}")
    if max(array.shape) > FEW:
        raise ValueError(f"{name} has shape {array.shape}; up to {FEW} sequences of {FEW} time steps can be drawn")
    return array if batch_first else array.T


def _mask(lengths: Any, shape: tuple[int, ...], batch_first: bool) -> npt.NDArray[np.bool_]:
    if getattr(lengths, "ndim", 1) == 2:
        mask = np.asarray(lengths.cpu() if hasattr(lengths, "cpu") else lengths)
        if mask.shape != shape or mask.dtype != np.bool_:
            raise ValueError(f"a mask must hold booleans of shape {shape}, got {mask.dtype} of shape {mask.shape}")
        return mask
    return Layout.from_padded(shape if batch_first else shape[::-1], lengths, batch_first).mask


def _label(value: Any) -> str:
    """Whole numbers as they are, others to two digits."""
    if isinstance(value, float) and not value.is_integer():
        return f"{value:.2g}"
    return str(int(value)) if isinstance(value, (int, float)) else str(value)
