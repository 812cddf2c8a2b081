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
from packviz.draw.grid import (
    TOP_MARGIN,
    Cell,
    Grid,
    choose_row_stride,
    drop_overlapping,
    real_cells,
    shorten_text,
    stride_notes,
)
from packviz.draw.palette import sequence_colour
from packviz.draw.sheet import HATCHED, WIDTH, Sheet, max_text_width, text_width
from packviz.draw.text import PACKED, PACKED_DATA, PADDED, WHOLE_BATCH, with_noun

# All in px.
_MAX_BARS_HEIGHT = 400  # the largest height of a panel of bars
_PANEL_GAP = 92  # the distance between the panels, where lines show the sort
_PANEL_GAP_WITH_INDICES = 250  # the distance between the panels if the lists of indices are there
_LENGTHS_WIDTH = 41  # the width of the column of lengths
_LENGTHS_GAP = 32  # from the lengths to the padded grid
_MAX_NAME_WIDTH = 119  # longer names are cut
_CONNECTOR_HEIGHT = 58  # from the batch sizes to the data, where lines connect columns to rows
_GROUP_GAP = 6.0  # between the groups of rows of data
_STEPS_LEFT_MARGIN = 26 + text_width("batch_sizes")  # left of the steps if this label is there
_DATA_ROW_HEIGHT = 24.0  # the height of a row of data

_MAX_ROWS = 512  # more sequences would share pixels, so some are left out, and a note mentions it
_STEPS_TITLE = "packed: longest first, no padding"


@dataclass(frozen=True)
class BatchView(text.LabelledBatch):
    """A batch, and what a picture shows of it.

    Attributes:
        indices: whether to add `sorted_indices` and `unsorted_indices`, each entry next to its row
            if it fits there.
        flat: whether to add the flat rows (one sequence after another), with a line from each
            packed row to its flat row.
        part: the part to draw, one of `text.BATCH_PARTS`.
    """

    indices: bool = False
    flat: bool = False
    part: str = WHOLE_BATCH

    @cached_property
    def is_small(self) -> bool:
        """True if the batch is small enough to draw every cell."""
        return text.is_small(self.layout)

    @cached_property
    def drawn_row_stride(self) -> int:
        """One in this many sequences is drawn."""
        return choose_row_stride(self.layout.batch_size, _MAX_ROWS)

    @property
    def drawn_indices(self) -> range:
        """The indices of the sequences that are drawn."""
        return range(0, self.layout.batch_size, self.drawn_row_stride)

    @cached_property
    def data_title(self) -> str:
        """The title of the rows of data."""
        return f"data: {with_noun(self.layout.n_real, 'row')}, from left to right"

    @cached_property
    def name_width(self) -> int:
        """The width, in px, of the longest name of a sequence."""
        return int(max(text_width(self.short_name(b), 13, bold=True) for b in self.drawn_indices))

    def short_name(self, b: int) -> str:
        """Returns the name of a sequence, shortened if it is long."""
        return shorten_text(self.name(b), _MAX_NAME_WIDTH, 13)

    def short_label(self, b: int, t: int, width: float, font_size: int) -> str:
        """Returns the label of a cell, shortened to the width of the cell in px."""
        return shorten_text(self.label(b, t), width - 4, font_size)

    def max_label_width(self, font_size: int) -> float:
        """Returns the width, in px, of the longest label of a cell."""
        cells = np.ndindex(self.layout.batch_size, self.layout.max_len)
        return max_text_width((self.label(b, t) for b, t in cells), font_size, mono=True)

    def ticks(self, grid: Grid) -> list[int]:
        """Returns the time steps whose numbers and batch sizes fit side by side."""
        largest_number = max(grid.columns, self.layout.batch_size)
        return grid.ticks(str(largest_number))


@dataclass(frozen=True)
class _DataRowsGeometry:
    """The places of the rows of data on a sheet.

    Attributes:
        view: the batch.
        sheet: the sheet that the rows are drawn on.
        row_width: the width of a row in px.
        gap: the distance in px between the groups of rows.
        rows_fit_one_line: whether all rows fit on one line.
    """

    view: BatchView
    sheet: Sheet
    row_width: float
    gap: float = 0.0
    rows_fit_one_line: bool = True


def draw(view: BatchView, theme: str) -> Sheet:
    """Draws the padded batch, the packed steps and the packed data.

    Args:
        view: the batch, and what to show of it.
        theme: the name of the theme, one of the keys in `palette.THEMES`.

    Raises:
        ValueError: the theme is unknown.
    """
    sheet = Sheet(theme, text.summary(view.layout))
    is_whole_batch = view.part == WHOLE_BATCH
    parts = text.BATCH_PARTS if is_whole_batch else (view.part,)
    y = 0.0
    padded_grid, packed_grid = _place_grids(view, sheet)
    width = 20 + max(540, packed_grid.right, _steps_title_x(packed_grid) + text_width(_STEPS_TITLE))
    data_geometry = _data_rows_geometry(view, padded_grid, packed_grid, width)
    if PADDED in parts:
        _draw_padded(view, padded_grid)
        y = padded_grid.bottom + 6
    if PACKED in parts:
        _draw_packed_steps(view, padded_grid, packed_grid)
        y = packed_grid.bottom + 22
    if PACKED_DATA in parts:
        has_connectors = is_whole_batch and data_geometry.rows_fit_one_line
        y = _draw_data_panel(data_geometry, y, packed_grid if has_connectors else None)
    if view.flat and view.is_small and data_geometry.rows_fit_one_line:
        y = _draw_flat_rows(data_geometry, y - 8)
    elif view.flat:
        y = _draw_data_panel(data_geometry, y + 8, flat=True)
    has_room_for_indices = padded_grid.left < packed_grid.left and not padded_grid.has_low_rows
    notes: list[str] = []
    if view.indices and not has_room_for_indices:
        notes += text.index_lines(view.layout)
    if view.part != PACKED_DATA:
        notes += stride_notes(view.drawn_row_stride, view.layout.batch_size)
    min_group_width = data_geometry.row_width * view.layout.batch_sizes.min()
    if min_group_width < 1 and PACKED_DATA in parts:
        notes.append("Where the bar of data is plain, its steps are too thin to be told apart.")
    y = sheet.paragraph(y, notes)
    if is_whole_batch and view.is_small:
        width = max(width, sheet.width - 4)
    if is_whole_batch or (view.part == PACKED_DATA and not view.is_small):
        sheet.set_size(width, y + 6)  # the last bars may reach beyond it
    return sheet


# Places.


def _place_grids(view: BatchView, sheet: Sheet) -> tuple[Grid, Grid]:
    """Returns the padded grid, and the grid of packed steps beside or below it."""
    n_columns = view.layout.max_len
    n_rows = len(view.drawn_indices)
    font_size = 12
    row_height = min(22.0, max(1.0, _MAX_BARS_HEIGHT / n_rows))
    if view.is_small:
        row_height = 28.0
    names_width = 0
    left = 70.0
    panel_gap = _PANEL_GAP
    if not Grid(sheet, n_rows, n_columns, row_height=row_height).has_low_rows:
        names_width = view.name_width
        left = 16 + names_width + _LENGTHS_WIDTH + _LENGTHS_GAP
        if view.indices:
            panel_gap = _PANEL_GAP_WITH_INDICES
    # Two grids share a line if their cells can be so narrow that both fit, and no value is cut.
    max_cell_width = (WIDTH - 20 - left - panel_gap - names_width) / 2 / n_columns
    max_cell_width_alone = (WIDTH - 24 - left) / n_columns
    if view.part != WHOLE_BATCH:
        max_cell_width = max_cell_width_alone
    cell_width = min(24.0, max_cell_width)
    if view.is_small:
        min_cell_width = 26.0
        if n_columns <= 10:
            min_cell_width = 36.0
            font_size = 13
        label_width = view.max_label_width(font_size)
        cell_width_limit = max(max_cell_width, min(26.0, max_cell_width_alone))
        if view.labels and 4 + label_width > cell_width_limit:
            cell_width_limit = max_cell_width_alone
        cell_width = min(max(min_cell_width, 8 + label_width), 100.0, cell_width_limit)
    grid = Grid(sheet, n_rows, n_columns, cell_width, row_height, font_size=font_size)
    n_steps = view.layout.batch_sizes.size
    width = n_columns * cell_width
    steps_grid_left = max(left + width + panel_gap + names_width, 16 + text_width(view.data_title))
    if view.part == PACKED or steps_grid_left + width > WIDTH:
        steps_grid_top = TOP_MARGIN
        if view.part == WHOLE_BATCH:
            steps_grid_top += grid.bottom + 14
        grid = replace(grid, left=max(left, _STEPS_LEFT_MARGIN))
        return grid, replace(grid, top=steps_grid_top, columns=n_steps)
    return replace(grid, left=left), replace(grid, left=steps_grid_left, columns=n_steps)


def _steps_title_x(packed_grid: Grid) -> float:
    """Returns the x-coordinate of the title of the packed steps."""
    return min(packed_grid.left, WIDTH - 20 - text_width(_STEPS_TITLE))


def _data_rows_geometry(
    view: BatchView, padded_grid: Grid, packed_grid: Grid, width: float
) -> _DataRowsGeometry:
    """Returns the places of the rows of data."""
    n_real = view.layout.n_real
    if not view.is_small:
        return _DataRowsGeometry(view, padded_grid.sheet, (width - 8) / n_real)
    # Without gaps, a row with the same place in both orders is exactly below itself.
    gap = 0.0 if view.flat else _GROUP_GAP
    gaps_width = gap * (packed_grid.columns - 1)
    available_width = WIDTH - 4
    row_width = max((available_width - 4 - gaps_width) / n_real, 4 + view.max_label_width(12))
    row_width = min(padded_grid.cell_width, row_width)
    rows_fit_one_line = (
        padded_grid.left != packed_grid.left and gaps_width + n_real * row_width <= available_width
    )
    if not rows_fit_one_line:
        gap = _GROUP_GAP
        # The longest group fits on a line.
        row_width = min(
            padded_grid.cell_width,
            available_width / max(view.layout.batch_size, view.layout.max_len),
        )
    return _DataRowsGeometry(view, padded_grid.sheet, row_width, gap, rows_fit_one_line)


# The panels.


def _draw_padded(view: BatchView, grid: Grid) -> None:
    """Draws the padded grid in the caller's order, with padding hatched."""
    layout = view.layout
    title = f"padded: {with_noun(layout.n_cells, 'cell')}"
    grid.sheet.text(grid.left, 14, title, bold=True)
    if not view.is_small:
        grid.draw_outline(HATCHED)
    _draw_cells(view, grid, view.drawn_indices, with_padding=view.is_small)
    _draw_names(view, grid, view.drawn_indices)


def _draw_packed_steps(view: BatchView, padded_grid: Grid, packed_grid: Grid) -> None:
    """Draws the sequences without padding, longest first.

    The RNN reads one column at each time step.
    """
    sheet = packed_grid.sheet
    label_y = packed_grid.bottom + 16
    batch_sizes = view.layout.batch_sizes
    order = view.layout.sorted_indices[:: view.drawn_row_stride].tolist()
    sheet.text(_steps_title_x(packed_grid), packed_grid.top - 30, _STEPS_TITLE, bold=True)
    _draw_cells(view, packed_grid, order)
    if packed_grid.left == padded_grid.left:
        _draw_names(view, packed_grid, order)
    elif not packed_grid.has_low_rows:
        _draw_sort_lines(view, padded_grid, packed_grid, order)
    sheet.text(
        packed_grid.left - 22, label_y, "batch_sizes", anchor="end", text_colour=sheet.colours.muted
    )
    for t in view.ticks(packed_grid):
        middle = packed_grid.x(t + 0.5)
        sheet.text(middle, label_y, str(batch_sizes[t]), anchor="middle")


def _draw_cells(
    view: BatchView, grid: Grid, order: Sequence[int], with_padding: bool = False
) -> None:
    """Draws the time axis and, below it, each sequence's real cells and perhaps its padding."""
    layout = view.layout
    rows = []
    label = None
    if view.is_small:
        label = partial(view.short_label, width=grid.cell_width, font_size=grid.font_size)
    step_names = [str(t) for t in range(grid.columns)]
    grid.write_column_names(step_names, shown=view.ticks(grid))
    for b in order:
        cells = real_cells(layout, b, label)
        if with_padding:
            for t in range(layout.lengths[b], layout.max_len):
                name = label(b, t) if label and view.labels else ""
                cells.append(Cell(HATCHED, name))
        rows.append(cells)
    grid.draw(rows)


def _draw_names(view: BatchView, grid: Grid, order: Sequence[int]) -> None:
    """Writes the name and length of each row, or some indices if rows are too low for names."""
    if grid.has_low_rows:
        indices = [str(b) for b in order]
        indices[0] = f"b = {order[0]}"
        grid.write_row_names(indices, gap=8)
        return
    grid.sheet.note(grid.left - _LENGTHS_GAP, grid.top - 9, "length", "end")
    lengths = view.layout.lengths[[*order]].tolist()
    names = list(map(view.short_name, order))
    grid.write_row_names(names, lengths, _LENGTHS_GAP, grid.font_size)


def _draw_sort_lines(
    view: BatchView, padded_grid: Grid, packed_grid: Grid, order: Sequence[int]
) -> None:
    """Draws a line from each sequence's row in the padded grid to its row among the steps."""
    sheet = padded_grid.sheet
    y = padded_grid.top - 9
    start = padded_grid.right + 6
    end = packed_grid.left - view.name_width - 14
    names = list(map(view.short_name, order))
    packed_grid.write_row_names(names, gap=6, size=padded_grid.font_size)
    if view.indices:
        sheet.note(padded_grid.right + 14, y, "unsorted_indices")
        sheet.note(end - 12, y, "sorted_indices", "end")
        start += 28
        end -= 28
    for rank, b in enumerate(order):
        row = b // view.drawn_row_stride
        line_start = (start, padded_grid.y(row + 0.5))
        line_end = (end, padded_grid.y(rank + 0.5))
        sheet.curve(line_start, line_end, sequence_colour(b))
        if view.indices:
            sheet.text(start - 6, padded_grid.baseline_y(row), str(rank), anchor="end")
            sheet.text(end + 24, padded_grid.baseline_y(rank), str(b), anchor="end")


# The data.


def _draw_data_panel(
    data_geometry: _DataRowsGeometry,
    top: float,
    packed_grid: Grid | None = None,
    flat: bool = False,
) -> float:
    """Draws the rows of data in groups: the rows of each time step, or of each sequence.

    Args:
        data_geometry: the places of the rows.
        top: the y-coordinate to begin at.
        packed_grid: the grid of packed steps; a line connects each of its columns to the column's
            rows. If it is `None`, each group has its name above it instead.
        flat: whether to draw the rows one sequence after another rather than step by step.

    Returns:
        The y-coordinate below the rows.
    """
    view = data_geometry.view
    sheet = data_geometry.sheet
    title = view.data_title
    y = top + (45 if view.is_small else 22)
    if packed_grid:
        y = top + _CONNECTOR_HEIGHT + 8
    if flat:
        title = text.flat_rows_title(view.layout)
    sheet.text(4, top + 14, title, bold=True)
    groups = _draw_data_groups(data_geometry, y, flat)
    if view.is_small:
        y = groups[-1][2]
    if packed_grid:
        for step in view.ticks(packed_grid):
            left, right, _ = groups[step]
            x = packed_grid.x(step + 0.5)
            middle = (left + right) / 2
            control_points = f"{x} {y - 26} {middle} {y - 45}"
            curve_path = f"M{x} {top + 6}C{control_points} {middle} {y - 9}"
            _draw_bracket(sheet, left, right, y, curve_path)
    elif view.is_small:
        for i, (left, right, line_y) in enumerate(groups):
            name = view.short_name(i) if flat else f"t={i}"
            sheet.note(left + 1, line_y - 13, name)
            _draw_bracket(sheet, left, right, line_y)
    return y + _DATA_ROW_HEIGHT + 8


def _draw_data_groups(
    data_geometry: _DataRowsGeometry, y: float, flat: bool
) -> list[tuple[float, float, float]]:
    """Draws the rows of data: the rows of each time step, or of each sequence if `flat` is true.

    Returns:
        The left end, the right end and the y-coordinate of each group of rows.
    """
    view = data_geometry.view
    sheet = data_geometry.sheet
    layout = view.layout
    colours = sheet.colours
    groups = []
    x = 4.0
    group_sizes = layout.lengths if flat else layout.batch_sizes
    group_ends = np.cumsum(group_sizes)
    if view.is_small:
        cells = np.argwhere(layout.mask) if flat else layout.source
    else:
        width = layout.n_real * data_geometry.row_width
        sheet.box(x, y, width, _DATA_ROW_HEIGHT, colours.padding, outline_width=1)
    for i, group_size in enumerate(group_sizes):
        right = x + group_size * data_geometry.row_width
        if right > WIDTH - 4 and not data_geometry.rows_fit_one_line:
            right = right - x + 4.0
            x = 4.0
            y += 54
        if view.is_small:
            left = x
            for b, t in cells[group_ends[i] - group_size : group_ends[i]].tolist():
                label = view.short_label(b, t, data_geometry.row_width, 12)
                sheet.cell(
                    left, y, data_geometry.row_width, _DATA_ROW_HEIGHT, sequence_colour(b), label
                )
                left += data_geometry.row_width
        elif i % 2 and right - x >= 1:
            sheet.box(x, y, right - x, _DATA_ROW_HEIGHT, colours.hatch, stroke="")
        groups.append((x, right, y))
        x = right + data_geometry.gap
    return groups


def _draw_flat_rows(data_geometry: _DataRowsGeometry, top: float) -> float:
    """Draws the flat rows, with a line to each from its packed row, which ends at `top`.

    Returns the y-coordinate below the flat rows.
    """
    sheet = data_geometry.sheet
    layout = data_geometry.view.layout
    y = top + _CONNECTOR_HEIGHT
    for packed_row, flat_row in enumerate(layout.flat_rows):
        packed_x = 4 + (packed_row + 0.5) * data_geometry.row_width
        flat_x = 4 + (flat_row + 0.5) * data_geometry.row_width
        colour = sequence_colour(layout.source[packed_row, 0])
        sheet.curve((packed_x, top), (flat_x, y), colour, width=2, is_vertical=True)
    groups = _draw_data_groups(data_geometry, y, flat=True)
    starts = list(map(str, layout.starts))
    right = groups[-1][1]
    start_xs = [left for left, _, _ in groups] + [right]
    for x, label in drop_overlapping([*zip(start_xs, starts, strict=True)]):
        sheet.note(x, y + 37, label, "middle")
    sheet.note(right + text_width(starts[-1]), y + 37, "starts")
    sheet.text(4, y + 55, text.flat_rows_title(layout), bold=True)
    return y + 68


def _draw_bracket(sheet: Sheet, start: float, end: float, y: float, curve_path: str = "") -> None:
    """Draws a bracket over rows of data, at the end of a curve if there is one."""
    inset = min(1.0, (end - start) / 4)
    start += inset
    end -= inset
    bracket_path = f"M{start} {y - 3}v-6H{end}v6"
    sheet.path(curve_path + bracket_path, stroke=sheet.colours.muted)
