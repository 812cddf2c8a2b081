"""Curves of times against sizes: drawn, said, and as a chart."""

import json
import re
from itertools import pairwise

import numpy as np
import pytest
from drawings import ParsedSvg
from hypothesis import example, given
from hypothesis import strategies as st

from packviz.draw import palette
from packviz.draw.curves import (
    COLOURS,
    DASHES,
    Curve,
    Plot,
    Sweep,
    doublings,
    log_ticks,
    spread_labels,
    ticks,
)
from packviz.draw.plots import log_log

numbers = st.floats(1e-4, 1e6)


def curve(name="padded", method=0, source=0, x=(1, 2, 4), y=(1.0, 2.0, 3.0)):
    return Curve(name, method, source, x, y, [0.9 * v for v in y], [1.2 * v for v in y])


def sweep(*curves, sources=("here",), planned=(), notes=()):
    return Sweep(
        "Title", [[Plot("one", curves, planned), Plot("two", [])]], sources, notes, "the text"
    )


def paths(svg, **wanted):
    """The `d` of every path with these attributes."""
    found = [e for e in ParsedSvg(svg).elements if e.tag.endswith("path")]
    return [
        e.get("d") for e in found if all(e.get(k.replace("_", "-")) == v for k, v in wanted.items())
    ]


def points(path):
    return np.array(
        [[float(n) for n in pair.split()] for pair in path[1:].removesuffix("h.1").split("L")]
    )


def coordinates(drawn, method=0):
    (line,) = paths(drawn, stroke=COLOURS[method], fill="none")
    return points(line)


# Axes.


@given(numbers, numbers)
def test_ticks_are_round_and_enclose(one, other):
    low, high = sorted((one, other))
    found = ticks(low, high)
    assert found[0] <= low
    assert found[-1] >= high * (1 - 1e-9)
    assert 2 <= len(found) <= 7
    steps = np.diff(found)
    assert np.allclose(steps, steps[0], rtol=1e-6)
    assert f"{steps[0]:.1e}"[0] in "125"


@given(numbers, numbers)
@example(1.0, 1.0)
@example(0.001, 0.001)
def test_ticks_of_a_logarithmic_axis_are_round_and_enclose(one, other):
    low, high = sorted((one, other))
    found = log_ticks(low, high)
    assert found[0] <= low * (1 + 1e-6)
    assert found[-1] >= high * (1 - 1e-6)
    assert 2 <= len(found) <= 14
    assert found == sorted(set(found))
    assert all(f"{value:.3e}"[:5] in ("1.000", "2.000", "5.000") for value in found)
    assert all(f"{value:.0e}"[0] == "1" for value in found[1:-1]) or len(found) <= 8


def test_sizes_that_double_are_enough_for_an_axis():
    assert doublings([*range(32, 513, 32)]) == [32, 64, 128, 256, 512]
    assert doublings([5, 7, 9]) == [5, 7, 9]
    assert doublings([1]) == [1]


@given(st.lists(st.integers(30, 230), max_size=14))
@example([40] * 14)
@example([230] * 14)
def test_labels_are_moved_apart_and_stay_beside_the_plot(heights):
    placed = spread_labels(heights, 230)
    assert len(placed) == len(heights)
    assert all(b - a >= 12 for a, b in pairwise(placed))
    assert all(30 <= height <= 230 for height in placed)
    if all(b - a >= 12 for a, b in pairwise(sorted(heights))):
        assert placed == sorted(heights)


# The picture.


@given(st.lists(numbers, min_size=1, max_size=9))
def test_a_curve_lies_where_its_numbers_are(y):
    """Measured in the drawing: heights are proportional to the times, from 0 on, and sizes run to the right."""
    drawn = sweep(curve(x=range(1, len(y) + 1), y=y)).to_svg()
    got = coordinates(drawn)
    assert any(
        path.startswith("M70 232L370 232") for path in paths(drawn, stroke=palette.LIGHT.line)
    )  # the axis
    heights = 232 - got[:, 1]
    scale = ticks(0.0, 1.2 * max(y))[-1] / 170
    assert np.allclose(heights * scale, y, atol=0.06 * scale)
    assert np.allclose(got[:, 0] - 70, 300 * np.arange(1, len(y) + 1) / len(y), atol=0.06)


@given(st.lists(numbers, min_size=2, max_size=6))
def test_on_logarithmic_axes_a_factor_is_a_distance(y):
    x = [2**i for i in range(len(y))]
    plot = Plot("one", [curve(x=x, y=y)], log=True)
    drawn = Sweep("Title", [[plot]], (), (), "").to_svg()
    got, ends = coordinates(drawn), log_ticks(0.9 * min(y), 1.2 * max(y))
    assert np.allclose(np.diff(got[:, 0]), 620 / (len(y) - 1), atol=0.06)
    heights = np.log(np.array(y) / ends[0]) / np.log(ends[-1] / ends[0])
    assert np.allclose(232 - got[:, 1], 170 * heights, atol=0.06)
    whiskers = [
        tuple(map(float, found)) for found in re.findall(r"M([\d.]+) ([\d.]+)V([\d.]+)M", drawn)
    ]
    assert all(low > at > high for (_, at), (_, low, high) in zip(got, whiskers, strict=True))
    assert np.allclose([x for x, *_ in whiskers], got[:, 0], atol=0.02)


@pytest.mark.parametrize("theme", palette.THEMES)
def test_every_colour_can_be_seen(theme):
    """A line too pale for the ground has an outline that is not."""
    drawn = sweep(*[curve(f"m{i}", i) for i in range(7)]).to_svg(theme)
    outline = palette.THEMES[theme].line
    outlines = [
        e
        for e in ParsedSvg(drawn).elements
        if e.get("stroke") == outline and e.get("stroke-width") == "4.2"
    ]
    assert len(outlines) == 7
    for one in (palette.LIGHT, palette.DARK):
        assert palette.contrast(one.line, one.ground) > 4.5
    assert len(set(COLOURS)) == 7


def test_names_at_the_ends_do_not_cover_each_other():
    drawn = ParsedSvg(
        sweep(*[curve(f"method {i}", i, y=(1, 1, 1 + i / 1000)) for i in range(7)]).to_svg()
    )
    assert sum(said.startswith("method") for said in drawn.said()) == 7
    assert drawn.covered() == []


def test_methods_differ_by_colour_and_sources_by_dashes_and_a_name_stands_once():
    drawn = sweep(
        curve("padded", 0), curve("packed", 1), curve("packed", 1, 1), sources=("a", "b")
    ).to_svg()
    lines = [
        e
        for e in ParsedSvg(drawn).elements
        if e.get("stroke") in COLOURS and e.get("fill") == "none"
    ]
    looks = [(COLOURS[0], None), (COLOURS[1], None), (COLOURS[1], DASHES[1])]
    assert [(e.get("stroke"), e.get("stroke-dasharray")) for e in lines] == looks
    assert ParsedSvg(drawn).said().count("packed") == 1


def test_everything_stays_inside():
    long = "x" * 150
    drawn = ParsedSvg(
        sweep(curve("staircase"), sources=(long,), notes=(long, "<&>")).to_svg("dark")
    )
    assert drawn.text("two").x == drawn.text("one").x + 462
    assert not drawn.outside()
    assert "<&>" in drawn.said()


# The chart.


@pytest.mark.parametrize("sources", [("here",), ("yours: a", "theirs: b")])
def test_the_chart_shows_the_same(sources):
    one, two = curve("padded", 0, 0), curve("packed", 1, 1, y=(3.0, 2.0, 2.5))
    chart = sweep(two, one, sources=sources, notes=("a note",)).chart()
    lines = [trace for trace in chart.figure.data if trace.name]  # the others are outlines
    names = ["padded, yours", "packed, theirs"] if len(sources) > 1 else ["padded", "packed"]
    assert [trace.name for trace in lines] == names
    for trace, drawn in zip(lines, (one, two), strict=True):
        assert (list(trace.x), list(trace.y)) == (list(drawn.x), list(drawn.y))
        assert np.allclose(trace.error_y.array, np.subtract(drawn.high, drawn.y))
        assert np.allclose(trace.error_y.arrayminus, np.subtract(drawn.y, drawn.low))
        assert trace.line.color == COLOURS[drawn.method]
    assert [trace.line.dash for trace in lines] == ["solid", DASHES[1].replace(" ", "px,") + "px"]
    assert lines[0].marker.symbol != lines[1].marker.symbol
    assert chart.to_text() == "the text"
    layout = chart.figure.layout
    assert [note.text for note in layout.annotations] == ["one", "two"]
    assert layout.title.subtitle.text == "<br>".join([*sources, "a note"])
    assert (layout.xaxis.title.text, layout.yaxis.title.text) == ("time steps", "ms")
    json.dumps(chart._repr_mimebundle_())


@given(numbers, numbers)
@example(0.95, 31.0)  # notebook 08: plotly would write 10, 9, 8, …
@example(1.0, 2e6)
def test_the_labels_of_a_logarithmic_axis_have_room(one, other):
    y = sorted((one, other))
    drawn = log_log([1, 2], {"one": {"": y}}, "Title")
    axis = drawn.chart().figure.layout.yaxis
    assert axis.type == "log"
    assert axis.range[0] < np.log10(y[0]) <= np.log10(y[1]) < axis.range[1]
    places = (
        200 * np.log10(axis.tickvals) / (axis.range[1] - axis.range[0])
    )  # a panel is 200 px high
    assert len(places) > 1
    assert np.diff(places).min() >= 12  # px: the height of a label and a gap
