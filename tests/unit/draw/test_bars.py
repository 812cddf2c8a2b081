"""Bars with their whiskers and marks; FLOPs and time as multiples."""

import re
from types import SimpleNamespace

import numpy as np
from drawings import ParsedSvg
from hypothesis import given
from hypothesis import strategies as st

from packviz.draw import bars, palette
from packviz.draw.work import WorkAndTime

MULTIPLES = st.floats(0.03, 300)


def ratio(value, low, high, is_clear):
    return SimpleNamespace(value=value, low=low, high=high, is_clear=is_clear)


@st.composite
def rows(draw):
    low, time, high = sorted(draw(st.lists(MULTIPLES, min_size=3, max_size=3)))
    return draw(MULTIPLES), ratio(time, low, high, draw(st.booleans()))


@given(
    st.lists(st.lists(rows(), min_size=1, max_size=4), min_size=1, max_size=3),
    st.sampled_from(["light", "dark"]),
)
def test_bars_whiskers_and_marks_are_where_their_numbers_say(groups, theme):
    named = {f"g{i}": {f"r{j}": row for j, row in enumerate(g)} for i, g in enumerate(groups)}
    svg = WorkAndTime("title", named, notes=["a note"]).to_svg(theme)
    drawing = ParsedSvg(svg)
    assert not drawing.outside()
    works, times = zip(*(row for group in groups for row in group), strict=True)
    boxes = [box for box in drawing.boxes if box.fill == palette.METHODS["packed"]]
    start = boxes[0].x
    scale = boxes[0].width / times[0].value

    def places(pattern):
        ends = np.array(re.findall(pattern, svg)[: len(times)], float)
        return (ends.T - start) / scale

    # The whole chart is in one scale, up to the rounding of coordinates.
    slack = 0.02 / scale + 0.02 * max(time.high for time in times) / boxes[0].width
    low, high = places(r"M([\d.]+) [\d.]+v10m0-5H([\d.]+)m")
    assert np.allclose(low, [time.low for time in times], atol=slack)
    assert np.allclose(high, [time.high for time in times], atol=slack)
    marks = places(r"M([\d.]+) [\d.]+l6 6l-6 6l-6-6z")
    assert np.allclose(marks, works, atol=slack + 0.02 * max(works) / boxes[0].width)
    lengths = [box.width / scale for box in boxes]
    assert np.allclose(lengths, [time.value for time in times], atol=slack)
    unclear = sum("not clear" in line for line in drawing.said())
    assert unclear == sum(not time.is_clear for time in times)


def test_a_label_is_not_crossed_by_the_line():
    group = {"a": bars.Bar([(0.97, bars.SOLID)], "0.97"), "b": bars.Bar([(1, bars.SOLID)], "1")}
    drawing = ParsedSvg(bars.rows("title", {"": group}, "light", line=1).svg())
    longest = max(box.right for box in drawing.boxes if box.fill == bars.SOLID)
    assert drawing.text("0.97").x > longest


def test_in_words():
    groups = {"LSTM": {"distinct": (0.5, ratio(12.345, 11, 13, False))}}
    assert repr(WorkAndTime("Half the work", groups, notes=["Measured."])) == (
        "Half the work\n"
        "multiples of the padded batch\n"
        "              FLOPs     time  quartiles\n"
        "LSTM\n"
        "  distinct     0.50    12.35  11.00 to 13.00 (not clear)\n"
        "Measured."
    )
