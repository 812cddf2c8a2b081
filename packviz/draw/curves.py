"""A number per time step of each sequence, padded and packed, as an SVG string and as text. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from packviz.draw import axes, palette
from packviz.draw.drawn import Drawn
from packviz.draw.layouts import element, escape
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

    def to_svg(self, theme: str = "light") -> str:
        """Solid at real steps, dashed through the padding; packed as a thin line, dotted where it is frozen."""
        colours = palette.THEMES[theme]
        drawn = self.curves[:MOST]
        finite = [v for c in drawn for v in (*c.padded, *c.packed) if math.isfinite(v)] or [0.0, 1.0]
        ticks = axes.ticks(min(finite), max(finite))
        low, high = min(*finite, ticks[0]), max(*finite, ticks[-1])
        steps = len(drawn[0].padded)

        def x(t: float) -> float:
            return _LEFT + (t + 0.5) * (_WIDTH - _LEFT - _RIGHT) / steps

        def y(value: float) -> float:
            # Whole pixels, so that rounding in the RNN, which differs between processors, does not show.
            return round(_TOP + 8 + (high - value) / (high - low) * (_HEIGHT - 16))

        out = [f'<text x="4" y="16" font-weight="bold">{escape(self.title)}</text>']
        out += _axes(colours, {value: y(value) for value in ticks}, [x(t) for t in range(steps)])
        foot = _TOP + _HEIGHT + 16
        labels, marks = [], []
        thins = []
        for curve in drawn:  # first, so that a padded line that is the same covers it
            thin = [(x(t), y(v) if math.isfinite(v) else math.nan) for t, v in enumerate(curve.packed)]
            for dots, path in (("", thin[: curve.length]), (' stroke-dasharray="2 3"', thin[curve.length - 1 :])):
                line = _path(path)
                out.append(f'<path d="{line}" fill="none" stroke="{colours.text}" stroke-width="1.6"{dots}/>')
            thins.append(thin)
        for i, (curve, thin) in enumerate(zip(drawn, thins, strict=True)):
            points = [(x(t), y(v) if math.isfinite(v) else math.nan) for t, v in enumerate(curve.padded)]
            for dashed, path in ((False, points[: curve.length]), (True, points[curve.length - 1 :])):
                line = _path(path)
                dash = ' stroke-dasharray="7 4"' if dashed else ""
                shape = f'<path d="{line}" fill="none" stroke-linejoin="round"{dash}'
                out.append(f'{shape} stroke="{colours.line}" stroke-width="5"/>')  # its outline
                out.append(f'{shape} stroke="{palette.sequence_colour(i)}" stroke-width="3.4"/>')
            lost = next((t for t, v in enumerate(curve.padded) if not math.isfinite(v)), None)
            if lost is not None:
                left, height = points[lost - 1] if lost else (x(0), _TOP + _HEIGHT - 12 - 14 * i)
                marks.append((left, height, f"✗ {curve.name}: NaN", colours.wrong))
            elif len(curve.padded) > curve.length:
                labels.append((points[-1][1], f"{curve.name} padded"))
            if not self.frozen and len(curve.padded) > curve.length:
                marks.append((*thin[curve.length - 1], f"{curve.name} packed", colours.text))
            after = self.frozen and len(curve.padded) > curve.length
            if after or len(curve.padded) == curve.length:
                labels.append((thin[-1][1], f"{curve.name} packed" if after else curve.name))
        for left, height, label, colour in marks:
            halo = f'stroke="{colours.ground}" stroke-width="4" paint-order="stroke" fill="{colour}"'
            out.append(f'<text x="{left + 6:.1f}" y="{height + 4:.1f}" font-size="11" {halo}>{label}</text>')
        end = x(steps - 1)
        rows = axes.apart([height for height, _ in labels], _TOP + _HEIGHT)
        for beside, (height, label) in zip(rows, sorted(labels), strict=True):
            out.append(f'<path d="M{end + 4:.1f} {height:.1f}L{end + 18:.1f} {beside:.1f}" stroke="{colours.muted}"/>')
            out.append(f'<text x="{end + 22:.1f}" y="{beside + 4:.1f}" font-size="11">{label}</text>')
        out += self._key(colours, foot + 22)
        height = foot + 34
        if len(self.curves) > MOST:
            out.append(f'<text x="4" y="{height + 8:g}" font-size="11">The first {MOST} sequences are drawn.</text>')
            height += 18
        return element("".join(out), _WIDTH, height, self.title, theme)

    def _key(self, colours: palette.Theme, y: float) -> Iterator[str]:
        thick = f'stroke="{colours.line}" stroke-width="4"'
        parts = [(thick, "padded, at real steps"), (f'{thick} stroke-dasharray="7 4"', "padded, through the padding")]
        thin = f'stroke="{colours.text}" stroke-width="1.6"'
        said = ", dotted: frozen after its end" if self.frozen else ""
        parts.append((thin + (' stroke-dasharray="2 3"' if self.frozen else ""), f"packed{said}"))
        left = 4.0
        for line, said in parts:
            yield f'<path d="M{left:g} {y - 4:g}h34" {line}/>'
            yield f'<text x="{left + 40:g}" y="{y:g}">{said}</text>'
            left += 40 + 7.3 * len(said) + 20

    def _said(self, way: str, value: float) -> str:
        return "–" if way == "packed" and not self.frozen else difference(value)


def _axes(colours: palette.Theme, rows: Mapping[float, float], columns: Sequence[float]) -> Iterator[str]:
    """A line and a number at the height of each value, and the time steps beneath, as many as have room."""
    for value, y in rows.items():
        yield f'<path d="M{_LEFT:g} {y:g}H{_WIDTH - _RIGHT:g}" stroke="{colours.hatch}" stroke-width=".5"/>'
        beside = f'x="{_LEFT - 8:g}" y="{y + 4:g}" text-anchor="end" font-size="11" fill="{colours.muted}"'
        yield f"<text {beside}>{value:g}</text>"
    foot = _TOP + _HEIGHT + 16
    yield f'<text x="{_LEFT - 8:g}" y="{foot:g}" text-anchor="end" font-size="11">t =</text>'
    every = max(1, math.ceil(30 * len(columns) / (_WIDTH - _LEFT - _RIGHT)))
    for t in range(0, len(columns), every):
        yield f'<text x="{columns[t]:.1f}" y="{foot:g}" text-anchor="middle" font-size="11">{t}</text>'


def _path(points: Sequence[tuple[float, float]]) -> str:
    """A line through the points, broken where one has no height; a point on its own becomes a dot."""
    runs = []
    for good, run in groupby(points, key=lambda point: not math.isnan(point[1])):
        if good:
            inside = [f"{px:.1f} {py:g}" for px, py in run]
            runs.append("M" + "L".join(inside) + ("h.1" if len(inside) == 1 else ""))
    return "".join(runs)
