"""Draws the pictures in `docs/`. A test checks that the stored pictures are up to date."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from browser.chromium import new_page
from nbtools.execute import small

from packviz.core.layout import Layout, sequence_name
from packviz.draw import palette
from packviz.draw.differences import FILL_MEANINGS
from packviz.draw.picture import show
from packviz.draw.sheet import HATCHED, Sheet, row

_SIGNS = [f"a number, {sign}" for sign in ("−−−", "−−", "−", "0", "+", "++", "+++")]
_SHARES = [f"a weight, {share}" for share in ("least", "less", "half", "more", "most")]
_BANDS = [f"differs, {band}" for band in FILL_MEANINGS]
DOCS = Path(__file__).resolve().parents[1] / "docs"

LENGTHS = (3, 5, 2, 4)
"""The lengths of the batch in the README's pictures."""

EXAMPLE = (4, 6, 8, 5, 4, 3, 7, 8)
"""The lengths of the batch in the preview picture of a link to the site."""

# The README's batch in motion. A sequence has row b, and row r when the batch is sorted; a cell has
# step t and place p in `data`, and is 42 × 28 px. The style computes the places from these numbers.
_MOVING = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 272" width="640" height="272"
role="img" aria-label="Rows of lengths 3, 5, 2 and 4 are sorted, lose their padding, and move into
data, column by column">
<style>
:root {{ {0} }}
@media (prefers-color-scheme: dark) {{ :root {{ {1} }} }}
text {{ font: 13px {font}; fill: var(--text); text-anchor: middle; }}
.start {{ text-anchor: start; }}
.word {{ font: 15px system-ui, sans-serif; }}
.quiet {{ fill: var(--muted); }}
.strong {{ font-weight: 700; }}
.ground {{ fill: var(--ground); }}
.edge {{ stroke: var(--line); stroke-width: 0.6; }}
* {{ animation: 12.6s ease-in-out infinite; }}
.row {{ animation-name: row; }}
@keyframes row {{
  0%, 13%, 100% {{ transform: translateY(calc(48px + 28px * var(--b))); }}
  22%, 95% {{ transform: translateY(calc(48px + 28px * var(--r))); }}
}}
.padding {{ animation-name: padding; }}
@keyframes padding {{ 0%, 27%, 100% {{ opacity: 1; }} 33%, 95% {{ opacity: 0; }} }}
.w1 {{ animation-name: w1; }}
@keyframes w1 {{ 0%, 13%, 100% {{ opacity: 0.25; }} 16%, 95% {{ opacity: 1; }} }}
.w2 {{ animation-name: w2; }}
@keyframes w2 {{ 0%, 27%, 100% {{ opacity: 0.25; }} 30%, 95% {{ opacity: 1; }} }}
.w3 {{ animation-name: w3; }}
@keyframes w3 {{ 0%, 38%, 100% {{ opacity: 0.25; }} 41%, 95% {{ opacity: 1; }} }}
</style>
<pattern id="hatch" width="7" height="7" patternUnits="userSpaceOnUse"
patternTransform="rotate(45)"><rect width="7" height="7" fill="var(--padding)"/>
<path d="M0 0V7" stroke="var(--hatch)"/></pattern>
<rect class="ground" width="640" height="272" rx="8"/>
<text class="quiet" x="34" y="40">length</text>
<text class="quiet" x="338" y="178">batch_sizes</text>
<text class="quiet start" x="8" y="220">data</text>
<text class="word start" x="400" y="62">1. pad</text>
<text class="word start w1" x="400" y="92">2. sort, longest first</text>
<text class="word start w2" x="400" y="122">3. drop the padding</text>
<text class="word start w3" x="400" y="152">4. store column by column</text>
{parts}
</svg>"""
_PREVIEW = """<body style="margin: 40px 60px; font: 27px Helvetica, Arial, sans-serif">
<b style="font-size: 58px">packviz</b><br>See what padding does to your RNN.<br>
<style>svg { margin: 24px 0 0 120px; zoom: 1.22 }</style>"""
_ROW = """<g class="row" style="--b:{b};--r:{r}"><text class="strong" x="20" y="19">{name}</text>
<text class="quiet" x="52" y="19">{length}</text>
<rect class="edge padding" x="76" width="210" height="28" fill="url(#hatch)"/>
<g transform="translate(76) scale({length} 1)"><rect class="ground" width="42" height="28"/>
<rect width="42" height="28" fill="{fill}" opacity="0.2"/></g></g>"""
_COLUMN = """<style>@keyframes size{t} {{
  0%, {leaves}%, 100% {{ opacity: 0; }} {arrives}%, 95% {{ opacity: 1; }}
}}
@keyframes cell{t} {{
  0%, 13%, 100% {{ transform: translate(calc(42px * {t}), calc(28px * var(--b))); }}
  22%, {leaves}% {{ transform: translate(calc(42px * {t}), calc(28px * var(--r))); }}
  {arrives}%, 95% {{ transform: translate(calc(8px * {t} - 68px + 42px * var(--p)), 180px); }}
}}</style>
<g style="transform: translateX(calc(97px + 42px * {t}))"><text class="quiet" y="40">{t}</text>
<text class="strong" y="178" style="animation-name: size{t}">{size}</text></g>"""
_CELL = """<g style="--b:{b};--r:{r};--p:{p};animation-name:cell{t}">
<rect class="edge" x="76" y="48" width="42" height="28" fill="{fill}"/>
<text x="97" y="67" style="fill:{ink}">{name}{t}</text></g>"""


def moving() -> str:
    """Returns the README's picture: a batch that is sorted, loses its padding, and is packed."""
    layout = Layout(LENGTHS)
    ranks = layout.unsorted_indices
    parts = []
    for b, length in enumerate(LENGTHS):
        row_of = {"b": b, "r": ranks[b], "length": length, "name": sequence_name(b)}
        parts.append(_ROW.format(**row_of, fill=palette.SEQUENCE_FILLS[b]))
    for t, size in enumerate(layout.batch_sizes):
        leaves = 38 + 6 * t
        parts.append(_COLUMN.format(t=t, size=size, leaves=leaves, arrives=leaves + 9))
    # A cell travels downwards, in front of those below it.
    for p, (b, t) in reversed([*enumerate(layout.source)]):
        fill = palette.SEQUENCE_FILLS[b]
        cell = {"b": b, "r": ranks[b], "t": t, "p": p, "name": sequence_name(b), "fill": fill}
        parts.append(_CELL.format(**cell, ink=palette.ink_on(fill)))
    colours = []
    for theme in (palette.LIGHT, palette.DARK):
        colours.append("".join(f"--{name}:{colour};" for name, colour in vars(theme).items()))
    return _MOVING.format(*colours, font=palette.FONT, parts="\n".join(parts))


def colours() -> str:
    """Returns a picture of the palette in both themes."""
    both = row([_colours(theme) for theme in ("light", "dark")], "light")
    both.description = "The colours of packviz and what each means, light and dark"
    return both.svg()


def _colours(theme: str) -> Sheet:
    own = palette.THEMES[theme]
    fills = {f"sequence {sequence_name(i)}": fill for i, fill in enumerate(palette.SEQUENCE_FILLS)}
    fills |= {f"method: {name}": fill for name, fill in palette.METHODS.items()}
    fills |= zip(_SIGNS, palette.SIGNED_FILLS, strict=True)
    fills |= zip(_SHARES, palette.RAMP, strict=True)
    fills |= zip(_BANDS, palette.DIFFERENCE_FILLS, strict=True)
    fills |= {"real, useful": palette.REAL, "padding, wasted work": HATCHED}
    fills |= {"pointed at": own.accent, "wrong": own.wrong, "right": own.right}
    fills |= {"words": own.text, "axes and notes": own.muted}
    sheet = Sheet(theme)
    height = 22 * len(fills) + 20
    sheet.box(0, 0, 380, height, own.ground, stroke="")
    y = 10
    for name, fill in fills.items():
        sheet.box(8, y + 2, 30, 16, fill)
        code = f"{own.hatch} on {own.padding}" if fill == HATCHED else fill
        for x, words in ((50, name), (220, code)):
            sheet.text(x, y + 14, words, text_colour=own.text)
        y += 22
    sheet.set_size(380, height)
    return sheet


def preview() -> bytes:
    """Returns the preview picture of a link to the site, as PNG."""
    page = f"{_PREVIEW}{show(EXAMPLE).to_svg()}"
    with new_page(viewport={"width": 1200, "height": 630}) as tab:
        tab.set_content(page)
        return small(tab.screenshot())


DRAWN: Mapping[str, Callable[[], str]] = {
    "moving.svg": moving,
    "picture.svg": lambda: show(LENGTHS).to_svg(),  # for readers who prefer reduced motion
    "palette.svg": colours,
}
"""The functions that draw the pictures, by file name."""


if __name__ == "__main__":
    for name, draw in DRAWN.items():
        (DOCS / name).write_text(draw() + "\n", encoding="utf-8")
    (DOCS / "preview.png").write_bytes(preview())
