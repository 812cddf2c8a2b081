"""Work and time as multiples: on a logarithmic axis, in groups, with their numbers beside them."""

import math
import re

import pytest
from drawings import ParsedSvg
from hypothesis import given
from hypothesis import strategies as st

from packviz.draw.dumbbells import Dumbbells, Row

MULTIPLES = st.floats(0.03, 300)


@st.composite
def pictures(draw):
    groups = {}
    for i in range(draw(st.integers(1, 3))):
        rows = []
        for j in range(draw(st.integers(1, 4))):
            low, time, high = sorted(draw(st.lists(MULTIPLES, min_size=3, max_size=3)))
            rows.append(Row(f"row {j}", draw(MULTIPLES), time, low, high, draw(st.booleans())))
        groups[f"group {i}"] = rows
    return Dumbbells("found", groups, notes=["a note"])


@given(pictures(), st.sampled_from(["light", "dark"]))
def test_dots_lie_where_their_logarithms_say(picture, theme):
    svg = picture.to_svg(theme)
    drawing = ParsedSvg(svg)
    assert not drawing.outside()
    ticks = {float(t.said[:-2]): t.x for t in drawing.texts if t.said.endswith(" ×")}
    (first, left), *_, (last, right) = sorted(ticks.items())
    assert 1 in ticks

    def x(value):
        return left + math.log(value / first) / math.log(last / first) * (right - left)

    for shape, values in (
        ("m0-6l6 6l-6 6l-6-6z", [row.work for row in picture.rows]),
        ("m-5.5 0a5.5", [row.time for row in picture.rows]),
    ):
        drawn = [float(at) for at in re.findall(rf"M([\d.]+) [\d.]+{re.escape(shape)}", svg)][1:]  # without the key
        assert drawn == pytest.approx([x(value) for value in values], abs=0.02)
    assert drawing.text("padded = 1").x == pytest.approx(x(1), abs=0.02)
    assert all(first < value < last for row in picture.rows for value in (row.work, row.low, row.high))
    assert drawing.said().count("not clear") == sum(not row.clear for row in picture.rows)


def test_in_words():
    groups = {"GRU": [Row("few", 0.5, 2.89, 2.7, 3.2)], "LSTM": [Row("many", 0.5, 12.345, 11, 13, clear=False)]}
    assert repr(Dumbbells("Half the work", groups, notes=["Measured."])) == (
        "Half the work\n"
        "multiples of padded\n"
        "          FLOPs     time  quartiles\n"
        "GRU\n"
        "  few      0.50     2.89  2.70 to 3.20\n"
        "LSTM\n"
        "  many     0.50    12.35  11.00 to 13.00 (not clear)\n"
        "Measured."
    )
