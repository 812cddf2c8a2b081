"""Wraps every private or undocumented name of torch that packviz uses.

torch may change or remove these names in any release. No other file of packviz uses them, and each
is looked up only when it is needed. On a release that was not tested, `run` calls the RNN itself,
which needs almost none of these names. If a name is missing, packing takes longer, or a function
raises an error, but no result is wrong.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

OLDEST_TORCH, NEWEST_TORCH = "2.7", "2.15"
"""The oldest and the newest release of torch on which the tests run."""

Result = TypeVar("Result")


def _parse_version(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")[:2]))


IS_TORCH_TESTED = (
    _parse_version(OLDEST_TORCH)
    <= _parse_version(torch.__version__)
    <= _parse_version(NEWEST_TORCH)
)
"""Whether the installed release is `OLDEST_TORCH`, `NEWEST_TORCH` or any release between them."""


# Undocumented operators.


def rnn_kernel(mode: str) -> Callable[..., Any]:
    """Returns torch's function that runs RNNs of this mode on padded or packed data."""
    function: Callable[..., Any] = getattr(torch, mode.lower())
    return function


# The number by which torch's operators identify the mode LSTM.
LSTM_MODE = 2


def fused_lstm(inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    """Runs one direction of an LSTM layer with oneDNN.

    Args:
        inputs: the input `(t, n, I)`, the weights of the input and of the state, both biases, `h`
            and `c`. All are contiguous.

    Returns:
        The output, both final states, and a workspace for the backward pass.
    """
    hidden_size = inputs[-1].shape[1]
    options: Sequence[object] = (False, [], LSTM_MODE, hidden_size, 1, True, False, False, True)
    run: Any = torch.mkldnn_rnn_layer
    with torch.enable_grad():  # otherwise the operator keeps no workspace
        results: Sequence[Tensor] = run(*inputs, *options)
    return results


def fused_lstm_backward(
    inputs: Sequence[Tensor], results: Sequence[Tensor], workspace: Tensor
) -> list[Tensor]:
    """Computes the gradients of the inputs of `fused_lstm`.

    Args:
        inputs: the inputs of `fused_lstm`.
        results: its output and final states, and then their gradients.
        workspace: the workspace that `fused_lstm` returned.
    """
    x, weight_ih, weight_hh, bias_ih, bias_hh, h, c = inputs
    weights = weight_ih, weight_hh, bias_ih, bias_hh
    options: Sequence[object] = (False, LSTM_MODE, c.shape[1], 1, True, True, False, [], False)
    run = torch.ops.aten.mkldnn_rnn_layer_backward
    return list(run(x, *weights, h, c, *results, *options, workspace))


def has_onednn_bfloat16() -> bool:
    """Returns whether oneDNN can run on bfloat16 on this processor."""
    is_bfloat16_supported = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)
    return is_bfloat16_supported is not None and bool(is_bfloat16_supported())


def has_onednn() -> bool:
    """Returns whether torch was built with oneDNN and uses it."""
    onednn: Any = torch.backends.mkldnn
    return bool(onednn.is_available() and onednn.enabled)


def sigmoid_backward(gradient: Tensor, y: Tensor, *, grad_input: Tensor) -> Tensor:
    """Writes `gradient · (1 - y) · y` into `grad_input`, where `y` is the result of a sigmoid."""
    torch.ops.aten.sigmoid_backward.grad_input(gradient, y, grad_input=grad_input)
    return grad_input


def tanh_backward(gradient: Tensor, y: Tensor, *, grad_input: Tensor) -> Tensor:
    """Writes `gradient · (1 - y²)` into `grad_input`, where `y` is the result of a tanh."""
    torch.ops.aten.tanh_backward.grad_input(gradient, y, grad_input=grad_input)
    return grad_input


# Properties of tensors and modules.


def may_have_hooks(module: nn.Module) -> bool:
    """Returns whether calling a module may run hooks, either its own or those for all modules.

    If torch lacks a private name used here, the result is True, so `run` calls the module.
    """
    try:
        module_hooks = (
            module._forward_hooks
            or module._forward_pre_hooks
            or module._backward_hooks
            or module._backward_pre_hooks
        )
        return bool(
            module_hooks
            or nn.modules.module._global_forward_hooks
            or nn.modules.module._global_forward_pre_hooks
            or nn.modules.module._global_backward_hooks
            or nn.modules.module._global_backward_pre_hooks
        )
    except AttributeError:
        return True


def is_transform_active() -> bool:
    """Returns whether `torch.func` or forward-mode differentiation is active.

    If torch lacks a private name used here, the result is True, so packing and `run` use torch's
    own functions.
    """
    try:
        return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0
    except AttributeError:
        return True


def is_vmapped(tensor: Tensor | None) -> bool:
    """Returns whether a tensor represents many, because `vmap` is active.

    If torch lacks a private name used here, this function raises an error.
    """
    if tensor is None:
        return False
    functorch = torch._C._functorch
    return functorch.is_batchedtensor(tensor) or functorch.is_legacy_batchedtensor(tensor)


TENSOR_VERSION_ATTRIBUTE = "_version"


def version(tensor: Tensor) -> int | None:
    """Returns a number that grows when a tensor is changed in place, or `None`.

    The result is `None` if torch does not count such changes. If torch lacks the private name used
    here, it is always `None`, so every use of a packed batch rebuilds its index.
    """
    return None if tensor.is_inference() else getattr(tensor, TENSOR_VERSION_ATTRIBUTE, None)


def parameters(module: nn.Module) -> Mapping[str, Tensor]:
    """Returns the module's own parameters by name, without those of its submodules.

    If torch lacks the private name used here, the result is empty, so `run` asks the module for
    each parameter.
    """
    return getattr(module, "_parameters", {})


def is_compiler_loaded() -> bool:
    """Returns whether `torch.compile` has been loaded or is compiling something."""
    return "torch._dynamo" in sys.modules or torch.compiler.is_compiling()


# Autograd within an operator.


def call_with_autograd(call: Callable[[], Result]) -> Result:
    """Makes a call inside an operator so that autograd records it.

    `enable_grad` alone has no effect there. There is no public alternative, because
    `torch.func.vjp` rejects the modes under which `opcheck` runs. If torch lacks a private name
    used here, the backward pass of `pv.Ragged` in a compiled program raises an error.
    """
    keys = torch._C.DispatchKey
    excluded_dispatch_keys = torch._C._dispatch_tls_local_exclude_set()
    for key in (
        keys.AutogradFunctionality,
        keys.AutogradOther,
        keys.AutogradCPU,
        keys.AutogradCUDA,
        keys.ADInplaceOrView,
    ):
        excluded_dispatch_keys = excluded_dispatch_keys.remove(key)
    dispatch_key_guard = torch._C._ForceDispatchKeyGuard(
        torch._C._dispatch_tls_local_include_set(), excluded_dispatch_keys
    )
    with dispatch_key_guard, torch.enable_grad():
        return call()


# Counting operators. If torch lacks one of these names, counting raises an error and never returns
# a wrong number.


def dispatch_mode_class() -> Any:
    """Returns the base class of modes that intercept every operator."""
    from torch.utils._python_dispatch import (  # noqa: PLC0415 - private, so only when needed
        TorchDispatchMode,
    )

    return TorchDispatchMode


def schema(function: Any) -> Any:
    """Returns the schema of an operator, which describes its name, arguments and results."""
    return function._schema


def storage_id(tensor: Tensor) -> int:
    """Returns a number that identifies a tensor's memory, even on the meta device."""
    return int(tensor.untyped_storage()._cdata)


# Memory.


def record_allocations(call: Callable[[], object]) -> list[int] | None:
    """Makes a call, and returns the size in bytes of each allocation by torch on the CPU.

    The sizes are in the order of the allocations. Memory that is freed has a negative size. The
    public profiler uses the same counts, but in torch 2.13 it writes to stderr whenever it starts.
    If torch lacks a private name used here, the result is `None` and the call is not made, so no
    peak memory is reported.
    """
    autograd: Any = torch.autograd
    try:
        start_profiler = autograd._enable_profiler_legacy
        stop_profiler = autograd._disable_profiler_legacy
        profiler_options = (
            False,
            True,
            False,
            False,
            False,
            torch._C._profiler._ExperimentalConfig(),
        )
        profiler_config = autograd.ProfilerConfig(autograd.ProfilerState.CPU, *profiler_options)
    except AttributeError:
        return None
    start_profiler(profiler_config)
    try:
        call()
    finally:
        profiler_events = [event for thread_events in stop_profiler() for event in thread_events]
    return [event.cpu_memory_usage() for event in profiler_events if event.kind() == "memory_alloc"]


PAD_PACKED_NAME = "_pad_packed_sequence"
"""The name of the operator of `pad_packed_sequence`."""
