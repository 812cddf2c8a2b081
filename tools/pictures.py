"""Draws the pictures in `docs/`. A test checks that the stored pictures are up to date."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from packviz.core.layout import Layout, sequence_name
from packviz.draw import palette
from packviz.draw.differences import BANDS
from packviz.draw.sheet import HATCHED, Sheet, row

_SIGNS = [f"a number, {sign}" for sign in ("−−−", "−−", "−", "0", "+", "++", "+++")]
_SHARES = [f"a weight, {share}" for share in ("least", "less", "half", "more", "most")]
_BANDS = [f"differs, {band}" for band in BANDS]
DOCS = Path(__file__).resolve().parents[1] / "docs"

LENGTHS = (3, 5, 2, 4)
"""The lengths of the batch in the README's picture."""
# The README's picture: sizes in px.
_LEFT = 76
_TOP = 48
_WIDE = 42
_HIGH = 28
_DATA = 228
_SIZE = (640, 272)
# Moments in seconds, and the time that a column takes to travel.
_SORT, _SORTED = 1.6, 2.8
_DROP, _DROPPED = 3.4, 4.2
_LEAVE, _APART, _TRAVEL = 4.8, 0.8, 1.1
_BACK, _END = 12.0, 12.6
_WORDS = ("1. pad", "2. sort, longest first", "3. drop the padding", "4. store column by column")


def picture(moving: bool = True) -> str:
    """Returns the README's picture: a batch that is sorted, loses its padding, and is packed.

    The parts are drawn as they are in the end, and keyframes move them. Browsers do not tell a
    picture that its reader prefers reduced motion, so the README has another one without keyframes.
    """
    layout = Layout(LENGTHS)
    moves: list[str] = []
    rows = [_row(layout, b, moves) for b in range(layout.batch_size)]
    columns = [_column(layout, t, moves) for t in range(layout.max_len)]
    words = [_word(i, moves) for i in range(len(_WORDS))]
    width, height = _SIZE
    moves.append(_keyframes("padding", "opacity", {_DROP: "1", _DROPPED: "0"}))
    rules = "".join([_style(), ".gone{opacity:.2}", *moves]) if moving else _style()
    name = "Rows of lengths 3, 5, 2 and 4 are sorted, lose their padding, and move into data"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}"'
        f' height="{height}" role="img" aria-label="{name}, column by column">',
        f"<style>{rules}</style>",
        '<pattern id="hatch" width="7" height="7" patternUnits="userSpaceOnUse"'
        ' patternTransform="rotate(45)"><rect class="soft" width="7" height="7"/>'
        '<path class="lines" d="M0 0V7"/></pattern>',
        f'<rect class="ground" width="{width}" height="{height}" rx="8"/>',
        *rows,
        *columns,
        *words,
        f'<text class="quiet start" x="8" y="{_DATA - 8}">data</text>',
        "</svg>",
    ]
    return "\n".join(parts)


def _style() -> str:
    """Returns the rules for both themes, and for everything that moves."""

    def colours(theme: palette.Theme) -> str:
        return ";".join(f"--{name}:{colour}" for name, colour in vars(theme).items())

    return (
        f":root{{{colours(palette.LIGHT)}}}"
        f"@media(prefers-color-scheme:dark){{:root{{{colours(palette.DARK)}}}}}"
        f"text{{font:13px {palette.FONT};fill:var(--text);text-anchor:middle}}"
        ".start{text-anchor:start}.word{font-family:system-ui,sans-serif;font-size:15px}"
        ".quiet{fill:var(--muted)}.strong{font-weight:700}"
        ".ground{fill:var(--ground)}.soft{fill:var(--padding)}.lines{stroke:var(--hatch)}"
        ".cell,.padding{stroke:var(--line);stroke-width:.6}"
        ".padding{fill:url(#hatch);opacity:0;animation-name:padding}"
        f"*{{animation:{_END}s ease-in-out infinite}}"
    )


def _keyframes(name: str, rule: str, values: Mapping[float, str]) -> str:
    """Returns keyframes in which a part has the given values at these seconds.

    The last value stays until the picture begins again.
    """
    stops = [*values.values()]
    moments = {0.0: stops[0], **values, _BACK: stops[-1], _END: stops[0]}
    frames = [f"{second / _END:.2%}{{{rule}:{value}}}" for second, value in moments.items()]
    return f"@keyframes {name}{{{''.join(frames)}}}"


def _move(x: float, y: float) -> str:
    return f"translate({x:g}px,{y:g}px)"


def _row(layout: Layout, b: int, moves: list[str]) -> str:
    """Draws the name, the length and the padding of a sequence, and where its cells were."""
    length = int(layout.lengths[b])
    rank = int(layout.unsorted_indices[b])
    before = _move(0, _TOP + _HIGH * b)
    after = _move(0, _TOP + _HIGH * rank)
    moves.append(_keyframes(f"r{b}", "transform", {_SORT: before, _SORTED: after}))
    middle = _HIGH / 2 + 5
    fill = palette.sequence_colour(b)
    end = _LEFT + length * _WIDE
    padding = []
    for t in range(layout.max_len - length):
        x = end + t * _WIDE
        padding.append(f'<rect class="padding" x="{x}" width="{_WIDE}" height="{_HIGH}"/>')
    return (
        f'<g style="transform:{after};animation-name:r{b}">'
        f'<text class="strong" x="20" y="{middle:g}">{sequence_name(b)}</text>'
        f'<text class="quiet" x="52" y="{middle:g}">{length}</text>'
        f'<rect x="{_LEFT}" width="{length * _WIDE}" height="{_HIGH}" class="gone" fill="{fill}"/>'
        f"{''.join(padding)}</g>"
    )


def _column(layout: Layout, t: int, moves: list[str]) -> str:
    """Draws the cells of a time step, which move into `data`, and the batch size."""
    size = int(layout.batch_sizes[t])
    leaves = _LEAVE + _APART * t
    arrives = leaves + _TRAVEL
    moves.append(_keyframes(f"s{t}", "opacity", {leaves: "0", arrives: "1"}))
    middle = _LEFT + (t + 0.5) * _WIDE
    foot = _TOP + _HIGH * layout.batch_size + 18
    x = _LEFT + t * _WIDE
    parts = [
        f'<text class="quiet" x="{middle:g}" y="{_TOP - 8}">{t or "t=0"}</text>',
        f'<text class="strong" x="{middle:g}" y="{foot}" style="animation-name:s{t}">{size}</text>',
    ]
    if t == 0:
        parts.append(f'<text class="quiet" x="28" y="{_TOP - 8}">length</text>')
    if t == layout.max_len - 1:
        parts.append(f'<text class="quiet" x="{middle + 72:g}" y="{foot}">batch_sizes</text>')
    for rank in reversed(range(size)):  # a cell travels downwards, in front of those below it
        b = int(layout.sorted_indices[rank])
        place = int(layout.offsets[t]) + rank
        before = _move(x, _TOP + _HIGH * b)
        between = _move(x, _TOP + _HIGH * rank)
        after = _move(8 + place * _WIDE + 8 * t, _DATA)
        path = {_SORT: before, _SORTED: between, leaves: between, arrives: after}
        moves.append(_keyframes(f"c{place}", "transform", path))
        fill = palette.sequence_colour(b)
        label = f"{sequence_name(b)}{t}"
        parts.append(
            f'<g style="transform:{after};animation-name:c{place}">'
            f'<rect class="cell" width="{_WIDE}" height="{_HIGH}" fill="{fill}"/>'
            f'<text x="{_WIDE / 2:g}" y="{_HIGH / 2 + 5:g}"'
            f' style="fill:{palette.ink_on(fill)}">{label}</text></g>'
        )
    return "".join(parts)


def _word(i: int, moves: list[str]) -> str:
    """Writes what happens in one stage. It is pale before."""
    begins = (0.0, _SORT, _DROP, _LEAVE)[i]
    y = 62 + 30 * i
    style = ""
    if i:
        moves.append(_keyframes(f"w{i}", "opacity", {begins: ".25", begins + 0.4: "1"}))
        style = f' style="animation-name:w{i}"'
    return f'<text class="word start" x="400" y="{y}"{style}>{_WORDS[i]}</text>'


def colours() -> str:
    """Returns a picture of the palette in both themes."""
    both = row([_colours(theme) for theme in ("light", "dark")], "light")
    both.description = "The colours of packviz and what each means, light and dark"
    return both.svg()


def _colours(theme: str) -> Sheet:
    own = palette.THEMES[theme]
    fills: dict[str, str] = {}
    for i, fill in enumerate(palette.SEQUENCES):
        fills[f"sequence {sequence_name(i)}"] = fill
    for name, fill in palette.METHODS.items():
        fills[f"method: {name}"] = fill
    fills |= zip(_SIGNS, palette.SIGNED, strict=True)
    fills |= zip(_SHARES, palette.RAMP, strict=True)
    fills |= zip(_BANDS, palette.SHADES, strict=True)
    fills |= {"real, useful": palette.REAL, "padding, wasted work": HATCHED}
    fills |= {"pointed at": own.accent, "wrong": own.wrong}
    fills |= {"words": own.text, "axes and notes": own.muted}
    sheet = Sheet(theme)
    sheet.box(0, 0, 380, 22 * len(fills) + 20, own.ground, stroke="")
    for i, (name, fill) in enumerate(fills.items()):
        y = 10 + 22 * i
        sheet.box(8, y + 2, 30, 16, fill)
        sheet.text(50, y + 14, name, ink=own.text)
        code = f"{own.hatch} on {own.padding}" if fill == HATCHED else fill
        sheet.text(220, y + 14, code, ink=own.text)
    sheet.size(380, 22 * len(fills) + 20)
    return sheet


DRAWN: Mapping[str, Callable[[], str]] = {
    "picture.svg": picture,
    "still.svg": partial(picture, moving=False),
    "palette.svg": colours,
}
"""The functions that draw the pictures, by file name."""


if __name__ == "__main__":
    for name, draw in DRAWN.items():
        (DOCS / name).write_text(draw() + "\n", encoding="utf-8")
