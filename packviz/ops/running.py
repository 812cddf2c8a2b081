"""Runs an RNN on a ragged batch, padded or packed, with the method that should be fastest."""

from __future__ import annotations

import functools
import numbers
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.jit import is_tracing  # type: ignore[attr-defined]
from torch.nn.utils.rnn import PackedSequence

from packviz.core.cuts import rectangles
from packviz.core.layout import Layout
from packviz.core.padded import Padded, reading
from packviz.core.spec import Spec
from packviz.core.validation import at_least, require_dense, require_values
from packviz.ops import costs, original, packing, split, staircase
from packviz.ops.arguments import require_features, require_padded, require_rnn, require_states
from packviz.ops.grid import Grid
from packviz.ops.index import falling_sizes, is_at_hand, placed
from packviz.ops.kernels import flat_weights, has_padded_kernel, is_fused, layers
from packviz.ops.masks import Lengths, lengths_tensor
from packviz.ops.private import (
    IS_TESTED,
    is_compiler_loaded,
    kernel,
    may_derive_otherwise,
    may_have_hooks,
    storage,
)

METHODS = ("auto", "packed", "padded", "split", "staircase")

State = Tensor | tuple[Tensor, Tensor]
"""The state of an RNN, `(L·D, B, P)`; for an LSTM, a pair of states, `(L·D, B, P)` and `(L·D, B, H)`."""


def run(
    rnn: nn.RNN | nn.GRU | nn.LSTM,
    x: Tensor | PackedSequence,
    lengths: Lengths | None = None,
    hx: State | None = None,
    *,
    batch_first: bool | None = None,
    total_length: int | None = None,
    padding_value: float = 0.0,
    method: str | Sequence[int] = "auto",
) -> tuple[Any, State]:
    """Runs an RNN on a padded batch, and returns what pack → RNN → pad returns, in less time.

    If the batch is already packed, the output is packed, too.

    The method affects the time but not the result, apart from rounding errors, which differ because
    the methods add up the same numbers in different orders. Between any two methods, values and
    gradients differ by at most 1e-4 of the largest value in float32 (usually 1e-6), and by at most
    1e-10 in float64. By default, cuDNN multiplies float32 values in TF32 on GPUs that support it.
    TF32 has a 10-bit mantissa, so differences are then around 1e-3. To avoid this, set
    `torch.backends.cudnn.allow_tf32` to False. In training mode, every call draws new dropout masks
    between layers. At real cells, these masks have the same distribution as torch's.

    * `"packed"` packs the batch, runs torch's kernel for packed data, and pads the result.
    * `"padded"` runs torch's kernel for padded data on the padded batch. An LSTM's cell state is
      frozen during the padding.
    * `"staircase"` cuts the time axis, and runs the same kernel on several rectangles, each of
      which contains only the sequences that are still running. See `packviz.ops.staircase`.
    * `"split"` runs the RNN on the packed data step by step, with its own backward pass. It can pay
      off for training on a CPU. See `packviz.ops.split`.
    * `"auto"` picks the method that should be fastest. If several methods come within 5 % of the
      fastest, it picks the simplest of them.

    `"padded"` and `"staircase"` can pay off for an LSTM on a CPU and for small layers on a GPU,
    where torch has kernels that accept only padded data. For an `nn.RNN` with ReLU, whose state
    could grow without bound in the padding, `"split"` replaces `"padded"` and `"staircase"`, unless
    their rectangles contain no padding.

    `"auto"` uses torch's own kernel in the cases where nothing can be gained: for a GRU on a CPU
    without gradients, and for equal lengths, either without gradients or with oneDNN's LSTM.
    Otherwise the choice depends only on the lengths, the RNN, the device, whether gradients are
    needed, and constants measured for the current number of torch threads, or for the nearest
    number that was measured. The constants shipped with packviz were measured on one server CPU
    with 1 and 2 threads. Until constants have been measured on a GPU, `"auto"` uses `"packed"`
    there or, if all lengths are equal, torch's kernel without packing. Use `plan` to see the choice
    and its reason, and `calibrate` to measure constants on your machine.

    Weights are looked up by name at each call, so parametrised weights and
    `torch.func.functional_call` work. A module with hooks or its own `forward` has to be called
    itself, so `run` always uses `"packed"` for it. `run` also uses `"packed"` in cases that the
    other methods don't support: autocast, tracing, `torch.func`, forward-mode differentiation,
    devices other than CPU and CUDA, CUDA graph capture, subclasses of `Tensor`, and releases of
    torch that packviz was not tested on.

    `run` never waits for a GPU. Under `torch.compile` it causes a graph break. As with any call
    that needs gradients, don't modify `x` before the backward pass.

    Args:
        rnn: an `nn.RNN`, `nn.GRU` or `nn.LSTM` with any options.
        x: `(T, B, I)`, or `(B, T, I)` with `batch_first`, with the padding at the end. Values in
            the padding, including NaN, have no effect, and their gradient is 0. `x` can also be a
            `PackedSequence`. In that case, pass only `hx` and `method` with it.
        lengths: `(B,)` whole numbers from 0 to `T`, in any order: a list, an array, a `Layout` or a
            CPU tensor. Unlike torch, `run` accepts empty sequences. The output of an empty sequence
            is padding, and its final state is its initial state.
        hx: the initial state in the format that the module expects, with the sequences in the same
            order as in `x`. The second dimension of a state is the batch, whatever `batch_first`
            is. Defaults to zeros.
        batch_first: whether `x` and the output are `(B, T, …)`, as in `pack_padded_sequence`.
            Defaults to the module's own `batch_first`.
        total_length: number of time steps in the output. It defaults to the longest length, and
            cannot be less.
        padding_value: value that fills the padding of the output.
        method: one of the methods above, or the cuts of a staircase, which are increasing time
            steps from 0 to the longest length.

    Returns:
        What `pack_padded_sequence(x, lengths, batch_first, enforce_sorted=False)`, the module and
        `pad_packed_sequence(…, batch_first)` return if they are called in turn: the output, `(T, B,
        D·P)`, or `(B, T, D·P)` with `batch_first`; and the final state, `h_n`, or `(h_n, c_n)` for
        an LSTM. `D` is the number of directions, and `P` is the `proj_size` or, without a
        projection, the `hidden_size`. For a `PackedSequence`, `run` returns the same as `rnn(x,
        hx)`.

    Raises:
        TypeError: `rnn` is not one of the three RNNs; `x` is neither a dense tensor nor packed; `x`
            is packed, but an argument for padded batches is passed; or `padding_value` is not a
            number.
        ValueError: the arguments don't fit together, or `method` is unknown. Unlike torch, `run`
            also rejects lengths greater than `T`, lengths that are not whole numbers, and an `hx`
            for more sequences than `x` contains.
        RuntimeError: the lengths are on an accelerator, as in torch.

    Examples:
        >>> import packviz as pv, torch
        >>> lstm = torch.nn.LSTM(3, 4, batch_first=True)
        >>> output, (h_n, c_n) = pv.run(lstm, torch.randn(3, 5, 3), [5, 2, 3])
        >>> output.shape, h_n.shape
        (torch.Size([3, 5, 4]), torch.Size([1, 3, 4]))
    """
    others = (
        lengths is not None
        or batch_first is not None
        or total_length is not None
        or padding_value != 0
    )
    if isinstance(x, PackedSequence) and others:
        raise TypeError(
            "x is packed, so it has its own lengths and stays packed; pass only hx and method with it"
        )
    if hasattr(rnn, "from_torch") and may_have_hooks(rnn):  # its forward would not run them
        raise TypeError("rnn has hooks and takes lengths itself: call rnn(x, hx, lengths)")
    arguments = rnn, x, lengths, hx, method, batch_first, total_length, padding_value
    if not is_compiler_loaded():  # loading it, only to disable it, would take seconds
        return _run(*arguments)
    if not _uncompiled:
        _uncompiled.append(torch.compiler.disable(_run))  # type: ignore[no-untyped-call]
    return _uncompiled[0](*arguments)


def plan(
    rnn: nn.RNN | nn.GRU | nn.LSTM | Spec,
    lengths: Any,
    *,
    training: bool = True,
    device: Any = None,
) -> costs.Plan:
    """Returns the method that `run` would use for a batch with `method="auto"`, and the reason.
    Nothing is measured.

    The plan applies to torch's current number of threads.

    Args:
        rnn: an RNN with the dtype that the batch will have, or the sizes of an RNN as a `Spec`. For
            a `Spec`, `plan` assumes float32, tanh rather than ReLU, and, on a CPU, a build of torch
            with oneDNN.
        lengths: `(B,)` whole numbers of at least 0, in any form that `Layout` accepts.
        training: whether gradients will be needed.
        device: the device on which the batch will run, such as `"cuda"`. This machine need not have
            such a device. Defaults to the RNN's own device, or to the CPU for a `Spec`.

    Returns:
        A `Plan` with its `.method`; its `.cuts`, which `Stairs` can draw; the predicted `.seconds`
        of each method that may be the fastest; and the `.reason`. The reason is a rule, or it names
        the machine on which the constants behind the predictions were measured, and says if this
        machine has a different processor. `print` shows the plan as text.

    Raises:
        TypeError: `rnn` is not an RNN.
        ValueError: a length is not valid.
        RuntimeError: the kind of device is unknown to torch.

    Examples:
        >>> import packviz as pv
        >>> plan = pv.plan(pv.Spec("LSTM", 32, 64), [128, 40, 35, 30])
        >>> plan.method in {"padded", "packed", "staircase", "split"}
        True
    """
    n = tuple(max(1, k) for k in Layout(lengths).lengths.tolist())
    kind = None if device is None else torch.device(device).type
    if kind not in (None, "cpu", "cuda"):
        return costs.Plan("packed", (0, max(n)), {}, f"no other method supports the device {kind}")
    if isinstance(rnn, Spec):
        return costs.choose(rnn, n, training, kind or "cpu", threads=torch.get_num_threads())
    require_rnn(rnn)
    x = cast(Tensor, rnn.weight_ih_l0)
    if kind:  # on the CPU, because a GPU need not be here
        x = torch.empty(0, dtype=x.dtype, device="cpu")
    return _planned(rnn, _weights(rnn, x) and [x], n, training, kind)


_uncompiled: list[Callable[..., tuple[Tensor, State]]] = []


class _Batch(NamedTuple):
    """The arguments of `run` after they have been checked.

    Attributes:
        rnn: the RNN.
        x: the padded batch.
        n: `(B,)` the lengths.
        hx: the initial state; `None` for zeros.
        source: the order and sizes of the dimensions of `x`.
        width: number of time steps in the output.
        padding_value: value that fills the padding of the output.
        weights: the weights of the RNN; empty if the module has to be called.
    """

    rnn: Any
    x: Tensor
    n: Any
    hx: Any
    source: Padded
    width: Any
    padding_value: float
    weights: Sequence[Tensor]

    @property
    def states(self) -> tuple[Tensor, ...]:
        """The initial state as a tuple."""
        return () if self.hx is None else self.hx if isinstance(self.hx, tuple) else (self.hx,)


def _run(rnn: Any, x: Any, lengths: Any, hx: Any, method: Any, *how: Any) -> tuple[Any, State]:
    if isinstance(x, PackedSequence):
        return _run_packed(rnn, x, hx, method)
    batch_first, width, padding_value = how
    hx = tuple(hx) if isinstance(hx, list) else hx
    if is_tracing():  # type: ignore[no-untyped-call]
        source = Padded.of(x.shape, rnn.batch_first if batch_first is None else batch_first)
        lengths = (
            lengths if isinstance(lengths, (Tensor, list)) else lengths_tensor(lengths).tolist()
        )
        return _packed(
            _Batch(rnn, x, lengths, hx, source, width, padding_value, ())
        )  # the trace needs the lengths
    n, source = _checked(rnn, x, lengths, hx, batch_first, width, padding_value, method)
    width = max(n) if width is None else operator.index(width)
    batch = _Batch(rnn, x, n, hx, source, width, padding_value, _weights(rnn, x))
    if min(n) < 1:
        return _with_empty(batch, method)
    method, cuts = _decided(batch, method)
    if batch.weights and x.dtype != batch.weights[0].dtype:
        rnn.check_input(x, None)  # torch's error
    if method == "packed":
        is_tensor = isinstance(lengths, Tensor) and lengths.ndim == 1
        as_given = is_tensor and lengths.dtype == torch.int64
        return _packed(batch._replace(n=lengths if as_given else list(n)))
    if (
        hx is not None
    ):  # the caller's tensor may be a buffer for the next states, and have any strides
        own_hx = tuple(s.clone(memory_format=torch.contiguous_format) for s in batch.states)
        batch = batch._replace(hx=own_hx if rnn.mode == "LSTM" else own_hx[0])
    if method == "split":
        return _through(batch, functools.partial(split.run, steps=_steps(n, x.device)), False)
    # torch can differentiate its fused kernel only once, but `rectangle` makes it differentiable
    # again.
    once = torch.is_grad_enabled() and is_fused(rnn.mode, x, bool(rnn.proj_size))
    if len(cuts) == 2 and max(n) == min(n) and not once:
        return _as_it_is(batch)
    grid = _grid(n, _apart(rnn, n) if method == "padded" else cuts, x.device)
    return _through(
        batch,
        functools.partial(staircase.run, grid=grid, from_zero=hx is None),
        not rnn.bidirectional,
    )


def _run_packed(
    rnn: Any, packed: PackedSequence, hx: Any, method: Any
) -> tuple[PackedSequence, State]:
    """Runs an RNN on a packed batch. For every method except `"packed"`, the batch is padded first."""
    require_rnn(rnn)
    check_method(method)
    data, sizes, order, rank = packed
    is_plain_call = not is_tracing() and not torch.compiler.is_compiling()  # type: ignore[no-untyped-call]
    if is_plain_call and data.ndim == 2 and falling_sizes(packed):
        in_order = PackedSequence(data, sizes)
        n = tuple(Layout.from_packed(in_order).lengths.tolist())
        hx = tuple(hx) if isinstance(hx, list) else hx
        batch = _Batch(
            rnn, data, n, hx, Padded(len(n), max(n), False), None, 0.0, _weights(rnn, data)
        )
        if _decided(batch, method)[0] != "packed":
            x, _ = packing.pad_packed_sequence(in_order)
            if hx is not None:
                require_states(rnn, hx, x, len(n))
            out, final = _run(
                rnn, x, n, hx if hx is None else _selected(hx, order), method, False, None, 0.0
            )
            data = packing.pack_padded_sequence(out, list(n)).data
            return PackedSequence(data, sizes, order, rank), _selected(final, rank)
    return rnn(packed, hx)  # type: ignore[no-any-return]


def _with_empty(batch: _Batch, method: Any) -> tuple[Tensor, State]:
    """Runs a batch with empty sequences.

    Every empty sequence runs over zeros for one step. Then its output is replaced with padding, and
    its final state with its initial state.
    """
    rnn, x, n, hx, source, width, padding_value, _ = batch
    at, time = (0, 1) if source.batch_first else (1, 0)
    (empty,) = placed(x.device, np.flatnonzero(np.array(n) == 0))
    x = (
        x.index_fill(at, empty, 0)
        if source.steps
        else nn.functional.pad(x, (0, 0) * (2 - time) + (0, 1))
    )
    how = source.batch_first, max(1, width), padding_value
    out, final = _run(rnn, x, tuple(max(1, k) for k in n), hx, method, *how)
    out = out.index_fill(at, empty, padding_value).narrow(time, 0, width)
    finals: tuple[Tensor, ...] = final if isinstance(final, tuple) else (final,)
    if hx is None:
        finals = tuple(s.index_fill(1, empty, 0) for s in finals)
    else:
        pairs = zip(finals, batch.states, strict=True)
        finals = tuple(
            s.index_copy(1, empty, h.index_select(1, empty).to(s.dtype)) for s, h in pairs
        )
    return out, (finals[0], finals[1]) if len(finals) > 1 else finals[0]


def _apart(rnn: nn.RNNBase, n: Sequence[int]) -> tuple[int, ...]:
    """Returns the cuts for the method `"padded"`. If most steps have no padding, a cut avoids copying these steps."""
    steps, shortest = max(n), min(n)
    apart = rnn.mode == "LSTM" and not rnn.bidirectional and 1 < shortest < steps < 2 * shortest
    return (0, shortest - 1, steps) if apart else (0, steps)


def _decided(batch: _Batch, method: Any) -> tuple[str, tuple[int, ...]]:
    """Returns the method to use for a batch, and the cuts of the method."""
    rnn, n, weights = batch.rnn, batch.n, batch.weights

    def needs_gradient() -> bool:
        return torch.is_grad_enabled() and any(
            t.requires_grad for t in (batch.x, *batch.states, *weights)
        )

    if method == "auto" or not weights:
        planned = _planned(rnn, weights, n, needs_gradient())
        return planned.method, planned.cuts
    cuts: tuple[int, ...] = (0, max(n))
    if not isinstance(method, str):
        method, cuts = "staircase", tuple(map(int, method))
        rectangles(n, cuts)  # raises an error if they do not fit
    elif method == "staircase":
        cuts = costs.staircase(Spec.of(rnn), *_place(rnn, weights, n, needs_gradient()))
    wastes = sum((b - a) * sequences for a, b, sequences in rectangles(n, cuts)) > sum(n)
    if rnn.mode == "RNN_RELU" and method in ("padded", "staircase") and wastes:
        method = "split"  # in the padding its state may grow to infinity, whose gradient is NaN
    return method, cuts


def _planned(
    rnn: nn.RNNBase,
    weights: Sequence[Tensor],
    n: tuple[int, ...],
    training: bool,
    device: str | None = None,
) -> costs.Plan:
    """Returns the plan for `"auto"`. Both `run` and `plan` call this function, so they always agree."""
    if not weights:
        why = "only this method calls the module itself, as this RNN requires"
        untested = f"packviz has not been tested on torch {torch.__version__}"
        return costs.Plan("packed", (0, max(n)), {}, why if IS_TESTED else untested)
    return costs.choose(rnn, *_place(rnn, weights, n, training, device))


def _place(
    rnn: nn.RNNBase,
    weights: Sequence[Tensor],
    n: tuple[int, ...],
    training: bool,
    device: str | None = None,
) -> tuple[Any, ...]:
    """Returns the arguments of `costs.choose` that follow the RNN. Any supported device other than the CPU is a GPU."""
    one = weights[0]
    device = device or ("cpu" if one.is_cpu else "cuda")
    return (
        n,
        training,
        device,
        has_padded_kernel(rnn.mode, one, bool(rnn.proj_size), device),
        torch.get_num_threads(),
    )


def _weights(rnn: nn.RNNBase, x: Tensor) -> Sequence[Tensor]:
    """Returns the weights, or an empty tuple if the module itself has to be called for data like `x`."""
    weights = flat_weights(rnn) if _is_ours(rnn, x) else ()
    return weights if {Tensor, nn.Parameter}.issuperset(map(type, weights)) else ()


def _packed(batch: _Batch) -> tuple[Tensor, State]:
    """Packs the batch, runs the RNN and pads the output. If possible, the kernel is called without the module."""
    rnn, x, lengths, hx, source, width, padding_value, weights = batch
    first = source.batch_first
    if _is_direct(rnn, weights):
        module = _packing(x)
        data, sizes, order, rank = module.pack_padded_sequence(
            x, lengths, first, enforce_sorted=False
        )
        hx = _zeros(rnn, data, source.batch) if hx is None else _selected(hx, order)
        data, final = _kernel(rnn, weights, data, hx, sizes)
        packed, final, module = (
            PackedSequence(data, sizes, order, rank),
            _selected(final, rank),
            _packing(data),
        )
        return module.pad_packed_sequence(packed, first, padding_value, width)[0], final
    module = getattr(rnn, "_plain", rnn)
    out, final = module(packing.pack_padded_sequence(x, lengths, first, enforce_sorted=False), hx)
    return packing.pad_packed_sequence(out, first, padding_value, width)[0], final


def _packing(x: Tensor) -> Any:
    """Returns the module `packing`, or `original` if the functions of `packing` would only call torch's."""
    return packing if packing.may_pay(x) else original


def _is_direct(rnn: nn.RNNBase, weights: Sequence[Tensor]) -> bool:
    """Returns whether the kernel is called without the module.

    On a CPU, this is so whenever packviz has the weights, because for a few short sequences the
    module's own Python code takes as long as packing. On a GPU, it is so if all weights are in one
    piece of memory, as cuDNN needs them, and also in eval mode with gradients, because cuDNN has a
    backward pass only in training mode.
    """
    if weights and not weights[0].is_cpu:
        return len(set(map(storage, weights))) == 1 or (
            torch.is_grad_enabled() and not rnn.training
        )
    return bool(weights)


def _kernel(
    rnn: nn.RNNBase, weights: Sequence[Tensor], data: Tensor, hx: State, how: Tensor | bool
) -> tuple[Tensor, State]:
    """Calls torch's kernel with the arguments that the module would pass.

    `how` is `batch_sizes` for packed data, or `batch_first` for padded data.
    """
    dropout, training = rnn.dropout, rnn.training
    if not training and not data.is_cpu and torch.is_grad_enabled():
        states = hx if isinstance(hx, tuple) else (hx,)
        dropout, training = 0.0, any(t.requires_grad for t in (data, *states, *weights))
    options = weights, rnn.bias, rnn.num_layers, dropout, training, rnn.bidirectional
    arguments = (data, hx, *options, how) if isinstance(how, bool) else (data, how, hx, *options)
    out, *final = kernel(rnn.mode)(*arguments)
    return out, tuple(final) if rnn.mode == "LSTM" else final[0]


def _selected(states: State, order: Tensor | None) -> State:
    """Returns the states with the sequences in the given order."""
    if order is None:
        return states
    if isinstance(states, tuple):
        return states[0].index_select(1, order), states[1].index_select(1, order)
    return states.index_select(1, order)


def _zeros(rnn: nn.RNNBase, like: Tensor, batch: int) -> State:
    """Returns the default initial state."""
    rows = rnn.num_layers * (2 if rnn.bidirectional else 1), batch
    h = like.new_zeros(*rows, rnn.proj_size or rnn.hidden_size)
    if rnn.mode == "LSTM":
        return h, like.new_zeros(*rows, rnn.hidden_size) if rnn.proj_size else h
    return h


def _through(batch: _Batch, layer_run: Callable[..., Any], chained: bool) -> tuple[Tensor, State]:
    """Runs all layers in turn. If `chained` is True, each layer passes its rectangles on without padding them."""
    rnn, x, n, hx, source, width, padding_value, weights = batch
    states = _zeros(rnn, weights[0], source.batch) if hx is None else hx
    h, c = states if isinstance(states, tuple) else (states, None)
    own = layers(rnn, weights)
    each, rows = own[0].directions, x
    between = None if chained else Padded(source.batch, max(n), False)
    finals = []
    for i, layer in enumerate(own):
        last = layer is own[-1]
        h_0, c_0 = (s if s is None else s[i * each : (i + 1) * each] for s in (h, c))
        how: Any = {
            "source": between if i else source,
            "target": source._replace(steps=width) if last else between,
        }
        rows, *final = layer_run(layer, rows, h_0, c_0, **how, padding_value=padding_value)
        finals.append(final)
        if rnn.dropout and not last:
            drop = functools.partial(nn.functional.dropout, p=rnn.dropout, training=rnn.training)
            rows = [*map(drop, rows)] if chained else drop(rows)  # type: ignore[assignment]
    h_n, c_n = (
        s[0] if len(s) == 1 or s[0] is None else torch.cat(s) for s in zip(*finals, strict=True)
    )
    return rows, h_n if c_n is None else (h_n, c_n)


def _as_it_is(batch: _Batch) -> tuple[Tensor, State]:
    """Runs sequences of equal length with torch's kernel for padded data."""
    rnn, x, n, hx, source, width, padding_value, weights = batch
    time, steps = 1 if source.batch_first else 0, max(n)
    x = x.narrow(time, 0, steps)
    if _is_direct(rnn, weights):
        hx = _zeros(rnn, x, source.batch) if hx is None else hx
        out, final = _kernel(rnn, weights, x, hx, source.batch_first)
    elif source.batch_first == rnn.batch_first:
        out, final = getattr(rnn, "_plain", rnn)(x, hx)
    else:
        out, final = rnn(x.transpose(0, 1), hx)
        out = out.transpose(0, 1)
    if width > steps:
        out = nn.functional.pad(out, (0, 0) * (2 - time) + (0, width - steps), value=padding_value)
    return out.contiguous(), final


@functools.lru_cache(maxsize=4)
def _grid(n: tuple[int, ...], cuts: tuple[int, ...], device: torch.device) -> Grid:
    return Grid(n, cuts, device)


@functools.lru_cache(maxsize=4)
def _steps(n: tuple[int, ...], device: torch.device) -> split.Steps:
    return split.Steps(n, device)


def forget() -> None:
    """Clears the caches for earlier lengths, so that a measurement includes the cost of new lengths."""
    _grid.cache_clear()
    _steps.cache_clear()
    costs.weighed.cache_clear()


def _is_ours(rnn: nn.RNNBase, x: Tensor) -> bool:
    """Returns whether packviz can run an RNN on data like `x` from the weights alone, without calling the module."""
    return (
        IS_TESTED
        and is_plain(rnn)
        and is_at_hand(x)
        and type(x) in (Tensor, nn.Parameter)
        and not torch.is_autocast_enabled(x.device.type)
        and not may_derive_otherwise()
    )


def is_plain(rnn: nn.RNNBase) -> bool:
    """Returns whether calling the module runs only torch's own `forward`."""
    if hasattr(rnn, "from_torch"):
        return True
    own = (
        type(rnn).forward in (nn.RNN.forward, nn.GRU.forward, nn.LSTM.forward)
        and "forward" not in rnn.__dict__
    )
    return own and not may_have_hooks(rnn)


def check_method(method: Any) -> None:
    """Checks that `method` is one of `METHODS`, or the cuts of a staircase.

    Raises:
        ValueError: `method` is neither.
    """
    is_cuts = isinstance(method, (tuple, list)) and all(hasattr(cut, "__index__") for cut in method)
    if method not in METHODS and not is_cuts:
        every = ", ".join(map(repr, METHODS))
        raise ValueError(
            f"method is {method!r}; choose one of {every}, or give the cuts of a staircase as whole numbers"
        )


def _checked(
    rnn: Any,
    x: Any,
    lengths: Any,
    hx: Any,
    batch_first: Any,
    total_length: Any,
    padding_value: Any,
    method: Any,
) -> tuple[tuple[int, ...], Padded]:
    """Checks that all arguments fit together. Returns the lengths, and the order and sizes of the dimensions of `x`."""
    require_rnn(rnn)
    check_method(method)
    require_padded(x)
    if x.layout is not torch.strided or x.is_nested or x.is_meta:
        require_dense("x", x)
        require_values("x", x)
    shape, batch_first = x.shape, bool(rnn.batch_first if batch_first is None else batch_first)
    require_features(rnn, shape, batch_first)
    n = _whole_numbers(lengths, x, batch_first)
    if not n:
        raise ValueError("lengths is empty; give at least one length")
    batch, steps, _ = source = Padded.fitting(len(n), shape, batch_first, features=", I")
    if min(n) < 0 or max(n) > steps:
        b = next(i for i, value in enumerate(n) if not 0 <= value <= steps)
        read = reading(shape, batch_first, features=", I")
        raise ValueError(
            f"lengths[{b}] is {n[b]}, but {read}, has T = {steps}: give a length from 0 to {steps}"
        )
    if not isinstance(padding_value, (float, numbers.Real)):  # the abstract class is slow
        raise TypeError(f"padding_value must be a number, got {padding_value!r}")
    if total_length is not None:
        at_least("total_length", total_length, max(n))
    if hx is not None:
        require_states(rnn, hx, x, batch)
    return n, source


def _whole_numbers(lengths: Any, x: Tensor, batch_first: bool) -> tuple[int, ...]:
    usual = (
        type(lengths) is Tensor and lengths.dtype == torch.int64 and lengths.layout == torch.strided
    )
    if usual and lengths.is_cpu and lengths.ndim == 1:
        return tuple(lengths.tolist())  # the most common case
    if isinstance(lengths, (list, tuple)) and all(type(n) is int for n in lengths):
        return tuple(lengths)
    n = lengths_tensor(lengths)
    if n.device.type != "cpu":
        original.pack_padded_sequence(x, n, batch_first, enforce_sorted=False)  # torch's error
    return tuple(n.tolist())
