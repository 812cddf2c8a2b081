"""Draws a layout: the padded grid, the packed steps beside or below it, and the packed data at the
bottom.

A small batch is drawn cell by cell, with the values in the cells. In a large batch, each sequence
is drawn as one bar, so that 512 × 512 cells need only a few shapes and a few kilobytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from typing import Any

import numpy as np

from packviz.core.layout import Layout
from packviz.draw import palette, text
from packviz.draw.cellgrid import TOP, Cell, CellGrid, clip, one_in, real_cells, roomy, stride
from packviz.draw.sheet import HATCHED, Point, Sheet, n, width_of
from packviz.draw.text import Labels, cell_label, is_few, summary

_PANEL = 460  # px: two panels of this width fit side by side in a JupyterLab cell
_TALL = 400  # px: the largest height of a panel of bars
_WIDEST = (
    1160  # px: wider panels are placed below each other, and wider data continues on a second line
)
_LINE = 940  # px: cells of data are as wide as fits in this width, or in that of the panels
_MOST_ROWS = (
    512  # more sequences than this would share pixels, so some are left out, and a note reports it
)
_STEPS_TITLE = "packed: longest first, no padding"
_SLOPE = 110  # px: the distance between the panels, where lines show the sort
_LISTS = 270  # px: the distance between the panels if the lists of indices are there
_LENGTH = 41  # px: the width of the column of lengths
_NAME = 110  # px: longer names are cut
_FALL = 58  # px: from the batch sizes to the data, where lines connect each column to its rows
_MARGIN = 26 + width_of(
    "batch_sizes"
)  # px: the space to the left of the steps if this label is there
_GAP = 6  # px: between the groups of rows of data


def draw(layout: Layout, labels: Labels | None = None, **choices: Any) -> Sheet:
    """Draws the padded batch, the packed steps and the packed data. The `choices` set attributes of
    `_Batch`.

    Raises:
        ValueError: the theme is unknown, or `step` is not a time step of the longest sequence.
    """
    step, last = choices.get("step"), layout.batch_sizes.size - 1
    if step is not None and not 0 <= step <= last:
        raise ValueError(f"step is {step}; the longest sequence has time steps 0 … {last}")
    return _Batch(layout, labels, **choices).draw()


@dataclass
class _Batch:
    """A picture of a batch, with the places of all its parts.

    Attributes:
        layout: the batch.
        labels: the labels of each sequence's cells in a small batch. By default, a cell's label is
            the name of its sequence and its time step, as in `a0`.
        names: the names of the sequences. Defaults to letters.
        step: the time step to highlight. Its cells are framed, and in the data, cells of later
            steps have no fill.
        mistaken: whether to add the order that people often expect in `data`, which is one sequence
            after another.
        indices: whether to add `sorted_indices` and `unsorted_indices`, each entry next to its row
            if there is room.
        explain: whether to add a line about each part.
        flat: whether to add the flat rows (one sequence after another), with a line from each
            packed row to its flat row.
        part: the part to draw, one of `text.PARTS`.
        theme: `"light"`, `"dark"`, or `"live"` for colours that follow the theme of the page.
    """

    layout: Layout
    labels: Labels | None = None
    names: Sequence[str] | None = None
    step: int | None = None
    mistaken: bool = False
    indices: bool = False
    explain: bool = False
    flat: bool = False
    part: str = text.WHOLE
    theme: str = "light"

    def __post_init__(self) -> None:
        """Computes the places of the two panels: the padded grid, and the packed steps beside or below it."""
        layout, self.few = self.layout, is_few(self.layout)
        self.sheet = Sheet(self.theme, summary(layout))
        self.muted, self.accent = self.sheet.colours.muted, self.sheet.colours.accent
        self.stride = stride(layout.batch_size, _MOST_ROWS)
        self.rows = range(0, layout.batch_size, self.stride)
        columns, size, self.name_size, self.beside = layout.max_len, 12, 12, 36
        wide, tall = min(24.0, _PANEL / columns), min(22.0, max(1.0, _TALL / len(self.rows)))
        if self.few:
            size, least = (13, 36.0) if columns <= 10 else (12, 26.0)
            wide = min(max(least, 8 + self._longest(size)), 100.0, max(26.0, 2 * _PANEL / columns))
            tall, self.name_size, self.beside = 28.0, 13, 22
        grid = CellGrid(self.sheet, len(self.rows), columns, wide, tall, 70.0, size=size)
        self.name_width = (
            0 if grid.is_low else ceil(max(width_of(self._name(b), 13) for b in self.rows))
        )
        left = grid.left if grid.is_low else 4 + self.name_width + 12 + _LENGTH + self.beside
        # The label "batch_sizes" is in the margin if the steps are below the grid; else it is
        # between the panels.
        self.stacked = self.part == text.PACKED or left + 2 * columns * wide + _SLOPE > _WIDEST
        self.listed = self.indices and not grid.is_low and not self.stacked
        left = steps_left = max(left, _MARGIN) if self.stacked else left
        if not self.stacked:
            slope = (_LISTS if self.listed else _SLOPE) + self.name_width
            steps_left = max(left + columns * wide + slope, ceil(width_of(self._title())) + 16)
        self.grid = grid = replace(grid, left=left)
        top = TOP + grid.foot + 14 if self.stacked and self.part == text.WHOLE else TOP
        self.stepped = replace(grid, left=steps_left, top=top, columns=layout.batch_sizes.size)
        self.width = max(560, steps_left + max(columns * wide, width_of(_STEPS_TITLE)) + 20)
        if self.flat:
            self.width = max(self.width, 8 + width_of(text.flat(layout)))
        self._arrange()

    def _arrange(self) -> None:
        """Computes the width of a row of data, and whether all rows fit on one line (always true in a large batch)."""
        layout, self.gap, self.one_line = self.layout, 0.0, True
        self.per_row = (self.width - 8) / layout.n_real
        if not self.few:
            return
        self.gap = (
            0.0 if self.flat else _GAP
        )  # a row with the same place in both orders must lie exactly below itself
        gaps, least = self.gap * (layout.batch_sizes.size - 1), min(4 + self._longest(12), 100)
        for wide in () if self.stacked else (max(self.width, _LINE), _WIDEST):
            self.per_row = min(self.grid.wide, (wide - 8 - gaps) / layout.n_real)
            if self.per_row >= least:
                self.width = max(self.width, 8 + layout.n_real * self.per_row + gaps)
                return
        self.per_row, self.one_line = self.grid.wide, False

    def _longest(self, size: int) -> float:
        """Returns the width, in px, of the longest label in a cell."""
        cells = np.ndindex(self.layout.batch_size, self.layout.max_len)
        return max(width_of(cell_label(self.labels, b, t, self.names), size) for b, t in cells)

    def draw(self) -> Sheet:
        """Draws the whole picture from top to bottom, or only one part of it."""
        whole, y = self.part == text.WHOLE, 0.0
        if self.part in (text.WHOLE, text.PADDED):
            self.padded()
            y = self.grid.foot + 6
        if self.part in (text.WHOLE, text.PACKED):
            self.steps()
            y = self.stepped.foot + (26 if whole and self.stacked else 18 if whole else 24)
        if self.part in (text.WHOLE, text.DATA):
            y = self.data(y) if whole and self.one_line else self.lines(y)
        if self.flat and self.one_line and self.few:
            y = self.permutation(y - 8)
        elif self.flat or self.mistaken:
            y = self.lines(y + 8, flat=True)
        y = self.sheet.paragraph(4, y - whole, self._notes(), size=11, ink=self.muted) + whole
        # In a small batch, notes may be wider than the parts. In a large batch, thin bars may be,
        # but they are cut off.
        if whole or (self.part == text.DATA and not self.few):
            self.sheet.size(
                max(self.width, self.sheet.width - 4) if self.few else self.width, y + 6
            )
        return self.sheet

    # The panels.

    def padded(self) -> None:
        """Draws the padded grid in the caller's order, with padding hatched."""
        layout, grid = self.layout, self.grid
        self.sheet.text(grid.left, 14, f"padded: {text.count(layout.n_cells, 'cell')}", bold=True)
        if not self.few:
            self.sheet.box(
                grid.left, grid.top, grid.right - grid.left, grid.foot - grid.top, HATCHED
            )
        self._cells(grid, self.rows, padding=self.few)
        self._names(grid, self.rows)
        self._frame(grid, layout.batch_size)

    def steps(self) -> None:
        """Draws the sequences without padding, longest first. The RNN reads one column at each time step."""
        layout, grid = self.layout, self.stepped
        order = layout.sorted_indices[self.rows].tolist()
        self.sheet.text(grid.left, grid.top - 30, _STEPS_TITLE, bold=True)
        self._cells(grid, order)
        if self.step is not None:
            self._frame(grid, int(layout.batch_sizes[self.step]))
        if self.stacked:
            self._names(grid, order)
        elif not grid.is_low:
            self._sort_lines(order)
        below = grid.foot + 16
        self.sheet.text(grid.left - 22, below, "batch_sizes", anchor="end", ink=self.muted)
        for t in self._ticks(grid):
            size = str(layout.batch_sizes[t])
            self.sheet.text(grid.x(t + 0.5), below, size, anchor="middle", bold=t == self.step)

    # The data.

    def data(self, top: float) -> float:
        """Draws the rows of data on one line, with a connection from each time step's column above
        to its rows.

        Returns the y-coordinate below the rows.
        """
        y, height = top + _FALL + 8, 24.0 if self.few else 18.0
        self.sheet.text(4, top + 17, self._title(), bold=True)
        if self.few:
            for t, (_, cells) in enumerate(self._groups(flat=False)):
                self._stretch(self._place(t)[0], y, cells)
        else:
            self._bands(y, flat=False)
        for t in self._ticks(self.stepped):
            self._bracket(self.stepped.x(t + 0.5), top + 6, t, y - 3)
        if self.step is None:
            return y + height + 8
        start, end = self.layout.offsets[self.step : self.step + 2]
        label, (left, right) = f"data[{start}:{end}]", self._place(self.step)
        middle = min(
            max((left + right) / 2, 4 + width_of(label) / 2), self.width - 4 - width_of(label) / 2
        )
        self.sheet.text(middle, y + height + 17, label, anchor="middle", bold=True, ink=self.accent)
        return y + height + 26

    def permutation(self, top: float) -> float:
        """Draws the flat rows, with a line from each packed row to its flat row.

        Args:
            top: the y-coordinate at which the packed rows end.

        Returns:
            The y-coordinate below the flat rows.
        """
        layout, sheet, y = self.layout, self.sheet, top + _FALL
        for place, (b, row) in enumerate(
            zip(layout.source[:, 0].tolist(), layout.flat_rows.tolist(), strict=True)
        ):
            x0, x1 = (4 + (i + 0.5) * self.per_row for i in (place, row))
            sheet.curve((x0, top), (x1, y), palette.sequence_colour(b), width=2, down=True)
        self._stretch(4, y, np.argwhere(layout.mask).tolist())
        for x, label in roomy(
            [(4 + start * self.per_row, str(start)) for start in layout.starts.tolist()]
        ):
            sheet.text(x, y + 37, label, anchor="middle", size=11, ink=self.muted)
        end = 4 + layout.n_real * self.per_row + width_of(str(layout.n_real))
        sheet.text(end, y + 37, "starts", size=11, ink=self.muted)
        sheet.text(4, y + 55, text.flat(layout), bold=True)
        return y + 68

    def lines(self, top: float, flat: bool = False) -> float:
        """Draws the rows of data on as many lines as they need, in a named group for each time step
        or sequence.

        Args:
            top: the y-coordinate to begin at.
            flat: whether to draw the rows one sequence after another rather than step by step.

        Returns:
            The y-coordinate below the rows.
        """
        wrong, title, marks = flat and self.mistaken, self._title(flat), self._marks(flat)
        if marks and not flat:
            title += "; step {} fills data[{}:{}]".format(self.step, *marks[0])
        elif len(marks) > 1:
            title += f" (the rows of step {self.step} would lie apart)"
        self.sheet.text(
            4, top + 12, title, bold=True, ink=self.sheet.colours.wrong if wrong else ""
        )
        if not self.few:
            self._bands(top + 22, flat)
            return top + 22 + 18 + 8
        width, right = self.per_row, max(self.width, _LINE) - 4
        x, y = 4.0, top + 42
        for name, cells in self._groups(flat):
            if x > 4 and x + len(cells) * width > right:
                x, y = 4.0, y + 54
            self.sheet.text(x + 1, y - 13, name, size=11, ink=self.muted)
            while cells:
                fitting = max(
                    int((right - x) / width + 1e-9), 1
                )  # a group wider than the picture continues below
                line, cells = cells[:fitting], cells[fitting:]
                end = x + len(line) * width
                self._clamp(x, end, y - 3)
                self._stretch(x, y, line, wrong)
                x, y = (4.0, y + 54) if cells else (end + _GAP, y)
        return y + 32

    def _place(self, t: int) -> Point:
        """Returns the x-coordinates of the left and right ends of a step's rows. The data must be on one line."""
        start, end = self.layout.offsets[t : t + 2]
        return 4 + start * self.per_row + t * self.gap, 4 + end * self.per_row + t * self.gap

    def _stretch(self, x: float, y: float, cells: list[list[int]], wrong: bool = False) -> None:
        """Draws cells of data side by side: framed at the highlighted step, and without fill at later steps."""
        width, height = self.per_row, 24.0
        size = self.grid.size if width == self.grid.wide else 12
        for i, (b, t) in enumerate(cells):
            left, label = x + i * width, self._label(b, t, width, size)
            if self.step is not None and not wrong and t > self.step:  # not packed yet
                self.sheet.box(left, y, width, height, stroke=self.muted, thick=1, dash="2 2")
                self.sheet.text(
                    left + width / 2, y + 16, label, anchor="middle", size=size, ink=self.muted
                )
            else:
                self.sheet.cell(
                    left, y, width, height, palette.sequence_colour(b), label, size=size
                )
            if t == self.step:
                self.sheet.box(left, y, width, height, stroke=self.accent, thick=3)

    def _bracket(self, x: float, y: float, t: int, foot: float) -> None:
        """Draws the bracket over a step's rows of data, and a line from the step's column down to it."""
        start, end = self._place(t)
        middle, here = (start + end) / 2, t == self.step
        y1, y2, y3 = (n(y + share * (foot - 6 - y)) for share in (0.7, 0.3, 1))
        curve = f"M{n(x)} {n(y)}C{n(x)} {y1} {n(middle)} {y2} {n(middle)} {y3}"
        self._clamp(start, end, foot, curve, here)

    def _clamp(
        self, start: float, end: float, foot: float, more: str = "", here: bool = False
    ) -> None:
        """Draws a bracket over adjacent rows of data."""
        inset = min(1.0, (end - start) / 4)
        d = f"{more}M{n(start + inset)} {n(foot)}v-6H{n(end - inset)}v6"
        self.sheet.path(d, stroke=self.accent if here else self.muted, width=2 if here else 1)

    def _groups(self, flat: bool) -> Iterator[tuple[str, list[list[int]]]]:
        """Yields the name and the cells `(b, t)` of each time step, or of each sequence if `flat` is true."""
        layout = self.layout
        cells, sizes = (
            (np.argwhere(layout.mask), layout.lengths)
            if flat
            else (layout.source, layout.batch_sizes)
        )
        for i, group in enumerate(np.split(cells, np.cumsum(sizes)[:-1])):
            yield self._name(i) if flat else f"t={i}", group.tolist()

    def _marks(self, flat: bool) -> list[tuple[int, int]]:
        """Returns the ranges of rows that belong to the highlighted step, each as `(first row, row after the last)`."""
        layout, t = self.layout, self.step
        if t is None:
            return []
        if not flat:
            return [(int(layout.offsets[t]), int(layout.offsets[t + 1]))]
        return [(row, row + 1) for row in (layout.starts[:-1][layout.lengths > t] + t).tolist()]

    def _bands(self, top: float, flat: bool) -> None:
        """Draws the data of a large batch as a bar. Every second time step (or sequence, if `flat`) is shaded."""
        layout, colours, per_row = self.layout, self.sheet.colours, self.per_row
        sizes = layout.lengths if flat else layout.batch_sizes
        odd = zip(np.cumsum(sizes)[1::2], sizes[1::2], strict=True)
        stretches = [(0.0, float(layout.n_real), colours.padding, colours.line)]
        stretches += [
            (end - size, end, colours.hatch, "") for end, size in odd if size * per_row >= 1
        ]
        stretches += [(start, end, colours.accent, "") for start, end in self._marks(flat)]
        for a, b, fill, stroke in stretches:
            self.sheet.box(
                4 + a * per_row, top, max((b - a) * per_row, 1), 18, fill, stroke=stroke, thick=1
            )

    # Words.

    def _title(self, flat: bool = False) -> str:
        """Returns the title of the rows of data."""
        if not flat:
            return f"data: {text.count(self.layout.n_real, 'row')}, from left to right"
        return "✗ wrong: one sequence after another" if self.mistaken else text.flat(self.layout)

    def _notes(self) -> list[str]:
        """Returns the notes to write below the picture."""
        layout, notes = self.layout, []
        if self.indices and not self.listed:
            notes.append(f"sorted_indices {text.numbers(layout.sorted_indices)}")
            notes.append(f"unsorted_indices {text.numbers(layout.unsorted_indices)}")
        if self.explain:
            notes += text.EXPLAINED.values()
        steps, data = self.part in (text.WHOLE, text.PACKED), self.part in (text.WHOLE, text.DATA)
        if steps and len(self._ticks(self.stepped)) < layout.batch_sizes.size:
            notes.append("Some batch_sizes are left out, because not every step has room for one.")
        if data and not self.few and layout.batch_sizes.min() * self.per_row < 1:
            notes.append("Where the bar of data is plain, its steps are too thin to be told apart.")
        if self.stride > 1 and self.part != text.DATA:
            notes.append(one_in(self.stride, layout.batch_size))
        return notes

    def _name(self, b: int) -> str:
        return clip(text.name(self.names, b), _NAME)

    def _label(self, b: int, t: int, width: float, size: int) -> str:
        return clip(cell_label(self.labels, b, t, self.names), width - 4, size)

    # Shared by both panels.

    def _cells(self, grid: CellGrid, rows: Sequence[int], *, padding: bool = False) -> None:
        """Draws the time axis and, below it, each sequence's real cells, followed by padding if `padding` is true."""
        layout = self.layout
        label = partial(self._label, width=grid.wide, size=grid.size)
        grid.heads([str(t) for t in range(grid.columns)], here=self.step, shown=self._ticks(grid))
        behind = range(layout.max_len if padding else 0)
        grid.draw(
            [
                *real_cells(layout, b, label if self.few else None),
                *(
                    Cell(HATCHED, label(b, t) if self.labels else "")
                    for t in behind[layout.lengths[b] :]
                ),
            ]
            for b in rows
        )

    def _names(self, grid: CellGrid, rows: Sequence[int]) -> None:
        """Writes the name and length of each row or, if rows are too low for names, only the indices of some rows."""
        if grid.is_low:
            grid.names([f"b = {rows[0]}", *map(str, rows[1:])], right=8, size=11)
            return
        self.sheet.text(
            grid.left - self.beside, grid.top - 9, "length", anchor="end", size=11, ink=self.muted
        )
        lengths = self.layout.lengths[[*rows]].tolist()
        grid.names([self._name(b) for b in rows], lengths, self.beside, self.name_size)

    def _sort_lines(self, order: Sequence[int]) -> None:
        """Draws a line from each sequence's row in the padded grid to its row in the sorted grid."""
        sheet, grid, left, top = self.sheet, self.grid, self.stepped.left, self.grid.top
        start, end = grid.right + 6, left - 6 - self.name_width - 8
        if self.listed:
            # The last time step's number may reach beyond the grid.
            beyond = (width_of(str(self.layout.max_len - 1), 11) - grid.wide) / 2
            sheet.text(
                grid.right + max(8, beyond + 4),
                top - 9,
                "unsorted_indices",
                size=11,
                ink=self.muted,
            )
            sheet.text(left - 34, top - 9, "sorted_indices", anchor="end", size=11, ink=self.muted)
            start, end = grid.right + 34, end - 28
        self.stepped.names([self._name(b) for b in order], right=6, size=self.name_size)
        for rank, b in enumerate(order):
            row = b // self.stride
            sheet.curve(
                (start, grid.y(row + 0.5)), (end, grid.y(rank + 0.5)), palette.sequence_colour(b)
            )
            if self.listed:
                sheet.text(grid.right + 28, grid.line(row), str(rank), anchor="end")
                sheet.text(end + 24, grid.line(rank), str(b), anchor="end")

    def _ticks(self, grid: CellGrid) -> list[int]:
        """Returns the time steps that have enough room for a number above and a batch size below."""
        return grid.ticks(
            grid.columns, max(str(grid.columns), str(self.layout.batch_size), key=len), self.step
        )

    def _frame(self, grid: CellGrid, running: int) -> None:
        """Frames the column of the highlighted step, down to the last sequence that is still running."""
        if self.step is not None:
            grid.frame(0, self.step, -(-running // self.stride))
