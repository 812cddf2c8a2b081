"""Counts what packing, padding and RNNs make torch do, forward and backward: operators, kernels,
nodes and bytes.

The counts are taken while torch runs, and never derived from a formula. `packviz.count.operators`
defines what counts. The counts depend on the version of torch, because releases may use different
algorithms. On a CPU, they do not depend on the machine.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from packviz.core.fit import exponent as exponent
from packviz.core.has_text import HasText
from packviz.core.layout import Layout
from packviz.count.operators import Operator, backward, observe
from packviz.draw.graphs import Graph, Node
from packviz.draw.quantities import whole_percent
from packviz.draw.table import Table, Tabled
from packviz.draw.text import size as size
from packviz.draw.text import table
from packviz.ops import original

_FORMULA = re.compile("PackPadded|PadPacked")


@dataclass(frozen=True, repr=False)
class Tally(Tabled):
    """The operators of one pass.

    Attributes:
        operators: every operator that filled memory, in order.
        kernels: number of separate fills of memory, or, on CUDA, number of kernels that the GPU
            ran.
    """

    operators: tuple[Operator, ...]
    kernels: int

    @property
    def bytes(self) -> int:
        """The total number of bytes that the operators filled."""
        return sum(operator.bytes for operator in self.operators)

    def by_name(self) -> list[Operator]:
        """Returns, for each name, the sum over all operators with that name.

        The sum with the most bytes comes first.
        """
        sums: dict[str, Operator] = {}
        for one in self.operators:
            before = sums.get(one.name, Operator(one.name, 0, 0, 0))
            sums[one.name] = Operator(one.name, *map(sum, zip(before[1:], one[1:], strict=True)))
        return sorted(sums.values(), key=lambda operator: -operator.bytes)

    @property
    def table(self) -> Table:
        """A table with a row for each operator name, sorted by bytes, largest first."""
        rows = [
            [
                o.name,
                f"{o.calls:,}",
                f"{o.kernels:,}",
                size(o.bytes),
                whole_percent(o.bytes / self.bytes),
            ]
            for o in self.by_name()
        ]
        title = f"{self.kernels:,} kernels write {size(self.bytes)}"
        return Table(rows, ["operator", "calls", "kernels", "written", "of all"], title)


@dataclass(frozen=True, repr=False)
class Counted(HasText):
    """The counts of one operation, forward and backward.

    Attributes:
        name: the name of the operation.
        forward: the counts of its forward pass.
        backward: the counts of its backward pass, from a gradient of its output to the gradient of
            its input.
        gradient: the size of the output's gradient in bytes.
        steps: the autograd nodes that the forward pass recorded, with the operators that they ran
            in the backward pass. Some of the nodes collect the gradients of the input and, for an
            RNN, of the weights.
    """

    name: str
    forward: Tally
    backward: Tally
    gradient: int
    steps: tuple[Node, ...]

    @property
    def nodes(self) -> int:
        """The number of autograd nodes."""
        return len(self.steps)

    @property
    def formula(self) -> str | None:
        """The name of the node with torch's derivative formula for the whole operation, or `None`
        if there is none.

        Without a formula, autograd records the operators that the operation is composed of.
        """
        return next((step.name for step in self.steps if _FORMULA.search(step.name)), None)

    @property
    def verdict(self) -> str:
        """A sentence that says where the backward pass comes from."""
        nodes = f"{self.nodes:,} autograd nodes"
        if self.formula:
            return f"torch has a derivative formula for {self.name}, {self.formula}, so there are only {nodes}."
        return f"torch has no derivative formula for {self.name}, so autograd has recorded its parts in {nodes}."

    def graph(self) -> Graph:
        """Returns the autograd nodes as a drawing."""
        useful = _useful(self.steps)
        nodes = tuple(replace(step, useful=useful.get(i)) for i, step in enumerate(self.steps))
        return Graph(f"The backward pass of {self.name}", nodes, self.gradient)

    def to_text(self) -> str:
        """Returns a table with a line for each pass."""
        return "\n".join(_table(self))


@dataclass(frozen=True, repr=False)
class Profile(HasText):
    """The counts of packing a batch and padding it again.

    Attributes:
        layout: the layout of the batch.
        features: number of features of each cell.
        pack: the counts of `pack_padded_sequence`.
        pad: the counts of `pad_packed_sequence`.
    """

    layout: Layout
    features: int
    pack: Counted
    pad: Counted

    def to_text(self) -> str:
        """Returns a description of the batch, and a table with a line for each pass."""
        layout = self.layout
        distinct = np.unique(layout.lengths).size
        batch = f"{layout.batch_size} sequences of {layout.max_len} time steps, {self.features} features"
        return "\n".join([f"{batch}; distinct lengths: {distinct}", *_table(self.pack, self.pad)])


def count(
    lengths: Any, features: int = 32, *, enforce_sorted: bool = True, device: Any = "cpu"
) -> Profile:
    """Counts what torch does to pack a float32 batch and to pad it again, both forward and
    backward.

    Args:
        lengths: `(B,)` the number of real time steps of each sequence; or a `Layout`, whose
            `max_len` may exceed the longest length.
        features: number of features of each cell. The batch has the shape `(T, B, features)`.
        enforce_sorted: whether the lengths are sorted beforehand. If it is False, torch sorts them.
        device: the device to run on. Tensors on `"meta"` have a shape but no data, so counting
            takes hardly any time and memory there. The counts are the same as on a CPU, but torch
            cannot sort on `"meta"`.

    Raises:
        ValueError: a length is not valid, or torch would have to sort on the meta device.
    """
    device = torch.device(device)
    layout = Layout(lengths)
    if enforce_sorted:
        layout = Layout(np.sort(layout.lengths)[::-1], layout.max_len)
    elif device.type == "meta":
        raise ValueError(
            "enforce_sorted is False, but tensors on the meta device have no data to sort by; use 'cpu'"
        )
    n = torch.tensor(layout.lengths.tolist())
    x = torch.zeros(layout.max_len, layout.batch_size, features, device=device)
    packed: Any = None

    def pack(x: Tensor) -> Tensor:
        nonlocal packed
        packed = original.pack_padded_sequence(x, n, enforce_sorted=enforce_sorted)
        return packed.data  # type: ignore[no-any-return]

    def pad(data: Tensor) -> Tensor:
        return original.pad_packed_sequence(
            packed._replace(data=data), total_length=layout.max_len
        )[0]

    packing = _counted("pack", pack, x)
    return Profile(layout, features, packing, _counted("pad", pad, packed.data))


def count_rnn(rnn: nn.RNNBase, lengths: Any, *, packed: bool = True) -> Counted:
    """Counts what an RNN does on a batch of zeros, forward and backward. Packing and padding are
    not counted.

    Args:
        rnn: an `nn.RNN`, `nn.GRU` or `nn.LSTM`, on any device. The function runs a copy of it.
        lengths: the lengths as in `count`; they are sorted beforehand.
        packed: whether the RNN runs on the packed batch rather than the padded one.

    Raises:
        ValueError: a length is not valid.
    """
    layout = Layout(lengths)
    rnn = copy.deepcopy(rnn)
    rnn.flatten_parameters()  # on CUDA, a copy's weights are scattered, and torch would warn
    weight = next(rnn.parameters())
    sizes = torch.tensor(layout.batch_sizes.tolist())
    cells = (layout.max_len, layout.batch_size)
    shape = (layout.n_real,) if packed else cells[::-1] if rnn.batch_first else cells

    def run(x: Tensor) -> Tensor:
        output: Any = rnn(PackedSequence(x, sizes) if packed else x)[0]
        return output.data if packed else output  # type: ignore[no-any-return]

    kind = f"{'packed' if packed else 'padded'} {type(rnn).__name__}"
    return _counted(
        kind, run, torch.zeros(*shape, rnn.input_size, dtype=weight.dtype, device=weight.device)
    )


def _useful(steps: Sequence[Node]) -> dict[int, int]:
    """Returns the size, in bytes, of the slice that each node in a chain of copies actually has to
    handle.

    A `CopySlices` takes the gradient of its slice out of a copy of the whole gradient, and the
    `SliceBackward` below it puts that slice into a tensor of zeros. Where these tensors meet, they
    are added, although no two slices overlap.
    """
    useful: dict[int, int] = {}
    for i, step in enumerate(steps):
        if step.name == "CopySlices":
            here: int | None = i
            taken = sum(written for name, written in step.operators if name == "clone")
            while taken and here is not None and steps[here].next:
                if steps[here].operators:
                    useful[here] = min(taken, steps[here].bytes)
                here = steps[here].next[-1]
            if taken and here is not None and steps[here].operators:
                useful[here] = 0
    return useful


def _counted(name: str, call: Callable[[Tensor], Tensor], x: Tensor) -> Counted:
    x = x.detach().requires_grad_()
    output, calls, kernels = observe(lambda counting: call(x), x.device)
    forward = Tally(tuple(operator for operator, _ in calls), kernels)
    gradient = torch.zeros_like(output)
    steps, operators, kernels = backward(output, gradient)
    return Counted(name, forward, Tally(operators, kernels), gradient.nbytes, steps)


def _table(*counted: Counted) -> list[str]:
    rows = [["", "kernels", "nodes", "written"]]
    for one in counted:
        back = one.backward
        rows.append([one.name, f"{one.forward.kernels:,}", "", size(one.forward.bytes)])
        rows.append(
            [f"{one.name}, backward", f"{back.kernels:,}", f"{one.nodes:,}", size(back.bytes)]
        )
    return table(rows, "<24>9>8>10")
