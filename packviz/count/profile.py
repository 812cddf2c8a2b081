"""What packing, padding and a packed RNN make torch do: operators, kernels, autograd nodes and bytes, forward and back.

Counted while torch does it, never derived by formula; `packviz.count.operators` states the convention. Counts do not
depend on the machine, but on torch: another release may have another algorithm, and is counted as it is.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from packviz.core.fit import exponent as exponent
from packviz.core.has_text import HasText
from packviz.core.layout import Layout
from packviz.count.operators import Operator, Step, added_up, backward, observe
from packviz.draw.graphs import Graph, Node
from packviz.draw.quantities import whole_percent
from packviz.draw.table import Table, Tabled
from packviz.draw.text import size as size
from packviz.draw.text import table
from packviz.ops import original

_FORMULA = re.compile("PackPadded|PadPacked")


@dataclass(frozen=True, repr=False)
class Tally(Tabled):
    """What one pass did.

    Attributes:
        operators: every one that filled memory, in order.
        kernels: how many fills they consist of; on CUDA, how many kernels the GPU ran.
    """

    operators: tuple[Operator, ...]
    kernels: int

    @property
    def bytes(self) -> int:
        """How much they filled."""
        return sum(operator.bytes for operator in self.operators)

    def by_name(self) -> list[Operator]:
        """The operators added up by name, the most bytes first."""
        return sorted(added_up(self.operators), key=lambda operator: -operator.bytes)

    @property
    def table(self) -> Table:
        """A line per name of an operator, the most bytes first."""
        rows = [
            [o.name, f"{o.calls:,}", f"{o.kernels:,}", size(o.bytes), whole_percent(o.bytes / self.bytes)]
            for o in self.by_name()
        ]
        title = f"{self.kernels:,} kernels write {size(self.bytes)}"
        return Table(rows, ["operator", "calls", "kernels", "written", "of all"], title)


@dataclass(frozen=True, repr=False)
class Counted(HasText):
    """What one operation did, forward and backward.

    Attributes:
        name: of the operation.
        forward: its forward pass.
        backward: its backward pass, from a gradient to its output up to the gradient to its input.
        gradient: the bytes of the gradient that comes in: of the output.
        steps: the autograd nodes that the forward pass left behind, as the backward pass ran them. The last ones
            collect the gradients of the input, and of an RNN's weights.
    """

    name: str
    forward: Tally
    backward: Tally
    gradient: int
    steps: tuple[Step, ...]

    @property
    def nodes(self) -> int:
        """How many autograd nodes."""
        return len(self.steps)

    @property
    def formula(self) -> str | None:
        """The autograd node of torch's derivative formula for the whole operation; none where there is no formula.

        Without one autograd has recorded the operators that the operation is made of.
        """
        return next((step.name for step in self.steps if _FORMULA.search(step.name)), None)

    @property
    def verdict(self) -> str:
        """In words: how its backward pass comes about."""
        nodes = f"{self.nodes:,} autograd nodes"
        if self.formula:
            return f"torch has a derivative formula for {self.name}, {self.formula}: {nodes}."
        return f"torch has no derivative formula for {self.name}; autograd has recorded what it is made of: {nodes}."

    def graph(self) -> Graph:
        """The autograd nodes, to be drawn."""
        useful = _useful(self.steps)
        nodes = tuple(
            Node(step.name, tuple((o.name, o.bytes) for o in step.operators), step.next, useful.get(i))
            for i, step in enumerate(self.steps)
        )
        return Graph(f"The autograd graph after {self.name}", nodes, self.gradient)

    def to_text(self) -> str:
        """Both passes in one line each."""
        return "\n".join(_table(self))


@dataclass(frozen=True, repr=False)
class Profile(HasText):
    """What packing a batch and padding it again did.

    Attributes:
        layout: the batch.
        features: numbers per cell.
        pack: `pack_padded_sequence`.
        pad: `pad_packed_sequence`.
    """

    layout: Layout
    features: int
    pack: Counted
    pad: Counted

    def to_text(self) -> str:
        """The batch, and a line for each pass."""
        layout = self.layout
        distinct = np.unique(layout.lengths).size
        batch = f"{layout.batch_size} sequences of {layout.max_len} time steps, {self.features} features"
        return "\n".join([f"{batch}; distinct lengths: {distinct}", *_table(self.pack, self.pad)])


def count(lengths: Any, features: int = 32, *, enforce_sorted: bool = True, device: Any = "cpu") -> Profile:
    """Packs a batch of float32 and pads it again, both forward and backward, and counts.

    Args:
        lengths: `(B,)` the real time steps of each sequence; or a `Layout`, whose `max_len` may be larger.
        features: numbers per cell: the batch has shape `(T, B, features)`.
        enforce_sorted: if true, the lengths are sorted before. If false they stay in their order, and torch sorts.
        device: where. On `"meta"` tensors have shapes and no data: the counts are the same, and large ones take no
            time and no memory. It cannot sort.

    Raises:
        ValueError: a length is not valid, or torch shall sort on the meta device.
    """
    device = torch.device(device)
    layout = Layout(lengths)
    if enforce_sorted:
        layout = Layout(np.sort(layout.lengths)[::-1], layout.max_len)
    elif device.type == "meta":
        raise ValueError("enforce_sorted is False, and tensors on the meta device have no data to sort by; use 'cpu'")
    n = torch.tensor(layout.lengths.tolist())
    x = torch.zeros(layout.max_len, layout.batch_size, features, device=device)
    packed: Any = None

    def pack(x: Tensor) -> Tensor:
        nonlocal packed
        packed = original.pack_padded_sequence(x, n, enforce_sorted=enforce_sorted)
        return packed.data  # type: ignore[no-any-return]

    def pad(data: Tensor) -> Tensor:
        return original.pad_packed_sequence(packed._replace(data=data), total_length=layout.max_len)[0]

    packing = _counted("pack", pack, x)
    return Profile(layout, features, packing, _counted("pad", pad, packed.data))


def count_rnn(rnn: nn.RNNBase, lengths: Any, *, packed: bool = True) -> Counted:
    """Runs an RNN on a batch of zeros, forward and backward, and counts. Packing and padding are left out.

    Args:
        rnn: an `nn.RNN`, `nn.GRU` or `nn.LSTM`, on any device. A copy of it is run.
        lengths: as for `count`; sorted before.
        packed: whether it runs on the packed batch, or on the padded one.

    Raises:
        ValueError: a length is not valid.
    """
    layout = Layout(lengths)
    rnn = copy.deepcopy(rnn)
    rnn.flatten_parameters()  # on CUDA a copy's weights lie apart, and cuDNN would complain
    weight = next(rnn.parameters())
    sizes = torch.tensor(layout.batch_sizes.tolist())
    cells = (layout.max_len, layout.batch_size)
    shape = (layout.n_valid,) if packed else cells[::-1] if rnn.batch_first else cells

    def run(x: Tensor) -> Tensor:
        output: Any = rnn(PackedSequence(x, sizes) if packed else x)[0]
        return output.data if packed else output  # type: ignore[no-any-return]

    kind = f"{'packed' if packed else 'padded'} {type(rnn).__name__}"
    return _counted(kind, run, torch.zeros(*shape, rnn.input_size, dtype=weight.dtype, device=weight.device))


def _useful(steps: Sequence[Step]) -> dict[int, int]:
    """By the number of a node in a chain of copies, the bytes of the one slice that it is there for.

    A `CopySlices` takes the gradient of its slice out of a copy of the whole; the `SliceBackward` below it puts that
    into a tensor of zeros; where these meet they are added up, though no two of them overlap.
    """
    useful: dict[int, int] = {}
    for i, step in enumerate(steps):
        if step.name == "CopySlices":
            here: int | None = i
            taken = sum(operator.bytes for operator in step.operators if operator.name == "clone")
            while taken and here is not None and steps[here].next:
                if steps[here].operators:
                    useful[here] = min(taken, sum(operator.bytes for operator in steps[here].operators))
                here = steps[here].next[-1]
            if taken and here is not None and steps[here].operators:
                useful[here] = 0
    return useful


def _counted(name: str, call: Callable[[Tensor], Tensor], x: Tensor) -> Counted:
    x = x.detach().requires_grad_()
    output, counting, kernels = observe(lambda counting: call(x), x.device)
    forward = Tally(tuple(operator for operator, _ in counting.calls), kernels)
    gradient = torch.zeros_like(output)
    steps, operators, kernels = backward(output, gradient)
    return Counted(name, forward, Tally(operators, kernels), gradient.nbytes, steps)


def _table(*counted: Counted) -> list[str]:
    rows = [["", "kernels", "nodes", "written"]]
    for one in counted:
        back = one.backward
        rows.append([one.name, f"{one.forward.kernels:,}", "", size(one.forward.bytes)])
        rows.append([f"{one.name}, backward", f"{back.kernels:,}", f"{one.nodes:,}", size(back.bytes)])
    return table(rows, "<24>9>8>10")
