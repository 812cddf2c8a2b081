"""The calls that run an RNN on a padded batch, and the two passes over them. All that is timed is made of these.

A call takes the RNN, the batch `x`, `(T, B, I)` or `(B, T, I)` as the RNN has it, and its `lengths`, `(B,)` on the CPU.
It gives what the RNN gives: the padded output and the final states.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, autograd, nn, no_grad, ones_like

from packviz.core.spec import Spec
from packviz.ops import packing, running
from packviz.ops.original import pack_padded_sequence, pad_packed_sequence


def rnn_of(spec: Spec, batch_first: bool = False) -> Any:
    """A fresh RNN of these sizes."""
    kind: Any = getattr(nn, spec.mode)
    sizes = spec.input_size, spec.hidden_size, spec.num_layers
    return kind(*sizes, batch_first=batch_first, bidirectional=spec.bidirectional)


def padded(rnn: nn.RNNBase, x: Tensor, lengths: Tensor) -> Any:
    """Runs over everything: states are read after the padding, and so are not those of packing."""
    return rnn(x)


def packed(rnn: nn.RNNBase, x: Tensor, lengths: Tensor, in_order: bool = False) -> Any:
    """Packs, runs and pads again; `in_order` says that the lengths are, longest first."""
    first = rnn.batch_first
    output, state = rnn(pack_padded_sequence(x, lengths, batch_first=first, enforce_sorted=in_order))
    return pad_packed_sequence(output, batch_first=first)[0], state


def drop_in(rnn: nn.RNNBase, x: Tensor, lengths: Tensor, in_order: bool = False) -> Any:
    """The same by packviz's packing and padding."""
    first = rnn.batch_first
    output, state = rnn(packing.pack_padded_sequence(x, lengths, batch_first=first, enforce_sorted=in_order))
    return packing.pad_packed_sequence(output, batch_first=first)[0], state


def own_pad(rnn: nn.RNNBase, x: Tensor, lengths: Tensor, in_order: bool = False) -> Any:
    """As `packed`, but padded again by packviz."""
    first = rnn.batch_first
    output, state = rnn(pack_padded_sequence(x, lengths, batch_first=first, enforce_sorted=in_order))
    return packing.pad_packed_sequence(output, batch_first=first)[0], state


def run(rnn: nn.RNN | nn.GRU | nn.LSTM, x: Tensor, lengths: Any, method: str = "auto") -> Any:
    """`pv.run`, by one of its methods."""
    return running.run(rnn, x, lengths, method=method)


def training(call: Callable[[], Any], leaves: Sequence[Tensor]) -> Callable[[], Any]:
    """A forward pass and a backward one, with a gradient of ones.

    Args:
        call: gives the output, or a tuple of which it is the first.
        leaves: what to derive by.

    Returns:
        A function that gives the output, then the gradients. Not by `backward()`: nothing is left on the leaves.
    """

    def both() -> Any:
        out = call()
        out = out[0] if isinstance(out, tuple) else out
        return out.detach(), *autograd.grad(out, leaves, ones_like(out))

    return both


def forward(call: Callable[[], Any]) -> Callable[[], Any]:
    """A forward pass, without a graph for autograd."""

    def alone() -> Any:
        with no_grad():
            return call()

    return alone
