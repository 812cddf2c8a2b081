"""Draws a batch: the padded grid, the packed steps and the packed data.

A small batch is drawn cell by cell, with the values in the cells. In a large batch, each sequence
is drawn as one bar, so that 512 × 512 cells need only a few shapes and a few kilobytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from packviz.draw import text
from packviz.draw.grid import TOP, Cell, Grid, clip, one_in, real_cells, roomy, stride
from packviz.draw.palette import sequence_colour
from packviz.draw.sheet import HATCHED, WIDTH, Sheet, widest, width_of
from packviz.draw.text import DATA, PACKED, PADDED, WHOLE, count

# All in px.
_TALL = 400  # the largest height of a panel of bars
_SLOPE = 92  # the distance between the panels, where lines show the sort
_LISTS = 250  # the distance between the panels if the lists of indices are there
_LENGTH = 41  # the width of the column of lengths
_BESIDE = 32  # from the lengths to the padded grid
_NAME = 119  # longer names are cut
_FALL = 58  # from the batch sizes to the data, where lines connect each column to its rows
_GAP = 6.0  # between the groups of rows of data
_MARGIN = 26 + width_of("batch_sizes")  # to the left of the steps if this label is there
_HIGH = 24.0  # the height of a row of data

_MOST_ROWS = 512  # more sequences would share pixels, so some are left out, and a note mentions it
_STEPS_TITLE = "packed: longest first, no padding"


@dataclass(frozen=True)
class Shown(text.Labelled):
    """A batch, and what a picture shows of it.

    Attributes:
        indices: whether to add `sorted_indices` and `unsorted_indices`, each entry next to its row
            if it fits there.
        flat: whether to add the flat rows (one sequence after another), with a line from each
            packed row to its flat row.
        part: the part to draw, one of `text.PARTS`.
    """

    indices: bool = False
    flat: bool = False
    part: str = WHOLE

    @cached_property
    def few(self) -> bool:
        """True if the batch is small enough to draw every cell."""
        return text.is_few(self.layout)

    @cached_property
    def stride(self) -> int:
        """One in this many sequences is drawn."""
        return stride(self.layout.batch_size, _MOST_ROWS)

    @property
    def drawn(self) -> range:
        """The indices of the sequences that are drawn."""
        return range(0, self.layout.batch_size, self.stride)

    @cached_property
    def data_title(self) -> str:
        """The title of the rows of data."""
        return f"data: {count(self.layout.n_real, 'row')}, from left to right"

    @cached_property
    def name_width(self) -> int:
        """The width, in px, of the longest name of a sequence."""
        return int(max(width_of(self.short_name(b), 13, bold=True) for b in self.drawn))

    def short_name(self, b: int) -> str:
        """Returns the name of a sequence, shortened if it is long."""
        return clip(self.name(b), _NAME, 13)

    def short_label(self, b: int, t: int, width: float, size: int) -> str:
        """Returns the label of a cell, shortened to the width of the cell in px."""
        return clip(self.label(b, t), width - 4, size)

    def widest_label(self, size: int) -> float:
        """Returns the width, in px, of the longest label of a cell."""
        cells = np.ndindex(self.layout.batch_size, self.layout.max_len)
        return widest((self.label(b, t) for b, t in cells), size, mono=True)

    def ticks(self, grid: Grid) -> list[int]:
        """Returns the time steps whose numbers and batch sizes fit side by side."""
        largest = max(grid.columns, self.layout.batch_size)
        return grid.ticks(str(largest))


@dataclass(frozen=True)
class _Data:
    """The places of the rows of data on a sheet.

    Attributes:
        shown: the batch.
        sheet: the sheet that the rows are drawn on.
        wide: the width of a row in px.
        gap: the distance in px between the groups of rows.
        one_line: whether all rows fit on one line.
    """

    shown: Shown
    sheet: Sheet
    wide: float
    gap: float = 0.0
    one_line: bool = True


def draw(shown: Shown, theme: str) -> Sheet:
    """Draws the padded batch, the packed steps and the packed data.

    Args:
        shown: the batch, and what to show of it.
        theme: the name of the theme, one of the keys in `palette.THEMES`.

    Raises:
        ValueError: the theme is unknown.
    """
    sheet = Sheet(theme, text.summary(shown.layout))
    whole = shown.part == WHOLE
    parts = text.PARTS if whole else (shown.part,)
    y = 0.0
    grid, steps = _panels(shown, sheet)
    width = 20 + max(540, steps.right, _title_at(steps) + width_of(_STEPS_TITLE))
    data = _data(shown, grid, steps, width)
    if PADDED in parts:
        _draw_padded(shown, grid)
        y = grid.foot + 6
    if PACKED in parts:
        _draw_steps(shown, grid, steps)
        y = steps.foot + 22
    if DATA in parts:
        joined = whole and data.one_line
        y = _draw_data(data, y, steps if joined else None)
    if shown.flat and shown.few and data.one_line:
        y = _draw_flat(data, y - 8)
    elif shown.flat:
        y = _draw_data(data, y + 8, flat=True)
    beside = grid.left < steps.left and not grid.is_low
    notes: list[str] = []
    if shown.indices and not beside:
        notes += text.indices(shown.layout)
    if shown.stride > 1 and shown.part != DATA:
        notes.append(one_in(shown.stride, shown.layout.batch_size))
    narrowest = data.wide * shown.layout.batch_sizes.min()
    if narrowest < 1 and DATA in parts:
        notes.append("Where the bar of data is plain, its steps are too thin to be told apart.")
    y = sheet.paragraph(y, notes)
    if whole and shown.few:
        width = max(width, sheet.width - 4)
    if whole or (shown.part == DATA and not shown.few):
        sheet.size(width, y + 6)  # the last bars may reach beyond it
    return sheet


# Places.


def _panels(shown: Shown, sheet: Sheet) -> tuple[Grid, Grid]:
    """Returns the padded grid, and the grid of packed steps beside or below it."""
    columns = shown.layout.max_len
    rows = len(shown.drawn)
    size = 12
    tall = min(22.0, max(1.0, _TALL / rows))
    if shown.few:
        tall = 28.0
    names = 0
    left = 70.0
    between = _SLOPE
    if not Grid(sheet, rows, columns, tall=tall).is_low:
        names = shown.name_width
        left = 16 + names + _LENGTH + _BESIDE
        if shown.indices:
            between = _LISTS
    # Two grids share a line if their cells can be so narrow that both fit, and no value is cut.
    room = (WIDTH - 20 - left - between - names) / 2 / columns
    alone = (WIDTH - 24 - left) / columns
    if shown.part != WHOLE:
        room = alone
    wide = min(24.0, room)
    if shown.few:
        least = 26.0
        if columns <= 10:
            least = 36.0
            size = 13
        label = shown.widest_label(size)
        most = max(room, min(26.0, alone))
        if shown.labels and 4 + label > most:
            most = alone
        wide = min(max(least, 8 + label), 100.0, most)
    grid = Grid(sheet, rows, columns, wide, tall, size=size)
    last = shown.layout.batch_sizes.size
    width = columns * wide
    beside = max(left + width + between + names, 16 + width_of(shown.data_title))
    if shown.part == PACKED or beside + width > WIDTH:
        top = TOP
        if shown.part == WHOLE:
            top += grid.foot + 14
        grid = replace(grid, left=max(left, _MARGIN))
        return grid, replace(grid, top=top, columns=last)
    return replace(grid, left=left), replace(grid, left=beside, columns=last)


def _title_at(steps: Grid) -> float:
    """Returns the x-coordinate of the title of the packed steps."""
    return min(steps.left, WIDTH - 20 - width_of(_STEPS_TITLE))


def _data(shown: Shown, padded: Grid, steps: Grid, width: float) -> _Data:
    """Returns the places of the rows of data."""
    real = shown.layout.n_real
    if not shown.few:
        return _Data(shown, padded.sheet, (width - 8) / real)
    # Without gaps, a row with the same place in both orders is exactly below itself.
    gap = 0.0 if shown.flat else _GAP
    gaps = gap * (steps.columns - 1)
    line = WIDTH - 4
    wide = max((line - 4 - gaps) / real, 4 + shown.widest_label(12))
    wide = min(padded.wide, wide)
    one_line = padded.left != steps.left and gaps + real * wide <= line
    if not one_line:
        gap = _GAP
        # The longest group fits on a line.
        wide = min(padded.wide, line / max(shown.layout.batch_size, shown.layout.max_len))
    return _Data(shown, padded.sheet, wide, gap, one_line)


# The panels.


def _draw_padded(shown: Shown, grid: Grid) -> None:
    """Draws the padded grid in the caller's order, with padding hatched."""
    layout = shown.layout
    title = f"padded: {count(layout.n_cells, 'cell')}"
    grid.sheet.text(grid.left, 14, title, bold=True)
    if not shown.few:
        grid.outline(HATCHED)
    _draw_cells(shown, grid, shown.drawn, padding=shown.few)
    _draw_names(shown, grid, shown.drawn)


def _draw_steps(shown: Shown, padded: Grid, grid: Grid) -> None:
    """Draws the sequences without padding, longest first.

    The RNN reads one column at each time step.
    """
    sheet = grid.sheet
    below = grid.foot + 16
    sizes = shown.layout.batch_sizes
    order = shown.layout.sorted_indices[:: shown.stride].tolist()
    sheet.text(_title_at(grid), grid.top - 30, _STEPS_TITLE, bold=True)
    _draw_cells(shown, grid, order)
    if grid.left == padded.left:
        _draw_names(shown, grid, order)
    elif not grid.is_low:
        _draw_sort(shown, padded, grid, order)
    sheet.text(grid.left - 22, below, "batch_sizes", anchor="end", ink=sheet.colours.muted)
    for t in shown.ticks(grid):
        middle = grid.x(t + 0.5)
        sheet.text(middle, below, str(sizes[t]), anchor="middle")


def _draw_cells(shown: Shown, grid: Grid, order: Sequence[int], padding: bool = False) -> None:
    """Draws the time axis and, below it, each sequence's real cells and perhaps its padding."""
    layout = shown.layout
    rows = []
    label = None
    if shown.few:
        label = partial(shown.short_label, width=grid.wide, size=grid.size)
    steps = [str(t) for t in range(grid.columns)]
    grid.heads(steps, shown=shown.ticks(grid))
    for b in order:
        cells = real_cells(layout, b, label)
        if padding:
            for t in range(layout.lengths[b], layout.max_len):
                name = label(b, t) if label and shown.labels else ""
                cells.append(Cell(HATCHED, name))
        rows.append(cells)
    grid.draw(rows)


def _draw_names(shown: Shown, grid: Grid, order: Sequence[int]) -> None:
    """Writes the name and length of each row, or some indices if rows are too low for names."""
    if grid.is_low:
        indices = [str(b) for b in order]
        indices[0] = f"b = {order[0]}"
        grid.names(indices, right=8)
        return
    grid.sheet.note(grid.left - _BESIDE, grid.top - 9, "length", "end")
    lengths = shown.layout.lengths[[*order]].tolist()
    names = list(map(shown.short_name, order))
    grid.names(names, lengths, _BESIDE, grid.size)


def _draw_sort(shown: Shown, grid: Grid, steps: Grid, order: Sequence[int]) -> None:
    """Draws a line from each sequence's row in the padded grid to its row among the steps."""
    sheet = grid.sheet
    y = grid.top - 9
    start = grid.right + 6
    end = steps.left - shown.name_width - 14
    names = list(map(shown.short_name, order))
    steps.names(names, right=6, size=grid.size)
    if shown.indices:
        sheet.note(grid.right + 14, y, "unsorted_indices")
        sheet.note(end - 12, y, "sorted_indices", "end")
        start += 28
        end -= 28
    for rank, b in enumerate(order):
        row = b // shown.stride
        left = (start, grid.y(row + 0.5))
        right = (end, grid.y(rank + 0.5))
        sheet.curve(left, right, sequence_colour(b))
        if shown.indices:
            sheet.text(start - 6, grid.line(row), str(rank), anchor="end")
            sheet.text(end + 24, grid.line(rank), str(b), anchor="end")


# The data.


def _draw_data(data: _Data, top: float, steps: Grid | None = None, flat: bool = False) -> float:
    """Draws the rows of data in groups: the rows of each time step, or of each sequence.

    Args:
        data: the places of the rows.
        top: the y-coordinate to begin at.
        steps: the grid of packed steps; a line connects each of its columns to the column's rows.
            If it is `None`, each group has its name above it instead.
        flat: whether to draw the rows one sequence after another rather than step by step.

    Returns:
        The y-coordinate below the rows.
    """
    shown = data.shown
    sheet = data.sheet
    title = shown.data_title
    y = top + (45 if shown.few else 22)
    if steps:
        y = top + _FALL + 8
    if flat:
        title = text.flat(shown.layout)
    sheet.text(4, top + 14, title, bold=True)
    groups = _draw_groups(data, y, flat)
    if shown.few:
        y = groups[-1][2]
    if steps:
        for tick in shown.ticks(steps):
            left, right, _ = groups[tick]
            x = steps.x(tick + 0.5)
            middle = (left + right) / 2
            bends = f"{x} {y - 26} {middle} {y - 45}"
            curve = f"M{x} {top + 6}C{bends} {middle} {y - 9}"
            _draw_bracket(sheet, left, right, y, curve)
    elif shown.few:
        for i, (left, right, line) in enumerate(groups):
            name = shown.short_name(i) if flat else f"t={i}"
            sheet.note(left + 1, line - 13, name)
            _draw_bracket(sheet, left, right, line)
    return y + _HIGH + 8


def _draw_groups(data: _Data, y: float, flat: bool) -> list[tuple[float, float, float]]:
    """Draws the rows of data: the rows of each time step, or of each sequence if `flat` is true.

    Returns:
        The left end, the right end and the y-coordinate of each group of rows.
    """
    shown = data.shown
    sheet = data.sheet
    layout = shown.layout
    colours = sheet.colours
    groups = []
    x = 4.0
    sizes = layout.lengths if flat else layout.batch_sizes
    ends = np.cumsum(sizes)
    if shown.few:
        cells = np.argwhere(layout.mask) if flat else layout.source
    else:
        width = layout.n_real * data.wide
        sheet.box(x, y, width, _HIGH, colours.padding, thick=1)
    for i, size in enumerate(sizes):
        right = x + size * data.wide
        if right > WIDTH - 4 and not data.one_line:
            right = right - x + 4.0
            x = 4.0
            y += 54
        if shown.few:
            left = x
            for b, t in cells[ends[i] - size : ends[i]].tolist():
                label = shown.short_label(b, t, data.wide, 12)
                sheet.cell(left, y, data.wide, _HIGH, sequence_colour(b), label)
                left += data.wide
        elif i % 2 and right - x >= 1:
            sheet.box(x, y, right - x, _HIGH, colours.hatch, stroke="")
        groups.append((x, right, y))
        x = right + data.gap
    return groups


def _draw_flat(data: _Data, top: float) -> float:
    """Draws the flat rows, with a line to each from its packed row, which ends at `top`.

    Returns the y-coordinate below the flat rows.
    """
    sheet = data.sheet
    layout = data.shown.layout
    y = top + _FALL
    for packed, flat in enumerate(layout.flat_rows):
        above = 4 + (packed + 0.5) * data.wide
        below = 4 + (flat + 0.5) * data.wide
        colour = sequence_colour(layout.source[packed, 0])
        sheet.curve((above, top), (below, y), colour, width=2, down=True)
    groups = _draw_groups(data, y, flat=True)
    starts = list(map(str, layout.starts))
    right = groups[-1][1]
    places = [left for left, _, _ in groups] + [right]
    for x, label in roomy([*zip(places, starts, strict=True)]):
        sheet.note(x, y + 37, label, "middle")
    sheet.note(right + width_of(starts[-1]), y + 37, "starts")
    sheet.text(4, y + 55, text.flat(layout), bold=True)
    return y + 68


def _draw_bracket(sheet: Sheet, start: float, end: float, y: float, curve: str = "") -> None:
    """Draws a bracket over rows of data, at the end of a curve if there is one."""
    inset = min(1.0, (end - start) / 4)
    start += inset
    end -= inset
    bracket = f"M{start} {y - 3}v-6H{end}v6"
    sheet.path(curve + bracket, stroke=sheet.colours.muted, width=1)
