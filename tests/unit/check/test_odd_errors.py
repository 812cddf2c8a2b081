"""Tests that explaining an error never fails, whatever a reader has called."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils import rnn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

import packviz as pv

X = torch.zeros(5, 3, 2)


class Broken:
    """An object on which every operation fails."""

    def __getattr__(self, name):
        raise ZeroDivisionError(name)

    def __repr__(self):
        raise ZeroDivisionError("repr")


ARGUMENTS = st.one_of(
    st.none() | st.integers(-3, 9) | st.text(max_size=3),
    st.lists(st.integers(-1, 7) | st.none() | st.floats(), max_size=5),
    st.builds(torch.zeros, st.lists(st.integers(0, 4), max_size=4)),
    st.builds(torch.tensor, st.lists(st.integers(-1, 6), max_size=5)),
    st.builds(Broken),
    st.builds(lambda: pack_padded_sequence(X, [5, 3, 2])),
    st.builds(lambda: PackedSequence(X, torch.tensor([5, 0]))),
    st.builds(lambda: torch.zeros(3, device="meta", dtype=torch.long)),
)
CALLS = {
    "pack": lambda a, b, flag: pack_padded_sequence(a, b, flag, not flag),
    "pack a batch": lambda a, b, flag: pack_padded_sequence(X, b, flag, not flag),
    "pack sequences": lambda a, b, flag: rnn.pack_sequence([a, b], flag),
    "pad": lambda a, b, flag: rnn.pad_packed_sequence(a, flag, 0.0, b),
    "run": lambda a, b, flag: nn.LSTM(2, 2, batch_first=flag)(a, b),
    "packviz's pack": lambda a, b, flag: pv.pack_padded_sequence(a, b, flag, not flag),
    "packviz's pad": lambda a, b, flag: pv.pad_packed_sequence(a, flag, 0.0, b),
}


@given(st.sampled_from([*CALLS]), ARGUMENTS, ARGUMENTS, st.booleans())
def test_the_error_is_the_one_that_comes_without_an_explanation(call, a, b, flag):
    failure = None
    try:
        CALLS[call](a, b, flag)
    except Exception as error:
        failure = error
    if failure is not None:
        with pytest.raises(type(failure)), pv.explain_errors():
            CALLS[call](a, b, flag)
        pv.explain(failure)


def test_causes_in_a_circle_end():
    first = ValueError("a")
    second = ValueError("b")
    first.__cause__ = second
    second.__cause__ = first
    with pytest.raises(ValueError, match="a") as caught, pv.explain_errors():
        raise first
    assert not getattr(caught.value, "__notes__", [])
