"""Hidden states through time: what stands where, what is hatched, and where the final state is read."""

import math
import re

import numpy as np
import pytest
from drawings import ParsedSvg
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from packviz.draw import palette
from packviz.draw.curves import MOST, READ, Trajectory
from packviz.draw.text import difference

STEPS = 6
HEIGHTS = st.one_of(st.floats(-2, 2).map(lambda v: round(v, 3)), st.just(math.nan))


@st.composite
def trajectories(draw):
    reverse, distances, many = draw(st.booleans()), draw(st.booleans()), draw(st.integers(1, 10))
    runs = arrays(float, (many, STEPS), elements=HEIGHTS)
    padded = np.abs(draw(runs)) if distances else draw(runs)
    packed = np.zeros_like(padded) if distances else draw(runs)
    lengths = draw(arrays(int, many, elements=st.integers(1, STEPS)))
    off = np.abs(padded[:, 0 if reverse else -1])
    return Trajectory("found", "the number", lengths, padded, packed, off, reverse, distances)


@given(trajectories(), st.sampled_from(list(palette.THEMES)))
def test_everything_stands_within_the_picture(path, theme):
    drawing = ParsedSvg(path.to_svg(theme))
    assert not drawing.outside()
    assert drawing.said().count("✗ NaN") == np.isnan(path.padded[:MOST]).any(axis=1).sum()
    assert (f"The first {MOST} sequences are drawn." in drawing.said()) == (len(path.padded) > MOST)
    said = [text.said for text in drawing.texts if text.x > 790 and READ not in text.said]
    assert sorted(said) == sorted("=" if off == 0 else difference(off) for off in path.off[:MOST])


@given(trajectories())
def test_hatched_is_padding_and_the_dot_is_where_the_final_state_is_read(path):
    svg = path.to_svg()
    drawing, lengths = ParsedSvg(svg), path.lengths[:MOST].tolist()
    boxes = [box for box in drawing.boxes if box.height == 46]
    plain = [box for box in boxes if box.fill == palette.LIGHT.ground]
    hatched = [box for box in boxes if box.fill == palette.LIGHT.padding]
    width = 706 / STEPS
    assert [round(box.width / width, 2) for box in plain] == lengths
    assert [round(box.width / width, 2) for box in hatched] == [
        STEPS - n for n in lengths if n < STEPS
    ]
    dots = [float(x) for x in re.findall(r"M([\d.]+) [\d.]+m-5 0a5 5", svg)]
    read = 84 + width * (0.5 if path.reverse else STEPS - 0.5)
    assert len(dots) == np.isfinite(path.off[:MOST]).sum()
    assert dots == pytest.approx([read] * len(dots), abs=0.01)
    assert any("← from the last step" in said for said in drawing.said()) == path.reverse


@given(trajectories())
def test_in_words(path):
    found, what, head, *lines, last = path.to_text().splitlines()
    assert (found, what, last) == ("found", "the number", "[ ]: padding")
    assert head.split()[: STEPS + 3] == [*(f"t={t}" for t in range(STEPS)), *READ.split()]
    for b, n in enumerate(path.lengths):
        for run in ("padded", "packed")[: 1 if path.distances else 2]:
            name, said_run, *said = lines.pop(0).replace("][", "] [").split()
            assert (name, said_run) == ("abcdefghij"[b], run)
            wanted = [
                "–" if run == "packed" and np.isnan(v) else difference(v)
                for v in getattr(path, run)[b]
            ]
            wanted = [f"[{cell}]" if t >= n else cell for t, cell in enumerate(wanted)]
            assert said == [*wanted, difference(path.off[b])] if run == "padded" else said == wanted
    assert not lines
