"""Sizes of small RNNs and modules, drawn."""

import torch
from hypothesis import strategies as st
from torch import nn

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


@st.composite
def modules(
    draw,
    dtypes=(torch.float64, torch.float32),
    hidden=(1, 2, 3, 4),
    layers=3,
    device="cpu",
    plain=False,
):
    """Draws any RNN. If `plain`, it has a bias and no ReLU, so each state differs from 0."""
    cell, size = draw(st.sampled_from([nn.RNN, nn.GRU, nn.LSTM])), draw(st.sampled_from(hidden))
    options = {name: draw(st.booleans()) for name in ("batch_first", "bidirectional")}
    options["bias"] = plain or draw(st.booleans())
    if cell is nn.RNN and not plain:
        options["nonlinearity"] = draw(st.sampled_from(["tanh", "relu"]))
    if cell is nn.LSTM and size > 1 and draw(st.booleans()):
        options["proj_size"] = size - 1
    options |= {
        "num_layers": draw(st.integers(1, layers)),
        "dtype": draw(st.sampled_from(dtypes)),
        "device": device,
    }
    torch.manual_seed(draw(st.integers(0, 1000)))
    return cell(draw(st.integers(1, 3)), size, **options)
