"""Times against a size: small plots in rows, as an SVG string and as text. Pure.

A method is told by its colour, its marker and the name at the end of its curve; where a curve comes from (your machine,
a recorded one) by its dashes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from packviz.draw import axes, palette
from packviz.draw.drawn import Drawn
from packviz.draw.layouts import element, escape

COLOURS = (*palette.METHODS.values(), palette.SEQUENCES[7])
"""Of the first, second, … method; after the last they start over."""

DASHES = ("", "8 4", "2 3", "9 3 2 3")
"""Of the first, second, … source."""

_MARKERS = (
    "m-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",  # circle
    "m-4-4h8v8h-8z",  # square
    "m0-5.5l5.5 5.5l-5.5 5.5l-5.5-5.5z",  # diamond
    "m0-5l5 9h-10z",  # triangle up
    "m0 5l5-9h-10z",  # triangle down
    "m-1.5-5h3v3.5h3.5v3h-3.5v3.5h-3v-3.5h-3.5v-3h3.5z",  # cross
    "m0-5.5l1.5 4h4l-3.2 2.5l1.2 4l-3.5-2.4l-3.5 2.4l1.2-4l-3.2-2.5h4z",  # star
)
_LEFT, _RIGHT, _TOP, _WIDE, _TALL = 58.0, 92.0, 40.0, 300.0, 170.0  # px: a plot and the room around it
_BELOW = 36.0


@dataclass(frozen=True)
class Curve:
    """One curve.

    Attributes:
        name: of the method; it stands at the end of the curve.
        method: its number: gives the colour and the marker.
        source: the number of where it comes from: gives the dashes.
        x: sizes, ascending.
        y: a time for each, in milliseconds.
        low: first quartile of each.
        high: third quartile of each.
    """

    name: str
    method: int
    source: int
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


@dataclass(frozen=True)
class Plot:
    """The curves that share axes.

    Attributes:
        title: stands above.
        curves: those of the first source last: they are painted over the others.
        planned: sizes to mark on the axis.
    """

    title: str
    curves: Sequence[Curve]
    planned: Sequence[float] = ()


@dataclass(frozen=True, repr=False)
class Sweep(Drawn):
    """Plots in rows.

    Attributes:
        title: stands above.
        rows: of plots.
        sources: what each kind of dashes means; not said where there is but one and it is empty.
        notes: lines that stand below.
        text: the text twin.
        x: what the sizes are.
        y: what the heights are.
    """

    title: str
    rows: Sequence[Sequence[Plot]]
    sources: Sequence[str]
    notes: Sequence[str]
    text: str
    x: str = "time steps"
    y: str = "ms"

    def to_text(self) -> str:
        """The times as tables."""
        return self.text

    def to_svg(self, theme: str = "light") -> str:
        """The plots, and below what the dashes mean."""
        colours = palette.THEMES[theme]
        across = max(map(len, self.rows), default=1)
        width = across * (_LEFT + _WIDE + _RIGHT)
        body = [f'<text x="4" y="16" font-weight="bold">{escape(self.title)}</text>']
        y = 22.0
        for row in self.rows:
            for i, plot in enumerate(row):
                drawn = "".join(self._plot(plot, colours))
                body.append(f'<g transform="translate({i * (_LEFT + _WIDE + _RIGHT):g} {y:g})">{drawn}</g>')
            y += _TOP + _TALL + _BELOW
        for i, source in enumerate(self.sources):
            dashed = f' stroke-dasharray="{DASHES[i % len(DASHES)]}"' if DASHES[i % len(DASHES)] else ""
            body.append(f'<path d="M4 {y + 8:g}h44" stroke="{colours.text}" stroke-width="2.5"{dashed}/>')
            body.append(f'<text x="56" y="{y + 12:g}">{escape(source)}</text>')
            y += 18
        for note in self.notes:
            body.append(f'<text x="4" y="{y + 12:g}" font-size="11" fill="{colours.muted}">{escape(note)}</text>')
            y += 16
        longest = max([len(s) * 7.3 + 56 for s in self.sources] + [len(n) * 6.7 + 4 for n in self.notes], default=0)
        return element("".join(body), max(width, longest + 8), y + 8, self.title, theme)

    def _plot(self, plot: Plot, colours: palette.Theme) -> Iterator[str]:
        right, longest = longest_x(plot), max((max(c.high) for c in plot.curves), default=0.0)
        heights = axes.ticks(0.0, longest)
        foot, scale = _TOP + _TALL, _TALL / heights[-1]

        def place(x: float, y: float) -> tuple[float, float]:
            return _LEFT + x / right * _WIDE, foot - y * scale

        yield f'<text x="{_LEFT:g}" y="16">{escape(plot.title)}</text>'
        yield f'<text x="{_LEFT - 8:g}" y="{_TOP - 10:g}" text-anchor="end" font-size="11">{escape(self.y)}</text>'
        for value in heights if plot.curves else ():
            y = foot - value * scale
            yield f'<path d="M{_LEFT:g} {y:.1f}h{_WIDE:g}" stroke="{colours.hatch}" stroke-width=".5"/>'
            beside = f'x="{_LEFT - 8:g}" y="{y + 4:.1f}" text-anchor="end" font-size="11" fill="{colours.muted}"'
            yield f"<text {beside}>{_number(value)}</text>"
        yield f'<path d="M{_LEFT:g} {foot:g}h{_WIDE:g}" stroke="{colours.line}"/>'
        for value in axes.ticks(0.0, right):
            if value <= right:
                x, _ = place(value, 0)
                below = f'x="{x:.1f}" y="{foot + 16:g}" text-anchor="middle" font-size="11" fill="{colours.muted}"'
                yield f"<text {below}>{_number(value)}</text>"
        named = f'x="{_LEFT + _WIDE:g}" y="{foot + 30:g}" text-anchor="end" font-size="11"'
        yield f"<text {named}>{escape(self.x)}</text>"
        if plot.planned:
            pips = "".join(f"M{place(x, 0)[0]:.1f} {foot:g}l3 6h-6z" for x in plot.planned)
            yield f'<path d="{pips}" fill="{colours.accent}"/>'
        if not plot.curves:
            middle = f'x="{_LEFT + _WIDE / 2:g}" y="{_TOP + _TALL / 2:g}" text-anchor="middle"'
            yield f'<text {middle} fill="{colours.muted}">nothing measured yet</text>'
        for curve in plot.curves:
            whiskers = ("".join(_whisker(place(x, low), place(x, high))) for x, low, high in spreads(curve))
            yield f'<path d="{"".join(whiskers)}" stroke="{colours.line}" fill="none"/>'
            points = [place(x, y) for x, y in zip(curve.x, curve.y, strict=True)]
            yield from _line(points, curve, colours)
        yield from _names([(*place(c.x[-1], c.y[-1]), c.name) for c in plot.curves], foot, colours)


def longest_x(plot: Plot) -> float:
    """Where the axis of sizes ends."""
    return max([1.0, *plot.planned, *(curve.x[-1] for curve in plot.curves)])


def spreads(curve: Curve) -> Iterator[tuple[float, float, float]]:
    """Size, first and third quartile of each point."""
    return zip(curve.x, curve.low, curve.high, strict=True)


def _line(points: Sequence[tuple[float, float]], curve: Curve, colours: palette.Theme) -> Iterator[str]:
    fill, dash = COLOURS[curve.method % len(COLOURS)], DASHES[curve.source % len(DASHES)]
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    for colour, width in ((colours.line, 4), (fill, 2.6)):  # an outline first: some colours are pale
        yield f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="{width}"{dashed}/>'
    marker = _MARKERS[curve.method % len(_MARKERS)]
    marks = "".join(f"M{x:.1f} {y:.1f}{marker}" for x, y in points)
    yield f'<path d="{marks}" fill="{fill}" stroke="{colours.line}"/>'


def _whisker(low: tuple[float, float], high: tuple[float, float]) -> Iterator[str]:
    x = low[0]
    yield f"M{x:.1f} {low[1]:.1f}V{high[1]:.1f}"
    yield from (f"M{x - 4:.1f} {y:.1f}h8" for _, y in (low, high))


def _names(ends: Sequence[tuple[float, float, str]], lowest: float, colours: palette.Theme) -> Iterator[str]:
    """The names beside the ends of their curves."""
    halo = f'stroke="{colours.ground}" stroke-width="4" paint-order="stroke"'
    for right in sorted({x for x, _, _ in ends}):
        here = sorted((y, name) for x, y, name in ends if x == right)
        for beside, (y, name) in zip(axes.apart([y for y, _ in here], lowest), here, strict=True):
            yield f'<path d="M{right + 7:.1f} {y:.1f}L{right + 18:.1f} {beside:.1f}" stroke="{colours.muted}"/>'
            yield f'<text x="{right + 21:.1f}" y="{beside + 4:.1f}" font-size="11" {halo}>{escape(name)}</text>'


def _number(value: float) -> str:
    return f"{value:,g}" if value < 1e6 else f"{value:.3g}"
