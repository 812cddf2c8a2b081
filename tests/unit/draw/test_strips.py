"""Vectors as strips: every number and distance stands in the picture and in the text."""

import numpy as np
import pytest
import torch
from drawings import ParsedSvg
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import packviz as pv
from packviz.draw import palette
from packviz.draw.text import difference

floats = st.floats(-3, 3, width=32)


@given(st.integers(1, 16).flatmap(lambda h: st.lists(arrays(float, h, elements=floats), min_size=1, max_size=5)))
def test_numbers_and_distances(vectors):
    strips = pv.draw.Strips({f"v{i}": vector for i, vector in enumerate(vectors)}, "Title")
    apart = [torch.dist(torch.tensor(v), torch.tensor(vectors[0])).item() for v in vectors]
    largest = max(np.abs(v).max() for v in vectors)
    assert strips.distances == pytest.approx(apart, abs=max(1.01e-5 * largest, 1e-12))
    for theme in palette.THEMES:
        drawing = ParsedSvg(strips.to_svg(theme))
        assert drawing.outside() == []
    lines = strips.to_text().splitlines()[2:]
    for line, vector, distance in zip(lines, vectors, strips.distances, strict=True):
        name, *cells, last = line.split()
        assert [float(cell) for cell in cells] == pytest.approx(vector, abs=0.0051)
        assert last == ("=" if distance == 0 else difference(distance))
        assert name in drawing.said()
        assert set(cells) <= set(drawing.said())


def test_cells_have_numbers_or_names():
    vectors = {"x": [0.0, 1]}
    assert {"unit", "0", "1"} <= set(ParsedSvg(pv.draw.Strips(vectors).to_svg()).said())
    named = pv.draw.Strips(vectors, axis=["a0", "b0"])
    assert {"a0", "b0"} <= set(ParsedSvg(named.to_svg()).said())
    assert named.to_text().split()[:2] == ["a0", "b0"]
    with pytest.raises(ValueError, match="axis has 1 names, the vectors have 2 numbers; give one for each"):
        pv.draw.Strips(vectors, axis=["a0"])


@pytest.mark.parametrize("vectors", [{}, {"x": [1.0], "y": [1.0, 2]}, {"x": [[1.0]]}, {"x": [0.0] * 17}, {"x": []}])
def test_what_does_not_fit_is_refused(vectors):
    with pytest.raises(ValueError, match="vectors must have one dimension, and one size of up to 16; got shapes: "):
        pv.draw.Strips(vectors)
