"""The autograd graph: its nodes, and what each of them does when the backward pass comes by."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.graph import Node

from packviz.count.operators import Counting, Operator, observe


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
