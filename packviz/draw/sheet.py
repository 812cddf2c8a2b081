"""Renders all SVG pictures: a sheet collects boxes, lines and words, and writes them as one string.

A picture stays a `Sheet` until it is shown, so that its size is known and it can be placed on
another sheet. In each layer, shapes of the same style become one path, which keeps pictures small.
The same calls always produce the same string.
"""

from __future__ import annotations

import html
import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import groupby
from textwrap import wrap
from typing import Any

import numpy as np

from packviz.core.validation import one_of
from packviz.draw import palette

CHAR = 7.3
"""An upper bound, in px, for the width of a character in the 12 px monospace typeface."""

HATCHED = "hatched"
"""The fill of padding and of wasted work: diagonal lines, which are visible without colour."""

Point = tuple[float, float]

_THIN = 4.0  # px
_APART = 6 * math.sqrt(2)  # px along an axis, between diagonals that are 6 px apart
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Sheet:
    """A drawing in progress.

    Shapes and words are painted in layers. In each layer, words are painted over shapes. Shapes of
    the same style are painted together, in the order in which their styles were first used. `layer`
    starts the next layer, which is painted over the earlier ones.

    Attributes:
        theme: the name of the theme, one of the keys in `palette.THEMES`.
        colours: the colours of the theme.
        description: the text that a screen reader reads instead of the picture.
    """

    def __init__(self, theme: str, description: str = "") -> None:
        """Starts an empty sheet.

        Args:
            theme: `"light"`, `"dark"`, or `"live"` for colours that follow the theme of the page.
            description: the text for a screen reader.

        Raises:
            ValueError: the theme is unknown.
        """
        self.theme, self.description = one_of("theme", theme, palette.THEMES), description
        self.colours = palette.THEMES[theme]
        self._layers: list[str] = []
        self._paths: dict[str, list[str]] = {}
        self._words: dict[str, list[str]] = {}
        self._hatched: dict[
            str, list[tuple[float, float, float, float]]
        ] = {}  # boxes, by their SVG attributes
        self._right = self._foot = 0.0
        self._size: tuple[float, float] | None = None

    # Shapes.

    def path(
        self,
        d: str,
        *,
        fill: str = "none",
        stroke: str = "",
        width: float = 1,
        dash: str = "",
        joined: str = "",
    ) -> str:
        """Draws an SVG path without enlarging the sheet (see `reach`), and returns the path's SVG attributes."""
        look = f'fill="{fill}"'
        if stroke:
            look += f' stroke="{stroke}"' + (f' stroke-width="{n(width)}"' if width != 1 else "")
            look += f' stroke-dasharray="{dash}"' if dash else ""
            look += f' stroke-linejoin="{joined}"' if joined else ""
        self._paths.setdefault(look, []).append(d)
        return look

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        fill: str = "none",
        *,
        stroke: str | None = None,
        thick: float = 0.5,
        dash: str = "",
    ) -> None:
        """Draws a rectangle.

        Args:
            x: the x-coordinate of the rectangle's left edge in px.
            y: the y-coordinate of the rectangle's top edge in px.
            width: the width of the rectangle in px.
            height: the height of the rectangle in px.
            fill: a colour, `"none"`, or `HATCHED`.
            stroke: the colour of the outline. Defaults to the theme's colour for lines. An empty
                string means no outline.
            thick: the width of the outline in px.
            dash: the dashes of the outline as in SVG; may be empty.
        """
        stroke = self.colours.line if stroke is None else stroke
        ground = self.colours.padding if fill == HATCHED else fill
        d = f"M{n(x)} {n(y)}h{n(width)}v{n(height)}h-{n(width)}z"
        look = self.path(d, fill=ground, stroke=stroke, width=thick, dash=dash)
        if fill == HATCHED:
            self._hatched.setdefault(look, []).append((x, y, width, height))
        self.reach(x + width, y + height)

    def cell(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        fill: str,
        label: str = "",
        **look: Any,
    ) -> None:
        """Draws a box with a label in it. `look` contains options of `text` for the label.

        By default, the label's colour contrasts with the fill. A thin box has no outline, because
        the outline would hide its colour.
        """
        self.box(x, y, width, height, fill, stroke=None if min(width, height) >= _THIN else "")
        if label:
            if fill == HATCHED:
                look = {"ink": self.colours.muted, "halo": self.colours.padding} | look
            elif fill in palette.FILLS:
                look = {"ink": palette.ink_on(fill)} | look
            self.text(x + width / 2, y + height / 2 + 4, label, anchor="middle", **look)

    def line(
        self,
        points: Sequence[Point],
        stroke: str = "",
        *,
        width: float = 1,
        dash: str = "",
        outlined: bool = False,
    ) -> None:
        """Draws a line through points. The line is interrupted at each NaN, and a point on its own
        becomes a dot.

        Args:
            points: the points, each as `(x, y)` in px. A `y` may be NaN.
            stroke: the colour of the line. Defaults to the theme's colour for lines.
            width: the thickness of the line in px.
            dash: the dashes of the line as in SVG; may be empty.
            outlined: whether to add an outline, which makes pale colours visible on white.
        """
        d = ""
        for whole, run in groupby(points, key=lambda point: math.isfinite(point[1])):
            if whole:
                places = [f"{n(x)} {n(y)}" for x, y in run]
                d += "M" + "L".join(places) + ("h.1" if len(places) == 1 else "")
        joined = "round" if outlined else ""
        if outlined:
            self.path(d, stroke=self.colours.line, width=width + 1.6, dash=dash, joined=joined)
        self.path(d, stroke=stroke or self.colours.line, width=width, dash=dash, joined=joined)

    def curve(
        self, start: Point, end: Point, stroke: str, *, width: float = 2.5, down: bool = False
    ) -> None:
        """Draws an outlined curve that is horizontal at both ends, or vertical if `down` is true."""
        (x0, y0), (x1, y1) = start, end
        middle = n((y0 + y1) / 2 if down else (x0 + x1) / 2)
        near, far = (
            (f"{n(x0)} {middle}", f"{n(x1)} {middle}")
            if down
            else (f"{middle} {n(y0)}", f"{middle} {n(y1)}")
        )
        d = f"M{n(x0)} {n(y0)}C{near} {far} {n(x1)} {n(y1)}"
        self.path(d, stroke=self.colours.line, width=width + 1)
        self.path(d, stroke=stroke, width=width)

    # Words.

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        anchor: str = "",
        size: int = 12,
        bold: bool = False,
        ink: str = "",
        halo: str = "",
    ) -> None:
        """Writes a line of text.

        Args:
            x: the x-coordinate of the line's start, middle or end in px, depending on `anchor`.
            y: the y-coordinate of the baseline in px.
            text: the text to write.
            anchor: the point of the line that is at `x`: `"middle"`, `"end"`, or empty for the
                start.
            size: the font size in px.
            bold: whether the letters are bold, as in titles and names.
            ink: the colour of the letters. Defaults to the theme's colour for text.
            halo: the colour around letters that are written over something else; may be empty.
        """
        if not text:
            return
        look = _look(anchor, size, bool(bold), ink, halo)
        self._words.setdefault(look, []).append(f'x="{n(x)}" y="{n(y)}">{escape(text)}</text>')
        self.reach(x + {"": 1.0, "middle": 0.5, "end": 0.0}[anchor] * width_of(text, size), y + 4)

    def title(self, text: str) -> float:
        """Writes the title at the top left, and returns the y-coordinate below it."""
        self.text(4, 16, text, bold=True)
        return 24.0

    def paragraph(
        self, x: float, y: float, lines: Iterable[str], *, size: int = 12, ink: str = ""
    ) -> float:
        """Writes lines of text with their indentation from `y` downwards, and returns the y-coordinate below them."""
        for line in lines:
            words = line.lstrip(" ")
            columns = words.replace(
                "  ", "\xa0\xa0"
            )  # because a browser draws several blanks as one
            self.text(
                x + CHAR * size / 12 * (len(line) - len(words)),
                y + size,
                columns,
                size=size,
                ink=ink,
            )
            y += size + 5
        return y

    def key(self, x: float, y: float, parts: Iterable[tuple[str, str]]) -> float:
        """Draws a key that explains fills, and returns the x-coordinate after the key.

        Args:
            x: the x-coordinate of the key's left edge in px.
            y: the y-coordinate of the key's top edge in px.
            parts: the fills, each with its meaning, as `(fill, words)`.
        """
        for fill, label in parts:
            self.box(x, y, 14, 12, fill)
            self.text(x + 20, y + 10, label)
            x += 36 + width_of(label)
        return x

    # The sheet.

    def layer(self) -> None:
        """Starts a new layer, which is painted over the earlier ones."""
        for look, d in self._paths.items():
            self._layers.append(f'<path d="{"".join(d)}" {look}/>')
            if look in self._hatched:
                self._layers.append(
                    f'<path d="{_diagonals(self._hatched[look])}" stroke="{self.colours.hatch}"/>'
                )
        for look, words in self._words.items():
            if len(words) == 1:
                self._layers.append(f"<text{look} {words[0]}")
            else:
                self._layers.append(f"<g{look}>{''.join(f'<text {one}' for one in words)}</g>")
        self._paths, self._words, self._hatched = {}, {}, {}

    def place(self, other: Sheet, x: float, y: float) -> None:
        """Paints another sheet over this one, with the top left corner of the other sheet at `(x, y)`."""
        self.layer()
        other.layer()
        self._layers.append(f'<g transform="translate({n(x)} {n(y)})">{"".join(other._layers)}</g>')
        self.reach(x + other.width, y + other.height)
        self.description = "\n".join(filter(None, (self.description, other.description)))

    def reach(self, x: float, y: float) -> None:
        """Enlarges the sheet to include the point `(x, y)`."""
        self._right, self._foot = max(self._right, x), max(self._foot, y)

    def size(self, width: float, height: float) -> None:
        """Sets the size of the sheet in px. By default, the sheet is as large as its contents."""
        self._size = (width, height)

    @property
    def width(self) -> float:
        """The width of the sheet in px."""
        return self._size[0] if self._size else self._right + 8

    @property
    def height(self) -> float:
        """The height of the sheet in px."""
        return self._size[1] if self._size else self._foot + 6

    def svg(self) -> str:
        """Returns the drawing as a complete `<svg>` element with the theme's background."""
        self.layer()
        width, height = n(self.width), n(self.height)
        style = f"<style>{palette.STYLE}</style>" if self.theme == "live" else ""
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="packviz" role="img" width="{width}" height="{height}"'
            f' viewBox="0 0 {width} {height}" style="max-width:100%;height:auto"'
            f' font-family="{palette.FONT}" font-size="12" fill="{self.colours.text}"'
            f' aria-label="{escape(self.description)}">{style}'
            f'<path d="M0 0h{width}v{height}h-{width}z" fill="{self.colours.ground}"/>{"".join(self._layers)}</svg>'
        )


def stack(title: str, sheets: Iterable[Sheet], theme: str) -> Sheet:
    """Places sheets one below the other, under a title."""
    whole = Sheet(theme, title)
    y = whole.paragraph(4, 3, wrap(title, 110), size=13) + 7
    for sheet in sheets:
        whole.place(sheet, 0, y)
        y += sheet.height + 8
    whole.size(whole.width - 8, y)
    return whole


def row(sheets: Iterable[Sheet], theme: str, gap: float = 0, space: float = math.inf) -> Sheet:
    """Places sheets side by side, `gap` px apart, in as many rows as needed to stay within `space` px."""
    whole, x, y = Sheet(theme), 0.0, 0.0
    width = height = 0.0
    for sheet in sheets:
        if x and x + sheet.width > space:
            x, y = 0.0, height
        whole.place(sheet, x, y)
        x, height = x + sheet.width + gap, max(height, y + sheet.height)
        width = max(width, x)
    whole.size(width, height)
    return whole


def width_of(text: str, size: float = 12) -> float:
    """Returns an upper bound, in px, for the width of text. A wide character, such as a Chinese one, counts as two."""
    columns = (
        len(text)
        if text.isascii()
        else sum(1 + (unicodedata.east_asian_width(c) in "WF") for c in text)
    )
    return CHAR * size / 12 * columns


def escape(text: str) -> str:
    """Escapes text for an XML element or attribute, and replaces characters that XML does not allow."""
    return html.escape(_NOT_XML.sub("\ufffd", text))


def n(value: float) -> str:
    """Returns a coordinate as text, with at most two decimals and no trailing zeros."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


@lru_cache
def _look(anchor: str, size: int, bold: bool, ink: str, halo: str) -> str:
    """Returns the SVG attributes of a line of text."""
    parts = {
        f'text-anchor="{anchor}"': anchor,
        f'font-size="{size}"': size != 12,
        'font-weight="bold"': bold,
        f'fill="{ink}"': ink,
        f'stroke="{halo}" stroke-width="4" paint-order="stroke"': halo,
    }
    return "".join(f" {part}" for part, value in parts.items() if value)


def _diagonals(boxes: Sequence[tuple[float, float, float, float]]) -> str:
    """Returns the diagonal lines that hatch boxes `(x, y, width, height)`, as an SVG path.

    An SVG pattern would need a name. If two pictures on a page used the same name, a browser might
    take the pattern from the wrong picture, which might be hidden. All lines belong to one evenly
    spaced set for the whole sheet, so they continue through boxes that touch.
    """
    x, y, width, height = np.array(boxes).T
    right, foot = x + width, y + height
    first = np.ceil((x + y) / _APART).astype(int)
    counts = np.maximum(np.floor((right + foot) / _APART).astype(int) - first + 1, 0)
    box = np.repeat(np.arange(len(boxes)), counts)
    line = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts - first, counts)
    # On line i, x + y = i * _APART. In a box, the line runs from the left or lower side to the top
    # or right side.
    starts = np.maximum(x[box], line * _APART - foot[box])
    ends = np.minimum(right[box], line * _APART - y[box])
    inside = np.flatnonzero(ends > starts)
    inside = inside[np.lexsort((starts[inside], line[inside]))]
    if not inside.size:
        return ""
    line, starts, ends = line[inside], starts[inside], ends[inside]
    new = np.flatnonzero(np.r_[True, (line[1:] != line[:-1]) | (starts[1:] > ends[:-1] + 0.05)])
    starts, tops, ends = (
        starts[new],
        line[new] * _APART - starts[new],
        np.maximum.reduceat(ends, new),
    )
    return "".join(
        f"M{a:g} {b:g}l{d:g}-{d:g}"
        for a, b, d in zip(
            *(np.round(v, 1).tolist() for v in (starts, tops, ends - starts)), strict=True
        )
        if d
    )
