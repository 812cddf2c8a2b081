"""Runs an RNN on a ragged batch, padded or packed, with the method that should be fastest."""

from __future__ import annotations

import functools
import numbers
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from packviz.core.cuts import Cuts, best_cuts, count_work, cuts_at_lengths
from packviz.core.layout import Layout
from packviz.core.padded import PaddedShape, describe_shape
from packviz.core.spec import GATES, Spec
from packviz.core.validation import reject_meta, require_at_least
from packviz.ops import one_layer, original, packing
from packviz.ops.arguments import (
    require_device,
    require_input_shape,
    require_padded,
    require_rnn,
    require_states,
    state_shapes,
)
from packviz.ops.choose import CALL, Plan, choose_plan
from packviz.ops.index import (
    arrays_to_device,
    batch_sizes_if_valid,
    current_stream,
    is_on_usable_device,
)
from packviz.ops.masks import Lengths, is_tracing, lengths_tensor, require_mask_width
from packviz.ops.private import (
    IS_TORCH_TESTED,
    is_compiler_loaded,
    is_transform_active,
    may_have_hooks,
    rnn_kernel,
    storage_id,
)
from packviz.ops.rectangles import Staircase, can_freeze_cell_state
from packviz.ops.torch_kernels import Tensors, TorchRNN, flat_weights, layers, runs_fused_lstm

METHODS = ("auto", "packed", "frozen", "split", "staircase")

Method = str | Sequence[int]
"""The name of a method, or the cuts of a staircase."""

State = Tensor | tuple[Tensor, Tensor]
"""The state of an RNN, `(L·D, B, P)`; for an LSTM, a pair `(L·D, B, P)` and `(L·D, B, H)`."""

OutputAndState = tuple[Tensor, State]
"""The padded output of an RNN, and its final state."""

ModuleResult = tuple[Any, State]
"""The output of an RNN, a padded tensor or a `PackedSequence`, and its final state."""


def run(
    rnn: TorchRNN,
    x: Tensor | PackedSequence,
    lengths: Lengths | None = None,
    hx: State | None = None,
    *,
    batch_first: bool | None = None,
    total_length: int | None = None,
    padding_value: float = 0.0,
    method: Method = "auto",
) -> tuple[Any, State]:
    """Runs an RNN on a padded batch, and returns what pack → RNN → pad returns, usually sooner.

    If the batch is already packed, the output is packed, too.

    It pays off most when you train an RNN on a CPU. It is not worth calling in these cases:

    * All lengths are equal, and `pv.plan` names `"frozen"`, as it usually does unless you train a
      GRU or an `nn.RNN` on a CPU. Then `run` calls torch's own kernel for padded data, as `rnn(x)`
      does.
    * The batch is on a GPU. There, `run` calls only torch's own kernels. We have not measured it.
    * You need only the forward pass of a GRU or an `nn.RNN`. There, `run` takes about as long as
      packing.
    * The lengths of an LSTM are nearly equal, and an inexact padded run will do. `run` takes about
      1.05 to 1.2 times as long on one thread. It is exact, though, and in training several times
      faster than packing.
    * An LSTM and its batch are tiny, and an inexact padded run will do. `run` needs a fixed 0.3 to
      0.5 ms of Python, so for `LSTM(16, 16)` on a batch of 8 × 32, it takes 2 to 3 times as long.
      In training, this is still faster than packing.

    The method affects the time but not the result, apart from rounding errors, which differ because
    the methods add up the same numbers in different orders. Between any two methods, values and
    gradients differ by at most 1e-4 of the largest value in float32 (usually 1e-6), and by at most
    1e-10 in float64. In bfloat16, values differ by at most 5e-2, and gradients are about as far
    from the exact ones as torch's are. By default, cuDNN multiplies float32 values
    in TF32 on GPUs that support it. TF32 has a 10-bit mantissa, so differences are then around
    1e-3. To avoid this, set `torch.backends.cudnn.allow_tf32` to False. In training mode, every
    call draws new dropout masks between layers. At real cells, these masks have the same
    distribution as torch's.

    * `"packed"` packs the batch, runs torch's kernel for packed data, and pads the result.
    * `"frozen"` runs torch's kernel for padded data on the padded batch. An LSTM's cell state is
      frozen during the padding. If all lengths are equal, this is torch's own padded run.
    * `"staircase"` cuts the time axis, and runs the same kernel on several rectangles, each of
      which contains only the sequences that are still running. See `packviz.ops.rectangles`.
    * `"split"` runs the RNN on the packed data step by step, with its own backward pass. See
      `packviz.ops.split`.
    * `"auto"` follows a rule. If all lengths are equal, torch's own kernel usually runs the padded
      batch. (On a CPU, there are two exceptions: a training step without oneDNN's fused kernel, and
      an LSTM with projections.) Otherwise, `"auto"` is `"packed"` on a GPU. On a CPU, an LSTM in
      float32, or in bfloat16 if oneDNN supports it there, takes a staircase with the cheapest cuts
      if a call of the fused kernel takes as long as 200 cells, or `"frozen"` if no cut pays off.
      All other RNNs take `"split"` for training. In the forward pass, an `nn.RNN` with more than
      500 real cells takes `"split"`, and all others take `"packed"`. Use `plan` to see the choice
      and its reason, and `advise` to measure the methods on your machine.

    Some cases need a different method from the one that you name. The state of an `nn.RNN` with
    ReLU could grow without bound in the padding, and oneDNN has no LSTM with projections, so
    `"split"` replaces `"frozen"` and `"staircase"` there. If the weights of an LSTM on a CPU are
    too large to freeze its state exactly (with a norm above 1e15), not finite, or in float16,
    `"packed"` replaces both. On a GPU, `run` does not check the norms, because it would have to
    wait for the GPU.

    Weights are looked up by name at each call, so parametrised weights and
    `torch.func.functional_call` work. (`spectral_norm` takes a step whenever a weight is looked up
    in training mode, so it takes fewer here than in torch's own call.) A module with hooks or its
    own `forward` has to be called itself, so `run` always uses `"packed"` for it. `run` also uses
    `"packed"` in cases that the other methods don't support: autocast, tracing, `torch.func`,
    forward-mode differentiation, devices other than CPU and CUDA, CUDA graph capture, subclasses of
    `Tensor`, and releases of torch that packviz was not tested on.

    Under `torch.compile`, `run` causes a graph break. As with any call that needs gradients, don't
    modify `x` before the backward pass.

    Args:
        rnn: an `nn.RNN`, `nn.GRU` or `nn.LSTM` with any options.
        x: `(T, B, I)`, or `(B, T, I)` with `batch_first`, with the padding at the end. Values in
            the padding, including NaN, have no effect, and their gradient is 0. `x` can also be a
            `PackedSequence`. In that case, pass only `hx` and `method` with it.
        lengths: `(B,)` whole numbers from 0 to `T`, in any order: a list, an array, a `Layout` or a
            CPU tensor; or a mask, `(B, T)`, True at real cells. Unlike torch, `run` accepts empty
            sequences. The output of an empty sequence is padding, and its final state is its
            initial state.
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
        RuntimeError: the lengths are on an accelerator, as in torch, or `padding_value` is too
            large for the dtype.

    Examples:
        >>> import packviz as pv, torch
        >>> lstm = torch.nn.LSTM(3, 4, batch_first=True)
        >>> output, (h_n, c_n) = pv.run(lstm, torch.randn(3, 5, 3), [5, 2, 3])
        >>> output.shape, h_n.shape
        (torch.Size([3, 5, 4]), torch.Size([1, 3, 4]))
    """
    if isinstance(x, PackedSequence):
        padded_only_arguments = (lengths, batch_first, total_length)
        if padding_value != 0 or any(value is not None for value in padded_only_arguments):
            raise TypeError(
                "x is packed, so it has its own lengths and stays packed;"
                " pass only hx and method with it"
            )
    if hasattr(rnn, "from_torch") and (may_have_hooks(rnn) or _overrides_forward(rnn)):
        raise TypeError(
            "rnn has hooks, or all modules have, or a forward of its own, and pv.run would not run"
            " them: call rnn itself, as in rnn(x, hx, lengths)"
        )
    runner = _choose_runner()
    return runner(rnn, x, lengths, hx, method, batch_first, total_length, padding_value)


def _overrides_forward(rnn: nn.RNNBase) -> bool:
    """Returns whether one of packviz's RNNs has another `forward` than packviz's."""
    if "forward" in vars(rnn):
        return True
    forward_owner = next(kind for kind in type(rnn).__mro__ if "forward" in vars(kind))
    return forward_owner.__module__ != "packviz.ops.rnn"


def _choose_runner() -> Callable[..., ModuleResult]:
    """Returns `_run`, or a version that breaks the graph if `torch.compile` may be in use."""
    if not is_compiler_loaded():  # loading it, only to disable it, would take seconds
        return _run
    if not _uncompiled_runners:
        _uncompiled_runners.append(torch.compiler.disable(_run))  # type: ignore[no-untyped-call]
    return _uncompiled_runners[0]


def plan(
    rnn: TorchRNN | Spec,
    lengths: Any,
    *,
    training: bool = True,
    device: Any = None,
) -> Plan:
    """Returns the method that `run` would use for a batch with `method="auto"`, and the reason.

    Nothing is measured.

    Args:
        rnn: an RNN with the dtype that the batch will have, or the sizes of an RNN as a `Spec`. For
            a `Spec`, `plan` assumes float32, tanh rather than ReLU, and, on a CPU, a build of torch
            with oneDNN.
        lengths: `(B,)` whole numbers of at least 0, in any form that `Layout` accepts.
        training: whether gradients will be needed.
        device: the device on which the batch will run, such as `"cuda"`. This machine need not have
            such a device. Defaults to the RNN's own device, or to the CPU for a `Spec`.

    Returns:
        A `Plan` with its `.method`; its `.cuts`, which `Stairs` can draw; and the `.reason`, which
        is the rule behind the choice. `print` shows the plan as text.

    Raises:
        TypeError: `rnn` is not an RNN.
        ValueError: a length is not valid, or torch does not know the device.

    Examples:
        >>> import packviz as pv
        >>> pv.plan(pv.Spec("LSTM", 32, 64), [128, 40, 35, 30])
        auto takes: staircase, 2 rectangles
        reason: a call of oneDNN's fused LSTM takes as long as 200 cells
    """
    n = tuple(max(1, k) for k in Layout(lengths).lengths.tolist())
    device_type = None
    if device is not None:
        try:
            device_type = torch.device(device).type
        except (RuntimeError, TypeError) as error:
            raise ValueError(
                f"device is {device!r}; give a device that torch knows, such as 'cuda'"
            ) from error
    if device_type not in (None, "cpu", "cuda"):
        return Plan("packed", (0, max(n)), f"no other method supports the device {device_type}")
    if isinstance(rnn, Spec):
        is_projected = bool(rnn.proj_size)
        has_fused_kernel = device_type != "cuda" and rnn.mode == "LSTM" and not is_projected
        return choose_plan(
            rnn.mode, n, training, device_type or "cpu", has_fused_kernel, is_projected
        )
    require_rnn(rnn)
    x: Any = rnn.weight_ih_l0
    if device_type:  # on the CPU, because a GPU need not be here
        x = torch.empty(0, dtype=x.dtype, device="cpu")
    return _auto_plan(rnn, _usable_weights(rnn, x), n, training, x, device_type)


_uncompiled_runners: list[Callable[..., OutputAndState]] = []


class _Batch(NamedTuple):
    """The arguments of `run` after they have been checked.

    Attributes:
        rnn: the RNN.
        x: the padded batch.
        n: `(B,)` the lengths.
        hx: the initial state; `None` for zeros.
        input_shape: the order and sizes of the dimensions of `x`.
        output_steps: number of time steps in the output.
        padding_value: value that fills the padding of the output.
        weights: the weights of the RNN; empty if the module has to be called.
    """

    rnn: nn.RNNBase
    x: Tensor
    n: tuple[int, ...]
    hx: State | None
    input_shape: PaddedShape
    output_steps: int
    padding_value: float
    weights: Tensors

    @property
    def states(self) -> tuple[Tensor, ...]:
        """The initial state as a tuple."""
        return state_as_tuple(self.hx)


def state_as_tuple(states: State | None) -> tuple[Tensor, ...]:
    """Returns the tensors of a state; none for `None`."""
    if states is None:
        return ()
    return tuple(states) if isinstance(states, (tuple, list)) else (states,)


def _state_from_tensors(states: Tensors) -> State:
    return states[0] if len(states) == 1 else (states[0], states[1])


def _run(
    rnn: Any,
    x: Any,
    lengths: Any,
    hx: Any,
    method: Method,
    batch_first: bool | None = None,
    total_length: int | None = None,
    padding_value: float = 0.0,
) -> ModuleResult:
    """Does what `run` does, but never breaks the graph of `torch.compile`."""
    if isinstance(hx, list):
        hx = tuple(hx)
    if isinstance(x, PackedSequence):
        return _run_packed(rnn, x, hx, method)
    if is_tracing():
        if not isinstance(lengths, (Tensor, list)):
            lengths = lengths_tensor(lengths).tolist()
        is_batch_first = bool(rnn.batch_first if batch_first is None else batch_first)
        return _call_module(rnn, x, lengths, hx, is_batch_first, total_length, padding_value)
    require_rnn(rnn)
    check_method(method)
    require_padded(x)
    reject_meta("x", x)
    shape = x.shape
    batch_first = bool(rnn.batch_first if batch_first is None else batch_first)
    require_input_shape(rnn, shape, batch_first)
    checked_lengths = lengths_tensor(lengths)
    if checked_lengths.device.type != "cpu":
        # This raises torch's error.
        original.pack_padded_sequence(x, checked_lengths, batch_first, enforce_sorted=False)
    n = tuple(checked_lengths.tolist())
    if not n:
        raise ValueError("lengths is empty; give at least one sequence, and its length")
    input_shape = PaddedShape.from_checked_shape(
        len(n), shape, batch_first, feature_dim_names=", I"
    )
    require_mask_width(lengths, input_shape.steps)
    if min(n) < 0 or max(n) > input_shape.steps:
        input_shape.require_fitting_lengths(
            np.array(n), describe_shape(shape, batch_first, feature_dim_names=", I")
        )
    if not isinstance(padding_value, (float, numbers.Real)):  # the abstract class is slow
        raise TypeError(f"padding_value must be a number, got {padding_value!r}")
    output_steps = max(n)
    if total_length is not None:
        output_steps = require_at_least("total_length", total_length, output_steps)
    if hx is not None:
        require_states(rnn, hx, x, input_shape.batch)
    batch = _Batch(rnn, x, n, hx, input_shape, output_steps, padding_value, _usable_weights(rnn, x))
    return _run_with_plan(batch, lengths, method)


def _run_with_plan(batch: _Batch, lengths: object, method: Method) -> OutputAndState:
    """Runs a batch with the method that was chosen for it, given the lengths as the caller did."""
    n = batch.n
    if min(n) < 1:
        return _run_with_empty(batch, method)
    plan = _make_plan(batch, method)
    if batch.weights and batch.x.dtype != batch.weights[0].dtype:
        batch.rnn.check_input(batch.x, None)  # torch's error
    if plan.method == "packed":
        if isinstance(lengths, Tensor) and lengths.dtype == torch.int64 and lengths.ndim == 1:
            return _run_by_packing(batch, lengths)
        return _run_by_packing(batch, list(n))
    if batch.hx is not None:
        # The caller's tensor may be a buffer for the next states, or have any strides.
        hx_copies = [s.clone(memory_format=torch.contiguous_format) for s in batch.states]
        batch = batch._replace(hx=_state_from_tensors(hx_copies))
    by_step = plan.method == "split"
    if len(plan.cuts) == 2 and max(n) == min(n) and not by_step:
        if _calls_kernel_directly(batch.rnn, batch.weights):
            return _run_equal_lengths(batch)
        return _run_by_packing(batch, list(n))
    cuts = cuts_at_lengths(n) if by_step else plan.cuts
    staircase = _cached_staircase(n, cuts, batch.x.device, current_stream(batch.x.device))
    return _run_layers(batch, staircase, by_step)


def _run_packed(
    rnn: nn.RNNBase, packed: PackedSequence, hx: State | None, method: Method
) -> tuple[PackedSequence, State]:
    """Runs an RNN on a packed batch, which is padded first for every method but `"packed"`."""
    require_rnn(rnn)
    check_method(method)
    data, sizes, order, rank = packed
    is_eager = not is_tracing() and not torch.compiler.is_compiling()
    if is_eager and data.ndim == 2 and batch_sizes_if_valid(packed):
        sorted_batch = PackedSequence(data, sizes)
        n = tuple(Layout.from_packed(sorted_batch).lengths.tolist())
        input_shape = PaddedShape(len(n), max(n), False)
        batch = _Batch(rnn, data, n, hx, input_shape, max(n), 0.0, _usable_weights(rnn, data))
        if _make_plan(batch, method).method != "packed":
            x, _ = packing.pad_packed_sequence(sorted_batch)
            if hx is not None:
                require_states(rnn, hx, x, len(n))
                hx = _reorder_states(hx, order)
            output, final_state = _run(rnn, x, n, hx, method, False)
            data = packing.pack_padded_sequence(output, list(n)).data
            return PackedSequence(data, sizes, order, rank), _reorder_states(final_state, rank)
    output, final_state = getattr(rnn, "_torch_forward", rnn)(packed, hx)
    return output, final_state


def _run_with_empty(batch: _Batch, method: Method) -> OutputAndState:
    """Runs a batch with empty sequences.

    Every empty sequence runs over zeros for one step. Then its output is replaced with padding, and
    its final state with its initial state.
    """
    input_shape = batch.input_shape
    output_steps = batch.output_steps
    batch_dim, time_dim = (0, 1) if input_shape.batch_first else (1, 0)
    (empty_sequences,) = arrays_to_device(batch.x.device, np.flatnonzero(np.array(batch.n) == 0))
    if input_shape.steps:
        x = batch.x.index_fill(batch_dim, empty_sequences, 0)
    else:
        x = nn.functional.pad(batch.x, (0, 0) * (2 - time_dim) + (0, 1))
    n = tuple(max(1, k) for k in batch.n)
    hx = batch.hx
    if hx is not None:  # NaN in the state of an empty sequence would reach the weights' gradients
        hx = _state_from_tensors([s.index_fill(1, empty_sequences, 0) for s in batch.states])
    run_options = input_shape.batch_first, max(1, output_steps), batch.padding_value
    output, final_state = _run(batch.rnn, x, n, hx, method, *run_options)
    output = output.index_fill(batch_dim, empty_sequences, batch.padding_value).narrow(
        time_dim, 0, output_steps
    )
    states = batch.states or state_as_tuple(_zero_state(batch.rnn, batch.x, input_shape.batch))
    final_states = []
    for s, h in zip(state_as_tuple(final_state), states, strict=True):
        final_states.append(
            s.index_copy(1, empty_sequences, h.index_select(1, empty_sequences).to(s.dtype))
        )
    return output, _state_from_tensors(final_states)


def _make_plan(batch: _Batch, method: Method) -> Plan:
    """Returns the method to use for a batch, and the cuts of the method."""
    rnn = batch.rnn
    n = batch.n
    weights = batch.weights
    if weights:
        require_device("rnn", weights[0], batch.x)
    if method == "auto" or not weights:
        leaves = (batch.x, *batch.states, *weights)
        training = torch.is_grad_enabled() and any(t.requires_grad for t in leaves)
        return _auto_plan(rnn, weights, n, training, batch.x)
    cuts: Cuts = (0, max(n))
    if method == "staircase":
        cuts = best_cuts(n, CALL)
    elif not isinstance(method, str):
        cuts = tuple(map(int, method))
        method = "staircase"
    wasted = count_work(n, cuts).wasted  # raises an error if the cuts do not fit
    if method in ("frozen", "staircase"):
        if rnn.proj_size and weights[0].is_cpu:
            method = "split"  # oneDNN has no LSTM with projections
        elif wasted and rnn.mode == "RNN_RELU":
            method = "split"  # in the padding its state may grow to infinity, whose gradient is NaN
        elif wasted and rnn.mode == "LSTM" and not can_freeze_cell_state(weights):
            method = "packed"
    return Plan(method, cuts, "")


def _auto_plan(
    rnn: nn.RNNBase,
    weights: Tensors,
    n: tuple[int, ...],
    training: bool,
    example: Tensor,
    device: str | None = None,
) -> Plan:
    """Returns the plan for `"auto"`.

    Both `run` and `plan` call this function, so they always agree. The batch will have the dtype of
    `example`, and its device unless another one is given.
    """
    no_cuts = (0, max(n))
    if not IS_TORCH_TESTED:
        return Plan("packed", no_cuts, f"packviz has not been tested on torch {torch.__version__}")
    if not weights:
        return Plan(
            "packed", no_cuts, "only this method calls the module itself, as is necessary here"
        )
    device = device or ("cpu" if example.is_cpu else "cuda")
    has_fused_kernel = device == "cpu" and runs_fused_lstm(rnn.mode, example, bool(rnn.proj_size))
    if rnn.training and rnn.dropout and rnn.num_layers > 1:
        training = True  # if a checkpoint runs it again, the same method has to draw the dropout
    plan = choose_plan(rnn.mode, n, training, device, has_fused_kernel, bool(rnn.proj_size))
    freezes_cell_state = (
        has_fused_kernel and plan.method in ("frozen", "staircase") and max(n) > min(n)
    )
    if freezes_cell_state and not can_freeze_cell_state(weights):
        return Plan(
            "packed", no_cuts, "some weights are too large to freeze a state, or not finite"
        )
    return plan


def _usable_weights(rnn: nn.RNNBase, x: Tensor) -> Tensors:
    """Returns the weights, or an empty tuple if the module has to be called for data like `x`."""
    weights = flat_weights(rnn) if _can_bypass_module(rnn, x) else ()
    # oneDNN would read past the end of a smaller weight, where the module raises an error.
    if [[*weight.shape] for weight in weights] != _weight_shapes(rnn):
        return ()
    return weights if {Tensor, nn.Parameter}.issuperset(map(type, weights)) else ()


def _weight_shapes(rnn: nn.RNNBase) -> list[list[int]]:
    """Returns the shapes that the weights of an RNN of these sizes have."""
    rows = GATES[rnn.mode.partition("_")[0]] * rnn.hidden_size
    directions = 2 if rnn.bidirectional else 1
    input_size = rnn.input_size
    output_size = rnn.proj_size or rnn.hidden_size
    shapes = []
    for _ in range(rnn.num_layers):
        direction_shapes = [[rows, input_size], [rows, output_size]]
        if rnn.bias:
            direction_shapes += [[rows], [rows]]
        if rnn.proj_size:
            direction_shapes.append([output_size, rnn.hidden_size])
        shapes += direction_shapes * directions
        input_size = directions * output_size
    return shapes


def _run_by_packing(batch: _Batch, lengths: Tensor | list[int]) -> OutputAndState:
    """Packs the batch, runs the RNN, if possible without its module, and pads the output."""
    rnn, x, _, hx, input_shape, output_steps, padding_value, weights = batch
    batch_first = input_shape.batch_first
    if not _calls_kernel_directly(rnn, weights):
        return _call_module(rnn, x, lengths, hx, batch_first, output_steps, padding_value)
    pack = _choose_packing_module(x).pack_padded_sequence
    data, sizes, order, rank = pack(x, lengths, batch_first, enforce_sorted=False)
    hx = _zero_state(rnn, data, input_shape.batch) if hx is None else _reorder_states(hx, order)
    data, final_state = _call_kernel(rnn, weights, data, hx, sizes)
    pad = _choose_packing_module(data).pad_packed_sequence
    output, _ = pad(
        PackedSequence(data, sizes, order, rank), batch_first, padding_value, output_steps
    )
    return output, _reorder_states(final_state, rank)


def _call_module(
    rnn: nn.RNNBase,
    x: Tensor,
    lengths: Tensor | list[int],
    hx: State | None,
    batch_first: bool,
    output_steps: int | None,
    padding_value: float,
) -> OutputAndState:
    """Packs the batch, calls the module and pads its output."""
    packed = packing.pack_padded_sequence(x, lengths, batch_first, enforce_sorted=False)
    output, final_state = getattr(rnn, "_torch_forward", rnn)(packed, hx)
    return packing.pad_packed_sequence(output, batch_first, padding_value, output_steps)[
        0
    ], final_state


def _choose_packing_module(x: Tensor) -> ModuleType:
    """Returns the module `packing`, or `original` if `packing` would only call torch."""
    return packing if packing.may_beat_torch(x) else original


def _calls_kernel_directly(rnn: nn.RNNBase, weights: Tensors) -> bool:
    """Returns whether the kernel is called without the module.

    On a CPU, this is so whenever packviz has the weights, because for a few short sequences the
    module's own Python code takes as long as packing. On a GPU, it is so in two cases: if all
    weights are in one piece of memory, as cuDNN needs them, or in eval mode with gradients, because
    cuDNN has a backward pass only in training mode.
    """
    if not weights or weights[0].is_cpu:
        return bool(weights)
    has_one_storage = len(set(map(storage_id, weights))) == 1
    return has_one_storage or (torch.is_grad_enabled() and not rnn.training)


def _call_kernel(
    rnn: nn.RNNBase, weights: Tensors, data: Tensor, hx: State, sizes_or_batch_first: Tensor | bool
) -> OutputAndState:
    """Calls torch's kernel with the arguments that the module would pass.

    `sizes_or_batch_first` is `batch_sizes` for packed data, or `batch_first` for padded data.
    """
    dropout = rnn.dropout
    training = rnn.training
    if not training and not data.is_cpu and torch.is_grad_enabled():
        dropout = 0.0
        training = any(t.requires_grad for t in (data, *state_as_tuple(hx), *weights))
    options = weights, rnn.bias, rnn.num_layers, dropout, training, rnn.bidirectional
    if isinstance(sizes_or_batch_first, bool):
        output, *final_states = rnn_kernel(rnn.mode)(data, hx, *options, sizes_or_batch_first)
    else:
        output, *final_states = rnn_kernel(rnn.mode)(data, sizes_or_batch_first, hx, *options)
    return output, _state_from_tensors(final_states)


def _reorder_states(states: State, order: Tensor | None) -> State:
    """Returns the states with the sequences in the given order."""
    return _state_from_tensors(
        [one_layer.reorder_state(state, order) for state in state_as_tuple(states)]
    )


def _zero_state(rnn: nn.RNNBase, example: Tensor, batch: int) -> State:
    """Returns the default initial state."""
    return _state_from_tensors([example.new_zeros(shape) for shape in state_shapes(rnn, batch)])


def _run_layers(batch: _Batch, staircase: Staircase, by_step: bool) -> OutputAndState:
    """Runs all layers in turn."""
    rnn = batch.rnn
    initial_states = [one_layer.reorder_state(state, staircase.order) for state in batch.states]
    states = initial_states or state_as_tuple(
        _zero_state(rnn, batch.weights[0], batch.input_shape.batch)
    )
    h_0 = states[0]
    c_0 = states[1] if len(states) > 1 else None
    directions = 2 if rnn.bidirectional else 1
    input_shape = batch.input_shape
    output = batch.x
    h_n = []
    c_n = []
    for i, layer in enumerate(layers(rnn, batch.weights)):
        is_last_layer = i == rnn.num_layers - 1
        output_shape = PaddedShape(input_shape.batch, max(batch.n), False)
        if is_last_layer:
            output_shape = batch.input_shape._replace(steps=batch.output_steps)
        layer_task = one_layer.LayerTask(
            layer, staircase, by_step, input_shape, output_shape, batch.padding_value
        )
        layer_slice = slice(i * directions, (i + 1) * directions)
        output, h, c = one_layer.run(
            layer_task, output, h_0[layer_slice], None if c_0 is None else c_0[layer_slice]
        )
        h_n.append(h)
        if c is not None:
            c_n.append(c)
        if rnn.dropout and not is_last_layer:
            output = nn.functional.dropout(output, rnn.dropout, rnn.training)
        input_shape = output_shape
    final_state = _state_from_tensors([torch.cat(s) for s in (h_n, c_n) if s])
    return output, _reorder_states(final_state, staircase.ranks)


def _run_equal_lengths(batch: _Batch) -> OutputAndState:
    """Runs sequences of equal length with torch's kernel for padded data."""
    rnn, x, n, hx, input_shape, output_steps, padding_value, weights = batch
    time_dim = 1 if input_shape.batch_first else 0
    steps = max(n)
    x = x.narrow(time_dim, 0, steps)
    hx = _zero_state(rnn, x, input_shape.batch) if hx is None else hx
    output, final_state = _call_kernel(rnn, weights, x, hx, input_shape.batch_first)
    if output_steps > steps:
        output = nn.functional.pad(
            output, (0, 0) * (2 - time_dim) + (0, output_steps - steps), value=padding_value
        )
    # The kernel keeps its output for the backward pass, so the caller may change only a copy.
    return output.clone(memory_format=torch.contiguous_format), final_state


@functools.lru_cache(maxsize=4)
def _cached_staircase(
    n: tuple[int, ...], cuts: Cuts, device: torch.device, stream: int
) -> Staircase:
    """Returns the staircase of a batch, for use on one stream of the device."""
    return Staircase(n, cuts, device)


def clear_caches() -> None:
    """Clears the caches for earlier lengths, so that a measurement includes their cost."""
    for cached_function in (_cached_staircase, choose_plan):
        cached_function.cache_clear()


def _can_bypass_module(rnn: nn.RNNBase, x: Tensor) -> bool:
    """Returns whether packviz can run data like `x` without calling the module."""
    return (
        IS_TORCH_TESTED
        and runs_torch_forward(rnn)
        and is_on_usable_device(x)
        and type(x) in (Tensor, nn.Parameter)
        and not torch.is_autocast_enabled(x.device.type)
        and not (x.is_inference() and torch.is_grad_enabled())  # it cannot be saved
        and not is_transform_active()
    )


def runs_torch_forward(rnn: nn.RNNBase) -> bool:
    """Returns whether calling the module runs only torch's own `forward`."""
    if hasattr(rnn, "from_torch"):  # one of packviz's own classes, whose `forward` calls `run`
        return True
    is_torch_forward = (
        type(rnn).forward in (nn.RNN.forward, nn.GRU.forward, nn.LSTM.forward)
        and "forward" not in rnn.__dict__
    )
    return is_torch_forward and not may_have_hooks(rnn)


def check_method(method: object) -> None:
    """Checks that `method` is one of `METHODS`, or the cuts of a staircase.

    Raises:
        ValueError: `method` is neither.
    """
    is_cuts = isinstance(method, (tuple, list)) and all(hasattr(cut, "__index__") for cut in method)
    if method not in METHODS and not is_cuts:
        method_names = ", ".join(map(repr, METHODS))
        raise ValueError(
            f"method is {method!r}; choose one of {method_names},"
            " or give the cuts of a staircase as whole numbers"
        )
