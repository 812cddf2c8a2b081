"""Runs an RNN on a padded batch with different methods, with or without a backward pass.

Benchmarks and studies share these functions. A method takes the RNN, a batch `x` and its `lengths`.
The shape of `x` is `(T, B, I)`, or `(B, T, I)` if the RNN is `batch_first`. The lengths are a
tensor `(B,)` on the CPU. Like the RNN itself on padded data, a method returns the output and the
final states.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from torch import Tensor, autograd, nn, no_grad, ones_like

from packviz.core.spec import Spec
from packviz.measure.timing import Call
from packviz.ops import packing
from packviz.ops.original import pack_padded_sequence, pad_packed_sequence


def make_rnn(spec: Spec, batch_first: bool = False) -> nn.RNNBase:
    """Returns a new RNN of the kind and the sizes that a spec describes."""
    kind: Callable[..., nn.RNNBase] = getattr(nn, spec.mode)
    return kind(
        spec.input_size,
        spec.hidden_size,
        spec.num_layers,
        batch_first=batch_first,
        bidirectional=spec.bidirectional,
    )


def padded(rnn: nn.RNNBase, x: Tensor, lengths: Tensor) -> Any:
    """Runs the RNN over all cells, so its final states are those after the padding."""
    return rnn(x)


def packed(
    rnn: nn.RNNBase,
    x: Tensor,
    lengths: Tensor,
    is_sorted: bool = False,
    pack: Callable[..., Any] = pack_padded_sequence,
    pad: Callable[..., Any] = pad_packed_sequence,
) -> Any:
    """Packs the batch, runs the RNN and pads the output.

    Set `is_sorted` if the lengths are sorted, longest first.
    """
    batch_first = rnn.batch_first
    output, state = rnn(pack(x, lengths, batch_first=batch_first, enforce_sorted=is_sorted))
    return pad(output, batch_first=batch_first)[0], state


packed_packviz_pad = partial(packed, pad=packing.pad_packed_sequence)
packed_packviz = partial(packed_packviz_pad, pack=packing.pack_padded_sequence)
"""Variants of `packed`: `packed_packviz_pad` uses packviz's padding, and `packed_packviz` its
packing as well."""


def make_pass(call: Callable[[], Any], leaves: Sequence[Tensor], training: bool = True) -> Call:
    """Returns a function that runs a forward pass and, in training, a backward pass.

    The backward pass starts from a gradient of ones.

    Args:
        call: a function that returns the output, or a tuple that begins with it.
        leaves: tensors whose gradients are computed and returned. Their `.grad` is not changed.
        training: whether to run a backward pass. Without one, the forward pass builds no autograd
            graph.
    """

    def run_forward_backward() -> tuple[Tensor, ...]:
        result = call()
        output: Tensor = result[0] if isinstance(result, tuple) else result
        return output.detach(), *autograd.grad(output, leaves, ones_like(output))

    return run_forward_backward if training else no_grad()(call)
