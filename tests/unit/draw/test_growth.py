"""The log–log charts: points are what is counted, the line is the fit, and the slope is said."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packviz.draw import figures

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
    assert [p.name for p in points if p.showlegend] == ["A", "B"]
    assert len({(line.line.dash, p.marker.symbol) for line, p in zip(lines, points, strict=True)}) == 2
    assert [note.text for note in drawn.layout.annotations if "slope" in note.text] == [
        "slope 0.00",
        "slope 0.94",
        "slope 1.00",
        "slope 2.00",
    ]
    assert all(axis.type == "log" for axis in (drawn.layout.xaxis, drawn.layout.yaxis2))
    assert drawn.layout.margin.r > 7 * len("slope 0.00")  # room for the slopes
    json.dumps(drawn._repr_mimebundle_())


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
