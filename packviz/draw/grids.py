"""Grids of differences, as SVG strings and as text. Pure: numbers in, strings out."""

from __future__ import annotations

import math
import zlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

import numpy as np
import numpy.typing as npt

from packviz.draw import palette
from packviz.draw.layouts import CHAR, element, escape, hatch
from packviz.draw.palette import Theme
from packviz.draw.text import FEW, difference, short_difference, table

_WIDTH = 900.0  # px: a JupyterLab cell
_MARGIN = 44.0  # px: left of a grid, for the names of its rows
_TOP = 44.0  # px: a grid's title and its columns' names
_CELL, _STATE = 32.0, 38.0  # px: the width of a cell with a number in it; of one in a grid of few columns
_TALL = 260  # px: the most that the rows of a large grid take

_HATCH = "packviz-hatch"  # stands for the hatch's name until the rest is drawn

SHADES = ("#f7d9b0", "#e08a3c", "#b3402a", "#5b2a86")
"""The fills of valid cells that differ: by up to 1 %, up to 10 %, more, and NaN or infinity."""

SAID = ("up to 1 %", "up to 10 %", "more", "NaN")
"""What the shades stand for: the difference as a share of the largest value."""


@dataclass(frozen=True, eq=False)
class Grid:
    """Differences with a row per sequence.

    Attributes:
        title: what differs.
        rows: `(R,)` the names of the rows.
        columns: `(C,)` the names of the columns.
        values: `(R, C)` absolute differences; NaN where they are not numbers.
        differs: `(R, C)` whether each is more than rounding.
        scale: `(R,)` or one for all: the largest value compared with, which the shades are shares of.
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
        """The grid in lines: `=` where it agrees, a difference where not, in brackets at padding."""
        rows = [["", *self.columns]]
        for r, name in enumerate(self.rows):
            rows.append([name])
            for c in range(len(self.columns)):
                cell = difference(float(self.values[r, c])) if self.differs[r, c] else "="
                rows[-1].append(f"[{cell}]" if self.is_padding(r, c) else cell)
        width = max(7, *map(len, self.columns))
        head = f"{self.title}  (= agrees{', [ ] padding' if self.padding is not None else ''})"
        return [head, *table(rows, f" >2 >{width}")]

    def is_padding(self, r: int, c: int) -> bool:
        """Whether this cell is padding."""
        return self.padding is not None and bool(self.padding[r, c])

    def shade(self, r: int, c: int) -> int | None:
        """The index in `SHADES` of a valid cell that differs; none for the others."""
        if not self.differs[r, c] or self.is_padding(r, c):
            return None
        value = float(self.values[r, c])
        if not math.isfinite(value):
            return 3
        scale = float(np.broadcast_to(self.scale, len(self.rows))[r])
        share = value / scale if scale else math.inf
        return 0 if share <= 0.01 else 1 if share <= 0.1 else 2


def draw(drawn: Sequence[Grid], title: str, theme: str) -> str:
    """Draws the grids side by side as they fit, beneath a line of text, above the key.

    Args:
        drawn: the grids.
        title: what they show; also what a screen reader says.
        theme: `"light"`, `"dark"` or `"live"`.
    """
    colours = palette.THEMES[theme]
    drawn = [_thinned(grid) for grid in drawn]
    painter = _Painter(colours)
    lines = wrap(title, 118)
    body = [f'<text x="4" y="{16 + 17 * i}">{escape(line)}</text>' for i, line in enumerate(lines)]
    x, y, below = 4.0, 12.0 + 17 * len(lines), 0.0
    for grid in drawn:
        width, height = _size(grid)
        if x > 4 and x + width > _WIDTH:
            x, y, below = 4.0, y + below, 0.0
        body += painter.grid(grid, x, y)
        x, below = x + width + 14, max(below, height)
    y += below
    body += painter.key(y + 4)
    whole = painter.patterns() + "".join(body)
    # Named by what is drawn and not by the values, whose last digits differ between processors.
    name = f"packviz-g{zlib.crc32((whole + theme).encode()):08x}"
    return element(whole.replace(_HATCH, name), _WIDTH, y + 30, title, theme)


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
    across = max(_MARGIN + width * len(grid.columns), len(grid.title) * CHAR)
    return across, _TOP + height * len(grid.rows) + 16


def _cell(grid: Grid) -> tuple[float, float, bool]:
    """The width and height of a cell, and whether a number stands in it."""
    rows, columns = len(grid.rows), len(grid.columns)
    few = rows <= FEW and columns <= FEW
    if few:
        return (_STATE if grid.padding is None else _CELL), 22.0, True
    width = min(_STATE, 420 / columns) if grid.padding is None else min(20.0, (_WIDTH - _MARGIN - 8) / columns)
    return width, min(20.0, max(_TALL / rows, 0.5)), False


class _Painter:
    """Draws grids in one theme, with shapes gathered by colour."""

    def __init__(self, theme: Theme) -> None:
        self.theme = theme

    def patterns(self) -> str:
        """The hatch of padding."""
        return hatch(_HATCH, self.theme)

    def grid(self, grid: Grid, x: float, y: float) -> list[str]:
        width, height, few = _cell(grid)
        theme, left, top = self.theme, x + _MARGIN, y + _TOP
        out = [f'<text x="{x:g}" y="{y + 16:g}" font-weight="bold">{escape(grid.title)}</text>']
        out += self._names(grid, left, top, width, height)
        fills: dict[str, list[str]] = defaultdict(list)
        texts, struck = [], []
        for r in range(len(grid.rows)):
            for c, length, kind in _stretches(grid, r, few):
                fill = {"=": theme.ground, "#": f"url(#{_HATCH})"}.get(str(kind)) or SHADES[int(kind)]
                fills[fill].append(_box(left + c * width, top + r * height, length * width, height))
                if kind not in "=#" and not few:
                    struck.append(f"M{left + c * width:g} {top + (r + 0.5) * height:g}h{length * width:g}")
                if few:
                    texts.append(self._number(grid, r, c, left + (c + 0.5) * width, top + r * height + 15))
        outline = f' stroke="{theme.line}" stroke-width=".5"' if height >= 4 else ""
        for fill, paths in fills.items():
            out.append(f'<path d="{"".join(paths)}" fill="{fill}"{outline}/>')
        if struck:  # a mark that needs no colour, where there is no room for a number
            out.append(f'<path d="{"".join(struck)}" stroke="#000000" stroke-width="{min(1.5, height / 8):.2g}"/>')
        box = _box(left, top, width * len(grid.columns), height * len(grid.rows))
        out.append(f'<path d="{box}" fill="none" stroke="{theme.line}"/>')
        return out + texts

    def key(self, y: float) -> list[str]:
        """What the fills mean."""
        theme, x = self.theme, 4.0
        out = []
        parts = [(theme.ground, "= agrees"), (f"url(#{_HATCH})", "padding"), *zip(SHADES, SAID, strict=True)]
        for i, (fill, said) in enumerate(parts):
            if i == 2:
                words = "differs, as a share of the row's largest value:"
                out.append(f'<text x="{x:g}" y="{y + 12:g}">{words}</text>')
                x += len(words) * CHAR + 8
            out.append(f'<path d="{_box(x, y, 16, 16)}" fill="{fill}" stroke="{theme.line}"/>')
            out.append(f'<text x="{x + 21:g}" y="{y + 12:g}">{said}</text>')
            x += 21 + len(said) * CHAR + 14
        return out

    def _names(self, grid: Grid, left: float, top: float, width: float, height: float) -> list[str]:
        muted = f'font-size="11" fill="{self.theme.muted}"'
        out = []
        what = "t =" if grid.padding is not None else "layer"
        out.append(f'<text x="{left - 6:g}" y="{top - 7:g}" text-anchor="end" {muted}>{what}</text>')
        every = max(1, math.ceil(30 / width))
        for c in range(0, len(grid.columns), every):
            middle = left + (c + 0.5) * width
            name = escape(grid.columns[c])
            out.append(f'<text x="{middle:g}" y="{top - 7:g}" text-anchor="middle" {muted}>{name}</text>')
        every = max(1, math.ceil(13 / height))
        for r in range(0, len(grid.rows), every):
            y = top + r * height + (height / 2 + 4 if height >= 12 else 9)
            out.append(f'<text x="{left - 8:g}" y="{y:g}" text-anchor="end">{escape(grid.rows[r])}</text>')
        return out

    def _number(self, grid: Grid, r: int, c: int, x: float, y: float) -> str:
        shade = grid.shade(r, c)
        said = short_difference(float(grid.values[r, c])) if grid.differs[r, c] else "="
        if grid.is_padding(r, c):
            if said == "=":
                return ""
            extra = f'stroke="{self.theme.padding}" stroke-width="4" paint-order="stroke" fill="{self.theme.muted}"'
        elif shade is None:
            extra = f'fill="{self.theme.muted}"'
        else:
            extra = f'fill="{palette.ink_on(SHADES[shade])}" font-weight="bold"'
        return f'<text x="{x:g}" y="{y:g}" font-size="11" text-anchor="middle" {extra}>{said}</text>'


def _stretches(grid: Grid, r: int, few: bool) -> list[tuple[int, int, str]]:
    """The row as (column, length, kind): kind is `=`, `#` for padding, or the index of a shade."""
    result: list[tuple[int, int, str]] = []
    for c in range(len(grid.columns)):
        shade = grid.shade(r, c)
        kind = "#" if grid.is_padding(r, c) else "=" if shade is None else str(shade)
        if result and result[-1][2] == kind and not few:
            result[-1] = (result[-1][0], result[-1][1] + 1, kind)
        else:
            result.append((c, 1, kind))
    return result


def _box(x: float, y: float, width: float, height: float) -> str:
    return f"M{x:g} {y:g}h{width:g}v{height:g}h-{width:g}z"
