"""The network of the forum's question, its batches, and the methods to run its LSTM. Written anew.

A user asked in 2022 why packing makes the backward pass so slow, with this network: an embedding, an LSTM, a linear
layer at every time step, padding set to zero, and the sum over the time steps as logits of two classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from packviz.bench import rnn_calls
from packviz.bench.study import Comparison
from packviz.core.layout import IntArray
from packviz.core.validation import one_of
from packviz.ops.masks import real_mask
from packviz.ops.running import forget

PADDING = 0
"""The token that stands for padding."""

Method = Callable[[Any, Tensor, Tensor], tuple[Tensor, Any]]
"""Runs an RNN on a padded batch, as in `packviz.bench.rnn_calls`: from `(rnn, x, lengths)` to output and states.

`lengths` are longest first, and the longest is `T`. The output has zeros at the padding: what pack → RNN → pad gives.
"""


def padded(rnn: nn.RNNBase, x: Tensor, lengths: Tensor) -> tuple[Tensor, Any]:
    """Runs over everything, the padding too, and sets the output there to zero with a mask."""
    mask = real_mask(lengths.to(x.device, non_blocking=True), x.shape[1 if rnn.batch_first else 0])
    output, states = rnn(x)
    return output * (mask if rnn.batch_first else mask.T).unsqueeze(-1), states


packed = partial(rnn_calls.packed, in_order=True)

METHODS: dict[str, Method] = {
    "padded": padded,
    "packed": packed,
    "drop-in": partial(rnn_calls.drop_in, in_order=True),
    "run": rnn_calls.run,
}
"""The methods by name. The others are compared with the first that is measured."""


class Network(nn.Module):
    """Embedding → RNN → linear, summed over the time steps."""

    def __init__(self, vocabulary: int = 10, features: int = 16, hidden: int = 32, classes: int = 2) -> None:
        """Draws the weights from torch's generator."""
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, features, padding_idx=PADDING)
        self.lstm = nn.LSTM(features, hidden, batch_first=True)
        self.linear = nn.Linear(hidden, classes)

    def forward(self, ids: Tensor, lengths: Tensor, method: Method) -> Tensor:
        """Logits `(B, classes)` from tokens `(B, T)` and lengths `(B,)` on the CPU, longest first."""
        output, _ = method(self.lstm, self.embedding(ids), lengths)
        summed: Tensor = self.linear(output).sum(1)
        return summed


class _Batch(NamedTuple):
    """Tokens `(B, T)` and targets `(B,)` on a device, lengths `(B,)` on the CPU."""

    ids: Tensor
    lengths: Tensor
    targets: Tensor


def batch(
    lengths: IntArray, steps: int, *, vocabulary: int = 10, classes: int = 2, seed: int = 0, device: Any = "cpu"
) -> _Batch:
    """A batch of random tokens and targets: with all tokens alike, a row in a wrong place would show nowhere.

    Args:
        lengths: `(B,)` whole numbers, longest first.
        steps: `T`.
        vocabulary: tokens are drawn from 1 up to it; 0 is padding.
        classes: targets are drawn from them.
        seed: of what is drawn.
        device: where the batch is used.
    """
    generator = torch.Generator().manual_seed(seed)
    n = torch.tensor(lengths.tolist())
    ids = torch.randint(1, vocabulary, (n.numel(), steps), generator=generator) * real_mask(n, steps)
    targets = torch.randint(classes, (n.numel(),), generator=generator)
    return _Batch(ids.to(device), n, targets.to(device))


def training_step(network: Network, batch: _Batch, method: Method) -> Callable[[], tuple[Tensor, ...]]:
    """A forward and backward pass: the logits, and the gradients of all weights."""
    weights = list(network.parameters())

    def step() -> tuple[Tensor, ...]:
        logits = network(batch.ids, batch.lengths, method)
        return logits.detach(), *torch.autograd.grad(cross_entropy(logits, batch.targets), weights)

    return step


def comparison(lengths: IntArray, steps: int, methods: Sequence[str], which: str, device: Any) -> Comparison:
    """Every method in one pass over the same network and batch: in training as `training_step`, else the logits.

    Raises:
        ValueError: there is no such method, or one is named twice.
    """
    if not methods or len({*methods}) < len(methods):
        raise ValueError(f"methods is {', '.join(methods) or 'empty'}; name at least one, each once")
    torch.manual_seed(0)
    network = Network().to(device)
    one = batch(lengths, steps, device=device)

    def call(method: Method) -> Callable[[], Any]:
        if which == "training":
            return training_step(network, one, method)
        return rnn_calls.one_pass(lambda: network(one.ids, one.lengths, method), [], training=False)

    calls = {name: call(METHODS[one_of("methods", name, METHODS)]) for name in methods}
    return Comparison(calls, forget, alike=methods)
