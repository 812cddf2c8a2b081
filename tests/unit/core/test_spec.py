"""Tests of the sizes of an RNN: they are read from a module, checked, and used to derive others."""

from dataclasses import asdict
from types import SimpleNamespace

import pytest
from hypothesis import given
from specs import module, specs
from torch import nn

from packviz.core.spec import GATES, UPDATE_FLOPS, Spec


@given(specs())
def test_a_module_is_read_by_its_attributes(spec):
    assert Spec.of(module(spec)) == spec
    assert Spec.of(spec) is spec
    assert Spec.of(SimpleNamespace(**asdict(spec))) == spec


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("LTSM", 2, 3), r"mode is 'LTSM'; choose one of 'LSTM', 'GRU', 'RNN'"),
        (("GRU", 0, 3), r"input_size is 0; give a whole number of at least 1"),
        (("GRU", 2, 3.5), r"hidden_size is 3\.5; give a whole number of at least 1"),
        (("GRU", 2, True), r"hidden_size is True; give a whole number"),
        (("GRU", 2, 3, 0), r"num_layers is 0; give a whole number of at least 1"),
        (("LSTM", 2, 3, 1, False, -1), r"proj_size is -1; give a whole number of at least 0"),
        (
            ("GRU", 2, 3, 1, False, 2),
            r"proj_size is 2, but only an LSTM has a projection; leave it out",
        ),
        (("LSTM", 2, 3, 1, False, 3), r"proj_size is 3; it must be smaller than hidden_size=3"),
    ],
)
def test_sizes_that_no_rnn_has(arguments, message):
    with pytest.raises(ValueError, match=message):
        Spec(*arguments)


@given(specs())
def test_sizes_are_those_of_the_weights(spec):
    rnn = module(spec)
    assert spec.weights == sum(
        p.numel() for name, p in rnn.named_parameters() if "bias" not in name
    )
    assert spec.gates == rnn.weight_ih_l0.shape[0]
    assert Spec.of(nn.RNN(2, 4, nonlinearity="relu")) == Spec("RNN", 2, 4)


CELLS = {"LSTM": nn.LSTMCell, "GRU": nn.GRUCell, "RNN": nn.RNNCell}


def test_each_kind_of_rnn_has_the_gates_of_its_cell():
    """A new kind of RNN needs a cell to be compared with, and the FLOPs of its update."""
    assert {*GATES} == {*UPDATE_FLOPS} == {*CELLS}
    for mode, cell in CELLS.items():
        assert len(cell(2, 5).weight_ih) == 5 * GATES[mode]
