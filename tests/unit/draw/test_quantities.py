"""Measured numbers in words: as many digits as are known, and intervals that cover."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packviz.draw import quantities

shares = st.floats(1e-3, 1)


@given(st.floats(1e-3, 1e4), shares, shares)
def test_a_number_is_rounded_to_what_is_known(value, below, above):
    low = value * (1 - below)
    high = value * (1 + above)
    words = quantities.format_known_digits(value, (low, high)).replace(",", "")
    assert abs(float(words) - value) <= max(high - low, 0.005 * value)
    assert len(words.replace(".", "").strip("0")) <= 3
    ends = quantities.format_interval((low, high)).replace(",", "").split(" to ")
    assert float(ends[0]) <= low * (1 + 1e-6) + 1e-12
    assert float(ends[1]) >= high * (1 - 1e-6)


@pytest.mark.parametrize(
    ("value", "interval", "number", "words"),
    [
        (2.04, (1.87, 2.13), "2.0", "1.87 to 2.13"),
        (1234.5, (1200, 1300), "1,200", "1,200 to 1,300"),
        (0.95, (0.95, 0.95), "0.95", "0.95 to 0.95"),
        (5, (-math.inf, math.inf), "5", "–"),
    ],
)
def test_digits(value, interval, number, words):
    assert quantities.format_known_digits(value, interval) == number
    assert quantities.format_interval(interval) == words
