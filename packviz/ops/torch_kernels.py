"""Reads the weights of an `nn.RNN`, `nn.GRU` or `nn.LSTM` as torch's own kernels take them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from packviz.ops import private

TorchRNN = nn.RNN | nn.GRU | nn.LSTM
"""One of torch's three RNNs."""

Tensors = Sequence[Tensor]
"""Several tensors, such as weights, in an order."""

Parts = tuple[tuple[Tensor, ...], ...]
"""The same tensors in several parts, such as one for each direction."""

Gradients = Sequence[Tensor | None]
"""The gradients of several tensors; `None` for those that have none."""


class Layer(NamedTuple):
    """One layer of an RNN, with all of its directions.

    Attributes:
        mode: the RNN's `mode`.
        bias: whether the layer has biases.
        weights: for each direction, in torch's order, the weights of the input and of the state,
            then the two biases and the weights of the projection, if there are any.
    """

    mode: str
    bias: bool
    weights: Parts

    @property
    def directions(self) -> int:
        """The number of directions, `D`: 2 if the layer is bidirectional, else 1."""
        return len(self.weights)

    @property
    def output_size(self) -> int:
        """`P`, the number of output features of each direction: `H`, or the projection's size."""
        return self.weights[0][1].shape[1]

    @property
    def is_projected(self) -> bool:
        """Whether the layer has a projection."""
        return len(self.weights[0]) % 2 == 1

    @property
    def flat(self) -> tuple[Tensor, ...]:
        """The weights of all directions, in one tuple."""
        return tuple(weight for direction in self.weights for weight in direction)

    def holding(self, flat: Tensors) -> Parts:
        """Returns other weights, in the order of `flat`, in the form of `weights`."""
        return _in_parts(flat, len(self.weights[0]))


def _in_parts(values: Tensors, size: int) -> Parts:
    return tuple(tuple(values[i : i + size]) for i in range(0, len(values), size))


def flat_names(rnn: nn.RNNBase) -> list[str]:
    """Returns the names of the weights, by layer and direction, in torch's order."""
    kinds = ["weight_ih", "weight_hh"]
    if rnn.bias:
        kinds += ["bias_ih", "bias_hh"]
    if rnn.proj_size:
        kinds.append("weight_hr")
    suffixes = ("", "_reverse") if rnn.bidirectional else ("",)
    layers_and_directions = [f"l{i}{suffix}" for i in range(rnn.num_layers) for suffix in suffixes]
    return [f"{kind}_{place}" for place in layers_and_directions for kind in kinds]


def flat_weights(rnn: nn.RNNBase) -> tuple[Tensor, ...]:
    """Returns a module's current weights in the order of `flat_names`, after parametrisation."""
    own = private.parameters(rnn)  # asking the module is slower
    return tuple([own[name] if name in own else getattr(rnn, name) for name in flat_names(rnn)])


def layers(rnn: nn.RNNBase, flat: Tensors) -> list[Layer]:
    """Divides the weights of a module into layers."""
    directions = 2 if rnn.bidirectional else 1
    size = len(flat) // rnn.num_layers
    own = [_in_parts(part, size // directions) for part in _in_parts(flat, size)]
    return [Layer(rnn.mode, rnn.bias, weights) for weights in own]


def is_fused(mode: str, x: Tensor, projected: bool) -> bool:
    """Returns whether torch runs oneDNN's fused LSTM on padded data like `x`."""
    if mode != "LSTM" or projected or not x.is_cpu:
        return False
    is_half = x.dtype == torch.bfloat16
    takes = private.has_bfloat16() if is_half else x.dtype == torch.float32
    return takes and private.has_onednn()


def in_one_piece(weights: Tensors) -> Tensors:
    """Returns a copy of one direction's weights, one after the other in one piece of memory.

    Without this layout, torch shows a warning and copies the weights at every call. cuDNN needs
    space for biases even if there are none.
    """
    sizes = [weight.numel() for weight in weights]
    missing = 0 if len(weights) > 3 else 2 * len(weights[0])
    flat = torch.cat([*(weight.flatten() for weight in weights), weights[0].new_zeros(missing)])
    parts = flat.split_with_sizes([*sizes, missing])
    return [part.view_as(weight) for part, weight in zip(parts, weights, strict=False)]
