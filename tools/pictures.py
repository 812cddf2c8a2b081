"""Draws the pictures in `docs/`. A test checks that the stored pictures are up to date."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from packviz.core.layout import sequence_name
from packviz.draw import palette
from packviz.draw.differences import BANDS
from packviz.draw.picture import show
from packviz.draw.sheet import HATCHED, Sheet, row

_SIGNS = [f"a number, {sign}" for sign in ("−−−", "−−", "−", "0", "+", "++", "+++")]
_SHARES = [f"a weight, {share}" for share in ("least", "less", "half", "more", "most")]
_BANDS = [f"differs, {band}" for band in BANDS]
DOCS = Path(__file__).resolve().parents[1] / "docs"


def picture() -> str:
    """Returns the first picture in the README."""
    return show([4, 6, 8, 5, 4, 3, 7, 8]).to_svg()


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


DRAWN: Mapping[str, Callable[[], str]] = {"picture.svg": picture, "palette.svg": colours}
"""The functions that draw the pictures, by file name."""


if __name__ == "__main__":
    for name, draw in DRAWN.items():
        (DOCS / name).write_text(draw() + "\n", encoding="utf-8")
