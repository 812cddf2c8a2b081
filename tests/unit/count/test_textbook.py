"""The textbook count: the well-known figures, row by row, and what they are a count of."""

import numpy as np
import pytest
from drawings import ParsedSvg
from hypothesis import given
from hypothesis import strategies as st

from packviz.core.layout import Layout
from packviz.count import textbook
from packviz.draw import palette

SIX = [9, 8, 6, 4, 3, 2]


def test_the_well_known_figures():
    count = textbook.count(SIX)
    assert count.padded == (54, 48)
    assert count.packed == (32, 26)
    assert count.saved == (22, 22)
    assert count.rows == ((9, 8), (8, 7), (6, 5), (4, 3), (3, 2), (2, 1))
    assert count.to_text() == (
        "(6, 9) batch times a weight, 1 output column: 54 multiplications padded, 32 packed\n"
        "   a  9-mult 8-add\n"
        "   b  8-mult 7-add\n"
        "   c  6-mult 5-add\n"
        "   d  4-mult 3-add\n"
        "   e  3-mult 2-add\n"
        "   f  2-mult 1-add\n"
        "padded: 54 mult, 48 add\n"
        "packed: 32 mult, 26 add\n"
        "saved: 22 mult, 22 add"
    )


class Counting:
    """A number that counts how it is multiplied and added."""

    mult = add = 0

    def __init__(self, value):
        self.value = value

    def __mul__(self, other):
        Counting.mult += 1
        return Counting(self.value * other.value)

    def __add__(self, other):
        Counting.add += 1
        return Counting(self.value + other.value)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(1, 3), st.integers(0, 2))
def test_it_counts_a_real_product(lengths, columns, extra):
    count = textbook.count(Layout(lengths, max(lengths) + extra), columns)

    def product(widths):
        Counting.mult = Counting.add = 0
        for width in widths:
            row, weight = (np.array([[Counting(1)] * width]), np.array([[Counting(1)] * columns] * width))
            _ = row @ weight
        return Counting.mult, Counting.add

    assert product(lengths) == count.packed
    assert product([count.layout.max_len] * len(lengths)) == count.padded
    assert count.saved == tuple(a - b for a, b in zip(count.padded, count.packed, strict=True))


@given(st.lists(st.integers(1, 40), min_size=1, max_size=8), st.integers(1, 3), st.sampled_from(["light", "dark"]))
def test_picture(lengths, columns, theme):
    count = textbook.count(lengths, columns)
    picture = ParsedSvg(count.to_svg(theme))
    for n in lengths:
        assert f"{columns * n}-mult {columns * (n - 1)}-add" in picture.said()
    assert f"saved: {count.saved}" in picture.said()
    hatched = [box for box in picture.boxes if box.fill == palette.THEMES[theme].padding]
    assert len(hatched) == sum(n < max(lengths) for n in lengths)
    assert all(text.box.right <= picture.width for text in picture.texts)
    assert count._repr_mimebundle_()["text/plain"] == count.to_text() == repr(count)


def test_columns_must_be_a_number_of_columns():
    for columns in (0, -1, 1.5, True):
        with pytest.raises(ValueError, match=r"columns is .*; give a whole number of at least 1"):
            textbook.count([2], columns)
    with pytest.raises(ValueError, match=r"lengths\[0\] is 0"):
        textbook.count([0])
