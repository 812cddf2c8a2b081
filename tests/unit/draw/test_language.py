"""The visual language: the pictures in docs/ are what is drawn, and its page says what holds."""

import re
from pathlib import Path

import pictures
import pytest
from drawings import ParsedSvg

from packviz.core.layout import Layout, sequence_name
from packviz.draw import palette
from packviz.draw.palette import contrast

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("name", pictures.DRAWN)
def test_stored_pictures_are_what_is_drawn(name):
    stored = (pictures.DOCS / name).read_text(encoding="utf-8")
    assert stored == pictures.DRAWN[name]() + "\n", "draw it anew: make pictures"


def test_the_readmes_picture_is_light_and_ends_with_packed_data():
    moving, still = pictures.picture(), pictures.picture(moving=False)
    assert len(moving.encode()) <= 30_000
    assert moving.count("@keyframes") > 14
    assert "@keyframes" not in still
    cells = re.findall(r"translate\(([\d.]+)px,(\d+)px\);animation-name:c(\d+).*?>(\w\d)<", still)
    layout = Layout(pictures.LENGTHS)
    expected = [f"{sequence_name(b)}{t}" for b, t in layout.source]
    assert [label for _, _, _, label in sorted(cells, key=lambda cell: float(cell[0]))] == expected
    assert len({y for _, y, _, _ in cells}) == 1
    assert sorted(int(place) for _, _, place, _ in cells) == list(range(layout.n_real))


def test_the_palette_has_every_colour():
    words = " ".join(ParsedSvg(pictures.colours()).said())
    both = {*palette.FILLS} - {*palette.SHADES}
    assert not [colour for colour in both if words.count(colour) < 2]  # light and dark
    for theme in (palette.LIGHT, palette.DARK):
        shown = set(vars(theme).values()) - {theme.ground, theme.line}
        assert not [colour for colour in shown if colour not in words]


def test_one_colour_is_one_thing():
    methods = {**palette.METHODS}
    assert methods.pop("frozen") == methods["padded"]  # both run on padded data
    assert len(set(methods.values())) == len(methods)
    assert palette.REAL not in (*palette.SEQUENCES, *palette.METHODS.values())
    assert all(contrast(palette.REAL, theme.ground) >= 3 for theme in (palette.LIGHT, palette.DARK))


def test_no_drawing_has_a_colour_of_its_own():
    allowed = {"palette.py", "grid.py", "table.py"}  # the palette, and marked cells
    for path in (ROOT / "packviz").rglob("*.py"):
        if path.name not in allowed:
            assert not re.search(r"\"#[0-9a-fA-F]{6}\"", path.read_text(encoding="utf-8")), path
