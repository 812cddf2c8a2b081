"""A number per time step of each sequence, padded against packed, drawn and as text. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from packviz.draw import palette
from packviz.draw.chart import Axes, line_key, mark, ticks
from packviz.draw.drawing import Drawing
from packviz.draw.sheet import HATCHED, Point, Sheet
from packviz.draw.text import FEW, difference, table

MOST = len(palette.SEQUENCES)
"""As many sequences are drawn as there are colours."""

READ = "h_n off by"
"""What stands above the numbers at the read-out."""

_LEFT, _RIGHT, _TALL, _APART, _WIDTH = 84.0, 110.0, 46.0, 12.0, 900.0  # px: the strips within the picture
_DOT = "m-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0z"


@dataclass(frozen=True)
class Curve:
    """One sequence.

    Attributes:
        name: its letter.
        length: its real time steps; what comes after is padding.
        padded: `(T,)` the number at each time step of the padded run, NaN where it is none.
        packed: `(T,)` that of the packed run, where it continues after the end of the sequence, NaN where it has none.
        off: how far padded is from packed where the final state is read, NaN where it is no number.
    """

    name: str
    length: int
    padded: Sequence[float]
    packed: Sequence[float]
    off: float


@dataclass(frozen=True, repr=False)
class Trajectory(Drawing):
    """The path of the hidden state through time, a strip for each sequence.

    Attributes:
        title: the finding.
        what: which number is drawn.
        curves: one per sequence.
        reverse: whether time runs from right to left: the final state is then read at step 0, else at the last one.
        distances: whether the numbers are distances from packed, which is then 0 everywhere.
    """

    title: str
    what: str
    curves: tuple[Curve, ...]
    reverse: bool = False
    distances: bool = True

    def to_text(self) -> str:
        """The numbers, in two significant digits; of a large batch only those at the read-out."""
        lines, steps = [self.title, self.what], len(self.curves[0].padded)
        if steps <= FEW and len(self.curves) <= FEW:
            rows = [["", "", *(f"t={t}" for t in range(steps)), f"  {READ}"]]
            for curve in self.curves:
                for run, values in (("padded", curve.padded), ("packed", curve.packed))[: 1 if self.distances else 2]:
                    numbers = [difference(v) if run == "padded" or not math.isnan(v) else "–" for v in values]
                    cells = [f"[{cell}]" if t >= curve.length else cell for t, cell in enumerate(numbers)]
                    rows.append([curve.name, run, *cells, difference(curve.off) if run == "padded" else ""])
            return "\n".join([*lines, *table(rows, " >2  <6   >9>9"), "[ ]: padding"])
        return "\n".join([*lines, *(f" {c.name}: {READ} {difference(c.off)}" for c in self.curves)])

    def sheet(self, theme: str) -> Sheet:
        """Real steps plain, padding hatched, the padded state as a line, and a dot where it is read out."""
        sheet, drawn, steps = Sheet(theme, self.to_text()), self.curves[:MOST], len(self.curves[0].padded)
        sheet.title(self.title)
        direction = "← from the last step to the first" if self.reverse else "from the first step to the last →"
        sheet.text(4, 34, f"{self.what}; {direction}", size=11, ink=sheet.colours.muted)
        finite = [v for c in drawn for v in (*c.padded, *c.packed) if math.isfinite(v)] or [0.0]
        low = 0.0 if self.distances else min(finite)
        heights = ticks(low, max(finite) if max(finite) > low else low + 1)
        wide, top = _WIDTH - _LEFT - _RIGHT, 62.0
        sheet.text(_LEFT + wide + 16, top - 8, f"● {READ}", size=11, ink=sheet.colours.muted)
        for i, curve in enumerate(drawn):
            axes = Axes(sheet, _LEFT, top, wide, _TALL, heights, lambda t: (t + 0.5) / steps)
            self._strip(axes, curve, palette.sequence_colour(i))
            top += _TALL + _APART
        axes.columns(range(0, steps, max(1, math.ceil(30 * steps / wide))), before="t =")
        foot = axes.foot + 42
        if not self.distances:
            x = line_key(sheet, 4, foot, "padded", width=4)
            dotted = "" if self.reverse else ", dotted: frozen after its end"
            line_key(sheet, x, foot, f"packed{dotted}", width=1.6)
            foot += 18
        if len(self.curves) > MOST:
            sheet.text(4, foot, f"The first {MOST} sequences are drawn.", size=11)
            foot += 18
        sheet.size(_WIDTH, foot - 8)
        return sheet

    def _strip(self, axes: Axes, curve: Curve, colour: str) -> None:
        sheet, steps, colours = axes.sheet, len(curve.padded), axes.sheet.colours
        border, read = axes.left + axes.wide * curve.length / steps, 0 if self.reverse else steps - 1
        sheet.layer()
        sheet.box(axes.left, axes.top, border - axes.left, axes.tall, colours.ground)
        if curve.length < steps:
            sheet.box(border, axes.top, axes.right - border, axes.tall, HATCHED)
        middle = axes.top + axes.tall / 2 + 4
        sheet.text(6, middle, curve.name, bold=True)
        for value, shift in ((axes.heights[0], 4), (axes.heights[-1], 8)):
            sheet.text(axes.left - 6, axes.y(value) + shift, f"{value:g}", anchor="end", size=11, ink=colours.muted)

        def places(values: Sequence[float]) -> list[Point]:
            # Whole pixels, so that rounding in the RNN, which differs between processors, does not show.
            return [(axes.x(t), round(axes.y(v)) if math.isfinite(v) else math.nan) for t, v in enumerate(values)]

        sheet.layer()
        points, thin = places(curve.padded), places(curve.packed)
        sheet.line(points, colour, width=3.4, outlined=True)
        if not self.distances:
            sheet.line(thin[: curve.length], colours.text, width=1.6)
            sheet.line(thin[curve.length - 1 :], colours.text, width=1.6, dash="2 3")
        sheet.layer()
        if math.isfinite(points[read][1]):
            mark(sheet, points[read], _DOT, colour, colours.text)
        lost = [t for t, v in enumerate(curve.padded) if not math.isfinite(v)][:: -1 if self.reverse else 1]
        if lost:
            anchor, at = "end" if self.reverse else "", axes.x(lost[0])
            sheet.text(at, axes.top + 16, "✗ NaN", anchor=anchor, bold=True, ink=colours.wrong, halo=colours.padding)
        off, ink = ("=", colours.muted) if curve.off == 0 else (difference(curve.off), colours.wrong)
        sheet.text(axes.right + 16, middle, off, bold=curve.off != 0, ink=ink)
