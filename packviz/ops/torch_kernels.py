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

TensorGroups = tuple[tuple[Tensor, ...], ...]
"""The same tensors in several groups, such as one for each direction."""

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
    weights: TensorGroups

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
    def flat_weights(self) -> tuple[Tensor, ...]:
        """The weights of all directions, in one tuple."""
        return tuple(weight for direction in self.weights for weight in direction)

    def split_by_direction(self, other_weights: Tensors) -> TensorGroups:
        """Returns other weights, in the order of `flat_weights`, in the form of `weights`."""
        return split_by_size(other_weights, len(self.weights[0]))


def split_by_size(values: Tensors, size: int) -> TensorGroups:
    """Returns tensors in groups of so many."""
    return tuple(tuple(values[i : i + size]) for i in range(0, len(values), size))


def flat_weight_names(rnn: nn.RNNBase) -> list[str]:
    """Returns the names of the weights, by layer and direction, in torch's order."""
    prefixes = ["weight_ih", "weight_hh"]
    if rnn.bias:
        prefixes += ["bias_ih", "bias_hh"]
    if rnn.proj_size:
        prefixes.append("weight_hr")
    direction_suffixes = ("", "_reverse") if rnn.bidirectional else ("",)
    layer_suffixes = [
        f"l{i}{suffix}" for i in range(rnn.num_layers) for suffix in direction_suffixes
    ]
    return [f"{prefix}_{layer_suffix}" for layer_suffix in layer_suffixes for prefix in prefixes]


def flat_weights(rnn: nn.RNNBase) -> tuple[Tensor, ...]:
    """Returns the current weights in the order of `flat_weight_names`, after parametrisation."""
    parameters = private.parameters(rnn)  # asking the module is slower
    return tuple(
        [
            parameters[name] if name in parameters else getattr(rnn, name)
            for name in flat_weight_names(rnn)
        ]
    )


def layers(rnn: nn.RNNBase, weights: Tensors) -> list[Layer]:
    """Divides the weights of a module into layers."""
    directions = 2 if rnn.bidirectional else 1
    weights_per_layer = len(weights) // rnn.num_layers
    weights_by_layer = [
        split_by_size(part, weights_per_layer // directions)
        for part in split_by_size(weights, weights_per_layer)
    ]
    return [Layer(rnn.mode, rnn.bias, layer_weights) for layer_weights in weights_by_layer]


def runs_fused_lstm(mode: str, x: Tensor, is_projected: bool) -> bool:
    """Returns whether torch runs oneDNN's fused LSTM on padded data like `x`."""
    if mode != "LSTM" or is_projected or not x.is_cpu:
        return False
    is_bfloat16 = x.dtype == torch.bfloat16
    is_dtype_supported = private.has_onednn_bfloat16() if is_bfloat16 else x.dtype == torch.float32
    return is_dtype_supported and private.has_onednn()


def copy_to_one_buffer(weights: Tensors) -> Tensors:
    """Returns a copy of one direction's weights, one after the other in one piece of memory.

    Without this layout, torch shows a warning and copies the weights at every call. cuDNN needs
    space for biases even if there are none.
    """
    sizes = [weight.numel() for weight in weights]
    n_missing = 0 if len(weights) > 3 else 2 * len(weights[0])
    buffer = torch.cat([*(weight.flatten() for weight in weights), weights[0].new_zeros(n_missing)])
    parts = buffer.split_with_sizes([*sizes, n_missing])
    return [part.view_as(weight) for part, weight in zip(parts, weights, strict=False)]
