"""Draws hidden states over time, in a strip for each sequence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from packviz.core.layout import sequence_name
from packviz.draw import palette
from packviz.draw.curves import Axes, Scale, line_key, mark, ticks
from packviz.draw.drawing import Drawing
from packviz.draw.sheet import HATCHED, WIDTH, Point, Sheet
from packviz.draw.text import FEW, difference, table

FloatArray = npt.NDArray[np.float64]

MOST = len(palette.SEQUENCES)
"""The largest number of sequences that a `Trajectory` draws: one for each colour."""

READ = "h_n off by"
"""The heading of the numbers to the right of a `Trajectory`."""

_DOT = "m-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0z"
_LEFT = 84.0  # px: the space to the left of the strips
_WIDE = WIDTH - _LEFT - 110.0  # px: the width of a strip
_TALL = 46.0  # px: the height of a strip
_GAP = 12.0  # px: from one strip to the next


@dataclass(frozen=True, repr=False, eq=False)
class Trajectory(Drawing):
    """The hidden state over time, drawn in a separate strip for each sequence.

    Attributes:
        title: the title, which states the finding.
        what: a description of the numbers that are drawn.
        lengths: `(B,)` the lengths of the sequences.
        padded: `(B, T)` the numbers from the padded run.
        packed: `(B, T)` the numbers from the packed run. In the padding, each sequence's last
            number is repeated.
        off: `(B,)` the distances between the final states of the padded and the packed run; may
            contain NaN.
    """

    title: str
    what: str
    lengths: npt.NDArray[np.int64]
    padded: FloatArray
    packed: FloatArray
    off: FloatArray

    def to_text(self) -> str:
        """Returns the numbers with two significant digits.

        For a large batch, returns only the distances between the final states of the two runs.
        """
        lines = [self.title, self.what]
        sequences, steps = self.padded.shape
        names = [sequence_name(b) for b in range(sequences)]
        off = [difference(distance) for distance in self.off]
        if max(sequences, steps) > FEW:
            for name, by in zip(names, off, strict=True):
                lines.append(f" {name}: {READ} {by}")
            return "\n".join(lines)
        times = [f"t={t}" for t in range(steps)]
        rows = [["", "", *times, f"  {READ}"]]
        for b, name in enumerate(names):
            rows.append([name, "padded", *self._cells(self.padded, b), off[b]])
            rows.append([name, "packed", *self._cells(self.packed, b), ""])
        return "\n".join([*lines, *table(rows, " >2  <6   >9>9"), "[ ]: padding"])

    def _cells(self, run: FloatArray, b: int) -> list[str]:
        """Returns the numbers of a sequence, with those in the padding in brackets."""
        cells = [difference(value) for value in run[b]]
        length = self.lengths[b]
        cells[length:] = [f"[{cell}]" for cell in cells[length:]]
        return cells

    def sheet(self, theme: str) -> Sheet:
        """Draws the numbers as lines, with padding hatched.

        A dot marks the step where the final state is read.
        """
        sheet = Sheet(theme, self.to_text())
        sheet.title(self.title)
        sheet.note(4, 34, f"{self.what}; from the first step to the last →")
        top = 62.0
        sheet.note(_LEFT + _WIDE + 16, top - 8, f"● {READ}")
        sequences, steps = self.padded.shape
        every = math.ceil(30 * steps / _WIDE)
        across = Scale(range(0, steps, every), -0.5, steps - 0.5)
        for b in range(min(sequences, MOST)):
            axes = Axes(sheet, across, self._up(), _LEFT, top, _WIDE, _TALL)
            self._strip(axes, b)
            top += _TALL + _GAP
        axes.draw_across(before="t =")
        foot = axes.foot + 42
        x = line_key(sheet, 4, foot, "padded", width=4, size=12)
        line_key(sheet, x, foot, "packed, dotted: frozen after its end", width=1.6, size=12)
        foot += 18
        if sequences > MOST:
            sheet.note(4, foot, f"The first {MOST} sequences are drawn.")
            foot += 18
        sheet.size(WIDTH, foot - 8)
        return sheet

    def _up(self) -> Scale:
        """Returns the vertical axis of all strips."""
        drawn = np.stack([self.padded, self.packed])[:, :MOST]
        finite = drawn[np.isfinite(drawn)].tolist() or [0.0]
        low = min(finite)
        high = max(finite)
        heights = ticks(low, high if high > low else low + 1)
        return Scale(heights, heights[0], heights[-1])

    def _strip(self, axes: Axes, b: int) -> None:
        """Draws the strip of one sequence."""
        sheet = axes.sheet
        colours = sheet.colours
        colour = palette.sequence_colour(b)
        length = int(self.lengths[b])
        end = axes.x(length - 0.5)
        baseline = axes.top + _TALL / 2 + 4
        sheet.layer()
        top = axes.top
        sheet.box(axes.left, top, end - axes.left, _TALL, colours.ground)
        if length < self.padded.shape[1]:
            sheet.box(end, top, axes.right - end, _TALL, HATCHED)
        sheet.text(6, baseline, sequence_name(b), bold=True)
        low = f"{axes.up.first:g}"
        high = f"{axes.up.last:g}"
        sheet.note(axes.left - 6, axes.foot + 4, low, "end")
        sheet.note(axes.left - 6, axes.top + 8, high, "end")
        sheet.layer()
        padded = _points(axes, self.padded[b].tolist())
        sheet.line(padded, colour, width=3.4, outlined=True)
        packed = _points(axes, self.packed[b].tolist())
        sheet.line(packed[:length], colours.text, width=1.6)
        sheet.line(packed[length - 1 :], colours.text, width=1.6, dash="2 3")
        sheet.layer()
        read = padded[-1]
        if math.isfinite(read[1]):
            mark(sheet, read, _DOT, colour, colours.text)
        lost = np.flatnonzero(~np.isfinite(self.padded[b]))
        if lost.size:
            x = axes.x(lost[0])
            y = axes.top + 16
            sheet.text(x, y, "✗ NaN", bold=True, ink=colours.wrong, halo=colours.padding)
        off = self.off[b]
        if off == 0:
            sheet.text(axes.right + 16, baseline, "=", ink=colours.muted)
        else:
            by = difference(off)
            sheet.text(axes.right + 16, baseline, by, bold=True, ink=colours.wrong)


def _points(axes: Axes, values: Sequence[float]) -> list[Point]:
    """Returns the points of a line.

    Heights are whole pixels, so that rounding in the RNN, which differs between processors, does
    not show.
    """
    points = []
    for t, value in enumerate(values):
        y = axes.y(value)
        if math.isfinite(y):
            y = round(y)
        points.append((axes.x(t), y))
    return points
