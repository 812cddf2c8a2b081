"""Draws a staircase of rectangles over the real cells of a batch, and plots its cost.

`packviz.core.cuts` computes the best cuts.
"""

from __future__ import annotations

from collections.abc import Sequence

from packviz.core.cuts import count_work, cut_into_rectangles
from packviz.core.layout import Layout, sequence_name
from packviz.draw.curves import METHOD_COLOURS, Curve, Plot, Sweep
from packviz.draw.drawing import Drawing
from packviz.draw.grid import Grid, choose_row_stride, drop_overlapping, real_cells, stride_notes
from packviz.draw.palette import REAL, sequence_colour
from packviz.draw.sheet import HATCHED, Sheet
from packviz.draw.text import (
    MAX_LISTED,
    LabelledBatch,
    is_small,
    padding_text,
    percent,
    short_count,
    table,
    with_noun,
)

# All in px.
_LEFT_MARGIN = 70.0  # the space to the left of the grid
_TOP_MARGIN = 46.0  # the space above the grid
_MAX_GRID_WIDTH = 460.0  # the largest width of the grid
_MAX_GRID_HEIGHT = 330  # the largest height of the grid

_CURVE_COLOUR = len(METHOD_COLOURS) - 1  # of the curves: a colour that no method has


class Stairs(Drawing):
    """A staircase: the rectangles that cover the real cells of a padded batch.

    Attributes:
        layout: the batch.
        cuts: ascending time steps from 0 to `max(lengths)`. A rectangle begins at each cut except
            the last.
        rectangles: the `(first step, step after the last, number of sequences)` of each rectangle.
        calls: the number of rectangles. Each rectangle needs one call of the kernel.
        cells: the number of cells that are computed, both real and wasted.
        wasted: the number of padding cells that are computed.
    """

    def __init__(self, lengths: object, cuts: Sequence[int]) -> None:
        """Covers a batch with rectangles.

        Args:
            lengths: `(B,)` the lengths of the sequences, or a `Layout`.
            cuts: ascending time steps from 0 to `max(lengths)`.

        Raises:
            ValueError: a length is not valid, or the cuts do not rise from 0 to `max(lengths)`.
        """
        self.layout = Layout(lengths)
        self.cuts = tuple(map(int, cuts))
        n = self.layout.lengths.tolist()
        self.rectangles = tuple(cut_into_rectangles(n, self.cuts))
        work = count_work(n, self.cuts)
        self.calls = work.calls
        self.cells = work.cells
        self.wasted = work.wasted

    def summary(self) -> str:
        """Returns a sentence with the numbers of rectangles and of cells of each kind."""
        calls = with_noun(self.calls, "rectangle")
        cells = with_noun(self.cells, "cell")
        padding = padding_text(self.wasted, self.cells)
        return f"{calls}: {cells} computed, {self.layout.n_real:,} real, {padding}."

    def to_text(self) -> str:
        """Returns the counts and the rectangles, or some of the rectangles if there are many."""
        rows = []
        for start, end, n_sequences in self.rectangles:
            length = end - start
            steps = f"step {start}"
            if length > 1:
                steps = f"steps {start}–{end - 1}"
            n_sequences_text = with_noun(n_sequences, "sequence")
            steps_text = with_noun(length, "step")
            real = self.layout.batch_sizes[start:end].sum()
            padding = n_sequences * length - real
            rows.append([steps, f"{n_sequences_text} × {steps_text}, {padding:,} padding"])
        if len(rows) > MAX_LISTED:
            rows[8:-3] = [["…"]]
        return "\n".join([self.summary(), *table(rows, "  <14 <")])

    def sheet(self, theme: str) -> Sheet:
        """Draws the batch, longest sequence first.

        Padding is hatched if it is computed, and empty if it is not.
        """
        sheet = Sheet(theme, self.to_text())
        layout = self.layout
        drawn_row_stride = choose_row_stride(layout.batch_size, _MAX_GRID_HEIGHT)
        order = layout.sorted_indices[::drawn_row_stride].tolist()
        muted = sheet.colours.muted
        cell_width = min(30.0, _MAX_GRID_WIDTH / layout.max_len)
        row_height = min(22.0, _MAX_GRID_HEIGHT / len(order))
        grid = Grid(
            sheet,
            len(order),
            layout.max_len,
            cell_width,
            row_height,
            _LEFT_MARGIN,
            _TOP_MARGIN,
            font_size=11,
        )
        rectangle_words = f"{self.calls:,} rectangles"
        if self.calls == 1:
            rectangle_words = "one rectangle, the padded batch,"
        share = percent(self.wasted, self.cells)
        sheet.title(f"{share} of the cells in {rectangle_words} are padding")
        width = grid.right - _LEFT_MARGIN
        height = grid.bottom - _TOP_MARGIN
        sheet.box(
            _LEFT_MARGIN, _TOP_MARGIN, width, height, stroke=muted, outline_width=1, dash="2 3"
        )
        boxes = []
        for start, end, n_sequences in self.rectangles:
            left = grid.x(start)
            right = grid.x(end)
            n_drawn_rows = -(-n_sequences // drawn_row_stride)
            boxes.append((left, _TOP_MARGIN, right - left, n_drawn_rows * row_height))
        for box in boxes:
            sheet.box(*box, HATCHED, stroke="")
        # A sequence has its own colour only if its name is shown.
        label = LabelledBatch(layout).label if is_small(layout) else None
        fill = REAL if grid.has_low_rows else ""
        grid.draw(real_cells(layout, b, label, fill) for b in order)
        mean_width = width / self.calls
        outline_width = 2.5 if mean_width >= 20 else 1.5
        if mean_width >= 6:  # an outline would hide narrower rectangles
            for box in boxes:
                sheet.box(*box, stroke=sheet.colours.accent, outline_width=outline_width)
        self._label_rectangles(grid)
        if not grid.has_low_rows:
            names = [sequence_name(b) for b in order]
            grid.write_row_names(names, layout.lengths[order].tolist(), 8)
        sheet.start_layer()
        y = grid.bottom + 24
        real = fill or sequence_colour(0)
        x = sheet.legend(y, [(real, "real"), (HATCHED, "padding, computed")])
        sheet.box(x, y, 14, 12, stroke=muted, outline_width=1, dash="2 3")
        sheet.text(x + 20, y + 10, "padding, left out")
        notes = stride_notes(drawn_row_stride, layout.batch_size)
        bottom = sheet.paragraph(y + 19, notes)
        sheet.set_size(_LEFT_MARGIN + _MAX_GRID_WIDTH + 24, bottom + 3)
        return sheet

    def _label_rectangles(self, grid: Grid) -> None:
        """Writes the cuts above the grid, and the sizes below it, as many as fit."""
        sheet = grid.sheet
        accent = grid.sheet.colours.accent
        sheet.note(_LEFT_MARGIN - 14, _TOP_MARGIN - 8, "cuts", "end")
        for x, label in drop_overlapping([(grid.x(cut), str(cut)) for cut in self.cuts]):
            sheet.text(x, _TOP_MARGIN - 8, label, anchor="middle", size=11, text_colour=accent)
        sizes = []
        for start, end, n_sequences in self.rectangles:
            middle = grid.x((start + end) / 2)
            sizes.append((middle, f"{n_sequences}×{end - start}"))
        for x, label in drop_overlapping(sizes):
            sheet.note(x, grid.bottom + 14, label, "middle")


def plot_trade_off(
    calls: Sequence[int], wasted: Sequence[int], costs: Sequence[float], marked_calls: int
) -> Sweep:
    """Plots the costs and the wasted cells of staircases, from padding to packing.

    Args:
        calls: `(S,)` the numbers of rectangles, in ascending order from 1.
        wasted: `(S,)` the number of padding cells computed with each number of rectangles.
        costs: `(S,)` the costs as multiples of the cost of one rectangle.
        marked_calls: the number of rectangles to mark.
    """
    marked_index = calls.index(marked_calls)
    best = calls[costs.index(min(costs))]
    rows = [["rectangles", "wasted cells", "cost", "  (one rectangle = 1)"]]
    for k, cells, ratio in zip(calls, wasted, costs, strict=True):
        note = ""
        if k == marked_calls:
            note += "  ← here"
        if k == best:
            note += "  ← lowest"
        rows.append([str(k), f"{cells:,}", f"{ratio:.2f}", note])
    cost_heading = f"cost relative to one rectangle: {costs[marked_index]:.2f}"
    waste_heading = f"wasted cells: {short_count(wasted[marked_index])}"
    plots = []
    for heading, values, unit in ((cost_heading, costs, "×"), (waste_heading, wasted, "cells")):
        curve = Curve("", _CURVE_COLOUR, 0, calls, values)
        guide_lines = {"": ((marked_calls, 0.0), (marked_calls, values[marked_index]))}
        plots.append(Plot(heading, [curve], guide_lines, unit, is_log_x=True))
    axis = "rectangles"
    if len(calls) > 1:
        axis += f" (1: padded, {calls[-1]:,}: no padding)"
    title = f"The cost is lowest with {with_noun(best, 'rectangle')}"
    words = "\n".join(table(rows, ">10>14>8<"))
    return Sweep(title, [plots], (), (), words, axis)
