"""The visual language: the pictures in docs/ are what is drawn, and its page says what holds."""

import re
import struct
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pictures
import pytest
from contrast import contrast
from drawings import ParsedSvg

from packviz.core.layout import Layout, sequence_name
from packviz.draw import palette

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
    both = {*palette.FIXED_FILLS} - {*palette.DIFFERENCE_FILLS}
    assert not [colour for colour in both if words.count(colour) < 2]  # light and dark
    for theme in (palette.LIGHT, palette.DARK):
        shown = set(vars(theme).values()) - {theme.ground, theme.line}
        assert not [colour for colour in shown if colour not in words]


def test_letters_are_black_or_white_whichever_has_more_contrast():
    for fill in palette.FIXED_FILLS:
        inks = ("#000000", "#ffffff")
        assert palette.ink_on(fill) == max(inks, key=lambda ink: contrast(ink, fill))


def test_one_colour_is_one_thing():
    methods = {**palette.METHODS}
    assert methods.pop("frozen") == methods["padded"]  # both run on padded data
    assert len(set(methods.values())) == len(methods)
    assert not {*methods.values(), palette.REAL} & {*palette.SEQUENCE_FILLS}
    assert palette.REAL not in methods.values()
    for colour in (palette.REAL, *methods.values()):
        assert contrast(palette.ink_on(colour), colour) >= 4.5
        assert all(contrast(colour, theme.ground) >= 3 for theme in (palette.LIGHT, palette.DARK))


# What remains of a colour in linear RGB, from Machado, Oliveira and Fernandes (2009), severity 1.
SIGHTS = {
    "usual": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
}
TO_XYZ = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
WHITE = [0.95047, 1, 1.08883]


def lab(colour, sight):
    """Returns a colour in CIELAB, where Euclidean distance is roughly perceived difference."""
    rgb = np.array([*bytes.fromhex(colour[1:])]) / 255
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    x, y, z = np.cbrt(TO_XYZ @ np.clip(SIGHTS[sight] @ linear, 0, 1) / WHITE)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize(
    ("sight", "least"), [("usual", 40), ("protanopia", 20), ("deuteranopia", 20)]
)
def test_methods_are_told_apart_whatever_the_sight(sight, least):
    for one, other in combinations({*palette.METHODS.values()}, 2):
        assert np.linalg.norm(lab(one, sight) - lab(other, sight)) >= least, (one, other)
    for method, sequence in product(palette.METHODS.values(), palette.SEQUENCE_FILLS):
        assert np.linalg.norm(lab(method, "usual") - lab(sequence, "usual")) >= 25


def test_padding_is_seen_in_the_dark():
    assert contrast(palette.DARK.padding, palette.DARK.ground) >= 1.5


def test_the_preview_of_a_link_has_the_size_that_sites_ask_for():
    size = struct.unpack(">II", (pictures.DOCS / "preview.png").read_bytes()[16:24])
    assert size == (1200, 630)


def test_no_drawing_has_a_colour_of_its_own():
    allowed = {"palette.py", "grid.py", "table.py"}  # the palette, and marked cells
    for path in (ROOT / "packviz").rglob("*.py"):
        if path.name not in allowed:
            assert not re.search(r"\"#[0-9a-fA-F]{6}\"", path.read_text(encoding="utf-8")), path
