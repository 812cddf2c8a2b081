"""A layout drawn: the padded grid, the packed steps beside it, and the packed data underneath.

Few cells are drawn one by one with what is in them; many as runs, one stretch per sequence, so that 512 × 512 cells
stay a few shapes and kilobytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from packviz.core.layout import IntArray, Layout, sequence_name
from packviz.draw import palette
from packviz.draw.chart import nice
from packviz.draw.sequences import one_in, real_cells, row_name, stride
from packviz.draw.sheet import CHAR, HATCHED, Sheet, n, width_of
from packviz.draw.text import Labels, cell_label, is_few, summary

_PANEL = 460  # px: two panels of this width stand side by side in a JupyterLab cell
_TALL = 400  # px: the tallest panel of runs
_MARGIN = 70  # px: left of a panel, for the names of its rows
_MOST_ROWS = 512  # more sequences than this would share pixels: some are left out, and the picture says so
_TOP = 46  # px: a panel's title and its time axis
_STEPS_TITLE = "packed: longest first, no padding"
_SLOPE = 110  # px: between the panels, where lines show the sort


@dataclass(frozen=True)
class _Scale:
    """How large one cell is, and which sequences are drawn."""

    width: float
    height: float
    few: bool
    stride: int

    @property
    def letters(self) -> bool:
        """Whether a row is high enough for a letter."""
        return self.height >= 11


def draw(
    layout: Layout,
    labels: Labels | None = None,
    *,
    theme: str = "light",
    step: int | None = None,
    mistaken: bool = False,
) -> Sheet:
    """Draws the padded batch, the packed steps and the packed data.

    Args:
        layout: what to draw.
        labels: what stands in the cells, sequence by sequence, used when there are few; letter and time step if not
            given.
        theme: `"light"`, `"dark"`, or `"live"` for colours that follow the page around the picture.
        step: a time step to point at: its cells are framed, and the data shows what has been packed up to it.
        mistaken: adds the order that `data` is often taken to have, one sequence after another.

    Raises:
        ValueError: there is no such theme, or no such time step.
    """
    last = layout.batch_sizes.size - 1
    if step is not None and not 0 <= step <= last:
        raise ValueError(f"step is {step}; the longest sequence has time steps 0 … {last}")
    return _Picture(layout, labels, Sheet(theme, summary(layout)), step, mistaken).draw()


class _Picture:
    """One drawing in the making: the choices every part shares, and the parts."""

    def __init__(self, layout: Layout, labels: Labels | None, sheet: Sheet, step: int | None, mistaken: bool) -> None:
        self.layout, self.labels, self.sheet, self.step, self.mistaken = layout, labels, sheet, step, mistaken
        self.muted = sheet.colours.muted
        self.scale = _scale(layout, labels)
        self.grid_width = layout.max_len * self.scale.width
        self.rows = range(0, layout.batch_size, self.scale.stride)
        self.rows_height = len(self.rows) * self.scale.height
        self.stacked = _MARGIN + 2 * self.grid_width + _SLOPE > 2 * _PANEL + 2 * _SLOPE
        # Stacked, the label "batch_sizes" stands in the margin too; side by side, there is the slope for it.
        self.left = _MARGIN + 40 if self.stacked else _MARGIN
        self.steps_left = self.left if self.stacked else self.left + max(self.grid_width, _MARGIN) + _SLOPE
        self.width = max(560, self.steps_left + max(self.grid_width, width_of(_STEPS_TITLE)) + 20)

    def draw(self) -> Sheet:
        """The picture's parts, from top to bottom."""
        self.padded(0)
        y = _TOP + self.rows_height + 14
        self.steps(y if self.stacked else 0)
        y += _TOP + self.rows_height + 26 if self.stacked else 22
        y = self.strip(y, self._true_order())
        if self.mistaken:
            y = self.strip(y + 8, self._mistaken_order())
        y = self.sheet.paragraph(4, y - 1, self._notes, size=11, ink=self.muted) + 1
        self.sheet.size(self.width, y + 6)
        return self.sheet

    def padded(self, top: float) -> None:
        """The grid as the caller's tensor holds it, padding hatched."""
        layout, left, y = self.layout, self.left, top + _TOP
        self.sheet.text(left, top + 14, f"padded: {layout.n_cells:,} cells", bold=True)
        self._axis(left, y, layout.max_len)
        self.sheet.box(left, y, self.grid_width, self.rows_height, HATCHED)
        self._runs(left, y, self.rows)
        self._row_names(left, y, self.rows)
        self._padding_labels(left, y)
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
        below = y + self.rows_height + 15
        self.sheet.text(left - 22, below, "batch_sizes", anchor="end", ink=self.muted)
        for t in self._ticks(layout.batch_sizes.size):
            middle, size = left + (t + 0.5) * scale.width, str(layout.batch_sizes[t])
            self.sheet.text(middle, below, size, anchor="middle", bold=t == self.step)

    def strip(self, top: float, order: _Order) -> float:
        """The rows of data in one line (or several), group by group; gives the y where it ends."""
        self.sheet.text(4, top + 12, order.title, bold=True, ink=self.sheet.colours.wrong if order.wrong else "")
        if not self.scale.few:
            self._bands(top + 22, order)
            return top + 22 + 18 + 8
        width, height = self.scale.width, 22.0
        x, y = 4.0, top + 34
        for name, cells in order.groups():
            if x > 4 and x + len(cells) * width > self.width - 4:
                x, y = 4.0, y + height + 22
            self.sheet.text(x + 1, y - 4, name, size=10, ink=self.muted)
            for b, t in cells:
                if x + width > self.width - 4:  # a group wider than the picture goes on below
                    x, y = 4.0, y + height + 22
                if self.step is not None and not order.wrong and t > self.step:  # not packed yet
                    self.sheet.box(x, y, width, height, stroke=self.muted, thick=1, dash="2 2")
                    self.sheet.text(x + width / 2, y + 15, self._label(b, t), anchor="middle", ink=self.muted)
                else:
                    self.sheet.cell(x, y, width, height, palette.sequence_colour(b), self._label(b, t))
                if t == self.step:
                    self._frame_box(x, y, width, height)
                x += width
            x += 5
        return y + height + 8

    def _true_order(self) -> _Order:
        layout, offsets = self.layout, self.layout.offsets
        title, marks = f"data: {layout.n_valid:,} rows, time step by time step", []
        if self.step is not None:
            start, end = int(offsets[self.step]), int(offsets[self.step + 1])
            title, marks = f"{title}; step {self.step} fills data[{start}:{end}]", [(start, end)]
        return _Order(title, "t={}".format, layout.batch_sizes.tolist(), lambda: layout.source, marks)

    def _mistaken_order(self) -> _Order:
        layout = self.layout
        title, marks = "✗ not so: one sequence after another", []
        if self.step is not None:
            if layout.batch_sizes[self.step] > 1:
                title += f" (the rows of step {self.step} would lie apart)"
            starts = np.cumsum(layout.lengths) - layout.lengths + self.step
            marks = [(int(row), int(row) + 1) for row in starts[layout.lengths > self.step]]
        return _Order(
            title, sequence_name, layout.lengths.tolist(), lambda: np.argwhere(layout.mask), marks, wrong=True
        )

    @property
    def _notes(self) -> list[str]:
        layout, scale = self.layout, self.scale
        notes = []
        if scale.few and not layout.is_sorted:
            notes.append(f"sorted_indices {layout.sorted_indices.tolist()}")
            notes.append(f"unsorted_indices {layout.unsorted_indices.tolist()}")
        if len(self._ticks(layout.batch_sizes.size)) < layout.batch_sizes.size:
            notes.append("Not every step has room for its number: some of the batch_sizes are left out.")
        if not scale.few and layout.batch_sizes.min() * self._per_row < 1:
            notes.append("Where the bar of data is plain, its steps are too thin to be told apart.")
        if scale.stride > 1:
            notes.append(one_in(scale.stride, layout))
        return notes

    @property
    def _per_row(self) -> float:
        """The width of one row of data in the bar, in px."""
        return (self.width - 8) / self.layout.n_valid

    def _label(self, b: int, t: int) -> str:
        return _clip(cell_label(self.labels, b, t), self.scale.width)

    def _runs(self, left: float, top: float, rows: Sequence[int]) -> None:
        """The real stretch of each sequence, one below the other."""
        scale, label = self.scale, self._label if self.scale.few else None
        for i, b in enumerate(rows):
            at = left, top + i * scale.height
            real_cells(self.sheet, self.layout, b, at, (scale.width, scale.height), label)

    def _padding_labels(self, left: float, top: float) -> None:
        """What the padding holds, where the caller gave it."""
        if not self.scale.few or self.labels is None:
            return
        for b, length in enumerate(self.layout.lengths):
            for t in range(length, self.layout.max_len):
                x, y = left + (t + 0.5) * self.scale.width, top + (b + 0.5) * self.scale.height + 4
                halo = self.sheet.colours.padding
                self.sheet.text(x, y, self._label(b, t), anchor="middle", ink=self.muted, halo=halo)

    def _row_names(self, left: float, top: float, rows: Sequence[int]) -> None:
        """Letter and length beside each row; beside the low rows of a large batch only some indices."""
        scale, text = self.scale, self.sheet.text
        what = "length" if scale.letters else "b ="
        text(left - 8, top - 6, what, anchor="end", size=10, ink=self.muted)
        for i in range(0, len(rows), 1 if scale.letters else nice(24 / scale.height)):
            b, y = rows[i], top + i * scale.height
            if scale.letters:
                row_name(self.sheet, self.layout, b, left, y + scale.height / 2 + 4)
            else:
                text(left - 8, y + 9, str(b), anchor="end", size=10, ink=self.muted)

    def _sort_lines(self, left: float, top: float, order: Sequence[int]) -> None:
        """From each sequence's row in the grid to its row by length: the sort permutation, drawn."""
        start = self.left + self.grid_width + 6
        end = left - 20 - CHAR * (len(sequence_name(self.layout.batch_size - 1)) - 1)
        middle = n((start + end) / 2)
        for rank, b in enumerate(order):
            y0, y1 = (top + (i + 0.5) * self.scale.height for i in (b, rank))
            curve = f"M{n(start)} {n(y0)}C{middle} {n(y0)} {middle} {n(y1)} {n(end)} {n(y1)}"
            self.sheet.path(curve, stroke=self.sheet.colours.line, width=3.5)  # its outline
            self.sheet.path(curve, stroke=palette.sequence_colour(b), width=2.5)
            self.sheet.text(left - 6, y1 + 4, sequence_name(b), anchor="end", bold=True)

    def _axis(self, left: float, top: float, steps: int) -> None:
        self.sheet.text(left - 8, top - 18, "t =", anchor="end", size=11, ink=self.muted)
        for t in self._ticks(steps):
            middle, here = left + (t + 0.5) * self.scale.width, t == self.step
            ink = self.sheet.colours.accent if here else self.muted
            self.sheet.text(middle, top - 18, str(t), anchor="middle", size=11, bold=here, ink=ink)

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
        self.sheet.box(x, y, width, height, stroke=self.sheet.colours.accent, thick=3)

    def _bands(self, top: float, order: _Order) -> None:
        """The data of a large batch as one bar: every other group shaded, as long as they can be told apart."""
        colours, per_row = self.sheet.colours, self._per_row
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


def _scale(layout: Layout, labels: Labels | None) -> _Scale:
    B, T = layout.batch_size, layout.max_len
    if is_few(layout):
        longest = max(width_of(cell_label(labels, b, t)) for b in range(B) for t in range(T))
        width = min(max(26.0, 8 + longest), 100.0, max(26.0, 2 * _PANEL / T))
        return _Scale(width, 24.0, True, 1)
    each = stride(B, _MOST_ROWS)
    rows = -(-B // each)
    return _Scale(min(24.0, _PANEL / T), min(22.0, max(1.0, _TALL / rows)), False, each)


def _clip(label: str, width: float) -> str:
    room = int((width - 4) / CHAR) * CHAR
    if width_of(label) <= room:
        return label
    while label and width_of(label) > room - CHAR:
        label = label[:-1]
    return label + "…"
