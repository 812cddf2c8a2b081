"""Grids of differences, drawn and as text. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from textwrap import wrap
from typing import Any

import numpy as np
import numpy.typing as npt

from packviz.draw import palette
from packviz.draw.sheet import HATCHED, Sheet, n, width_of
from packviz.draw.text import FEW, share, short_share, table

_WIDTH = 900.0  # px: a JupyterLab cell
_MARGIN = 36.0  # px: left of a grid, for the names of its rows
_TOP = 44.0  # px: a grid's title and its columns' names
_CELL, _STATE = 31.0, 38.0  # px: the width of a cell with a number in it; of one in a grid of few columns
_TALL = 260  # px: the most that the rows of a large grid take

SHADES = ("#f7d9b0", "#e08a3c", "#b3402a", "#5b2a86")
"""The fills of valid cells that differ: by up to 1 %, up to 10 %, more, and NaN or infinity."""

SAID = ("up to 1 %", "up to 10 %", "more", "NaN")
"""What the shades stand for: the difference as a share of the largest value."""


@dataclass(frozen=True, eq=False)
class Grid:
    """Differences with a row per sequence, drawn and said as shares of the largest value.

    Attributes:
        title: what differs.
        rows: `(R,)` the names of the rows.
        columns: `(C,)` the names of the columns.
        values: `(R, C)` absolute differences; NaN where they are not numbers.
        differs: `(R, C)` whether each is more than rounding.
        scale: `(R,)` or one for all: the largest value compared with.
        padding: `(R, C)` the cells that are padding, hatched and never lit up; none if there are no such cells.
    """

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    values: npt.NDArray[Any]
    differs: npt.NDArray[np.bool_]
    scale: npt.NDArray[Any] | float
    padding: npt.NDArray[np.bool_] | None = None

    def to_text(self) -> list[str]:
        """The grid in lines: `=` where it agrees, a share where not, in brackets at padding."""
        rows = [["", *self.columns]]
        for r, name in enumerate(self.rows):
            rows.append([name])
            for c in range(len(self.columns)):
                cell = share(self.shares[r, c]) if self.differs[r, c] else "="
                rows[-1].append(f"[{cell}]" if self.is_padding(r, c) else cell)
        width = max(7, *map(len, self.columns))
        padding = ", [ ] padding" if self.padding is not None else ""
        head = f"{self.title}  (in % of the row's largest value; = agrees{padding})"
        return [head, *table(rows, f" >2 >{width}")]

    def is_padding(self, r: int, c: int) -> bool:
        """Whether this cell is padding."""
        return self.padding is not None and bool(self.padding[r, c])

    def shade(self, r: int, c: int) -> int | None:
        """The index in `SHADES` of a valid cell that differs; none for the others."""
        shade = int(self._shades[r, c])
        return None if shade < 0 else shade

    @cached_property
    def shares(self) -> npt.NDArray[np.float64]:
        """`(R, C)` the differences as shares of the largest value of their row."""
        scale = np.broadcast_to(self.scale, len(self.rows))[:, None]
        beyond = np.where(np.isnan(self.values), math.nan, math.inf)
        shares: npt.NDArray[np.float64] = np.divide(self.values, scale, out=beyond, where=scale != 0)
        return shares

    @cached_property
    def _shades(self) -> npt.NDArray[np.int64]:
        """All shades at once; -1 where there is none."""
        shades: npt.NDArray[np.int64] = np.digitize(self.shares, (0.01, 0.1), right=True)
        shades[~np.isfinite(self.values)] = 3
        shades[~self.differs if self.padding is None else ~self.differs | self.padding] = -1
        return shades


def draw(drawn: Sequence[Grid], title: str, theme: str) -> Sheet:
    """Draws the grids side by side as they fit, beneath a line of text, above the key.

    Args:
        drawn: the grids.
        title: what they show; also what a screen reader says.
        theme: `"light"`, `"dark"` or `"live"`.
    """
    sheet = Sheet(theme, title)
    x, y, below = 4.0, sheet.paragraph(4, 4, wrap(title, 118)) + 8, 0.0
    for grid in map(_thinned, drawn):
        width, height = _size(grid)
        if x > 4 and x + width > _WIDTH:
            x, y, below = 4.0, y + below, 0.0
        sheet.layer()
        _draw(sheet, grid, x, y)
        x, below = x + width + 14, max(below, height)
    sheet.layer()
    _key(sheet, y + below + 4)
    sheet.size(_WIDTH, y + below + 30)
    return sheet


def _thinned(grid: Grid) -> Grid:
    """The grid with no more rows than can be drawn: each then stands for several, and shows the worst of them."""
    each = -(-len(grid.rows) // _TALL)
    if each == 1:
        return grid
    starts = np.arange(0, len(grid.rows), each)
    real = np.ones_like(grid.differs) if grid.padding is None else ~grid.padding
    values = np.maximum.reduceat(np.where(real, grid.values, 0.0), starts)
    differs = np.logical_or.reduceat(real & grid.differs, starts)
    scale = np.minimum.reduceat(np.broadcast_to(grid.scale, len(grid.rows)), starts)
    padding = None if grid.padding is None else np.logical_and.reduceat(grid.padding, starts)
    title = f"{grid.title}; a row is the worst of {each} sequences"
    return Grid(title, [grid.rows[i] for i in starts.tolist()], grid.columns, values, differs, scale, padding)


def _size(grid: Grid) -> tuple[float, float]:
    """The room a grid takes, its title and its key not cut."""
    width, height, _ = _cell(grid)
    across = max(_MARGIN + width * len(grid.columns), width_of(grid.title))
    return across, _TOP + height * len(grid.rows) + 16


def _cell(grid: Grid) -> tuple[float, float, bool]:
    """The width and height of a cell, and whether a number stands in it."""
    rows, columns = len(grid.rows), len(grid.columns)
    few = rows <= FEW and columns <= FEW
    if few:
        return (_STATE if grid.padding is None else _CELL), 22.0, True
    width = min(_STATE, 420 / columns) if grid.padding is None else min(20.0, (_WIDTH - _MARGIN - 8) / columns)
    return width, min(20.0, max(_TALL / rows, 0.5)), False


def _draw(sheet: Sheet, grid: Grid, x: float, y: float) -> None:
    width, height, few = _cell(grid)
    left, top = x + _MARGIN, y + _TOP
    sheet.text(x, y + 16, grid.title, bold=True)
    _names(sheet, grid, left, top)
    struck = ""
    for r in range(len(grid.rows)):
        for c, length, kind in _stretches(grid, r, few):
            fill = {"=": sheet.colours.ground, "#": HATCHED}.get(kind) or SHADES[int(kind)]
            shaded, place = kind not in "=#", (left + c * width, top + r * height, length * width, height)
            if few:
                said = short_share(grid.shares[r, c]) if grid.differs[r, c] else "=" * (kind == "=")
                ink = palette.ink_on(fill) if shaded else sheet.colours.muted
                sheet.cell(*place, fill, said, size=11, bold=shaded, ink=ink)
                continue
            sheet.cell(*place, fill)
            if shaded:
                struck += f"M{n(place[0])} {n(place[1] + height / 2)}h{n(place[2])}"
    if struck:  # a mark that needs no colour, where there is no room for a number
        sheet.path(struck, stroke="#000000", width=min(1.5, height / 8))
    sheet.box(left, top, width * len(grid.columns), height * len(grid.rows), thick=1)


def _names(sheet: Sheet, grid: Grid, left: float, top: float) -> None:
    """The columns' and the rows' names, as many as have room."""
    (width, height, _), muted = _cell(grid), sheet.colours.muted
    what = "t =" if grid.padding is not None else "layer"
    sheet.text(left - 6, top - 7, what, anchor="end", size=11, ink=muted)
    for c in range(0, len(grid.columns), math.ceil(30 / width)):
        sheet.text(left + (c + 0.5) * width, top - 7, grid.columns[c], anchor="middle", size=11, ink=muted)
    for r in range(0, len(grid.rows), math.ceil(13 / height)):
        y = top + r * height + (height / 2 + 4 if height >= 12 else 9)
        sheet.text(left - 8, y, grid.rows[r], anchor="end")


def _key(sheet: Sheet, y: float) -> None:
    """What the fills mean."""
    words = "differs, as a share of the row's largest value:"
    x = sheet.key(4, y, [(sheet.colours.ground, "= agrees"), (HATCHED, "padding")])
    sheet.text(x, y + 10, words)
    sheet.key(x + width_of(words) + 8, y, zip(SHADES, SAID, strict=True))


def _stretches(grid: Grid, r: int, few: bool) -> list[tuple[int, int, str]]:
    """The row as (column, length, kind): kind is `=`, `#` for padding, or the index of a shade."""
    shades = [grid.shade(r, c) for c in range(len(grid.columns))]
    kinds = ["#" if grid.is_padding(r, c) else "=" if s is None else str(s) for c, s in enumerate(shades)]
    runs = [list(run) for _, run in groupby(range(len(kinds)), key=lambda c: c if few else kinds[c])]
    return [(run[0], len(run), kinds[run[0]]) for run in runs]
