"""Counting what torch does: operators, the kernels inside them, the bytes they write, and autograd's own nodes.

The convention, in full:

- An **operator** counts if it fills memory. Views (a slice, a transpose) and bare allocations (`empty`) fill nothing.
- Its **bytes** are those of the tensors it fills, each once: its new results, or what it changes in place. Reads do not
  count, nor does memory that an operator uses on the way and drops.
- Its **kernels** are the fills that it consists of: `slice_backward` is one operator that fills one tensor with two
  kernels, zeros first and then the slice. What cannot be looked into (a fused kernel) is one. On CUDA the kernels are
  those that the GPU ran.

Nothing here is a time, and nothing depends on the machine. Counting changes one thing: where gradients meet, autograd
adds them up in a new tensor (`add`) while a mode watches, and else in place (`add_`). Kernels and bytes are the same.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.autograd.graph import Node

from packviz.ops import private

Result = TypeVar("Result")


class Operator(NamedTuple):
    """An operator that filled memory; or several of the same name, added up.

    Attributes:
        name: as ATen has it.
        calls: how often it was called.
        kernels: how many fills it consists of.
        bytes: how much it filled.
    """

    name: str
    calls: int
    kernels: int
    bytes: int


class Counting(private.operator_mode()):  # type: ignore[misc]
    """Counts every operator that is called under it.

    Autograd runs CPU work in the thread that asks for it, where a mode sees it; for other devices in threads of their
    own, so run `backward` under `torch.autograd.set_multithreading_enabled(False)`.

    Attributes:
        calls: the operators in order, each with what `during` was then.
        during: whatever the caller wants to find beside an operator.
    """

    def __init__(self) -> None:
        """Starts at nothing."""
        super().__init__()
        self.calls: list[tuple[Operator, Any]] = []
        self.during: Any = None
        self._open: list[Any] = []
        self._kernels = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs an operator, looks into it where that can be done, and counts it."""
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
        if kind.consists_of_others and func not in self._open[:-1]:
            place = next((a for a in (*args, *kwargs.values()) if isinstance(a, (Tensor, torch.device))), None)
            device = place.device.type if isinstance(place, Tensor) else place.type if place else "cpu"
            if device in ("cpu", "meta"):
                with self:  # a mode is off while it is asked; on again, it sees what the operator itself calls
                    return private.run_inside(func, device, args, kwargs)
        return func(*args, **kwargs)


def observe(call: Callable[[Counting], Result], device: torch.device) -> tuple[Result, Counting, int]:
    """Makes a call and counts.

    Args:
        call: is given the `Counting` that it runs under.
        device: where its work is done.

    Returns:
        What it returned, the operators, and how many kernels they are.
    """
    counting = Counting()
    if device.type != "cuda":
        with counting:
            result = call(counting)
        return result, counting, sum(operator.kernels for operator, _ in counting.calls)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        with counting:
            result = call(counting)
        torch.cuda.synchronize(device)
    return result, counting, sum(str(event.device_type).endswith("CUDA") for event in seen.events() or ())


def added_up(operators: Iterable[Operator]) -> list[Operator]:
    """One `Operator` per name, in the order in which the names come first."""
    sums: dict[str, Operator] = {}
    for one in operators:
        before = sums.get(one.name, Operator(one.name, 0, 0, 0))
        sums[one.name] = Operator(one.name, *map(sum, zip(before[1:], one[1:], strict=True)))
    return list(sums.values())


@dataclass(frozen=True)
class Step:
    """An autograd node, as the backward pass ran it.

    Attributes:
        name: as autograd calls it, without namespace and number: `CopySlices`, `SliceBackward`.
        operators: those that filled memory, in order. Where several gradients meet at a node, adding them up comes
            first.
        next: where the nodes that it hands gradients to are among the steps; none where nobody needs one.
    """

    name: str
    operators: tuple[Operator, ...]
    next: tuple[int | None, ...]


def backward(output: Tensor, gradient: Tensor) -> tuple[tuple[Step, ...], tuple[Operator, ...], int]:
    """Runs the backward pass from `output`, and counts node by node.

    Returns:
        The nodes, breadth first from the output; all operators in order; and how many kernels they are.
    """
    nodes = walk(output)
    place = {node: i for i, node in enumerate(nodes)}
    following = [tuple(place[after] if after else None for after, _ in node.next_functions) for node in nodes]
    arriving = Counter(i for others in following for i in others)
    # Between two nodes autograd itself adds up gradients, as soon as the second one for the same node is there.
    adds_for = [next((i for i in others if i is not None and arriving[i] > 1), None) for others in following]

    def run(counting: Counting) -> None:
        def during(i: int | None) -> Callable[..., None]:
            return lambda *gradients: setattr(counting, "during", i)

        for i, node in enumerate(nodes):
            node.register_prehook(during(i))
            node.register_hook(during(adds_for[i]))
        # In this thread: a mode does not see what others do. (The work of CPUs is done here in any case.)
        with torch.autograd.set_multithreading_enabled(False):
            torch.autograd.backward(output, gradient)

    _, counting, kernels = observe(run, output.device)
    did: list[list[Operator]] = [[] for _ in nodes]
    for operator, i in counting.calls:
        if i is not None:
            did[i].append(operator)
    names = (re.sub(r".*::|\d+$", "", node.name()) for node in nodes)
    steps = tuple(map(Step, names, map(tuple, did), following))
    return steps, tuple(operator for operator, _ in counting.calls), kernels


def walk(output: Tensor) -> list[Node]:
    """The autograd nodes behind a tensor, breadth first."""
    order = [output.grad_fn] if output.grad_fn else []
    seen = set(order)
    for node in order:  # which grows meanwhile
        for after, _ in node.next_functions:
            if after is not None and after not in seen:
                seen.add(after)
                order.append(after)
    return order


@dataclass(frozen=True)
class _Kind:
    """What an operator's schema says of it.

    Attributes:
        name: without namespace and overload.
        writes: the arguments that it changes, each by its place and its name.
        allocates: whether it makes tensors and leaves them empty.
        consists_of_others: whether it makes something new, and is written in terms of other operators.
    """

    name: str
    writes: tuple[tuple[int, str], ...]
    allocates: bool
    consists_of_others: bool

    def filled(self, args: Any, kwargs: Any, result: Any) -> list[Tensor]:
        """The tensors that a call has written to."""
        if self.writes:
            return list(_tensors([kwargs[name] if name in kwargs else args[i] for i, name in self.writes]))
        if self.allocates:
            return []
        # Not by the schema alone: unsafe_split, say, gives views and declares none.
        old = {private.storage(t) for t in _tensors((*args, *kwargs.values()))}
        return [t for t in _tensors(result) if private.storage(t) not in old]


@functools.cache
def _kind(func: Any) -> _Kind:
    schema = private.schema(func)
    name = schema.name.partition("::")[2]
    arguments = [(i, a.name, a.alias_info) for i, a in enumerate(schema.arguments)]
    writes = tuple((i, name) for i, name, alias in arguments if alias and alias.is_write)
    fresh = not any(a.alias_info for a in (*schema.arguments, *schema.returns))
    return _Kind(name, writes, name.startswith(("empty", "new_empty")), fresh and private.consists_of_others(func))


def _tensors(value: Any) -> Iterator[Tensor]:
    """Those of an operator's arguments or results."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _tensors(one)
