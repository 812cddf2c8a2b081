"""Grids of differences: what stands where, and how it is marked."""

import math
import re
from html import escape

import numpy as np
import pytest
from drawings import ParsedSvg
from hypothesis import given
from hypothesis import strategies as st

from packviz.draw import differences, palette
from packviz.draw.differences import Differences
from packviz.draw.palette import DIFFERENCE_FILLS
from packviz.draw.sheet import WIDTH
from packviz.draw.text import format_share, short_share

VALUES = st.one_of(st.floats(0, 1e6), st.sampled_from([0.0, 1e-12, math.nan, math.inf]))


@st.composite
def random_grids(draw):
    rows, columns = draw(st.integers(1, 20)), draw(st.integers(1, 20))
    values = np.array(
        draw(st.lists(VALUES, min_size=rows * columns, max_size=rows * columns))
    ).reshape(rows, columns)
    padding = None
    if draw(st.booleans()):
        lengths = np.array(draw(st.lists(st.integers(1, columns), min_size=rows, max_size=rows)))
        padding = np.arange(columns) >= lengths[:, None]
    names = [chr(97 + r) for r in range(rows)], [str(c) for c in range(columns)]
    return Differences(
        "some difference",
        *names,
        values,
        ~(values <= 1e-6),
        draw(st.sampled_from([0.0, 1.0])),
        padding,
    )


def cells(svg, fill):
    """The cells of this fill, a stretch counted cell by cell, without the key below."""
    drawing = ParsedSvg(svg)
    size = {round(b.width, 3) for b in drawing.boxes}
    assert size
    return [b for b in drawing.boxes if b.fill == fill and b.y < drawing.height - 35]


@given(random_grids())
def test_every_cell_that_differs_is_lit_up_and_marked(grid):
    svg = differences.draw([grid], "title", "light").svg()
    few = max(len(grid.rows), len(grid.columns)) <= 16
    wanted = dict.fromkeys(range(4), 0)
    for r in range(len(grid.rows)):
        for c in range(len(grid.columns)):
            if grid.shade_indices[r, c] >= 0:
                wanted[grid.shade_indices[r, c]] += 1
    (frame,) = [b for b in ParsedSvg(svg).boxes if b.fill == "none"]
    width = frame.width / len(grid.columns)
    for shade, count in wanted.items():
        drawn = sum(round(b.width / width) for b in cells(svg, DIFFERENCE_FILLS[shade]))
        assert drawn == count
    lit = sum(wanted.values())
    if few:  # a number in bold
        looks = [
            e
            for e in ParsedSvg(svg).elements
            if e.get("font-weight") == "bold" and e.get("font-size") == "11"
        ]
        assert sum(len(look) or 1 for look in looks) == lit
    else:  # a line through it
        struck = re.search(r'<path d="([^"]*)" fill="none" stroke="#000000"', svg)
        total = sum(float(n) for n in re.findall(r"h([\d.]+)", struck[1])) if struck else 0
        assert round(total / width) == lit


@given(random_grids())
def test_the_text_has_every_cell(grid):
    title, _, *rows = grid.to_text()
    assert title.startswith("some difference")
    assert len(rows) == len(grid.rows)
    for r, line in enumerate(rows):
        name, *said = line.split()
        assert name == grid.rows[r]
        for c, cell in enumerate(said):
            inside = format_share(grid.relative_differences[r, c]) if grid.differs[r, c] else "="
            assert cell == (
                f"[{inside}]" if (grid.padding is not None and grid.padding[r, c]) else inside
            )


def test_padding_is_hatched_and_never_lit_up():
    grid = Differences(
        "d",
        ["a"],
        ["0", "1"],
        np.array([[0.5, 0.5]]),
        np.array([[True, True]]),
        1,
        np.array([[False, True]]),
    )
    assert grid.shade_indices.tolist() == [[2, -1]]
    svg = differences.draw([grid], "", "light").svg()
    assert len(cells(svg, DIFFERENCE_FILLS[2])) == 1
    padding = [box for box in ParsedSvg(svg).boxes if box.fill == palette.LIGHT.padding]
    assert sum(bool(box.stroke) for box in padding) == 2  # the cell and the key, not the number
    assert svg.count(">50%<") == 2


@pytest.mark.parametrize(
    ("value", "shade"),
    [(0.0101, 1), (0.0099, 0), (0.099, 1), (0.11, 2), (7, 2), (math.nan, 3), (math.inf, 3)],
)
def test_shades_are_shares_of_the_scale(value, shade):
    grid = Differences("d", ["a"], ["0"], np.array([[value * 5]]), np.array([[True]]), 5.0)
    assert grid.shade_indices[0, 0] == shade
    # The number in the cell is that share, too, and so is what the text says.
    assert f">{escape(short_share(value))}<" in differences.draw([grid], "", "light").svg()
    assert grid.to_text()[-1].split() == ["a", format_share(value)]


@given(st.lists(random_grids(), min_size=1, max_size=5), st.sampled_from(list(palette.THEMES)))
def test_grids_stay_within_the_picture_and_apart(drawn, theme):
    drawing = ParsedSvg(differences.draw(drawn, "title", theme).svg())
    assert drawing.width >= WIDTH
    assert not drawing.outside()
    frames = [b for b in drawing.boxes if b.fill == "none"]
    assert len(frames) == len(drawn)
    for i, one in enumerate(frames):
        assert one.right <= drawing.width
        for other in frames[i + 1 :]:
            assert (
                one.right <= other.x
                or other.right <= one.x
                or one.bottom <= other.y
                or other.bottom <= one.y
            )


def test_of_many_rows_some_are_drawn():
    values = np.full((1000, 3), [[0.0, 0.5, 9.0]])
    grid = Differences("d", [str(r) for r in range(1000)], list("012"), values, values > 0, 10.0)
    drawing = ParsedSvg(grid.sheet("light").svg())
    assert "d, one in 5 of 1,000 rows" in drawing.said()
    assert sum(box.fill == DIFFERENCE_FILLS[1] for box in drawing.boxes) == 200
