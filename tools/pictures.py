"""Draws the pictures in `docs/`. A test checks that the stored pictures are up to date."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from packviz.core.layout import sequence_name
from packviz.draw import palette
from packviz.draw.differences import BANDS
from packviz.draw.picture import show
from packviz.draw.sheet import HATCHED, Sheet, row

_SIGNS, _SHARES = (
    ("−−−", "−−", "−", "0", "+", "++", "+++"),
    ("least", "less", "half", "more", "most"),
)
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
    own, sheet, y = palette.THEMES[theme], Sheet(theme), 0.0
    differs = {f"differs, {said}": fill for fill, said in zip(palette.SHADES, BANDS, strict=True)}
    groups: list[dict[str, str]] = [
        {f"sequence {sequence_name(i)}": fill for i, fill in enumerate(palette.SEQUENCES)},
        {f"method: {name}": fill for name, fill in palette.METHODS.items()},
        {f"a number, {sign}": fill for sign, fill in zip(_SIGNS, palette.SIGNED, strict=True)},
        {f"a weight, {share}": fill for share, fill in zip(_SHARES, palette.RAMP, strict=True)},
        {"real, useful": palette.REAL, "padding, wasted work": HATCHED},
        differs
        | {
            "pointed at": own.accent,
            "wrong": own.wrong,
            "words": own.text,
            "axes and notes": own.muted,
        },
    ]
    for group in groups:
        y += 10
        for said, fill in group.items():
            if said.startswith("method"):
                sheet.line([(8, y + 10), (38, y + 10)], fill, width=2.6, outlined=True)
            else:
                sheet.box(8, y + 2, 30, 16, fill)
            for x, word in (
                (50, said),
                (220, f"{own.hatch} on {own.padding}" if fill == HATCHED else fill),
            ):
                sheet.text(x, y + 14, word, ink=own.text)
            y += 22
    whole = Sheet(theme)
    whole.box(0, 0, 380, y + 10, own.ground, stroke="")
    whole.place(sheet, 0, 0)
    whole.size(380, y + 10)
    return whole


DRAWN: Mapping[str, Callable[[], str]] = {"picture.svg": picture, "palette.svg": colours}
"""The functions that draw the pictures, by file name."""


if __name__ == "__main__":
    for name, draw in DRAWN.items():
        (DOCS / name).write_text(draw() + "\n", encoding="utf-8")
