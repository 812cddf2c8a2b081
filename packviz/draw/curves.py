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
from packviz.draw.grid import ROUND_NUMBERS, drop_overlapping, next_round_number
from packviz.draw.palette import METHODS, REAL
from packviz.draw.sheet import HATCHED, WIDTH, Point, Sheet, max_text_width
from packviz.draw.text import short_count

if TYPE_CHECKING:
    from packviz.draw.figures import Chart

Numbers = Sequence[float]

METHOD_COLOURS = (*METHODS.values(), REAL)
"""The colours of the methods, in order, and a last one for curves without a method. Further curves
repeat them."""

DASHES = ("", "8 4", "2 3", "9 3 2 3")
"""The dash patterns for the sources of the measurements, in order."""

MARKER_PATHS = {
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

MARKER_NAMES = tuple(MARKER_PATHS)

_SAME_COLUMN_DISTANCE = 20.0  # px: curves that end this close together are named in one column
_NAME_SPACING = 12.0  # px: from one name to the next
_MAX_TICKS = 8  # on a logarithmic axis
_LEFT_MARGIN = 70.0  # px: the space to the left of a plot
_RIGHT_MARGIN = 92.0
_TOP_MARGIN = 40.0
_BOTTOM_MARGIN = 36.0
_PLOT_HEIGHT = 170.0  # px: the height of a plot


@dataclass(frozen=True)
class AxisScale:
    """An axis.

    Attributes:
        ticks: the numbers to write at the axis, in ascending order.
        first: the number at the start of the axis.
        last: the number at the end of the axis.
        is_log: whether the axis is logarithmic.
    """

    ticks: Numbers
    first: float
    last: float
    is_log: bool = False

    def fraction(self, value: float) -> float:
        """Returns the position of a number as a fraction of the length of the axis.

        On a logarithmic axis, a number below the first one is drawn at the first one.
        """
        if self.is_log:
            ratio = max(value, self.first) / self.first
            return math.log(ratio) / math.log(self.last / self.first)
        return (value - self.first) / (self.last - self.first)


@dataclass(frozen=True)
class Axes:
    """The axes of a plot on a sheet.

    Attributes:
        sheet: the sheet that the plot is drawn on.
        x_axis: the horizontal axis.
        y_axis: the vertical axis.
        left: the x-coordinate of the plot's left edge in px.
        top: the y-coordinate of the plot's top edge in px.
        width: the width of the plot in px.
        height: the height of the plot in px.
    """

    sheet: Sheet
    x_axis: AxisScale
    y_axis: AxisScale
    left: float
    top: float
    width: float
    height: float

    @property
    def right(self) -> float:
        """The x-coordinate, in px, of the plot's right edge."""
        return self.left + self.width

    @property
    def bottom(self) -> float:
        """The y-coordinate, in px, of the plot's bottom edge."""
        return self.top + self.height

    def x(self, value: float) -> float:
        """Returns the x-coordinate, in px, of a number on the horizontal axis."""
        return self.left + self.x_axis.fraction(value) * self.width

    def y(self, value: float) -> float:
        """Returns the y-coordinate, in px, of a number on the vertical axis."""
        return self.bottom - self.y_axis.fraction(value) * self.height

    def px_points(self, x: Numbers, y: Numbers) -> list[Point]:
        """Converts points from the units of the axes to px."""
        return [*zip(map(self.x, x), map(self.y, y), strict=True)]

    def draw_y_axis(self, title: str, unit: str) -> None:
        """Draws the ticks of the vertical axis, and writes the title and the unit above it."""
        sheet = self.sheet
        x = self.left
        y = self.top - 16
        sheet.text(x, y, title, bold=True)
        sheet.text(x - 6, y, unit, anchor="end", size=11)
        gridline_colour = sheet.colours.hatch
        for value in self.y_axis.ticks:
            y = self.y(value)
            sheet.path(f"M{x} {y}H{self.right}", stroke=gridline_colour, width=0.5)
            sheet.note(x - 10, y + 4, _tick_label(value), "end")

    def draw_x_axis(self, axis_title: str) -> None:
        """Draws the horizontal axis with as many numbers as fit, and writes its title below it."""
        sheet = self.sheet
        left = self.left
        y = self.bottom + 16
        sheet.line([(left, y - 16), (self.right, y - 16)])
        labels = [(self.x(value), _tick_label(value)) for value in self.x_axis.ticks]
        for x, label in drop_overlapping(labels):
            sheet.note(x, y, label, "middle")
        middle = left + self.width / 2
        sheet.text(middle, y + 15, axis_title, anchor="middle", size=11)

    def write_curve_names(self, curve_ends: Mapping[str, Point]) -> None:
        """Writes the names of curves beside their ends.

        They are moved so that they neither overlap nor go below the plot.

        Args:
            curve_ends: the end of each curve, in the units of the axes.
        """
        sheet = self.sheet
        colours = sheet.colours
        end_xs = [self.x(x) for x, _ in curve_ends.values()]
        last_x = max(end_xs, default=0.0)
        labels_by_column: dict[float, list[tuple[float, str]]] = defaultdict(list)
        for name, end in curve_ends.items():
            x = self.x(end[0])
            column_x = last_x if last_x - x < _SAME_COLUMN_DISTANCE else x
            labels_by_column[column_x].append((self.y(end[1]), name))
        for x, labels in labels_by_column.items():
            labels.sort()
            label_ys = [y for y, _ in labels]
            moved_ys = spread_labels(label_ys, self.bottom)
            for (y, name), moved_y in zip(labels, moved_ys, strict=True):
                sheet.line([(x + 7, y), (x + 18, moved_y)], colours.muted)
                sheet.text(x + 21, moved_y + 4, name, size=11, halo=colours.ground)


def ticks(minimum: float, maximum: float) -> Numbers:
    """Returns two or more evenly spaced round numbers.

    The first is at most `minimum`, and the last is at least `maximum`.
    """
    value_range = max(maximum - minimum, 1e-3)
    tick_step = next_round_number(value_range / 4)
    first = math.floor(minimum / tick_step)
    last = max(math.ceil(maximum / tick_step), first + 1)
    return [round(i * tick_step, 10) for i in range(first, last + 1)]


def log_ticks(minimum: float, maximum: float) -> Numbers:
    """Returns two or more round numbers, from at most `minimum` to at least `maximum`.

    In a wide range, all of them except the two ends are powers of ten, and none is so near an end
    that the two labels would touch.
    """
    first = bisect_right(ROUND_NUMBERS, minimum * (1 + 1e-9)) - 1
    last = max(bisect_left(ROUND_NUMBERS, maximum * (1 - 1e-9)), first + 1)
    if last - first < _MAX_TICKS:
        return ROUND_NUMBERS[first : last + 1]
    minimum = ROUND_NUMBERS[first]
    maximum = ROUND_NUMBERS[last]
    min_tick_ratio = (maximum / minimum) ** 0.07
    powers_of_ten = ROUND_NUMBERS[::3]
    inner_ticks = [
        power_of_ten
        for power_of_ten in powers_of_ten
        if minimum * min_tick_ratio < power_of_ten < maximum / min_tick_ratio
    ]
    return [minimum, *inner_ticks, maximum]


def doubling_ticks(sizes: Numbers) -> Numbers:
    """Returns 1, 2, 4, 8, … times the first size, up to the last size.

    If there are fewer than three such numbers, returns all sizes.
    """
    doubled_sizes = [sizes[0]]
    while 2 * doubled_sizes[-1] <= sizes[-1]:
        doubled_sizes.append(2 * doubled_sizes[-1])
    return doubled_sizes if len(doubled_sizes) > 2 else [*sizes]


def spread_labels(label_ys: Numbers, max_y: float) -> Numbers:
    """Returns the sorted y-coordinates of labels, in px.

    They are moved so that labels neither overlap nor go below `max_y`.
    """
    moved_ys = sorted(label_ys)
    for i in range(1, len(moved_ys)):
        min_y = moved_ys[i - 1] + _NAME_SPACING
        moved_ys[i] = max(moved_ys[i], min_y)
    for i in reversed(range(len(moved_ys))):
        moved_ys[i] = min(moved_ys[i], max_y)
        max_y = moved_ys[i] - _NAME_SPACING
    return moved_ys


def draw_marker(sheet: Sheet, point: Point, marker_path: str, fill: str, stroke: str) -> None:
    """Draws a marker. Its `marker_path` is an SVG path relative to the marked point."""
    x, y = point
    sheet.path(f"M{x} {y}{marker_path}", fill=fill, stroke=stroke)


def _tick_label(value: float) -> str:
    if abs(value) < 1e6:
        return f"{value:,g}"
    return short_count(round(value))


@dataclass(frozen=True)
class Curve:
    """A curve in a plot.

    Attributes:
        name: the name of the method, written at the end of the curve.
        method_index: the number of the method, which sets the colour and the marker.
        source_index: the number of the source of the measurements, which sets the dashes.
        x: the sizes, in ascending order.
        y: a number for each size.
        lower_quartiles: the first quartile at each size; may be empty.
        upper_quartiles: the third quartile at each size; may be empty.
        hollow: whether the markers are hollow, to distinguish two curves of the same method.
    """

    name: str
    method_index: int
    source_index: int
    x: Numbers
    y: Numbers
    lower_quartiles: Numbers = ()
    upper_quartiles: Numbers = ()
    hollow: bool = False

    @property
    def colour(self) -> str:
        """The colour of the line and the markers."""
        return METHOD_COLOURS[self.method_index % len(METHOD_COLOURS)]

    @property
    def marker_name(self) -> str:
        """The marker, one of `MARKER_NAMES`."""
        return MARKER_NAMES[self.method_index % len(MARKER_NAMES)]

    @property
    def dash(self) -> str:
        """The dashes of the line."""
        return DASHES[self.source_index % len(DASHES)]


@dataclass(frozen=True)
class Plot:
    """A plot of curves on the same axes.

    Attributes:
        title: the title above the plot.
        curves: the curves. Later curves are painted over earlier ones.
        guide_lines: thin lines to compare the curves with: the two ends of each line, by the name
            of the line.
        y: the unit of the numbers.
        is_log: whether both axes are logarithmic. In a `Sweep`, plots with the same unit and the
            same kind of axes have the same vertical axis.
        is_log_x: whether the horizontal axis is logarithmic even if `is_log` is False.
        padding: the number on the horizontal axis from which the plot is hatched, as padding.
    """

    title: str
    curves: Sequence[Curve]
    guide_lines: Mapping[str, tuple[Point, Point]] = field(default_factory=dict)
    y: str = "ms"
    is_log: bool = False
    is_log_x: bool = False
    padding: float = math.inf

    @property
    def x_axis(self) -> AxisScale:
        """The horizontal axis, which covers the sizes of all curves."""
        sizes = sorted({*chain(*(curve.x for curve in self.curves))})
        if (self.is_log or self.is_log_x) and len(sizes) > 1:
            return AxisScale(doubling_ticks(sizes), sizes[0], sizes[-1], is_log=True)
        last_size = max([1.0, *sizes])
        tick_values = [value for value in ticks(0.0, last_size) if value <= last_size]
        return AxisScale(tick_values, 0.0, last_size)

    @property
    def curve_ends(self) -> dict[str, Point]:
        """The place of each name, at the end of the farthest-reaching line with that name."""
        curve_ends = {name: line[1] for name, line in self.guide_lines.items()}
        for curve in self.curves:
            end = (curve.x[-1], curve.y[-1])
            if end[0] >= curve_ends.get(curve.name, end)[0]:
                curve_ends[curve.name] = end
        curve_ends.pop("", None)
        return curve_ends

    @property
    def y_values(self) -> Numbers:
        """All numbers that the vertical axis has to cover."""
        y_values = [y for _, y in chain(*self.guide_lines.values())]
        for curve in self.curves:
            for values in (curve.lower_quartiles, curve.y, curve.upper_quartiles):
                y_values += values
        return y_values

    def draw(self, axes: Axes, x_title: str) -> None:
        """Draws the plot on axes, with a title below the horizontal axis."""
        sheet = axes.sheet
        x = axes.x(self.padding)
        if x < axes.right:
            sheet.box(x, axes.top, axes.right - x, axes.height, HATCHED, stroke="")
        axes.draw_y_axis(self.title, self.y)
        axes.draw_x_axis(x_title)
        for line in self.guide_lines.values():
            points = axes.px_points(*zip(*line, strict=True))
            sheet.line(points, sheet.colours.muted)
        for curve in self.curves:
            self._draw_curve(axes, curve)
        axes.write_curve_names(self.curve_ends)

    def _draw_curve(self, axes: Axes, curve: Curve) -> None:
        """Draws a curve with its quartiles and its markers."""
        sheet = axes.sheet
        line = sheet.colours.line
        points = axes.px_points(curve.x, curve.y)
        sheet.start_layer()
        for (x, _), lower_quartile, upper_quartile in zip(
            points, curve.lower_quartiles, curve.upper_quartiles, strict=False
        ):
            whisker_bottom = axes.y(lower_quartile)
            whisker_top = axes.y(upper_quartile)
            sheet.path(f"M{x} {whisker_bottom}V{whisker_top}", stroke=line)
            for end in (whisker_bottom, whisker_top):
                sheet.path(f"M{x - 4} {end}h8", stroke=line)
        sheet.line(points, curve.colour, width=2.6, dash=curve.dash, outlined=True)
        fill = sheet.colours.ground if curve.hollow else curve.colour
        # On a logarithmic axis, markers at all sizes might cover each other.
        sizes_with_markers = {*axes.x_axis.ticks, curve.x[-1]}
        for point, size in zip(points, curve.x, strict=True):
            if size in sizes_with_markers or not axes.x_axis.is_log:
                draw_marker(sheet, point, MARKER_PATHS[curve.marker_name], fill, line)


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
        plot_height: the height of a plot in px.
    """

    title: str
    rows: Sequence[Sequence[Plot]]
    sources: Sequence[str]
    notes: Sequence[str]
    text: str
    x: str = "time steps"
    plot_height: float = _PLOT_HEIGHT

    def to_text(self) -> str:
        """Returns the content of the plots in words."""
        return self.text

    @property
    def plots(self) -> list[Plot]:
        """All plots, row by row."""
        return [*chain(*self.rows)]

    @property
    def n_columns(self) -> int:
        """The number of plots in the longest row."""
        return max(map(len, self.rows), default=1)

    def y_axis(self, plot: Plot) -> AxisScale:
        """Returns the vertical axis of a `Plot`."""
        y_values: list[float] = []
        for other in self.plots:
            if (other.y, other.is_log) == (plot.y, plot.is_log):
                y_values += other.y_values
        if plot.is_log:
            positive_values = [value for value in y_values if value > 0] or [1.0, 10.0]
            tick_values = log_ticks(min(positive_values), max(positive_values))
        else:
            tick_values = ticks(min([0.0, *y_values]), max(y_values, default=1.0))
        return AxisScale(tick_values, tick_values[0], tick_values[-1], plot.is_log)

    def sheet(self, theme: str) -> Sheet:
        """Draws the plots, with a legend of the dashes and the notes below them."""
        sheet = Sheet(theme, self.text)
        y = sheet.title(self.title) - 2
        plot_pitch = WIDTH / self.n_columns
        max_name_width = max_text_width(chain(*(plot.curve_ends for plot in self.plots)), 11)
        plot_width = plot_pitch - _LEFT_MARGIN - max(max_name_width + 30, _RIGHT_MARGIN)
        for row in self.rows:
            for i, plot in enumerate(row):
                left = i * plot_pitch + _LEFT_MARGIN
                y_axis = self.y_axis(plot)
                axes = Axes(
                    sheet, plot.x_axis, y_axis, left, y + _TOP_MARGIN, plot_width, self.plot_height
                )
                plot.draw(axes, self.x)
            y += _TOP_MARGIN + self.plot_height + _BOTTOM_MARGIN
        for source, dash in zip(self.sources, cycle(DASHES), strict=False):
            sheet.path(f"M4 {y + 8}h34", stroke=sheet.colours.text, width=2.5, dash=dash)
            y = sheet.paragraph(y + 1, [source], 44, text_colour="") + 1
        y = sheet.paragraph(y + 1, self.notes)
        sheet.set_size(max(WIDTH, sheet.width), y + 8)
        return sheet

    def chart(self) -> Chart:
        """Returns logarithmic plots with one unit as a plotly chart."""
        from packviz.draw.figures import plotly_chart  # noqa: PLC0415

        return plotly_chart(self)
