"""Counts the floating-point operations of an RNN on a batch without running it.

The counts follow these conventions:

* **GEMM FLOPs** are spent on matrix products. A product `(m, k) · (k, n)` takes `2 · m · n · k`
  FLOPs, because each entry of the result is a sum of `k` terms, each of which takes a
  multiplication and an addition. `torch.utils.flop_counter.FlopCounterMode` counts the same number
  in a real run, unless a fused kernel hides the products from it.
* **Element-wise FLOPs** are counted separately, and only in the forward pass: one for each
  addition, subtraction, multiplication, sigmoid, tanh or relu of one number, in the formulas that
  ATen computes (see `Spec.elementwise_per_cell`).
* **Backward FLOPs** are the GEMM FLOPs of the gradients. For each product of the forward pass,
  there are two in the backward pass, one for the gradient of the weight and one for the gradient of
  the input. Two gradients are neither
  computed nor counted: the gradient of `x`, unless `input_grad` is set, and the gradient of the
  initial state.

A FLOP is not a unit of time. `packviz.measure` measures how long a machine takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from packviz.core.layout import IntArray, Layout, make_read_only
from packviz.core.numbers import HasNumbers
from packviz.core.spec import Spec
from packviz.draw import bars, text
from packviz.draw.drawing import Drawing
from packviz.draw.sheet import Sheet, stack
from packviz.draw.text import percent, table, with_noun

if TYPE_CHECKING:
    from torch import nn

Count = TypeVar("Count", int, IntArray)


@dataclass(frozen=True)
class PaddedPackedFlops(Generic[Count]):
    """FLOPs of one kind, padded and packed.

    Attributes:
        padded: the FLOPs of the padded batch, or an array with the FLOPs of each time step or
            sequence.
        packed: the FLOPs of the packed batch, in the same form.
        per_step: a `PaddedPackedFlops` with `(T,)` FLOPs, one number for each time step of the
            padded batch. It is `None` if the count is a sum over several batches, or if there is no
            time step.
        per_sequence: a `PaddedPackedFlops` with `(B,)` FLOPs, one number for each sequence, in the
            caller's order. It is `None` if `per_step` is `None`.
    """

    padded: Count
    packed: Count
    per_step: PaddedPackedFlops[IntArray] | None = None
    per_sequence: PaddedPackedFlops[IntArray] | None = None

    @property
    def saved(self) -> Count:
        """The FLOPs that packing leaves out: `padded - packed`."""
        return self.padded - self.packed

    @property
    def ratio(self) -> float | npt.NDArray[np.float64]:
        """The ratio `packed / padded`."""
        return self.packed / np.maximum(self.padded, 1)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class FlopCount(Drawing, HasNumbers):
    """The FLOPs of an RNN on a batch, padded and packed.

    They may be sums over several batches, such as those of an epoch.

    Attributes:
        spec: the sizes of the RNN.
        layouts: the layout of each batch.
        input_grad: whether `backward` includes the gradient of `x`.
    """

    spec: Spec
    layouts: tuple[Layout, ...]
    input_grad: bool = False

    @property
    def layout(self) -> Layout:
        """The layout of the batch, or of the first one if there are several batches."""
        return self.layouts[0]

    @property
    def padded(self) -> int:
        """GEMM FLOPs of a forward pass over the padded batches."""
        return self.forward.padded

    @property
    def packed(self) -> int:
        """GEMM FLOPs of a forward pass over the packed batches."""
        return self.forward.packed

    @property
    def saved(self) -> int:
        """GEMM FLOPs that packing leaves out of a forward pass: `padded - packed`."""
        return self.forward.saved

    @property
    def ratio(self) -> float:
        """The ratio `packed / padded` of the sums over all batches."""
        return float(self.forward.ratio)

    @property
    def per_step(self) -> PaddedPackedFlops[IntArray] | None:
        """The GEMM FLOPs of a forward pass by time step, in arrays `(T,)`.

        It is `None` for several batches.
        """
        return self.forward.per_step

    @property
    def per_sequence(self) -> PaddedPackedFlops[IntArray] | None:
        """The GEMM FLOPs of a forward pass by sequence, in arrays `(B,)`.

        It is `None` for several batches.
        """
        return self.forward.per_sequence

    @cached_property
    def forward(self) -> PaddedPackedFlops[int]:
        """GEMM FLOPs of a forward pass."""
        return self._count_flops(self.spec.gemm_per_cell)

    @cached_property
    def elementwise(self) -> PaddedPackedFlops[int]:
        """Element-wise FLOPs of a forward pass."""
        return self._count_flops(self.spec.elementwise_per_cell)

    @cached_property
    def backward(self) -> PaddedPackedFlops[int]:
        """GEMM FLOPs of a backward pass that computes the gradient of every weight."""
        return self._count_flops(*self._backward_flops)

    @cached_property
    def training(self) -> PaddedPackedFlops[int]:
        """GEMM FLOPs of a forward and a backward pass."""
        cell_flops, first_state_flops = self._backward_flops
        return self._count_flops(self.spec.gemm_per_cell + cell_flops, first_state_flops)

    def rows(self) -> dict[str, PaddedPackedFlops[int]]:
        """Returns the rows of the table, by the name of each row.

        The last row counts element-wise FLOPs, and the other rows count GEMM FLOPs.
        """
        gradient = " (and x)" if self.input_grad else ""
        return {
            "forward": self.forward,
            f"backward{gradient}": self.backward,
            "forward + backward": self.training,
            "element-wise, forward": self.elementwise,
        }

    def headline(self) -> str:
        """Returns a line that describes the RNN and the batches on which it runs."""
        cell_flops_text = with_noun(self.spec.gemm_per_cell, "GEMM FLOP")
        batch_text = text.summary(self.layout).split(" (")[0]
        if len(self.layouts) > 1:
            cells = sum(layout.n_cells for layout in self.layouts)
            real = sum(layout.n_real for layout in self.layouts)
            batch_text = (
                f"{len(self.layouts):,} batches: {cells:,} cells, {real:,} real,"
                f" {cells - real:,} padding"
            )
        return f"{self.spec}: {cell_flops_text} per cell. {batch_text}."

    @property
    def summary(self) -> str:
        """The RNN, the batches and what packing saves, in a sentence."""
        share = percent(self.saved, self.padded)
        return f"{self.headline()} Packing leaves out {share} of the forward GEMM FLOPs."

    def numbers(self) -> list[dict[str, object]]:
        """Returns the rows of the table, with the columns `pass`, `padded`, `packed`, `saved`."""
        return [
            {"pass": name, "padded": row.padded, "packed": row.packed, "saved": row.saved}
            for name, row in self.rows().items()
        ]

    def to_text(self) -> str:
        """Returns the counts as a table.

        For a single batch, the FLOPs by time step and by sequence follow below the table.
        """
        rows = [["GEMM FLOPs", "padded", "packed", "saved", ""]]
        for name, row in self.rows().items():
            share = percent(row.saved, row.padded)
            rows.append([name, f"{row.padded:,}", f"{row.packed:,}", f"{row.saved:,}", share])
        lines = [self.headline(), "", *table(rows)]
        if steps := self.per_step:
            padded = f"padded {steps.padded[0]:,} at each"
            packed = f"packed {text.numbers(steps.packed)}"
            lines += ["", f"forward, per time step: {padded}; {packed}"]
        if sequences := self.per_sequence:
            padded = f"padded {sequences.padded[0]:,} for each"
            packed = f"packed {text.numbers(sequences.packed)}"
            lines.append(f"forward, per sequence:  {padded}; {packed}")
        return "\n".join(lines)

    def sheet(self, theme: str) -> Sheet:
        """Draws the counts as bars."""
        return stack(self.headline(), self.drawings(theme), theme)

    def drawings(self, theme: str) -> list[Sheet]:
        """Draws all counts and, for a single batch, each time step of a forward pass."""
        share = percent(self.saved, self.padded)
        packed_and_saved = {name: (row.packed, row.saved) for name, row in self.rows().items()}
        sheets = [
            bars.draw_saving_bars(
                f"Packing leaves out {share} of the forward FLOPs", packed_and_saved, theme
            )
        ]
        if steps := self.per_step:
            sheets.append(
                bars.draw_step_bars(
                    "GEMM FLOPs at each time step, forward", steps.packed, steps.padded, theme
                )
            )
        return sheets

    @property
    def _backward_flops(self) -> tuple[int, int]:
        """The FLOPs of a backward pass for each cell, and those (negative) for each first state."""
        spec = self.spec
        x_grad_flops = 0 if self.input_grad else spec.directions * spec.products[0][0]
        state_grad_flops = sum(state for _, state, _ in spec.products)
        return 2 * spec.gemm_per_cell - x_grad_flops, -state_grad_flops

    def _count_flops(self, cell_flops: int, first_state_flops: int = 0) -> PaddedPackedFlops[int]:
        """Counts FLOPs: cells take `cell_flops`, and first states add `first_state_flops`."""
        counts = [
            _count_layout_flops(layout, cell_flops, first_state_flops, self.spec.bidirectional)
            for layout in self.layouts
        ]
        padded = sum(sum(sequence_flops.padded.tolist()) for _, sequence_flops in counts)
        packed = sum(sum(sequence_flops.packed.tolist()) for _, sequence_flops in counts)
        if len(counts) > 1 or not self.layout.max_len:
            return PaddedPackedFlops(padded, packed)
        return PaddedPackedFlops(padded, packed, *counts[0])


def _count_layout_flops(
    layout: Layout, cell_flops: int, first_state_flops: int, bidirectional: bool
) -> tuple[PaddedPackedFlops[IntArray], PaddedPackedFlops[IntArray]]:
    """Counts FLOPs as `FlopCount._count_flops` does, by time step and by sequence.

    In a packed batch, the reverse direction starts with the longest sequences. The initial states
    of sequences that join later are concatenated with a state that needs a gradient, so ATen
    computes the gradient of all rows.
    """
    batch = layout.batch_size
    longest = layout.batch_sizes.size
    # The cells of each time step, and the steps of each sequence, padded and packed.
    cell_counts = np.full((2, layout.max_len), batch)
    cell_counts[1] = np.pad(layout.batch_sizes, (0, layout.max_len - longest))
    lengths = np.stack([np.full(batch, layout.max_len), layout.lengths])
    step_flops = cell_counts * cell_flops
    step_flops[:, :1] += cell_counts[:, :1] * first_state_flops
    # Without steps, no state is read.
    sequence_flops = lengths * cell_flops + (lengths > 0) * first_state_flops
    if bidirectional:
        is_longest = lengths == np.array([[layout.max_len], [longest]]).clip(1)
        step_flops[0, -1:] += batch * first_state_flops
        step_flops[1, longest - 1 : longest] += is_longest[1].sum() * first_state_flops
        sequence_flops += is_longest * first_state_flops
    return PaddedPackedFlops(*make_read_only(step_flops)), PaddedPackedFlops(
        *make_read_only(sequence_flops)
    )


def flops(rnn: nn.RNNBase | Spec, lengths: object, *, input_grad: bool = False) -> FlopCount:
    """Counts the FLOPs of an RNN on a batch, padded and packed.

    A product `(m, k) · (k, n)` takes `2 · m · n · k` FLOPs. For one cell, layer and direction, the
    products take `2 · G · H · (I + H)` FLOPs with `G` gates, or `2 · G · H · (I + P) + 2 · H · P`
    FLOPs with a projection. Deeper layers have `I = D · H` inputs (`D · P` with a projection). The
    docstring of the module `packviz.count.flops` states the conventions.

    Args:
        rnn: an `nn.RNN`, `nn.GRU` or `nn.LSTM`, or a `Spec`.
        lengths: `(B,)` the number of real time steps of each sequence; a mask; or a `Layout`,
            whose `max_len` is the padded width. A list of such lengths or layouts describes several
            batches, such as those of an epoch.
        input_grad: whether the backward pass also computes the gradient of `x`, as it must if
            layers with parameters, such as an embedding, come before the RNN.

    Returns:
        A `FlopCount`, whose `.padded`, `.packed`, `.saved` and `.ratio` (packed / padded) belong to
        the forward pass. Its `.forward`, `.backward`, `.training` and `.elementwise` have the same
        four attributes. So do `.per_step` and `.per_sequence`, as arrays. For several batches,
        these two are `None`, and all other numbers are sums over the batches, so `.ratio` is the
        ratio of the sums, not the mean of the ratios.

    Raises:
        TypeError: `rnn` is not an RNN.
        ValueError: the lengths are not valid.

    Examples:
        >>> import packviz as pv
        >>> counted = pv.flops(pv.Spec("LSTM", 3, 7), [5, 3, 2])
        >>> counted.padded, counted.packed
        (8400, 5600)
    """
    batches = lengths if isinstance(lengths, (list, tuple)) else ()
    if not any(isinstance(batch, Layout) or np.ndim(batch) in (1, 2) for batch in batches):
        batches = (lengths,)
    return FlopCount(Spec.of(rnn), tuple(map(Layout, batches)), input_grad)
