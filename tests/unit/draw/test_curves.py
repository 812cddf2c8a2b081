"""Hidden states through time: what stands where, what is hatched, and where the final state is read."""

import math
import re

import pytest
from drawings import ParsedSvg
from hypothesis import given
from hypothesis import strategies as st

from packviz.draw import palette
from packviz.draw.curves import MOST, READ, Curve, Trajectory
from packviz.draw.text import difference

STEPS = 6
HEIGHTS = st.one_of(st.floats(-2, 2).map(lambda v: round(v, 3)), st.just(math.nan))


@st.composite
def trajectories(draw):
    reverse, distances = draw(st.booleans()), draw(st.booleans())
    curves = []
    for b in range(draw(st.integers(1, 10))):
        n = draw(st.integers(1, STEPS))
        padded = draw(st.lists(HEIGHTS, min_size=STEPS, max_size=STEPS))
        padded = [abs(v) for v in padded] if distances else padded
        packed = [0.0] * STEPS if distances else draw(st.lists(HEIGHTS, min_size=STEPS, max_size=STEPS))
        curves.append(Curve(chr(97 + b), n, padded, packed, abs(padded[0 if reverse else -1])))
    return Trajectory("found", "the number", tuple(curves), reverse, distances)


@given(trajectories(), st.sampled_from(list(palette.THEMES)))
def test_everything_stands_within_the_picture(path, theme):
    drawing = ParsedSvg(path.to_svg(theme))
    assert not drawing.outside()
    assert all(text.box.y >= 0 for text in drawing.texts)
    drawn = path.curves[:MOST]
    lost = [c for c in drawn if any(map(math.isnan, c.padded))]
    assert drawing.said().count("✗ NaN") == len(lost)
    assert (f"The first {MOST} sequences are drawn." in drawing.said()) == (len(path.curves) > MOST)
    said = [text.said for text in drawing.texts if text.x > 790 and READ not in text.said]
    assert said == ["=" if c.off == 0 else difference(c.off) for c in drawn] or sorted(said) == sorted(
        "=" if c.off == 0 else difference(c.off) for c in drawn
    )


@given(trajectories())
def test_hatched_is_padding_and_the_dot_is_where_the_final_state_is_read(path):
    svg = path.to_svg()
    drawing, drawn = ParsedSvg(svg), path.curves[:MOST]
    boxes = [box for box in drawing.boxes if box.height == 46]
    plain = [box for box in boxes if box.fill == palette.LIGHT.ground]
    hatched = [box for box in boxes if box.fill == palette.LIGHT.padding]
    width = 706 / STEPS
    assert [round(box.width / width, 2) for box in plain] == [c.length for c in drawn]
    assert [round(box.width / width, 2) for box in hatched] == [STEPS - c.length for c in drawn if c.length < STEPS]
    dots = [float(x) for x in re.findall(r"M([\d.]+) [\d.]+m-5 0a5 5", svg)]
    read = 84 + width * (0.5 if path.reverse else STEPS - 0.5)
    assert len(dots) == sum(math.isfinite(c.padded[0 if path.reverse else -1]) for c in drawn)
    assert dots == pytest.approx([read] * len(dots), abs=0.01)
    assert any("← from the last step" in said for said in drawing.said()) == path.reverse


@given(trajectories())
def test_in_words(path):
    found, what, head, *lines, last = path.to_text().splitlines()
    assert (found, what, last) == ("found", "the number", "[ ]: padding")
    assert head.split()[: STEPS + 3] == [*(f"t={t}" for t in range(STEPS)), *READ.split()]
    for curve in path.curves:
        for way, values in (("padded", curve.padded), ("packed", curve.packed))[: 1 if path.distances else 2]:
            name, said_way, *said = lines.pop(0).replace("][", "] [").split()
            assert (name, said_way) == (curve.name, way)
            wanted = ["–" if way == "packed" and math.isnan(v) else difference(v) for v in values]
            wanted = [f"[{cell}]" if t >= curve.length else cell for t, cell in enumerate(wanted)]
            assert said == [*wanted, difference(curve.off)] if way == "padded" else said == wanted
    assert not lines
