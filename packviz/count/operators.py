"""Counts what torch does: operators, their kernels, the bytes they write, and autograd nodes.

The counts follow these conventions:

- An **operator** counts if it fills memory. Views (a slice, a transpose) and bare allocations
  (`empty`) fill nothing.
- The **bytes** of an operator are the sizes of the tensors that it fills, which are new results or
  tensors changed in place. Each tensor counts once. Reads do not count, and neither does temporary
  memory.
- The **kernels** of an operator are the separate fills that it performs. An operator counts as one
  kernel, except that `slice_backward` fills one tensor with two kernels: the first writes zeros,
  and the second copies the slice. On CUDA, the total is the number of kernels that the GPU ran.

Nothing is timed, and on a CPU no count depends on the machine. Counting changes one thing: where
gradients meet, autograd adds them in a new tensor (`add`) while a dispatch mode is active, and
otherwise in place (`add_`). The numbers of kernels and bytes are the same either way.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.autograd import graph

from packviz.ops import private

Result = TypeVar("Result")


_KERNEL_COUNTS = {"slice_backward": 2}  # of operators with more than one


class Operator(NamedTuple):
    """A call of an operator that filled memory, or the sum over several such calls.

    Attributes:
        name: the name of the operator in ATen.
        calls: number of calls.
        kernels: number of separate fills of memory, each of which takes a kernel.
        bytes: number of bytes that were filled.
    """

    name: str
    calls: int
    kernels: int
    bytes: int


class _OperatorCounter(private.dispatch_mode_class()):  # type: ignore[misc]
    """A mode that counts every operator that is called while the mode is on.

    Attributes:
        operators: the operators in order.
    """

    def __init__(self) -> None:
        super().__init__()
        self.operators: list[Operator] = []

    def __torch_dispatch__(
        self,
        func: Callable[..., object],
        types: object,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> object:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        filled_bytes = _filled_bytes(func, args, kwargs, result)
        if filled_bytes:
            name, _ = _name_and_writes(func)
            self.operators.append(Operator(name, 1, _KERNEL_COUNTS.get(name, 1), filled_bytes))
        return result


def observe(
    call: Callable[[], Result], device: torch.device
) -> tuple[Result, tuple[Operator, ...], int]:
    """Makes a call and counts its operators.

    A mode sees the CPU work of autograd, which runs in the calling thread. It sees the work of
    other devices only if `torch.autograd.set_multithreading_enabled` is off.

    Args:
        call: the function to call.
        device: the device on which the call runs.

    Returns:
        The result of the call, the operators in order, and the number of kernels.
    """
    counter = _OperatorCounter()
    if device.type != "cuda":
        with counter:
            result = call()
        kernels = sum(operator.kernels for operator in counter.operators)
        return result, tuple(counter.operators), kernels
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        with counter:
            result = call()
        torch.cuda.synchronize(device)
    event_device_types = [str(event.device_type) for event in profiler.events() or ()]
    kernels = sum(kind.endswith("CUDA") for kind in event_device_types)
    return result, tuple(counter.operators), kernels


def autograd_nodes(output: Tensor) -> list[graph.Node]:
    """Returns the autograd nodes behind a tensor, in breadth-first order."""
    nodes = [output.grad_fn] if output.grad_fn else []
    seen = set(nodes)
    for node in nodes:  # the list grows during the loop
        for next_node, _ in node.next_functions:
            if next_node is not None and next_node not in seen:
                seen.add(next_node)
                nodes.append(next_node)
    return nodes


@functools.cache
def _name_and_writes(func: object) -> tuple[str, tuple[tuple[int, str], ...]]:
    """Returns the name of an operator, and the arguments that it changes in place.

    The name has no namespace or overload. Each argument is given by its position and its name.
    """
    schema = private.schema(func)
    written_arguments = []
    for i, argument in enumerate(schema.arguments):
        if argument.alias_info and argument.alias_info.is_write:
            written_arguments.append((i, argument.name))
    return schema.name.partition("::")[2], tuple(written_arguments)


def _filled_bytes(
    func: object, args: Sequence[Any], kwargs: Mapping[str, Any], result: object
) -> int:
    """Returns the number of bytes that a call of an operator wrote to."""
    name, written_arguments = _name_and_writes(func)
    if written_arguments:
        written_values = [
            kwargs[name] if name in kwargs else args[i] for i, name in written_arguments
        ]
        return sum(tensor.nbytes for tensor in _tensors(written_values))
    if name.startswith(("empty", "new_empty")):  # these create tensors without filling them
        return 0
    # The schema alone is not enough: unsafe_split, for example, returns views and declares none.
    old_ids = {private.storage_id(tensor) for tensor in _tensors([*args, *kwargs.values()])}
    new_tensors = [
        tensor for tensor in _tensors(result) if private.storage_id(tensor) not in old_ids
    ]
    return sum(tensor.nbytes for tensor in new_tensors)


def _tensors(value: object) -> Iterator[Tensor]:
    """Yields the tensors among the arguments or results of an operator."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _tensors(part)
