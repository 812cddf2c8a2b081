"""Axes with curves: the parts that all SVG charts share, and plots of numbers against a size, in rows. Pure.

Colour, marker and the name at the end of a curve show its method; dashes show where it was measured (your machine, a
recorded one).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packviz.draw import palette, text
from packviz.draw.cellgrid import roomy
from packviz.draw.drawing import Drawing
from packviz.draw.sheet import Point, Sheet, n, width_of

if TYPE_CHECKING:
    from packviz.draw.figures import Chart

COLOURS = (*palette.METHODS.values(), palette.REAL)
"""Of the first, second, … method, the last for what is no method's; after it they start over."""

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
_LEFT, _RIGHT, _TOP, _WIDE, _TALL = 70.0, 92.0, 40.0, 300.0, 170.0  # px: a plot and the room around it
_ALONE = 620.0  # px: a plot that has none beside it
_BELOW = 36.0
_BESIDE = 20.0  # names of curves that end so near to each other stand in one column
_MOST_TICKS = 8  # of a logarithmic axis; and as many marks on a curve


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
        log: whether heights lie at their logarithms.
    """

    sheet: Sheet
    left: float
    top: float
    wide: float
    tall: float
    heights: Sequence[float]
    across: Callable[[float], float]
    log: bool = False

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
        """Where a number lies in height; one that has no logarithm lies at the foot."""
        scale, low, high = math.log if self.log else float, self.heights[0], self.heights[-1]
        value = max(value, low) if self.log else value
        return self.top + (scale(high) - scale(value)) / (scale(high) - scale(low)) * self.tall

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
            if all(value == end or abs(y - self.y(end)) > 10 for end in (self.heights[0], self.heights[-1])):
                sheet.text(self.left - 10, y + 4, _number(value), anchor="end", size=11, ink=sheet.colours.muted)

    def columns(self, values: Iterable[float], name: str = "", before: str = "") -> None:
        """The line at the foot, and below it the numbers that have room.

        Args:
            values: the numbers, rising.
            name: what they are; stands below them.
            before: the same in short, on their left.
        """
        sheet, y = self.sheet, self.foot + 16
        sheet.line([(self.left, self.foot), (self.right, self.foot)])
        for x, label in roomy([(self.x(value), _number(value)) for value in values]):
            sheet.text(x, y, label, anchor="middle", size=11, ink=sheet.colours.muted)
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

    def band(self, spreads: Sequence[tuple[float, float, float]], fill: str) -> None:
        """The area from low to high along a curve, `(number, low, high)`; of a single point a whisker."""
        if len(spreads) == 1:
            return self.whiskers(spreads)
        edge = [(x, high) for x, _, high in spreads] + [(x, low) for x, low, _ in reversed(spreads)]
        d = "M" + "L".join(f"{n(self.x(x))} {n(self.y(value))}" for x, value in edge) + "z"
        self.sheet.path(d, fill=fill, opacity=0.3)
        return None

    def names(self, ends: Iterable[tuple[Point, str]], lowest: float) -> None:
        """A name beside the end of each curve, none over another or below the lowest height, in px."""
        sheet, ends = self.sheet, list(ends)
        last = max((x for (x, _), _ in ends), default=0.0)
        ends = [((last if last - x < _BESIDE else x, y), name) for (x, y), name in ends]
        for right in sorted({x for (x, _), _ in ends}):
            here = sorted((y, name) for (x, y), name in ends if x == right)
            for beside, (y, name) in zip(spread_labels([y for y, _ in here], lowest), here, strict=True):
                sheet.line([(right + 7, y), (right + 18, beside)], sheet.colours.muted)
                sheet.text(right + 21, beside + 4, name, size=11, halo=sheet.colours.ground)


def ticks(low: float, high: float) -> list[float]:
    """At least two round numbers that enclose the range."""
    span = max(high - low, 1e-3)
    power = 10 ** math.floor(math.log10(span / 3))
    step = next(s * power for s in (1, 2, 5, 10) if s * power >= span / 4)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [round(i * step, 10) + 0.0 for i in range(first, max(last, first + 1) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """At least two round numbers that enclose the range, 1, 2 or 5 at the ends; if they are many, powers of ten."""
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    steps = [float(f"{digit}e{power}") for power in powers for digit in (1, 2, 5)]
    first = max(i for i, step in enumerate(steps) if step <= low * (1 + 1e-9))
    last = min(i for i, step in enumerate(steps) if step >= high * (1 - 1e-9))
    found = steps[first : max(last, first + 1) + 1]
    if len(found) <= _MOST_TICKS:
        return found
    return [step for step in found if step in (found[0], found[-1]) or f"{step:e}".startswith("1.000000")]


def doublings(sizes: Sequence[float]) -> list[float]:
    """Of rising sizes the first, and those 2, 4, 8, … times as large, if most of the range is so covered; else all."""
    found = [size for size in sizes if math.log2(size / sizes[0]).is_integer()]
    return found if len(found) > 2 else [*sizes]


def spread_labels(heights: Sequence[float], lowest: float, gap: float = 12.0) -> list[float]:
    """The heights from top to bottom, moved so that labels there do not cover each other, none below the lowest."""
    placed = sorted(heights)
    for i in range(1, len(placed)):
        placed[i] = max(placed[i], placed[i - 1] + gap)
    for i in reversed(range(len(placed))):
        placed[i] = min(placed[i], lowest)
        lowest = placed[i] - gap
    return placed


def mark(sheet: Sheet, at: Point, shape: str, fill: str, stroke: str = "") -> None:
    """A small shape: an SVG path from the place that it marks."""
    sheet.path(f"M{n(at[0])} {n(at[1])}{shape}", fill=fill, stroke=stroke)


def line_key(
    sheet: Sheet, x: float, y: float, name: str, stroke: str = "", *, width: float = 2.5, dash: str = "", size: int = 12
) -> float:
    """What a look of lines means, on the line `y`; gives the x behind it."""
    sheet.line([(x, y - 4), (x + 34, y - 4)], stroke, width=width, dash=dash)
    sheet.text(x + 40, y, name, size=size)
    return x + 60 + width_of(name, size)


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
        hollow: whether its marks are, to tell two curves of a method apart.
    """

    name: str
    method: int
    source: int
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    hollow: bool = False


@dataclass(frozen=True)
class Guide:
    """A thin line to compare curves with.

    Attributes:
        name: stands at its end.
        points: where it begins and ends.
    """

    name: str
    points: tuple[Point, Point]


@dataclass(frozen=True)
class Plot:
    """The curves that share axes.

    Attributes:
        title: stands above.
        curves: those of the first source last: they are painted over the others.
        planned: sizes to mark on the axis.
        guides: thin lines to compare the curves with.
        y: what the heights are.
        log: whether both axes are logarithmic; such plots of one unit have the same heights.
    """

    title: str
    curves: Sequence[Curve]
    planned: Sequence[float] = ()
    guides: Sequence[Guide] = ()
    y: str = "ms"
    log: bool = False

    @property
    def names(self) -> list[str]:
        """What may stand at the ends of curves and guides."""
        return [*(curve.name for curve in self.curves), *(guide.name for guide in self.guides)]

    @property
    def sizes(self) -> list[float]:
        """All that are measured or planned, rising."""
        return sorted({*self.planned, *(x for curve in self.curves for x in curve.x)})

    def spread(self) -> list[float]:
        """All that the heights have to hold."""
        drawn = [value for curve in self.curves for some in (curve.low, curve.y, curve.high) for value in some]
        return drawn + [y for guide in self.guides for _, y in guide.points]


@dataclass(frozen=True, repr=False)
class Sweep(Drawing):
    """Plots in rows.

    Attributes:
        title: stands above.
        rows: of plots.
        sources: what each kind of dashes means; left out if there is only one and it is empty.
        notes: lines that stand below.
        text: the text twin.
        x: what the sizes are.
    """

    title: str
    rows: Sequence[Sequence[Plot]]
    sources: Sequence[str]
    notes: Sequence[str]
    text: str
    x: str = "time steps"

    def to_text(self) -> str:
        """The times as tables."""
        return self.text

    def sheet(self, theme: str) -> Sheet:
        """The plots, and below what the dashes mean."""
        sheet = Sheet(theme, self.title)
        sheet.title(self.title)
        columns, y = max(map(len, self.rows), default=1), 22.0
        wide = _WIDE if columns > 1 else _ALONE
        each = _LEFT + wide + _RIGHT
        for row, heights_in_row in zip(self.rows, heights_of(self.rows), strict=True):
            for i, (plot, heights) in enumerate(zip(row, heights_in_row, strict=True)):
                self._plot(sheet, plot, heights, (i * each + _LEFT, y + _TOP, wide))
            y += _TOP + _TALL + _BELOW
        for i, source in enumerate(self.sources):
            line_key(sheet, 4, y + 12, source, sheet.colours.text, dash=DASHES[i % len(DASHES)], size=11)
            y += 18
        y = sheet.paragraph(4, y + 1, self.notes, size=11, ink=sheet.colours.muted)
        sheet.size(max(columns * each, sheet.width), y + 8)
        return sheet

    def chart(self) -> Chart:
        """Returns the same plots as a plotly chart, to hover over."""
        from packviz.draw.figures import times_by_size  # noqa: PLC0415 - a bare machine has no plotly

        return times_by_size(self)

    def _plot(self, sheet: Sheet, plot: Plot, heights: Sequence[float], place: tuple[float, float, float]) -> None:
        (left, top, most), sizes, right = place, plot.sizes, longest_x(plot)
        space = max((width_of(name, 11) + 26 for name in plot.names), default=0.0)
        wide = min(most, most + _RIGHT - space)
        if plot.log and len(sizes) > 1:
            whole = math.log(sizes[-1] / sizes[0])
            axes = Axes(sheet, left, top, wide, _TALL, heights, lambda x: math.log(x / sizes[0]) / whole, log=True)
            columns = doublings(sizes)
        else:
            axes = Axes(sheet, left, top, wide, _TALL, heights, lambda x: x / right, log=plot.log)
            columns = [value for value in ticks(0.0, right) if value <= right]
        crowded = plot.log and len(columns) < len(sizes) > _MOST_TICKS  # there the marks would hide the curves
        axes.rows(plot.title, plot.y)
        axes.columns(columns, self.x)
        for size in plot.planned:
            mark(sheet, (axes.x(size), axes.foot), "l3 6h-6z", sheet.colours.accent)
        if not plot.curves:
            middle = left + wide / 2, top + _TALL / 2
            sheet.text(*middle, "nothing measured yet", anchor="middle", ink=sheet.colours.muted)
        ends = []
        for guide in plot.guides:
            points = [(axes.x(x), axes.y(y)) for x, y in guide.points]
            sheet.line(points, sheet.colours.muted, width=1)
            ends.append((points[-1], guide.name))
        for curve in plot.curves:
            sheet.layer()
            spreads = list(zip(curve.x, curve.low, curve.high, strict=True))
            points = [(axes.x(x), axes.y(y)) for x, y in zip(curve.x, curve.y, strict=True)]
            fill, dash = COLOURS[curve.method % len(COLOURS)], DASHES[curve.source % len(DASHES)]
            if plot.log:
                axes.band(spreads, fill)
            else:
                axes.whiskers(spreads)
            sheet.line(points, fill, width=2.6, dash=dash, outlined=True)
            shape, inside = _MARKERS[curve.method % len(_MARKERS)], sheet.colours.ground if curve.hollow else fill
            for point, size in zip(points, curve.x, strict=True):
                if not crowded or size in columns or size == curve.x[-1]:
                    mark(sheet, point, shape, inside, sheet.colours.line)
            ends.append((points[-1], curve.name))
        # A name in the middle would cover longer curves; it is written once, where the longest curve of that name ends.
        last = max((x for (x, _), _ in ends), default=0.0)
        outermost = {name for (x, _), name in ends if x == last}
        axes.names([end for end in ends if end[0][0] == last or end[1] not in outermost], axes.foot)


def heights_of(rows: Sequence[Sequence[Plot]]) -> list[list[Sequence[float]]]:
    """The numbers beside each plot: its own; where axes are logarithmic, those of all with the same unit."""
    values: dict[str, list[float]] = {}
    for plot in (plot for row in rows for plot in row if plot.log):
        values.setdefault(plot.y, []).extend(value for value in plot.spread() if value > 0)
    shared = {unit: log_ticks(min(some), max(some)) if some else [1.0, 10.0] for unit, some in values.items()}

    def own(plot: Plot) -> Sequence[float]:
        return ticks(0.0, max(plot.spread(), default=0.0)) if plot.curves else ()

    return [[shared[plot.y] if plot.log else own(plot) for plot in row] for row in rows]


def longest_x(plot: Plot) -> float:
    """Where the axis of sizes ends."""
    return max([1.0, *plot.sizes])
