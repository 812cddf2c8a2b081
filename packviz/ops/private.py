"""Every private or undocumented name of torch that packviz uses: what it is for, and what happens without it.

torch may change these in any release. No other file of packviz names them, and each is looked up when it is used. On a
release that was not tested, `run` calls the RNN itself, which needs almost none of them. Where one is missing, packing
takes longer or something cannot be counted, and no result changes.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from warnings import catch_warnings, simplefilter

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

OLDEST, NEWEST = "2.7", "2.15"
"""The releases of torch that the tests are run on, from … to."""

Result = TypeVar("Result")


def _release(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")[:2]))


IS_TESTED = _release(OLDEST) <= _release(torch.__version__) <= _release(NEWEST)
"""Whether this torch is one of them."""


# Operators without a documentation.


def kernel(mode: str) -> Callable[..., Any]:
    """This function: any number of layers, padded or packed."""
    if mode == "LSTM":
        _hush()
    return getattr(torch, mode.lower())  # type: ignore[no-any-return]


@functools.cache
def _hush() -> None:
    """Lets torch say to nobody what it says once in a process of a padded LSTM with projections: oneDNN has none.

    `run` may call it padded where the caller's words are packed, and of that torch says nothing.
    """

    def call() -> None:
        x, c, weight, bias = (
            torch.zeros(n, dtype=torch.float32, device="cpu") for n in ((1, 1, 1), (1, 1, 2), (8, 1), 8)
        )
        with catch_warnings():
            simplefilter("ignore")
            torch.lstm(x, (x, c), [weight, weight, bias, bias, c[0]], True, 1, 0.0, False, False, False)

    with ThreadPoolExecutor(1) as thread:  # no mode that is on can see it there, and no error gets out
        thread.submit(call)


def fused_lstm(*taken: Any) -> Any:
    """One direction of a layer."""
    return torch.mkldnn_rnn_layer(*taken)


def fused_lstm_backward(*taken: Any) -> Any:
    """Its gradients."""
    return torch.ops.aten.mkldnn_rnn_layer_backward(*taken)


def sigmoid_backward(gradient: Tensor, y: Tensor, *, grad_input: Tensor) -> Tensor:
    """Writes `gradient · (1 - y) · y` into `grad_input`, where `y` is the result of a sigmoid."""
    return torch.ops.aten.sigmoid_backward.grad_input(gradient, y, grad_input=grad_input)  # type: ignore[no-any-return]


def tanh_backward(gradient: Tensor, y: Tensor, *, grad_input: Tensor) -> Tensor:
    """Writes `gradient · (1 - y²)` into `grad_input`, where `y` is the result of a tanh."""
    return torch.ops.aten.tanh_backward.grad_input(gradient, y, grad_input=grad_input)  # type: ignore[no-any-return]


# What stands on the way of a tensor or a module.


def may_have_hooks(module: nn.Module) -> bool:
    """Whether hooks run when a module is called: its own, or those for all modules.

    Without it: yes, and `run` calls the module.
    """
    try:
        own = module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
        return bool(
            own
            or nn.modules.module._global_forward_hooks
            or nn.modules.module._global_forward_pre_hooks
            or nn.modules.module._global_backward_hooks
            or nn.modules.module._global_backward_pre_hooks
        )
    except AttributeError:
        return True


def may_derive_otherwise() -> bool:
    """Whether `torch.func` or forward-mode differentiation is at work.

    Without it: yes, and packing and `run` are torch's own.
    """
    try:
        return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0
    except AttributeError:
        return True


VERSION = "_version"


def version(tensor: Tensor) -> int | None:
    """Grows with every change of the tensor in place; none where torch does not count them.

    Without it: none, and the index of a packed batch is made anew for every use.
    """
    return None if tensor.is_inference() else getattr(tensor, VERSION, None)


def parameters(module: nn.Module) -> Mapping[str, Any]:
    """The module's own by name, without those of its submodules.

    Without it: none, and `run` asks the module for each.
    """
    return getattr(module, "_parameters", {})


def share_names(module: nn.Module, other: nn.Module) -> None:
    """Gives a module another's parameters, buffers and submodules, under the other's names.

    Without it: an error of torch's, where the module is made.
    """
    for table in ("_parameters", "_buffers", "_modules"):
        module.__dict__[table] = getattr(other, table)


def is_compiler_loaded() -> bool:
    """Whether `torch.compile` was used in this process. Without it: only while it compiles."""
    return "torch._dynamo" in sys.modules or torch.compiler.is_compiling()


# Autograd within an operator.


def recorded(call: Callable[[], Result]) -> Result:
    """Makes a call that autograd records, within an operator, where torch has switched it off below `enable_grad`.

    There is no public function for this: `torch.func.vjp` refuses the modes that `opcheck` runs under. Without it, the
    backward pass of `pv.Ragged` in a compiled program is an error.
    """
    keys, off = torch._C.DispatchKey, torch._C._dispatch_tls_local_exclude_set()
    for key in (keys.AutogradFunctionality, keys.AutogradOther, keys.AutogradCPU, keys.AutogradCUDA):
        off = off.remove(key)
    off = off.remove(keys.ADInplaceOrView)
    guard = torch._C._ForceDispatchKeyGuard(torch._C._dispatch_tls_local_include_set(), off)
    with guard, torch.enable_grad():
        return call()


# Counting operators. Without any of these: an error, never another number.


def operator_mode() -> Any:
    """Returns the class of what sees every operator that is called under it."""
    from torch.utils._python_dispatch import TorchDispatchMode  # noqa: PLC0415 - only what counts needs it

    return TorchDispatchMode


def schema(function: Any) -> Any:
    """An operator's name, arguments and returns."""
    return function._schema


def consists_of_others(function: Any) -> bool:
    """Whether an operator is written in terms of other operators."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(function.name(), "CompositeExplicitAutograd")


def run_inside(function: Any, device: str, args: Any, kwargs: Any) -> Any:
    """Runs such an operator on a kind of device, so that a mode that is on sees the others."""
    key = torch._C.DispatchKey.CPU if device == "cpu" else torch._C.DispatchKey.Meta
    return function.redispatch(torch._C.DispatchKeySet(key), *args, **kwargs)


def storage(tensor: Tensor) -> int:
    """Tells the memory of tensors apart. The address of the data would do, but on the meta device there is none."""
    return int(tensor.untyped_storage()._cdata)


# Memory.


def memory_changes(call: Callable[[], object]) -> list[int] | None:
    """Makes a call, and gives the bytes that torch's CPU allocator gave out and (less than 0) took back, in order.

    The public profiler stands on the same counts, but torch 2.13's writes to stderr whenever it starts.
    Without it, returns `None` and does not make the call, so there is no peak memory to report.
    """
    autograd: Any = torch.autograd
    try:
        start, stop = autograd._enable_profiler_legacy, autograd._disable_profiler_legacy
        only_memory = (False, True, False, False, False, torch._C._profiler._ExperimentalConfig())
        config = autograd.ProfilerConfig(autograd.ProfilerState.CPU, *only_memory)
    except AttributeError:
        return None
    start(config)
    try:
        call()
    finally:
        events = [event for thread in stop() for event in thread]
    return [event.cpu_memory_usage() for event in events if event.kind() == "memory_alloc"]
