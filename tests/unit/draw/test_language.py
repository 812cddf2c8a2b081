"""The visual language: the pictures in docs/ are what is drawn, and its page says what holds."""

import re
from pathlib import Path

import pictures
import pytest
from drawings import ParsedSvg

from packviz.draw import palette
from packviz.draw.palette import contrast

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("name", pictures.DRAWN)
def test_stored_pictures_are_what_is_drawn(name):
    stored = (pictures.DOCS / name).read_text(encoding="utf-8")
    assert stored == pictures.DRAWN[name]() + "\n", "draw it anew: python tools/pictures.py"


def test_the_palette_has_every_colour():
    said = " ".join(ParsedSvg(pictures.colours()).said())
    for colour in (
        *palette.SEQUENCES,
        *palette.METHODS.values(),
        *palette.SIGNED,
        *palette.RAMP,
        palette.REAL,
    ):
        assert said.count(colour) >= 2, colour  # light and dark
    for theme in (palette.LIGHT, palette.DARK):
        assert not [
            colour
            for name, colour in vars(theme).items()
            if name not in ("ground", "line") and colour not in said
        ]


def test_one_colour_is_one_thing():
    assert len(set(palette.METHODS.values())) == len(palette.METHODS)
    assert palette.REAL not in (*palette.SEQUENCES, *palette.METHODS.values())
    assert all(contrast(palette.REAL, theme.ground) >= 3 for theme in (palette.LIGHT, palette.DARK))


def test_no_drawing_has_a_colour_of_its_own():
    allowed = {"palette.py", "grid.py", "table.py"}  # the palette, and shades with their signs
    found = {
        path.name: re.findall(r"\"#[0-9a-fA-F]{6}\"", path.read_text(encoding="utf-8"))
        for path in (ROOT / "packviz").rglob("*.py")
        if path.name not in allowed
    }
    assert {name: colours for name, colours in found.items() if colours} == {}
