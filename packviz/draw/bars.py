"""Draws bar charts. Solid bars show what is needed or measured, and hatched bars show waste that
packing avoids.

A chart is cheap to redraw when a slider moves, because bars of the same style share one SVG path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from packviz.core.layout import IntArray
from packviz.draw import palette, text
from packviz.draw.grid import nice
from packviz.draw.drawing import Drawing
from packviz.draw.sheet import HATCHED, Sheet, width_of
from packviz.draw.sheet import n as px

SOLID = palette.REAL
FLOPS = ("computed if packed", "only if padded", "saved")
"""The meanings of solid and hatched bars, and a word for the hatched share."""

_WIDTH = 860.0
_AXIS = 110.0  # px: the space for the axis, to the left of the bars
_TALL = 120.0
_FEW = 24  # if there are more time steps than this, adjacent equal bars are drawn as one
_THIN = 4.0  # px


@dataclass(frozen=True, repr=False)
class BarChart(Drawing):
    """A bar chart and its text twin.

    Attributes:
        words: the text twin, which has the same content as the chart.
        draw: a function that draws the bars in a given theme.
    """

    words: str
    draw: Callable[[str], Sheet]

    def to_text(self) -> str:
        """Returns the text twin."""
        return self.words

    def sheet(self, theme: str) -> Sheet:
        """Draws the bars."""
        return self.draw(theme)


@dataclass(frozen=True)
class Bar:
    """A horizontal bar, which may have several parts.

    Attributes:
        parts: the `(length, fill)` of each part, from left to right. A part is left blank if its
            fill is empty.
        label: the text after the end of the bar; may be empty.
        whisker: the two ends of the whisker, such as the quartiles of a measured time; `None` for
            no whisker.
        bold: whether the name of the bar is bold.
        mark: the length at which to draw a hollow diamond; `None` for no diamond.
    """

    parts: Sequence[tuple[float, str]]
    label: str = ""
    whisker: tuple[float, float] | None = None
    bold: bool = False
    mark: float | None = None

    @property
    def end(self) -> float:
        """The greatest length that the bar, its whisker or its diamond reaches."""
        return max(sum(length for length, _ in self.parts), self.mark or 0, *(self.whisker or (0,)))


def rows(
    title: str,
    groups: Mapping[str, Mapping[str, Bar]],
    theme: str,
    *,
    key: Sequence[tuple[str, str]] = (),
    line: float | None = None,
    notes: Sequence[str] = (),
) -> Sheet:
    """Draws groups of horizontal bars. Each bar has its name on the left and its label at its end.

    Args:
        title: the title above the bars, which states the finding.
        groups: the groups, by name. Each group maps the names of bars to the bars. A group's name
            may be empty.
        theme: the name of the theme, one of the keys in `palette.THEMES`.
        key: the fills to explain above the bars, each with its meaning, as `(fill, words)`.
        line: the length at which to draw a vertical line across all bars, such as 1 for ratios;
            `None` for no line.
        notes: lines of text below the bars.
    """
    (sheet, y), bars = (
        _titled(title, theme, key),
        [bar for group in groups.values() for bar in group.values()],
    )
    left = 24 + max((width_of(name) for group in groups.values() for name in group), default=0)
    longest = max((bar.end for bar in bars), default=0) or 1.0
    wide = (_WIDTH - left - 30 - max((width_of(bar.label) for bar in bars), default=0)) / longest
    top, whiskers, marks, labels = y, "", "", []
    for name, group in groups.items():
        if name:
            labels.append((4.0, y + 17, name, True))
            y += 26
        for bar_name, bar in group.items():
            sheet.text(left - 8, y + 14, bar_name, anchor="end", bold=bar.bold)
            x = left
            for length, fill in bar.parts:
                if fill:
                    sheet.box(x, y, length * wide, 20, fill)
                x += length * wide
            if bar.whisker:
                low, high = (px(left + value * wide) for value in bar.whisker)
                whiskers += f"M{low} {px(y + 10)}H{high}M{low} {px(y + 5)}v10M{high} {px(y + 5)}v10"
            if bar.mark is not None:
                marks += f"M{px(left + bar.mark * wide)} {px(y + 4)}l6 6l-6 6l-6-6z"
            behind, crossing = left + bar.end * wide + 10, left + (line or 0) * wide
            crossed = line is not None and behind - 8 < crossing < behind + width_of(bar.label)
            labels.append((crossing + 8 if crossed else behind, y + 14, bar.label, False))
            y += 28
    sheet.layer()
    if line is not None:
        sheet.line(
            [(left + line * wide, top - 6), (left + line * wide, y)],
            sheet.colours.accent,
            dash="4 3",
        )
    for stroke, thick in (
        (sheet.colours.ground, 4),
        (sheet.colours.text, 1.5),
    ):  # visible on any fill
        sheet.path(whiskers, stroke=stroke, width=thick)
    sheet.path(marks, fill=sheet.colours.ground, stroke=sheet.colours.text, width=1.5)
    for x, foot, label, bold in labels:
        sheet.text(x, foot, label, bold=bold, halo=sheet.colours.ground)
    foot = sheet.paragraph(4, y + 4, notes, size=11, ink=sheet.colours.muted)
    sheet.size(max(_WIDTH, sheet.width), foot)
    return sheet


def totals(
    title: str,
    bars: Mapping[str, tuple[int, int]],
    theme: str,
    words: tuple[str, str, str] = FLOPS,
) -> Sheet:
    """Draws a horizontal bar for each pair of counts: the first as a solid part, and the second as
    a hatched part.

    Args:
        title: the title above the bars, which states the finding.
        bars: for each name, the packed count and the count that packing saves. The two counts add
            up to the padded one.
        theme: the name of the theme, one of the keys in `palette.THEMES`.
        words: what solid bars mean, what hatched bars mean, and a word for the hatched share, as in
            `FLOPS`.
    """
    key = [(SOLID, words[0]), (HATCHED, words[1])]
    made = {}
    for name, (one, other) in bars.items():
        label = f"{text.short(one)} of {text.short(one + other)}: {text.percent(other, one + other)} {words[2]}"
        made[name] = Bar([(one, SOLID), (other, HATCHED)], label)
    return rows(title, {"": made}, theme, key=key)


def steps(
    title: str,
    packed: IntArray,
    padded: IntArray,
    theme: str,
    words: tuple[str, str, str] = FLOPS,
    axis: str = "t =",
    names: Sequence[str] = (),
) -> Sheet:
    """Draws a vertical bar for each time step, solid up to the packed count and hatched from there
    to the padded count.

    Args:
        title: the title above the bars, which states the finding.
        packed: `(T,)` the packed count at each time step.
        padded: `(T,)` the padded count at each time step, which is never less than the packed
            count.
        theme: the name of the theme, one of the keys in `palette.THEMES`.
        words: what solid bars mean, what hatched bars mean, and a word for the hatched share, as in
            `FLOPS`.
        axis: the title of the axis, written before the names of the bars.
        names: the names of the bars. By default, the bars are numbered from 0.
    """
    key = [(fill, what) for fill, what in ((SOLID, words[0]), (HATCHED, words[1])) if what]
    (sheet, y), n, top = _titled(title, theme, key), len(packed), int(max(padded))
    names = names or [str(t) for t in range(n)]
    each, scale, foot = (_WIDTH - 130) / n, _TALL / max(top, 1), y + 2 + _TALL
    gap = min(3.0, each * 0.15) if n <= _FEW else 0.0
    runs = [(t, t + 1) for t in range(n)] if n <= _FEW else _runs(packed, padded)
    for a, b in runs:
        line = (
            None if (b - a) * each >= _THIN else ""
        )  # the outline of a thin bar would hide its colour
        x, width, low, high = (
            _AXIS + a * each + gap / 2,
            (b - a) * each - gap,
            int(packed[a]),
            int(padded[a]),
        )
        if low:
            sheet.box(x, foot - low * scale, width, low * scale, SOLID, stroke=line)
        if high > low:
            sheet.box(x, foot - high * scale, width, (high - low) * scale, HATCHED, stroke=line)
    sheet.line([(_AXIS, foot), (_WIDTH - 20, foot)])
    for value in (top, 0):
        sheet.text(
            _AXIS - 8,
            foot - value * scale + 4,
            text.short(value),
            anchor="end",
            ink=sheet.colours.muted,
        )
    sheet.text(_AXIS - 8, foot + 18, axis, anchor="end", ink=sheet.colours.muted)
    for t in range(0, n, nice((8 + 8 * len(names[-1])) / each)):
        sheet.text(
            _AXIS + (t + 0.5) * each, foot + 18, names[t], anchor="middle", ink=sheet.colours.muted
        )
    sheet.size(_WIDTH, foot + 28)
    return sheet


def _runs(packed: IntArray, padded: IntArray) -> list[tuple[int, int]]:
    """Returns the runs of adjacent time steps with the same counts, each as `(first step, step after the last)`."""
    changes = np.flatnonzero((packed[1:] != packed[:-1]) | (padded[1:] != padded[:-1])) + 1
    return list(pairwise([0, *changes.tolist(), len(packed)]))


def _titled(title: str, theme: str, key: Sequence[tuple[str, str]]) -> tuple[Sheet, float]:
    """Returns a sheet with a title and a key, and the y-coordinate below both.

    The title and the key share a line if there is enough room.
    """
    sheet, right = Sheet(theme, title), _WIDTH - sum(36 + width_of(words) for _, words in key)
    sheet.title(title)
    below = 20.0 if key and right < 20 + width_of(title) else 0.0
    sheet.key(max(right, 4), 6 + below, key)
    return sheet, 32 + below
