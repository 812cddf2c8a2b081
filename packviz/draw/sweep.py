"""Numbers against a size in plots in rows."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from packviz.draw.drawing import Drawing
from packviz.draw.sheet import Point, Sheet, width_of

if TYPE_CHECKING:
    from packviz.draw.figures import Chart
from packviz.draw.chart import COLOURS, Axes, line_key, log_ticks, mark, ticks

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


_LEFT, _RIGHT, _TOP, _BELOW = 70.0, 92.0, 40.0, 36.0  # px: the room around a plot
_WIDE, _TALL = 300.0, 170.0  # px: a plot


def doublings(sizes: Sequence[float]) -> list[float]:
    """Of rising sizes the first, and those 2, 4, 8, … times as large, if most of the range is so covered; else all."""
    found = [size for size in sizes if math.log2(size / sizes[0]).is_integer()]
    return found if len(found) > 2 else [*sizes]


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
class Plot:
    """The curves that share axes.

    Attributes:
        title: stands above.
        curves: those of the first source last: they are painted over the others.
        planned: sizes to mark on the axis.
        guides: thin lines to compare the curves with: by what stands at the end, where each begins and ends.
        y: what the heights are.
        log: whether both axes are logarithmic; such plots of one unit have the same heights.
        log_x: whether the axis of sizes is.
    """

    title: str
    curves: Sequence[Curve]
    planned: Sequence[float] = ()
    guides: Mapping[str, tuple[Point, Point]] = field(default_factory=dict)
    y: str = "ms"
    log: bool = False
    log_x: bool = False

    @property
    def names(self) -> list[str]:
        """What may stand at the ends of curves and guides."""
        return [*(curve.name for curve in self.curves), *self.guides]

    @property
    def sizes(self) -> list[float]:
        """All that are measured or planned, rising."""
        return sorted({*self.planned, *(x for curve in self.curves for x in curve.x)})

    def spread(self) -> list[float]:
        """All that the heights have to hold."""
        drawn = [value for curve in self.curves for some in (curve.low, curve.y, curve.high) for value in some]
        return drawn + [y for ends in self.guides.values() for _, y in ends]


@dataclass(frozen=True, repr=False)
class Sweep(Drawing):
    """Plots in rows.

    Attributes:
        title: stands above.
        rows: of plots.
        sources: what each kind of dashes means; not said where there is but one and it is empty.
        notes: lines that stand below.
        text: the text twin.
        x: what the sizes are.
        wide: width of a plot that has none beside it in px.
    """

    title: str
    rows: Sequence[Sequence[Plot]]
    sources: Sequence[str]
    notes: Sequence[str]
    text: str
    x: str = "time steps"
    wide: float = 620.0

    def to_text(self) -> str:
        """The times as tables."""
        return self.text

    def sheet(self, theme: str) -> Sheet:
        """The plots, and below what the dashes mean."""
        sheet = Sheet(theme, self.title)
        sheet.title(self.title)
        columns, y = max(map(len, self.rows), default=1), 22.0
        wide = _WIDE if columns > 1 else self.wide
        each, named = _LEFT + wide + _RIGHT, [name for row in self.rows for plot in row for name in plot.names]
        wide = min(wide, wide + _RIGHT - max((width_of(name, 11) + 26 for name in named), default=0.0))
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

    def chart(self) -> Chart | Sweep:
        """Returns the same plots as a plotly chart, to hover over; itself if there are none."""
        from packviz.draw.figures import times_by_size  # noqa: PLC0415 - a bare machine has no plotly

        return times_by_size(self) if self.rows else self

    def _plot(self, sheet: Sheet, plot: Plot, heights: Sequence[float], place: tuple[float, float, float]) -> None:
        (left, top, wide), sizes = place, plot.sizes
        if (plot.log or plot.log_x) and len(sizes) > 1:
            first, whole = sizes[0], math.log(sizes[-1] / sizes[0])
            axes = Axes(sheet, left, top, wide, _TALL, heights, lambda x: math.log(x / first) / whole, plot.log)
            columns = doublings(sizes)
        else:
            right = max([1.0, *sizes])
            axes = Axes(sheet, left, top, wide, _TALL, heights, lambda x: x / right, plot.log)
            columns = [value for value in ticks(0.0, right) if value <= right]
        axes.rows(plot.title, plot.y)
        axes.columns(columns, self.x)
        for size in plot.planned:
            mark(sheet, (axes.x(size), axes.foot), "l3 6h-6z", sheet.colours.accent)
        if not plot.curves:
            middle = left + wide / 2, top + _TALL / 2
            sheet.text(*middle, "nothing measured yet", anchor="middle", ink=sheet.colours.muted)
        ends: dict[str, Point] = {}
        for name, points in plot.guides.items():
            ends[name] = axes.point(*points[1])
            sheet.line([axes.point(*point) for point in points], sheet.colours.muted)
        for curve in plot.curves:
            end = _curve(axes, curve, {*columns, curve.x[-1]} if plot.log or plot.log_x else curve.x)
            if end[0] >= ends.get(curve.name, end)[0]:  # a name stands once, where its last curve ends
                ends[curve.name] = end
        axes.names([(end, name) for name, end in ends.items() if name], axes.foot)


def _curve(axes: Axes, curve: Curve, marked: Collection[float]) -> Point:
    """Draws a curve between its quartiles, with marks at some of its sizes, and returns where it ends."""
    sheet, points = axes.sheet, [axes.point(*point) for point in zip(curve.x, curve.y, strict=True)]
    fill, dash = COLOURS[curve.method % len(COLOURS)], DASHES[curve.source % len(DASHES)]
    sheet.layer()
    spreads = list(zip(curve.x, curve.low, curve.high, strict=True))
    if axes.log and len(points) > 1:
        axes.band(spreads, fill)
    else:
        axes.whiskers(spreads)
    sheet.line(points, fill, width=2.6, dash=dash, outlined=True)
    for point, size in zip(points, curve.x, strict=True):
        if size in marked:
            shape = _MARKERS[curve.method % len(_MARKERS)]
            mark(sheet, point, shape, sheet.colours.ground if curve.hollow else fill, sheet.colours.line)
    return points[-1]


def heights_of(rows: Sequence[Sequence[Plot]]) -> list[list[Sequence[float]]]:
    """The numbers beside each plot: its own; where axes are logarithmic, those of all with the same unit."""
    values: dict[str, list[float]] = {}
    for plot in (plot for row in rows for plot in row if plot.log):
        values.setdefault(plot.y, []).extend(value for value in plot.spread() if value > 0)
    shared = {unit: log_ticks(min(some), max(some)) if some else [1.0, 10.0] for unit, some in values.items()}

    def own(plot: Plot) -> Sequence[float]:
        return ticks(0.0, max(plot.spread(), default=0.0)) if plot.curves else ()

    return [[shared[plot.y] if plot.log else own(plot) for plot in row] for row in rows]
