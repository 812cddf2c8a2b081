"""Provides a module that runs an RNN on a padded batch, and that compilers see as one operator.

The operator is opaque to `torch.compile` and `torch.export`: they keep the call and compile
everything around it, so the code inside may depend on the lengths.
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
from packviz.ops.arguments import require_padded, require_rnn
from packviz.ops.masks import Lengths, lengths_tensor
from packviz.ops.private import parameters, recorded, share_names, storage
from packviz.ops.running import State, check_method, is_plain, run
from packviz.ops.torch_kernels import flat_names

_TAKEN = (
    "Tensor x, Tensor lengths, Tensor? h_0, Tensor? c_0, Tensor[] weights,"
    " str mode, bool bias, bool batch_first, bool bidirectional,"
    " SymInt total_length, bool is_longest, float padding_value"
)


class Ragged(nn.Module):
    """An RNN that takes a padded batch and its lengths, and returns what `run` returns, without a
    graph break.

    To use this module, write `self.lstm = pv.Ragged(nn.LSTM(…))`, and replace pack → RNN → pad with
    `self.lstm(x, lengths)`. Its parameters are those of the RNN and have the same names, so a
    checkpoint of either module loads into the other. It also has the RNN's attributes and methods,
    such as `hidden_size` and `flatten_parameters()`.

    Under `torch.compile` and `torch.export`, the module is one operator, or one per layer if there
    is dropout between layers in training mode. A model that contains a `Ragged` can be compiled
    with `fullgraph=True`, and exported with dynamic batch and time dimensions. Once compiled, the
    module always uses the method `"auto"`, and under autocast it computes in the dtype of its
    weights. The compiled backward pass repeats the forward pass, and cannot be differentiated
    again. Import `packviz.ops.operator` before you load an exported program.

    Attributes:
        rnn: the RNN.
        method: the method that `run` uses while the module is not compiled.

    Examples:
        >>> import packviz as pv, torch
        >>> gru = pv.Ragged(torch.nn.GRU(3, 4, batch_first=True))
        >>> output, h_n = gru(torch.randn(3, 5, 3), [5, 2, 3])
        >>> torch.equal(h_n[0, 1], output[1, 1])  # the state after the last real step
        True
    """

    def __init__(
        self, rnn: nn.RNN | nn.GRU | nn.LSTM, method: str | Sequence[int] = "auto"
    ) -> None:
        """Wraps an RNN without copying it.

        Raises:
            TypeError: `rnn` is not an RNN.
            ValueError: the method is unknown.
        """
        super().__init__()
        require_rnn(rnn)
        check_method(method)
        # The RNN is not a submodule, because its parameters must keep their names. A compiler
        # cannot trace through it, so this module shares its parameters and copies its settings.
        self.__dict__["rnn"] = rnn
        self.method, self.training, self._plain = method, rnn.training, is_plain(rnn)
        self._settings = {name: getattr(rnn, name) for name in _SETTINGS} | {
            "names": flat_names(rnn)
        }
        share_names(self, rnn)

    def forward(
        self,
        x: Tensor,
        lengths: Lengths,
        hx: State | None = None,
        *,
        batch_first: bool | None = None,
        total_length: int | None = None,
        padding_value: float = 0.0,
    ) -> tuple[Any, State]:
        """Runs the RNN. The arguments, results and errors are the same as those of `run`.

        While compiling or exporting, the width of the output must be known, so by default it is
        `T`. The compiled program then raises a ValueError for a batch whose longest sequence is
        shorter than `T`. To avoid this, pass `total_length`, such as `x.shape[1]`. The results are
        then the same with and without a compiler.

        Raises:
            RuntimeError: the module is exported to ONNX, which has no such operator; or the module
                is compiled, but the RNN has hooks or its own `forward`.
        """
        how: Any = {
            "batch_first": batch_first,
            "total_length": total_length,
            "padding_value": padding_value,
        }
        if not torch.compiler.is_compiling():
            return run(self.rnn, x, lengths, hx, **how, method=self.method)
        return self._compiled(x, lengths, hx, **how)

    def _compiled(
        self,
        x: Tensor,
        lengths: Any,
        hx: Any,
        batch_first: Any,
        total_length: Any,
        padding_value: float,
    ) -> tuple[Tensor, State]:
        if not self._plain:
            raise RuntimeError(
                "rnn has hooks or its own forward, which a compiler cannot trace: remove them"
            )
        require_padded(x)
        require_dense("x", x)
        lengths, own = lengths_tensor(lengths), self._settings
        first = own["batch_first"] if batch_first is None else bool(batch_first)
        steps = x.shape[1 if first else 0]
        width, is_longest = (steps, True) if total_length is None else (total_length, False)
        weights = [self._weight(name) for name in own["names"]]
        states = [] if hx is None else [hx] if isinstance(hx, Tensor) else list(hx)
        if not x.is_meta and torch.is_autocast_enabled(x.device.type):
            x, states = x.to(weights[0].dtype), [one.to(weights[0].dtype) for one in states]
        directions = 2 if own["bidirectional"] else 1
        drops = own["dropout"] > 0 and self.training and own["num_layers"] > 1
        parts = own["num_layers"] if drops else 1
        each, rows, finals = len(weights) // parts, directions * own["num_layers"] // parts, []
        for i in range(parts):
            h_0, c_0 = [*(one[i * rows : (i + 1) * rows] for one in states), None, None][:2]
            x, *final = _ragged_rnn(
                *(
                    x,
                    lengths,
                    h_0,
                    c_0,
                    weights[i * each : (i + 1) * each],
                    own["mode"],
                    own["bias"],
                    first,
                ),
                *(
                    own["bidirectional"],
                    width if i == parts - 1 else steps,
                    is_longest and not i,
                    float(padding_value),
                ),
            )
            x = nn.functional.dropout(x, own["dropout"]) if i < parts - 1 else x
            finals.append(final)
        h_n, c_n = (one[0] if parts == 1 else torch.cat(one) for one in zip(*finals, strict=True))
        return x, (h_n, c_n) if own["mode"] == "LSTM" else h_n

    def _weight(self, name: str) -> Tensor:
        """Returns a weight without accessing the RNN, which a compiler cannot trace."""
        own = parameters(self)
        return own[name] if name in own else self.parametrizations[name]()  # type: ignore[no-any-return]

    def _apply(self, *args: Any, **options: Any) -> Ragged:
        """Converts or moves the RNN's weights. This also puts them into one piece of memory, as cuDNN requires."""
        self.rnn._apply(*args, **options)
        return self

    def apply(self, fn: Any) -> Ragged:
        """Calls a function on the RNN and on this module, so that functions that initialise weights reach the RNN."""
        self.rnn.apply(fn)
        fn(self)
        return self

    def train(self, mode: bool = True) -> Ragged:
        """Sets the training mode of this module and of the RNN."""
        self.rnn.train(mode)
        return super().train(mode)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.__dict__.get("rnn"), name)  # a copy has none until its state is set

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _SETTINGS:
            self._settings[name] = value
        elif name not in parameters(self):
            super().__setattr__(name, value)
            return
        setattr(self.rnn, name, value)

    def extra_repr(self) -> str:
        """Returns the RNN and the method."""
        return f"{self.rnn!r}, method={self.method!r}"


_SETTINGS = ("mode", "num_layers", "bias", "batch_first", "bidirectional", "dropout")


def _run(
    x: Tensor, lengths: Tensor, h_0: Any, c_0: Any, weights: Sequence[Tensor], *settings: Any
) -> list[Tensor]:
    """Runs an RNN with these weights. Returns the output, `h_n` and, for an LSTM, `c_n`."""
    *kind, total_length, is_longest, padding_value = settings
    n, width = lengths.cpu(), int(total_length)
    if is_longest and len(n) and (longest := int(n.max())) < width:
        raise ValueError(
            f"the longest length is {longest}, but x has T = {width}, and the output of a compiled program has T time"
            " steps; pass total_length=x.shape[…], so that the output has this width without a compiler, too, or cut x"
        )
    state: Any = h_0 if c_0 is None else (h_0, c_0)
    with (
        _holding(weights, *kind) as rnn,
        torch.autocast(
            x.device.type, enabled=False
        ),  # the compiler relies on the dtypes of the fake operator
    ):
        output, states = run(rnn, x, n, state, total_length=width, padding_value=padding_value)
    return [output, *states] if isinstance(states, tuple) else [output, states]


@contextmanager
def _holding(weights: Sequence[Tensor], mode: str, bias: bool, *settings: bool) -> Iterator[Any]:
    """Provides an RNN whose weights are these tensors, without copying them or turning them into parameters."""
    rows, columns = weights[0].shape
    hidden, state = rows // GATES.get(mode, 1), weights[1].shape[1]
    projection = 0 if state == hidden else state
    each = (2 + 2 * bias + bool(projection)) * (2 if settings[1] else 1)
    sizes = columns, hidden, len(weights) // each, bias, *settings
    rnn = _hollow(threading.get_ident(), mode, projection, *sizes)
    names = flat_names(rnn)
    for name, weight in zip(names, weights, strict=True):
        setattr(rnn, name, weight)
    rnn.train(
        any(weight.requires_grad for weight in weights)
    )  # cuDNN's backward pass needs training mode
    try:
        yield rnn
    finally:
        for name in names:
            setattr(rnn, name, None)


@functools.lru_cache(maxsize=64)
def _hollow(thread: int, mode: str, projection: int, *sizes: Any) -> nn.RNNBase:
    """Returns an RNN without weights. Each thread gets its own RNN."""
    kind, _, nonlinearity = mode.partition("_")
    settings: dict[str, Any] = {"nonlinearity": nonlinearity.lower()} if nonlinearity else {}
    settings |= {"proj_size": projection} if projection else {}
    settings |= dict(zip(("bias", "batch_first", "bidirectional"), sizes[3:], strict=True))
    rnn: nn.RNNBase = getattr(nn, kind)(*sizes[:3], device="meta", **settings)
    for name in flat_names(rnn):
        delattr(rnn, name)  # a plain tensor cannot replace a parameter
    return rnn


@torch.library.custom_op(
    "import_packviz_ops_operator::ragged_rnn",
    mutates_args=(),
    schema=f"({_TAKEN}) -> (Tensor output, Tensor h_n, Tensor c_n)",
)
def _ragged_rnn(*taken: Any) -> tuple[Tensor, Tensor, Tensor]:
    x, lengths, h_0, c_0, weights, *settings = taken
    made = _run(x, lengths, h_0, c_0, [one.detach() for one in weights], *settings)
    output, *states = _separate(made, [x, h_0, c_0, *weights])
    h_n, c_n = [*states, output.new_empty(0)][:2]
    return output, h_n, c_n


@_ragged_rnn.register_fake
def _shapes(*taken: Any) -> tuple[Tensor, Tensor, Tensor]:
    if torch.onnx.is_in_onnx_export():
        raise RuntimeError(
            "ONNX has no operator for pv.Ragged: export with dynamo=False, which packs and pads"
        )
    x, _, _, _, weights, mode, bias, batch_first, bidirectional, total_length, *_ = taken
    batch, directions = (
        Padded.of(x.shape, batch_first)._replace(steps=total_length),
        2 if bidirectional else 1,
    )
    hidden, state = weights[0].shape[0] // GATES.get(mode, 1), weights[1].shape[1]
    rows = len(weights) // (2 + 2 * bias + (state != hidden))
    return (
        x.new_empty(batch.shape(directions * state)),
        x.new_empty(rows, batch.batch, state),
        x.new_empty((rows, batch.batch, hidden) if mode == "LSTM" else (0,)),
    )


@torch.library.custom_op(
    "import_packviz_ops_operator::ragged_rnn_backward",
    mutates_args=(),
    schema=f"(Tensor output, Tensor h_n, Tensor c_n, {_TAKEN}) -> Tensor[]",
)
def _ragged_rnn_backward(*taken: Any) -> list[Tensor]:
    """Computes the gradients of `x`, the initial states and the weights with torch's autograd."""
    gradients, (x, lengths, h_0, c_0, weights, *settings) = taken[:3], taken[3:]
    own: Any = [t if t is None else t.detach().requires_grad_() for t in (x, h_0, c_0, *weights)]
    x, h_0, c_0, *weights = own
    leaves = [t for t in (x, h_0, c_0, *weights) if t is not None]

    def differentiated() -> Sequence[Tensor]:
        made = _run(x, lengths, h_0, c_0, weights, *settings)
        return torch.autograd.grad(
            made, leaves, gradients[: len(made)], allow_unused=True, materialize_grads=True
        )

    return _separate(recorded(differentiated), [*gradients, *leaves])


@_ragged_rnn_backward.register_fake
def _gradient_shapes(*taken: Any) -> list[Tensor]:
    x, _, h_0, c_0, weights = taken[3:8]
    return [one.new_empty(one.shape) for one in (x, h_0, c_0, *weights) if one is not None]


def _separate(made: Iterable[Tensor], taken: Sequence[Tensor | None]) -> list[Tensor]:
    """Makes results contiguous, and copies those that share memory with another result or with an argument."""
    seen, found = {storage(one) for one in taken if one is not None}, []
    for one in made:
        one = one.contiguous()
        one = one.clone() if storage(one) in seen else one
        seen.add(storage(one))
        found.append(one)
    return found


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    """Saves the inputs for the backward pass."""
    x, lengths, h_0, c_0, weights, *ctx.settings = inputs
    ctx.save_for_backward(x, lengths, h_0, c_0, *weights)


def _backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
    x, lengths, h_0, c_0, *weights = ctx.saved_tensors
    found = iter(_ragged_rnn_backward(*gradients, x, lengths, h_0, c_0, weights, *ctx.settings))
    dx, dh, dc = (None if one is None else next(found) for one in (x, h_0, c_0))
    return dx, None, dh, dc, [*found], *[None] * len(ctx.settings)


_ragged_rnn.register_autograd(_backward, setup_context=_keep)
