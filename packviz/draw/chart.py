"""Axes with curves: what every chart drawn by the pen shares, and times against a size in plots in rows. Pure.

A method is told by its colour, its marker and the name at the end of its curve; where a curve comes from (your machine,
a recorded one) by its dashes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from packviz.draw import palette, text
from packviz.draw.drawn import Drawn
from packviz.draw.sheet import Point, Sheet, n, width_of

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
_LEFT, _RIGHT, _TOP, _WIDE, _TALL = 66.0, 92.0, 40.0, 300.0, 170.0  # px: a plot and the room around it
_BELOW = 36.0


@dataclass(frozen=True)
class Axes:
    """A plot on a sheet: where numbers lie in it, and what stands around it.

    Attributes:
        sheet: what is drawn on.
        left: its left side, in px.
        top: its top.
        wide: its width.
        tall: its height.
        heights: the numbers that stand beside it, from the one at its foot to the one at its top.
        across: gives the share of the width, from 0 to 1, at which a number lies.
    """

    sheet: Sheet
    left: float
    top: float
    wide: float
    tall: float
    heights: Sequence[float]
    across: Callable[[float], float]

    @property
    def right(self) -> float:
        """Its right side."""
        return self.left + self.wide

    @property
    def foot(self) -> float:
        """Its lower side."""
        return self.top + self.tall

    def x(self, value: float) -> float:
        """Where a number lies across."""
        return self.left + self.across(value) * self.wide

    def y(self, value: float) -> float:
        """Where a number lies in height."""
        low, high = self.heights[0], self.heights[-1]
        return self.top + (high - value) / (high - low) * self.tall

    def rows(self, title: str = "", unit: str = "") -> None:
        """A line at each of the heights with its number; the title above, and what the numbers are."""
        sheet = self.sheet
        if title:
            sheet.text(self.left, self.top - 16, title, bold=True)
        if unit:
            sheet.text(self.left - 6, self.top - 16, unit, anchor="end", size=11)
        for value in self.heights:
            y = self.y(value)
            sheet.line([(self.left, y), (self.right, y)], sheet.colours.hatch, width=0.5)
            sheet.text(self.left - 6, y + 4, _number(value), anchor="end", size=11, ink=sheet.colours.muted)

    def columns(self, values: Iterable[float], name: str = "", before: str = "") -> None:
        """The line at the foot, and below it the numbers that have room.

        Args:
            values: the numbers, rising.
            name: what they are; stands below them.
            before: the same in short, on their left.
        """
        sheet, y = self.sheet, self.foot + 16
        sheet.line([(self.left, self.foot), (self.right, self.foot)])
        for x, said in roomy([(self.x(value), _number(value)) for value in values]):
            sheet.text(x, y, said, anchor="middle", size=11, ink=sheet.colours.muted)
        if name:
            sheet.text(self.left + self.wide / 2, y + 15, name, anchor="middle", size=11)
        if before:
            sheet.text(self.left - 6, y, before, anchor="end", size=11)

    def whiskers(self, spreads: Iterable[tuple[float, float, float]]) -> None:
        """A line from low to high at each number across: `(number, low, high)`."""
        d = ""
        for value, *ends in spreads:
            x, (low, high) = self.x(value), map(self.y, ends)
            d += f"M{n(x)} {n(low)}V{n(high)}M{n(x - 4)} {n(low)}h8M{n(x - 4)} {n(high)}h8"
        self.sheet.path(d, stroke=self.sheet.colours.line)

    def names(self, ends: Iterable[tuple[Point, str]], lowest: float) -> None:
        """A name beside the end of each curve, none over another or below the lowest height, in px."""
        sheet, ends = self.sheet, list(ends)
        for right in sorted({x for (x, _), _ in ends}):
            here = sorted((y, name) for (x, y), name in ends if x == right)
            for beside, (y, name) in zip(apart([y for y, _ in here], lowest), here, strict=True):
                sheet.line([(right + 7, y), (right + 18, beside)], sheet.colours.muted)
                sheet.text(right + 21, beside + 4, name, size=11, halo=sheet.colours.ground)


def ticks(low: float, high: float) -> list[float]:
    """At least two round numbers that enclose the range."""
    span = max(high - low, 1e-3)
    power = 10 ** math.floor(math.log10(span / 3))
    step = next(s * power for s in (1, 2, 5, 10) if s * power >= span / 4)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [round(i * step, 10) + 0.0 for i in range(first, max(last, first + 1) + 1)]


def nice(at_least: float) -> int:
    """The smallest of 1, 2, 5, 10, 20, 50, … that is at least this."""
    steps: Iterator[int] = (digit * 10**power for power in count() for digit in (1, 2, 5))
    return next(step for step in steps if step >= at_least)


def apart(heights: Sequence[float], lowest: float, room: float = 12.0) -> list[float]:
    """The heights from top to bottom, moved so that labels there do not cover each other, none below the lowest."""
    placed = sorted(heights)
    for i in range(1, len(placed)):
        placed[i] = max(placed[i], placed[i - 1] + room)
    for i in reversed(range(len(placed))):
        placed[i] = min(placed[i], lowest)
        lowest = placed[i] - room
    return placed


def roomy(labels: Sequence[tuple[float, str]]) -> Iterator[tuple[float, str]]:
    """Those of the labels, from left to right, that have room beside each other; always the last."""
    taken = -math.inf
    for x, said in labels:
        room = width_of(said, 11) + 5
        if x == labels[-1][0] or taken + room <= x <= labels[-1][0] - room:
            taken = x
            yield x, said


def mark(sheet: Sheet, at: Point, shape: str, fill: str, stroke: str = "") -> None:
    """A small shape: an SVG path from the place that it marks."""
    sheet.path(f"M{n(at[0])} {n(at[1])}{shape}", fill=fill, stroke=stroke)


def line_key(
    sheet: Sheet, x: float, y: float, said: str, stroke: str = "", *, width: float = 2.5, dash: str = ""
) -> float:
    """What a look of lines means, on the line `y`; gives the x behind it."""
    sheet.line([(x, y - 4), (x + 34, y - 4)], stroke, width=width, dash=dash)
    sheet.text(x + 40, y, said)
    return x + 60 + width_of(said)


def _number(value: float) -> str:
    return f"{value:,g}" if abs(value) < 1e6 else text.short(round(value))


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

    def sheet(self, theme: str) -> Sheet:
        """The plots, and below what the dashes mean."""
        sheet = Sheet(theme, self.title)
        sheet.title(self.title)
        each, y = _LEFT + _WIDE + _RIGHT, 22.0
        for row in self.rows:
            for i, plot in enumerate(row):
                self._plot(sheet, plot, i * each + _LEFT, y + _TOP)
            y += _TOP + _TALL + _BELOW
        for i, source in enumerate(self.sources):
            line_key(sheet, 4, y + 12, source, sheet.colours.text, dash=DASHES[i % len(DASHES)])
            y += 18
        y = sheet.paragraph(4, y + 1, self.notes, size=11, ink=sheet.colours.muted)
        sheet.size(max(max(map(len, self.rows), default=1) * each, sheet.width), y + 8)
        return sheet

    def _plot(self, sheet: Sheet, plot: Plot, left: float, top: float) -> None:
        right, longest = longest_x(plot), max((max(c.high) for c in plot.curves), default=0.0)
        heights = ticks(0.0, longest) if plot.curves else ()
        axes = Axes(sheet, left, top, _WIDE, _TALL, heights, lambda x: x / right)
        axes.rows(plot.title, self.y)
        axes.columns([value for value in ticks(0.0, right) if value <= right], self.x)
        for size in plot.planned:
            mark(sheet, (axes.x(size), axes.foot), "l3 6h-6z", sheet.colours.accent)
        if not plot.curves:
            middle = left + _WIDE / 2, top + _TALL / 2
            sheet.text(*middle, "nothing measured yet", anchor="middle", ink=sheet.colours.muted)
        for curve in plot.curves:
            sheet.layer()
            axes.whiskers(zip(curve.x, curve.low, curve.high, strict=True))
            points = [(axes.x(x), axes.y(y)) for x, y in zip(curve.x, curve.y, strict=True)]
            fill, dash = COLOURS[curve.method % len(COLOURS)], DASHES[curve.source % len(DASHES)]
            sheet.line(points, fill, width=2.6, dash=dash, outlined=True)
            for point in points:
                mark(sheet, point, _MARKERS[curve.method % len(_MARKERS)], fill, sheet.colours.line)
        axes.names([((axes.x(c.x[-1]), axes.y(c.y[-1])), c.name) for c in plot.curves], axes.foot)


def longest_x(plot: Plot) -> float:
    """Where the axis of sizes ends."""
    return max([1.0, *plot.planned, *(curve.x[-1] for curve in plot.curves)])
