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
from collections import defaultdict
from collections.abc import Iterable, Sequence
from textwrap import wrap

from packviz.core.validation import require_one_of
from packviz.draw import palette

MONO_CHAR_WIDTH = 7.3
"""An upper bound, in px, for the width of a character in the 12 px monospace typeface."""

WIDTH = 700.0
"""The width, in px, that pictures fit in. A wider one would be shown with smaller letters."""

_LETTER_WIDTH = 6.7  # px: an upper bound for the mean width of a character of words at 12 px
# px: the same for bold words, even if the machine has neither Helvetica nor Arial
_BOLD_LETTER_WIDTH = 8.2

HATCHED = "hatched"
"""The fill of padding and of wasted work: diagonal lines, which are visible without colour."""

Point = tuple[float, float]
Box = tuple[float, float, float, float]
PartsByStyle = dict[str, list[str]]

_MAX_TITLE_CHARS = 98  # the characters of a bold line that fit in `WIDTH`
_MIN_OUTLINED_SIZE = 4.0  # px
_HATCH_SPACING = 6 * math.sqrt(2)  # px along an axis, between diagonals that are 6 px apart
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NUMBER = re.compile(r"-?(?<![.\d])\d+(?:\.\d+)?(?:e[-+]?\d+)?")
_SHARE_RIGHT_OF_ANCHOR = {"": 1.0, "middle": 0.5, "end": 0.0}  # the share of a line's width


class Sheet:
    """A drawing in progress.

    Shapes and words are painted in layers. In each layer, words are painted over shapes. Shapes of
    the same style are painted together, in the order in which their styles were first used.
    `start_layer` starts the next layer, which is painted over the earlier ones.

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
        self.theme = require_one_of("theme", theme, palette.THEMES)
        self.description = description
        self.colours = palette.THEMES[theme]
        self._layers: list[str] = []
        # The shapes, words and hatched boxes of the current layer, by their SVG attributes.
        self._paths: PartsByStyle = defaultdict(list)
        self._words: PartsByStyle = defaultdict(list)
        self._hatched: dict[str, list[Box]] = defaultdict(list)
        self._right = 0.0
        self._bottom = 0.0
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
        round_joins: bool = False,
    ) -> str:
        """Draws an SVG path without enlarging the sheet (see `extend_to`).

        The numbers of the path `d` may have any number of digits. Returns the path's SVG
        attributes.
        """
        attributes = _attributes(fill=fill, stroke=stroke)
        if stroke:
            join = "round" if round_joins else ""
            attributes += _attributes(
                stroke_width=coordinate_text(width), stroke_dasharray=dash, stroke_linejoin=join
            )
        self._paths[attributes].append(d)
        return attributes

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        fill: str = "none",
        *,
        stroke: str | None = None,
        outline_width: float = 0.5,
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
            outline_width: the width of the outline in px.
            dash: the dashes of the outline as in SVG; may be empty.
        """
        if stroke is None:
            stroke = self.colours.line
        background = self.colours.padding if fill == HATCHED else fill
        d = f"M{x} {y}h{width}v{height}h-{width}z"
        attributes = self.path(d, fill=background, stroke=stroke, width=outline_width, dash=dash)
        if fill == HATCHED:
            self._hatched[attributes].append((x, y, width, height))
        self.extend_to(x + width, y + height)

    def frame(self, x: float, y: float, width: float, height: float) -> None:
        """Draws a frame around a wrong cell, visible on any fill, with space around the frame."""
        self.box(x, y, width, height, stroke=self.colours.ground, outline_width=6)
        self.box(x, y, width, height, stroke=self.colours.wrong, outline_width=3)

    def cell(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        fill: str,
        label: str = "",
        *,
        size: int = 12,
        bold: bool = False,
    ) -> None:
        """Draws a box with a label in it, in a colour that contrasts with the fill.

        A thin box has no outline, because the outline would hide its colour.
        """
        is_thin = min(width, height) < _MIN_OUTLINED_SIZE
        self.box(x, y, width, height, fill, stroke="" if is_thin else None)
        text_colour = halo = ""
        if fill == HATCHED:
            text_colour = self.colours.muted
            halo = self.colours.padding
        elif label and fill in palette.FIXED_FILLS:
            text_colour = palette.ink_on(fill)
        x += width / 2
        y += height / 2 + 4
        self.text(
            x,
            y,
            label,
            anchor="middle",
            mono=True,
            size=size,
            bold=bold,
            text_colour=text_colour,
            halo=halo,
        )

    def line(
        self,
        points: Sequence[Point],
        stroke: str = "",
        *,
        width: float = 1,
        dash: str = "",
        outlined: bool = False,
    ) -> None:
        """Draws a line through points.

        Args:
            points: the points, each as `(x, y)` in px.
            stroke: the colour of the line. Defaults to the theme's colour for lines.
            width: the thickness of the line in px.
            dash: the dashes of the line as in SVG; may be empty.
            outlined: whether to add an outline, which makes pale colours visible on white.
        """
        d = "M" + "L".join(f"{x} {y}" for x, y in points)
        line = self.colours.line
        if outlined:
            self.path(d, stroke=line, width=width + 1.6, dash=dash, round_joins=True)
        self.path(d, stroke=stroke or line, width=width, dash=dash, round_joins=outlined)

    def curve(
        self,
        start: Point,
        end: Point,
        stroke: str,
        *,
        width: float = 2.5,
        is_vertical: bool = False,
    ) -> None:
        """Draws an outlined curve that is horizontal at its ends, or vertical if `is_vertical`."""
        x0, y0 = start
        x1, y1 = end
        middle = (y0 + y1) / 2 if is_vertical else (x0 + x1) / 2
        control_points = f"{middle} {y0} {middle} {y1}"
        if is_vertical:
            control_points = f"{x0} {middle} {x1} {middle}"
        d = f"M{x0} {y0}C{control_points} {x1} {y1}"
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
        text_colour: str = "",
        halo: str = "",
        mono: bool = False,
        kind: str = "",
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
            text_colour: the colour of the letters. Defaults to the theme's colour for text.
            halo: the colour of a box behind letters that are written over something else; may be
                empty. An outline of the letters would look better, but some converters paint it
                over the letters.
            mono: whether all letters have the same width, as in cells and columns. An identifier
                such as `batch_sizes` always has such letters.
            kind: the class of the SVG element; may be empty.
        """
        if not text:
            return
        mono = mono or is_identifier(text)
        attributes = _attributes(
            **{"class": kind},
            text_anchor=anchor,
            font_size=size,
            font_weight="bold" if bold else "",
            font_family=palette.MONO if mono else "",
            fill=text_colour,
        )
        self._words[attributes].append(
            f'x="{coordinate_text(x)}" y="{coordinate_text(y)}">{_escaped(text)}</text>'
        )
        # Bold letters are wider, above all if the machine has neither Helvetica nor Arial.
        width = text_width(text, size + bold / 2, mono)
        right = x + _SHARE_RIGHT_OF_ANCHOR[anchor] * width
        if halo:
            self.path(
                f"M{right - width - 1} {y - size + 1}h{width + 2}v{size + 2}h-{width + 2}z",
                fill=halo,
            )
        self.extend_to(right, y + 4)

    def note(self, x: float, y: float, text: str, anchor: str = "") -> None:
        """Writes a line of small, muted text, such as a number at an axis."""
        self.text(x, y, text, anchor=anchor, size=11, text_colour=self.colours.muted)

    def title(self, text: str, size: int = 12) -> float:
        """Writes the title at the top left, and returns the y-coordinate below it.

        The title of a stack of pictures is larger, and not bold. The web site turns what has the
        class `title` into a caption.
        """
        y = 16.0
        for line in wrap(text, _MAX_TITLE_CHARS):
            self.text(4, y, line, size=size, bold=size == 12, kind="title")
            y += 18
        return y - 10

    def paragraph(
        self, y: float, lines: Iterable[str], x: float = 4, text_colour: str | None = None
    ) -> float:
        """Writes indented lines of small, muted text, and returns the y-coordinate below them.

        The lines begin at `y`. Another `text_colour` is possible; `""` is that of other text.
        """
        size = 11
        text_colour = self.colours.muted if text_colour is None else text_colour
        for line in lines:
            words = line.lstrip(" ")
            indent = text_width(" ", size) * (len(line) - len(words))
            spaced_words = words.replace("  ", "\xa0\xa0")  # a browser draws several blanks as one
            mono = spaced_words != words
            left = x + indent
            max_chars = int((WIDTH - left) / text_width("x", size, mono))
            for wrapped_line in wrap(spaced_words, max_chars) or [""]:
                self.text(
                    left, y + size, wrapped_line, size=size, text_colour=text_colour, mono=mono
                )
                y += size + 5
        return y

    def legend(self, y: float, parts: Iterable[tuple[str, str]]) -> float:
        """Draws a legend that explains fills, and returns the x-coordinate after the legend.

        Args:
            y: the y-coordinate of the legend's top edge in px.
            parts: the fills, each with its meaning, as `(fill, words)`.
        """
        x = 4.0
        for fill, label in parts:
            self.box(x, y, 14, 12, fill)
            self.text(x + 20, y + 10, label)
            x += 36 + text_width(label)
        return x

    # The sheet.

    def start_layer(self) -> None:
        """Starts a new layer, which is painted over the earlier ones."""
        for attributes, shapes in self._paths.items():
            d = _NUMBER.sub(lambda number: coordinate_text(float(number[0])), "".join(shapes))
            self._layers.append(f'<path d="{d}"{attributes}/>')
            if attributes in self._hatched:
                hatch_path = _diagonals(self._hatched[attributes])
                self._layers.append(f'<path d="{hatch_path}" stroke="{self.colours.hatch}"/>')
        for attributes, words in self._words.items():
            if len(words) == 1:
                self._layers.append(f"<text{attributes} {words[0]}")
            else:
                self._layers.append(f"<g{attributes}><text {'<text '.join(words)}</g>")
        for parts in (self._paths, self._words, self._hatched):
            parts.clear()

    def place(self, other: Sheet, x: float, y: float) -> None:
        """Paints another sheet over this one, with its top left corner at `(x, y)`."""
        self.start_layer()
        other.start_layer()
        layers = "".join(other._layers)
        transform = f"translate({coordinate_text(x)} {coordinate_text(y)})"
        self._layers.append(f'<g transform="{transform}">{layers}</g>')
        self.extend_to(x + other.width, y + other.height)
        self.description = f"{self.description}\n{other.description}".strip("\n")

    def extend_to(self, x: float, y: float) -> None:
        """Enlarges the sheet to include the point `(x, y)`."""
        self._right = max(self._right, x)
        self._bottom = max(self._bottom, y)

    def set_size(self, width: float, height: float) -> None:
        """Sets the size of the sheet in px. By default, the sheet is as large as its contents."""
        self._size = (width, height)

    @property
    def width(self) -> float:
        """The width of the sheet in px."""
        return self._size[0] if self._size else self._right + 8

    @property
    def height(self) -> float:
        """The height of the sheet in px."""
        return self._size[1] if self._size else self._bottom + 6

    def svg(self) -> str:
        """Returns the drawing as a complete `<svg>` element with the theme's background."""
        self.start_layer()
        width = coordinate_text(self.width)
        height = coordinate_text(self.height)
        label = _escaped(self.description)
        colours = self.colours
        parts = [
            '<svg xmlns="http://www.w3.org/2000/svg" class="packviz" role="img"',
            f' width="{width}" height="{height}" viewBox="0 0 {width} {height}"',
            ' style="max-width:100%;height:auto;font-variant-numeric:tabular-nums"',
            ' font-size="12"',
            f' font-family="{palette.FONT}" fill="{colours.text}" aria-label="{label}">',
        ]
        if self.theme == "live":
            parts.append(f"<style>{palette.DARK_PAGE_STYLE}</style>")
        parts.append(f'<path d="M0 0h{width}v{height}h-{width}z" fill="{colours.ground}"/>')
        return "".join([*parts, *self._layers, "</svg>"])


def stack(title: str, sheets: Iterable[Sheet], theme: str) -> Sheet:
    """Places sheets one below the other, under a title."""
    stacked = Sheet(theme, title)
    y = stacked.title(title, 13) + 4
    for sheet in sheets:
        stacked.place(sheet, 0, y)
        y += sheet.height + 8
    stacked.set_size(stacked.width - 8, y)
    return stacked


def row(sheets: Iterable[Sheet], theme: str, gap: float = 0, max_width: float = math.inf) -> Sheet:
    """Places sheets side by side, `gap` px apart, in rows of at most `max_width` px."""
    combined = Sheet(theme)
    x = y = width = height = 0.0
    for sheet in sheets:
        if x and x + sheet.width > max_width:
            x = 0.0
            y = height
        combined.place(sheet, x, y)
        x += sheet.width + gap
        width = max(width, x - gap)
        height = max(height, y + sheet.height)
    combined.set_size(width, height)
    return combined


def is_identifier(text: str) -> bool:
    """Returns whether text is an identifier with an underscore, even if cut, as in `batch_s…`."""
    return "_" in text and text.removesuffix("…").isidentifier()


def text_width(text: str, size: float = 12, mono: bool = False, bold: bool = False) -> float:
    """Returns an upper bound, in px, for the width of text in words, or in letters of one width.

    A wide character, such as a Chinese one, counts as two.
    """
    char_width = _BOLD_LETTER_WIDTH if bold else _LETTER_WIDTH
    if mono or is_identifier(text):
        char_width = MONO_CHAR_WIDTH
    n_columns = len(text)
    if not text.isascii():
        n_columns += sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return char_width * size / 12 * n_columns


def max_text_width(texts: Iterable[str], size: float = 12, mono: bool = False) -> float:
    """Returns the greatest `text_width` of some texts; 0 if there are none."""
    return max((text_width(text, size, mono) for text in texts), default=0.0)


def coordinate_text(value: float) -> str:
    """Returns a coordinate as text, with at most two decimals and no trailing zeros."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _escaped(text: str) -> str:
    """Escapes text for XML, and replaces characters that XML does not allow."""
    return html.escape(_NOT_XML.sub("\ufffd", text))


def _attributes(**values: object) -> str:
    """Returns SVG attributes, without those whose values are empty."""
    attributes = ""
    for name, value in values.items():
        if value:
            attributes += f' {name.replace("_", "-")}="{value}"'
    return attributes


def _diagonals(boxes: Iterable[Box]) -> str:
    """Returns the diagonal lines that hatch boxes, as an SVG path.

    An SVG pattern would need a name. If two pictures on a page used the same name, a browser might
    take the pattern from the wrong picture, which might be hidden. All lines belong to one evenly
    spaced set for the whole sheet, so they continue through boxes that touch.
    """
    # On line i, x + y = i * _APART. In a box, the line runs from the left or lower side to the top
    # or right side.
    lines: dict[int, list[Point]] = defaultdict(list)
    for x, y, width, height in boxes:
        right = x + width
        bottom = y + height
        i = math.ceil((x + y) / _HATCH_SPACING)
        while i * _HATCH_SPACING < right + bottom:
            start = max(x, i * _HATCH_SPACING - bottom)
            end = min(right, i * _HATCH_SPACING - y)
            if end > start:
                lines[i].append((start, end))
            i += 1
    d = ""
    for i, intervals in sorted(lines.items()):
        for start, end in _join_intervals(intervals):
            lower_y = i * _HATCH_SPACING - start
            length = round(end - start, 1)
            if length:
                d += f"M{start:.1f} {lower_y:.1f}l{length}-{length}"
    return d.replace(".0", "")


def _join_intervals(intervals: Iterable[Point]) -> list[Point]:
    """Joins intervals `(start, end)` that overlap or touch."""
    joined_intervals: list[Point] = []
    for start, end in sorted(intervals):
        if joined_intervals and start <= joined_intervals[-1][1] + 0.05:
            start, previous_end = joined_intervals.pop()
            end = max(end, previous_end)
        joined_intervals.append((start, end))
    return joined_intervals
