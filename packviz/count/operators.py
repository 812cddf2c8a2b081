"""Counts what torch does: operators, the kernels inside them, the bytes they write, and autograd
nodes.

The counts follow these conventions:

- An **operator** counts if it fills memory. Views (a slice, a transpose) and bare allocations
  (`empty`) fill nothing.
- The **bytes** of an operator are the sizes of the tensors that it fills, which are new results or
  tensors changed in place. Each tensor counts once. Reads do not count, and neither does temporary
  memory.
- The **kernels** of an operator are the separate fills that it performs. For example,
  `slice_backward` is one operator
  that fills one tensor with two kernels: the first writes zeros, and the second copies the slice.
  An operator whose parts cannot be seen (a fused kernel) counts as one kernel. On CUDA, the total
  is the number of kernels that the GPU ran.

Nothing is timed, and on a CPU no count depends on the machine. Counting changes one thing: where
gradients meet, autograd adds them in a new tensor (`add`) while a dispatch mode is active, and
otherwise in place (`add_`). The numbers of kernels and bytes are the same either way.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.autograd import graph

from packviz.draw.graphs import Node
from packviz.ops import private

Result = TypeVar("Result")


class Operator(NamedTuple):
    """A call of an operator that filled memory, or the sum over several calls of operators with the
    same name.

    Attributes:
        name: the name of the operator in ATen.
        calls: number of calls.
        kernels: number of kernels, which are separate fills of memory.
        bytes: number of bytes that were filled.
    """

    name: str
    calls: int
    kernels: int
    bytes: int


class _Counting(private.operator_mode()):  # type: ignore[misc]
    """A mode that counts every operator that is called while the mode is on.

    Autograd runs CPU work in the calling thread, where a mode sees it, but it runs the work of
    other devices in separate threads. So run `backward` under
    `torch.autograd.set_multithreading_enabled(False)`.

    Attributes:
        calls: the operators in order, each with the value that `during` had at the call.
        during: a value that the caller may set. It is stored with every operator that is called
            from then on.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Operator, Any]] = []
        self.during: Any = None
        self._open: list[Any] = []
        self._kernels = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, kind = kwargs or {}, _kind(func)
        before, self._kernels = self._kernels, 0
        self._open.append(func)
        try:
            result = self._run(func, kind, args, kwargs)
        finally:
            self._open.pop()
            inside, self._kernels = self._kernels, before
        if filled := sum(t.numel() * t.element_size() for t in kind.filled(args, kwargs, result)):
            kernels = max(inside, 1)
            self._kernels += kernels
            if not self._open:
                self.calls.append((Operator(kind.name, 1, kernels, filled), self.during))
        return result

    def _run(self, func: Any, kind: _Kind, args: Any, kwargs: Any) -> Any:
        """Runs an operator and, if possible, keeps the mode on for the operators that it calls."""
        if kind.consists_of_others and func not in self._open[:-1]:
            place = next(
                (a for a in (*args, *kwargs.values()) if isinstance(a, (Tensor, torch.device))),
                None,
            )
            device = (
                place.device.type if isinstance(place, Tensor) else place.type if place else "cpu"
            )
            if device in ("cpu", "meta"):
                with self:  # a mode is off while it handles a call
                    return private.run_inside(func, device, args, kwargs)
        return func(*args, **kwargs)


def observe(
    call: Callable[[_Counting], Result], device: torch.device
) -> tuple[Result, list[tuple[Operator, Any]], int]:
    """Makes a call and counts its operators.

    Args:
        call: a function that takes the counting mode, and may set the mode's attribute `during`.
        device: the device on which the call runs.

    Returns:
        The result of the call; the operators in order, each with its value of `during`; and the
        number of kernels.
    """
    counting = _Counting()
    if device.type != "cuda":
        with counting:
            result = call(counting)
        return result, counting.calls, sum(operator.kernels for operator, _ in counting.calls)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        with counting:
            result = call(counting)
        torch.cuda.synchronize(device)
    return (
        result,
        counting.calls,
        sum(str(event.device_type).endswith("CUDA") for event in seen.events() or ()),
    )


def backward(
    output: Tensor, gradient: Tensor
) -> tuple[tuple[Node, ...], tuple[Operator, ...], int]:
    """Runs the backward pass from `output` and its gradient, and counts the operators of each node.

    Returns:
        The autograd nodes, in breadth-first order from the output; all operators in order; and the
        number of kernels. If several gradients meet at a node, the operators that add them come
        first among that node's operators.
    """
    nodes = walk(output)
    place = {node: i for i, node in enumerate(nodes)}
    following = [
        tuple(place[after] if after else None for after, _ in node.next_functions) for node in nodes
    ]
    arriving = Counter(i for others in following for i in others)
    # Between two nodes, autograd itself adds gradients, as soon as the second one for the same node
    # has arrived.
    adds_for = [
        next((i for i in others if i is not None and arriving[i] > 1), None) for others in following
    ]

    def run(counting: _Counting) -> None:
        def during(i: int | None) -> Callable[..., None]:
            return lambda *gradients: setattr(counting, "during", i)

        for i, node in enumerate(nodes):
            node.register_prehook(during(i))
            node.register_hook(during(adds_for[i]))
        with torch.autograd.set_multithreading_enabled(False):
            torch.autograd.backward(output, gradient)

    _, calls, kernels = observe(run, output.device)
    did: dict[int | None, list[tuple[str, int]]] = {}
    for operator, i in calls:
        did.setdefault(i, []).append((operator.name, operator.bytes))
    names = (re.sub(r".*::|\d+$", "", node.name()) for node in nodes)
    steps = tuple(Node(name, tuple(did.get(i, ())), following[i]) for i, name in enumerate(names))
    return steps, tuple(operator for operator, _ in calls), kernels


def walk(output: Tensor) -> list[graph.Node]:
    """Returns the autograd nodes behind a tensor, in breadth-first order."""
    order = [output.grad_fn] if output.grad_fn else []
    seen = set(order)
    for node in order:  # the list grows during the loop
        for after, _ in node.next_functions:
            if after is not None and after not in seen:
                seen.add(after)
                order.append(after)
    return order


@dataclass(frozen=True)
class _Kind:
    """The properties of an operator that follow from its schema.

    Attributes:
        name: the name of the operator without its namespace or overload.
        writes: the arguments that the operator changes in place, each as `(position, name)`.
        allocates: whether it creates tensors without filling them.
        consists_of_others: whether it creates a new tensor and is composed of other operators.
    """

    name: str
    writes: tuple[tuple[int, str], ...]
    allocates: bool
    consists_of_others: bool

    def filled(self, args: Any, kwargs: Any, result: Any) -> list[Tensor]:
        """Returns the tensors that a call wrote to."""
        if self.writes:
            return list(
                _tensors([kwargs[name] if name in kwargs else args[i] for i, name in self.writes])
            )
        if self.allocates:
            return []
        # The schema alone is not enough: unsafe_split, for example, returns views and declares
        # none.
        old = {private.storage(t) for t in _tensors((*args, *kwargs.values()))}
        return [t for t in _tensors(result) if private.storage(t) not in old]


@functools.cache
def _kind(func: Any) -> _Kind:
    schema = private.schema(func)
    name = schema.name.partition("::")[2]
    arguments = [(i, a.name, a.alias_info) for i, a in enumerate(schema.arguments)]
    writes = tuple((i, name) for i, name, alias in arguments if alias and alias.is_write)
    fresh = not any(a.alias_info for a in (*schema.arguments, *schema.returns))
    return _Kind(
        name,
        writes,
        name.startswith(("empty", "new_empty")),
        fresh and private.consists_of_others(func),
    )


def _tensors(value: Any) -> Iterator[Tensor]:
    """Yields the tensors among the arguments or results of an operator."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _tensors(one)
