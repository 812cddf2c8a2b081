"""The staircase over a batch: what its rectangles hold, where they are drawn, and what the chart
beside them shows.
"""

import re

import numpy as np
import pytest
from drawings import ParsedSvg
from hypothesis import example, given
from hypothesis import strategies as st

from packviz.core.layout import Layout
from packviz.draw import palette
from packviz.draw.palette import LIGHT, REAL, SEQUENCE_FILLS
from packviz.draw.stairs import Stairs, plot_trade_off

few = st.lists(st.integers(1, 16), min_size=1, max_size=16)
many = st.lists(st.integers(1, 600), min_size=17, max_size=400)


@st.composite
def staircases(draw, lengths=few | many):
    n = draw(lengths)
    longest = max(n)
    inner = draw(st.sets(st.integers(1, longest - 1), max_size=40)) if longest > 1 else set()
    extra = draw(st.integers(0, 3))
    return Stairs(Layout(n, longest + extra), (0, *sorted(inner), longest))


def computed(stairs):
    """`(B, T)` which cells lie in a rectangle, the longest sequence first: cell by cell."""
    cells = np.zeros((stairs.layout.batch_size, stairs.layout.max_len), dtype=int)
    for a, b, n in stairs.rectangles:
        cells[:n, a:b] += 1
    return cells


@given(staircases())
def test_every_real_cell_lies_in_one_rectangle_and_the_rest_is_counted(stairs):
    cells = computed(stairs)
    real = stairs.layout.mask[stairs.layout.sorted_indices]
    assert cells.max() == 1
    assert cells[real].all()
    assert stairs.cells == cells.sum()
    assert stairs.wasted == (cells & ~real).sum()
    assert stairs.calls == len(stairs.cuts) - 1
    assert f"{stairs.wasted:,} padding" in stairs.summary()
    # No lower, and no narrower: every rectangle begins with a real step of all its sequences.
    for a, _, n in stairs.rectangles:
        assert real[:n, a].all()


@pytest.mark.parametrize("cuts", [(0, 5), (0, 9, 9), (1, 9), (0, 5, 3, 9), (0,), ()])
def test_cuts_that_are_none(cuts):
    with pytest.raises(ValueError, match="from 0 to 9"):
        Stairs([9, 4], cuts)


# The drawing.


def grid(stairs, theme="light"):
    """The drawing, the origin of its grid, the width of a step and the height of a row."""
    drawing = ParsedSvg(stairs.to_svg(theme))
    dashed = next(
        e for e in drawing.elements if e.get("stroke-dasharray") and e.tag.endswith("path")
    )
    x, y, width, height = map(
        float, re.fullmatch(r"M(\S+) (\S+)h(\S+)v(\S+)h-\S+z", dashed.get("d")).groups()
    )
    rows = -(-stairs.layout.batch_size // stride(stairs))
    return drawing, x, y, width / stairs.layout.max_len, height / rows


def stride(stairs):
    return -(-stairs.layout.batch_size // 330) | 1


def near(one, other):
    return abs(one - other) < 0.03


@given(staircases())
@example(Stairs([9, 8, 6, 4, 3, 2], (0, 4, 6, 9)))
@example(Stairs(range(1, 513), (0, 100, 512)))
def test_rectangles_and_real_cells_stand_where_they_belong(stairs):
    drawing, x, y, width, height = grid(stairs)
    hatched = [b for b in drawing.boxes if b.fill == LIGHT.padding][:-1]  # without that of the key
    for box, (a, b, n) in zip(hatched, stairs.rectangles, strict=True):
        rows = -(-n // stride(stairs))
        assert near(box.x, x + a * width)
        assert near(box.right, x + b * width)
        assert near(box.y, y)
        assert near(box.bottom, y + rows * height)
    order = stairs.layout.sorted_indices[:: stride(stairs)].tolist()
    named = (
        len(order) <= 30
    )  # with more rows there is no room for a name, and colours would tell nobody apart
    real = [b for b in drawing.boxes if b.fill in (SEQUENCE_FILLS if named else [palette.REAL])][
        :-1
    ]
    reach = {}
    for box in real:
        r = round((box.y - y) / height)
        assert box.fill == (palette.sequence_colour(order[r]) if named else palette.REAL)
        assert near(box.height, height)
        reach[r] = max(reach.get(r, 0), box.right)
    assert all(near(reach[r], x + stairs.layout.lengths[b] * width) for r, b in enumerate(order))
    outlines = [box for box in drawing.boxes if box.stroke == LIGHT.accent]
    places = [(box.x, box.right, box.bottom) for box in hatched]
    assert [(box.x, box.right, box.bottom) for box in outlines] in (places, [])
    assert outlines or max(stairs.cuts) * width / stairs.calls < 6


@given(staircases(), st.sampled_from(["light", "dark", "live"]))
@example(Stairs([1], (0, 1)), "light")
@example(Stairs([10**5, 3], (0, 10**5)), "light")
@example(Stairs(range(1, 513), range(513)), "dark")
def test_texts_are_in_the_picture_and_apart(stairs, theme):
    drawing = ParsedSvg(stairs.to_svg(theme))
    assert drawing.outside() == drawing.covered() == []


def test_a_large_picture_stays_light_and_is_the_same_twice():
    stairs = Stairs(np.arange(512, 0, -1), range(513))
    assert stairs.to_svg() == stairs.to_svg()
    assert len(stairs.to_svg()) < 40_000


# The chart.


@st.composite
def trade_offs(draw):
    calls = sorted({1, *draw(st.sets(st.integers(2, 600), max_size=20))})
    size = len(calls)
    wasted = sorted(
        draw(st.lists(st.integers(0, 10**7), min_size=size, max_size=size)), reverse=True
    )
    costs = draw(st.lists(st.floats(1e-3, 1e2), min_size=size, max_size=size))
    return calls, wasted, costs, draw(st.sampled_from(calls))


def curves(drawing):
    """The points of the two curves, cost first."""
    found = []
    for element in drawing.elements:
        if (
            element.get("stroke") == REAL
            and element.get("stroke-linejoin")
            and not element.get("stroke-dasharray")
        ):
            for line in element.get("d")[1:].split("M"):
                points = line.split("L")
                found.append([tuple(map(float, point.split())) for point in points])
    return found


@given(trade_offs())
@example(([1], [0], [1e-3], 1))
@example(([1, 2], [7, 0], [1.0, 0.9], 2))
def test_curves_and_cursor(given):
    calls, wasted, costs, at = given
    chart = plot_trade_off(calls, wasted, costs, at)
    drawing = ParsedSvg(chart.to_svg())
    left, right = curves(drawing)
    assert np.allclose(np.diff([x for x, _ in left]), np.diff([x for x, _ in right]), atol=0.03)
    assert sorted({x for x, _ in left}) == [x for x, _ in left]  # rising, none on another
    cursor = "".join(e.get("d", "") for e in drawing.elements)
    for points, values in ((left, costs), (right, wasted)):
        foot = max(y for _, y in points)
        for (_, y), value in zip(points, values, strict=True):
            span = max(values) - min(values)
            assert near(
                foot - y,
                (value - min(values)) / span * (foot - min(y for _, y in points)) if span else 0,
            )
        x, y = (f"{value:.2f}".rstrip("0").rstrip(".") for value in points[calls.index(at)])
        assert f"L{x} {y}" in cursor
    assert f"cost relative to one rectangle: {costs[calls.index(at)]:.2f}" in drawing.said()
    assert not drawing.outside()
    lines = chart.to_text().splitlines()
    assert [line.split()[0] for line in lines if "lowest" in line] == [
        str(calls[costs.index(min(costs))])
    ]
    assert [line.split()[0] for line in lines if "here" in line] == [str(at)]
