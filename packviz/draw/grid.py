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
from packviz.draw.sheet import HATCHED, MONO_CHAR_WIDTH, WIDTH, Sheet, max_text_width, text_width
from packviz.draw.text import table

LEFT_MARGIN = 42.0
"""The smallest space, in px, for names to the left of a grid."""

TOP_MARGIN = 44.0
"""The space, in px, for headings above a grid."""

ROW_HEIGHT = 24.0
"""The height of a row in px."""

LABELLED_CELL_WIDTH = 26.0
"""The smallest width, in px, of a cell with a label."""

ROUND_NUMBERS = [float(f"{digit}e{exponent}") for exponent in range(-15, 25) for digit in (1, 2, 5)]
"""The round numbers: 1, 2 and 5 times powers of ten."""

_MIN_TEXT_HEIGHT = 11.0  # px: rows that are lower than this have no space for letters
_MAX_BAR_LENGTH = 80.0  # px: the length of the longest bar in the margin
_TIME_AXIS = "t ="  # the axis of time steps


class Cell(NamedTuple):
    """A cell, or several adjacent cells that are drawn as one.

    Attributes:
        fill: a colour, or `HATCHED` for padding.
        label: the text in the cell; may be empty.
        span: the number of adjacent cells.
        bold: whether the label is bold. A bold cell without a label has a line through it.
        is_framed: whether a table draws a frame around the cell, because its value is wrong.
    """

    fill: str
    label: str = ""
    span: int = 1
    bold: bool = False
    is_framed: bool = False


@dataclass(frozen=True)
class Grid:
    """The places of the cells of a grid on a sheet.

    Attributes:
        sheet: the sheet that the grid is drawn on.
        rows: the number of rows.
        columns: the number of columns.
        cell_width: the width of a cell in px.
        row_height: the height of a row in px.
        left: the x-coordinate of the grid's left edge in px.
        top: the y-coordinate of the grid's top edge in px.
        font_size: the font size of the labels in px.
    """

    sheet: Sheet
    rows: int
    columns: int
    cell_width: float = LABELLED_CELL_WIDTH
    row_height: float = ROW_HEIGHT
    left: float = LEFT_MARGIN
    top: float = TOP_MARGIN
    font_size: int = 12

    @property
    def right(self) -> float:
        """The x-coordinate, in px, of the grid's right edge."""
        return self.x(self.columns)

    @property
    def bottom(self) -> float:
        """The y-coordinate, in px, of the grid's bottom edge."""
        return self.y(self.rows)

    @property
    def has_low_rows(self) -> bool:
        """True if the rows are too low for letters."""
        return self.row_height < _MIN_TEXT_HEIGHT

    def x(self, column: float) -> float:
        """Returns the x-coordinate, in px, of a column's left edge."""
        return self.left + column * self.cell_width

    def y(self, row: float) -> float:
        """Returns the y-coordinate, in px, of a row's top edge."""
        return self.top + row * self.row_height

    def baseline_y(self, row: int) -> float:
        """Returns the y-coordinate, in px, of the baseline of text beside a row.

        Text that is taller than the row starts at the row's top.
        """
        offset = max(self.row_height / 2 + 4, 9)
        return self.y(row) + offset

    def draw(self, rows: Iterable[Iterable[Cell]]) -> None:
        """Draws rows of cells, starting with the first row of the grid."""
        path = ""
        for r, cells in enumerate(rows):
            y = self.y(r)
            column = 0
            for fill, label, span, bold, _ in cells:
                if not span:
                    continue
                x = self.x(column)
                width = span * self.cell_width
                self.sheet.cell(
                    x, y, width, self.row_height, fill, label, size=self.font_size, bold=bold
                )
                if bold and not label:
                    middle = y + self.row_height / 2
                    path += f"M{x} {middle}h{width}"
                column += span
        if path:
            line_width = min(1.5, self.row_height / 8)
            self.sheet.path(path, stroke="#000000", width=line_width)

    def draw_outline(self, fill: str = "none", outline_width: float = 0.5) -> None:
        """Draws a box around all cells."""
        width = self.right - self.left
        height = self.bottom - self.top
        self.sheet.box(self.left, self.top, width, height, fill, outline_width=outline_width)

    def ticks(self, longest: str) -> list[int]:
        """Returns columns whose names fit side by side, if none is longer than `longest`."""
        name_width = 6 + MONO_CHAR_WIDTH * 11 / 12 * len(longest)
        column_step = next_round_integer(name_width / self.cell_width)
        return list(range(0, self.columns, column_step))

    def write_column_names(
        self, names: Sequence[str], axis: str = _TIME_AXIS, shown: Sequence[int] = ()
    ) -> None:
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
            end = self.left + min(self.cell_width / 2 - 8, 6)
        self.sheet.note(end, y, axis, "end")
        for c in shown or self.ticks(max(names, key=len)):
            self.sheet.note(self.x(c + 0.5), y, names[c], "middle")

    def write_row_names(
        self, names: Sequence[str], lengths: Sequence[int] = (), gap: float = 10, size: int = 12
    ) -> None:
        """Writes the row names to the left of the grid, or as many of them as fit.

        Args:
            names: a name for each row.
            lengths: a length for each row, written in a column after the names; may be empty.
            gap: the distance in px from the names (or from the lengths, if there are any) to the
                grid.
            size: the font size of the names in px.
        """
        sheet = self.sheet
        end = self.left - gap
        min_spacing = 13
        if self.has_low_rows:
            size = 11
            min_spacing = 24
        for r in range(0, len(names), next_round_integer(min_spacing / self.row_height)):
            y = self.baseline_y(r)
            if lengths:
                sheet.text(6, y, names[r], size=size, bold=True)
                sheet.text(end, y, str(lengths[r]), anchor="end", text_colour=sheet.colours.muted)
            else:
                sheet.text(end, y, names[r], anchor="end", size=size, bold=not self.has_low_rows)


@dataclass(frozen=True)
class CellTable:
    """A grid of cells with a title, names of rows and columns, and a number for each row.

    Attributes:
        title: the title above the grid.
        names: the names of the rows.
        column_names: the names of the columns.
        cells: the cells of each row. Hatched cells are padding.
        axis: the title of the columns, written before their names.
        numbers_heading: the heading of the numbers on the right; empty if there are no numbers.
        numbers: a pair `(number, text)` for each row: a number to draw as a bar on the right, and
            its label.
        full_bar_number: the number whose bar has the full length. Defaults to the largest of
            `numbers`. Tables of one picture need the same.
        cell_width: the width of a cell in px. By default, all labels fit.
        row_height: the height of a row in px.
        font_size: the font size of the labels in px.
    """

    title: str
    names: Sequence[str]
    column_names: Sequence[str]
    cells: Sequence[Sequence[Cell]]
    axis: str = _TIME_AXIS
    numbers_heading: str = ""
    numbers: Sequence[tuple[float, str]] = ()
    full_bar_number: float = 0.0
    cell_width: float = 0.0
    row_height: float = ROW_HEIGHT
    font_size: int = 12

    def lines(self) -> list[str]:
        """Returns the grid as lines of text. A `·` marks padding, and a `!` marks a framed cell."""
        rows = []
        if self.axis != _TIME_AXIS:
            numbers_heading = [self.numbers_heading] if self.numbers_heading else []
            rows.append(["", *self.column_names, *numbers_heading])
        for r, name in enumerate(self.names):
            row = [name]
            for cell in self.cells[r]:
                frame = "!" if cell.is_framed else ""
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
        labels = [*self.column_names]
        for cells in self.cells:
            labels += [cell.label for cell in cells]
        label_width = max_text_width(labels, mono=True)
        left = max(LEFT_MARGIN, 18 + max_text_width(self.names))
        columns = len(self.column_names)
        numbers_width = max_text_width(number_text for _, number_text in self.numbers)
        if self.numbers:
            numbers_width = max(
                numbers_width + 24 + _MAX_BAR_LENGTH, text_width(self.numbers_heading) + 16
            )
        max_cell_width = (WIDTH - 8 - left - numbers_width) / columns
        cell_width = self.cell_width or max(
            LABELLED_CELL_WIDTH, min(8 + label_width, max(4 + label_width, max_cell_width))
        )
        grid = Grid(
            sheet,
            len(self.names),
            columns,
            cell_width,
            self.row_height,
            left,
            font_size=self.font_size,
        )
        sheet.title(self.title)
        grid.write_column_names(self.column_names, self.axis)
        grid.write_row_names(self.names)
        grid.draw(self.cells)
        if self.font_size < 12:
            grid.draw_outline(outline_width=1)
        sheet.start_layer()
        for r, cells in enumerate(self.cells):
            for c, cell in enumerate(cells):
                if cell.is_framed:
                    sheet.frame(grid.x(c), grid.y(r), cell_width, self.row_height)
        self._draw_numbers(grid)
        return sheet

    def _draw_numbers(self, grid: Grid) -> None:
        sheet = grid.sheet
        left = grid.right + 16
        sheet.note(left, grid.top - 9, self.numbers_heading)
        numbers = [number for number, _ in self.numbers]
        largest = self.full_bar_number or max([0.0, *numbers]) or 1.0
        for r, (number, number_text) in enumerate(self.numbers):
            x = left
            if number and np.isfinite(number):
                bar_length = _MAX_BAR_LENGTH * number / largest
                y = grid.y(r) + 4
                sheet.box(left, y, bar_length, grid.row_height - 8, REAL)
                x += bar_length + 8
            sheet.text(x, grid.baseline_y(r), number_text, bold=number > 0)


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


def join_equal_cells(cells: Iterable[Cell]) -> list[Cell]:
    """Returns the cells of a row, with adjacent cells that look alike joined into one."""
    return [cell._replace(span=len([*equal_cells])) for cell, equal_cells in groupby(cells)]


def next_round_integer(minimum: float) -> int:
    """Returns the smallest of the numbers 1, 2, 5, 10, 20, 50, … that is at least `minimum`."""
    return int(next_round_number(max(minimum, 1)))


def next_round_number(minimum: float) -> float:
    """Returns the smallest of the `ROUND_NUMBERS` that is at least `minimum`."""
    return ROUND_NUMBERS[bisect_left(ROUND_NUMBERS, minimum)]


def drop_overlapping(labels: Sequence[tuple[float, str]]) -> Iterator[tuple[float, str]]:
    """Yields those `(x, label)` pairs, from left to right, whose labels do not overlap.

    The last pair is always among them.
    """
    previous_x = -math.inf
    last_x = labels[-1][0]
    label_width = max_text_width((label for _, label in labels), 11) + 5
    for x, label in labels:
        if x == last_x or previous_x + label_width <= x <= last_x - label_width:
            previous_x = x
            yield x, label


def shorten_text(text: str, width: float, size: int = 12) -> str:
    """Shortens text that is wider than `width` px, and adds an ellipsis."""
    short_text = text
    while text and text_width(short_text, size, mono=True) > width:
        text = text[:-1]
        short_text = f"{text}…"
    return short_text


def choose_row_stride(rows: int, max_rows: int) -> int:
    """Returns the smallest odd number `k` such that one row in `k` is at most `max_rows` rows."""
    return -(-rows // max_rows) | 1  # odd, so that rows of every colour are drawn


def stride_notes(drawn_row_stride: int, rows: int, row_noun: str = "sequences") -> list[str]:
    """Returns a note on how many rows are drawn, or none if all are."""
    if drawn_row_stride == 1:
        return []
    return [f"Of {rows:,} {row_noun}, one in {drawn_row_stride} is drawn. The counts include all."]
