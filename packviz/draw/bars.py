"""Draws bar charts.

Solid bars show what is needed or measured, and hatched bars show waste that packing avoids.

A chart is cheap to redraw when a slider moves, because bars of the same style share one SVG path.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np

from packviz.core.layout import IntArray
from packviz.draw.drawing import Drawing
from packviz.draw.grid import nice
from packviz.draw.palette import REAL
from packviz.draw.sheet import HATCHED, WIDTH, Sheet, widest, width_of
from packviz.draw.text import percent, short

Key = Sequence[tuple[str, str]]
"""The fills to explain above the bars, each with its meaning, as `(fill, words)`."""

Words = tuple[str, str, str]
"""What solid bars mean, what hatched bars mean, and a word for the hatched share."""

SOLID = REAL
FLOPS = ("computed if packed", "only if padded", "saved")
"""The meanings of bars that show FLOPs."""

_GROUP = 26.0  # px: the height of a group's name
_ROW = 28.0  # px: from one bar to the next
_AXIS = 110.0  # px: the space for the axis, to the left of vertical bars
_TALL = 120.0  # px: the height of the highest vertical bar
_FEW = 24  # if there are more time steps than this, adjacent equal bars are drawn as one
_THIN = 4.0  # px
_LEAST = 120.0  # px: the longest bar is at least this long


@dataclass(frozen=True)
class BarChart(Drawing):
    """A bar chart with its content in words.

    Attributes:
        words: the content of the chart in words.
        draw: a function that draws the bars in a given theme.
    """

    words: str
    draw: Callable[[str], Sheet]

    def to_text(self) -> str:
        """Returns the content of the chart in words."""
        return self.words

    def sheet(self, theme: str) -> Sheet:
        """Draws the bars."""
        sheet = self.draw(theme)
        sheet.description = self.words
        return sheet


@dataclass(frozen=True)
class Bar:
    """A horizontal bar, which may have several parts.

    Attributes:
        parts: the `(length, fill)` of each part, from left to right. A part is left blank if its
            fill is empty.
        label: the text after the end of the bar; may be empty.
        whisker: the two ends of the whisker, such as the quartiles of a measured time; `None` for
            no whisker.
    """

    parts: Sequence[tuple[float, str]]
    label: str
    whisker: tuple[float, float] | None = None

    @property
    def end(self) -> float:
        """The greatest length that the bar or its whisker reaches."""
        length = sum(length for length, _ in self.parts)
        return max(length, *(self.whisker or (0,)))


def rows(
    title: str,
    groups: Mapping[str, Mapping[str, Bar]],
    theme: str,
    *,
    key: Key = (),
    line: float | None = None,
    notes: Sequence[str] = (),
) -> Sheet:
    """Draws groups of horizontal bars. Each bar has its name on the left and its label at its end.

    Args:
        title: the title above the bars, which states the finding.
        groups: the groups, by name. Each group maps the names of bars to the bars. A group's name
            may be empty.
        theme: the name of the theme, one of the keys in `palette.THEMES`.
        key: the fills to explain above the bars.
        line: the length at which to draw a vertical line across all bars, such as 1 for ratios;
            `None` for no line.
        notes: lines of text below the bars.
    """
    sheet, top = _titled(title, theme, key)
    over = Sheet(theme)  # painted over the bars and the line
    ground = sheet.colours.ground
    ink = sheet.colours.text
    bars = [bar for group in groups.values() for bar in group.values()]
    left = 24 + widest(chain(*groups.values()))
    labels = widest(bar.label for bar in bars)
    longest = max((bar.end for bar in bars), default=0.0) or 1.0
    scale = max(WIDTH - left - 40 - labels, _LEAST) / longest
    crossing = math.nan if line is None else left + line * scale
    y = top
    for name, group in groups.items():
        over.text(4, y + 17, name, bold=True, halo=ground)
        y += _GROUP if name else 0
        for bar_name, bar in group.items():
            sheet.text(left - 8, y + 14, bar_name, anchor="end")
            x = left
            for length, fill in bar.parts:
                if fill:
                    sheet.box(x, y, length * scale, 20, fill)
                x += length * scale
            if bar.whisker:
                low, high = (left + end * scale for end in bar.whisker)
                whisker = f"M{low} {y + 5}v10m0-5H{high}m0-5v10"
                over.path(whisker, stroke=ground, width=4)  # visible on any fill
                over.path(whisker, stroke=ink, width=1.5)
            x = left + bar.end * scale + 10
            if x - 8 < crossing < x + width_of(bar.label):
                x = crossing + 8
            over.text(x, y + 14, bar.label, halo=ground)
            y += _ROW
    sheet.layer()
    if line is not None:
        accent = sheet.colours.accent
        sheet.line([(crossing, top - 6), (crossing, y)], accent, dash="4 3")
    sheet.place(over, 0, 0)
    foot = sheet.paragraph(y + 4, notes)
    sheet.size(max(WIDTH, sheet.width), foot)
    return sheet


def totals(
    title: str,
    bars: Mapping[str, tuple[int, int]],
    theme: str,
    words: Words = FLOPS,
    rest: str = HATCHED,
) -> Sheet:
    """Draws a horizontal bar for each pair of counts.

    The first count is the solid part, and the second is the rest.

    Args:
        title: the title above the bars, which states the finding.
        bars: for each name, the packed count and the count that packing saves. The two counts add
            up to the padded one.
        theme: the name of the theme, one of the keys in `palette.THEMES`.
        words: the meanings of the bars.
        rest: the fill of the second counts. Waiting is not hatched, because it is not work.
    """
    group = {}
    for name, (packed, saved) in bars.items():
        padded = packed + saved
        counts = f"{short(packed)} of {short(padded)}"
        share = percent(saved, padded)
        label = f"{counts}: {share} {words[2]}"
        parts = [(packed, SOLID), (saved, rest)]
        group[name] = Bar(parts, label)
    key = [(SOLID, words[0]), (rest, words[1])]
    return rows(title, {"": group}, theme, key=key)


def steps(
    title: str,
    packed: IntArray,
    padded: IntArray,
    theme: str,
    words: Words = FLOPS,
    axis: str = "t =",
    names: Sequence[str] = (),
) -> Sheet:
    """Draws a vertical bar for each time step.

    A bar is solid up to the packed count, and hatched from there to the padded count.

    Args:
        title: the title above the bars, which states the finding.
        packed: `(T,)` the packed count at each time step.
        padded: `(T,)` the padded count at each time step, which is never less than the packed
            count.
        theme: the name of the theme, one of the keys in `palette.THEMES`.
        words: the meanings of the bars.
        axis: the title of the axis, written before the names of the bars.
        names: the names of the bars. By default, the bars are numbered from 0.
    """
    key = [(SOLID, words[0])]
    if words[1]:
        key.append((HATCHED, words[1]))
    sheet, y = _titled(title, theme, key)
    count = len(packed)
    most = int(max(padded))
    wide = (WIDTH - 130) / count
    scale = _TALL / max(most, 1)
    foot = y + 2 + _TALL
    edges: Sequence[int] = range(count + 1)
    gap = min(3.0, wide * 0.15)
    if count > _FEW:
        changes = np.abs(np.diff(packed)) + np.abs(np.diff(padded))
        edges = [0, *np.flatnonzero(changes) + 1, count]
        gap = 0.0
    for start, end in pairwise(edges):
        x = _AXIS + start * wide + gap / 2
        width = (end - start) * wide - gap
        # The outline of a thin bar would hide its colour.
        stroke = None if width + gap >= _THIN else ""
        low = packed[start] * scale
        high = padded[start] * scale
        if low:
            sheet.box(x, foot - low, width, low, SOLID, stroke=stroke)
        if high > low:
            sheet.box(x, foot - high, width, high - low, HATCHED, stroke=stroke)
    sheet.line([(_AXIS, foot), (WIDTH - 20, foot)])
    top = foot - most * scale
    sheet.note(_AXIS - 8, top + 4, short(most), "end")
    sheet.note(_AXIS - 8, foot + 4, "0", "end")
    sheet.note(_AXIS - 8, foot + 18, axis, "end")
    names = names or [str(t) for t in range(count)]
    space = 8 + 8 * len(names[-1])
    for t in range(0, count, nice(space / wide)):
        middle = _AXIS + (t + 0.5) * wide
        sheet.note(middle, foot + 18, names[t], "middle")
    sheet.size(WIDTH, foot + 28)
    return sheet


def _titled(title: str, theme: str, key: Key) -> tuple[Sheet, float]:
    """Returns a sheet with a title and, below it, a key, and the y-coordinate below both."""
    sheet = Sheet(theme, title)
    y = sheet.title(title) + 8
    if key:
        sheet.key(y - 6, key)
        y += 20
    return sheet, y
