"""The words that error messages share."""

import numpy as np
import pytest
from torch import nn

from packviz.core.validation import kind_of

VALUES = {"an ndarray": np.zeros(1), "an int": 3, "a list": [], "a NoneType": None, "an LSTM": nn.LSTM(1, 1),
          "an "
          "RNN": nn.RNN(1, 1), "a GRU": nn.GRU(1, 1), "an Embedding": nn.Embedding(1, 1)}  # fmt: skip


@pytest.mark.parametrize("kind", VALUES)
def test_the_article_of_a_type(kind):
    assert kind_of(VALUES[kind]) == kind
