"""Tests the Python side of the moving batch."""

import pytest
import torch
import traitlets

import packviz as pv
from packviz.panels import BatchPanel

BAD = [[], [0, 2], [1.5], ["x"], [-1], [[1]], [10**12], None]


def test_lengths_can_be_set_and_read_back():
    panel = BatchPanel([4, 2, 7])
    panel.lengths = torch.tensor([3, 3])
    assert panel.layout == pv.Layout([3, 3])
    assert panel.to_text() == pv.show([3, 3]).to_text()


@pytest.mark.parametrize("lengths", BAD, ids=str)
def test_bad_lengths_are_refused_and_the_good_ones_stay(lengths):
    panel = BatchPanel([4, 2, 7])
    with pytest.raises(ValueError, match="length"):
        BatchPanel(lengths)
    with pytest.raises(ValueError, match="length"):
        panel.lengths = lengths
    assert panel.lengths == (4, 2, 7)


def test_a_bad_change_from_the_browser_is_taken_back():
    panel = BatchPanel([4, 2, 7])
    with pytest.raises(traitlets.TraitError):
        panel.set_state({"lengths": [3, -1]})
    assert panel.lengths == (4, 2, 7)


def test_a_larger_batch_is_drawn_in_full():
    assert len(BatchPanel([3] * 40).draws["uniform"][0]) == 40


def test_without_a_kernel_the_picture_shows():
    bundle, _ = BatchPanel([4, 2, 7])._repr_mimebundle_()
    assert bundle["image/svg+xml"].startswith("<svg")
    assert bundle["text/plain"] == pv.show([4, 2, 7]).to_text()
    assert repr(BatchPanel([4, 2, 7])) == "BatchPanel([4, 2, 7])"
