"""A layout drawn: the padded grid, the packed steps beside it, and the packed data underneath.

Few cells are drawn one by one with what is in them; many as runs, one stretch per sequence, so that 512 × 512 cells
stay a few shapes and kilobytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import Any

import numpy as np

from packviz.core.layout import IntArray, Layout
from packviz.draw import palette, text
from packviz.draw.chart import nice, roomy
from packviz.draw.sequences import clip, one_in, real_cells, row_name, stride
from packviz.draw.sheet import CHAR, HATCHED, Point, Sheet, n, width_of
from packviz.draw.text import Labels, cell_label, is_few, summary

_PANEL = 460  # px: two panels of this width stand side by side in a JupyterLab cell
_TALL = 400  # px: the tallest panel of runs
_WIDEST = 1160  # px: panels that would be wider together stand one below the other, and data goes on in a second line
_LINE = 940  # px: up to here, or to the panels' width, cells of data are as wide as they can be
_MOST_ROWS = 512  # more sequences than this would share pixels: some are left out, and the picture says so
_TOP = 44  # px: a panel's title and its time axis
_STEPS_TITLE = "packed: longest first, no padding"
_SLOPE = 110  # px: between the panels, where lines show the sort
_LISTS = 270  # px: the same with the lists of indices
_LENGTH = 41  # px: the column of lengths
_NAME = 110  # px: longer names are cut
_FALL = 58  # px: from the batch sizes to the data, where lines show which column goes where
_GAP = 6  # px: between the stretches of data


@dataclass(frozen=True)
class _Scale:
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


def draw(
    layout: Layout,
    labels: Labels | None = None,
    *,
    theme: str = "light",
    names: Sequence[str] | None = None,
    step: int | None = None,
    mistaken: bool = False,
    indices: bool = False,
    explain: bool = False,
    flat: bool = False,
) -> Sheet:
    """Draws the padded batch, the packed steps and the packed data.

    Args:
        layout: what to draw.
        labels: what stands in the cells, sequence by sequence, used when there are few; letter and time step if not
            given.
        theme: `"light"`, `"dark"`, or `"live"` for colours that follow the page around the picture.
        names: of the sequences; letters if not given.
        step: a time step to point at: its cells are framed, and the data shows what has been packed up to it.
        mistaken: adds the order that `data` is often taken to have, one sequence after another.
        indices: adds `sorted_indices` and `unsorted_indices`, each value at the row that it is about.
        explain: says beside each part what it is.
        flat: adds the flat rows, one sequence after another as attention wants them, and where each packed row lies.

    Raises:
        ValueError: there is no such theme, or no such time step.
    """
    last = layout.batch_sizes.size - 1
    if step is not None and not 0 <= step <= last:
        raise ValueError(f"step is {step}; the longest sequence has time steps 0 … {last}")
    sheet = Sheet(theme, summary(layout))
    return _Picture(layout, labels, names, sheet, step, mistaken, indices, explain, flat).draw()


@dataclass
class _Picture:
    """One drawing in the making: the choices every part shares, and the parts."""

    layout: Layout
    labels: Labels | None
    names: Sequence[str] | None
    sheet: Sheet
    step: int | None
    mistaken: bool
    indices: bool
    explain: bool
    flat: bool

    def __post_init__(self) -> None:
        layout, self.scale = self.layout, _scale(self.layout, self.labels, self.names)
        self.muted, self.accent = self.sheet.colours.muted, self.sheet.colours.accent
        self.title = f"data: {text.count(layout.n_valid, 'row')}, step by step"
        self.rows = range(0, layout.batch_size, self.scale.stride)
        self.grid_width = layout.max_len * self.scale.width
        self.rows_height = len(self.rows) * self.scale.height
        lettered = self.scale.letters
        self.name_width = ceil(max(width_of(self._name(b), 13) for b in self.rows)) if lettered else 0
        self.lengths = 4 + self.name_width + 12 + _LENGTH  # where their column ends
        self.left = self.lengths + (22 if self.scale.few else 36) if lettered else 70.0
        self.stacked = self.left + 2 * self.grid_width + _SLOPE > _WIDEST
        # The lists stand at both ends of the lines that show the sort, where there are such lines.
        self.listed = self.indices and lettered and not self.stacked
        if self.stacked:  # the label "batch_sizes" stands in the margin, too; side by side, there is the slope for it
            self.left = self.steps_left = max(self.left, 26 + width_of("batch_sizes"))
        else:
            slope = (_LISTS if self.listed else _SLOPE) + self.name_width
            self.steps_left = max(self.left + self.grid_width + slope, ceil(width_of(self.title)) + 16)
        self.width = max(560, self.steps_left + max(self.grid_width, width_of(_STEPS_TITLE)) + 20)
        if self.flat:
            self.width = max(self.width, 8 + width_of(text.flat(layout)))
        # The data: bars of runs, or cells; those in one line, under panels side by side, if they can be so narrow.
        self.gap, self.per_row, self.one_line = 0.0, (self.width - 8) / layout.n_valid, True
        if self.scale.few:
            # A row that flat lies where it lies packed is to stand right below it.
            self.gap, self.per_row, self.one_line = 0 if self.flat else _GAP, self.scale.width, False
            least = min(4 + _longest(layout, self.labels, self.names, 12), 100)
            for wide in (max(self.width, _LINE), _WIDEST):
                room = (wide - 8 - self.gap * (layout.batch_sizes.size - 1)) / layout.n_valid
                if room >= least and not self.stacked and not self.one_line:
                    self.per_row, self.one_line = min(self.scale.width, room), True

    def draw(self) -> Sheet:
        """The picture's parts, from top to bottom."""
        self.padded(0)
        y = _TOP + self.rows_height + 14
        self.steps(y if self.stacked else 0)
        y += _TOP + self.rows_height + 26 if self.stacked else 4
        explained = self.explain and self.one_line and self.scale.few
        if explained:
            self.annotations(y)
        y = self.data(y) if self.one_line else self.lines(y, self._true_order())
        if self.flat and self.one_line and self.scale.few:
            y = self.permutation(y - 8)
        elif self.flat or self.mistaken:
            y = self.lines(y + 8, self._flat_order())
        if explained:
            y = self.sheet.paragraph(4, y - 4, ["↑ " * (not self.flat) + text.EXPLAINED["data"]], ink=self.accent)
        y = self.sheet.paragraph(4, y - 1, self._notes(explained), size=11, ink=self.muted) + 1
        self.sheet.size(self.width, y + 6)
        return self.sheet

    # The panels.

    def padded(self, top: float) -> None:
        """The grid as the caller's tensor holds it, padding hatched."""
        layout, left, y = self.layout, self.left, top + _TOP
        self.sheet.text(left, top + 14, f"padded: {text.count(layout.n_cells, 'cell')}", bold=True)
        self._axis(left, y, layout.max_len)
        self._padding(left, y)
        self._runs(left, y, self.rows)
        self._row_names(left, y, self.rows)
        self._frame(left, y, layout.batch_size)

    def steps(self, top: float) -> None:
        """The sequences longest first, without padding: a column is what the RNN reads at one time step."""
        layout, scale = self.layout, self.scale
        left, y = self.steps_left, top + _TOP
        order = [int(layout.sorted_indices[rank]) for rank in self.rows]
        self.sheet.text(left, top + 14, _STEPS_TITLE, bold=True)
        self._axis(left, y, layout.batch_sizes.size)
        self._runs(left, y, order)
        self._frame(left, y, None)
        if self.stacked:
            self._row_names(left, y, order)
        elif scale.letters:
            self._sort_lines(left, y, order)
        below = y + self.rows_height + 16
        self.sheet.text(left - 22, below, "batch_sizes", anchor="end", ink=self.muted)
        for t in self._ticks(layout.batch_sizes.size):
            middle, size = left + (t + 0.5) * scale.width, str(layout.batch_sizes[t])
            self.sheet.text(middle, below, size, anchor="middle", bold=t == self.step)

    # The data.

    def data(self, top: float) -> float:
        """The rows of data in one line, each stretch tied to its packed column; gives the y where it ends."""
        order, y, height = self._true_order(), top + _FALL + 8, 24.0
        self.sheet.text(4, top + 17, self.title, bold=True)
        if self.scale.few:
            for t, (_, cells) in enumerate(order.groups()):
                self._stretch(self._place(t)[0], y, cells)
            self.width = max(self.width, self._place(t)[1] + 4)
        else:
            self._bands(y, order)
            height = 18.0
        for t in self._ticks(self.layout.batch_sizes.size):
            self._bracket(self.steps_left + (t + 0.5) * self.scale.width, top + 6, t, y - 3)
        if self.step is None:
            return y + height + 8
        start, end = self.layout.offsets[self.step : self.step + 2]
        said, (left, right) = f"data[{start}:{end}]", self._place(self.step)
        middle = min(max((left + right) / 2, 4 + width_of(said) / 2), self.width - 4 - width_of(said) / 2)
        self.sheet.text(middle, y + height + 17, said, anchor="middle", bold=True, ink=self.accent)
        return y + height + 26

    def permutation(self, top: float) -> float:
        """From each packed row a line to its flat row below; gives the y where these end.

        Args:
            top: where the packed rows end, in px.
        """
        layout, sheet, y = self.layout, self.sheet, top + _FALL
        for place, (b, row) in enumerate(zip(layout.source[:, 0].tolist(), layout.flat_rows.tolist(), strict=True)):
            x0, x1 = (4 + (i + 0.5) * self.per_row for i in (place, row))
            sheet.curve((x0, top), (x1, y), palette.sequence_colour(b), width=2, down=True)
        self._stretch(4, y, np.argwhere(layout.mask).tolist())
        for x, said in roomy([(4 + start * self.per_row, str(start)) for start in layout.starts.tolist()]):
            sheet.text(x, y + 37, said, anchor="middle", size=11, ink=self.muted)
        end = 4 + layout.n_valid * self.per_row + width_of(str(layout.n_valid))
        sheet.text(end, y + 37, "starts", size=11, ink=self.muted)
        self.width = max(self.width, end + width_of("starts"))
        sheet.text(4, y + 55, text.flat(layout), bold=True)
        return y + 68

    def lines(self, top: float, order: _Order) -> float:
        """The rows of data in as many lines as they need, group by group; gives the y where they end."""
        self.sheet.text(4, top + 12, order.title, bold=True, ink=self.sheet.colours.wrong if order.wrong else "")
        if not self.scale.few:
            self._bands(top + 22, order)
            return top + 22 + 18 + 8
        width, right = self.per_row, max(self.width, _LINE) - 4
        x, y = 4.0, top + 42
        for name, cells in order.groups():
            if x > 4 and x + len(cells) * width > right:
                x, y = 4.0, y + 54
            self.sheet.text(x + 1, y - 13, name, size=11, ink=self.muted)
            while cells:
                room = max(int((right - x) / width + 1e-9), 1)  # a group wider than the picture goes on below
                line, cells = cells[:room], cells[room:]
                end = x + len(line) * width
                self._clamp(x, end, y - 3)
                self._stretch(x, y, line, order.wrong)
                self.width = max(self.width, end + 4)
                x, y = (4.0, y + 54) if cells else (end + _GAP, y)
        return y + 32

    def _place(self, t: int) -> Point:
        """From where to where the rows of a step lie, where the data is in one line."""
        start, end = self.layout.offsets[t : t + 2]
        return 4 + start * self.per_row + t * self.gap, 4 + end * self.per_row + t * self.gap

    def _stretch(self, x: float, y: float, cells: list[list[int]], wrong: bool = False) -> None:
        """Cells of data side by side: those after the step pointed at are empty, those of it are framed."""
        width, height = self.per_row, 24.0
        size = self.scale.size if width == self.scale.width else 12
        for i, (b, t) in enumerate(cells):
            left, label = x + i * width, self._label(b, t, width, size)
            if self.step is not None and not wrong and t > self.step:  # not packed yet
                self.sheet.box(left, y, width, height, stroke=self.muted, thick=1, dash="2 2")
                self.sheet.text(left + width / 2, y + 16, label, anchor="middle", size=size, ink=self.muted)
            else:
                self.sheet.cell(left, y, width, height, palette.sequence_colour(b), label, size=size)
            if t == self.step:
                self._frame_box(left, y, width, height)

    def _bracket(self, x: float, y: float, t: int, foot: float) -> None:
        """A line from the column of a step down to the bracket over its stretch of data."""
        start, end = self._place(t)
        middle, here = (start + end) / 2, t == self.step
        y1, y2, y3 = (n(y + share * (foot - 6 - y)) for share in (0.7, 0.3, 1))
        self.sheet.path(f"M{n(x)} {n(y)}C{n(x)} {y1} {n(middle)} {y2} {n(middle)} {y3}", **self._thin(here))
        self._clamp(start, end, foot, here)

    def _clamp(self, start: float, end: float, foot: float, here: bool = False) -> None:
        """The bracket over a stretch of data."""
        inset = min(1.0, (end - start) / 4)
        self.sheet.path(f"M{n(start + inset)} {n(foot)}v-6H{n(end - inset)}v6", **self._thin(here))

    def _thin(self, here: bool) -> dict[str, Any]:
        return {"stroke": self.accent, "width": 2} if here else {"stroke": self.muted}

    def _true_order(self) -> _Order:
        layout, title, marks = self.layout, self.title, []
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

    def annotations(self, top: float) -> None:
        """What each part is, in its place: beside the packed steps, and under the padding.

        Args:
            top: where the data begins, in px.
        """
        sheet, layout, scale, said = self.sheet, self.layout, self.scale, text.EXPLAINED
        right, column = self.steps_left + self.grid_width, self.steps_left + self.grid_width + 30
        rows = [(_TOP + scale.height / 2, right, said["order"])]
        if layout.batch_size > 1:
            b = int(layout.sorted_indices[1])
            last = int(layout.lengths[b]) - 1
            cell = self._label(b, last, scale.width, scale.size)
            end = self.steps_left + (last + 1) * scale.width
            rows.append((_TOP + 1.5 * scale.height, end, f"{cell}: sequence {self._name(b)} at time step {last}"))
        rows.append((top - 2, right - scale.width / 2 + 6, said["batch_sizes"]))
        rows.append((top + 20, right - scale.width / 2 + 2, said["stretch"]))
        for y, start, words in rows:
            sheet.line([(start + 6, y), (column - 6, y)], self.accent)
            sheet.text(column, y + 4, words, ink=self.accent)
            self.width = max(self.width, column + width_of(words) + 8)
        if layout.n_padding:
            x, y = self.left + self.grid_width, _TOP + self.rows_height
            sheet.text(x, y + 17, said["padding"], anchor="end", ink=self.accent)
            if layout.lengths[-1] < layout.max_len:
                x -= scale.width / 2
                sheet.line([(x, y - scale.height / 2), (x, y + 6)], self.accent)

    def _notes(self, explained: bool) -> list[str]:
        layout, scale = self.layout, self.scale
        notes = []
        if self.indices and not self.listed:
            notes.append(f"sorted_indices {text.numbers(layout.sorted_indices)}")
            notes.append(f"unsorted_indices {text.numbers(layout.unsorted_indices)}")
        if self.explain and not explained:
            notes += text.EXPLAINED.values()
        if len(self._ticks(layout.batch_sizes.size)) < layout.batch_sizes.size:
            notes.append("Not every step has room for its number: some of the batch_sizes are left out.")
        if not scale.few and layout.batch_sizes.min() * self.per_row < 1:
            notes.append("Where the bar of data is plain, its steps are too thin to be told apart.")
        if scale.stride > 1:
            notes.append(one_in(scale.stride, layout.batch_size))
        return notes

    def _name(self, b: int) -> str:
        return clip(text.name(self.names, b), _NAME)

    def _label(self, b: int, t: int, width: float, size: int) -> str:
        return clip(cell_label(self.labels, b, t, self.names), width - 4, size)

    # What panels share.

    def _runs(self, left: float, top: float, rows: Sequence[int]) -> None:
        """The real stretch of each sequence, one below the other."""
        scale = self.scale
        label = partial(self._label, width=scale.width, size=scale.size) if scale.few else None
        for i, b in enumerate(rows):
            at = left, top + i * scale.height
            real_cells(self.sheet, self.layout, b, at, (scale.width, scale.height), label, scale.size)

    def _padding(self, left: float, top: float) -> None:
        """The padding, hatched: cell by cell with what it holds, where the caller gave it, or all in one."""
        layout, scale = self.layout, self.scale
        if not scale.few:
            self.sheet.box(left, top, self.grid_width, self.rows_height, HATCHED)
            return
        for b, t in np.argwhere(~layout.mask).tolist():
            label = "" if self.labels is None else self._label(b, t, scale.width, scale.size)
            at = left + t * scale.width, top + b * scale.height
            self.sheet.cell(*at, scale.width, scale.height, HATCHED, label, size=scale.size)

    def _row_names(self, left: float, top: float, rows: Sequence[int]) -> None:
        """Name and length of each row in two columns; beside the low rows of a large batch only some indices."""
        scale = self.scale
        if scale.letters:
            self.sheet.text(self.lengths, top - 9, "length", anchor="end", size=11, ink=self.muted)
            for i, b in enumerate(rows):
                y = top + (i + 0.5) * scale.height + 4
                row_name(self.sheet, self.layout, b, self.lengths, y, self._name(b), scale.names)
            return
        for i in range(0, len(rows), nice(24 / scale.height)):
            said = f"b = {rows[i]}" if i == 0 else str(rows[i])
            self.sheet.text(left - 8, top + i * scale.height + 9, said, anchor="end", size=11, ink=self.muted)

    def _sort_lines(self, left: float, top: float, order: Sequence[int]) -> None:
        """From each sequence's row in the grid to its row by length: the sort permutation, drawn."""
        height, sheet, grid = self.scale.height, self.sheet, self.left + self.grid_width
        start, end = grid + 6, left - 6 - self.name_width - 8
        if self.listed:
            # The last time step's number may reach beyond the grid.
            beyond = (width_of(str(self.layout.max_len - 1), 11) - self.scale.width) / 2
            sheet.text(grid + max(8, beyond + 4), top - 9, "unsorted_indices", size=11, ink=self.muted)
            sheet.text(left - 34, top - 9, "sorted_indices", anchor="end", size=11, ink=self.muted)
            start, end = grid + 34, end - 28
        for rank, b in enumerate(order):
            y0, y1 = (top + (i + 0.5) * height for i in (b, rank))
            sheet.curve((start, y0), (end, y1), palette.sequence_colour(b))
            sheet.text(left - 6, y1 + 4, self._name(b), anchor="end", size=self.scale.names, bold=True)
            if self.listed:
                sheet.text(grid + 28, y0 + 4, str(rank), anchor="end")
                sheet.text(end + 24, y1 + 4, str(b), anchor="end")

    def _axis(self, left: float, top: float, steps: int) -> None:
        # Beside wide cells "t =" stands close to the first number: the column of lengths ends at the left of it.
        first = left + self.scale.width / 2 - 8 if self.scale.few else left - 8
        self.sheet.text(min(first, left + 6), top - 9, "t =", anchor="end", size=11, ink=self.muted)
        for t in self._ticks(steps):
            middle, here = left + (t + 0.5) * self.scale.width, t == self.step
            ink = self.accent if here else self.muted
            self.sheet.text(middle, top - 9, str(t), anchor="middle", size=11, bold=here, ink=ink)

    def _ticks(self, steps: int) -> list[int]:
        """Time steps that get a number: all of few, some of many, and always the one pointed at."""
        if self.scale.few:
            return list(range(steps))
        # Both a step's number and the batch size under it need room.
        room = 6 + CHAR * max(len(str(steps)), len(str(self.layout.batch_size)))
        ticks = list(range(0, steps, nice(room / self.scale.width)))
        if self.step is not None:
            ticks = [t for t in ticks if abs(t - self.step) * self.scale.width >= room] + [self.step]
        return ticks

    def _frame(self, left: float, top: float, rows: int | None) -> None:
        """A frame around the column of the step pointed at: the whole of it, or the sequences still running."""
        if self.step is None:
            return
        running = int(self.layout.batch_sizes[self.step]) if rows is None else rows
        height = -(-running // self.scale.stride) * self.scale.height
        self._frame_box(left + self.step * self.scale.width, top, max(self.scale.width, 2), height)

    def _frame_box(self, x: float, y: float, width: float, height: float) -> None:
        self.sheet.box(x, y, width, height, stroke=self.accent, thick=3)

    def _bands(self, top: float, order: _Order) -> None:
        """The data of a large batch as one bar: every other group shaded, as long as they can be told apart."""
        colours, per_row = self.sheet.colours, self.per_row
        ends = np.cumsum(order.sizes)
        shaded = [
            (end - size, end) for end, size in zip(ends[1::2], order.sizes[1::2], strict=True) if size * per_row >= 1
        ]

        def band(stretches: Iterable[tuple[float, float]], fill: str, stroke: str = "") -> None:
            for a, b in stretches:
                self.sheet.box(4 + a * per_row, top, max((b - a) * per_row, 1), 18, fill, stroke=stroke, thick=1)

        band([(0, self.layout.n_valid)], colours.padding, colours.line)
        band(shaded, colours.hatch)
        band(order.marks, colours.accent)


@dataclass(frozen=True)
class _Order:
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


def _scale(layout: Layout, labels: Labels | None, names: Sequence[str] | None) -> _Scale:
    B, T = layout.batch_size, layout.max_len
    if is_few(layout):
        size = 13 if T <= 10 else 12
        least = 36.0 if T <= 10 else 26.0
        width = min(max(least, 8 + _longest(layout, labels, names, size)), 100.0, max(26.0, 2 * _PANEL / T))
        return _Scale(width, 28.0, True, 1, size)
    each = stride(B, _MOST_ROWS)
    rows = -(-B // each)
    return _Scale(min(24.0, _PANEL / T), min(22.0, max(1.0, _TALL / rows)), False, each)


def _longest(layout: Layout, labels: Labels | None, names: Sequence[str] | None, size: int) -> float:
    """The width of the longest label of a cell, in px."""
    cells = np.ndindex(layout.batch_size, layout.max_len)
    return max(width_of(cell_label(labels, b, t, names), size) for b, t in cells)
