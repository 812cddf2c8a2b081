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
from typing import Any, overload

import numpy as np

from packviz.core.layout import Layout, frozen
from packviz.core.spec import Spec
from packviz.draw import bars, text
from packviz.draw.drawing import Drawing
from packviz.draw.sheet import Sheet, stack


class _Compared:
    """What a count padded and a count packed have in common."""

    padded: Any
    packed: Any

    @property
    def saved(self) -> Any:
        """The FLOPs that packing leaves out: `padded - packed`."""
        return self.padded - self.packed

    @property
    def ratio(self) -> Any:
        """`packed / padded`."""
        return self.packed / self.padded


@dataclass(frozen=True)
class Both(_Compared):
    """FLOPs padded and packed: one number for several batches, or one for each time step or sequence of a batch.

    Attributes:
        padded: a number, `(T,)` or `(B,)`.
        packed: the same shape.
    """

    padded: Any
    packed: Any


@dataclass(frozen=True)
class Work(_Compared):
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


class _Counted(_Compared, Drawing):
    """Counts of all kinds as a table and as bars. `padded`, `packed` and so on are GEMM FLOPs of a forward pass."""

    spec: Any
    input_grad: Any
    forward: Any
    backward: Any
    training: Any
    elementwise: Any

    @property
    def padded(self) -> int:
        """GEMM FLOPs of a forward pass over the padded batch, or over all of them."""
        return int(self.forward.padded)

    @property
    def packed(self) -> int:
        """GEMM FLOPs of a forward pass over the packed batch, or over all of them."""
        return int(self.forward.packed)

    def rows(self) -> dict[str, Any]:
        """The rows of the table by name. The last one counts no GEMM FLOPs, and is no part of the others."""
        gradient = " (and x)" if self.input_grad else ""
        return {
            "forward": self.forward,
            f"backward{gradient}": self.backward,
            "forward + backward": self.training,
            "element-wise, forward": self.elementwise,
        }

    def to_text(self) -> str:
        """The counts as a table."""
        rows = [["GEMM FLOPs", "padded", "packed", "saved", ""]]
        for name, work in self.rows().items():
            counts = [f"{n:,}" for n in (work.padded, work.packed, work.saved)]
            rows.append([name, *counts, text.percent(work.saved, work.padded)])
        return "\n".join([self.headline(), "", *text.table(rows)])

    def sheet(self, theme: str) -> Sheet:
        """The counts as bars."""
        return stack(self.headline(), self.drawings(theme), theme)

    def headline(self) -> str:
        """The RNN and what it runs on, in one sentence."""
        each = text.count(self.spec.gemm_per_cell, "GEMM FLOP")
        return f"{self.spec}: {each} per cell. {self._batch()}."

    def _batch(self) -> str:
        raise NotImplementedError

    def drawings(self, theme: str) -> list[Sheet]:
        """The parts of the picture."""
        share = text.percent(self.forward.saved, self.forward.padded)
        totals = {name: (work.packed, work.saved) for name, work in self.rows().items()}
        return [bars.totals(f"Packing leaves out {share} of the forward FLOPs", totals, theme)]


@dataclass(frozen=True, repr=False)
class FlopCount(_Counted):
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
        return self._work(self.spec.gemm_per_cell)

    @cached_property
    def elementwise(self) -> Work:
        """Element-wise FLOPs of a forward pass."""
        return self._work(self.spec.elementwise_per_cell)

    @cached_property
    def backward(self) -> Work:
        """GEMM FLOPs of a backward pass that computes the gradient of every weight."""
        return self._work(*self._gradients)

    @cached_property
    def training(self) -> Work:
        """GEMM FLOPs of a forward and a backward pass."""
        each, first = self._gradients
        return self._work(self.spec.gemm_per_cell + each, first)

    def to_text(self) -> str:
        """The counts as a table, then the forward pass by time step and by sequence."""
        steps, sequences = self.per_step, self.per_sequence
        return "\n".join(
            [
                super().to_text(),
                "",
                f"forward, per time step: padded {steps.padded[0]:,} at each; packed {text.numbers(steps.packed)}",
                f"forward, per sequence:  padded {sequences.padded[0]:,} for each;"
                f" packed {text.numbers(sequences.packed)}",
            ]
        )

    def _batch(self) -> str:
        return text.summary(self.layout).split(" (")[0]

    def drawings(self, theme: str) -> list[Sheet]:
        """The parts of the picture: each count, and each time step of a forward pass."""
        both = self.per_step
        by_step = bars.steps("GEMM FLOPs at each time step, forward", both.packed, both.padded, theme)
        return [*super().drawings(theme), by_step]

    @property
    def _gradients(self) -> tuple[int, int]:
        """The FLOPs of a backward pass for each cell, and for each initial state, which needs no gradient."""
        spec = self.spec
        to_x = 0 if self.input_grad else spec.directions * spec.products[0][0]
        return 2 * spec.gemm_per_cell - to_x, -sum(state for _, state, _ in spec.products)

    def _work(self, each: int, first: int = 0) -> Work:
        """Returns the FLOPs if each computed cell takes so many, and each read of an initial state `first` more.

        Packed, a reverse direction starts with the longest sequences; those that join later are joined to a state
        that does need a gradient, and ATen computes it for all rows alike.
        """
        layout = self.layout
        batch, end = layout.batch_size, layout.batch_sizes.size
        steps = np.full((2, layout.max_len), batch * each)
        steps[1] = np.pad(layout.batch_sizes, (0, layout.max_len - end)) * each
        sequences = np.stack([np.full(batch, layout.max_len), layout.lengths]) * each + first
        steps[:, 0] += batch * first
        if self.spec.bidirectional:
            longest = layout.lengths == end
            steps[0, -1] += batch * first
            steps[1, end - 1] += longest.sum() * first
            sequences += np.stack([np.ones(batch, dtype=np.int64), longest]) * first
        return Work(Both(*frozen(steps)), Both(*frozen(sequences)))


@dataclass(frozen=True, repr=False)
class FlopCounts(_Counted):
    """The FLOPs of an RNN on several batches, such as an epoch. Every count is the sum over the batches.

    Attributes:
        batches: The counts of each batch.
    """

    batches: tuple[FlopCount, ...]

    def __post_init__(self) -> None:
        for name in ("spec", "input_grad"):
            object.__setattr__(self, name, getattr(self.batches[0], name))
        for name in ("forward", "backward", "training", "elementwise"):
            counts = [getattr(batch, name) for batch in self.batches]
            total = Both(sum(count.padded for count in counts), sum(count.packed for count in counts))
            object.__setattr__(self, name, total)

    def _batch(self) -> str:
        layouts = [batch.layout for batch in self.batches]
        cells, real = sum(layout.n_cells for layout in layouts), sum(layout.n_valid for layout in layouts)
        many = text.count(len(layouts), "batch", "batches")
        return f"{many}: {cells:,} cells, {real:,} real, {cells - real:,} padding"


@overload
def flops(rnn: Any, lengths: list[Layout], *, input_grad: bool = False) -> FlopCounts: ...
@overload
def flops(rnn: Any, lengths: Any, *, input_grad: bool = False) -> FlopCount: ...
def flops(rnn: Any, lengths: Any, *, input_grad: bool = False) -> FlopCount | FlopCounts:
    """Counts the FLOPs of an RNN on a batch, padded and packed.

    Source of the formulas: FLOPs of a product `(m, k) · (k, n)` are `2 · m · n · k`; per cell and direction that is
    `2 · G · H · (I + H)` with `G` gates (`2 · G · H · (I + P) + 2 · H · P` with a projection), where deeper layers read
    `I = D · H` (or `D · P`) inputs. The conventions are those of `packviz.count.flops`.

    Args:
        rnn: an `nn.RNN`, `nn.GRU` or `nn.LSTM`, or a `Spec`.
        lengths: `(B,)` the real time steps of each sequence; or a `Layout`, whose `max_len` is the padded width. A list
            of such lengths or layouts stands for several batches, such as those of an epoch.
        input_grad: whether the backward pass also computes the gradient of `x`, as it must when layers with parameters
            (an embedding, say) come before the RNN.

    Returns:
        A `FlopCount`: `.padded`, `.packed`, `.saved` and `.ratio`, which is packed / padded; `.per_step`,
        `.per_sequence`; `.forward`, `.backward`, `.training`, and `.elementwise`. For several batches a `FlopCounts`,
        whose numbers are sums over its `.batches`: its `.ratio` is that of the sums, not the mean of the ratios.

    Raises:
        TypeError: `rnn` is not an RNN.
        ValueError: the lengths are not valid.

    Examples:
        >>> import packviz as pv
        >>> counted = pv.flops(pv.Spec("LSTM", 3, 7), [5, 3, 2])
        >>> counted.padded, counted.packed
        (8400, 5600)
    """
    spec = Spec.of(rnn)
    if isinstance(lengths, (list, tuple)) and any(isinstance(one, Layout) or np.ndim(one) == 1 for one in lengths):
        return FlopCounts(tuple(FlopCount(spec, Layout(batch), input_grad) for batch in lengths))
    return FlopCount(spec, Layout(lengths), input_grad)
