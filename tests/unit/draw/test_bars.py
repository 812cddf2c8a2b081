"""Bars with their whiskers and marks; FLOPs and time as multiples."""

import re
from types import SimpleNamespace

import numpy as np
from drawings import ParsedSvg
from hypothesis import given
from hypothesis import strategies as st

from packviz.draw import bars
from packviz.draw.spans import Spans

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
def test_spans_are_where_their_numbers_say(groups, theme):
    named = {f"g{i}": {f"r{j}": row for j, row in enumerate(g)} for i, g in enumerate(groups)}
    svg = Spans("title", named, notes=["a note"]).to_svg(theme)
    drawing = ParsedSvg(svg)
    assert not drawing.outside()
    works, times = zip(*(row for group in groups for row in group), strict=True)

    def places(path):
        return [float(x) for x in re.findall(rf"M([\d.]+) [\d.]+{path}", svg)[1:]]  # after the key

    drawn = [*places("m0-5.5l5.5"), *places("m-4 0a4")]
    logs = np.log([*works, *(time.value for time in times)])
    if np.ptp(logs) > 0.1:
        slope, start = np.polyfit(logs, drawn, 1)
        assert slope > 0  # the whole chart is in one scale
        assert np.allclose(start + slope * logs, drawn, atol=0.1)
    unclear = sum("not clear" in line for line in drawing.said())
    assert unclear == sum(not time.is_clear for time in times)


def test_a_label_is_not_crossed_by_the_line():
    group = {
        "a": bars.Bar([(0.97, bars.SOLID_FILL)], "0.97"),
        "b": bars.Bar([(1, bars.SOLID_FILL)], "1"),
    }
    drawing = ParsedSvg(
        bars.draw_horizontal_bars("title", {"": group}, "light", line_value=1).svg()
    )
    longest = max(box.right for box in drawing.boxes if box.fill == bars.SOLID_FILL)
    assert drawing.text("0.97").x > longest


def test_in_words():
    groups = {"LSTM": {"distinct": (0.5, ratio(12.345, 11, 13, False))}}
    assert repr(Spans("Half the work", groups, notes=["Measured."])) == (
        "Half the work\n"
        "multiples of the padded batch\n"
        "              FLOPs     time  quartiles\n"
        "LSTM\n"
        "  distinct     0.50    12.35  11.00 to 13.00 (not clear)\n"
        "Measured."
    )
