"""Bars with their whiskers and marks; work and time as multiples, on a logarithmic axis."""

import math
import re

import pytest
from drawings import ParsedSvg
from hypothesis import given
from hypothesis import strategies as st

from packviz.draw import bars, palette
from packviz.draw.work import Row, WorkAndTime

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
    return WorkAndTime("found", groups, notes=["a note"])


@given(pictures(), st.sampled_from(["light", "dark"]))
def test_bars_whiskers_and_marks_lie_where_their_logarithms_say(picture, theme):
    svg = picture.to_svg(theme)
    drawing = ParsedSvg(svg)
    assert not drawing.outside()
    (one,) = {float(x) for x in re.findall(r'M([\d.]+) [\d.]+L\1 [\d.]+" fill="none" stroke="[^"]*" stroke-dash', svg)}
    drawn = [float(x) for pair in re.findall(r"M([\d.]+) [\d.]+H([\d.]+)M", svg)[: len(picture.rows)] for x in pair]
    drawn += [float(x) for x in re.findall(r"M([\d.]+) [\d.]+l6 6l-6 6l-6-6z", svg)]
    values = [end for row in picture.rows for end in (row.low, row.high)] + [row.work for row in picture.rows]
    far = max(range(len(values)), key=lambda i: abs(math.log(values[i])))
    scale = (drawn[far] - one) / math.log(values[far]) if values[far] != 1 else 0
    assert drawn == pytest.approx([one + scale * math.log(value) for value in values], abs=0.1)
    boxes = [box for box in drawing.boxes if box.fill == palette.METHODS["packed"]]
    ends = [box.right if row.time > 1 else box.x for box, row in zip(boxes, picture.rows, strict=True)]
    assert ends == pytest.approx([one + scale * math.log(row.time) for row in picture.rows], abs=0.1)
    assert sum("not clear" in said for said in drawing.said()) == sum(not row.clear for row in picture.rows)


def test_a_label_is_not_crossed_by_the_line():
    rows = {"a": bars.Bar([(0.97, bars.SOLID)], "0.97"), "b": bars.Bar([(1, bars.SOLID)], "1")}
    svg = bars.rows("title", {"": rows}, "light", line=1).svg()
    (line,) = map(float, re.findall(r"M([\d.]+) [\d.]+L\1 ", svg))
    assert ParsedSvg(svg).text("0.97").x > line


def test_in_words():
    groups = {"LSTM": [Row("many", 0.5, 12.345, 11, 13, clear=False)]}
    assert repr(WorkAndTime("Half the work", groups, notes=["Measured."])) == (
        "Half the work\n"
        "multiples of padded\n"
        "          FLOPs     time  quartiles\n"
        "LSTM\n"
        "  many     0.50    12.35  11.00 to 13.00 (not clear)\n"
        "Measured."
    )
