"""Hidden states, padded against packed: what an RNN reads on into, and what that changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from packviz.core.layout import Layout
from packviz.draw import grids
from packviz.draw.sheet import Sheet, stack
from packviz.explorers.lengths import LengthsField
from packviz.explorers.panel import Panel, View, dropdown, row, show, slider, tick

if TYPE_CHECKING:
    from packviz.check.states import StatesComparison

HIDDEN, INPUT = 4, 3
MOST_CELLS = 2048
WHOLE = "distance from packed"
PADDING = ZEROS, NOISE, NAN = "zeros", "noise", "NaN"
CELLS = ("LSTM", "GRU", "RNN")


class StatesExplorer(Panel):
    """A small RNN of your choice, run padded and packed: how far its hidden states come apart, and where.

    Attributes:
        typed: the lengths.
        padding: what the padding holds: zeros, noise or NaN.
        cell: LSTM, GRU or RNN.
        layers: how many.
        bidirectional: whether it reads the sequences backwards as well.
        direction: whose hidden state is drawn.
        number: what is drawn of the hidden state: its distance from the packed one, or one of its units.
        seed: chooses the weights and the data.
        result: the `StatesComparison` in the picture.
    """

    result: StatesComparison

    def __init__(
        self,
        lengths: Sequence[int] = (8, 5, 3),
        *,
        padding: str = ZEROS,
        cell: str = "LSTM",
        layers: int = 1,
        bidirectional: bool = False,
        seed: int = 0,
    ) -> None:
        """Starts with these lengths and this RNN.

        Raises:
            ValueError: a length is not valid, or a choice is not among those of the controls.
        """
        self.typed = LengthsField(lengths)
        self.padding = dropdown("padding", padding, PADDING)
        self.cell = dropdown("cell", cell, CELLS)
        self.layers = slider("layers", layers, 1, 3)
        self.bidirectional = tick("bidirectional", bidirectional)
        self.direction = dropdown("direction", "forward", ["forward", "reverse"])
        self.number = dropdown("draw", WHOLE, [WHOLE, *(f"unit {i}" for i in range(HIDDEN))])
        self.seed = slider("seed", seed, 0, 99)
        super().__init__(
            row(self.typed, self.padding, self.cell),
            row(self.layers, self.seed, self.bidirectional),
            row(self.number, self.direction),
        )

    def view(self) -> View:
        """The picture of what the controls say."""
        from packviz.check.trajectories import trajectory  # noqa: PLC0415 - torch

        layout = self.typed.read()
        if layout.n_cells > MOST_CELLS:
            most = f"the panel runs its RNN at every change and takes at most {MOST_CELLS:,}"
            raise ValueError(f"these lengths make {layout.n_cells:,} cells; {most}: for larger batches call pv.compare")
        self.result = result = self._both(layout)
        show(self.padding, layout.n_padding > 0)
        show(self.direction, self.bidirectional.value)
        direction = self.direction.value if self.bidirectional.value else "forward"
        path = trajectory(result, direction, self.number.index - 1 if self.number.index else None)

        def draw(theme: str) -> Sheet:
            where = grids.draw(result.panels(), "Where they differ:", theme)
            return stack(str(result.rnn), [path.sheet(theme), where], theme)

        return View(draw, result.verdict, lambda: f"{result.to_text()}\n\n{path.to_text()}")

    def _both(self, layout: Layout) -> Any:
        import torch  # noqa: PLC0415 - a second or two, paid when the first panel opens

        from packviz.check.states import compare  # noqa: PLC0415 - it stands on torch

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed.value)
            # In double precision, so that what is stored of a picture does not depend on the processor.
            x = torch.randn(layout.batch_size, layout.max_len, INPUT, dtype=torch.float64)
            options = {"bidirectional": self.bidirectional.value, "batch_first": True}
            rnn = getattr(torch.nn, self.cell.value)(INPUT, HIDDEN, self.layers.value, **options)
        if self.padding.value != NOISE:
            x[~torch.tensor(layout.mask)] = float("nan") if self.padding.value == NAN else 0.0
        return compare(rnn.double(), x, layout.lengths, gradients=False, tolerance=1e-5)
