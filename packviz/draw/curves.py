"""Draws curves of measurements against a size, and of hidden states over time.

The colour, the marker and the name at the end of a curve show its method. The dashes show the
source of its numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from packviz.core.layout import sequence_name
from packviz.draw import palette, text
from packviz.draw.grid import roomy
from packviz.draw.drawing import Drawing
from packviz.draw.sheet import HATCHED, Point, Sheet, n, width_of
from packviz.draw.text import FEW, difference, table

if TYPE_CHECKING:
    from packviz.draw.figures import Chart

COLOURS = (*palette.METHODS.values(), palette.REAL)
"""The colours of the methods, in order, and a last one for curves without a method. Further curves repeat them."""

DASHES = ("", "8 4", "2 3", "9 3 2 3")
"""The dash patterns for the sources of the measurements, in order."""

_MARKERS = (
    "m-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",  # circle
    "m-4-4h8v8h-8z",  # square
    "m0-5.5l5.5 5.5l-5.5 5.5l-5.5-5.5z",  # diamond
    "m0-5l5 9h-10z",  # triangle up
    "m0 5l5-9h-10z",  # triangle down
    "m-1.5-5h3v3.5h3.5v3h-3.5v3.5h-3v-3.5h-3.5v-3h3.5z",  # cross
    "m0-5.5l1.5 4h4l-3.2 2.5l1.2 4l-3.5-2.4l-3.5 2.4l1.2-4l-3.2-2.5h4z",  # star
)


_DOT = "m-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0z"

_BESIDE = 20.0  # px: if curves end this close to each other, their names are written in one column
_LINE = 12.0  # px: from one name to the next
_MOST_TICKS = 8  # on a logarithmic axis
_LEFT, _RIGHT, _TOP, _BELOW = 70.0, 92.0, 40.0, 36.0  # px: the room around a plot
_WIDE, _TALL = 300.0, 170.0  # px: the size of a plot

MOST = len(palette.SEQUENCES)
"""The largest number of sequences that a `Trajectory` draws: one for each colour."""

READ = "h_n off by"
"""The heading of the numbers to the right of a `Trajectory`."""

# px: the space to the left and to the right of the strips, the height of a strip, the gap, the
# width of the picture
_MARGIN, _BEHIND, _STRIP, _APART, _WIDTH = 84.0, 110.0, 46.0, 12.0, 900.0


@dataclass(frozen=True)
class _Axes:
    """The axes of a plot on a sheet.

    Attributes:
        sheet: the sheet that the plot is drawn on.
        left: the x-coordinate of the plot's left edge in px.
        top: the y-coordinate of the plot's top edge in px.
        wide: the width of the plot in px.
        tall: the height of the plot in px.
        heights: the numbers at the ticks of the vertical axis, in ascending order.
        across: a function that returns the place of a number on the horizontal axis, as a share of
            the width.
        log: whether the vertical axis is logarithmic.
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
        """The x-coordinate, in px, of the plot's right edge."""
        return self.left + self.wide

    @property
    def foot(self) -> float:
        """The y-coordinate, in px, of the plot's bottom edge."""
        return self.top + self.tall

    def x(self, value: float) -> float:
        """Returns the x-coordinate, in px, of a number on the horizontal axis."""
        return self.left + self.across(value) * self.wide

    def y(self, value: float) -> float:
        """Returns the y-coordinate, in px, of a number on the vertical axis.

        On a logarithmic axis, a number below the lowest tick is drawn at that tick.
        """
        scale, low, high = math.log if self.log else float, self.heights[0], self.heights[-1]
        value = max(value, low) if self.log else value
        return self.top + (scale(high) - scale(value)) / (scale(high) - scale(low)) * self.tall

    def point(self, x: float, y: float) -> Point:
        """Converts a point from the units of the axes to px."""
        return self.x(x), self.y(y)

    def rows(self, title: str, unit: str) -> None:
        """Draws a line and a number at each tick of the vertical axis. Writes the title and the unit above the plot."""
        sheet = self.sheet
        sheet.text(self.left, self.top - 16, title, bold=True)
        sheet.text(self.left - 6, self.top - 16, unit, anchor="end", size=11)
        for value in self.heights:
            y = self.y(value)
            sheet.line([(self.left, y), (self.right, y)], sheet.colours.hatch, width=0.5)
            sheet.text(
                self.left - 10,
                y + 4,
                _number(value),
                anchor="end",
                size=11,
                ink=sheet.colours.muted,
            )

    def columns(self, values: Iterable[float], name: str = "", before: str = "") -> None:
        """Draws the horizontal axis with as many numbers as fit.

        Args:
            values: the numbers at the ticks, in ascending order.
            name: the title of the axis, written below the numbers.
            before: a short title, written to the left of the numbers.
        """
        sheet, y = self.sheet, self.foot + 16
        sheet.line([(self.left, self.foot), (self.right, self.foot)])
        for x, label in roomy([(self.x(value), _number(value)) for value in values]):
            sheet.text(x, y, label, anchor="middle", size=11, ink=sheet.colours.muted)
        sheet.text(self.left + self.wide / 2, y + 15, name, anchor="middle", size=11)
        sheet.text(self.left - 6, y, before, anchor="end", size=11)

    def names(self, ends: Iterable[tuple[Point, str]], lowest: float) -> None:
        """Writes the names of curves beside their ends, moved so that they neither overlap nor go below `lowest`."""
        sheet, ends = self.sheet, list(ends)
        last = max((x for (x, _), _ in ends), default=0.0)
        ends = [((last if last - x < _BESIDE else x, y), name) for (x, y), name in ends]
        for right in sorted({x for (x, _), _ in ends}):
            here = sorted((y, name) for (x, y), name in ends if x == right)
            for beside, (y, name) in zip(
                spread_labels([y for y, _ in here], lowest), here, strict=True
            ):
                sheet.line([(right + 7, y), (right + 18, beside)], sheet.colours.muted)
                sheet.text(right + 21, beside + 4, name, size=11, halo=sheet.colours.ground)


def ticks(low: float, high: float) -> list[float]:
    """Returns two or more evenly spaced round numbers, from at most `low` to at least `high`."""
    span = max(high - low, 1e-3)
    power = 10 ** math.floor(math.log10(span / 3))
    step = next(s * power for s in (1, 2, 5, 10) if s * power >= span / 4)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [round(i * step, 10) + 0.0 for i in range(first, max(last, first + 1) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Returns two or more round numbers (1, 2 or 5 times a power of ten), from at most `low` to at
    least `high`.

    In a wide range, all of them except the two ends are powers of ten, and none is so near an end
    that the two labels would touch.
    """
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    steps = [float(f"{digit}e{power}") for power in powers for digit in (1, 2, 5)]
    first = max(i for i, step in enumerate(steps) if step <= low * (1 + 1e-9))
    last = min(i for i, step in enumerate(steps) if step >= high * (1 - 1e-9))
    found = steps[first : max(last, first + 1) + 1]
    if len(found) <= _MOST_TICKS:
        return found
    (low, *inner, high), room = found, (found[-1] / found[0]) ** 0.07
    return [
        low,
        *(
            step
            for step in inner
            if f"{step:e}"[:8] == "1.000000" and low * room < step < high / room
        ),
        high,
    ]


def spread_labels(heights: Sequence[float], lowest: float) -> list[float]:
    """Returns the sorted y-coordinates of labels, in px, moved so that labels neither overlap nor go below `lowest`."""
    placed = sorted(heights)
    for i in range(1, len(placed)):
        placed[i] = max(placed[i], placed[i - 1] + _LINE)
    for i in reversed(range(len(placed))):
        placed[i] = min(placed[i], lowest)
        lowest = placed[i] - _LINE
    return placed


def mark(sheet: Sheet, at: Point, shape: str, fill: str, stroke: str = "") -> None:
    """Draws a marker. Its `shape` is an SVG path relative to the marked point."""
    sheet.path(f"M{n(at[0])} {n(at[1])}{shape}", fill=fill, stroke=stroke)


def line_key(
    sheet: Sheet,
    x: float,
    y: float,
    name: str,
    stroke: str = "",
    *,
    width: float = 2.5,
    dash: str = "",
    size: int = 12,
) -> float:
    """Draws an entry of a key: a line, followed by its name on the baseline `y`.

    Returns the x-coordinate after the entry.
    """
    sheet.line([(x, y - 4), (x + 34, y - 4)], stroke, width=width, dash=dash)
    sheet.text(x + 40, y, name, size=size)
    return x + 60 + width_of(name, size)


def _number(value: float) -> str:
    return f"{value:,g}" if abs(value) < 1e6 else text.short(round(value))


def doublings(sizes: Sequence[float]) -> list[float]:
    """Returns 1, 2, 4, 8, … times the first size, up to the last size.

    If there are fewer than three such numbers, returns all sizes.
    """
    found = [sizes[0] * 2**k for k in range(int(math.log2(sizes[-1] / sizes[0]) + 1e-9) + 1)]
    return found if len(found) > 2 else [*sizes]


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
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    hollow: bool = False


@dataclass(frozen=True)
class Plot:
    """A plot of curves on the same axes.

    Attributes:
        title: the title above the plot.
        curves: the curves. Later curves are painted over earlier ones.
        planned: the sizes to mark on the horizontal axis, usually those that have been or will be
            measured.
        guides: thin lines to compare the curves with: the two ends of each line, by the name of the
            line.
        y: the unit of the numbers.
        log: whether both axes are logarithmic. In a `Sweep`, logarithmic plots with the same unit
            have the same vertical axis.
        log_x: whether the horizontal axis is logarithmic even if `log` is False.
    """

    title: str
    curves: Sequence[Curve]
    planned: Sequence[float] = ()
    guides: Mapping[str, tuple[Point, Point]] = field(default_factory=dict)
    y: str = "ms"
    log: bool = False
    log_x: bool = False

    @property
    def sizes(self) -> list[float]:
        """The sizes that have been measured or are planned, in ascending order."""
        return sorted({*self.planned, *(x for curve in self.curves for x in curve.x)})

    def spread(self) -> list[float]:
        """Returns all numbers that the vertical axis has to cover."""
        drawn = [
            value
            for curve in self.curves
            for some in (curve.low, curve.y, curve.high)
            for value in some
        ]
        return drawn + [y for ends in self.guides.values() for _, y in ends]


@dataclass(frozen=True, repr=False)
class Sweep(Drawing):
    """Plots arranged in rows.

    Attributes:
        title: the title above the plots, which states the finding.
        rows: the plots in each row.
        sources: the meaning of each dash pattern; may be empty.
        notes: lines of text below the plots.
        text: the text twin, which has the same content as the plots.
        x: the title of the horizontal axes.
        wide: the width of a plot in px, if each row has only one plot.
    """

    title: str
    rows: Sequence[Sequence[Plot]]
    sources: Sequence[str]
    notes: Sequence[str]
    text: str
    x: str = "time steps"
    wide: float = 620.0

    def to_text(self) -> str:
        """Returns the text twin."""
        return self.text

    def sheet(self, theme: str) -> Sheet:
        """Draws the plots, with a key to the dashes and the notes below them."""
        sheet = Sheet(theme, self.title)
        sheet.title(self.title)
        columns, y = max(map(len, self.rows), default=1), 22.0
        wide = _WIDE if columns > 1 else self.wide
        each, plots = _LEFT + wide + _RIGHT, [plot for row in self.rows for plot in row]
        names = [
            name
            for plot in plots
            for name in (*plot.guides, *(curve.name for curve in plot.curves))
        ]
        wide = min(
            wide, wide + _RIGHT - max((width_of(name, 11) + 26 for name in names), default=0.0)
        )
        for row, heights_in_row in zip(self.rows, heights_of(self.rows), strict=True):
            for i, (plot, heights) in enumerate(zip(row, heights_in_row, strict=True)):
                self._plot(sheet, plot, heights, (i * each + _LEFT, y + _TOP, wide))
            y += _TOP + _TALL + _BELOW
        for i, source in enumerate(self.sources):
            line_key(
                sheet, 4, y + 12, source, sheet.colours.text, dash=DASHES[i % len(DASHES)], size=11
            )
            y += 18
        y = sheet.paragraph(4, y + 1, self.notes, size=11, ink=sheet.colours.muted)
        sheet.size(max(columns * each, sheet.width), y + 8)
        return sheet

    def chart(self) -> Chart | Sweep:
        """Returns the plots as an interactive plotly chart, or the sweep itself if it has no plots."""
        from packviz.draw.figures import times_by_size

        return times_by_size(self) if any(self.rows) else self

    def _plot(
        self, sheet: Sheet, plot: Plot, heights: Sequence[float], place: tuple[float, float, float]
    ) -> None:
        (left, top, wide), sizes = place, plot.sizes
        if (plot.log or plot.log_x) and len(sizes) > 1:
            first, whole = sizes[0], math.log(sizes[-1] / sizes[0])
            axes = _Axes(
                sheet,
                left,
                top,
                wide,
                _TALL,
                heights,
                lambda x: math.log(x / first) / whole,
                plot.log,
            )
            columns = doublings(sizes)
        else:
            right = max([1.0, *sizes])
            axes = _Axes(sheet, left, top, wide, _TALL, heights, lambda x: x / right, plot.log)
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
            end = _curve(
                axes, curve, {*columns, curve.x[-1]} if plot.log or plot.log_x else curve.x
            )
            if (
                end[0] >= ends.get(curve.name, end)[0]
            ):  # each name is written once, at the end of its last curve
                ends[curve.name] = end
        axes.names([(end, name) for name, end in ends.items() if name], axes.foot)


def _curve(axes: _Axes, curve: Curve, marked: Collection[float]) -> Point:
    """Draws a curve with its quartiles, and with markers at the sizes in `marked`. Returns the curve's last point."""
    sheet, points = axes.sheet, [axes.point(*point) for point in zip(curve.x, curve.y, strict=True)]
    fill, dash = COLOURS[curve.method % len(COLOURS)], DASHES[curve.source % len(DASHES)]
    sheet.layer()
    whiskers = ""
    for (x, _), low, high in zip(points, curve.low, curve.high, strict=False):
        ends = n(axes.y(low)), n(axes.y(high))
        whiskers += f"M{n(x)} {ends[0]}V{ends[1]}" + "".join(f"M{n(x - 4)} {end}h8" for end in ends)
    sheet.path(whiskers, stroke=sheet.colours.line)
    sheet.line(points, fill, width=2.6, dash=dash, outlined=True)
    for point, size in zip(points, curve.x, strict=True):
        if size in marked:
            shape = _MARKERS[curve.method % len(_MARKERS)]
            mark(
                sheet,
                point,
                shape,
                sheet.colours.ground if curve.hollow else fill,
                sheet.colours.line,
            )
    return points[-1]


def heights_of(rows: Sequence[Sequence[Plot]]) -> list[list[Sequence[float]]]:
    """Returns the ticks of each vertical axis. Logarithmic plots with the same unit have the same ticks."""
    values: dict[str, list[float]] = {}
    for plot in (plot for row in rows for plot in row if plot.log):
        values.setdefault(plot.y, []).extend(value for value in plot.spread() if value > 0)
    shared = {
        unit: log_ticks(min(some), max(some)) if some else [1.0, 10.0]
        for unit, some in values.items()
    }

    def own(plot: Plot) -> Sequence[float]:
        return ticks(0.0, max(plot.spread(), default=0.0)) if plot.curves else ()

    return [[shared[plot.y] if plot.log else own(plot) for plot in row] for row in rows]


@dataclass(frozen=True, repr=False, eq=False)
class Trajectory(Drawing):
    """The hidden state over time, drawn in a separate strip for each sequence.

    Attributes:
        title: the title, which states the finding.
        what: a description of the numbers that are drawn.
        lengths: `(B,)` the lengths of the sequences.
        padded: `(B, T)` the numbers from the padded run.
        packed: `(B, T)` the numbers from the packed run. In the padding, each sequence's last
            number is repeated. NaN stands for a missing number.
        off: `(B,)` the distances between the final states of the padded and the packed run; may
            contain NaN.
        reverse: whether the RNN runs from the last step to the first, so that its final state is
            read at step 0.
        distances: whether `padded` contains distances from the packed run, in which case `packed`
            is 0 everywhere.
    """

    title: str
    what: str
    lengths: npt.NDArray[np.int64]
    padded: npt.NDArray[np.float64]
    packed: npt.NDArray[np.float64]
    off: npt.NDArray[np.float64]
    reverse: bool = False
    distances: bool = True

    def to_text(self) -> str:
        """Returns the numbers with two significant digits.

        For a large batch, returns only the distances between the final states of the two runs.
        """
        lines, (sequences, steps) = [self.title, self.what], self.padded.shape
        if max(sequences, steps) > FEW:
            states = (
                f" {sequence_name(b)}: {READ} {difference(off)}" for b, off in enumerate(self.off)
            )
            return "\n".join([*lines, *states])
        rows = [["", "", *(f"t={t}" for t in range(steps)), f"  {READ}"]]
        for b, length in enumerate(self.lengths):
            for run, values in [("padded", self.padded[b]), ("packed", self.packed[b])][
                : 1 if self.distances else 2
            ]:
                numbers = [
                    difference(v) if run == "padded" or not math.isnan(v) else "–" for v in values
                ]
                cells = [f"[{cell}]" if t >= length else cell for t, cell in enumerate(numbers)]
                rows.append(
                    [
                        sequence_name(b),
                        run,
                        *cells,
                        difference(self.off[b]) if run == "padded" else "",
                    ]
                )
        return "\n".join([*lines, *table(rows, " >2  <6   >9>9"), "[ ]: padding"])

    def sheet(self, theme: str) -> Sheet:
        """Draws the numbers as lines, with padding hatched and a dot at the step where the final state is read."""
        sheet, (sequences, steps) = Sheet(theme, self.to_text()), self.padded.shape
        sheet.title(self.title)
        direction = (
            "← from the last step to the first"
            if self.reverse
            else "from the first step to the last →"
        )
        sheet.text(4, 34, f"{self.what}; {direction}", size=11, ink=sheet.colours.muted)
        drawn = np.concatenate([self.padded[:MOST], self.packed[:MOST]])
        finite = drawn[np.isfinite(drawn)].tolist() or [0.0]
        low = 0.0 if self.distances else min(finite)
        heights = ticks(low, max(finite) if max(finite) > low else low + 1)
        wide, top = _WIDTH - _MARGIN - _BEHIND, 62.0
        sheet.text(_MARGIN + wide + 16, top - 8, f"● {READ}", size=11, ink=sheet.colours.muted)
        for b in range(min(sequences, MOST)):
            axes = _Axes(sheet, _MARGIN, top, wide, _STRIP, heights, lambda t: (t + 0.5) / steps)
            self._strip(axes, b)
            top += _STRIP + _APART
        axes.columns(range(0, steps, max(1, math.ceil(30 * steps / wide))), before="t =")
        foot = axes.foot + 42
        if not self.distances:
            x = line_key(sheet, 4, foot, "padded", width=4)
            dotted = "" if self.reverse else ", dotted: frozen after its end"
            line_key(sheet, x, foot, f"packed{dotted}", width=1.6)
            foot += 18
        if sequences > MOST:
            sheet.text(
                4, foot, f"The first {MOST} sequences are drawn.", size=11, ink=sheet.colours.muted
            )
            foot += 18
        sheet.size(_WIDTH, foot - 8)
        return sheet

    def _strip(self, axes: _Axes, b: int) -> None:
        """Draws the strip of one sequence."""
        sheet, length, steps, colours = (
            axes.sheet,
            int(self.lengths[b]),
            self.padded.shape[1],
            axes.sheet.colours,
        )
        border, middle, read = (
            axes.left + axes.wide * length / steps,
            axes.top + axes.tall / 2 + 4,
            -1 + self.reverse,
        )
        sheet.layer()
        sheet.box(axes.left, axes.top, border - axes.left, axes.tall, colours.ground)
        if length < steps:
            sheet.box(border, axes.top, axes.right - border, axes.tall, HATCHED)
        sheet.text(6, middle, sequence_name(b), bold=True)
        for value, shift in ((axes.heights[0], 4), (axes.heights[-1], 8)):
            sheet.text(
                axes.left - 6,
                axes.y(value) + shift,
                f"{value:g}",
                anchor="end",
                size=11,
                ink=colours.muted,
            )
        # Heights are whole pixels, so that rounding in the RNN, which differs between processors,
        # does not show.
        points, thin = (
            [
                (axes.x(t), round(axes.y(v)) if math.isfinite(v) else math.nan)
                for t, v in enumerate(run[b].tolist())
            ]
            for run in (self.padded, self.packed)
        )
        sheet.layer()
        sheet.line(points, palette.sequence_colour(b), width=3.4, outlined=True)
        if not self.distances:
            sheet.line(thin[:length], colours.text, width=1.6)
            sheet.line(thin[length - 1 :], colours.text, width=1.6, dash="2 3")
        sheet.layer()
        if math.isfinite(points[read][1]):
            mark(sheet, points[read], _DOT, palette.sequence_colour(b), colours.text)
        lost = np.flatnonzero(~np.isfinite(self.padded[b]))
        if lost.size:
            anchor, at = ("end", lost[-1]) if self.reverse else ("", lost[0])
            place = axes.x(at), axes.top + 16
            sheet.text(
                *place, "✗ NaN", anchor=anchor, bold=True, ink=colours.wrong, halo=colours.padding
            )
        off, ink = (
            ("=", colours.muted) if self.off[b] == 0 else (difference(self.off[b]), colours.wrong)
        )
        sheet.text(axes.right + 16, middle, off, bold=self.off[b] != 0, ink=ink)
