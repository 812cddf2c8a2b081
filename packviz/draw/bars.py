"""Bars as SVG strings: plain numbers in. Solid is what packing computes, hatched what it leaves out.

Pure and deterministic, and cheap enough for a slider: one path per colour, and for many time steps one outline.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from packviz.core.layout import IntArray
from packviz.draw import layouts as svg
from packviz.draw import palette, text

SOLID = palette.SEQUENCES[4]
FLOPS = ("packed computes", "only padded does", "saved")
"""What solid and hatched mean, and a word for the hatched share."""

_WIDTH = 860.0
_NAMES = 170.0  # px: the column of names, or of the axis
_TALL = 120.0
_FEW = 64  # more time steps than this are drawn as one outline


def totals(title: str, rows: Mapping[str, tuple[int, int]], theme: str, words: tuple[str, str, str] = FLOPS) -> str:
    """A bar for each name: its first number solid, its second one hatched behind it.

    Args:
        title: stands above.
        rows: by name, the number computed packed, and the number left out. Both together are the padded one.
        theme: a key of `palette.THEMES`.
        words: as in `FLOPS`.
    """
    colours, hatch = palette.THEMES[theme], _hatch_name(title, rows, theme)
    longest = max(sum(pair) for pair in rows.values())
    room = _WIDTH - _NAMES - 300
    body, solid, hatched, y = [_legend(title, hatch, colours, words)], [], [], 30.0
    for name, (packed, saved) in rows.items():
        a, b = (room * n / max(longest, 1) for n in (packed, saved))
        solid.append(_box(_NAMES, y, a, 20))
        hatched.append(_box(_NAMES + a, y, b, 20))
        body.append(f'<text x="{_NAMES - 8:g}" y="{y + 14:g}" text-anchor="end">{svg.escape(name)}</text>')
        said = f"{text.short(packed)} of {text.short(packed + saved)}: {text.percent(saved, packed + saved)} {words[2]}"
        body.append(f'<text x="{_n(_NAMES + a + b + 8)}" y="{y + 14:g}">{svg.escape(said)}</text>')
        y += 28
    body += _filled("".join(solid), "".join(hatched), hatch, colours)
    return svg.element(svg.hatch(hatch, colours) + "".join(body), _WIDTH, y + 4, title, theme)


def steps(
    title: str,
    packed: IntArray,
    padded: IntArray,
    theme: str,
    words: tuple[str, str, str] = FLOPS,
    axis: str = "t =",
) -> str:
    """A bar for each time step: solid up to what packing computes, hatched up to the padded count.

    Args:
        title: stands above.
        packed: `(T,)` numbers.
        padded: `(T,)` numbers, none smaller than its `packed`.
        theme: a key of `palette.THEMES`.
        words: as in `FLOPS`.
        axis: what stands before the numbers of the bars.
    """
    colours = palette.THEMES[theme]
    n, top = len(packed), int(max(padded))
    hatch = _hatch_name(title, (packed.tobytes(), padded.tobytes()), theme)
    left, width = 110.0, _WIDTH - 130
    each, base = width / n, 32.0 + _TALL
    scale = _TALL / max(top, 1)
    if n <= _FEW:
        gap = min(3.0, each * 0.15)
        runs = [(left + t * each + gap / 2, each - gap, int(packed[t]), int(padded[t])) for t in range(n)]
    else:
        runs = [(left + a * each, (b - a) * each, int(packed[a]), int(padded[a])) for a, b in _runs(packed, padded)]
    solid = "".join(_box(x, base - low * scale, w, low * scale) for x, w, low, _ in runs if low)
    hatched = "".join(_box(x, base - high * scale, w, (high - low) * scale) for x, w, low, high in runs if high > low)
    outlined = n <= _FEW or len(runs) < n / 8
    body = [_legend(title, hatch, colours, words), *_filled(solid, hatched, hatch, colours, outlined)]
    body.append(f'<path d="M{left:g} {base:g}h{width:g}" stroke="{colours.line}"/>')
    for value in (top, 0):
        y = base - value * scale + 4
        body.append(
            f'<text x="{left - 8:g}" y="{_n(y)}" text-anchor="end" fill="{colours.muted}">{text.short(value)}</text>'
        )
    every = next(k for k in _NICE if k * each >= 8 + 8 * len(str(n)))
    body.append(f'<text x="{left - 8:g}" y="{base + 18:g}" text-anchor="end" fill="{colours.muted}">{axis}</text>')
    for t in range(0, n, every):
        x = left + (t + 0.5) * each
        body.append(f'<text x="{_n(x)}" y="{base + 18:g}" text-anchor="middle" fill="{colours.muted}">{t}</text>')
    return svg.element(svg.hatch(hatch, colours) + "".join(body), _WIDTH, base + 28, title, theme)


@dataclass(frozen=True)
class Spread:
    """A bar with its quartiles.

    Attributes:
        low: first quartile.
        middle: median: the length of the bar.
        high: third quartile.
        said: stands behind the bar.
        hatched: whether it is set apart from the others.
        bold: whether its name is.
    """

    low: float
    middle: float
    high: float
    said: str
    hatched: bool = False
    bold: bool = False


def spreads(title: str, rows: Mapping[str, Spread], theme: str, hatched: str) -> str:
    """A bar for each name with a whisker from quartile to quartile.

    Args:
        title: stands above.
        rows: the bars, by name.
        theme: a key of `palette.THEMES`.
        hatched: what it means that a bar is.
    """
    colours, hatch = palette.THEMES[theme], _hatch_name(title, rows, theme)
    left = 24 + 7.3 * max(map(len, rows))
    scale = (_WIDTH - left - 230) / max(spread.high for spread in rows.values())
    body, y = [f'<text x="4" y="16" font-weight="bold">{svg.escape(title)}</text>'], 32.0
    fills: tuple[list[str], list[str]] = ([], [])
    if any(spread.hatched for spread in rows.values()):
        key = _WIDTH - 20 - 7.3 * len(hatched)
        fills[1].append(_box(key - 20, 6, 14, 12))
        body.append(f'<text x="{_n(key)}" y="16">{svg.escape(hatched)}</text>')
    for name, spread in rows.items():
        low, middle, high = (left + scale * value for value in (spread.low, spread.middle, spread.high))
        fills[spread.hatched].append(_box(left, y, middle - left, 20))
        weight = ' font-weight="bold"' if spread.bold else ""
        beside = f'x="{_n(left - 8)}" y="{y + 14:g}" text-anchor="end"{weight}'
        body.append(f"<text {beside}>{svg.escape(name)}</text>")
        whisker = f"M{_n(low)} {y + 10:g}H{_n(high)}" + "".join(f"M{_n(x)} {y + 5:g}v10" for x in (low, high))
        for colour, width in ((colours.ground, 4), (colours.text, 1.5)):
            body.append(f'<path d="{whisker}" stroke="{colour}" stroke-width="{width}"/>')
        body.append(f'<text x="{_n(max(middle, high) + 10)}" y="{y + 14:g}">{svg.escape(spread.said)}</text>')
        y += 28
    filled = _filled("".join(fills[0]), "".join(fills[1]), hatch, colours)
    return svg.element("".join([svg.hatch(hatch, colours), *filled, *body]), _WIDTH, y + 4, title, theme)


_NICE = [d * 10**p for p in range(9) for d in (1, 2, 5)]


def _runs(packed: IntArray, padded: IntArray) -> list[tuple[int, int]]:
    """Stretches of time steps with the same numbers."""
    changes = ((packed[1:] != packed[:-1]) | (padded[1:] != padded[:-1])).nonzero()[0] + 1
    edges = [0, *changes.tolist(), len(packed)]
    return list(pairwise(edges))


def _legend(title: str, hatch: str, colours: palette.Theme, words: tuple[str, str, str]) -> str:
    keys = ((490.0, SOLID, words[0]), (660.0, f"url(#{hatch})", words[1]))
    body = [f'<text x="4" y="16" font-weight="bold">{svg.escape(title)}</text>']
    for x, fill, name in keys:
        body.append(f'<path d="{_box(x, 6, 14, 12)}" fill="{fill}" stroke="{colours.line}"/>')
        body.append(f'<text x="{x + 20:g}" y="16">{name}</text>')
    return "".join(body)


def _filled(solid: str, hatched: str, hatch: str, colours: palette.Theme, outlined: bool = True) -> list[str]:
    line = f' stroke="{colours.line}" stroke-width=".5"' if outlined else ""
    fills = ((solid, SOLID), (hatched, f"url(#{hatch})"))
    return [f'<path d="{path}" fill="{fill}"{line}/>' for path, fill in fills if path]


def _hatch_name(*parts: Any) -> str:
    return f"packviz-{zlib.crc32(repr(parts).encode()):08x}"


def _box(x: float, y: float, width: float, height: float) -> str:
    return f"M{_n(x)} {_n(y)}h{_n(width)}v{_n(height)}h-{_n(width)}z"


def _n(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
