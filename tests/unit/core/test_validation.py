"""Tests of the words that error messages share."""

import numpy as np
import pytest
from torch import nn

from packviz.core.validation import kind_of, require_one_of

KINDS = [
    "an ndarray",
    "an int",
    "a list",
    "None",
    "the class int",
    "an LSTM",
    "an RNN",
    "a GRU",
    "an Embedding",
]
VALUES = [
    np.zeros(1),
    3,
    [],
    None,
    int,
    nn.LSTM(1, 1),
    nn.RNN(1, 1),
    nn.GRU(1, 1),
    nn.Embedding(1, 1),
]


def test_the_article_of_a_type():
    assert [kind_of(value) for value in VALUES] == KINDS


def test_a_choice():
    assert require_one_of("side", "left", ("left", "right")) == "left"
    with pytest.raises(ValueError, match=r"^side is 'top'; choose one of 'left', 'right'$"):
        require_one_of("side", "top", ("left", "right"))
