"""Draws grids of the differences between two results, and describes them as text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from packviz.core.layout import BoolArray, IntArray
from packviz.draw.grid import (
    LEFT_MARGIN,
    ROW_HEIGHT,
    Cell,
    CellTable,
    choose_row_stride,
    join_equal_cells,
)
from packviz.draw.palette import DIFFERENCE_FILLS, THEMES
from packviz.draw.sheet import HATCHED, WIDTH, Sheet, row
from packviz.draw.text import MAX_LISTED, format_share, short_share, table

_CELL_WIDTH = 38.0  # px: the width of a cell with a number
_GRID_GAP = 16  # px: the space between grids, whose headings may be wide
_MAX_CELL_SIZE = 20.0  # px: the largest side of a cell in a large grid
_MAX_ROWS_HEIGHT = 260  # px: the largest total height of the rows of a large grid

FILL_MEANINGS = ("up to 1 %", "up to 10 %", "more", "NaN")
"""The meanings of `palette.DIFFERENCE_FILLS`: shares of the largest value, and NaN."""


@dataclass(frozen=True, eq=False)
class Differences:
    """A grid of differences, each shown as a share of the largest packed value in its row.

    Attributes:
        title: the title above the grid.
        rows: `(R,)` the names of the rows.
        columns: `(C,)` the names of the columns.
        values: `(R, C)` the absolute differences, which may contain NaN.
        differs: `(R, C)` booleans, True where a difference is more than a rounding error.
        scale: `(R,)` the largest packed value of each row, or one number for all rows.
        padding: `(R, C)` booleans, True at padding, which is hatched and never coloured; `None` if
            there is no padding.
    """

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    values: np.ndarray
    differs: BoolArray
    scale: np.ndarray | float
    padding: BoolArray | None = None

    def to_text(self) -> list[str]:
        """Returns lines of text, with the share of each value that differs.

        Values that agree are `=`, and padding is in brackets.
        """
        rows = [["", *self.columns]]
        for r, name in enumerate(self.rows):
            cells = []
            for c, differs in enumerate(self.differs[r]):
                cell = format_share(self.relative_differences[r, c]) if differs else "="
                if self.is_padding[r, c]:
                    cell = f"[{cell}]"
                cells.append(cell)
            rows.append([name, *cells])
        chars_per_column = max(7, *map(len, self.columns))
        padding = "" if self.padding is None else ", [ ] padding"
        heading = f"{self.title}  (in % of the row's largest packed value; = agrees{padding})"
        return [heading, *table(rows, f" >2 >{chars_per_column}")]

    def sheet(self, theme: str) -> Sheet:
        """Draws the grid.

        A small grid has shares in its cells. In a large grid, a line runs through each cell with a
        difference.
        """
        n_rows, n_columns = self.values.shape
        cell_width = _CELL_WIDTH
        row_height = ROW_HEIGHT
        title = self.title
        is_small = max(n_rows, n_columns) <= MAX_LISTED
        drawn_row_stride = choose_row_stride(n_rows, _MAX_ROWS_HEIGHT)
        drawn_rows = range(0, n_rows, drawn_row_stride)
        if not is_small:
            cell_width = min(_MAX_CELL_SIZE, (WIDTH - LEFT_MARGIN - 8) / n_columns)
            row_height = min(_MAX_CELL_SIZE, _MAX_ROWS_HEIGHT / len(drawn_rows))
        if drawn_row_stride > 1:
            title += f", one in {drawn_row_stride} of {n_rows:,} rows"
        names = [self.rows[r] for r in drawn_rows]
        background = THEMES[theme].ground
        cells = [self._row_cells(r, is_small, background) for r in drawn_rows]
        axis = "layer" if self.padding is None else "t ="
        cell_table = CellTable(
            title,
            names,
            self.columns,
            cells,
            axis,
            cell_width=cell_width,
            row_height=row_height,
            font_size=11,
        )
        return cell_table.sheet(theme, self.title)

    def _row_cells(self, r: int, is_small: bool, background: str) -> list[Cell]:
        """Returns the cells of a row. In a large grid, adjacent cells that look alike are one."""
        cells = []
        for c, shade_index in enumerate(self.shade_indices[r]):
            is_padding = self.is_padding[r, c]
            is_shaded = bool(shade_index >= 0)
            fill = DIFFERENCE_FILLS[shade_index] if is_shaded else background
            label = "" if is_padding else "="
            if self.differs[r, c]:
                label = short_share(self.relative_differences[r, c])
            if is_padding:
                fill = HATCHED
            cells.append(Cell(fill, label if is_small else "", bold=is_shaded))
        if is_small:
            return cells
        return join_equal_cells(cells)

    @cached_property
    def is_padding(self) -> BoolArray:
        """`(R, C)` Booleans that are True at padding."""
        return np.zeros_like(self.differs) if self.padding is None else self.padding

    @cached_property
    def relative_differences(self) -> np.ndarray:
        """`(R, C)` The differences, each as a share of the largest packed value in its row."""
        values = self.values
        scale = np.broadcast_to(self.scale, len(self.rows))
        scale = scale[:, None]
        relative_differences = np.where(np.isnan(values), math.nan, math.inf)  # if the scale is 0
        np.divide(values, scale, out=relative_differences, where=scale != 0)
        return relative_differences

    @cached_property
    def shade_indices(self) -> IntArray:
        """`(R, C)` The index of each cell's fill in `DIFFERENCE_FILLS`; -1 if it has none."""
        shade_indices: IntArray = np.digitize(self.relative_differences, (0.01, 0.1), right=True)
        shade_indices[~np.isfinite(self.values)] = 3
        shade_indices[~self.differs] = -1
        shade_indices[self.is_padding] = -1
        return shade_indices


def draw(differences: Sequence[Differences], title: str, theme: str) -> Sheet:
    """Draws grids between a title and a key, side by side if they fit.

    Args:
        differences: the grids.
        title: the title, which is also the text for a screen reader.
        theme: the name of the theme, one of the keys in `palette.THEMES`.
    """
    sheet = Sheet(theme, title)
    grids_sheet = row([grid.sheet(theme) for grid in differences], theme, _GRID_GAP, WIDTH)
    y = sheet.title(title)
    sheet.place(grids_sheet, 0, y + 8)
    y = sheet.height + 4
    other_legend_entries = [(sheet.colours.ground, "= agrees"), (HATCHED, "padding")]
    x = sheet.legend(y, other_legend_entries)
    sheet.text(x, y + 10, "difference in % of the row's largest packed value:")
    sheet.legend(y + 20, zip(DIFFERENCE_FILLS, FILL_MEANINGS, strict=True))
    sheet.set_size(max(WIDTH, grids_sheet.width), y + 46)
    return sheet
