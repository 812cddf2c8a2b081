"""Draws grids of the differences between two results, and describes them as text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, groupby
from textwrap import wrap
from typing import Any

import numpy as np
import numpy.typing as npt

from packviz.draw import palette
from packviz.draw.cellgrid import LEFT, TALL, WIDTH, Cell, CellGrid, stride
from packviz.draw.sheet import HATCHED, Sheet, n, row, width_of
from packviz.draw.text import FEW, share, short_share, table

_CELL = 38.0  # px: the width of a cell with a number
_MOST = 260  # px: the largest total height of the rows of a large grid

BANDS = ("up to 1 %", "up to 10 %", "more", "NaN")
"""The meanings of the colours in `palette.SHADES`. All but the last are ranges of shares of the largest value."""


@dataclass(frozen=True, eq=False)
class Grid:
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
    values: npt.NDArray[Any]
    differs: npt.NDArray[np.bool_]
    scale: npt.NDArray[Any] | float
    padding: npt.NDArray[np.bool_] | None = None

    def to_text(self) -> list[str]:
        """Returns lines of text, with `=` where values agree, shares where they differ, and brackets around padding."""
        rows = [["", *self.columns]]
        for r, name in enumerate(self.rows):
            cells = [
                share(s) if d else "=" for s, d in zip(self.shares[r], self.differs[r], strict=True)
            ]
            rows.append(
                [
                    name,
                    *(
                        f"[{cell}]" if p else cell
                        for cell, p in zip(cells, self._hatched[r], strict=True)
                    ),
                ]
            )
        width = max(7, *map(len, self.columns))
        padding = ", [ ] padding" if self.padding is not None else ""
        head = f"{self.title}  (in % of the row's largest packed value; = agrees{padding})"
        return [head, *table(rows, f" >2 >{width}")]

    def sheet(self, theme: str) -> Sheet:
        """Draws the grid.

        A small grid has shares in its cells. In a large grid, a line runs through each cell with a
        difference.
        """
        sheet, (many, columns) = Sheet(theme, self.title), self.values.shape
        few, each = max(many, columns) <= FEW, stride(many, _MOST)
        rows = range(0, many, each)
        wide, tall = min(20.0, (WIDTH - LEFT - 8) / columns), min(20.0, _MOST / len(rows))
        grid = CellGrid(
            sheet, len(rows), columns, _CELL if few else wide, TALL if few else tall, size=11
        )
        sheet.title(self.title + (f", one in {each} of {many:,} rows" if each > 1 else ""))
        grid.heads(self.columns, "layer" if self.padding is None else "t =")
        grid.names([self.rows[r] for r in rows])
        cells = [self._cells(r, few, sheet.colours.ground) for r in rows]
        grid.draw(cells)
        struck = ""
        for r, drawn in enumerate(
            cells if not few else ()
        ):  # a mark that is visible without colour and takes no space
            for c, cell in zip(
                accumulate((cell.span for cell in drawn), initial=0), drawn, strict=False
            ):
                if cell.bold:
                    struck += f"M{n(grid.x(c))} {n(grid.y(r + 0.5))}h{n(cell.span * wide)}"
        sheet.path(struck, stroke="#000000", width=min(1.5, tall / 8))
        sheet.box(grid.left, grid.top, grid.right - grid.left, grid.foot - grid.top, thick=1)
        return sheet

    def _cells(self, r: int, few: bool, ground: str) -> list[Cell]:
        """Returns the cells of a row. In a large grid, adjacent cells that look alike are merged into one."""
        fills, cells = (*palette.SHADES, ground), []
        for c, (shade, padding) in enumerate(zip(self._shades[r], self._hatched[r], strict=True)):
            label = short_share(self.shares[r, c]) if self.differs[r, c] else "" if padding else "="
            cells.append(
                Cell(
                    HATCHED if padding else fills[shade],
                    label if few else "",
                    bold=bool(shade >= 0),
                )
            )
        return (
            cells if few else [cell._replace(span=len([*alike])) for cell, alike in groupby(cells)]
        )

    @property
    def _hatched(self) -> npt.NDArray[np.bool_]:
        return np.zeros_like(self.differs) if self.padding is None else self.padding

    @cached_property
    def shares(self) -> npt.NDArray[np.float64]:
        """`(R, C)` The differences, each as a share of the largest packed value in its row."""
        scale = np.broadcast_to(self.scale, len(self.rows))[:, None]
        beyond = np.where(np.isnan(self.values), math.nan, math.inf)
        shares: npt.NDArray[np.float64] = np.divide(
            self.values, scale, out=beyond, where=scale != 0
        )
        return shares

    @cached_property
    def _shades(self) -> npt.NDArray[np.int64]:
        """`(R, C)` The index of each cell's shade in `palette.SHADES`, or -1 for a cell without a shade."""
        shades: npt.NDArray[np.int64] = np.digitize(self.shares, (0.01, 0.1), right=True)
        shades[~np.isfinite(self.values)] = 3
        shades[~self.differs | self._hatched] = -1
        return shades


def draw(drawn: Sequence[Grid], title: str, theme: str) -> Sheet:
    """Draws grids between a title and a key, side by side if there is enough room.

    Args:
        drawn: the grids.
        title: the title, which is also the text for a screen reader.
        theme: the name of the theme, one of the keys in `palette.THEMES`.
    """
    sheet, words = Sheet(theme, title), "difference in % of the row's largest packed value:"
    grids = row([grid.sheet(theme) for grid in drawn], theme, 6, WIDTH)
    sheet.place(grids, 0, sheet.paragraph(4, 4, wrap(title, 118)) + 8)
    y = sheet.height + 4
    x = sheet.key(4, y, [(sheet.colours.ground, "= agrees"), (HATCHED, "padding")])
    sheet.text(x, y + 10, words)
    sheet.key(x + width_of(words) + 8, y, zip(palette.SHADES, BANDS, strict=True))
    sheet.size(WIDTH, y + 26)
    return sheet
