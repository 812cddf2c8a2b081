"""Draws what the backward pass of torch's `pad_packed_sequence` writes, cell by cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from packviz.core.layout import Layout
from packviz.draw.bars import Bar, draw_horizontal_bars
from packviz.draw.drawing import Drawing
from packviz.draw.grid import Cell, Grid
from packviz.draw.palette import REAL, sequence_colour
from packviz.draw.sheet import HATCHED, Sheet
from packviz.draw.text import with_noun

_PADDED_LEFT = 120.0  # px: the left edge of the padded gradients
_PACKED_LEFT = 320.0  # px: the left edge of the packed gradients
_PACKED_WIDTH = 310.0  # px: the width of a packed gradient
_COUNTS_RIGHT = 690.0  # px: the right edge of the numbers
_LEGEND = [(REAL, "needed"), (HATCHED, "written, but not needed")]


@dataclass(frozen=True)
class BackwardCopies(Drawing):
    """The tensors that a backward pass writes for each distinct length, and the slices it needs.

    Attributes:
        layout: the layout of the batch, whose sequences are sorted, longest first.
        written: `(D,)` the number of cells that are written for each distinct length, longest
            first.
        n_written_by_index: the number of cells that are written with an index.
    """

    layout: Layout
    written: Sequence[int]
    n_written_by_index: int

    @property
    def total(self) -> int:
        """The number of cells that are written for all distinct lengths."""
        return sum(self.written)

    @property
    def slices(self) -> list[tuple[int, int]]:
        """The first step of each distinct length's slice and the step after it, longest first."""
        boundaries = sorted({0, *self.layout.lengths.tolist()})
        return [*pairwise(boundaries)][::-1]

    def summary(self) -> str:
        """Returns the counts in a sentence."""
        lengths_text = with_noun(len(self.written), "distinct length")
        return (
            f"With {lengths_text}, pad's backward pass writes {self.total:,} cells to hand back"
            f" {self.layout.n_real:,} gradients. Padding by one index writes"
            f" {self.n_written_by_index:,}."
        )

    def to_text(self) -> str:
        """Returns the summary, and a line for each distinct length."""
        lines = [self.summary()]
        for (start, end), n_cells in zip(self.slices, self.written, strict=False):
            steps = with_noun(end - start, "step")
            slice_words = f"the slice of {steps} from t = {start}"
            lines.append(f"length {end}: {n_cells:,} cells, for {slice_words}")
        return "\n".join(lines)

    def sheet(self, theme: str) -> Sheet:
        """Draws a padded and a packed gradient for each distinct length, and bars of the counts."""
        sheet = Sheet(theme, self.to_text())
        n_needed = self.layout.n_real
        y = sheet.title(f"To hand back {n_needed:,} gradients, pad writes {self.total:,} cells")
        sheet.note(_PADDED_LEFT, y + 16, "copies the padded gradient")
        sheet.note(_PACKED_LEFT, y + 16, "fills a packed tensor (and adds it to the others)")
        sheet.note(_COUNTS_RIGHT, y + 16, "cells written", "end")
        y += 24
        for (start, end), n_cells in zip(self.slices, self.written, strict=False):
            y = self._draw_slice(sheet, start, end, n_cells, y)
        group = {}
        for name, n_cells in {"torch": self.total, "one index": self.n_written_by_index}.items():
            parts = [(n_needed, REAL), (n_cells - n_needed, HATCHED)]
            group[name] = Bar(parts, f"{n_cells:,}")
        sheet.place(draw_horizontal_bars("", {"": group}, theme, legend=_LEGEND), 0, y - 8)
        sheet.set_size(sheet.width - 8, sheet.height)  # the bars have a margin already
        return sheet

    def _draw_slice(self, sheet: Sheet, start: int, end: int, n_cells: int, y: float) -> float:
        """Draws one distinct length's tensors from `y` downwards, and returns the y below them."""
        layout = self.layout
        padded_grid = Grid(sheet, layout.batch_size, layout.max_len, 20, 9, _PADDED_LEFT, y)
        steps = range(layout.max_len)
        cell_rows = []
        for b, length in enumerate(layout.lengths):
            colour = sequence_colour(b)
            cell_rows.append(
                [Cell(colour if start <= t < end <= length else HATCHED) for t in steps]
            )
        packed_cells = [cell_rows[b][t] for b, t in layout.source]
        padded_grid.draw(cell_rows)
        middle = (y + padded_grid.bottom) / 2
        cell_width = _PACKED_WIDTH / layout.n_real
        Grid(sheet, 1, len(packed_cells), cell_width, 18, _PACKED_LEFT, middle - 9).draw(
            [packed_cells]
        )
        sheet.text(4, middle, f"length {end}", bold=True)
        last_step_words = f" to {end - 1}" if end > start + 1 else ""
        sheet.note(4, middle + 15, f"t = {start}{last_step_words}")
        sheet.text(_PACKED_LEFT - 28, middle + 4, "→")
        sheet.text(_COUNTS_RIGHT, middle + 4, f"{n_cells:,}", anchor="end", bold=True)
        return padded_grid.bottom + 14
