"""Draws the grids of cells that show padded batches, differences, weights and vectors.

This module and `Sheet.cell` define how a cell looks: its size, outline and text colour, and the
hatching of padding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from packviz.core.layout import Layout
from packviz.draw import palette
from packviz.draw.sheet import CHAR, Sheet, width_of

WIDTH = 900.0
"""The width of a JupyterLab cell in px. If pictures do not fit side by side, they are placed one below the other."""

LEFT, TOP, TALL = 42.0, 44.0, 24.0
"""The space in px for names to the left of a grid and for its headings above it, and the height of a row in px."""

NARROWEST = 26.0
"""The smallest width, in px, of a cell with a label."""

_LOW = 11.0  # px: rows that are lower than this have no room for letters


class Cell(NamedTuple):
    """A cell, or `span` adjacent cells that are drawn as one."""

    fill: str
    label: str = ""
    span: int = 1
    bold: bool = False


@dataclass(frozen=True)
class CellGrid:
    """A grid of cells on a sheet.

    Attributes:
        sheet: the sheet that the grid is drawn on.
        rows: the number of rows.
        columns: the number of columns.
        wide: the width of a cell in px.
        tall: the height of a row in px.
        left: the x-coordinate of the grid's left edge in px.
        top: the y-coordinate of the grid's top edge in px.
        size: the font size of the labels in px.
    """

    sheet: Sheet
    rows: int
    columns: int
    wide: float = NARROWEST
    tall: float = TALL
    left: float = LEFT
    top: float = TOP
    size: int = 12

    @property
    def right(self) -> float:
        """The x-coordinate, in px, of the grid's right edge."""
        return self.x(self.columns)

    @property
    def foot(self) -> float:
        """The y-coordinate, in px, of the grid's bottom edge."""
        return self.y(self.rows)

    def x(self, column: float) -> float:
        """Returns the x-coordinate, in px, of a column's left edge."""
        return self.left + column * self.wide

    def y(self, row: float) -> float:
        """Returns the y-coordinate, in px, of a row's top edge."""
        return self.top + row * self.tall

    def line(self, row: int) -> float:
        """Returns the y-coordinate, in px, of the baseline of text beside a row.

        Text that is taller than the row starts at the row's top.
        """
        return self.y(row) + max(self.tall / 2 + 4, 9)

    def draw(self, rows: Iterable[Iterable[Cell]]) -> None:
        """Draws rows of cells, starting with the first row of the grid."""
        for r, cells in enumerate(rows):
            c = 0
            for cell in (cell for cell in cells if cell.span):
                place = self.x(c), self.y(r), cell.span * self.wide, self.tall
                self.sheet.cell(*place, cell.fill, cell.label, size=self.size, bold=cell.bold)
                c += cell.span

    @property
    def is_low(self) -> bool:
        """True if the rows are too low for letters."""
        return self.tall < _LOW

    def ticks(self, columns: int, longest: str, here: int | None = None) -> list[int]:
        """Returns columns whose names fit side by side, always including the highlighted column if
        there is one.

        Args:
            columns: the number of columns.
            longest: the longest name.
            here: the highlighted column; `None` if there is none.
        """
        space = 6 + CHAR * 11 / 12 * len(longest)
        ticks = list(range(0, columns, nice(space / self.wide)))
        if here is not None:
            ticks = [c for c in ticks if abs(c - here) * self.wide >= space] + [here]
        return ticks

    def heads(
        self,
        names: Sequence[str],
        axis: str = "t =",
        here: int | None = None,
        shown: Sequence[int] = (),
    ) -> None:
        """Writes the column names above the grid.

        Args:
            names: a name for each column.
            axis: the title of the axis, written before the names.
            here: the highlighted column; `None` if there is none.
            shown: the columns to name. By default, as many columns are named as there is room for.
        """
        ink, accent = self.sheet.colours.muted, self.sheet.colours.accent
        # "t =" is close to the first number, because the column of lengths of a batch is to the
        # left of it.
        end = self.left + (min(self.wide / 2 - 8, 6) if axis.endswith("=") else -6)
        self.sheet.text(end, self.top - 9, axis, anchor="end", size=11, ink=ink)
        for c in shown or self.ticks(len(names), max(names, key=len), here):
            look = {"bold": True, "ink": accent} if c == here else {"ink": ink}
            self.sheet.text(
                self.x(c + 0.5), self.top - 9, names[c], anchor="middle", size=11, **look
            )

    def names(
        self, names: Sequence[str], lengths: Sequence[int] = (), right: float = 10, size: int = 12
    ) -> None:
        """Writes the row names to the left of the grid, or as many of them as fit.

        Args:
            names: a name for each row.
            lengths: a length for each row, written in a separate column after the names; may be
                empty.
            right: the distance in px from the end of the names (or of the lengths, if there are
                any) to the grid.
            size: the font size of the names in px.
        """
        end, low = self.left - right, self.is_low
        for r in range(0, len(names), nice((24 if low else 13) / self.tall)):
            y = self.line(r)
            if lengths:
                self.sheet.text(6, y, names[r], size=size, bold=True)
                self.sheet.text(end, y, str(lengths[r]), anchor="end", ink=self.sheet.colours.muted)
            else:
                self.sheet.text(
                    end, y, names[r], anchor="end", size=11 if low else size, bold=not low
                )

    def frame(
        self, row: int, column: int, rows: float = 1, stroke: str = "", thick: float = 3
    ) -> None:
        """Draws a frame around a cell, or around `rows` cells of a column from `row` downwards."""
        stroke = stroke or self.sheet.colours.accent
        self.sheet.box(
            self.x(column),
            self.y(row),
            max(self.wide, 2),
            rows * self.tall,
            stroke=stroke,
            thick=thick,
        )


def real_cells(
    layout: Layout, b: int, label: Callable[[int, int], str] | None = None, fill: str = ""
) -> list[Cell]:
    """Returns the real cells of a sequence.

    Args:
        layout: the batch.
        b: the index of the sequence.
        label: a function that takes the index of a sequence and a time step, and returns the label
            of that cell; `None` to draw all cells of the sequence as one.
        fill: the fill of the cells. Defaults to the colour of the sequence.
    """
    fill, length = fill or palette.sequence_colour(b), int(layout.lengths[b])
    return [Cell(fill, label(b, t)) for t in range(length)] if label else [Cell(fill, span=length)]


def array(values: Any, kind: Any = None) -> Any:
    """Returns numbers as a NumPy array. A tensor is detached and copied to the CPU."""
    return np.asarray(values.detach().cpu() if hasattr(values, "detach") else values, kind)


def nice(at_least: float) -> int:
    """Returns the smallest of the numbers 1, 2, 5, 10, 20, 50, … that is at least `at_least`."""
    steps: Iterator[int] = (digit * 10**power for power in count() for digit in (1, 2, 5))
    return next(step for step in steps if step >= at_least)


def roomy(labels: Sequence[tuple[float, str]]) -> Iterator[tuple[float, str]]:
    """Yields `(x, label)` pairs whose labels do not overlap, from left to right, always including the last pair."""
    taken = -math.inf
    for x, label in labels:
        space = width_of(label, 11) + 5
        if x == labels[-1][0] or taken + space <= x <= labels[-1][0] - space:
            taken = x
            yield x, label


def clip(words: str, width: float, size: int = 12) -> str:
    """Shortens text that is wider than `width` px, and adds an ellipsis."""
    char = CHAR * size / 12
    space = int(width / char) * char
    if width_of(words, size) <= space:
        return words
    while words and width_of(words, size) > space - char:
        words = words[:-1]
    return words + "…"


def stride(rows: int, most: int) -> int:
    """Returns the smallest odd number `k` such that keeping one row in every `k` leaves at most `most` rows."""
    return -(-rows // most) | 1  # odd, so that rows of every colour are drawn


def one_in(stride: int, many: int, what: str = "sequences") -> str:
    """Returns a note saying that one in `stride` rows is drawn."""
    return f"One in {stride} of {many:,} {what} is drawn. The counts include all."
