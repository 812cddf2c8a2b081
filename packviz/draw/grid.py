"""Draws grids of cells: padded batches, differences, weights and vectors.

`Grid` places cells on a sheet, and `CellTable` adds a title, names and numbers. All cells are drawn
by `Sheet.cell`, which defines how a cell looks.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import numpy as np

from packviz.core.layout import Layout
from packviz.draw.palette import REAL, sequence_colour
from packviz.draw.sheet import CHAR, HATCHED, WIDTH, Sheet, widest, width_of
from packviz.draw.text import table

LEFT = 42.0
"""The smallest space, in px, for names to the left of a grid."""

TOP = 44.0
"""The space, in px, for headings above a grid."""

TALL = 24.0
"""The height of a row in px."""

NARROWEST = 26.0
"""The smallest width, in px, of a cell with a label."""

ROUND = [float(f"{digit}e{power}") for power in range(-15, 25) for digit in (1, 2, 5)]
"""The round numbers: 1, 2 and 5 times powers of ten."""

_LOW = 11.0  # px: rows that are lower than this have no space for letters
_BAR = 80.0  # px: the length of the longest bar in the margin
_STEPS = "t ="  # the axis of time steps


class Cell(NamedTuple):
    """A cell, or several adjacent cells that are drawn as one.

    Attributes:
        fill: a colour, or `HATCHED` for padding.
        label: the text in the cell; may be empty.
        span: the number of adjacent cells.
        bold: whether the label is bold. A bold cell without a label has a line through it.
        framed: whether a table draws a frame around the cell, because its value is wrong.
    """

    fill: str
    label: str = ""
    span: int = 1
    bold: bool = False
    framed: bool = False


@dataclass(frozen=True)
class Grid:
    """The places of the cells of a grid on a sheet.

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

    @property
    def is_low(self) -> bool:
        """True if the rows are too low for letters."""
        return self.tall < _LOW

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
        below = max(self.tall / 2 + 4, 9)
        return self.y(row) + below

    def draw(self, rows: Iterable[Iterable[Cell]]) -> None:
        """Draws rows of cells, starting with the first row of the grid."""
        lines = ""
        for r, cells in enumerate(rows):
            y = self.y(r)
            column = 0
            for fill, label, span, bold, _ in cells:
                if not span:
                    continue
                x = self.x(column)
                width = span * self.wide
                self.sheet.cell(x, y, width, self.tall, fill, label, size=self.size, bold=bold)
                if bold and not label:
                    middle = y + self.tall / 2
                    lines += f"M{x} {middle}h{width}"
                column += span
        if lines:
            thick = min(1.5, self.tall / 8)
            self.sheet.path(lines, stroke="#000000", width=thick)

    def outline(self, fill: str = "none", thick: float = 0.5) -> None:
        """Draws a box around all cells."""
        width = self.right - self.left
        height = self.foot - self.top
        self.sheet.box(self.left, self.top, width, height, fill, thick=thick)

    def ticks(self, longest: str) -> list[int]:
        """Returns columns whose names fit side by side, if none is longer than `longest`."""
        space = 6 + CHAR * 11 / 12 * len(longest)
        step = nice(space / self.wide)
        return list(range(0, self.columns, step))

    def heads(self, names: Sequence[str], axis: str = _STEPS, shown: Sequence[int] = ()) -> None:
        """Writes the column names above the grid.

        Args:
            names: a name for each column.
            axis: the title of the axis, written before the names.
            shown: the columns to name. By default, as many columns are named as fit.
        """
        y = self.top - 9
        # "t =" is close to the first number, because the column of lengths is to the left of it.
        end = self.left - 6
        if axis.endswith("="):
            end = self.left + min(self.wide / 2 - 8, 6)
        self.sheet.note(end, y, axis, "end")
        for c in shown or self.ticks(max(names, key=len)):
            self.sheet.note(self.x(c + 0.5), y, names[c], "middle")

    def names(
        self, names: Sequence[str], lengths: Sequence[int] = (), right: float = 10, size: int = 12
    ) -> None:
        """Writes the row names to the left of the grid, or as many of them as fit.

        Args:
            names: a name for each row.
            lengths: a length for each row, written in a column after the names; may be empty.
            right: the distance in px from the names (or from the lengths, if there are any) to the
                grid.
            size: the font size of the names in px.
        """
        sheet = self.sheet
        muted = sheet.colours.muted
        end = self.left - right
        least = 13
        if self.is_low:
            size = 11
            least = 24
        for r in range(0, len(names), nice(least / self.tall)):
            y = self.line(r)
            if lengths:
                sheet.text(6, y, names[r], size=size, bold=True)
                sheet.text(end, y, str(lengths[r]), anchor="end", ink=muted)
            else:
                sheet.text(end, y, names[r], anchor="end", size=size, bold=not self.is_low)


@dataclass(frozen=True)
class CellTable:
    """A grid of cells with a title, names of rows and columns, and a number for each row.

    Attributes:
        title: the title above the grid.
        names: the names of the rows.
        heads: the names of the columns.
        cells: the cells of each row. Hatched cells are padding.
        axis: the title of the columns, written before their names.
        margin: the heading of the numbers on the right; empty if there are no numbers.
        numbers: a pair `(number, words)` for each row: a number to draw as a bar on the right, and
            its label.
        most: the number whose bar has the full length. Defaults to the largest of `numbers`. Tables
            of one picture need the same.
        wide: the width of a cell in px. By default, all labels fit.
        tall: the height of a row in px.
        size: the font size of the labels in px.
    """

    title: str
    names: Sequence[str]
    heads: Sequence[str]
    cells: Sequence[Sequence[Cell]]
    axis: str = _STEPS
    margin: str = ""
    numbers: Sequence[tuple[float, str]] = ()
    most: float = 0.0
    wide: float = 0.0
    tall: float = TALL
    size: int = 12

    def lines(self) -> list[str]:
        """Returns the grid as lines of text. A `·` marks padding, and a `!` marks a framed cell."""
        rows = []
        if self.axis != _STEPS:
            margin = [self.margin] if self.margin else []
            rows.append(["", *self.heads, *margin])
        for r, name in enumerate(self.names):
            row = [name]
            for cell in self.cells[r]:
                frame = "!" if cell.framed else ""
                padding = "·" if cell.fill == HATCHED else ""
                row.append(frame + padding + cell.label)
            if self.numbers:
                row.append(self.numbers[r][1])
            rows.append(row)
        return table(rows, " <  > ")

    def sheet(self, theme: str, description: str = "") -> Sheet:
        """Draws the grid.

        Args:
            theme: the name of the theme, one of the keys in `palette.THEMES`.
            description: the text for a screen reader.
        """
        sheet = Sheet(theme, description)
        labels = [*self.heads]
        for cells in self.cells:
            labels += [cell.label for cell in cells]
        letters = widest(labels, mono=True)
        left = max(LEFT, 18 + widest(self.names))
        rows = len(self.names)
        columns = len(self.heads)
        beside = widest(words for _, words in self.numbers)
        if self.numbers:
            beside = max(beside + 24 + _BAR, width_of(self.margin) + 16)
        room = (WIDTH - 8 - left - beside) / columns
        wide = self.wide or max(NARROWEST, min(8 + letters, max(4 + letters, room)))
        grid = Grid(sheet, rows, columns, wide, self.tall, left, size=self.size)
        sheet.title(self.title)
        grid.heads(self.heads, self.axis)
        grid.names(self.names)
        grid.draw(self.cells)
        if self.size < 12:
            grid.outline(thick=1)
        sheet.layer()
        for r, cells in enumerate(self.cells):
            for c, cell in enumerate(cells):
                if cell.framed:
                    sheet.frame(grid.x(c), grid.y(r), wide, self.tall)
        self._draw_numbers(grid)
        return sheet

    def _draw_numbers(self, grid: Grid) -> None:
        sheet = grid.sheet
        left = grid.right + 16
        sheet.note(left, grid.top - 9, self.margin)
        numbers = [number for number, _ in self.numbers]
        longest = self.most or max([0.0, *numbers]) or 1.0
        for r, (number, words) in enumerate(self.numbers):
            x = left
            if number and np.isfinite(number):
                bar = _BAR * number / longest
                y = grid.y(r) + 4
                sheet.box(left, y, bar, grid.tall - 8, REAL)
                x += bar + 8
            sheet.text(x, grid.line(r), words, bold=number > 0)


def real_cells(
    layout: Layout, b: int, label: Callable[[int, int], str] | None, fill: str = ""
) -> list[Cell]:
    """Returns the real cells of a sequence.

    Args:
        layout: the batch.
        b: the index of the sequence.
        label: a function that takes the index of a sequence and a time step, and returns the label
            of that cell; `None` to draw all cells of the sequence as one.
        fill: the fill of the cells. Defaults to the colour of the sequence.
    """
    fill = fill or sequence_colour(b)
    length = int(layout.lengths[b])
    if label is None:
        return [Cell(fill, span=length)]
    return [Cell(fill, label(b, t)) for t in range(length)]


def joined(cells: Iterable[Cell]) -> list[Cell]:
    """Returns the cells of a row, with adjacent cells that look alike joined into one."""
    runs = []
    for cell, alike in groupby(cells):
        span = len(list(alike))
        runs.append(cell._replace(span=span))
    return runs


def nice(at_least: float) -> int:
    """Returns the smallest of the numbers 1, 2, 5, 10, 20, 50, … that is at least `at_least`."""
    return int(round_up(max(at_least, 1)))


def round_up(at_least: float) -> float:
    """Returns the smallest of the `ROUND` numbers that is at least `at_least`."""
    return ROUND[bisect_left(ROUND, at_least)]


def roomy(labels: Sequence[tuple[float, str]]) -> Iterator[tuple[float, str]]:
    """Yields those `(x, label)` pairs, from left to right, whose labels do not overlap.

    The last pair is always among them.
    """
    taken = -math.inf
    last = labels[-1][0]
    for x, label in labels:
        space = width_of(label, 11) + 5
        if x == last or taken + space <= x <= last - space:
            taken = x
            yield x, label


def clip(words: str, width: float, size: int = 12) -> str:
    """Shortens text that is wider than `width` px, and adds an ellipsis."""
    clipped = words
    while words and width_of(clipped, size, mono=True) > width:
        words = words[:-1]
        clipped = f"{words}…"
    return clipped


def stride(rows: int, most: int) -> int:
    """Returns the smallest odd number `k` such that one row in `k` makes at most `most` rows."""
    return -(-rows // most) | 1  # odd, so that rows of every colour are drawn


def one_in(stride: int, rows: int, what: str = "sequences") -> str:
    """Returns a note on how many rows are drawn."""
    return f"Of {rows:,} {what}, one in {stride} is drawn. The counts include all."
