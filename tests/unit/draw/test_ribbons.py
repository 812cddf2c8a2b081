"""Tests of the ribbons, with torch's `view` and `cat` as the methods."""

import pytest
import torch
from drawings import ParsedSvg
from hypothesis import given
from hypothesis import strategies as st

import packviz as pv
from packviz.draw import palette


@given(st.integers(1, 8), st.sampled_from(["light", "dark"]))
def test_every_state_is_drawn_twice_and_framed_in_a_row_of_another(size, theme):
    states = [(f"{'abcdefgh'[i]}{arrow}", i) for arrow in "→←" for i in range(size)]
    forward, reverse = torch.arange(2 * size).view(2, size)
    methods = {
        "view": torch.stack([forward, reverse]).view(size, 2),
        "cat": torch.stack([forward, reverse], 1).tolist(),
    }
    ribbons = pv.draw.Ribbons("final states", states, methods)
    drawing = ParsedSvg(ribbons.to_svg(theme))
    assert not drawing.outside()
    assert not drawing.covered()
    for name, _ in states:
        assert sum(text.said == name for text in drawing.texts) == 4
    strangers = sum(
        states[i][1] != r for r, row in enumerate(methods["view"]) for i in row.tolist()
    )
    wrong = palette.THEMES[theme].wrong
    assert sum(box.stroke == wrong for box in drawing.boxes) == strangers == max(0, 2 * size - 2)
    _, view, cat = ribbons.to_text().splitlines()
    assert (view.count("!"), cat.count("!")) == (strangers, 0)


def test_in_words():
    states = [("a→", 0), ("b→", 1), ("a←", 0), ("b←", 1)]
    ribbons = pv.draw.Ribbons("t", states, {"view": [[0, 1], [2, 3]]})
    assert ribbons.to_text().splitlines()[1] == "view: row a: a→ !b→, row b: !a← b←"


def test_a_state_that_is_not_there_is_refused():
    with pytest.raises(
        ValueError, match=r"methods\['view'\]\[0\] contains 2; give an index less than 2"
    ):
        pv.draw.Ribbons("t", [("a→", 0), ("a←", 0)], {"view": [[0, 2]]})
