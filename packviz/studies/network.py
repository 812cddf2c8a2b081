"""Contains the network from the forum question, its batches, and methods of running its LSTM.

The code is our own.

In 2022, a user of the PyTorch forum asked why packing makes the backward pass so slow. The network
had an embedding, an LSTM, and a linear layer at every time step. It set the output in the padding
to zero, and summed over the time steps to get the logits of two classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from packviz.core.layout import IntArray
from packviz.core.validation import one_of
from packviz.measure import rnn_calls
from packviz.measure.study import Comparison
from packviz.ops.masks import real_mask
from packviz.ops.running import forget

PADDING = 0
"""The token used for padding."""

Method = Callable[[Any, Tensor, Tensor], tuple[Tensor, Any]]
"""A function that runs an RNN on a padded batch: it maps `(rnn, x, lengths)` to the output and the
states.

`lengths` are sorted, longest first, and the longest is `T`. The output is zero in the padding, as
after pack → RNN → pad.
"""


def padded(rnn: nn.RNNBase, x: Tensor, lengths: Tensor) -> tuple[Tensor, Any]:
    """Runs the RNN over all cells, and sets the output in the padding to zero with a mask."""
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
"""The methods by name. The first one that is measured is the reference for the others."""


_VOCABULARY, _CLASSES = 10, 2


class Network(nn.Module):
    """The network: embedding → LSTM → linear layer, with the output summed over the time steps."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(_VOCABULARY, 16, padding_idx=PADDING)
        self.lstm = nn.LSTM(16, 32, batch_first=True)
        self.linear = nn.Linear(32, _CLASSES)

    def forward(self, ids: Tensor, lengths: Tensor, method: Method) -> Tensor:
        """Returns logits `(B, 2)` for tokens `(B, T)` and lengths `(B,)`.

        The lengths are on the CPU, longest first.
        """
        output, _ = method(self.lstm, self.embedding(ids), lengths)
        return self.linear(output).sum(1)  # type: ignore[no-any-return]


class _Batch(NamedTuple):
    """Tokens `(B, T)` and targets `(B,)` on a device, and lengths `(B,)` on the CPU."""

    ids: Tensor
    lengths: Tensor
    targets: Tensor


def batch(lengths: IntArray, steps: int, device: Any = "cpu") -> _Batch:
    """Returns a batch of random tokens and targets.

    If all tokens were equal, a misplaced row would go unnoticed.

    Args:
        lengths: `(B,)` whole numbers, longest first.
        steps: width of the batch, `T`.
        device: the device for the tokens and the targets.
    """
    generator = torch.Generator().manual_seed(0)
    n = torch.tensor(lengths.tolist())
    ids = torch.randint(1, _VOCABULARY, (n.numel(), steps), generator=generator) * real_mask(
        n, steps
    )
    targets = torch.randint(_CLASSES, (n.numel(),), generator=generator)
    return _Batch(ids.to(device), n, targets.to(device))


def training_step(
    network: Network, batch: _Batch, method: Method
) -> Callable[[], tuple[Tensor, ...]]:
    """Returns a function that runs forward and backward.

    The function returns the logits and the gradients of all weights.
    """
    weights = list(network.parameters())

    def step() -> tuple[Tensor, ...]:
        logits = network(batch.ids, batch.lengths, method)
        return logits.detach(), *torch.autograd.grad(cross_entropy(logits, batch.targets), weights)

    return step


def comparison(
    lengths: IntArray, steps: int, methods: Sequence[str], which: str, device: Any
) -> Comparison:
    """Returns a comparison with a call for each method.

    All calls run the same pass with the same network and batch.

    Each call returns the logits and, in training, the gradients of all weights.

    Raises:
        ValueError: there is no such method.
    """
    torch.manual_seed(0)
    network = Network().to(device)
    one = batch(lengths, steps, device)

    def call(method: Method) -> Callable[[], Any]:
        if which == "training":
            return training_step(network, one, method)
        return rnn_calls.one_pass(lambda: network(one.ids, one.lengths, method), [], training=False)

    calls = {name: call(METHODS[one_of("methods", name, METHODS)]) for name in methods}
    return Comparison(calls, forget, alike=methods)
