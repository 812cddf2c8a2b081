"""Draws a staircase of rectangles over the real cells of a batch, and plots its cost.

`packviz.core.cuts` computes the best cuts.
"""

from __future__ import annotations

from collections.abc import Sequence

from packviz.core.cuts import predict, rectangles
from packviz.core.layout import Layout, sequence_name
from packviz.draw.curves import COLOURS, Curve, Plot, Sweep
from packviz.draw.drawing import Drawing
from packviz.draw.grid import Grid, one_in, real_cells, roomy, stride
from packviz.draw.palette import REAL, sequence_colour
from packviz.draw.sheet import HATCHED, Sheet
from packviz.draw.text import FEW, Labelled, count, is_few, percent, short, table

# All in px.
_LEFT = 70.0  # the space to the left of the grid
_TOP = 46.0  # the space above the grid
_WIDTH = 460.0  # the largest width of the grid
_TALL = 330  # the largest height of the grid

_COLOUR = len(COLOURS) - 1  # of the curves: a colour that no method has


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
        self.rectangles = tuple(rectangles(n, self.cuts))
        work = predict(n, self.cuts)
        self.calls = work.calls
        self.cells = work.cells
        self.wasted = work.wasted

    def summary(self) -> str:
        """Returns a sentence with the numbers of rectangles and of cells of each kind."""
        calls = count(self.calls, "rectangle")
        cells = count(self.cells, "cell")
        share = percent(self.wasted, self.cells)
        padding = f"{self.wasted:,} padding ({share} wasted)"
        return f"{calls}: {cells} computed, {self.layout.n_real:,} real, {padding}."

    def to_text(self) -> str:
        """Returns the counts and the rectangles, or some of the rectangles if there are many."""
        rows = []
        for start, end, size in self.rectangles:
            length = end - start
            steps = f"step {start}"
            if length > 1:
                steps = f"steps {start}–{end - 1}"
            high = count(size, "sequence")
            wide = count(length, "step")
            real = self.layout.batch_sizes[start:end].sum()
            padding = size * length - real
            rows.append([steps, f"{high} × {wide}, {padding:,} padding"])
        if len(rows) > FEW:
            rows[8:-3] = [["…"]]
        return "\n".join([self.summary(), *table(rows, "  <14 <")])

    def sheet(self, theme: str) -> Sheet:
        """Draws the batch, longest sequence first.

        Padding is hatched if it is computed, and empty if it is not.
        """
        sheet = Sheet(theme, self.to_text())
        layout = self.layout
        step = stride(layout.batch_size, _TALL)
        order = layout.sorted_indices[::step].tolist()
        muted = sheet.colours.muted
        wide = min(30.0, _WIDTH / layout.max_len)
        tall = min(22.0, _TALL / len(order))
        grid = Grid(sheet, len(order), layout.max_len, wide, tall, _LEFT, _TOP, size=11)
        what = f"{self.calls:,} rectangles"
        if self.calls == 1:
            what = "one rectangle, the padded batch,"
        share = percent(self.wasted, self.cells)
        sheet.title(f"{share} of the cells in {what} are padding")
        width = grid.right - _LEFT
        height = grid.foot - _TOP
        sheet.box(_LEFT, _TOP, width, height, stroke=muted, thick=1, dash="2 3")
        boxes = []
        for start, end, size in self.rectangles:
            left = grid.x(start)
            right = grid.x(end)
            drawn = -(-size // step)
            boxes.append((left, _TOP, right - left, drawn * tall))
        for box in boxes:
            sheet.box(*box, HATCHED, stroke="")
        # A sequence has its own colour only if its name is shown.
        label = Labelled(layout).label if is_few(layout) else None
        fill = REAL if grid.is_low else ""
        grid.draw(real_cells(layout, b, label, fill) for b in order)
        spacing = width / self.calls
        thick = 2.5 if spacing >= 20 else 1.5
        if spacing >= 6:  # an outline would hide narrower rectangles
            for box in boxes:
                sheet.box(*box, stroke=sheet.colours.accent, thick=thick)
        self._name_axis(grid)
        if not grid.is_low:
            names = [sequence_name(b) for b in order]
            grid.names(names, layout.lengths[order].tolist(), 8)
        sheet.layer()
        y = grid.foot + 24
        real = fill or sequence_colour(0)
        x = sheet.key(y, [(real, "real"), (HATCHED, "padding, computed")])
        sheet.box(x, y, 14, 12, stroke=muted, thick=1, dash="2 3")
        sheet.text(x + 20, y + 10, "padding, left out")
        notes = [one_in(step, layout.batch_size)] if step > 1 else []
        foot = sheet.paragraph(y + 19, notes)
        sheet.size(_LEFT + _WIDTH + 24, foot + 3)
        return sheet

    def _name_axis(self, grid: Grid) -> None:
        """Writes the cuts above the grid, and the sizes below it, as many as fit."""
        sheet = grid.sheet
        accent = grid.sheet.colours.accent
        sheet.note(_LEFT - 14, _TOP - 8, "cuts", "end")
        cuts = [(grid.x(cut), str(cut)) for cut in self.cuts]
        for x, label in roomy(cuts):
            sheet.text(x, _TOP - 8, label, anchor="middle", size=11, ink=accent)
        sizes = []
        for start, end, size in self.rectangles:
            middle = grid.x((start + end) / 2)
            sizes.append((middle, f"{size}×{end - start}"))
        for x, label in roomy(sizes):
            sheet.note(x, grid.foot + 14, label, "middle")


def trade_off(
    calls: Sequence[int], wasted: Sequence[int], costs: Sequence[float], at: int
) -> Sweep:
    """Plots the costs and the wasted cells of staircases, from padding to packing.

    Args:
        calls: `(S,)` the numbers of rectangles, in ascending order from 1.
        wasted: `(S,)` the number of padding cells computed with each number of rectangles.
        costs: `(S,)` the costs as multiples of the cost of one rectangle.
        at: the number of rectangles to mark.
    """
    here = calls.index(at)
    best = calls[costs.index(min(costs))]
    rows = [["rectangles", "wasted cells", "cost", "  (one rectangle = 1)"]]
    for k, cells, ratio in zip(calls, wasted, costs, strict=True):
        note = ""
        if k == at:
            note += "  ← here"
        if k == best:
            note += "  ← lowest"
        rows.append([str(k), f"{cells:,}", f"{ratio:.2f}", note])
    cost = f"cost relative to one rectangle: {costs[here]:.2f}"
    waste = f"wasted cells: {short(wasted[here])}"
    plots = []
    for heading, values, unit in ((cost, costs, "×"), (waste, wasted, "cells")):
        curve = Curve("", _COLOUR, 0, calls, values)
        cursor = {"": ((at, 0.0), (at, values[here]))}
        plots.append(Plot(heading, [curve], cursor, unit, log_x=True))
    axis = "rectangles"
    if len(calls) > 1:
        axis += f" (1: padded, {calls[-1]:,}: no padding)"
    title = f"The cost is lowest with {count(best, 'rectangle')}"
    words = "\n".join(table(rows, ">10>14>8<"))
    return Sweep(title, [plots], (), (), words, axis)
