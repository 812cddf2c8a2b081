"""Draws grids of the differences between two results, and describes them as text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from packviz.core.layout import BoolArray, IntArray
from packviz.draw.grid import LEFT, TALL, Cell, CellTable, joined, stride
from packviz.draw.palette import SHADES, THEMES
from packviz.draw.sheet import HATCHED, WIDTH, Sheet, row
from packviz.draw.text import FEW, share, short_share, table

_CELL = 38.0  # px: the width of a cell with a number
_BETWEEN = 16  # px: the space between grids, whose headings may be wide
_LARGEST = 20.0  # px: the largest side of a cell in a large grid
_MOST = 260  # px: the largest total height of the rows of a large grid

BANDS = ("up to 1 %", "up to 10 %", "more", "NaN")
"""The meanings of the colours in `palette.SHADES`: shares of the largest value, and NaN."""


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
                cell = share(self.shares[r, c]) if differs else "="
                if self.hidden[r, c]:
                    cell = f"[{cell}]"
                cells.append(cell)
            rows.append([name, *cells])
        width = max(7, *map(len, self.columns))
        padding = "" if self.padding is None else ", [ ] padding"
        head = f"{self.title}  (in % of the row's largest packed value; = agrees{padding})"
        return [head, *table(rows, f" >2 >{width}")]

    def sheet(self, theme: str) -> Sheet:
        """Draws the grid.

        A small grid has shares in its cells. In a large grid, a line runs through each cell with a
        difference.
        """
        rows, columns = self.values.shape
        wide = _CELL
        tall = TALL
        title = self.title
        few = max(rows, columns) <= FEW
        step = stride(rows, _MOST)
        shown = range(0, rows, step)
        if not few:
            wide = min(_LARGEST, (WIDTH - LEFT - 8) / columns)
            tall = min(_LARGEST, _MOST / len(shown))
        if step > 1:
            title += f", one in {step} of {rows:,} rows"
        names = [self.rows[r] for r in shown]
        ground = THEMES[theme].ground
        cells = [self._cells(r, few, ground) for r in shown]
        axis = "layer" if self.padding is None else "t ="
        drawn = CellTable(title, names, self.columns, cells, axis, wide=wide, tall=tall, size=11)
        return drawn.sheet(theme, self.title)

    def _cells(self, r: int, few: bool, ground: str) -> list[Cell]:
        """Returns the cells of a row. In a large grid, adjacent cells that look alike are one."""
        cells = []
        for c, shade in enumerate(self.shades[r]):
            padding = self.hidden[r, c]
            fill = SHADES[shade] if shade >= 0 else ground
            label = "" if padding else "="
            if self.differs[r, c]:
                label = short_share(self.shares[r, c])
            if padding:
                fill = HATCHED
            marked = bool(shade >= 0)
            cells.append(Cell(fill, label if few else "", bold=marked))
        if few:
            return cells
        return joined(cells)

    @cached_property
    def hidden(self) -> BoolArray:
        """`(R, C)` Booleans that are True at padding."""
        return np.zeros_like(self.differs) if self.padding is None else self.padding

    @cached_property
    def shares(self) -> np.ndarray:
        """`(R, C)` The differences, each as a share of the largest packed value in its row."""
        values = self.values
        scale = np.broadcast_to(self.scale, len(self.rows))
        scale = scale[:, None]
        shares = np.where(np.isnan(values), math.nan, math.inf)  # if the scale is 0
        np.divide(values, scale, out=shares, where=scale != 0)
        return shares

    @cached_property
    def shades(self) -> IntArray:
        """`(R, C)` The index of each cell's colour in `palette.SHADES`; -1 if it has none."""
        shades: IntArray = np.digitize(self.shares, (0.01, 0.1), right=True)
        shades[~np.isfinite(self.values)] = 3
        shades[~self.differs] = -1
        shades[self.hidden] = -1
        return shades


def draw(differences: Sequence[Differences], title: str, theme: str) -> Sheet:
    """Draws grids between a title and a key, side by side if they fit.

    Args:
        differences: the grids.
        title: the title, which is also the text for a screen reader.
        theme: the name of the theme, one of the keys in `palette.THEMES`.
    """
    sheet = Sheet(theme, title)
    words = "difference in % of the row's largest packed value:"
    grids = row([each.sheet(theme) for each in differences], theme, _BETWEEN, WIDTH)
    y = sheet.title(title)
    sheet.place(grids, 0, y + 8)
    y = sheet.height + 4
    others = [(sheet.colours.ground, "= agrees"), (HATCHED, "padding")]
    x = sheet.key(y, others)
    sheet.text(x, y + 10, words)
    sheet.key(y + 20, zip(SHADES, BANDS, strict=True))
    sheet.size(max(WIDTH, grids.width), y + 46)
    return sheet
