"""Attention weights: shaded by size, padding hatched, and what is lost to it in the margin."""

import numpy as np
import pytest
import torch
from drawings import ParsedSvg
from hypothesis import given
from hypothesis import strategies as st

import packviz as pv
from packviz.draw import palette


@st.composite
def attentions(draw):
    steps = draw(st.integers(1, 16))
    length = draw(st.integers(1, steps))
    torch.manual_seed(draw(st.integers(0, 99)))
    scores = 3 * torch.randn(steps, steps)
    masked = scores.masked_fill(torch.arange(steps) >= length, -torch.inf)
    return pv.draw.Attention(length, {"blind": scores.softmax(1), "masked": masked.softmax(1)}, "weights of a")


@given(attentions(), st.sampled_from(["light", "dark"]))
def test_what_is_drawn_is_what_the_weights_say(attention, theme):
    drawing = ParsedSvg(attention.to_svg(theme))
    assert not drawing.outside()
    blind, _ = attention.maps.values()
    steps, n = len(blind), attention.length
    assert np.allclose(attention.lost("blind"), 1 - blind[:n, :n].sum(1), atol=1e-6)
    assert attention.lost("masked") == [0] * n
    boxes = [box for box in drawing.boxes if box.height == 24]
    assert len(boxes) == 2 * n * steps
    assert sum(box.fill == palette.THEMES[theme].padding for box in boxes) == 2 * n * (steps - n)
    shades = [palette.RAMP.index(box.fill) for box in boxes if box.fill in palette.RAMP]
    assert len(shades) == 2 * n * n
    said = [text.said for text in drawing.texts if text.said.endswith("%")]
    assert sorted(said) == sorted(f"{100 * w:.0f}".rjust(3) + " %" for w in [*attention.lost("blind"), *[0] * n])


@pytest.mark.parametrize(
    ("length", "maps"),
    [
        (1, {}),
        (1, {"a": torch.zeros(2, 3)}),
        (1, {"a": torch.zeros(2, 2), "b": torch.zeros(3, 3)}),
        (3, {"a": torch.zeros(2, 2)}),
        (0, {"a": torch.zeros(2, 2)}),
        (2, {"a": torch.zeros(17, 17)}),
    ],
)
def test_what_does_not_fit_is_refused(length, maps):
    with pytest.raises(ValueError, match=r"give maps \(T, T\) of one sequence, all of one size up to 16, and a length"):
        pv.draw.Attention(length, maps)
