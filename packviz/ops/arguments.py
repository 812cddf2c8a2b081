"""Provides checks that an RNN, a padded batch and an initial state fit together."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from packviz.core.padded import describe_shape, dimension_order
from packviz.core.validation import kind_of, require_plain_values


def require_rnn(rnn: object) -> None:
    """Checks that `rnn` is one of torch's three RNNs.

    Raises:
        TypeError: `rnn` is not an `nn.RNN`, `nn.GRU` or `nn.LSTM`.
    """
    if not isinstance(rnn, nn.RNNBase) or rnn.mode not in ("LSTM", "GRU", "RNN_TANH", "RNN_RELU"):
        raise TypeError(f"rnn is {kind_of(rnn)}: give an nn.RNN, nn.GRU or nn.LSTM of torch.nn")


def require_padded(x: object) -> None:
    """Checks that `x` is a dense tensor.

    Raises:
        TypeError: `x` is not a dense tensor. If it is a packed batch, the message explains how to
            pad it.
    """
    if isinstance(x, PackedSequence):
        raise TypeError(
            "the input x is a PackedSequence: pad it with pad_packed_sequence, and give the padded"
            " tensor and its lengths"
        )
    if not isinstance(x, Tensor):
        raise TypeError(f"the input x must be a tensor, got {type(x).__name__}")
    require_plain_values("x", x)


def require_input_shape(rnn: nn.RNNBase, shape: torch.Size, batch_first: bool) -> None:
    """Checks that a shape has three dimensions, and that the last one fits the RNN.

    Raises:
        ValueError: the shape does not fit.
    """
    if len(shape) != 3:
        raise ValueError(
            f"x must be {dimension_order(batch_first, ', I')}, got shape {tuple(shape)}"
        )
    if shape[2] != rnn.input_size:
        shape_text = describe_shape(shape, batch_first, feature_dim_names=", I")
        raise ValueError(
            f"{shape_text}, has I = {shape[2]}, but rnn.input_size is {rnn.input_size}"
        )


def require_device(name: str, tensor: Tensor, x: Tensor) -> None:
    """Checks that a tensor is on the device of the batch `x`.

    Raises:
        ValueError: it is on another device. The message begins with `name`.
    """
    if tensor.device != x.device:
        raise ValueError(
            f"{name} is on {tensor.device}, but x is on {x.device}; create both on one device"
        )


def state_shapes(rnn: nn.RNNBase, batch: int) -> list[tuple[int, int, int]]:
    """Returns the shapes of the states of an RNN: that of `h` and, for an LSTM, that of `c`."""
    rows = rnn.num_layers * (1 + rnn.bidirectional)
    shapes = [(rows, batch, rnn.proj_size or rnn.hidden_size)]
    if rnn.mode == "LSTM":
        shapes.append((rows, batch, rnn.hidden_size))
    return shapes


def require_states(rnn: nn.RNNBase, hx: Any, x: Tensor, batch: int) -> None:
    """Checks that an initial state fits the RNN, the batch `x` and the number of sequences.

    Raises:
        ValueError: the state does not fit. torch itself may accept, and partly ignore, a state for
            too many sequences.
    """
    expected = state_shapes(rnn, batch)
    expected_text = "h_0 of shape {}"
    states = [hx]
    if rnn.mode == "LSTM":
        expected_text = "a pair, h_0 of shape {} and c_0 of shape {}"
        if isinstance(hx, (tuple, list)):
            states = [*hx]
    actual_shapes = [tuple(s.shape) if isinstance(s, Tensor) else type(s).__name__ for s in states]
    if actual_shapes != expected:
        raise ValueError(
            f"hx must be {expected_text.format(*expected)};"
            f" got {' and '.join(map(str, actual_shapes))}"
        )
    for state in states:
        require_device("hx", state, x)
        if state.dtype != x.dtype and not torch.is_autocast_enabled(x.device.type):
            raise ValueError(f"hx is {state.dtype}, but x is {x.dtype}; give both the dtype of rnn")
