"""Contains the model from the forum question, its batches, and methods of running its LSTM.

The code is our own.

In 2022, a user of the PyTorch forum asked why packing makes the backward pass so slow. The model
had an embedding, an LSTM, and a linear layer at every time step. It set the output in the padding
to zero, and summed over the time steps to get the logits of two classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from packviz.core.layout import IntArray
from packviz.measure import rnn_calls
from packviz.measure.study import Comparison
from packviz.measure.timing import Call
from packviz.ops.masks import real_mask, to_device
from packviz.ops.running import clear_caches, run

PADDING_TOKEN = 0
"""The token used for padding."""

MethodFunction = Callable[[Any, Tensor, Tensor], tuple[Tensor, Any]]
"""A function that runs an RNN on a padded batch: it maps `(rnn, x, lengths)` to the output and the
states.

`lengths` are sorted, longest first, and the longest is `T`. The output is zero in the padding, as
after pack → RNN → pad.
"""


def padded(rnn: nn.RNNBase, x: Tensor, lengths: Tensor) -> tuple[Tensor, Any]:
    """Runs the RNN over all cells, and sets the output in the padding to zero with a mask."""
    steps = x.shape[1 if rnn.batch_first else 0]
    mask = real_mask(to_device(lengths, x.device), steps)
    if not rnn.batch_first:
        mask = mask.T
    output, states = rnn(x)
    return output * mask.unsqueeze(-1), states


METHODS: dict[str, MethodFunction] = {
    "padded": padded,
    "packed": partial(rnn_calls.packed, is_sorted=True),
    "drop-in": partial(rnn_calls.packed_packviz, is_sorted=True),
    "run": run,
}
"""The methods by name. The first one that is measured is the reference for the others."""


_VOCABULARY_SIZE = 10
_N_CLASSES = 2


class Network(nn.Module):
    """The model: embedding → LSTM → linear layer, with the output summed over the time steps."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(_VOCABULARY_SIZE, 16, padding_idx=PADDING_TOKEN)
        self.lstm = nn.LSTM(16, 32, batch_first=True)
        self.linear = nn.Linear(32, _N_CLASSES)

    def forward(self, ids: Tensor, lengths: Tensor, method: MethodFunction) -> Tensor:
        """Returns logits `(B, 2)` for tokens `(B, T)` and lengths `(B,)`.

        The lengths are on the CPU, longest first.
        """
        output, _ = method(self.lstm, self.embedding(ids), lengths)
        scores: Tensor = self.linear(output)
        return scores.sum(1)


Batch = tuple[Tensor, Tensor, Tensor]
"""Tokens `(B, T)` on a device, lengths `(B,)` on the CPU, and targets `(B,)` on the device."""


def batch(lengths: IntArray, steps: int, device: str = "cpu") -> Batch:
    """Returns a batch of random tokens and targets.

    If all tokens were equal, a misplaced row would go unnoticed.

    Args:
        lengths: `(B,)` whole numbers, longest first.
        steps: width of the batch, `T`.
        device: the device for the tokens and the targets.
    """
    generator = torch.Generator().manual_seed(0)
    n = torch.tensor(lengths.tolist())
    tokens = torch.randint(1, _VOCABULARY_SIZE, (len(n), steps), generator=generator)
    ids = tokens * real_mask(n, steps)
    targets = torch.randint(_N_CLASSES, (len(n),), generator=generator)
    return ids.to(device), n, targets.to(device)


def make_comparison(
    lengths: IntArray, methods: Mapping[str, MethodFunction], pass_name: str, device: str
) -> Comparison:
    """Returns a comparison with a call for each method.

    All calls run the same pass with the same model and batch.

    Each call returns the logits and, in training, the gradients of all weights.
    """
    torch.manual_seed(0)
    network = Network().to(device)
    ids, n, targets = batch(lengths, int(lengths[0]), device)
    weights = list(network.parameters())

    def train(method: MethodFunction) -> tuple[Tensor, ...]:
        logits = network(ids, n, method)
        loss = cross_entropy(logits, targets)
        return logits.detach(), *torch.autograd.grad(loss, weights)

    calls: dict[str, Call] = {}
    for name, method in methods.items():
        calls[name] = partial(train, method)
        if pass_name == "forward":
            calls[name] = torch.no_grad()(partial(network, ids, n, method))
    return Comparison(calls, clear_caches, agreeing_calls=list(methods))
