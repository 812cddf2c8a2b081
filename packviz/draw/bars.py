"""Bars: numbers in. Solid is what is needed or measured, hatched what packing leaves out or what is wasted.

Cheap enough for a slider: one path per colour, and for many time steps one outline.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from packviz.core.layout import IntArray
from packviz.draw import palette, text
from packviz.draw.cellgrid import nice
from packviz.draw.sheet import HATCHED, Sheet, width_of
from packviz.draw.sheet import n as px

SOLID = palette.REAL
FLOPS = ("packed computes", "only padded does", "saved")
"""What solid and hatched mean, and a word for the hatched share."""

_WIDTH = 860.0
_AXIS = 110.0  # px: the column of an axis
_TALL = 120.0
_FEW = 24  # more time steps than this are drawn as one area
_EDGES = 128  # an edge of more steps than this is not drawn: it would weigh more than the areas


@dataclass(frozen=True)
class Bar:
    """A bar with a name.

    Attributes:
        parts: `(length, fill)` from left to right; a part without a fill is left empty.
        label: stands behind the bar.
        whisker: the quartiles of where the bar ends, or its interval; none if it is not known.
        bold: whether its name is.
        mark: where a hollow diamond stands; none if there is none.
    """

    parts: Sequence[tuple[float, str]]
    label: str = ""
    whisker: tuple[float, float] | None = None
    bold: bool = False
    mark: float | None = None

    @property
    def values(self) -> list[float]:
        """All that the axis has to hold."""
        return [sum(length for length, _ in self.parts), *(self.whisker or ()), *([self.mark] if self.mark else [])]


def rows(
    title: str,
    groups: Mapping[str, Mapping[str, Bar]],
    theme: str,
    *,
    key: Sequence[tuple[str, str]] = (),
    line: float | None = None,
    log: bool = False,
    notes: Sequence[str] = (),
) -> Sheet:
    """Draws a bar for each name, the numbers behind them.

    Args:
        title: stands above.
        groups: the bars by name, by the name of their group, which may be empty.
        theme: a key of `palette.THEMES`.
        key: what fills mean.
        line: where to draw a line down through all bars, such as the 1 of a ratio.
        log: whether bars are ratios that begin at 1 on a logarithmic axis: twice as much and half are equally long.
        notes: lines that stand below.
    """
    (sheet, y), bars = _titled(title, theme, key), [bar for group in groups.values() for bar in group.values()]
    left = 24 + 10 * log + max((width_of(name) for group in groups.values() for name in group), default=0)
    scale = math.log if log else float
    ends = [0.0, *(scale(value) for bar in bars for value in bar.values)]  # 0 is also the logarithm of 1
    wide = (_WIDTH - left - 30 - max((width_of(bar.label) for bar in bars), default=0)) / (max(ends) - min(ends) or 1.0)

    def x(value: float) -> float:
        return left + (scale(value) - min(ends)) * wide

    top, whiskers, marks, labels = y, "", "", []
    for name, group in groups.items():
        if name:
            labels.append((4.0, y + 17, name, True))
            y += 26
        for bar_name, bar in group.items():
            sheet.text(left - 8 - 10 * log, y + 14, bar_name, anchor="end", bold=bar.bold)
            at = 0.0
            for part, fill in bar.parts:
                start, end = sorted((x(1), x(part))) if log else (x(at), x(at + part))
                if fill:
                    sheet.box(start, y, end - start, 20, fill)
                at += part
            if bar.whisker:
                low, high = (px(x(value)) for value in bar.whisker)
                whiskers += f"M{low} {px(y + 10)}H{high}M{low} {px(y + 5)}v10M{high} {px(y + 5)}v10"
            if bar.mark is not None:
                marks += f"M{px(x(bar.mark))} {px(y + 4)}l6 6l-6 6l-6-6z"
            behind = max(map(x, [*bar.values, *[1.0] * log])) + 10
            crossed = line is not None and behind - 8 < x(line) < behind + width_of(bar.label)
            labels.append((x(line or 0) + 8 if crossed else behind, y + 14, bar.label, False))
            y += 28
    sheet.layer()
    if line is not None:
        sheet.line([(x(line), top - 6), (x(line), y)], sheet.colours.accent, dash="4 3")
    for stroke, thick in ((sheet.colours.ground, 4), (sheet.colours.text, 1.5)):  # seen on whatever they stand
        sheet.path(whiskers, stroke=stroke, width=thick)
    sheet.path(marks, fill=sheet.colours.ground, stroke=sheet.colours.text, width=1.5)
    for left, foot, label, bold in labels:
        sheet.text(left, foot, label, bold=bold, halo=sheet.colours.ground)
    foot = sheet.paragraph(4, y + 4, notes, size=11, ink=sheet.colours.muted)
    sheet.size(max(_WIDTH, sheet.width), foot if notes else y + 4)
    return sheet


def totals(
    title: str,
    bars: Mapping[str, tuple[int, int]],
    theme: str,
    words: tuple[str, str, str] = FLOPS,
) -> Sheet:
    """A bar for each name: its first number solid, its second one hatched behind it.

    Args:
        title: stands above.
        bars: by name, the number computed packed, and the number left out. Both together are the padded one.
        theme: a key of `palette.THEMES`.
        words: as in `FLOPS`.
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
) -> Sheet:
    """A bar for each time step: solid up to what packing computes, hatched up to the padded count.

    Args:
        title: stands above.
        packed: `(T,)` numbers.
        padded: `(T,)` numbers, none smaller than its `packed`.
        theme: a key of `palette.THEMES`.
        words: as in `FLOPS`.
        axis: what stands before the numbers of the bars.
    """
    (sheet, y), n, top = _titled(title, theme, [(SOLID, words[0]), (HATCHED, words[1])]), len(packed), int(max(padded))
    each, scale, foot = (_WIDTH - 130) / n, _TALL / max(top, 1), y + 2 + _TALL
    gap = min(3.0, each * 0.15) if n <= _FEW else 0.0
    runs = [(t, t + 1) for t in range(n)] if n <= _FEW else _runs(packed, padded)
    line = None if n <= _FEW else ""
    for a, b in runs:
        x, width, low, high = _AXIS + a * each + gap / 2, (b - a) * each - gap, int(packed[a]), int(padded[a])
        if low:
            sheet.box(x, foot - low * scale, width, low * scale, SOLID, stroke=line)
        if high > low:
            sheet.box(x, foot - high * scale, width, (high - low) * scale, HATCHED, stroke=line)
    if n > _FEW and len(runs) <= _EDGES:
        for counts in (padded, packed):
            edge = "".join(f"V{px(foot - int(counts[a]) * scale)}H{px(_AXIS + b * each)}" for a, b in runs)
            sheet.path(f"M{_AXIS:g} {px(foot)}{edge}V{px(foot)}", stroke=sheet.colours.line, width=0.8)
    sheet.line([(_AXIS, foot), (_WIDTH - 20, foot)])
    for value in (top, 0):
        sheet.text(_AXIS - 8, foot - value * scale + 4, text.short(value), anchor="end", ink=sheet.colours.muted)
    sheet.text(_AXIS - 8, foot + 18, axis, anchor="end", ink=sheet.colours.muted)
    for t in range(0, n, nice((8 + 8 * len(str(n))) / each)):
        sheet.text(_AXIS + (t + 0.5) * each, foot + 18, str(t), anchor="middle", ink=sheet.colours.muted)
    sheet.size(_WIDTH, foot + 28)
    return sheet


def _runs(packed: IntArray, padded: IntArray) -> list[tuple[int, int]]:
    """Stretches of time steps with the same numbers."""
    changes = np.flatnonzero((packed[1:] != packed[:-1]) | (padded[1:] != padded[:-1])) + 1
    return list(pairwise([0, *changes.tolist(), len(packed)]))


def _titled(title: str, theme: str, key: Sequence[tuple[str, str]]) -> tuple[Sheet, float]:
    """A sheet with its title and the key, in one line if they have room; and the y below them."""
    sheet, right = Sheet(theme, title), _WIDTH - sum(36 + width_of(words) for _, words in key)
    sheet.title(title)
    below = 20.0 if key and right < 20 + width_of(title) else 0.0
    sheet.key(max(right, 4), 6 + below, key)
    return sheet, 32 + below
