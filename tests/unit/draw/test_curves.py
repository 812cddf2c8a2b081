"""Charts of curves: the axes, the picture, and the same chart drawn by plotly."""

import json
import re
from itertools import pairwise

import numpy as np
import pytest
from contrast import contrast
from drawings import ParsedSvg
from hypothesis import example, given
from hypothesis import strategies as st

from packviz.draw import palette
from packviz.draw.curves import (
    DASHES,
    METHOD_COLOURS,
    Curve,
    Plot,
    Sweep,
    doubling_ticks,
    log_ticks,
    spread_labels,
    ticks,
)

numbers = st.floats(1e-4, 1e6)
ranges = st.tuples(numbers, numbers).map(sorted)


def curve(name="padded", method=0, source=0, x=(1, 2, 4), y=(1.0, 2.0, 3.0)):
    low = [0.9 * value for value in y]
    high = [1.2 * value for value in y]
    return Curve(name, method, source, x, y, low, high)


def sweep(*curves, sources=("here",), notes=(), log=False):
    plots = [Plot("left", curves, is_log=log), Plot("right", [], is_log=log)]
    return Sweep("Title", [plots], sources, notes, "the text")


def marks(svg, colour):
    """The places of the markers with this fill."""
    shapes = [e.get("d") for e in ParsedSvg(svg).elements if e.get("fill") == colour]
    places = re.findall(r"M([\d.]+) ([\d.]+)m", "".join(shapes))
    return np.array(places, float)


# Axes.


@given(ranges, st.sampled_from([ticks, log_ticks]))
@example((1.0, 1.0), log_ticks)
@example((0.001, 0.001), log_ticks)
def test_ticks_are_round_and_enclose(ends, make):
    low, high = ends
    marked = make(low, high)
    assert marked[0] <= low * (1 + 1e-6)
    assert marked[-1] >= high * (1 - 1e-6)
    assert 2 <= len(marked) <= 14
    assert marked == sorted(set(marked))
    steps = np.diff(marked)
    if make is ticks:
        assert np.allclose(steps, steps[0], rtol=1e-6)
        marked = steps[:1]
    elif len(marked) > 8:
        assert all(f"{value:.0e}"[0] == "1" for value in marked[1:-1])
    assert all(f"{value:.3e}"[:5] in ("1.000", "2.000", "5.000") for value in marked)


def test_sizes_that_double_are_enough_for_an_axis():
    assert doubling_ticks([*range(32, 513, 32)]) == [32, 64, 128, 256, 512]
    assert doubling_ticks([5, 7, 9]) == [5, 7, 9]


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


@given(st.lists(numbers, min_size=2, max_size=9), st.booleans())
def test_marks_are_in_the_order_of_the_values(y, log):
    x = [2**i for i in range(len(y))]
    svg = sweep(curve(x=x, y=y), log=log).to_svg()
    across, down = marks(svg, METHOD_COLOURS[0]).T
    assert len(across) == len(y)
    assert (np.diff(across) > 0).all()
    rise = -np.diff(down)
    assert (rise * np.diff(y) >= 0).all()
    places = np.log(y) if log else np.array(y)
    slope = np.ptp(down) / max(np.ptp(places), 1e-9)
    assert np.allclose(down.max() - down, slope * (places - places.min()), atol=0.05)


@pytest.mark.parametrize("theme", palette.THEMES)
def test_every_colour_can_be_seen(theme):
    """A line too pale for the ground has an outline that is not."""
    drawn = ParsedSvg(sweep(*(curve(f"m{i}", i) for i in range(7))).to_svg(theme))
    lines = [e.get("stroke") for e in drawn.elements if e.get("stroke-linejoin") == "round"]
    assert lines.count(palette.THEMES[theme].line) == 7
    for colours in (palette.LIGHT, palette.DARK):
        assert contrast(colours.line, colours.ground) > 4.5


def test_names_at_the_ends_do_not_cover_each_other():
    curves = [curve(f"method {i}", i, y=(1, 1, 1 + i / 1000)) for i in range(7)]
    drawn = ParsedSvg(sweep(*curves).to_svg())
    assert sum(words.startswith("method") for words in drawn.said()) == 7
    assert drawn.covered() == []


def test_methods_differ_by_colour_and_sources_by_dashes_and_a_name_is_written_once():
    curves = [curve("padded", 0), curve("packed", 1), curve("packed", 1, 1)]
    drawn = ParsedSvg(sweep(*curves, sources=("a", "b")).to_svg())
    lines = [e for e in drawn.elements if e.get("stroke") in METHOD_COLOURS]
    looks = [(METHOD_COLOURS[0], None), (METHOD_COLOURS[1], None), (METHOD_COLOURS[1], DASHES[1])]
    assert [(e.get("stroke"), e.get("stroke-dasharray")) for e in lines] == looks
    assert drawn.said().count("packed") == 1


def test_padding_is_hatched_to_the_end():
    plot = Plot("", [curve(x=(0, 1, 2, 3), y=(-1.0, 2.0, 1.0, 0.0))], padding=1)
    svg = Sweep("Title", [[plot]], (), (), "").to_svg()
    (box,) = [box for box in ParsedSvg(svg).boxes if box.fill == palette.LIGHT.padding]
    _, left, _, right = marks(svg, METHOD_COLOURS[0])[:, 0]
    assert (box.x, box.right) == pytest.approx((left, right), abs=0.02)


def test_everything_stays_inside():
    long = "x" * 150
    chart = sweep(curve("staircase"), sources=(long,), notes=(long, "<&>"))
    drawn = ParsedSvg(chart.to_svg("dark"))
    assert drawn.text("left").x < drawn.text("right").x
    assert not drawn.outside()
    assert "<&>" in drawn.said()


# The same chart by plotly.


@pytest.mark.parametrize("sources", [("here",), ("yours: a", "theirs: b")])
def test_the_chart_shows_the_same(sources):
    curves = [curve("padded", 0, 0), curve("packed", 1, 1, y=(3.0, 2.0, 2.5))]
    chart = sweep(*curves[::-1], sources=sources, notes=("a note",), log=True).chart()
    lines = [trace for trace in chart.figure.data if trace.name]  # the others are outlines
    names = ["padded, yours", "packed, theirs"] if len(sources) > 1 else ["padded", "packed"]
    assert [trace.name for trace in lines] == names
    for trace, drawn in zip(lines, curves, strict=True):
        assert (list(trace.x), list(trace.y)) == (list(drawn.x), list(drawn.y))
        assert np.allclose(trace.error_y.array, np.subtract(drawn.upper_quartiles, drawn.y))
        assert np.allclose(trace.error_y.arrayminus, np.subtract(drawn.y, drawn.lower_quartiles))
        assert trace.line.color == trace.marker.color == drawn.colour
        assert trace.marker.symbol == drawn.marker_name
    assert [trace.line.dash for trace in lines] == ["solid", "8px,4px"]
    assert chart.to_text() == "the text"
    layout = chart.figure.layout
    left, right, footnote, *ends = (note.text for note in layout.annotations)
    assert (left, right) == ("left", "right")
    assert footnote == "<br>".join([*sources, "a note"])
    assert ends == []  # the last panel has no curves, so there is a key
    assert layout.showlegend
    assert (layout.xaxis.title.text, layout.yaxis.title.text) == ("time steps", "ms")
    json.dumps(chart._repr_mimebundle_())


@given(ranges)
@example((0.95, 31.0))  # notebook 08: plotly would write 10, 9, 8, …
@example((1.0, 2e6))
def test_the_labels_of_a_logarithmic_axis_do_not_touch(ends):
    axis = sweep(Curve("", 0, 0, [1, 2], ends), log=True).chart().figure.layout.yaxis
    assert axis.type == "log"
    low, high = axis.range
    assert low < np.log10(ends[0]) <= np.log10(ends[1]) < high
    places = 200 * np.log10(axis.tickvals) / (high - low)  # px: a panel is 200 px high
    assert len(places) > 1
    assert np.diff(places).min() >= 12  # px: the height of a label and a gap
