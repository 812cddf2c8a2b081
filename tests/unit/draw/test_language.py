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


def test_the_moving_batch_is_light_and_becomes_its_layout():
    picture = pictures.moving()
    assert len(picture.encode()) <= 30_000
    pattern = r"--b:(\d);--r:(\d);--p:(\d+);animation-name:cell(\d)\">[^/]*/>[^>]*>(\w)\4</text>"
    cells = re.findall(pattern, picture, re.DOTALL)
    layout = Layout(pictures.LENGTHS)
    ranks = layout.unsorted_indices
    expected = [(b, ranks[b], p, t, sequence_name(b)) for p, (b, t) in enumerate(layout.source)]
    assert [(*map(int, cell[:4]), cell[4]) for cell in reversed(cells)] == expected
    sizes = re.findall(r"animation-name: size(\d)\">(\d)<", picture)
    assert [(int(t), int(size)) for t, size in sizes] == [*enumerate(layout.batch_sizes)]


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
