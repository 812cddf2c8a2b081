"""Sizes of small RNNs, drawn, and the modules that have them."""

import torch
from hypothesis import strategies as st

from packviz.core.spec import Spec


@st.composite
def specs(draw):
    mode = draw(st.sampled_from(["LSTM", "GRU", "RNN"]))
    hidden = draw(st.integers(1, 5))
    projection = draw(st.integers(0, hidden - 1)) if mode == "LSTM" else 0
    layers, both, bias = draw(st.integers(1, 3)), draw(st.booleans()), draw(st.booleans())
    return Spec(mode, draw(st.integers(1, 4)), hidden, layers, both, projection, bias)


def module(spec):
    more = {"proj_size": spec.proj_size} if spec.proj_size else {}
    more |= {"num_layers": spec.num_layers, "bidirectional": spec.bidirectional, "bias": spec.bias}
    return getattr(torch.nn, spec.mode)(spec.input_size, spec.hidden_size, **more)
