"""Counts what packing, padding and RNNs make torch do, forward and backward.

The counts are taken while torch runs, and never derived from a formula. `packviz.count.operators`
defines what counts. The counts depend on the version of torch, because releases may use different
algorithms. On a CPU, they do not depend on the machine.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from packviz.core.layout import Layout
from packviz.core.padded import PaddedShape
from packviz.core.util import HasText
from packviz.count.operators import Operator, autograd_nodes, observe
from packviz.draw.quantities import whole_percent
from packviz.draw.table import HasTable, Table
from packviz.draw.text import size as size
from packviz.draw.text import table
from packviz.ops import original

_FORMULA_NODE_NAME = re.compile("PackPadded|PadPacked")


@dataclass(frozen=True)
class PassCounts(HasTable):
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
        groups: dict[str, list[Operator]] = {}
        for operator in self.operators:
            groups.setdefault(operator.name, []).append(operator)
        operator_sums = []
        for name, group in groups.items():
            _, *counts = zip(*group, strict=True)
            operator_sums.append(Operator(name, *map(sum, counts)))
        return sorted(operator_sums, key=lambda operator: -operator.bytes)

    @property
    def table(self) -> Table:
        """A table with a row for each operator name, sorted by bytes, largest first."""
        rows = []
        for name, calls, kernels, n_bytes in self.by_name():
            share = whole_percent(n_bytes / self.bytes)
            rows.append([name, f"{calls:,}", f"{kernels:,}", size(n_bytes), share])
        return Table(
            rows,
            ["operator", "calls", "kernels", "written", "of all"],
            f"{self.kernels:,} kernels write {size(self.bytes)}",
        )


@dataclass(frozen=True)
class OperationCounts(HasText):
    """The counts of one operation, forward and backward.

    Attributes:
        name: the name of the operation.
        forward: the counts of its forward pass.
        backward: the counts of its backward pass, from a gradient of its output to the gradient of
            its input.
        gradient: the size of the output's gradient in bytes.
        node_names: the names of the autograd nodes that the forward pass recorded. Some of the
            nodes collect the gradients of the input and, for an RNN, of the weights.
    """

    name: str
    forward: PassCounts
    backward: PassCounts
    gradient: int
    node_names: tuple[str, ...]

    @property
    def nodes(self) -> int:
        """The number of autograd nodes."""
        return len(self.node_names)

    @property
    def formula(self) -> str | None:
        """The name of the node with torch's derivative formula for the whole operation.

        It is `None` if there is no such formula.
        """
        return next(filter(_FORMULA_NODE_NAME.search, self.node_names), None)

    @property
    def verdict(self) -> str:
        """A sentence that explains where the backward pass comes from."""
        nodes = f"{self.nodes:,} autograd nodes"
        if self.formula:
            return (
                f"torch has a derivative formula for {self.name}, {self.formula}, so there are only"
                f" {nodes}."
            )
        return (
            f"torch has no derivative formula for {self.name}, so autograd has recorded its parts"
            f" in {nodes}."
        )

    def to_text(self) -> str:
        """Returns a table with a line for each pass."""
        return "\n".join(_table_lines(self))


@dataclass(frozen=True)
class PackPadCounts(HasText):
    """The counts of packing a batch and padding it again.

    Attributes:
        layout: the layout of the batch.
        features: number of features of each cell.
        pack: the counts of `pack_padded_sequence`.
        pad: the counts of `pad_packed_sequence`.
    """

    layout: Layout
    features: int
    pack: OperationCounts
    pad: OperationCounts

    def to_text(self) -> str:
        """Returns a description of the batch, and a table with a line for each pass."""
        layout = self.layout
        distinct = np.unique(layout.lengths).size
        batch_text = f"{layout.batch_size} sequences of {layout.max_len} time steps"
        batch_text += f", {self.features} features"
        return "\n".join(
            [f"{batch_text}; distinct lengths: {distinct}", *_table_lines(self.pack, self.pad)]
        )


def count(
    lengths: object,
    features: int = 32,
    *,
    enforce_sorted: bool = True,
    device: str | torch.device = "cpu",
) -> PackPadCounts:
    """Counts what torch does to pack a float32 batch and pad it again, forward and backward.

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
            "enforce_sorted is False, but tensors on the meta device have no data to sort by;"
            " pass device='cpu'"
        )
    n = torch.tensor(layout.lengths.tolist())
    x = torch.zeros(layout.max_len, layout.batch_size, features, device=device)
    pack = partial(original.pack_padded_sequence, lengths=n, enforce_sorted=enforce_sorted)
    packed = pack(x)

    def pad(data: Tensor) -> Tensor:
        repacked = packed._replace(data=data)
        return original.pad_packed_sequence(repacked, total_length=layout.max_len)[0]

    pack_counts = count_operation("pack", lambda x: pack(x).data, x)
    return PackPadCounts(layout, features, pack_counts, count_operation("pad", pad, packed.data))


def count_rnn(rnn: nn.RNNBase, lengths: object, *, packed: bool = True) -> OperationCounts:
    """Counts what an RNN does on a batch of zeros, forward and backward.

    Packing and padding are not counted.

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
    batch_sizes = torch.tensor(layout.batch_sizes.tolist())
    padded_shape = PaddedShape(layout.batch_size, layout.max_len, rnn.batch_first)
    shape = (layout.n_real, rnn.input_size) if packed else padded_shape.shape(rnn.input_size)
    x = torch.zeros(shape, dtype=weight.dtype, device=weight.device)

    def run_rnn(x: Tensor) -> Tensor:
        output: Tensor | PackedSequence = rnn(PackedSequence(x, batch_sizes) if packed else x)[0]
        return output if isinstance(output, Tensor) else output.data

    kind = "packed" if packed else "padded"
    return count_operation(f"{kind} {type(rnn).__name__}", run_rnn, x)


def count_operation(name: str, call: Callable[[Tensor], Tensor], x: Tensor) -> OperationCounts:
    """Counts what a function of `x` does, forward and backward, under the name of the operation."""
    x = x.detach().requires_grad_()
    output, operators, kernels = observe(lambda: call(x), x.device)
    forward = PassCounts(operators, kernels)
    gradient = torch.zeros_like(output)
    node_names = tuple(re.sub(r".*::|\d+$", "", node.name()) for node in autograd_nodes(output))
    with torch.autograd.set_multithreading_enabled(False):
        differentiate = partial(torch.autograd.backward, output, gradient)
        _, operators, kernels = observe(differentiate, x.device)
    return OperationCounts(
        name, forward, PassCounts(operators, kernels), gradient.nbytes, node_names
    )


def _table_lines(*counts: OperationCounts) -> list[str]:
    rows = [["", "kernels", "nodes", "written"]]
    for operation in counts:
        name = operation.name
        for label, nodes, pass_counts in (
            (name, "", operation.forward),
            (f"{name}, backward", f"{operation.nodes:,}", operation.backward),
        ):
            rows.append([label, f"{pass_counts.kernels:,}", nodes, size(pass_counts.bytes)])
    return table(rows, "<24>9>8>10")
