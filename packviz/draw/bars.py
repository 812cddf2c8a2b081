"""Bars: plain numbers in. Solid is what packing computes, hatched what it leaves out.

Cheap enough for a slider: one path per colour, and for many time steps one outline.
"""

from __future__ import annotations

from collections.abc import Mapping
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
_NAMES = 170.0  # px: the column of names
_AXIS = 110.0  # px: the column of an axis
_TALL = 120.0
_FEW = 24  # more time steps than this are drawn as one area
_EDGES = 128  # an edge of more steps than this is not drawn: it would weigh more than the areas


def totals(
    title: str,
    rows: Mapping[str, tuple[int, int]],
    theme: str,
    words: tuple[str, str, str] = FLOPS,
) -> Sheet:
    """A bar for each name: its first number solid, its second one hatched behind it.

    Args:
        title: stands above.
        rows: by name, the number computed packed, and the number left out. Both together are the padded one.
        theme: a key of `palette.THEMES`.
        words: as in `FLOPS`.
    """
    sheet, y = _titled(title, theme, words)
    left = max(_NAMES, 16 + max(map(width_of, rows)))
    scale = (_WIDTH - left - 300) / max(1, *(sum(pair) for pair in rows.values()))
    for name, (packed, saved) in rows.items():
        end = left + packed * scale
        sheet.box(left, y, packed * scale, 20, SOLID)
        sheet.box(end, y, saved * scale, 20, HATCHED)
        sheet.text(left - 8, y + 14, name, anchor="end")
        note = f"{text.short(packed)} of {text.short(packed + saved)}: {text.percent(saved, packed + saved)} {words[2]}"
        sheet.text(end + saved * scale + 8, y + 14, note)
        y += 28
    sheet.size(_WIDTH, y + 4)
    return sheet


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
    (sheet, y), n, top = _titled(title, theme, words), len(packed), int(max(padded))
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


def _titled(title: str, theme: str, words: tuple[str, str, str]) -> tuple[Sheet, float]:
    """A sheet with its title and the key, in one line if they have room; and the y below them."""
    sheet = Sheet(theme, title)
    sheet.title(title)
    below = 20.0 if width_of(title) > 470 else 0.0
    sheet.key(490, 6 + below, [(SOLID, words[0])])
    sheet.key(660, 6 + below, [(HATCHED, words[1])])
    return sheet, 30 + below
