"""Tests the panel of states without a browser."""

from itertools import product

import pytest
import torch

from packviz.panels import StatePanel


def test_the_panel_has_the_lstm_and_the_data_that_its_docstring_names():
    panel = StatePanel([3, 5, 2, 4])
    torch.manual_seed(0)
    lstm = torch.nn.LSTM(2, 3, batch_first=True)
    assert panel.weights == {name: w.tolist() for name, w in lstm.named_parameters()}
    assert [*panel.x] == torch.randn(4, 8, 2).tolist()
    assert panel.to_text().splitlines()[0].endswith("so h_n is wrong for a, c and d")


WRONG_LENGTHS = [[3, 9, 2, 4], [3, 5, 2], [3, 0, 2, 4]]


@pytest.mark.parametrize(
    ("name", "value"), [("longest", 9), ("progress", 9), *product(["lengths"], WRONG_LENGTHS)]
)
def test_steps_without_data_are_refused(name, value):
    panel = StatePanel([3, 5, 2, 4])
    with pytest.raises(ValueError, match=name):
        setattr(panel, name, value)
    assert panel.lengths == (3, 5, 2, 4)
