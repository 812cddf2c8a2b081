"""How many floating-point operations an RNN spends on a batch, padded and packed: counted from lengths, nothing is run.

Conventions:

* **GEMM FLOPs** are those of the matrix products: `2 · m · n · k` for `(m, k) · (k, n)`, one multiplication and one
  addition for each of the `k` terms. `torch.utils.flop_counter.FlopCounterMode` counts the same on a real run, as long
  as no fused kernel hides the products from it.
* **Element-wise FLOPs** are apart: one for each addition, subtraction, multiplication, sigmoid, tanh or relu of one
  number, in the formulas as ATen computes them (see `Spec.elementwise_per_cell`). Forward pass only.
* **Backward** is the GEMMs of the gradients: each product of the forward pass has one for its weight and one for its
  input. Two are not computed and not counted: the gradient of `x`, unless `input_grad`, and that of the initial state,
  which is taken to need none.

A FLOP is not a unit of time: what a machine makes of these numbers is measured by `packviz.bench`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from packviz.core.layout import IntArray, Layout, frozen
from packviz.core.spec import Spec
from packviz.draw import bars, text
from packviz.draw.drawn import Drawn
from packviz.draw.sheet import Sheet, stack


@dataclass(frozen=True)
class Both:
    """FLOPs padded and packed, one number for each time step or sequence.

    Attributes:
        padded: `(T,)` or `(B,)`.
        packed: the same shape.
    """

    padded: IntArray
    packed: IntArray

    def __post_init__(self) -> None:
        frozen(self.padded)
        frozen(self.packed)

    @property
    def saved(self) -> IntArray:
        """What packing leaves out."""
        return self.padded - self.packed

    def __add__(self, other: Both) -> Both:
        return Both(self.padded + other.padded, self.packed + other.packed)


@dataclass(frozen=True)
class Work:
    """The FLOPs of one kind on one batch.

    Attributes:
        per_step: for each of the `T` time steps of the padded batch.
        per_sequence: for each of the `B` sequences, in the caller's order.
    """

    per_step: Both
    per_sequence: Both

    @property
    def padded(self) -> int:
        """FLOPs of the padded batch."""
        return sum(self.per_sequence.padded.tolist())

    @property
    def packed(self) -> int:
        """FLOPs of the packed batch."""
        return sum(self.per_sequence.packed.tolist())

    @property
    def saved(self) -> int:
        """FLOPs that packing leaves out."""
        return self.padded - self.packed

    def __add__(self, other: Work) -> Work:
        return Work(self.per_step + other.per_step, self.per_sequence + other.per_sequence)


@dataclass(frozen=True, repr=False)
class Ledger(Drawn):
    """The FLOPs of an RNN on a batch, padded and packed. `padded`, `packed` and so on are GEMM FLOPs, forward.

    Attributes:
        spec: the RNN.
        layout: the batch.
        input_grad: whether `backward` computes the gradient of `x`.
    """

    spec: Spec
    layout: Layout
    input_grad: bool = False

    @property
    def padded(self) -> int:
        """GEMM FLOPs of a forward pass over the padded batch."""
        return self.forward.padded

    @property
    def packed(self) -> int:
        """GEMM FLOPs of a forward pass over the packed batch."""
        return self.forward.packed

    @property
    def saved(self) -> int:
        """`padded - packed`."""
        return self.forward.saved

    @property
    def per_step(self) -> Both:
        """`(T,)` GEMM FLOPs of a forward pass at each time step."""
        return self.forward.per_step

    @property
    def per_sequence(self) -> Both:
        """`(B,)` GEMM FLOPs of a forward pass for each sequence."""
        return self.forward.per_sequence

    @cached_property
    def forward(self) -> Work:
        """GEMM FLOPs of a forward pass."""
        return self._cells(self.spec.gemm_per_cell)

    @cached_property
    def elementwise(self) -> Work:
        """Element-wise FLOPs of a forward pass."""
        return self._cells(sum(self.spec.elementwise_per_cell.values()))

    @cached_property
    def backward(self) -> Work:
        """GEMM FLOPs of a backward pass that computes the gradient of every weight."""
        spec = self.spec
        gradients = 2 * spec.gemm_per_cell
        if not self.input_grad:
            gradients -= spec.directions * spec.products[0][0]
        # The first step of each layer and direction reads the initial state, which needs no gradient.
        first = sum(state for _, state, _ in spec.products)
        return self._cells(gradients) + self._first_steps(-first)

    @cached_property
    def training(self) -> Work:
        """GEMM FLOPs of a forward and a backward pass."""
        return self.forward + self.backward

    def to_text(self) -> str:
        """The ledger as a table."""
        rows = [["GEMM FLOPs", "padded", "packed", "saved", ""]]
        for name, work in self.rows().items():
            counts = [f"{n:,}" for n in (work.padded, work.packed, work.saved)]
            rows.append([name, *counts, text.percent(work.saved, work.padded)])
        steps, sequences = self.per_step, self.per_sequence
        return "\n".join(
            [
                self.headline(),
                "",
                *text.table(rows),
                "",
                f"forward, per time step: padded {steps.padded[0]:,} at each; packed {text.numbers(steps.packed)}",
                f"forward, per sequence:  padded {sequences.padded[0]:,} for each;"
                f" packed {text.numbers(sequences.packed)}",
            ]
        )

    def sheet(self, theme: str) -> Sheet:
        """The ledger as bars: each count, and each time step of a forward pass."""
        return stack(self.headline(), self.drawings(theme), theme)

    def headline(self) -> str:
        """The RNN and the batch in one sentence."""
        batch = text.summary(self.layout).split(" (")[0]
        return f"{self.spec}: {text.count(self.spec.gemm_per_cell, 'GEMM FLOP')} per cell. {batch}."

    def rows(self) -> dict[str, Work]:
        """The lines of the ledger by name. The last is not GEMM FLOPs, and no part of the others."""
        gradient = " (and x)" if self.input_grad else ""
        return {
            "forward": self.forward,
            f"backward{gradient}": self.backward,
            "forward + backward": self.training,
            "element-wise, forward": self.elementwise,
        }

    def drawings(self, theme: str) -> list[Sheet]:
        """The parts of the picture."""
        totals = {name: (work.packed, work.saved) for name, work in self.rows().items()}
        both = self.per_step
        share = text.percent(self.forward.saved, self.forward.padded)
        title, by_step = f"Packing leaves out {share} of the forward FLOPs", "GEMM FLOPs at each time step, forward"
        return [
            bars.totals(title, totals, theme),
            bars.steps(by_step, both.packed, both.padded, theme),
        ]

    def _cells(self, each: int) -> Work:
        """The same number of FLOPs for each cell that is computed."""
        layout = self.layout
        batch, steps = layout.batch_size, layout.max_len
        running = np.zeros(steps, dtype=np.int64)
        running[: layout.batch_sizes.size] = layout.batch_sizes
        return Work(
            Both(np.full(steps, batch * each), running * each),
            Both(np.full(batch, steps * each), layout.lengths * each),
        )

    def _first_steps(self, each: int) -> Work:
        """FLOPs for each sequence that reads the initial state at the very first step of a direction.

        Packed, a reverse direction starts with the longest sequences; those that join later are joined to a state
        that does need a gradient, and ATen computes it for all rows alike.
        """
        layout = self.layout
        last = layout.batch_sizes.size - 1
        steps = np.zeros((2, layout.max_len), dtype=np.int64)
        steps[:, 0] = layout.batch_size * each
        sequences = np.full((2, layout.batch_size), each)
        if self.spec.bidirectional:
            longest = layout.lengths == last + 1
            steps[0, -1] += layout.batch_size * each
            steps[1, last] += int(longest.sum()) * each
            sequences[0] += each
            sequences[1] += each * longest
        return Work(Both(*steps), Both(*sequences))


def flops(rnn: Any, lengths: Any, *, input_grad: bool = False) -> Ledger:
    """Counts the FLOPs of an RNN on a batch, padded and packed.

    Source of the formulas: FLOPs of a product `(m, k) · (k, n)` are `2 · m · n · k`; per cell and direction that is
    `2 · G · H · (I + H)` with `G` gates (`2 · G · H · (I + P) + 2 · H · P` with a projection), where deeper layers read
    `I = D · H` (or `D · P`) inputs. The conventions are those of `packviz.count.flops`.

    Args:
        rnn: an `nn.RNN`, `nn.GRU` or `nn.LSTM`, or a `Spec`.
        lengths: `(B,)` the real time steps of each sequence; or a `Layout`, whose `max_len` is the padded width.
        input_grad: whether the backward pass also computes the gradient of `x`, as it must when layers with parameters
            (an embedding, say) come before the RNN.

    Returns:
        A `Ledger`: `.padded`, `.packed`, `.saved`; `.per_step`, `.per_sequence`; `.forward`, `.backward`, `.training`,
        and `.elementwise`.

    Raises:
        TypeError: `rnn` is not an RNN.
        ValueError: the lengths are not valid.
    """
    layout = lengths if isinstance(lengths, Layout) else Layout(lengths)
    return Ledger(Spec.of(rnn), layout, input_grad)
