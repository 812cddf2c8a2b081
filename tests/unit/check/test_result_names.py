"""Tests that a comparison answers by the same names for every RNN."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import packviz as pv
from packviz.check.compare import RESULTS

KINDS = {"RNN": torch.nn.RNN, "GRU": torch.nn.GRU, "LSTM": torch.nn.LSTM}


@given(st.sampled_from([*KINDS]), st.booleans(), st.integers(1, 2), st.booleans())
def test_a_name_is_there_for_each_result_that_the_rnn_has(kind, bidirectional, layers, gradients):
    rnn = KINDS[kind](2, 3, layers, bidirectional=bidirectional)
    result = pv.compare(rnn, torch.randn(5, 3, 2), [5, 2, 4], gradients=gradients)
    missing = set()
    if not bidirectional:
        missing.add("outputs_reverse")
    if kind != "LSTM":
        missing.add("c_n")
    if not gradients:
        missing |= {"gradients", "gradients_outputs", "gradients_h_n"}
    for name in {*RESULTS} - missing:
        assert result.needs_packing(name) is not getattr(result.agrees, name)
    for name in missing:
        assert not hasattr(result.agrees, name)
        with pytest.raises(ValueError, match=f"this comparison has no {name}; "):
            result.needs_packing(name)


@pytest.mark.parametrize("name", ["outputs at real steps", "Outputs", "", "hn", 0])
def test_another_name_is_an_error_that_lists_the_names(name):
    result = pv.compare(torch.nn.GRU(2, 3), torch.randn(5, 2, 2), [5, 2])
    listed = "choose one of 'outputs', 'outputs_forward'"
    assert not hasattr(result.agrees, str(name))
    with pytest.raises(ValueError, match=listed):
        result.needs_packing(name)
