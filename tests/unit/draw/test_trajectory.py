"""Hidden states over time: what is hatched, where the final state is read, and the numbers."""

import math

import numpy as np
from drawings import ParsedSvg
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from packviz.draw import palette
from packviz.draw.text import difference
from packviz.draw.trajectory import MOST, READ, Trajectory

STEPS = 6
HEIGHTS = st.one_of(st.floats(-2, 2).map(lambda v: round(v, 3)), st.just(math.nan))


@st.composite
def trajectories(draw):
    count = draw(st.integers(1, 10))
    runs = arrays(float, (count, STEPS), elements=HEIGHTS)
    padded = draw(runs)
    packed = draw(runs)
    lengths = draw(arrays(int, count, elements=st.integers(1, STEPS)))
    off = np.abs(padded[:, -1])
    return Trajectory("title", "the number", lengths, padded, packed, off)


@given(trajectories(), st.sampled_from(list(palette.THEMES)))
def test_everything_is_within_the_picture(path, theme):
    drawing = ParsedSvg(path.to_svg(theme))
    words = drawing.said()
    assert not drawing.outside()
    assert words.count("✗ NaN") == np.isnan(path.padded[:MOST]).any(axis=1).sum()
    assert (f"The first {MOST} sequences are drawn." in words) == (len(path.padded) > MOST)
    off = ["=" if distance == 0 else difference(distance) for distance in path.off[:MOST]]
    beside = [text.said for text in drawing.texts if text.x > 590 and READ not in text.said]
    assert sorted(beside) == sorted(off)


@given(trajectories())
def test_hatched_is_padding(path):
    boxes = [box for box in ParsedSvg(path.to_svg()).boxes if box.x]  # without the ground
    real = [box.width for box in boxes if box.fill == palette.LIGHT.ground]
    hatched = [box.width for box in boxes if box.fill == palette.LIGHT.padding]
    lengths = path.lengths[:MOST]
    step = real[0] / lengths[0]
    assert np.allclose(real, lengths * step, atol=0.1)
    assert np.allclose(hatched, (STEPS - lengths[lengths < STEPS]) * step, atol=0.1)


@given(trajectories())
def test_in_words(path):
    lines = path.to_text().splitlines()[3:-1]
    rows = [line.replace("][", "] [").split() for line in lines]
    padded = [row for row in rows if row[1] == "padded"]
    for row, values, off, length in zip(padded, path.padded, path.off, path.lengths, strict=True):
        cells = row[2:]
        assert [cell.strip("[]") for cell in cells] == list(map(difference, [*values, off]))
        assert [cell[0] == "[" for cell in cells[:-1]] == [t >= length for t in range(STEPS)]
    packed = [[cell.strip("[]") for cell in row[2:]] for row in rows if row[1] == "packed"]
    assert packed == [list(map(difference, run)) for run in path.packed]
