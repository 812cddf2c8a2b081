"""Tests of the words that error messages share."""

import numpy as np
import pytest
from torch import nn

from packviz.core.validation import kind_of, require_one_of

KINDS = {
    "an ndarray": np.zeros(1),
    "an int": 3,
    "a list": [],
    "None": None,
    "the class int": int,
    "an LSTM": nn.LSTM(1, 1),
    "an RNN": nn.RNN(1, 1),
    "a GRU": nn.GRU(1, 1),
    "an Embedding": nn.Embedding(1, 1),
}


def test_the_article_of_a_type():
    assert [*map(kind_of, KINDS.values())] == [*KINDS]


def test_a_choice():
    assert require_one_of("side", "left", ("left", "right")) == "left"
    with pytest.raises(ValueError, match=r"^side is 'top'; choose one of 'left', 'right'$"):
        require_one_of("side", "top", ("left", "right"))
