"""Describes charts of curves, and draws them as SVG. `figures` draws the same charts with plotly.

The colour, the marker and the name at the end of a curve show its method. The dashes show the
source of its numbers.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, cycle
from typing import TYPE_CHECKING

from packviz.draw.drawing import Drawing
from packviz.draw.grid import ROUND, roomy, round_up
from packviz.draw.palette import METHODS, REAL
from packviz.draw.sheet import HATCHED, WIDTH, Point, Sheet, widest
from packviz.draw.text import short

if TYPE_CHECKING:
    from packviz.draw.figures import Chart

Numbers = Sequence[float]

COLOURS = (*METHODS.values(), REAL)
"""The colours of the methods, in order, and a last one for curves without a method. Further curves
repeat them."""

DASHES = ("", "8 4", "2 3", "9 3 2 3")
"""The dash patterns for the sources of the measurements, in order."""

MARKERS = {
    "circle": "m-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",
    "square": "m-4-4h8v8h-8z",
    "diamond": "m0-5.5l5.5 5.5l-5.5 5.5l-5.5-5.5z",
    "triangle-up": "m0-5l5 9h-10z",
    "triangle-down": "m0 5l5-9h-10z",
    "cross": "m-1.5-5h3v3.5h3.5v3h-3.5v3.5h-3v-3.5h-3.5v-3h3.5z",
    "star": "m0-5.5l1.5 4h4l-3.2 2.5l1.2 4l-3.5-2.4l-3.5 2.4l1.2-4l-3.2-2.5h4z",
}
"""The markers of the methods, in order, by plotly's name: an SVG path relative to the marked
point."""

SYMBOLS = tuple(MARKERS)

_BESIDE = 20.0  # px: if curves end this close to each other, their names are written in one column
_LINE = 12.0  # px: from one name to the next
_MOST_TICKS = 8  # on a logarithmic axis
_LEFT = 70.0  # px: the space to the left of a plot
_RIGHT = 92.0
_TOP = 40.0
_BELOW = 36.0
_TALL = 170.0  # px: the height of a plot


@dataclass(frozen=True)
class Scale:
    """An axis.

    Attributes:
        ticks: the numbers to write at the axis, in ascending order.
        first: the number at the start of the axis.
        last: the number at the end of the axis.
        log: whether the axis is logarithmic.
    """

    ticks: Numbers
    first: float
    last: float
    log: bool = False

    def share(self, value: float) -> float:
        """Returns the position of a number as a fraction of the length of the axis.

        On a logarithmic axis, a number below the first one is drawn at the first one.
        """
        if self.log:
            rise = max(value, self.first) / self.first
            return math.log(rise) / math.log(self.last / self.first)
        return (value - self.first) / (self.last - self.first)


@dataclass(frozen=True)
class Axes:
    """The axes of a plot on a sheet.

    Attributes:
        sheet: the sheet that the plot is drawn on.
        across: the horizontal axis.
        up: the vertical axis.
        left: the x-coordinate of the plot's left edge in px.
        top: the y-coordinate of the plot's top edge in px.
        wide: the width of the plot in px.
        tall: the height of the plot in px.
    """

    sheet: Sheet
    across: Scale
    up: Scale
    left: float
    top: float
    wide: float
    tall: float

    @property
    def right(self) -> float:
        """The x-coordinate, in px, of the plot's right edge."""
        return self.left + self.wide

    @property
    def foot(self) -> float:
        """The y-coordinate, in px, of the plot's bottom edge."""
        return self.top + self.tall

    def x(self, value: float) -> float:
        """Returns the x-coordinate, in px, of a number on the horizontal axis."""
        return self.left + self.across.share(value) * self.wide

    def y(self, value: float) -> float:
        """Returns the y-coordinate, in px, of a number on the vertical axis."""
        return self.foot - self.up.share(value) * self.tall

    def points(self, x: Numbers, y: Numbers) -> list[Point]:
        """Converts points from the units of the axes to px."""
        return [*zip(map(self.x, x), map(self.y, y), strict=True)]

    def draw_up(self, title: str, unit: str) -> None:
        """Draws the ticks of the vertical axis, and writes the title and the unit above it."""
        sheet = self.sheet
        x = self.left
        y = self.top - 16
        sheet.text(x, y, title, bold=True)
        sheet.text(x - 6, y, unit, anchor="end", size=11)
        faint = sheet.colours.hatch
        for value in self.up.ticks:
            y = self.y(value)
            sheet.path(f"M{x} {y}H{self.right}", stroke=faint, width=0.5)
            sheet.note(x - 10, y + 4, _written(value), "end")

    def draw_across(self, name: str) -> None:
        """Draws the horizontal axis with as many numbers as fit, and writes its title below it."""
        sheet = self.sheet
        left = self.left
        y = self.foot + 16
        sheet.line([(left, y - 16), (self.right, y - 16)])
        labels = [(self.x(value), _written(value)) for value in self.across.ticks]
        for x, label in roomy(labels):
            sheet.note(x, y, label, "middle")
        middle = left + self.wide / 2
        sheet.text(middle, y + 15, name, anchor="middle", size=11)

    def write_names(self, ends: Mapping[str, Point]) -> None:
        """Writes the names of curves beside their ends.

        They are moved so that they neither overlap nor go below the plot.

        Args:
            ends: the end of each curve, in the units of the axes.
        """
        sheet = self.sheet
        colours = sheet.colours
        rights = [self.x(x) for x, _ in ends.values()]
        last = max(rights, default=0.0)
        columns: dict[float, list[tuple[float, str]]] = defaultdict(list)
        for name, end in ends.items():
            x = self.x(end[0])
            column = last if last - x < _BESIDE else x
            columns[column].append((self.y(end[1]), name))
        for x, labels in columns.items():
            labels.sort()
            heights = [y for y, _ in labels]
            moved = spread_labels(heights, self.foot)
            for (y, name), beside in zip(labels, moved, strict=True):
                sheet.line([(x + 7, y), (x + 18, beside)], colours.muted)
                sheet.text(x + 21, beside + 4, name, size=11, halo=colours.ground)


def ticks(low: float, high: float) -> list[float]:
    """Returns two or more evenly spaced round numbers, from at most `low` to at least `high`."""
    span = max(high - low, 1e-3)
    step = round_up(span / 4)
    first = math.floor(low / step)
    last = max(math.ceil(high / step), first + 1)
    return [round(i * step, 10) for i in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Returns two or more round numbers, from at most `low` to at least `high`.

    In a wide range, all of them except the two ends are powers of ten, and none is so near an end
    that the two labels would touch.
    """
    first = bisect_right(ROUND, low * (1 + 1e-9)) - 1
    last = max(bisect_left(ROUND, high * (1 - 1e-9)), first + 1)
    if last - first < _MOST_TICKS:
        return ROUND[first : last + 1]
    low = ROUND[first]
    high = ROUND[last]
    gap = (high / low) ** 0.07
    powers = ROUND[::3]
    inner = [power for power in powers if low * gap < power < high / gap]
    return [low, *inner, high]


def doublings(sizes: Numbers) -> list[float]:
    """Returns 1, 2, 4, 8, … times the first size, up to the last size.

    If there are fewer than three such numbers, returns all sizes.
    """
    doubled = [sizes[0]]
    while 2 * doubled[-1] <= sizes[-1]:
        doubled.append(2 * doubled[-1])
    return doubled if len(doubled) > 2 else [*sizes]


def spread_labels(heights: Numbers, lowest: float) -> list[float]:
    """Returns the sorted y-coordinates of labels, in px.

    They are moved so that labels neither overlap nor go below `lowest`.
    """
    placed = sorted(heights)
    for i in range(1, len(placed)):
        highest = placed[i - 1] + _LINE
        placed[i] = max(placed[i], highest)
    for i in reversed(range(len(placed))):
        placed[i] = min(placed[i], lowest)
        lowest = placed[i] - _LINE
    return placed


def mark(sheet: Sheet, at: Point, shape: str, fill: str, stroke: str) -> None:
    """Draws a marker. Its `shape` is an SVG path relative to the marked point."""
    x, y = at
    sheet.path(f"M{x} {y}{shape}", fill=fill, stroke=stroke)


def _written(value: float) -> str:
    if abs(value) < 1e6:
        return f"{value:,g}"
    return short(round(value))


@dataclass(frozen=True)
class Curve:
    """A curve in a plot.

    Attributes:
        name: the name of the method, written at the end of the curve.
        method: the number of the method, which sets the colour and the marker.
        source: the number of the source of the measurements, which sets the dashes.
        x: the sizes, in ascending order.
        y: a number for each size.
        low: the first quartile at each size; may be empty.
        high: the third quartile at each size; may be empty.
        hollow: whether the markers are hollow, to distinguish two curves of the same method.
    """

    name: str
    method: int
    source: int
    x: Numbers
    y: Numbers
    low: Numbers = ()
    high: Numbers = ()
    hollow: bool = False

    @property
    def colour(self) -> str:
        """The colour of the line and the markers."""
        return COLOURS[self.method % len(COLOURS)]

    @property
    def symbol(self) -> str:
        """The marker, one of `SYMBOLS`."""
        return SYMBOLS[self.method % len(SYMBOLS)]

    @property
    def dash(self) -> str:
        """The dashes of the line."""
        return DASHES[self.source % len(DASHES)]


@dataclass(frozen=True)
class Plot:
    """A plot of curves on the same axes.

    Attributes:
        title: the title above the plot.
        curves: the curves. Later curves are painted over earlier ones.
        guides: thin lines to compare the curves with: the two ends of each line, by the name of the
            line.
        y: the unit of the numbers.
        log: whether both axes are logarithmic. In a `Sweep`, plots with the same unit and the same
            kind of axes have the same vertical axis.
        log_x: whether the horizontal axis is logarithmic even if `log` is False.
        padding: the number on the horizontal axis from which the plot is hatched, as padding.
    """

    title: str
    curves: Sequence[Curve]
    guides: Mapping[str, tuple[Point, Point]] = field(default_factory=dict)
    y: str = "ms"
    log: bool = False
    log_x: bool = False
    padding: float = math.inf

    @property
    def across(self) -> Scale:
        """The horizontal axis, which covers the sizes of all curves."""
        sizes = sorted({*chain(*(curve.x for curve in self.curves))})
        if (self.log or self.log_x) and len(sizes) > 1:
            return Scale(doublings(sizes), sizes[0], sizes[-1], log=True)
        last = max([1.0, *sizes])
        marks = [value for value in ticks(0.0, last) if value <= last]
        return Scale(marks, 0.0, last)

    @property
    def ends(self) -> dict[str, Point]:
        """The place of each name, at the end of the farthest-reaching line with that name."""
        ends = {name: line[1] for name, line in self.guides.items()}
        for curve in self.curves:
            end = (curve.x[-1], curve.y[-1])
            if end[0] >= ends.get(curve.name, end)[0]:
                ends[curve.name] = end
        ends.pop("", None)
        return ends

    @property
    def heights(self) -> list[float]:
        """All numbers that the vertical axis has to cover."""
        heights: list[float] = []
        for (_, y0), (_, y1) in self.guides.values():
            heights += [y0, y1]
        for curve in self.curves:
            for values in (curve.low, curve.y, curve.high):
                heights += values
        return heights

    def draw(self, axes: Axes, name: str) -> None:
        """Draws the plot on axes, with the name of the horizontal axis."""
        sheet = axes.sheet
        x = axes.x(self.padding)
        if x < axes.right:
            sheet.box(x, axes.top, axes.right - x, axes.tall, HATCHED, stroke="")
        axes.draw_up(self.title, self.y)
        axes.draw_across(name)
        for line in self.guides.values():
            points = axes.points(*zip(*line, strict=True))
            sheet.line(points, sheet.colours.muted)
        for curve in self.curves:
            self._draw_curve(axes, curve)
        axes.write_names(self.ends)

    def _draw_curve(self, axes: Axes, curve: Curve) -> None:
        """Draws a curve with its quartiles and its markers."""
        sheet = axes.sheet
        line = sheet.colours.line
        points = axes.points(curve.x, curve.y)
        sheet.layer()
        for (x, _), low, high in zip(points, curve.low, curve.high, strict=False):
            foot = axes.y(low)
            top = axes.y(high)
            sheet.path(f"M{x} {foot}V{top}", stroke=line)
            for end in (foot, top):
                sheet.path(f"M{x - 4} {end}h8", stroke=line)
        sheet.line(points, curve.colour, width=2.6, dash=curve.dash, outlined=True)
        fill = sheet.colours.ground if curve.hollow else curve.colour
        # On a logarithmic axis, markers at all sizes might cover each other.
        marked = {*axes.across.ticks, curve.x[-1]}
        for point, size in zip(points, curve.x, strict=True):
            if size in marked or not axes.across.log:
                mark(sheet, point, MARKERS[curve.symbol], fill, line)


@dataclass(frozen=True)
class Sweep(Drawing):
    """A chart: plots arranged in rows.

    Attributes:
        title: the title above the plots, which states the finding.
        rows: the plots in each row.
        sources: the meaning of each dash pattern; may be empty.
        notes: lines of text below the plots.
        text: the content of the plots in words.
        x: the title of the horizontal axes.
        tall: the height of a plot in px.
    """

    title: str
    rows: Sequence[Sequence[Plot]]
    sources: Sequence[str]
    notes: Sequence[str]
    text: str
    x: str = "time steps"
    tall: float = _TALL

    def to_text(self) -> str:
        """Returns the content of the plots in words."""
        return self.text

    @property
    def plots(self) -> list[Plot]:
        """All plots, row by row."""
        return [*chain(*self.rows)]

    @property
    def columns(self) -> int:
        """The number of plots in the longest row."""
        return max(map(len, self.rows), default=1)

    def up(self, plot: Plot) -> Scale:
        """Returns the vertical axis of a `Plot`."""
        heights = []
        for other in self.plots:
            if (other.y, other.log) == (plot.y, plot.log):
                heights += other.heights
        if plot.log:
            positive = [height for height in heights if height > 0] or [1.0, 10.0]
            marks = log_ticks(min(positive), max(positive))
        else:
            marks = ticks(min([0.0, *heights]), max(heights, default=1.0))
        return Scale(marks, marks[0], marks[-1], plot.log)

    def sheet(self, theme: str) -> Sheet:
        """Draws the plots, with a key to the dashes and the notes below them."""
        sheet = Sheet(theme, self.text)
        y = sheet.title(self.title) - 2
        each = WIDTH / self.columns
        longest = widest(chain(*(plot.ends for plot in self.plots)), 11)
        wide = each - _LEFT - max(longest + 30, _RIGHT)
        for row in self.rows:
            for i, plot in enumerate(row):
                left = i * each + _LEFT
                up = self.up(plot)
                axes = Axes(sheet, plot.across, up, left, y + _TOP, wide, self.tall)
                plot.draw(axes, self.x)
            y += _TOP + self.tall + _BELOW
        for source, dash in zip(self.sources, cycle(DASHES), strict=False):
            sheet.path(f"M4 {y + 8}h34", stroke=sheet.colours.text, width=2.5, dash=dash)
            y = sheet.paragraph(y + 1, [source], 44, ink="") + 1
        y = sheet.paragraph(y + 1, self.notes)
        sheet.size(max(WIDTH, sheet.width), y + 8)
        return sheet

    def chart(self) -> Chart:
        """Returns logarithmic plots with one unit as a plotly chart."""
        from packviz.draw.figures import times_by_size  # noqa: PLC0415

        return times_by_size(self)
