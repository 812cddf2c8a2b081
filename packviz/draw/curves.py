"""A number per time step of each sequence, padded and packed, drawn and as text. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from packviz.draw import palette
from packviz.draw.chart import Axes, line_key, ticks
from packviz.draw.drawn import Drawn
from packviz.draw.sheet import Point, Sheet
from packviz.draw.text import FEW, difference, table

MOST = len(palette.SEQUENCES)
"""As many curves are drawn as there are colours."""

_LEFT, _RIGHT, _TOP, _HEIGHT, _WIDTH = 56.0, 100.0, 30.0, 200.0, 900.0  # px: the plot within the picture


@dataclass(frozen=True)
class Curve:
    """One sequence.

    Attributes:
        name: its letter.
        length: its real time steps; what comes after is padding.
        padded: `(T,)` the number at each time step of the padded run, NaN where it is none.
        packed: `(T,)` that of the packed run, where it goes on after the end of the sequence, NaN where it has none.
    """

    name: str
    length: int
    padded: Sequence[float]
    packed: Sequence[float]


@dataclass(frozen=True, repr=False)
class Trajectory(Drawn):
    """The way of one number of the hidden state through time, for each sequence, padded and packed.

    Attributes:
        title: which number.
        curves: one per sequence.
        frozen: whether a packed sequence keeps its state after its end (the reverse direction has none there).
    """

    title: str
    curves: tuple[Curve, ...]
    frozen: bool

    def to_text(self) -> str:
        """The numbers, in two significant digits; of a large batch only those at the end and after the padding."""
        lines = [self.title]
        steps = max(len(curve.padded) for curve in self.curves)
        if steps <= FEW and len(self.curves) <= FEW:
            rows = [["", "", *(f"t={t}" for t in range(steps))]]
            for curve in self.curves:
                for way, values in (("padded", curve.padded), ("packed", curve.packed)):
                    cells = (
                        f"[{self._said(way, v)}]" if t >= curve.length else difference(v) for t, v in enumerate(values)
                    )
                    rows.append([curve.name, way, *cells])
            lines += [*table(rows, " >2  <6   >9>9"), "[ ]: after the end of the sequence"]
        else:
            for c in self.curves:
                at_end, after = difference(c.padded[c.length - 1]), difference(c.padded[-1])
                lines.append(f" {c.name}: {at_end} at its end, {after} after padding")
        return "\n".join(lines)

    def sheet(self, theme: str) -> Sheet:
        """Solid at real steps, dashed through the padding; packed as a thin line, dotted where it is frozen."""
        sheet, drawn, steps = Sheet(theme, self.title), self.curves[:MOST], len(self.curves[0].padded)
        sheet.title(self.title)
        finite = [v for c in drawn for v in (*c.padded, *c.packed) if math.isfinite(v)] or [0.0, 1.0]
        heights, wide = ticks(min(finite), max(finite)), _WIDTH - _LEFT - _RIGHT
        axes = Axes(sheet, _LEFT, _TOP + 8, wide, _HEIGHT - 16, heights, lambda t: (t + 0.5) / (steps - 0.5))
        axes.rows()
        axes.columns(range(0, steps, max(1, math.ceil(30 * steps / wide))), before="t =")

        def places(values: Sequence[float]) -> list[Point]:
            # Whole pixels, so that rounding in the RNN, which differs between processors, does not show.
            return [(axes.x(t), round(axes.y(v)) if math.isfinite(v) else math.nan) for t, v in enumerate(values)]

        thins = [places(curve.packed) for curve in drawn]
        for curve, thin in zip(drawn, thins, strict=True):  # first, so that a padded line that is the same covers it
            sheet.line(thin[: curve.length], sheet.colours.text, width=1.6)
            sheet.line(thin[curve.length - 1 :], sheet.colours.text, width=1.6, dash="2 3")
        names, marks = [], []
        for i, (curve, thin) in enumerate(zip(drawn, thins, strict=True)):
            sheet.layer()
            points, ends_early = places(curve.padded), curve.length < steps
            sheet.line(points[: curve.length], palette.sequence_colour(i), width=3.4, outlined=True)
            sheet.line(points[curve.length - 1 :], palette.sequence_colour(i), width=3.4, dash="7 4", outlined=True)
            lost = next((t for t, v in enumerate(curve.padded) if not math.isfinite(v)), None)
            if lost is not None:
                at = points[lost - 1] if lost else (axes.x(0), _TOP + _HEIGHT - 12 - 14 * i)
                marks.append((at, f"✗ {curve.name}: NaN", sheet.colours.wrong))
            elif ends_early:
                names.append((points[-1], f"{curve.name} padded"))
            if ends_early and not self.frozen:
                marks.append((thin[curve.length - 1], f"{curve.name} packed", ""))
            else:
                names.append((thin[-1], f"{curve.name} packed" if ends_early else curve.name))
        for (x, y), said, ink in marks:
            sheet.text(x + 6, y + 4, said, size=11, ink=ink, halo=sheet.colours.ground)
        axes.names(names, axes.foot + 8)
        foot = self._key(sheet, _TOP + _HEIGHT + 38) + 12
        if len(self.curves) > MOST:
            sheet.text(4, foot + 8, f"The first {MOST} sequences are drawn.", size=11)
            foot += 18
        sheet.size(_WIDTH, foot)
        return sheet

    def _key(self, sheet: Sheet, y: float) -> float:
        x = line_key(sheet, 4, y, "padded, at real steps", width=4)
        x = line_key(sheet, x, y, "padded, through the padding", width=4, dash="7 4")
        said, dash = ("packed, dotted: frozen after its end", "2 3") if self.frozen else ("packed", "")
        line_key(sheet, x, y, said, sheet.colours.text, width=1.6, dash=dash)
        return y

    def _said(self, way: str, value: float) -> str:
        return "–" if way == "packed" and not self.frozen else difference(value)
