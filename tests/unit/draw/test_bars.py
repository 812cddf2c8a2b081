"""Bars with their whiskers and marks; FLOPs and time as multiples."""

import re
from types import SimpleNamespace

import pytest
from drawings import ParsedSvg
from hypothesis import given
from hypothesis import strategies as st

from packviz.draw import bars, palette
from packviz.draw.work import WorkAndTime

MULTIPLES = st.floats(0.03, 300)


def ratio(value, low, high, is_clear):
    return SimpleNamespace(value=value, low=low, high=high, is_clear=is_clear)


@st.composite
def pictures(draw):
    groups = {}
    for i in range(draw(st.integers(1, 3))):
        rows = groups[f"group {i}"] = {}
        for j in range(draw(st.integers(1, 4))):
            low, time, high = sorted(draw(st.lists(MULTIPLES, min_size=3, max_size=3)))
            rows[f"row {j}"] = draw(MULTIPLES), ratio(time, low, high, draw(st.booleans()))
    return WorkAndTime("found", groups, notes=["a note"])


@given(pictures(), st.sampled_from(["light", "dark"]))
def test_bars_whiskers_and_marks_are_where_their_numbers_say(picture, theme):
    svg = picture.to_svg(theme)
    drawing = ParsedSvg(svg)
    assert not drawing.outside()
    works, times = zip(
        *(row for rows in picture.groups.values() for row in rows.values()), strict=True
    )
    (one,) = {
        float(x)
        for x in re.findall(
            r'M([\d.]+) [\d.]+L\1 [\d.]+" fill="none" stroke="[^"]*" stroke-dash', svg
        )
    }
    drawn = [
        float(x)
        for pair in re.findall(r"M([\d.]+) [\d.]+H([\d.]+)M", svg)[: len(times)]
        for x in pair
    ]
    drawn += [float(x) for x in re.findall(r"M([\d.]+) [\d.]+l6 6l-6 6l-6-6z", svg)]
    values = [*(end for time in times for end in (time.low, time.high)), *works]
    boxes = [box for box in drawing.boxes if box.fill == palette.METHODS["packed"]]
    (start,) = {box.x for box in boxes}
    scale = (max(drawn) - start) / max(values)
    assert drawn == pytest.approx([start + scale * value for value in values], abs=0.1)
    assert [box.right for box in boxes] == pytest.approx(
        [start + scale * time.value for time in times], abs=0.1
    )
    assert one == pytest.approx(start + scale, abs=0.1)
    assert sum("not clear" in said for said in drawing.said()) == sum(
        not time.is_clear for time in times
    )


def test_a_label_is_not_crossed_by_the_line():
    rows = {"a": bars.Bar([(0.97, bars.SOLID)], "0.97"), "b": bars.Bar([(1, bars.SOLID)], "1")}
    svg = bars.rows("title", {"": rows}, "light", line=1).svg()
    (line,) = map(float, re.findall(r"M([\d.]+) [\d.]+L\1 ", svg))
    assert ParsedSvg(svg).text("0.97").x > line


def test_in_words():
    groups = {"LSTM": {"many": (0.5, ratio(12.345, 11, 13, False))}}
    assert repr(WorkAndTime("Half the work", groups, notes=["Measured."])) == (
        "Half the work\n"
        "multiples of the padded batch\n"
        "          FLOPs     time  quartiles\n"
        "LSTM\n"
        "  many     0.50    12.35  11.00 to 13.00 (not clear)\n"
        "Measured."
    )
