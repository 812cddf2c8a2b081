"""A layout drawn: the padded grid, the packed steps beside it, and the packed data underneath.

Few cells are drawn one by one with what is in them; many as runs, one stretch per sequence, so that 512 × 512 cells
stay a few shapes and kilobytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import ceil
from typing import Any, NamedTuple

import numpy as np

from packviz.core.layout import IntArray, Layout
from packviz.draw import palette, text
from packviz.draw.cellgrid import TOP, Cell, CellGrid, clip, one_in, real_cells, roomy, stride
from packviz.draw.sheet import HATCHED, Point, Sheet, n, width_of
from packviz.draw.text import Labels, cell_label, is_few, summary

_PANEL = 460  # px: two panels of this width stand side by side in a JupyterLab cell
_TALL = 400  # px: the tallest panel of runs
_WIDEST = 1160  # px: panels that would be wider together stand one below the other, and data continues in a second line
_LINE = 940  # px: up to here, or to the panels' width, cells of data are as wide as they can be
_MOST_ROWS = 512  # more sequences than this would share pixels: some are left out, and the picture says so
_STEPS_TITLE = "packed: longest first, no padding"
_SLOPE = 110  # px: between the panels, where lines show the sort
_LISTS = 270  # px: the same with the lists of indices
_LENGTH = 41  # px: the column of lengths
_NAME = 110  # px: longer names are cut
_FALL = 58  # px: from the batch sizes to the data, where lines show which column goes where
_MARGIN = 26 + width_of("batch_sizes")  # px: to the left of steps that have this label there
_GAP = 6  # px: between the stretches of data


class _Scale(NamedTuple):
    """How large one cell is, and which sequences are drawn."""

    width: float
    height: float
    few: bool
    stride: int
    size: int = 12

    @property
    def letters(self) -> bool:
        """Whether a row is high enough for a letter."""
        return self.height >= 11

    @property
    def names(self) -> int:
        """The size of a row's name, in px."""
        return 13 if self.few else 12


def draw(layout: Layout, labels: Labels | None = None, **choices: Any) -> Sheet:
    """Draws the padded batch, the packed steps and the packed data; `choices` are attributes of `_Batch`.

    Raises:
        ValueError: there is no such theme, or no such time step.
    """
    step, last = choices.get("step"), layout.batch_sizes.size - 1
    if step is not None and not 0 <= step <= last:
        raise ValueError(f"step is {step}; the longest sequence has time steps 0 … {last}")
    return _Batch(layout, labels, **choices).draw()


class _Flow(NamedTuple):
    """Where the two panels are.

    Attributes:
        left: left side of the padded grid in px.
        steps_left: left side of the packed steps in px.
        stacked: whether the steps stand below the padded grid.
        listed: whether the lists of indices stand at both ends of the lines that show the sort.
        name_width: width of the longest name in px.
        lengths: px from the end of the column of lengths to the grid.
        width: width of the panels in px.
    """

    left: float
    steps_left: float
    stacked: bool
    listed: bool
    name_width: int
    lengths: int
    width: float


class _Data(NamedTuple):
    """How the rows of data lie: bars of runs, or cells, which are in one line if they can be so narrow.

    Attributes:
        per_row: width of a row of data in px.
        gap: px between the stretches of two steps.
        one_line: whether all rows lie in one line.
        width: width of the picture in px.
    """

    per_row: float
    gap: float
    one_line: bool
    width: float


def _title(layout: Layout) -> str:
    return f"data: {text.count(layout.n_valid, 'row')}, step by step"


@dataclass(frozen=True)
class _Batch:
    """What is drawn of a batch, and the drawing of it.

    Attributes:
        layout: what to draw.
        labels: what stands in the cells, sequence by sequence, used when there are few; letter and time step if None.
        names: of the sequences; letters if None.
        step: a time step to point at: its cells are framed, and the data shows what has been packed up to it.
        mistaken: adds the order that `data` is often taken to have, one sequence after another.
        indices: adds `sorted_indices` and `unsorted_indices`, each value at the row that it is about.
        explain: says below what each part is.
        flat: adds the flat rows, one sequence after another as attention wants them, and where each packed row lies.
        part: one of `text.PARTS`, to draw that part alone.
        theme: `"light"`, `"dark"`, or `"live"` for colours that follow the page around the picture.
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

    @cached_property
    def sheet(self) -> Sheet:
        """What is drawn on."""
        return Sheet(self.theme, summary(self.layout))

    @cached_property
    def scale(self) -> _Scale:
        """How large a cell is."""
        B, T = self.layout.batch_size, self.layout.max_len
        if is_few(self.layout):
            size, least = (13, 36.0) if T <= 10 else (12, 26.0)
            width = min(max(least, 8 + self._longest(size)), 100.0, max(26.0, 2 * _PANEL / T))
            return _Scale(width, 28.0, True, 1, size)
        each = stride(B, _MOST_ROWS)
        return _Scale(min(24.0, _PANEL / T), min(22.0, max(1.0, _TALL / -(-B // each))), False, each)

    def _longest(self, size: int) -> float:
        """The width of the longest label of a cell, in px."""
        cells = np.ndindex(self.layout.batch_size, self.layout.max_len)
        return max(width_of(cell_label(self.labels, b, t, self.names), size) for b, t in cells)

    @cached_property
    def flow(self) -> _Flow:
        """Where the two panels are."""
        scale, name_width, left, lengths = self.scale, 0, 70.0, 22 if self.scale.few else 36
        if scale.letters:
            name_width = ceil(max(width_of(self._name(b), 13) for b in self.rows))
            left = 4 + name_width + 12 + _LENGTH + lengths
        wide = self.layout.max_len * scale.width
        # The label "batch_sizes" stands in the margin if the steps stand below the grid; else it has the slope.
        stacked = self.part == text.PACKED or left + 2 * wide + _SLOPE > _WIDEST
        listed = self.indices and scale.letters and not stacked
        if stacked:
            left = steps_left = max(left, _MARGIN)
        else:
            slope = (_LISTS if listed else _SLOPE) + name_width
            steps_left = max(left + wide + slope, ceil(width_of(_title(self.layout))) + 16)
        width = max(560, steps_left + max(wide, width_of(_STEPS_TITLE)) + 20)
        width = max(width, 8 + width_of(text.flat(self.layout))) if self.flat else width
        return _Flow(left, steps_left, stacked, listed, name_width, lengths, width)

    @cached_property
    def place(self) -> _Data:
        """How the rows of data lie."""
        layout, scale, flow = self.layout, self.scale, self.flow
        if not scale.few:
            return _Data((flow.width - 8) / layout.n_valid, 0.0, True, flow.width)
        gap = 0 if self.flat else _GAP  # a row that lies flat where it lies packed is to stand right below it
        gaps, least = gap * (layout.batch_sizes.size - 1), min(4 + self._longest(12), 100)
        for wide in () if flow.stacked else (max(flow.width, _LINE), _WIDEST):
            per_row = min(scale.width, (wide - 8 - gaps) / layout.n_valid)
            if per_row >= least:
                return _Data(per_row, gap, True, max(flow.width, 8 + layout.n_valid * per_row + gaps))
        return _Data(scale.width, gap, False, flow.width)

    def draw(self) -> Sheet:
        """The picture's parts, from top to bottom, or one of them."""
        whole, few, y = self.part == text.WHOLE, self.scale.few, 0.0
        if self.part in (text.WHOLE, text.PADDED):
            self.padded()
            y = self.grid.foot + 6
        if self.part in (text.WHOLE, text.PACKED):
            self.steps()
            y = self.stepped.foot + (26 if whole and self.flow.stacked else 18 if whole else 24)
        if self.part in (text.WHOLE, text.DATA):
            y = self.data(y) if whole and self.place.one_line else self.lines(y, self._true_order())
        if self.flat and self.place.one_line and few:
            y = self.permutation(y - 8)
        elif self.flat or self.mistaken:
            y = self.lines(y + 8, self._flat_order())
        y = self.sheet.paragraph(4, y - whole, self._notes(), size=11, ink=self.muted) + whole
        # Notes may reach further than the parts; so may the thin bars of a large batch, which are cut.
        if whole or (self.part == text.DATA and not few):
            width = self.place.width
            self.sheet.size(max(width, self.sheet.width - 4) if few else width, y + 6)
        return self.sheet

    @property
    def muted(self) -> str:
        """The colour of axes and notes."""
        return self.sheet.colours.muted

    @property
    def accent(self) -> str:
        """The colour of what is pointed at."""
        return self.sheet.colours.accent

    @property
    def rows(self) -> range:
        """The sequences that are drawn."""
        return range(0, self.layout.batch_size, self.scale.stride)

    @cached_property
    def grid(self) -> CellGrid:
        """The padded grid."""
        scale, columns = self.scale, self.layout.max_len
        return CellGrid(self.sheet, len(self.rows), columns, scale.width, scale.height, self.flow.left, size=scale.size)

    @cached_property
    def stepped(self) -> CellGrid:
        """The packed steps."""
        top = TOP + self.grid.foot + 14 if self.flow.stacked and self.part == text.WHOLE else TOP
        return replace(self.grid, left=self.flow.steps_left, top=top, columns=self.layout.batch_sizes.size)

    # The panels.

    def padded(self) -> None:
        """The grid as the caller's tensor holds it, padding hatched."""
        layout, grid = self.layout, self.grid
        self.sheet.text(grid.left, 14, f"padded: {text.count(layout.n_cells, 'cell')}", bold=True)
        if not self.scale.few:
            self.sheet.box(grid.left, grid.top, grid.right - grid.left, grid.foot - grid.top, HATCHED)
        self._cells(grid, self.rows, padding=self.scale.few)
        self._names(grid, self.rows)
        self._frame(grid, layout.batch_size)

    def steps(self) -> None:
        """The sequences longest first, without padding: a column is what the RNN reads at one time step."""
        layout, grid = self.layout, self.stepped
        order = layout.sorted_indices[self.rows].tolist()
        self.sheet.text(grid.left, grid.top - 30, _STEPS_TITLE, bold=True)
        self._cells(grid, order)
        if self.step is not None:
            self._frame(grid, int(layout.batch_sizes[self.step]))
        if self.flow.stacked:
            self._names(grid, order)
        elif self.scale.letters:
            self._sort_lines(order)
        below = grid.foot + 16
        self.sheet.text(grid.left - 22, below, "batch_sizes", anchor="end", ink=self.muted)
        for t in self._ticks(grid):
            size = str(layout.batch_sizes[t])
            self.sheet.text(grid.x(t + 0.5), below, size, anchor="middle", bold=t == self.step)

    # The data.

    def data(self, top: float) -> float:
        """The rows of data in one line, each stretch tied to its packed column; gives the y where it ends."""
        order, y, height = self._true_order(), top + _FALL + 8, 24.0
        self.sheet.text(4, top + 17, _title(self.layout), bold=True)
        if self.scale.few:
            for t, (_, cells) in enumerate(order.groups()):
                self._stretch(self._place(t)[0], y, cells)
        else:
            self._bands(y, order)
            height = 18.0
        for t in self._ticks(self.stepped):
            self._bracket(self.stepped.x(t + 0.5), top + 6, t, y - 3)
        if self.step is None:
            return y + height + 8
        start, end = self.layout.offsets[self.step : self.step + 2]
        label, (left, right) = f"data[{start}:{end}]", self._place(self.step)
        middle = min(max((left + right) / 2, 4 + width_of(label) / 2), self.place.width - 4 - width_of(label) / 2)
        self.sheet.text(middle, y + height + 17, label, anchor="middle", bold=True, ink=self.accent)
        return y + height + 26

    def permutation(self, top: float) -> float:
        """From each packed row a line to its flat row below; gives the y where these end.

        Args:
            top: where the packed rows end, in px.
        """
        layout, sheet, y = self.layout, self.sheet, top + _FALL
        for place, (b, row) in enumerate(zip(layout.source[:, 0].tolist(), layout.flat_rows.tolist(), strict=True)):
            x0, x1 = (4 + (i + 0.5) * self.place.per_row for i in (place, row))
            sheet.curve((x0, top), (x1, y), palette.sequence_colour(b), width=2, down=True)
        self._stretch(4, y, np.argwhere(layout.mask).tolist())
        for x, label in roomy([(4 + start * self.place.per_row, str(start)) for start in layout.starts.tolist()]):
            sheet.text(x, y + 37, label, anchor="middle", size=11, ink=self.muted)
        end = 4 + layout.n_valid * self.place.per_row + width_of(str(layout.n_valid))
        sheet.text(end, y + 37, "starts", size=11, ink=self.muted)
        sheet.text(4, y + 55, text.flat(layout), bold=True)
        return y + 68

    def lines(self, top: float, order: _Order) -> float:
        """The rows of data in as many lines as they need, group by group; gives the y where they end."""
        self.sheet.text(4, top + 12, order.title, bold=True, ink=self.sheet.colours.wrong if order.wrong else "")
        if not self.scale.few:
            self._bands(top + 22, order)
            return top + 22 + 18 + 8
        width, right = self.place.per_row, max(self.place.width, _LINE) - 4
        x, y = 4.0, top + 42
        for name, cells in order.groups():
            if x > 4 and x + len(cells) * width > right:
                x, y = 4.0, y + 54
            self.sheet.text(x + 1, y - 13, name, size=11, ink=self.muted)
            while cells:
                fitting = max(int((right - x) / width + 1e-9), 1)  # a group wider than the picture continues below
                line, cells = cells[:fitting], cells[fitting:]
                end = x + len(line) * width
                self._clamp(x, end, y - 3)
                self._stretch(x, y, line, order.wrong)
                x, y = (4.0, y + 54) if cells else (end + _GAP, y)
        return y + 32

    def _place(self, t: int) -> Point:
        """From where to where the rows of a step lie, where the data is in one line."""
        start, end = self.layout.offsets[t : t + 2]
        per_row, gaps = self.place.per_row, t * self.place.gap
        return 4 + start * per_row + gaps, 4 + end * per_row + gaps

    def _stretch(self, x: float, y: float, cells: list[list[int]], wrong: bool = False) -> None:
        """Cells of data side by side: those after the step pointed at are empty, those of it are framed."""
        width, height = self.place.per_row, 24.0
        size = self.scale.size if width == self.scale.width else 12
        for i, (b, t) in enumerate(cells):
            left, label = x + i * width, self._label(b, t, width, size)
            if self.step is not None and not wrong and t > self.step:  # not packed yet
                self.sheet.box(left, y, width, height, stroke=self.muted, thick=1, dash="2 2")
                self.sheet.text(left + width / 2, y + 16, label, anchor="middle", size=size, ink=self.muted)
            else:
                self.sheet.cell(left, y, width, height, palette.sequence_colour(b), label, size=size)
            if t == self.step:
                self.sheet.box(left, y, width, height, stroke=self.accent, thick=3)

    def _bracket(self, x: float, y: float, t: int, foot: float) -> None:
        """A line from the column of a step down to the bracket over its stretch of data."""
        start, end = self._place(t)
        middle, here = (start + end) / 2, t == self.step
        y1, y2, y3 = (n(y + share * (foot - 6 - y)) for share in (0.7, 0.3, 1))
        curve = f"M{n(x)} {n(y)}C{n(x)} {y1} {n(middle)} {y2} {n(middle)} {y3}"
        self._clamp(start, end, foot, curve, here)

    def _clamp(self, start: float, end: float, foot: float, more: str = "", here: bool = False) -> None:
        """The bracket over a stretch of data."""
        inset = min(1.0, (end - start) / 4)
        d = f"{more}M{n(start + inset)} {n(foot)}v-6H{n(end - inset)}v6"
        self.sheet.path(d, stroke=self.accent if here else self.muted, width=2 if here else 1)

    def _true_order(self) -> _Order:
        layout, title, marks = self.layout, _title(self.layout), []
        if self.step is not None:
            start, end = map(int, layout.offsets[self.step : self.step + 2])
            title, marks = f"{title}; step {self.step} fills data[{start}:{end}]", [(start, end)]
        return _Order(title, "t={}".format, layout.batch_sizes.tolist(), lambda: layout.source, marks)

    def _flat_order(self) -> _Order:
        layout, marks = self.layout, []
        title = "✗ not so: one sequence after another" if self.mistaken else text.flat(layout)
        if self.step is not None:
            if layout.batch_sizes[self.step] > 1:
                title += f" (the rows of step {self.step} would lie apart)"
            rows = layout.starts[:-1][layout.lengths > self.step] + self.step
            marks = [(row, row + 1) for row in rows.tolist()]
        cells = partial(np.argwhere, layout.mask)
        return _Order(title, self._name, layout.lengths.tolist(), cells, marks, wrong=self.mistaken)

    # Words.

    def _notes(self) -> list[str]:
        layout, scale = self.layout, self.scale
        notes = []
        if self.indices and not self.flow.listed:
            notes.append(f"sorted_indices {text.numbers(layout.sorted_indices)}")
            notes.append(f"unsorted_indices {text.numbers(layout.unsorted_indices)}")
        if self.explain:
            notes += text.EXPLAINED.values()
        steps, data = self.part in (text.WHOLE, text.PACKED), self.part in (text.WHOLE, text.DATA)
        if steps and len(self._ticks(self.stepped)) < layout.batch_sizes.size:
            notes.append("Not every step has room for its number: some of the batch_sizes are left out.")
        if data and not scale.few and layout.batch_sizes.min() * self.place.per_row < 1:
            notes.append("Where the bar of data is plain, its steps are too thin to be told apart.")
        if scale.stride > 1 and self.part != text.DATA:
            notes.append(one_in(scale.stride, layout.batch_size))
        return notes

    def _name(self, b: int) -> str:
        return clip(text.name(self.names, b), _NAME)

    def _label(self, b: int, t: int, width: float, size: int) -> str:
        return clip(cell_label(self.labels, b, t, self.names), width - 4, size)

    # What panels share.

    def _cells(self, grid: CellGrid, rows: Sequence[int], *, padding: bool = False) -> None:
        """The real cells of sequences one below the other under the axis of time; behind them padding, cell by cell."""
        layout, scale = self.layout, self.scale
        label = partial(self._label, width=scale.width, size=scale.size)
        grid.heads([str(t) for t in range(grid.columns)], here=self.step, shown=self._ticks(grid))
        behind = range(layout.max_len if padding else 0)
        grid.draw(
            [
                *real_cells(layout, b, label if scale.few else None),
                *(Cell(HATCHED, label(b, t) if self.labels else "") for t in behind[layout.lengths[b] :]),
            ]
            for b in rows
        )

    def _names(self, grid: CellGrid, rows: Sequence[int]) -> None:
        """Name and length of each row in two columns; beside the low rows of a large batch only some indices."""
        if not self.scale.letters:
            grid.names([f"b = {rows[0]}", *map(str, rows[1:])], right=8, size=11)
            return
        end = self.flow.lengths
        self.sheet.text(grid.left - end, grid.top - 9, "length", anchor="end", size=11, ink=self.muted)
        lengths = self.layout.lengths[[*rows]].tolist()
        grid.names([self._name(b) for b in rows], lengths, end, self.scale.names)

    def _sort_lines(self, order: Sequence[int]) -> None:
        """From each sequence's row in the grid to its row by length: the sort permutation, drawn."""
        sheet, grid, left, top, listed = self.sheet, self.grid, self.stepped.left, self.grid.top, self.flow.listed
        start, end = grid.right + 6, left - 6 - self.flow.name_width - 8
        if listed:
            # The last time step's number may reach beyond the grid.
            beyond = (width_of(str(self.layout.max_len - 1), 11) - self.scale.width) / 2
            sheet.text(grid.right + max(8, beyond + 4), top - 9, "unsorted_indices", size=11, ink=self.muted)
            sheet.text(left - 34, top - 9, "sorted_indices", anchor="end", size=11, ink=self.muted)
            start, end = grid.right + 34, end - 28
        self.stepped.names([self._name(b) for b in order], right=6, size=self.scale.names)
        for rank, b in enumerate(order):
            row = b // self.scale.stride
            sheet.curve((start, grid.y(row + 0.5)), (end, grid.y(rank + 0.5)), palette.sequence_colour(b))
            if listed:
                sheet.text(grid.right + 28, grid.line(row), str(rank), anchor="end")
                sheet.text(end + 24, grid.line(rank), str(b), anchor="end")

    def _ticks(self, grid: CellGrid) -> list[int]:
        """Time steps that have room for their number and for the batch size under it."""
        return grid.ticks(grid.columns, max(str(grid.columns), str(self.layout.batch_size), key=len), self.step)

    def _frame(self, grid: CellGrid, running: int) -> None:
        """A frame around the column of the step pointed at: so many sequences of it."""
        if self.step is not None:
            grid.frame(0, self.step, -(-running // self.scale.stride))

    def _bands(self, top: float, order: _Order) -> None:
        """The data of a large batch as one bar: every other group shaded, as long as they can be told apart."""
        colours, per_row = self.sheet.colours, self.place.per_row
        ends = np.cumsum(order.sizes)
        odd = zip(ends[1::2], order.sizes[1::2], strict=True)
        stretches = [(0.0, float(self.layout.n_valid), colours.padding, colours.line)]
        stretches += [(end - size, end, colours.hatch, "") for end, size in odd if size * per_row >= 1]
        stretches += [(start, end, colours.accent, "") for start, end in order.marks]
        for a, b, fill, stroke in stretches:
            self.sheet.box(4 + a * per_row, top, max((b - a) * per_row, 1), 18, fill, stroke=stroke, thick=1)


class _Order(NamedTuple):
    """An order of the real cells in one line: the true one, or a mistaken one.

    `name` and `sizes` tell its groups, `cells` gives the cell `(b, t)` of each row, `marks` the stretches of rows that
    belong to the time step pointed at.
    """

    title: str
    name: Callable[[int], str]
    sizes: list[int]
    cells: Callable[[], IntArray]
    marks: list[tuple[int, int]]
    wrong: bool = False

    def groups(self) -> Iterator[tuple[str, list[list[int]]]]:
        """The name and the cells of each group."""
        for i, cells in enumerate(np.split(self.cells(), np.cumsum(self.sizes)[:-1])):
            yield self.name(i), cells.tolist()
