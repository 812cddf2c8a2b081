"""Tests of reading a padded batch: its dimensions, its rows, and the error message."""

import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from packviz.core.padded import PaddedShape, describe_shape, dimension_order

sides = st.integers(1, 5)


@given(sides, sides, sides, st.booleans())
def test_sides_and_rows_are_those_of_a_tensor(first, second, features, batch_first):
    x = torch.arange(first * second * features).view(first, second, features)
    padded = PaddedShape.from_shape(x.shape, batch_first)
    assert padded.shape(features) == tuple(x.shape)
    cells = x if batch_first else x.transpose(0, 1)
    assert (padded.batch, padded.steps) == tuple(cells.shape[:2])
    sequence, step = np.indices((padded.batch, padded.steps))
    assert x.flatten(0, 1)[torch.tensor(padded.row_index(sequence, step))].equal(cells)


def test_how_it_is_read():
    assert (dimension_order(True), dimension_order(False, ", I"), dimension_order(True, "")) == (
        "(B, T, …)",
        "(T, B, I)",
        "(B, T)",
    )
    assert (
        describe_shape(torch.ones(5, 3, 2).shape, False)
        == "x of shape (5, 3, 2), read as (T, B, …)"
    )
    assert describe_shape([5, 3], True, "loss") == "loss of shape (5, 3), read as (B, T, …)"


@pytest.mark.parametrize(
    ("count", "batch_first", "message"),
    [
        (1, False, "lengths has B = 1, but {}, has B = 3"),
        (
            5,
            False,
            "lengths has B = 5, but {}, has B = 3; did you mean batch_first=True? "
            "(A mask is (B, T) either way.)",
        ),
    ],
)
def test_a_wrong_number_of_lengths(count, batch_first, message):
    described = "x of shape (5, 3, 7), read as (T, B, I)"
    with pytest.raises(ValueError, match=f"^{re.escape(message.format(described))}$"):
        PaddedShape.from_checked_shape(count, (5, 3, 7), batch_first, feature_dim_names=", I")
    assert PaddedShape.from_checked_shape(3, (5, 3, 7), False) == (3, 5, False)
