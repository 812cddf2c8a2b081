"""Runs an RNN on a ragged batch, from padded tensors to padded tensors, by whichever method is the fastest."""

from __future__ import annotations

import functools
import numbers
import operator
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.jit import is_tracing  # type: ignore[attr-defined]
from torch.nn.utils.rnn import PackedSequence

from packviz.core.cuts import rectangles
from packviz.core.layout import Layout
from packviz.core.padded import Padded, reading
from packviz.core.spec import Spec
from packviz.core.validation import require_dense, require_values
from packviz.ops import costs, original, packing, split, staircase, trial
from packviz.ops.arguments import require_features, require_padded, require_rnn, require_states
from packviz.ops.grid import Grid
from packviz.ops.index import is_at_hand
from packviz.ops.kernels import Fused, Result, flat_weights, has_padded_kernel, is_fused, layers
from packviz.ops.masks import Lengths, whole_numbers
from packviz.ops.private import has_kernel, is_compiler_loaded, kernel, may_derive_otherwise, may_have_hooks, storage

METHODS = ("auto", "packed", "padded", "split", "staircase")

State = Tensor | tuple[Tensor, Tensor]
"""`(L·D, B, P)`, or of an LSTM two: `(L·D, B, P)` and `(L·D, B, H)`."""


@dataclass(frozen=True)
class Staircase:
    """The method `"staircase"` with cuts of your own.

    Attributes:
        cuts: rising time steps, from 0 to the longest length: what `packviz.core.cuts` deals in.

    Raises:
        TypeError: they are no whole numbers.
    """

    cuts: tuple[int, ...]

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "cuts", tuple(map(operator.index, self.cuts)))
        except TypeError:
            raise TypeError(f"cuts are {self.cuts!r}; give a sequence of whole time steps") from None


def run(
    rnn: nn.RNN | nn.GRU | nn.LSTM,
    x: Tensor,
    lengths: Lengths,
    hx: State | None = None,
    *,
    batch_first: bool | None = None,
    total_length: int | None = None,
    padding_value: float = 0.0,
    method: str | Staircase = "auto",
) -> tuple[Tensor, State]:
    """Runs an RNN on a padded batch: the results of pack → RNN → pad, in less time.

    The method affects the time and never the result, apart from rounding: methods add up the same numbers in different
    orders. Between any two methods, values and gradients differ by at most 1e-4 of the largest value in float32
    (usually 1e-6), and by at most 1e-10 in float64. On a GPU, cuDNN multiplies float32 in TF32, which has a 10-bit
    mantissa, unless `torch.backends.cudnn.allow_tf32` is False; differences are then around 1e-3. In training mode,
    every call draws new dropout masks between layers, from the same distribution, at real cells.

    * `"packed"` packs the batch, runs torch's kernel for packed data, and pads the result.
    * `"padded"` runs torch's kernel for padded data once. An LSTM's cell state is frozen during the padding.
    * `"staircase"` does the same on several rectangles of time, each with only the sequences that are still running.
      See `packviz.ops.staircase`.
    * `"split"` runs the packed data step by step, with its own backward pass. It pays off for training on a CPU. See
      `packviz.ops.split`.
    * `"auto"` picks the method that should be fastest. If several come within 5 % of it, it picks the simplest of them.

    `"padded"` and `"staircase"` pay off for an LSTM on a CPU and for small layers on a GPU, where torch has kernels
    that accept only padded data. For an `nn.RNN` with ReLU, whose state could grow without bound in the padding, both
    are replaced by `"split"`.

    `"auto"` uses torch's own kernel in the cases where nothing can be gained: for equal lengths (except in a backward
    pass without a fused kernel), and for a GRU on a CPU without gradients. Otherwise the choice depends only on the
    lengths, the sizes, whether gradients are needed, and constants measured for the current number of torch threads, or
    for the nearest number that was measured. The constants shipped with packviz were measured on one server CPU with 1
    and 2 threads. Until constants have been measured on a GPU, `"auto"` on a GPU is `"packed"`, or torch's kernel
    without packing if all lengths are equal. Use `plan` to see the choice and its reason, and `calibrate` to measure
    constants on your machine.

    Weights are looked up by name at each call, so parametrised weights and `torch.func.functional_call` work. Only
    `"packed"` calls the module itself, so `run` always uses it if the module has hooks or its own `forward`. It also
    uses `"packed"` in cases that the other methods don't support: tracing, `torch.func`, forward-mode differentiation,
    devices other than CPU and CUDA, CUDA graph capture, and subclasses of `Tensor`.

    `run` never waits for a GPU. Under `torch.compile` it is a graph break. As with any call that needs gradients, don't
    modify `x` before the backward pass. Under autocast on a CPU, every method except `"packed"` computes in float32;
    the results have the dtypes that torch would return.

    Args:
        rnn: an `nn.RNN`, `nn.GRU` or `nn.LSTM` with any options.
        x: `(T, B, I)`, or `(B, T, I)` with `batch_first`, with the padding at the end. Values in the padding, including
            NaN, have no effect, and their gradient is 0.
        lengths: `(B,)` whole numbers from 1 to `T`, in any order: a list, an array, a `Layout` or a CPU tensor.
        hx: the initial state in the format the module expects, in batch order: the batch is its second dimension,
            whatever `batch_first` is. Defaults to zeros.
        batch_first: whether `x` and the output are `(B, T, …)`, as in `pack_padded_sequence`. Defaults to the module's
            own `batch_first`.
        total_length: number of time steps in the output, at least the longest length. Defaults to the longest length.
        padding_value: value that fills the padding of the output.
        method: one of `METHODS`, or a `Staircase`.

    Returns:
        What `pack_padded_sequence(x, lengths, batch_first, enforce_sorted=False)`, the module and
        `pad_packed_sequence(…, batch_first)` return: the output, `(T, B, D·P)`, or `(B, T, D·P)` with `batch_first`,
        and the final state, `h_n`, or `(h_n, c_n)` for an LSTM.

    Raises:
        TypeError: `rnn` is not one of the three RNNs; `x` is not a tensor, or is already packed; or an argument that
            must be a number is not one.
        ValueError: the arguments don't fit together, or `method` is unknown. Unlike torch, `run` also rejects lengths
            greater than `T`, lengths that are not whole numbers, and an `hx` with more rows than the batch.
        RuntimeError: the lengths are on an accelerator, as in torch.

    Examples:
        >>> import packviz as pv, torch
        >>> lstm = torch.nn.LSTM(3, 4, batch_first=True)
        >>> output, (h_n, c_n) = pv.run(lstm, torch.randn(3, 5, 3), [5, 2, 3])
        >>> output.shape, h_n.shape
        (torch.Size([3, 5, 4]), torch.Size([1, 3, 4]))
    """
    arguments = rnn, x, lengths, hx, batch_first, total_length, padding_value, method
    if not is_compiler_loaded():  # there is none to disable, and loading one takes seconds
        return _run(*arguments)
    if not _uncompiled:
        _uncompiled.append(torch.compiler.disable(_run))  # type: ignore[no-untyped-call]
    return _uncompiled[0](*arguments)


def plan(
    rnn: nn.RNN | nn.GRU | nn.LSTM | Spec, lengths: Any, *, training: bool = True, device: Any = None
) -> costs.Plan:
    """Returns how `run` would run a batch with `method="auto"`, and why. It runs and measures nothing.

    Args:
        rnn: an RNN, whose dtype the batch will have. Or the sizes of one, which then counts as an RNN in float32, on a
            CPU where torch has a fused LSTM. The number of threads is the one torch is set to.
        lengths: `(B,)` whole numbers of at least 1, as `Layout` takes them.
        training: whether gradients will be needed.
        device: where the batch will run, such as `"cuda"`; this machine need not have it. Defaults to the RNN's own
            device, and to the CPU for a `Spec`.

    Returns:
        A `Plan`: its `.method`; its `.cuts`, as `Stairs` draws them; the predicted `.seconds` of each method that may
        be the fastest; and the `.reason`, which says where the constants behind these predictions were measured, and
        whether that was another processor. `print` shows all of it.

    Raises:
        TypeError: `rnn` is not an RNN.
        ValueError: a length is not valid, or there is no such kind of device.

    Examples:
        >>> import packviz as pv
        >>> plan = pv.plan(pv.Spec("LSTM", 32, 64), [128, 40, 35, 30])
        >>> plan.method in {"padded", "packed", "staircase", "split"}
        True
    """
    n = tuple(Layout(lengths).lengths.tolist())
    kind = None if device is None else _device_type(device)
    if kind not in (None, "cpu", "cuda"):
        return costs.Plan("packed", (0, max(n)), {}, f"no other method supports the device {kind}")
    if isinstance(rnn, Spec):
        return costs.choose(rnn, n, training, kind or "cpu", threads=torch.get_num_threads())
    require_rnn(rnn)
    x = cast(Tensor, rnn.weight_ih_l0)
    if kind:  # on the CPU, because a GPU need not be here
        x = torch.empty(0, dtype=x.dtype, device="cpu")
    return _planned(rnn, _weights(rnn, x) and [x], n, training, kind)


class Ragged(nn.Module):
    """An RNN that takes a padded batch and its lengths: `run` as a module.

    The RNN is the submodule `rnn`, so the keys of the state dict are its own behind `rnn.`.

    Attributes:
        rnn: the RNN.
        method: as `run` takes it.

    Examples:
        >>> import packviz as pv, torch
        >>> gru = pv.Ragged(torch.nn.GRU(3, 4, batch_first=True))
        >>> output, h_n = gru(torch.randn(3, 5, 3), [5, 2, 3])
        >>> torch.equal(h_n[0, 1], output[1, 1])  # the state after the last real step
        True
    """

    def __init__(self, rnn: nn.RNN | nn.GRU | nn.LSTM, method: str | Staircase = "auto") -> None:
        """Wraps an RNN, without a copy.

        Raises:
            TypeError: `rnn` is not an RNN.
            ValueError: there is no such method.
        """
        super().__init__()
        require_rnn(rnn)
        _check_method(method)
        self.rnn, self.method = rnn, method

    def forward(
        self,
        x: Tensor,
        lengths: Lengths,
        hx: State | None = None,
        *,
        batch_first: bool | None = None,
        total_length: int | None = None,
        padding_value: float = 0.0,
    ) -> tuple[Tensor, State]:
        """Takes, returns and raises what `run` does."""
        how: dict[str, Any] = {"batch_first": batch_first, "total_length": total_length, "padding_value": padding_value}
        return run(self.rnn, x, lengths, hx, **how, method=self.method)

    def extra_repr(self) -> str:
        """The method."""
        return f"method={self.method!r}"


_uncompiled: list[Callable[..., tuple[Tensor, State]]] = []


def _run(
    rnn: Any,
    x: Any,
    lengths: Any,
    hx: Any,
    batch_first: bool | None,
    total_length: int | None,
    padding_value: float,
    method: str | Staircase,
) -> tuple[Tensor, State]:
    if is_tracing():  # type: ignore[no-untyped-call]
        first = rnn.batch_first if batch_first is None else batch_first
        lengths = lengths if isinstance(lengths, (Tensor, list)) else whole_numbers(lengths).tolist()
        return _packed(rnn, x, lengths, hx, first, total_length, padding_value)  # the trace holds the lengths
    n, source = _checked(rnn, x, lengths, hx, batch_first, total_length, padding_value, method)
    first = source.batch_first
    hx = tuple(hx) if isinstance(hx, list) else hx
    total_length = None if total_length is None else operator.index(total_length)
    steps = max(n)
    weights = _weights(rnn, x)
    method, cuts = _decided(rnn, weights, x, n, hx, method)
    if weights and x.dtype != weights[0].dtype:
        rnn.check_input(x, None)  # torch's error, unless autocast makes them fit
    if method == "packed":
        as_given = isinstance(lengths, Tensor) and lengths.dtype == torch.int64
        return _packed(rnn, x, lengths if as_given else list(n), hx, first, total_length, padding_value, weights)

    if hx is not None:  # the caller's may be a buffer for the next states, and lie in any strides
        own_hx = tuple(s.clone(memory_format=torch.contiguous_format) for s in (hx if isinstance(hx, tuple) else (hx,)))
        hx = own_hx if rnn.mode == "LSTM" else own_hx[0]
    autocast = torch.is_autocast_enabled(x.device.type) and weights[0].dtype == torch.float32
    if method != "split" and len(cuts) == 2 and steps == min(n) and not autocast:
        return _as_it_is(rnn, weights, x, steps, hx, first, total_length, padding_value)
    if method == "split":
        layer_run: Callable[..., Result] = functools.partial(split.run, steps=_steps(n, x.device))
    else:
        layer_run = functools.partial(staircase.run, grid=_grid(n, cuts, x.device), from_zero=hx is None)
    h, c = hx if isinstance(hx, tuple) else (hx, None)
    if not autocast:
        out, h_n, c_n = _through(rnn, weights, layer_run, x, h, c, source, steps, total_length, padding_value)
    else:
        dtypes = _autocast_dtypes(rnn, steps == min(n), x, h, c)
        working: AbstractContextManager[Any] = nullcontext()
        if x.device.type == "cpu" or method == "split":
            x, h, c = (t if t is None else t.float() for t in (x, h, c))
            working = torch.autocast(x.device.type, enabled=False)
        with working:
            found = _through(rnn, weights, layer_run, x, h, c, source, steps, total_length, padding_value)
        out, h_n, c_n = (t if t is None else t.to(dtype) for t, dtype in zip(found, dtypes, strict=True))  # type: ignore[assignment]
    return out, h_n if c_n is None else (h_n, c_n)


def _decided(
    rnn: nn.RNNBase, weights: Sequence[Tensor], x: Tensor, n: tuple[int, ...], hx: Any, method: Any
) -> tuple[str, tuple[int, ...]]:
    """The method, and its cuts."""

    def needs_gradient() -> bool:
        states = hx if isinstance(hx, tuple) else () if hx is None else (hx,)
        return torch.is_grad_enabled() and any(t.requires_grad for t in (x, *states, *weights))

    if method == "auto" or not weights:
        planned = _planned(rnn, weights, n, needs_gradient())
        return planned.method, planned.cuts
    cuts: tuple[int, ...] = (0, max(n))
    if isinstance(method, Staircase):
        method, cuts = "staircase", method.cuts
        rectangles(n, cuts)  # an error if they do not fit
    elif method == "staircase":
        cuts = costs.staircase(Spec.of(rnn), *_batch(rnn, weights, n, needs_gradient()))
    if rnn.mode == "RNN_RELU" and method in ("padded", "staircase") and _wastes(n, cuts):
        method = "split"  # in the padding its state may grow to infinity, whose gradient is NaN
    return method, cuts


def _planned(
    rnn: nn.RNNBase, weights: Sequence[Tensor], n: tuple[int, ...], training: bool, device: str | None = None
) -> costs.Plan:
    """What `"auto"` does: the one place that decides, for `run` and for `plan`."""
    if not weights:
        return costs.Plan("packed", (0, max(n)), {}, "only this method calls the module itself, as it requires")
    return costs.choose(rnn, *_batch(rnn, weights, n, training, device))


def _batch(
    rnn: nn.RNNBase, weights: Sequence[Tensor], n: tuple[int, ...], training: bool, device: str | None = None
) -> tuple[Any, ...]:
    """Returns a batch as `costs.choose` takes it after the RNN. What is ours and not on a CPU is on a GPU."""
    one = weights[0]
    device = device or ("cpu" if one.is_cpu else "cuda")
    return n, training, device, has_padded_kernel(rnn.mode, one, bool(rnn.proj_size), device), torch.get_num_threads()


def _weights(rnn: nn.RNNBase, x: Tensor) -> Sequence[Tensor]:
    """The weights, if they may be run on such data without calling the module, else none."""
    weights = flat_weights(rnn) if _is_ours(rnn, x) else ()
    return weights if {Tensor, nn.Parameter}.issuperset(map(type, weights)) else ()


def _packed(
    rnn: Any,
    x: Tensor,
    lengths: Any,
    hx: State | None,
    first: bool,
    total_length: int | None,
    padding_value: float,
    weights: Sequence[Tensor] = (),
) -> tuple[Tensor, State]:
    """Packs, runs and pads; with the module's own weights it calls the kernel without the module."""
    if _is_direct(rnn, weights):
        module = _packing(x)
        data, sizes, order, rank = module.pack_padded_sequence(x, lengths, first, enforce_sorted=False)
        hx = _zeros(rnn, data, x.shape[0 if first else 1]) if hx is None else _selected(hx, order)
        data, final = _kernel(rnn, weights, data, hx, sizes)
        packed, final, module = PackedSequence(data, sizes, order, rank), _selected(final, rank), _packing(data)
        return module.pad_packed_sequence(packed, first, padding_value, total_length)[0], final
    out, final = rnn(packing.pack_padded_sequence(x, lengths, first, enforce_sorted=False), hx)
    return packing.pad_packed_sequence(out, first, padding_value, total_length)[0], final


def _packing(x: Tensor) -> Any:
    """Where to pack or pad it: with torch's own functions where packviz's would only hand it to them."""
    return packing if packing.may_pay(x) else original


def _is_direct(rnn: nn.RNNBase, weights: Sequence[Tensor]) -> bool:
    """Whether the module's kernel is called without the module.

    On a batch of a few short sequences the module's own way there takes as long as packing on a CPU. cuDNN wants all
    weights in one piece of memory, and the module sees to that; but it can derive in training mode only.
    """
    if weights and not weights[0].is_cpu:
        return len(set(map(storage, weights))) == 1 or (torch.is_grad_enabled() and not rnn.training)
    return bool(weights)


def _kernel(
    rnn: nn.RNNBase, weights: Sequence[Tensor], data: Tensor, hx: State, how: Tensor | bool
) -> tuple[Tensor, State]:
    """Calls torch's kernel as the module would in the end.

    `how` is the batch sizes of packed data, or whether padded data is batch first.
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
    """States of the sequences in another order."""
    if order is None:
        return states
    if isinstance(states, tuple):
        return states[0].index_select(1, order), states[1].index_select(1, order)
    return states.index_select(1, order)


def _zeros(rnn: nn.RNNBase, like: Tensor, batch: int) -> State:
    """The initial state, where none is given."""
    rows = rnn.num_layers * (2 if rnn.bidirectional else 1), batch
    h = like.new_zeros(*rows, rnn.proj_size or rnn.hidden_size)
    if rnn.mode == "LSTM":
        return h, like.new_zeros(*rows, rnn.hidden_size) if rnn.proj_size else h
    return h


def _wastes(n: Sequence[int], cuts: Sequence[int]) -> bool:
    """Whether a staircase has padding in it."""
    return sum((b - a) * sequences for a, b, sequences in rectangles(n, cuts)) > sum(n)


def _through(
    rnn: nn.RNNBase,
    weights: Sequence[Tensor],
    layer_run: Callable[..., Result],
    x: Tensor,
    h: Tensor | None,
    c: Tensor | None,
    source: Padded,
    steps: int,
    total_length: int | None,
    padding_value: float,
) -> Result:
    """All layers, one after the other."""
    if h is None:
        zeros = _zeros(rnn, weights[0], source.batch)
        h, c = zeros if isinstance(zeros, tuple) else (zeros, None)
    own = layers(rnn, weights)
    each = own[0].directions
    target = source._replace(steps=steps)
    finals = []
    for i, layer in enumerate(own):
        h_0, c_0 = (s if s is None else s[i * each : (i + 1) * each] for s in (h, c))
        if layer is own[-1]:
            target = target._replace(steps=total_length or steps)
            x, *final = layer_run(layer, x, h_0, c_0, source=source, target=target, padding_value=padding_value)
        else:
            x, *final = layer_run(layer, x, h_0, c_0, source=source, target=target)
            x = nn.functional.dropout(x, rnn.dropout, rnn.training) if rnn.dropout else x
        finals.append(final)
        source = target
    h_n, c_n = (s[0] if len(s) == 1 or s[0] is None else torch.cat(s) for s in zip(*finals, strict=True))
    return x, h_n, c_n


def _as_it_is(
    rnn: nn.RNNBase,
    weights: Sequence[Tensor],
    x: Tensor,
    steps: int,
    hx: State | None,
    first: bool,
    total_length: int | None,
    padding_value: float,
) -> tuple[Tensor, State]:
    """All sequences have the same length: torch's kernel does what is wanted."""
    time = 1 if first else 0
    x = x.narrow(time, 0, steps)
    if _is_direct(rnn, weights):
        fused = torch.is_grad_enabled() and is_fused(rnn.mode, x, bool(rnn.proj_size))
        run_all = _fused if fused else _kernel
        out, final = run_all(rnn, weights, x, _zeros(rnn, x, x.shape[1 - time]) if hx is None else hx, first)
    elif first == rnn.batch_first:
        out, final = rnn(x, hx)
    else:
        out, final = rnn(x.transpose(0, 1), hx)
        out = out.transpose(0, 1)
    if total_length is not None and total_length > steps:
        widths = (0, 0) * (2 - time) + (0, total_length - steps)
        out = nn.functional.pad(out, widths, value=padding_value)
    return out.contiguous(), final


def _fused(rnn: nn.RNNBase, weights: Sequence[Tensor], x: Tensor, hx: State, first: bool) -> tuple[Tensor, State]:
    """What `_kernel` gives for an LSTM on oneDNN's kernel. torch's own can be differentiated once, this again."""
    x = (x.transpose(0, 1) if first else x).contiguous()
    h, c = (states.unbind() for states in hx)
    outs: list[Tensor] = []
    finals: list[tuple[Tensor, Tensor]] = []
    for layer in layers(rnn, weights):
        if outs:
            x = torch.cat(outs, 2) if len(outs) > 1 else outs[0]
            x = nn.functional.dropout(x, rnn.dropout, rnn.training) if rnn.dropout else x
            outs = []
        for d, own in enumerate(layer.weights):
            out, *final = Fused.apply(d == 1, x, h[len(finals)], c[len(finals)], *own)  # type: ignore[no-untyped-call]
            outs.append(out)
            finals.append(tuple(final))
    # A copy even of one: who changes it would change what backward needs.
    out = torch.cat([out.transpose(0, 1) for out in outs] if first else outs, 2)
    h_n, c_n = map(torch.stack, zip(*finals, strict=True))
    return out, (h_n, c_n)


@functools.lru_cache(maxsize=4)
def _grid(n: tuple[int, ...], cuts: tuple[int, ...], device: torch.device) -> Grid:
    return Grid(n, cuts, device)


@functools.lru_cache(maxsize=4)
def _steps(n: tuple[int, ...], device: torch.device) -> split.Steps:
    return split.Steps(n, device)


def forget() -> None:
    """Drops what is kept of earlier batches' lengths, so that a measurement sees what new lengths cost."""
    _grid.cache_clear()
    _steps.cache_clear()
    costs.weighed.cache_clear()


def _autocast_dtypes(rnn: nn.RNNBase, equal: bool, x: Tensor, *states: Tensor | None) -> Sequence[torch.dtype | None]:
    """What torch makes of these under autocast: the dtypes of output, h_n and c_n. Equal lengths make a difference."""
    dtypes = tuple(None if t is None else t.dtype for t in (x, *states))
    kind = x.device.type
    return _packed_dtypes(rnn.mode, bool(rnn.proj_size), equal, dtypes, kind, torch.get_autocast_dtype(kind))


@functools.lru_cache(maxsize=64)
def _packed_dtypes(
    mode: str,
    projected: bool,
    equal: bool,
    dtypes: Sequence[torch.dtype | None],
    device: str,
    autocast: torch.dtype,
) -> Sequence[torch.dtype | None]:
    """Asks torch, with the smallest batch of that kind."""
    cell = {"LSTM": nn.LSTM, "GRU": nn.GRU}.get(mode, nn.RNN)
    options = {"proj_size": 1} if projected else {}
    rnn = cell(1, 2, device="meta", dtype=torch.float32, **options).to_empty(device=device)  # draws no random numbers
    x, h, c = (
        None if dtype is None else torch.zeros(rows, 2, size, dtype=dtype, device=device)
        for dtype, rows, size in zip(dtypes, (2, 1, 1), (1, 1 if projected else 2, 2), strict=True)
    )
    with torch.no_grad(), torch.autocast(device, autocast):
        packed = original.pack_padded_sequence(cast(Tensor, x), [2, 2 if equal else 1])
        out, final = rnn(packed, h if c is None else (h, c))
    return out.data.dtype, *((t.dtype for t in final) if mode == "LSTM" else (final.dtype, None))


def _is_ours(rnn: nn.RNNBase, x: Tensor) -> bool:
    """Whether the module's weights may be run without calling the module, on values that are there."""
    return (
        type(rnn).forward in (nn.RNN.forward, nn.GRU.forward, nn.LSTM.forward)
        and "forward" not in rnn.__dict__
        and has_kernel(rnn.mode)
        and not may_have_hooks(rnn)
        and is_at_hand(x)
        and type(x) in (Tensor, nn.Parameter)
        and not may_derive_otherwise()
        and trial.passed(_every_method, rnn.mode, bool(rnn.proj_size), x.device.type)
    )


def _every_method(rnn: nn.RNN | nn.GRU | nn.LSTM, x: Tensor, lengths: Sequence[int]) -> list[tuple[Tensor, State]]:
    """What torch gives, called by its public names; then what each method gives."""
    options = lengths, None, rnn.batch_first, None, 0.0
    return [_packed(rnn, x, *options), *(_run(rnn, x, *options, method) for method in METHODS[1:])]


def _device_type(device: Any) -> str:
    try:
        return torch.device(device).type
    except (RuntimeError, TypeError):  # torch lists twenty types of device
        raise ValueError(f"device is {device!r}; give a device, such as 'cpu' or 'cuda'") from None


def _check_method(method: Any) -> None:
    if method not in METHODS and not isinstance(method, Staircase):
        raise ValueError(f"method is {method!r}; choose one of {', '.join(map(repr, METHODS))}, or give a Staircase")


def _checked(
    rnn: Any, x: Any, lengths: Any, hx: Any, batch_first: Any, total_length: Any, padding_value: Any, method: Any
) -> tuple[tuple[int, ...], Padded]:
    """The lengths, and how `x` is read, when all arguments fit together."""
    require_rnn(rnn)
    _check_method(method)
    require_padded(x)
    if x.layout is not torch.strided or x.is_nested or x.is_meta:
        require_dense("x", x)
        require_values("x", x)
    shape, batch_first = x.shape, bool(rnn.batch_first if batch_first is None else batch_first)
    require_features(rnn, shape, batch_first)
    n = _whole_numbers(lengths, x, batch_first)
    if not n:
        raise ValueError("lengths is empty: there is nothing to run")
    batch, steps, _ = source = Padded.fitting(len(n), shape, batch_first, features=", I")
    if min(n) < 1 or max(n) > steps:
        b = next(i for i, value in enumerate(n) if not 1 <= value <= steps)
        read = reading(shape, batch_first, features=", I")
        raise ValueError(f"lengths[{b}] is {n[b]}, but {read}, has T = {steps}: give a length from 1 to {steps}")
    if not isinstance(padding_value, (float, numbers.Real)):  # the abstract class asks for long
        raise TypeError(f"padding_value must be a number, got {padding_value!r}")
    if total_length is not None and (isinstance(total_length, bool) or not hasattr(total_length, "__index__")):
        raise TypeError(f"total_length must be a whole number, got {total_length!r}")
    if total_length is not None and total_length < max(n):
        raise ValueError(f"total_length is {total_length}; give at least {max(n)}, the longest length")
    if hx is not None:
        require_states(rnn, hx, x, batch)
    return n, source


def _whole_numbers(lengths: Any, x: Tensor, batch_first: bool) -> tuple[int, ...]:
    usual = type(lengths) is Tensor and lengths.dtype == torch.int64 and lengths.layout == torch.strided
    if usual and lengths.is_cpu and lengths.ndim == 1:
        return tuple(lengths.tolist())  # as nearly all come: nothing more to ask
    if isinstance(lengths, (list, tuple)) and all(type(n) is int for n in lengths):
        return tuple(lengths)
    n = whole_numbers(lengths)
    if n.device.type != "cpu":
        original.pack_padded_sequence(x, n, batch_first, enforce_sorted=False)  # torch's error
    return tuple(n.tolist())
