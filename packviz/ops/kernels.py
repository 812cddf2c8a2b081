"""Runs one layer of an `nn.RNN`, `nn.GRU` or `nn.LSTM` with torch's own kernels."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from packviz.ops import private

Result = tuple[Tensor, Tensor, Tensor | None]
"""A layer's padded output, `h_n` `(D, B, P)`, and `c_n` `(D, B, H)` or `None` without one, in the caller's order."""


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
    weights: tuple[tuple[Tensor, ...], ...]

    @property
    def directions(self) -> int:
        """The number of directions, `D`: 2 if the layer is bidirectional, else 1."""
        return len(self.weights)

    @property
    def output_size(self) -> int:
        """`P`, the number of output features of each direction: the size of the projection, if any, or `H`."""
        return self.weights[0][1].shape[1]

    @property
    def flat(self) -> tuple[Tensor, ...]:
        """The weights of all directions, in one tuple."""
        return tuple(weight for direction in self.weights for weight in direction)

    def holding(self, flat: Sequence[Tensor]) -> Layer:
        """Returns the same layer with other weights, in the order of `flat`."""
        each = len(self.weights[0])
        return self._replace(
            weights=tuple(tuple(flat[i : i + each]) for i in range(0, len(flat), each))
        )


def flat_names(rnn: nn.RNNBase) -> tuple[str, ...]:
    """Returns the names of the weights, by layer and direction, in torch's order."""
    return _names(rnn.num_layers, bool(rnn.bidirectional), bool(rnn.bias), bool(rnn.proj_size))


@functools.lru_cache(maxsize=64)
def _names(num_layers: int, bidirectional: bool, bias: bool, projected: bool) -> tuple[str, ...]:
    kinds = ("weight_ih", "weight_hh", *("bias_ih", "bias_hh") * bias, *("weight_hr",) * projected)
    suffixes = ("", "_reverse") if bidirectional else ("",)
    return tuple(
        f"{kind}_l{i}{suffix}" for i in range(num_layers) for suffix in suffixes for kind in kinds
    )


def flat_weights(rnn: nn.RNNBase) -> tuple[Tensor, ...]:
    """Returns a module's current weights in the order of `flat_names`. Parametrised weights are computed first."""
    own = private.parameters(
        rnn
    )  # asking the module is slower, because it looks in other places first
    return tuple([own[name] if name in own else getattr(rnn, name) for name in flat_names(rnn)])


def layers(rnn: nn.RNNBase, flat: Sequence[Tensor]) -> list[Layer]:
    """Divides the weights of a module into layers."""
    count = 2 if rnn.bidirectional else 1
    each = len(flat) // (rnn.num_layers * count)
    directions = [tuple(flat[i : i + each]) for i in range(0, len(flat), each)]
    return [
        Layer(rnn.mode, rnn.bias, tuple(directions[i : i + count]))
        for i in range(0, len(directions), count)
    ]


def is_fused(mode: str, x: Tensor, projected: bool) -> bool:
    """Returns whether torch runs oneDNN's fused LSTM on padded data like `x`."""
    if mode != "LSTM" or projected or x.dtype != torch.float32 or not x.is_cpu:
        return False
    onednn: Any = torch.backends.mkldnn
    return bool(onednn.is_available() and onednn.enabled)


def has_padded_kernel(mode: str, x: Tensor, projected: bool, device: str) -> bool:
    """Returns whether a kind of device has a kernel that accepts only padded data and can process
    data like `x`.

    The device is `"cpu"` or `"cuda"`. See `costs.rates`.
    """
    return is_fused(mode, x, projected) if device == "cpu" else x.dtype != torch.float64


def rectangle(
    mode: str,
    bias: bool,
    weights: Sequence[Tensor],
    x: Tensor,
    h: Tensor,
    c: Tensor | None,
    reverse: bool = False,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Runs one direction of a layer on a rectangle `(t, n, I)`.

    If `reverse` is True, the layer runs from the last step to the first, which only the fused
    kernel supports.

    Returns:
        The output, the final `h` `(n, P)` and, for an LSTM, the final `c` `(n, H)`.
    """
    grad = torch.is_grad_enabled()
    if c is None:
        out, h = private.kernel(mode)(x, h[None], weights, bias, 1, 0.0, grad, False, False)
        return out, h[0], None
    if grad and is_fused(mode, x, len(weights) % 2 == 1):
        return _Fused.apply(reverse, x, h, c, *weights)  # type: ignore[no-untyped-call,no-any-return]
    if reverse:
        return _fused(False, True, x, h, c, *weights)[:3]
    out, h, c = private.kernel("LSTM")(
        x, (h[None], c[None]), weights, bias, 1, 0.0, grad, False, False
    )
    return out, h[0], c[0]


def in_one_piece(weights: Sequence[Tensor]) -> Sequence[Tensor]:
    """Returns one direction's weights in the layout that cuDNN needs, one after the other in one
    piece of memory.

    Modules lay out the weights of all layers in this way. Without this layout, torch shows a
    warning and copies the weights at every call. cuDNN needs the projection before the biases, and
    space for biases even if there are none.
    """
    matrices, biases = weights[:2], weights[2:4] if len(weights) > 3 else ()
    laid = [*matrices, *weights[len(matrices) + len(biases) :], *biases]
    starts = list(accumulate((weight.numel() for weight in laid), initial=0))[:-1]
    together = len({private.storage(weight) for weight in laid}) == 1
    if together and [weight.storage_offset() for weight in laid] == starts:
        return weights
    none = () if biases else (weights[0].new_zeros(2 * len(weights[0])),)
    flat = torch.cat([*(weight.flatten() for weight in laid), *none])
    views = [
        flat[start : start + w.numel()].view_as(w) for start, w in zip(starts, laid, strict=True)
    ]
    return [*views[:2], *views[len(laid) - len(biases) :], *views[2 : len(laid) - len(biases)]]


def gradients_again(
    function: Callable[..., Sequence[Tensor | None]],
    inputs: Sequence[Tensor | None],
    gradients: Sequence[Tensor | None],
) -> list[Tensor | None]:
    """Computes a function's gradients inside a `backward` method, with operators that can be
    differentiated again.

    Args:
        function: a function that recomputes the results from the inputs, using only operators that
            can be differentiated repeatedly.
        inputs: the inputs of the function.
        gradients: the gradients of the function's results.
    """
    # One input may be computed from another, such as a state from the weights. With views of the
    # inputs, gradients reach each input only through this function, so nothing is counted twice.
    inputs = [x if x is None else x.view_as(x) for x in inputs]
    pairs = [
        (o, g)
        for o, g in zip(function(*inputs), gradients, strict=True)
        if o is not None and g is not None
    ]
    outs, grads = zip(*pairs, strict=True)
    sources = [x for x in inputs if x is not None and x.requires_grad]
    found = iter(torch.autograd.grad(outs, sources, grads, create_graph=True, allow_unused=True))
    return [next(found) if x is not None and x.requires_grad else None for x in inputs]


class _Fused(torch.autograd.Function):
    """oneDNN's LSTM in one direction, with a backward pass that can be differentiated again, unlike torch's."""

    @staticmethod
    def forward(
        ctx: Any, reverse: bool, x: Tensor, h: Tensor, c: Tensor, *weights: Tensor
    ) -> tuple[Tensor, ...]:
        """Runs the kernel on `x`, `(t, n, I)`, from the states `h` and `c`, `(n, H)`.

        Returns the output and the final states.
        """
        ctx.set_materialize_grads(False)
        ctx.reverse, train = reverse, any(ctx.needs_input_grad)
        out, h_n, c_n, space = _fused(train, reverse, x, h, c, *weights)
        if train:
            ctx.save_for_backward(x, h, c, out, h_n, c_n, space, *weights)
        return out, h_n, c_n

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        """Computes the gradients of all inputs from those of the three results."""
        x, h, c, out, h_n, c_n, space, *weights = ctx.saved_tensors
        if torch.is_grad_enabled():
            return None, *gradients_again(
                functools.partial(_plain, ctx.reverse), (x, h, c, *weights), gradients
            )
        options = _LSTM, c.shape[1], 1, True, True, False, [], False  # type: ignore[var-annotated]
        x, h, c = x.contiguous(), h.contiguous(), c.contiguous()
        results = h, c, out, h_n, c_n, *gradients
        dx, *dw, dh, dc = private.fused_lstm_backward(
            x, *_four(weights), *results, ctx.reverse, *options, space
        )
        return None, dx, dh, dc, *dw[: len(weights)]


def _fused(
    train: bool, reverse: bool, x: Tensor, h: Tensor, c: Tensor, *weights: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Runs the kernel. Returns the output, both final states, and the workspace for the backward pass."""
    options = [], _LSTM, c.shape[1], 1, True, False, False, train  # type: ignore[var-annotated]
    arguments = [
        t.detach().contiguous() for t in (x, *_four(weights), h, c)
    ]  # oneDNN ignores strides
    with torch.set_grad_enabled(
        train
    ):  # otherwise the operator saves nothing for its backward pass
        return private.fused_lstm(*arguments, reverse, *options)  # type: ignore[no-any-return]


def _plain(reverse: bool, x: Tensor, h: Tensor, c: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
    """Computes the results of `_Fused` with torch's kernel for packed data, which can be differentiated repeatedly."""
    along, sizes = x.flip(0) if reverse else x, torch.full((x.shape[0],), x.shape[1], device="cpu")
    options = len(weights) == 4, 1, 0.0, True, False
    with torch.autocast("cpu", enabled=False):
        out, *states = private.kernel("LSTM")(
            along.flatten(0, 1), sizes, (h[None], c[None]), weights, *options
        )
    out = out.view(*x.shape[:2], -1)
    return out.flip(0) if reverse else out, *(state[0] for state in states)


# The number by which torch's operators identify the mode LSTM.
_LSTM = 2


def _four(weights: Sequence[Tensor]) -> Sequence[Tensor]:
    """Returns the weights with biases, which are zeros if the layer has none."""
    if len(weights) == 4:
        return weights
    zero = weights[0].new_zeros(len(weights[0]))
    return [*weights, zero, zero]
