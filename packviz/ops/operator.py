"""A ragged batch through an RNN as one operator: padded in, padded out, so that a compiler sees fixed shapes.

The operator is opaque to `torch.compile` and `torch.export`: they keep the call and compile what is around it. What
happens in it may depend on the lengths as much as it likes.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from packviz.core.padded import Padded
from packviz.core.spec import GATES
from packviz.core.validation import require_dense
from packviz.ops.kernels import flat_names
from packviz.ops.private import recorded
from packviz.ops.running import State, run

_SETTINGS = "str mode, int num_layers, bool bias, bool batch_first, bool bidirectional"
_TAKEN = (
    f"Tensor x, Tensor lengths, Tensor[] hx, Tensor[] weights, {_SETTINGS}, SymInt total_length, float padding_value"
)


class RaggedOp(nn.Module):
    """An RNN that takes a padded batch and its lengths, and runs it as one operator. Made by `ragged_op`."""

    def __init__(self, rnn: nn.RNNBase) -> None:
        """Takes over the module's settings and its very parameters, under their names."""
        super().__init__()
        if not isinstance(rnn, nn.RNNBase):
            raise TypeError(f"rnn is a {type(rnn).__name__}; give the nn.RNN, nn.GRU or nn.LSTM itself")
        parameters = dict(rnn.named_parameters())
        self._names = flat_names(rnn)
        if set(parameters) != set(self._names):
            raise ValueError("rnn has parametrised weights; remove the parametrisation first")
        for name in self._names:
            self.register_parameter(name, parameters[name])
        self.mode, self.num_layers, self.bias = rnn.mode, rnn.num_layers, rnn.bias
        self.batch_first, self.bidirectional, self.dropout = rnn.batch_first, rnn.bidirectional, rnn.dropout
        self.train(rnn.training)

    def _apply(self, *args: Any, **options: Any) -> RaggedOp:
        """Moves the weights, and lays them into one piece of memory where cuDNN wants that, as torch's modules do."""
        super()._apply(*args, **options)  # type: ignore[no-untyped-call]
        weights = [getattr(self, name) for name in self._names]
        laid = [weight.detach() for weight in weights]
        settings = self.mode, self.num_layers, self.bias, self.batch_first, self.bidirectional
        with _holding(laid, *settings) as rnn:
            rnn.flatten_parameters()
        for weight, own in zip(weights, laid, strict=True):
            weight.data = own
        return self

    def forward(
        self,
        x: Tensor,
        lengths: Tensor,
        hx: State | None = None,
        *,
        batch_first: bool | None = None,
        total_length: int | None = None,
        padding_value: float = 0.0,
    ) -> tuple[Tensor, State]:
        """Returns what pack → RNN → pad returns, apart from rounding, by the fastest method (see `packviz.run`).

        Under autocast it computes in the dtype of its weights.

        Args:
            x: `(T, B, I)`, or `(B, T, I)` with `batch_first`.
            lengths: `(B,)` whole numbers from 1 to `T`, in any order. Keep them on the CPU: if they are on a GPU, the
                call waits for it.
            hx: the initial state in the format the RNN expects. Defaults to zeros.
            batch_first: whether `x` and the output are `(B, T, …)`. Defaults to the RNN's own `batch_first`.
            total_length: number of time steps in the output. Defaults to `T`. (For torch's `pad_packed_sequence` the
                default is the longest length, but a compiler needs a size that does not depend on the lengths.)
            padding_value: value that fills the padding of the output.

        Returns:
            The output, `(total_length, B, D·P)`, or `(B, total_length, D·P)` with `batch_first`, and the final state,
            `h_n`, or `(h_n, c_n)` for an LSTM.

        Raises:
            TypeError: `x` or `lengths` is not a tensor.
            ValueError: dropout between layers in training mode: the backward pass computes the forward pass anew, and
                would drop other units.
        """
        if not isinstance(x, Tensor):
            raise TypeError(f"x is a {type(x).__name__}; give the padded batch, a tensor, which is packed in here")
        require_dense("x", x)
        if not isinstance(lengths, Tensor):
            raise TypeError(f"lengths is a {type(lengths).__name__}; give a tensor, which a compiler can follow")
        if self.training and self.dropout and self.num_layers > 1:
            raise ValueError(f"dropout is {self.dropout} between layers; ragged_op can only leave it out: call eval()")
        first = self.batch_first if batch_first is None else bool(batch_first)
        steps = x.shape[1 if first else 0] if total_length is None else total_length
        states = [] if hx is None else [hx] if isinstance(hx, Tensor) else list(hx)
        weights = [getattr(self, name) for name in self._names]
        if not x.is_meta and torch.is_autocast_enabled(x.device.type):
            x, states = x.to(weights[0].dtype), [one.to(weights[0].dtype) for one in states]
        output, h_n, c_n = _ragged_rnn(
            *(x, lengths, states, weights, self.mode, self.num_layers),
            *(self.bias, first, self.bidirectional, steps, float(padding_value)),
        )
        return output, (h_n, c_n) if self.mode == "LSTM" else h_n

    def extra_repr(self) -> str:
        """The settings, as the RNN's own repr says them."""
        return f"{self.mode}, num_layers={self.num_layers}, bidirectional={self.bidirectional}"


def ragged_op(rnn: nn.RNNBase) -> RaggedOp:
    """Makes of an RNN a module that packs, runs and pads within one custom operator.

    A model around it compiles with `fullgraph=True`, and exports with dynamic batch and time. It takes the place of the
    RNN: `self.lstm = pv.ragged_op(nn.LSTM(…))`, then `self.lstm(x, lengths)` for pack → RNN → pad. It holds the same
    parameters under the same names, so that checkpoints load as before.

    The backward pass computes the forward pass anew, and cannot be differentiated again. A program that was exported
    with it needs `import packviz.ops.operator` before it is loaded.

    Args:
        rnn: an `nn.RNN`, `nn.GRU` or `nn.LSTM`: any layers, directions, `proj_size`, dtype, device.

    Raises:
        TypeError: `rnn` is not one of these modules.
        ValueError: its weights are parametrised.
    """
    return RaggedOp(rnn)


def _run(
    x: Tensor,
    lengths: Tensor,
    hx: Sequence[Tensor],
    weights: Sequence[Tensor],
    mode: str,
    num_layers: int,
    bias: bool,
    batch_first: bool,
    bidirectional: bool,
    total_length: int,
    padding_value: float,
) -> list[Tensor]:
    """The work itself: the output, `h_n` and, of an LSTM, `c_n`."""
    state: Any = (tuple(hx) if mode == "LSTM" else hx[0]) if hx else None
    with (
        _holding(weights, mode, num_layers, bias, batch_first, bidirectional) as rnn,
        torch.autocast(x.device.type, enabled=False),  # the sizes and dtypes that a compiler was promised must hold
    ):
        output, states = run(rnn, x, lengths.cpu(), state, total_length=int(total_length), padding_value=padding_value)
    return [output, *states] if isinstance(states, tuple) else [output, states]


@contextmanager
def _holding(weights: Sequence[Tensor], mode: str, *settings: Any) -> Iterator[Any]:
    """An RNN whose weights are these very tensors, none of them an `nn.Parameter`."""
    rows, columns = weights[0].shape
    hidden, state = rows // GATES.get(mode, 1), weights[1].shape[1]
    rnn = _hollow(threading.get_ident(), mode, columns, hidden, 0 if state == hidden else state, *settings)
    names = flat_names(rnn)
    for name, weight in zip(names, weights, strict=True):
        setattr(rnn, name, weight)
    rnn.train(any(weight.requires_grad for weight in weights))  # for cuDNN's backward; there is no dropout to wake
    try:
        yield rnn
    finally:
        for name in names:
            setattr(rnn, name, None)


@functools.lru_cache(maxsize=64)
def _hollow(
    thread: int, mode: str, inputs: int, hidden: int, projection: int, layers: int, bias: bool, first: bool, both: bool
) -> nn.RNNBase:
    """An RNN without weights, for one thread."""
    kind, _, nonlinearity = mode.partition("_")
    settings: dict[str, Any] = {"nonlinearity": nonlinearity.lower()} if nonlinearity else {}
    settings |= {"proj_size": projection} if projection else {}
    settings |= {"bias": bias, "batch_first": first, "bidirectional": both, "device": "meta"}
    rnn: nn.RNNBase = getattr(nn, kind)(inputs, hidden, layers, **settings)
    for name in flat_names(rnn):
        delattr(rnn, name)  # a parameter, in whose place no plain tensor may be set
    return rnn


@torch.library.custom_op(
    "packviz::ragged_rnn", mutates_args=(), schema=f"({_TAKEN}) -> (Tensor output, Tensor h_n, Tensor c_n)"
)
def _ragged_rnn(*taken: Any) -> tuple[Tensor, Tensor, Tensor]:
    x, lengths, hx, weights, *settings = taken
    made = _run(x, lengths, hx, [one.detach() for one in weights], *settings)
    output, *states = _separate(made, [x, *hx, *weights])
    h_n, c_n = [*states, output.new_empty(0)][:2]
    return output, h_n, c_n


@_ragged_rnn.register_fake
def _shapes(*taken: Any) -> tuple[Tensor, Tensor, Tensor]:
    x, _, _, weights, mode, num_layers, _, batch_first, bidirectional, total_length, _ = taken
    batch = Padded.of(x.shape, batch_first)._replace(steps=total_length)
    directions = 2 if bidirectional else 1
    hidden, state = weights[0].shape[0] // GATES.get(mode, 1), weights[1].shape[1]
    c_n = (num_layers * directions, batch.batch, hidden) if mode == "LSTM" else (0,)
    return (
        x.new_empty(batch.shape(directions * state)),
        x.new_empty(num_layers * directions, batch.batch, state),
        x.new_empty(*c_n),
    )


@torch.library.custom_op(
    "packviz::ragged_rnn_backward",
    mutates_args=(),
    schema=f"(Tensor output, Tensor h_n, Tensor c_n, {_TAKEN}) -> Tensor[]",
)
def _ragged_rnn_backward(*taken: Any) -> list[Tensor]:
    """The gradients to x, the initial states and the weights, by way of torch's autograd."""
    gradients, (x, lengths, hx, weights, *settings) = taken[:3], taken[3:]
    leaves = [one.detach().requires_grad_() for one in (x, *hx, *weights)]

    def differentiated() -> Sequence[Tensor]:
        made = _run(leaves[0], lengths, leaves[1 : 1 + len(hx)], leaves[1 + len(hx) :], *settings)
        return torch.autograd.grad(made, leaves, gradients[: len(made)], allow_unused=True, materialize_grads=True)

    return _separate(recorded(differentiated), [*gradients, x, *hx, *weights])


@_ragged_rnn_backward.register_fake
def _gradient_shapes(*taken: Any) -> list[Tensor]:
    x, _, hx, weights = taken[3:7]
    return [one.new_empty(one.shape) for one in (x, *hx, *weights)]


def _separate(made: Iterable[Tensor], taken: Sequence[Tensor]) -> list[Tensor]:
    """Results as an operator must return them: contiguous, and none with the memory of another or of an argument."""
    seen, found = {one.untyped_storage().data_ptr() for one in taken}, []
    for one in made:
        one = one.contiguous()
        if one.untyped_storage().data_ptr() in seen:
            one = one.clone()
        seen.add(one.untyped_storage().data_ptr())
        found.append(one)
    return found


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    """Saves what the backward pass needs: the inputs."""
    x, lengths, hx, weights, *ctx.settings = inputs
    ctx.states = len(hx)
    ctx.save_for_backward(x, lengths, *hx, *weights)


def _backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
    x, lengths, *rest = ctx.saved_tensors
    hx, weights = rest[: ctx.states], rest[ctx.states :]
    found = _ragged_rnn_backward(*gradients, x, lengths, hx, weights, *ctx.settings)
    return found[0], None, found[1 : 1 + ctx.states], found[1 + ctx.states :], *[None] * len(ctx.settings)


_ragged_rnn.register_autograd(_backward, setup_context=_keep)
