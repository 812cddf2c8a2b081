"""Draws what the backward pass of torch's `pad_packed_sequence` writes, cell by cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from packviz.core.layout import Layout
from packviz.draw.bars import Bar, rows
from packviz.draw.drawing import Drawing
from packviz.draw.grid import Cell, Grid
from packviz.draw.palette import REAL, sequence_colour
from packviz.draw.sheet import HATCHED, Sheet
from packviz.draw.text import count

_PADDED = 120.0  # px: the left edge of the padded gradients
_PACKED = 320.0  # px: the left edge of the packed gradients
_WIDTH = 310.0  # px: the width of a packed gradient
_WRITTEN = 690.0  # px: the right edge of the numbers
_KEY = [(REAL, "needed"), (HATCHED, "written, but not needed")]


@dataclass(frozen=True)
class Copies(Drawing):
    """The tensors that a backward pass writes for each distinct length, and the slices it needs.

    Attributes:
        layout: the layout of the batch, whose sequences are sorted, longest first.
        written: `(D,)` the number of cells that are written for each distinct length, longest
            first.
        indexed: the number of cells that are written with an index.
    """

    layout: Layout
    written: Sequence[int]
    indexed: int

    @property
    def total(self) -> int:
        """The number of cells that are written for all distinct lengths."""
        return sum(self.written)

    @property
    def slices(self) -> list[tuple[int, int]]:
        """The first step of each distinct length's slice and the step after it, longest first."""
        ends = sorted({0, *self.layout.lengths.tolist()})
        return [*pairwise(ends)][::-1]

    def summary(self) -> str:
        """Returns the counts in a sentence."""
        distinct = count(len(self.written), "distinct length")
        return (
            f"With {distinct}, pad's backward pass writes {self.total:,} cells to hand back"
            f" {self.layout.n_real:,} gradients. Padding by one index writes {self.indexed:,}."
        )

    def to_text(self) -> str:
        """Returns the summary, and a line for each distinct length."""
        lines = [self.summary()]
        for (start, end), cells in zip(self.slices, self.written, strict=False):
            steps = count(end - start, "step")
            slice_ = f"the slice of {steps} from t = {start}"
            lines.append(f"length {end}: {cells:,} cells, for {slice_}")
        return "\n".join(lines)

    def sheet(self, theme: str) -> Sheet:
        """Draws a padded and a packed gradient for each distinct length, and bars of the counts."""
        sheet = Sheet(theme, self.to_text())
        needed = self.layout.n_real
        y = sheet.title(f"To hand back {needed:,} gradients, pad writes {self.total:,} cells")
        sheet.note(_PADDED, y + 16, "copies the padded gradient")
        sheet.note(_PACKED, y + 16, "fills a packed tensor (and adds it to the others)")
        sheet.note(_WRITTEN, y + 16, "cells written", "end")
        y += 24
        for (start, end), cells in zip(self.slices, self.written, strict=False):
            y = self._draw_slice(sheet, start, end, cells, y)
        group = {}
        for name, cells in {"torch": self.total, "one index": self.indexed}.items():
            parts = [(needed, REAL), (cells - needed, HATCHED)]
            group[name] = Bar(parts, f"{cells:,}")
        sheet.place(rows("", {"": group}, theme, key=_KEY), 0, y - 8)
        sheet.size(sheet.width - 8, sheet.height)  # the bars have a margin already
        return sheet

    def _draw_slice(self, sheet: Sheet, start: int, end: int, cells: int, y: float) -> float:
        """Draws one distinct length's tensors from `y` downwards, and returns the y below them."""
        layout = self.layout
        padded = Grid(sheet, layout.batch_size, layout.max_len, 20, 9, _PADDED, y)
        steps = range(layout.max_len)
        cells_of = []
        for b, length in enumerate(layout.lengths):
            colour = sequence_colour(b)
            cells_of.append(
                [Cell(colour if start <= t < end <= length else HATCHED) for t in steps]
            )
        packed = [cells_of[b][t] for b, t in layout.source]
        padded.draw(cells_of)
        middle = (y + padded.foot) / 2
        wide = _WIDTH / layout.n_real
        Grid(sheet, 1, len(packed), wide, 18, _PACKED, middle - 9).draw([packed])
        sheet.text(4, middle, f"length {end}", bold=True)
        last = f" to {end - 1}" if end > start + 1 else ""
        sheet.note(4, middle + 15, f"t = {start}{last}")
        sheet.text(_PACKED - 28, middle + 4, "→")
        sheet.text(_WRITTEN, middle + 4, f"{cells:,}", anchor="end", bold=True)
        return padded.foot + 14
