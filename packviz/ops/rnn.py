"""Provides torch's RNNs with a forward pass that takes lengths: in Python, compiled, and exported.

To `torch.compile` and `torch.export`, the RNN is one opaque operator: they keep the call and
compile everything around it, so the code inside may depend on the lengths. In ONNX, it becomes
ONNX's own LSTM, GRU or RNN, whose input `sequence_lens` holds the lengths.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from packviz.core.padded import PaddedShape
from packviz.core.spec import GATES
from packviz.core.util import warn
from packviz.core.validation import kind_of
from packviz.ops.arguments import (
    require_input_shape,
    require_padded,
    require_rnn,
    state_shapes,
)
from packviz.ops.masks import Lengths, is_tracing, lengths_tensor
from packviz.ops.private import call_with_autograd, storage_id
from packviz.ops.running import (
    Method,
    ModuleResult,
    OutputAndState,
    State,
    _run,
    _state_from_tensors,
    state_as_tuple,
)
from packviz.ops.torch_kernels import Gradients, Tensors, TorchRNN, flat_weight_names


class RNNWithLengths(nn.RNNBase):
    """The base class of `LSTM`, `GRU` and `RNN`.

    Attributes:
        method: the method that `pv.run` would use, while nothing is compiled or traced.
    """

    method: Method = "auto"
    _torch_class: ClassVar[Any]

    def __init__(self, *args: object, **kwargs: object) -> None:
        """Creates an RNN. All arguments are torch's."""
        rnn = self._torch_class(*args, **kwargs)
        self.__dict__.update(vars(rnn))

    @classmethod
    def from_torch(cls, rnn: nn.RNNBase) -> nn.RNNBase:
        """Turns torch's RNN of this kind into one that takes lengths (see `Ragged`)."""
        kind = type(rnn)
        if "forward" in vars(rnn) or kind.forward is not cls._torch_class.forward:
            raise TypeError(
                f"rnn is {kind_of(rnn)} with its own forward, which may not take lengths: call"
                " pv.run(rnn, x, lengths)"
            )
        if kind is cls._torch_class:
            rnn.__class__ = cls
            return rnn
        if not is_parametrized(rnn):
            raise TypeError(
                f"rnn is {kind_of(rnn)}, which is derived from torch.nn.{cls.__name__}: derive it"
                f" from pv.{cls.__name__}"
            )
        # torch has derived a class for it, with a property for each weight.
        attributes = dict(vars(kind))
        attributes.pop("__dict__", None)
        attributes.pop("__weakref__", None)
        rnn.__class__ = type(kind.__name__, (cls,), attributes)
        return rnn

    def forward(
        self,
        input: Tensor,
        hx: State | None = None,
        lengths: Lengths | None = None,
        *,
        total_length: int | None = None,
        padding_value: float = 0.0,
    ) -> ModuleResult:
        """Runs the RNN.

        Args:
            input: `(T, B, I)`, or `(B, T, I)` with `batch_first`, with the padding at the end.
                Without `lengths`, anything that torch's RNN takes.
            hx: the initial state, as in torch. Defaults to zeros.
            lengths: `(B,)` whole numbers from 0 to `T`, or a mask, `(B, T)`, as in `pv.run`.
                Without lengths, every sequence has `T` steps, as in torch's own forward pass.
            total_length: the number of time steps of the output. Defaults to `T`.
            padding_value: the value that fills the padding of the output.

        Returns:
            The output, and the final state: what `pack_padded_sequence`, torch's RNN and
            `pad_packed_sequence(…, total_length=T)` return.

        Raises:
            TypeError: `hx` holds whole numbers, so it is probably the lengths; or `total_length` or
                `padding_value` is given without lengths.
            ValueError: the arguments do not fit together.
            RuntimeError: the RNN is exported to ONNX, and ONNX or this release of torch lacks what
                it needs.
        """
        if lengths is None:
            if total_length is not None or padding_value:
                raise TypeError("total_length and padding_value need lengths; pass lengths=, too")
            for state in state_as_tuple(hx):
                if not isinstance(state, Tensor) or not state.is_floating_point():
                    raise TypeError(
                        "hx must contain only floating-point tensors; pass lengths by name, as in"
                        " rnn(x, lengths=lengths)"
                    )
            is_padded = isinstance(input, Tensor) and input.ndim == 3
            if not (is_padded and torch.compiler.is_compiling()):
                return self._torch_forward(input, hx)
            if self.mode != "LSTM" and not input.numel():  # torch's LSTM ends the process here
                return self._torch_forward(input, hx)
            if input.device.type == "cpu" and torch.is_autocast_enabled("cpu"):
                return self._torch_forward(input, hx)  # its dtype is not that of packed data
            if torch.onnx.is_in_onnx_export() and not hasattr(torch.onnx, "ops"):
                return self._torch_forward(input, hx)  # torch 2.7
            # torch cannot compile the training of its own LSTM.
            batch, steps, _ = PaddedShape.from_shape(input.shape, self.batch_first)
            lengths = torch.full((batch,), steps, device="cpu")
        require_padded(input)
        if total_length is None and input.ndim == 3:
            total_length = input.shape[1 if self.batch_first else 0]
        if torch.compiler.is_compiling():
            output_steps = cast(int, total_length)
            return self._compiled_forward(
                input, lengths_tensor(lengths), hx, output_steps, padding_value
            )
        if is_tracing():
            if padding_value and torch.onnx.is_in_onnx_export():
                raise RuntimeError(
                    "ONNX's legacy exporter ignores padding_value: leave it out, or export with"
                    " dynamo=True"
                )
            lengths = lengths_tensor(lengths)
        return _run(self, input, lengths, hx, self.method, None, total_length, padding_value)

    def _torch_forward(self, input: Tensor, hx: State | None) -> ModuleResult:
        """Runs torch's own forward, without the hooks, which run around this module's forward."""
        result: ModuleResult = self._torch_class.forward(self, input, hx)
        return result

    def _compiled_forward(
        self, x: Tensor, lengths: Tensor, hx: State | None, output_steps: int, padding_value: float
    ) -> OutputAndState:
        require_input_shape(self, x.shape, self.batch_first)
        weights: Tensors = [getattr(self, name) for name in flat_weight_names(self)]
        states: Tensors = state_as_tuple(hx)
        if torch.onnx.is_in_onnx_export():
            return _run_in_onnx(self, x, lengths, states, weights, output_steps, padding_value)
        device = x.device.type
        if torch.is_autocast_enabled(device):
            # On a CPU, the packed data of an LSTM or a GRU keep their dtype under autocast.
            ignores_autocast = device == "cpu" and not self.mode.startswith("RNN")
            dtype = x.dtype if ignores_autocast else torch.get_autocast_dtype(device)
            x = x.to(dtype)
            states = [state.to(dtype) for state in states]
            weights = [weight.to(dtype) for weight in weights]
        has_dropout = self.dropout > 0 and self.training and self.num_layers > 1
        n_layer_groups = self.num_layers if has_dropout else 1
        steps = x.shape[1 if self.batch_first else 0]
        rnn_settings = (self.mode, self.bias, self.batch_first, bool(self.bidirectional))
        padding = float(padding_value)
        states_by_group: list[list[Tensor]] = []
        for initial_states, group_weights in _split_by_layer_group(states, weights, n_layer_groups):
            if states_by_group:
                x = nn.functional.dropout(x, self.dropout)
            record = _record_level(x, initial_states, group_weights)
            is_last_group = len(states_by_group) == n_layer_groups - 1
            settings = (*rnn_settings, record, output_steps if is_last_group else steps, padding)
            tensors = [*initial_states, *group_weights]
            x, *final_states, _ = _forward(x, lengths, tensors, len(initial_states), *settings)
            states_by_group.append(final_states)
        h_n, c_n = map(torch.cat, zip(*states_by_group, strict=True))
        if self.mode == "LSTM":
            return x, (h_n, c_n)
        return x, h_n

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "qconfig":
            warn(
                f"pv.{type(self).__name__} stays in floating point: torch.ao.quantization replaces"
                " only modules whose class is exactly nn.LSTM or nn.GRU; to quantise, use these,"
                " with pack_padded_sequence"
            )
        super().__setattr__(name, value)


class LSTM(RNNWithLengths):
    """torch's `nn.LSTM`, with a forward pass that takes lengths.

    It has torch's arguments, parameters, names and checkpoints. With `lengths`, it returns what
    pack → LSTM → pad returns, but the output has `T` time steps unless you pass `total_length`::

        rnn = pv.LSTM(32, 64, num_layers=2, bidirectional=True)
        output, (h_n, c_n) = rnn(x, lengths=lengths)

    In Python, it runs like `pv.run`, with the method `rnn.method`. It also works under
    `torch.compile(fullgraph=True)`, in `torch.export` with `T` and `B` dynamic, in
    `torch.jit.trace`, and in both ONNX exporters. The new one also keeps `T` and `B` dynamic; it
    needs torch 2.8 (as does a compiled training step) and the module itself, not an exported
    program, and does not support projections. A trace refuses empty sequences, and ONNX Runtime may
    do so. While compiling, lengths are a tensor or a list, not an array. Values on an accelerator
    and values in a compiled program are not checked before the RNN runs. A compiled program cannot
    be differentiated twice. `torch.jit.script` cannot compile the module, and a `Tracer` of
    `torch.fx` must treat it as a leaf. Before you load an exported program, import
    `packviz.ops.rnn`, which defines its operator.

    `isinstance(rnn, nn.LSTM)` is False, because `torch.compile` breaks the graph at every instance
    of `nn.LSTM`. So code that looks for `nn.LSTM` overlooks it: initialisation by type, FLOP
    counters, and `quantize_dynamic`, which shows a warning. Look for `nn.RNNBase` instead.

    Examples:
        >>> import packviz as pv, torch
        >>> lstm = pv.LSTM(3, 4, batch_first=True)
        >>> output, (h_n, c_n) = lstm(torch.randn(3, 7, 3), lengths=[5, 2, 3])
        >>> output.shape
        torch.Size([3, 7, 4])
    """

    _torch_class = nn.LSTM
    get_expected_cell_size = nn.LSTM.get_expected_cell_size
    check_forward_args: Any = nn.LSTM.check_forward_args
    permute_hidden: Any = nn.LSTM.permute_hidden


class GRU(RNNWithLengths):
    """torch's `nn.GRU`, with a forward pass that takes lengths. The notes on `pv.LSTM` apply, too.

    Examples:
        >>> import packviz as pv, torch
        >>> gru = pv.GRU(3, 4, batch_first=True)
        >>> output, h_n = gru(torch.randn(3, 5, 3), lengths=[5, 2, 3])
        >>> torch.equal(h_n[0, 1], output[1, 1])  # the state after the last real step
        True
    """

    _torch_class = nn.GRU


class RNN(RNNWithLengths):
    """torch's `nn.RNN`, with a forward pass that takes lengths. The notes on `pv.LSTM` apply, too.

    Examples:
        >>> import packviz as pv, torch
        >>> rnn = pv.RNN(3, 4, nonlinearity="relu")
        >>> output, h_n = rnn(torch.randn(5, 3, 3), lengths=[5, 2, 3])
        >>> output[2:, 1].any().item()  # the padding of the second sequence
        False
    """

    _torch_class = nn.RNN


def Ragged(rnn: TorchRNN) -> Any:  # it makes a module
    """Turns torch's RNN into one that takes lengths: the *same object*, whose class changes.

    Parameters, hooks, parametrisations and references to the object stay as they are. Afterwards,
    `isinstance(rnn, nn.LSTM)` is False. The docstring of `pv.LSTM` lists the consequences.

    Args:
        rnn: an `nn.LSTM`, `nn.GRU` or `nn.RNN`.

    Returns:
        `rnn` itself, which is now a `pv.LSTM`, `pv.GRU` or `pv.RNN`.

    Raises:
        TypeError: `rnn` is not one of torch's RNNs, or has its own `forward`.

    Examples:
        >>> import packviz as pv, torch
        >>> gru = torch.nn.GRU(3, 4)
        >>> pv.Ragged(gru) is gru, type(gru) is pv.GRU
        (True, True)
    """
    require_rnn(rnn)
    if isinstance(rnn, RNNWithLengths):
        return rnn
    return _RNN_CLASSES[rnn.mode].from_torch(rnn)


_RNN_CLASSES: dict[str, type[RNNWithLengths]] = {
    "LSTM": LSTM,
    "GRU": GRU,
    "RNN_TANH": RNN,
    "RNN_RELU": RNN,
}


def _split_by_layer_group(
    states: Tensors, weights: Tensors, n_layer_groups: int
) -> Sequence[tuple[Tensors, Tensors]]:
    """Divides states and weights into those of each group of layers."""
    weights_per_group = len(weights) // n_layer_groups
    state_chunks = [state.chunk(n_layer_groups) for state in states]
    groups = []
    for group in range(n_layer_groups):
        group_states = [chunks[group] for chunks in state_chunks]
        start = group * weights_per_group
        groups.append((group_states, weights[start : start + weights_per_group]))
    return groups


# The operator.

# What is recorded for the backward pass.
_RECORD_NOTHING = 0
_RECORD_WEIGHTS = 1
_RECORD_ALL = 2

_OperatorSettings = tuple[str, bool, bool, bool, int, int, float]
"""The operator's arguments after `n_states` (see `_SCHEMA_ARGUMENTS`)."""

_OperatorResults = tuple[Tensor, Tensor, Tensor, Tensor]
"""The output, `h_n`, `c_n` (empty if there is none) and the token of the backward pass."""


def _record_level(x: Tensor, states: Tensors, weights: Tensors) -> int:
    """Returns the gradients to record a graph for: none, all, or all but that of `x`."""
    if not torch.is_grad_enabled() or torch.compiler.is_exporting():
        return _RECORD_NOTHING
    if x.requires_grad:
        return _RECORD_ALL
    if any(tensor.requires_grad for tensor in (*states, *weights)):
        return _RECORD_WEIGHTS
    return _RECORD_NOTHING


def _rnn_with_weights(weights: Tensors, settings: _OperatorSettings) -> RNNWithLengths:
    """Returns an RNN with these tensors as weights, which are neither copied nor parameters."""
    mode, bias, batch_first, bidirectional, record, _, _ = settings
    rows, input_size = weights[0].shape
    output_size = weights[1].shape[1]
    hidden_size = rows // GATES.get(mode, 1)
    proj_size = 0 if output_size == hidden_size else output_size
    weights_per_direction = 2 + 2 * bias + bool(proj_size)
    weights_per_layer = weights_per_direction * (1 + bidirectional)
    kind = _RNN_CLASSES[mode]
    rnn = kind.__new__(kind)
    nn.Module.__init__(rnn)
    rnn.__dict__.update(
        training=record != _RECORD_NOTHING,
        mode=mode,
        bias=bias,
        batch_first=batch_first,
        bidirectional=bidirectional,
        input_size=input_size,
        hidden_size=hidden_size,
        proj_size=proj_size,
        num_layers=len(weights) // weights_per_layer,
        dropout=0.0,
    )
    names = flat_weight_names(rnn)
    rnn.__dict__.update(zip(names, weights, strict=True))
    rnn.__dict__.update(_flat_weights=weights, _flat_weights_names=names, _flat_weight_refs=[])
    return rnn


def _run_rnn(
    x: Tensor, lengths: Tensor, tensors: Tensors, n_states: int, *settings: *_OperatorSettings
) -> Tensors:
    """Returns the output, `h_n` and, for an LSTM, `c_n`."""
    output_steps = int(settings[5])
    rnn = _rnn_with_weights(tensors[n_states:], settings)
    hx = _state_from_tensors(tensors[:n_states]) if n_states else None
    with torch.autocast(x.device.type, enabled=False):  # the dtypes are those of the arguments
        output, final_state = _run(
            rnn, x, lengths.cpu(), hx, "auto", None, output_steps, settings[6]
        )
    return [output, *state_as_tuple(final_state)]


class _RecordedRun:
    """An RNN's results, and the tensors whose gradients can be computed from them."""

    def __init__(
        self,
        x: Tensor,
        lengths: Tensor,
        tensors: Tensors,
        n_states: int,
        *settings: *_OperatorSettings,
    ) -> None:
        leaf_x = x.detach().requires_grad_(settings[4] == _RECORD_ALL)
        leaf_tensors = [tensor.detach().requires_grad_() for tensor in tensors]
        self.leaves = _recorded_leaves(leaf_x, leaf_tensors, settings)
        self.results: Tensors = call_with_autograd(
            lambda: _run_rnn(leaf_x, lengths, leaf_tensors, n_states, *settings)
        )

    def gradients(self, output_gradients: Gradients) -> list[Tensor]:
        """Returns the gradients of the leaves."""
        results = []
        gradients = []
        for result, gradient in zip(self.results, output_gradients, strict=False):
            if gradient is not None:
                results.append(result)
                gradients.append(gradient)
        computed = torch.autograd.grad(
            results, self.leaves, gradients, allow_unused=True, materialize_grads=True
        )
        return _copy_shared(computed, [*gradients, *self.leaves])


def _recorded_leaves(x: Tensor, tensors: Tensors, settings: _OperatorSettings) -> Tensors:
    """Returns the tensors whose gradients are recorded."""
    return [x, *tensors] if settings[4] == _RECORD_ALL else tensors


# The states come first in `tensors`, and then the weights. A list of its own for the states could
# be empty, and AOTInductor passes an empty list as None.
_SCHEMA_ARGUMENTS = (
    "Tensor x, Tensor lengths, Tensor[] tensors, int n_states,"
    " str mode, bool bias, bool batch_first, bool bidirectional,"
    " int record, SymInt total_length, float padding_value"
)


# The operators read lengths that may be on a GPU, so a captured CUDA graph must not contain them.
# torch 2.7 has no such tag, and its custom_op takes none.
_OPERATOR_TAGS: Any = (
    {"tags": [torch.Tag.cudagraph_unsafe]} if hasattr(torch.Tag, "cudagraph_unsafe") else {}
)


# A program that is loaded where this operator is missing names its namespace, and so this module.
@torch.library.custom_op(
    "packviz_ops_rnn::forward",
    mutates_args=(),
    schema=f"({_SCHEMA_ARGUMENTS}) -> (Tensor output, Tensor h_n, Tensor c_n, Tensor token)",
    **_OPERATOR_TAGS,
)
def _forward(
    x: Tensor, lengths: Tensor, tensors: Tensors, n_states: int, *settings: *_OperatorSettings
) -> _OperatorResults:
    """Runs the RNN. The backward pass keeps the empty `token`, and with it the recorded graph."""
    token: Any = torch.empty(0)
    if settings[4] == _RECORD_NOTHING:
        results = _run_rnn(x, lengths, tensors, n_states, *settings)
    else:
        token.recorded_run = _RecordedRun(x, lengths, tensors, n_states, *settings)
        results = [result.detach() for result in token.recorded_run.results]
    output, h_n, *cells = _copy_shared(results, [x, *tensors])
    c_n = cells[0] if cells else output.new_empty(0)
    return output, h_n, c_n, token


@_forward.register_fake
def _fake_results(
    x: Tensor, lengths: Tensor, tensors: Tensors, n_states: int, *settings: *_OperatorSettings
) -> _OperatorResults:
    rnn = _rnn_with_weights(tensors[n_states:], settings)
    padded_shape = PaddedShape.from_shape(x.shape, rnn.batch_first)._replace(steps=settings[5])
    h_n, *cells = map(x.new_empty, state_shapes(rnn, padded_shape.batch))
    features = (1 + rnn.bidirectional) * h_n.shape[2]
    output = x.new_empty(padded_shape.shape(features))
    c_n = cells[0] if cells else x.new_empty(0)
    return output, h_n, c_n, torch.empty(0)


@torch.library.custom_op(
    "packviz_ops_rnn::backward",
    mutates_args=(),
    schema=f"(Tensor? output, Tensor? h_n, Tensor? c_n, Tensor token, {_SCHEMA_ARGUMENTS})"
    " -> Tensor[]",
    **_OPERATOR_TAGS,
)
def _backward(
    output: Tensor | None, h_n: Tensor | None, c_n: Tensor | None, token: Tensor, *arguments: Any
) -> list[Tensor]:
    """Computes the gradients of the leaves. Without a recorded graph, it runs the RNN again."""
    recorded_run: _RecordedRun = vars(token).pop("recorded_run", None) or _RecordedRun(*arguments)
    return recorded_run.gradients((output, h_n, c_n))


@_backward.register_fake
def _fake_gradients(*arguments: Any) -> list[Tensor]:
    x, _, tensors = arguments[4:7]
    settings = cast(_OperatorSettings, arguments[8:])
    return [torch.empty_like(leaf) for leaf in _recorded_leaves(x, tensors, settings)]


def _copy_shared(results: Iterable[Tensor], arguments: Gradients) -> list[Tensor]:
    """Makes results contiguous, and copies those that share memory with another or an argument."""
    seen_storage_ids = {storage_id(tensor) for tensor in arguments if tensor is not None}
    unshared_results = []
    for result in results:
        result = result.contiguous()
        if storage_id(result) in seen_storage_ids:
            result = result.clone()
        seen_storage_ids.add(storage_id(result))
        unshared_results.append(result)
    return unshared_results


def _save_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    """Saves what the backward pass needs."""
    x, lengths, tensors, *ctx.settings = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(output[3], x, lengths, *tensors)


def _differentiate(ctx: Any, *gradients: Tensor | None) -> tuple[Any, ...]:
    token, x, lengths, *tensors = ctx.saved_tensors
    computed = _backward(*gradients[:3], token, x, lengths, tensors, *ctx.settings)
    dx = None
    if len(computed) > len(tensors):
        dx = computed.pop(0)
    return dx, None, computed, *[None] * len(ctx.settings)


_forward.register_autograd(_differentiate, setup_context=_save_for_backward)


# ONNX.

# torch's index of each gate, in ONNX's order.
_ONNX_GATE_ORDER = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2), "RNN": (0,)}


def _run_in_onnx(
    rnn: RNNWithLengths,
    x: Tensor,
    lengths: Tensor,
    states: Tensors,
    weights: Tensors,
    output_steps: int,
    padding_value: float,
) -> OutputAndState:
    """Runs the RNN with ONNX's own operators, a layer at a time."""
    if rnn.proj_size:
        raise RuntimeError("ONNX has no LSTM with proj_size: export the RNN without a projection")
    if not hasattr(torch.onnx, "ops"):
        raise RuntimeError(
            f"ONNX with lengths needs torch 2.8 or later, and this is {torch.__version__}:"
            " export with dynamo=False"
        )
    if rnn.batch_first:
        x = x.transpose(0, 1)
    steps = x.shape[0]
    states_by_layer = []
    for initial_states, layer_weights in _split_by_layer_group(states, weights, rnn.num_layers):
        x, *final_states = _run_layer_in_onnx(rnn, x, lengths, initial_states, layer_weights)
        states_by_layer.append(final_states)
    if padding_value:
        step = torch.arange(steps, device=x.device).unsqueeze(1)
        real = step < lengths
        x = torch.where(real.unsqueeze(2), x, float(padding_value))
    if output_steps is not steps:
        padding_sizes = (0, 0, 0, 0, 0, output_steps - steps)
        x = nn.functional.pad(x, padding_sizes, value=float(padding_value))
    if rnn.batch_first:
        x = x.transpose(0, 1)
    return x, _state_from_tensors([*map(torch.cat, zip(*states_by_layer, strict=True))])


def _run_layer_in_onnx(
    rnn: RNNWithLengths, x: Tensor, lengths: Tensor, states: Tensors, weights: Tensors
) -> Tensors:
    """Returns the output `(T, B, D·H)` and the final states of one layer."""
    kind = rnn.mode.partition("_")[0]
    steps, batch, _ = x.shape
    directions = 2 if rnn.bidirectional else 1
    weights_per_direction = len(weights) // directions

    def stack_weight(index: int) -> Tensor:
        """Returns one weight of all directions, `(D, G·H, …)`, with ONNX's order of gates."""
        reordered_gates = []
        for weight in weights[index::weights_per_direction]:
            gates = weight.chunk(GATES[kind])
            reordered_gates.append(torch.cat([gates[i] for i in _ONNX_GATE_ORDER[kind]]))
        return torch.stack(reordered_gates)

    biases = None
    if rnn.bias:
        biases = torch.cat([stack_weight(2), stack_weight(3)], 1)
    inputs = (x, stack_weight(0), stack_weight(1), biases, lengths.to(torch.int32), *states)
    options: dict[str, Any] = {"hidden_size": rnn.hidden_size}
    if rnn.bidirectional:
        options["direction"] = "bidirectional"
    if kind == "GRU":
        options["linear_before_reset"] = 1
    if kind == "RNN":
        options["activations"] = [rnn.mode[4:].capitalize()] * directions
    state_shape = (directions, batch, rnn.hidden_size)
    shapes = [(steps, *state_shape), state_shape]
    if kind == "LSTM":
        shapes.append(state_shape)
    dtypes = [x.dtype] * len(shapes)
    output, *final_states = torch.onnx.ops.symbolic_multi_out(
        kind, inputs, options, dtypes=dtypes, shapes=shapes, version=18
    )
    features = directions * rnn.hidden_size
    merged_output = output.transpose(1, 2).reshape(steps, batch, features)
    return [merged_output, *final_states]
