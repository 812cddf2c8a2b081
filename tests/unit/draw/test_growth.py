"""The log–log charts: points are what is counted, the line is the fit, and the slope is said."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packviz.draw import figures
from packviz.draw.palette import METHODS

X = [2, 4, 8, 16]


def chart():
    panels = {
        "nodes": {"A": [4, 4, 4, 4], "B": [7, 13, 25, 49]},
        "GB": {"A": [0.1, 0.2, 0.4, 0.8], "B": [1.0, 4, 16, 64]},
    }
    return figures.log_log(X, panels, "Growth")


def test_in_words():
    assert chart().to_text() == (
        "Growth. time steps T: 2, 4, 8, 16\n"
        "nodes, A: 4, 4, 4, 4; slope 0.00\n"
        "nodes, B: 7, 13, 25, 49; slope 0.94\n"
        "GB, A: 0.1, 0.2, 0.4, 0.8; slope 1.00\n"
        "GB, B: 1, 4, 16, 64; slope 2.00"
    )


def test_points_lines_and_slopes():
    drawn = chart()
    lines, points = drawn.data[1::3], drawn.data[2::3]  # before each line its outline
    assert [list(line.y) for line in drawn.data[::3]] == [list(line.y) for line in lines]
    assert [list(p.y) for p in points] == [[4, 4, 4, 4], [7, 13, 25, 49], [0.1, 0.2, 0.4, 0.8], [1, 4, 16, 64]]
    assert {line.mode for line in lines} == {"lines"}
    assert {p.mode for p in points} == {"markers"}
    assert list(lines[3].y) == [1, 4, 16, 64]
    assert not [p.name for p in points if p.showlegend]  # a curve is named where it ends
    assert len({(line.line.dash, p.marker.symbol) for line, p in zip(lines, points, strict=True)}) == 2
    named = [note for note in drawn.layout.annotations if "slope" in note.text]
    assert {note.text for note in named} == {"A: slope 0.00", "B: slope 0.94", "A: slope 1.00", "B: slope 2.00"}
    assert {note.text: (note.x, round(note.y, 1)) for note in named}["B: slope 2.00"] == (1.2, 1.8)  # powers of ten
    assert all(axis.type == "log" for axis in (drawn.layout.xaxis, drawn.layout.yaxis2))
    assert drawn.layout.margin.r > 7 * len("A: slope 0.00")  # room for the names
    json.dumps(drawn._repr_mimebundle_())


def test_an_axis_has_round_numbers_at_its_ends_and_at_least_two():
    drawn = figures.log_log(X, {"narrow": {"a": [3.0, 3.1, 3.2, 3.3]}, "wide": {"a": [3e-4, 1, 40, 7e3]}}, "t")
    axes = drawn.layout.yaxis, drawn.layout.yaxis2
    assert [list(axis.tickvals) for axis in axes] == [[2, 5], [2e-4, *(10.0**i for i in range(-3, 5))]]
    for axis in axes:
        assert np.allclose(axis.range, np.log10([axis.tickvals[0], axis.tickvals[-1]]), atol=0.01)


def test_panels_of_one_kind_have_the_same_heights():
    panels = {"A": {"a": [1.0, 2, 3, 4]}, "B": {"a": [20.0, 30, 40, 90]}}
    for together, same in ((False, False), (True, True)):
        layout = figures.log_log(X, panels, "t", together=together).layout
        assert (layout.yaxis.range == layout.yaxis2.range) == same


def test_quartiles_and_the_colours_of_methods():
    timed = [(0.9 * y, y, 1.5 * y) for y in (1.0, 4.0, 16.0, 64.0)]
    drawn = figures.log_log(
        X, {"ms": {"A": timed, "B": X}}, "t", methods={"A": "packed", "B": "padded"}, below=["Why."]
    )
    one, other = drawn.data[2::3]
    assert np.allclose(one.error_y.array, [0.5, 2, 8, 32])
    assert np.allclose(one.error_y.arrayminus, [0.1, 0.4, 1.6, 6.4])
    assert other.error_y.array is None
    assert [one.marker.color, other.marker.color] == [METHODS["packed"], METHODS["padded"]]
    assert drawn.to_text().splitlines()[1:] == [
        "ms, A: 1, 4, 16, 64; slope 2.00",
        "ms, B: 2, 4, 8, 16; slope 1.00",
        "Why.",
    ]
    assert "Why." in [note.text for note in drawn.layout.annotations]


@given(st.floats(-2, 3), st.floats(0.1, 1e6))
def test_the_line_goes_through_points_that_lie_on_one(power, factor):
    y = [factor * x**power for x in X]
    _, line, points = figures.log_log(X, {"": {"one": y}}, "t").data
    assert np.allclose(line.y, points.y, rtol=0.011)


def test_what_cannot_be_drawn():
    with pytest.raises(ValueError, match="panels holds one with 5 curves; at most 4 can be told apart"):
        figures.log_log(X, {"n": {str(i): X for i in range(5)}}, "t")
    for y in ([1, 2, 3, 0], [1, 2]):
        with pytest.raises(ValueError, match="at least two positive numbers"):
            figures.log_log(X, {"n": {"A": y}}, "t")
