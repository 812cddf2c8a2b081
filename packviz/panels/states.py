"""Shows hidden states in a panel: see how reading the padding changes the states of an RNN."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from packviz.core.layout import Layout
from packviz.draw import differences
from packviz.draw.sheet import Sheet, stack
from packviz.panels.panel import Panel, View, dropdown, row, show, slider, tick
from packviz.panels.picker import MOST_CELLS, lengths_field, read

if TYPE_CHECKING:
    from packviz.check.compare import StatesComparison

HIDDEN = 4
INPUT = 3
WHOLE = "distance from packed"
ZEROS = "zeros"
NOISE = "noise"
NAN = "NaN"
CELLS = ("LSTM", "GRU", "RNN")


class StatesPanel(Panel):
    """The hidden states of a small RNN on padded and on packed data, with their differences.

    Attributes:
        typed: the text field for the lengths.
        padding: the drop-down list for the contents of the padding: zeros, noise or NaN.
        cell: the drop-down list for the kind of RNN: LSTM, GRU or RNN.
        layers: the slider for the number of layers.
        bidirectional: the checkbox for an RNN that also reads the sequences backwards.
        direction: the drop-down list for the direction whose hidden state is drawn.
        number: the drop-down list for what to draw: the distance between the padded and the packed
            hidden state, or one unit of both states.
        seed: the slider for the seed of the weights and the data.
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
        """Makes the panel.

        Args:
            lengths: your lengths, whose padded batch may have at most 2,048 cells.
            padding: the contents of the padding, `"zeros"`, `"noise"` or `"NaN"`.
            cell: the kind of RNN, `"LSTM"`, `"GRU"` or `"RNN"`.
            layers: number of layers, up to 3.
            bidirectional: whether the RNN also reads the sequences backwards.
            seed: the seed of the weights and the data, up to 99.

        Raises:
            ValueError: a length is not valid, a number is out of its range, or a choice is unknown.
        """
        self.typed = lengths_field(lengths)
        self.padding = dropdown("padding", padding, (ZEROS, NOISE, NAN))
        self.cell = dropdown("cell", cell, CELLS)
        self.layers = slider("layers", layers, 1, 3)
        self.bidirectional = tick("bidirectional", bidirectional)
        self.direction = dropdown("direction", "forward", ["forward", "reverse"])
        units = [f"unit {i}" for i in range(HIDDEN)]
        self.number = dropdown("draw", WHOLE, [WHOLE, *units])
        self.seed = slider("seed", seed, 0, 99)
        data = row(self.typed, self.padding, self.cell)
        rnn = row(self.layers, self.seed, self.bidirectional)
        super().__init__(data, rnn, row(self.number, self.direction))

    def view(self) -> View:
        """Returns a view of the hidden states over time, and of where the results differ."""
        from packviz.check.trajectories import trajectory  # noqa: PLC0415 - torch loads slowly

        layout = read(self.typed.value, MOST_CELLS)
        self.result = result = self._both(layout)
        show(self.padding, layout.n_padding > 0)
        show(self.direction, self.bidirectional.value)
        direction = self.direction.value if self.bidirectional.value else "forward"
        is_whole = self.number.value == WHOLE
        unit = None if is_whole else self.number.index - 1
        path = trajectory(result, direction, unit)

        def draw(theme: str) -> Sheet:
            where = differences.draw(result.panels(), "Where padded and packed differ:", theme)
            drawings = [path.sheet(theme), where]
            return stack(str(result.rnn), drawings, theme)

        return View(draw, result.verdict, lambda: f"{result.to_text()}\n\n{path.to_text()}")

    def _both(self, layout: Layout) -> StatesComparison:
        import torch  # noqa: PLC0415 - torch loads slowly

        from packviz.check.compare import compare  # noqa: PLC0415 - torch loads slowly

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed.value)
            # In double precision, stored pictures do not depend on the processor.
            shape = (*layout.mask.shape, INPUT)
            x = torch.randn(shape, dtype=torch.float64)
            make = getattr(torch.nn, self.cell.value)
            both_ways = self.bidirectional.value
            rnn = make(INPUT, HIDDEN, self.layers.value, batch_first=True, bidirectional=both_ways)
        fillings = {ZEROS: 0.0, NAN: math.nan}
        if self.padding.value in fillings:
            x[~torch.tensor(layout.mask)] = fillings[self.padding.value]
        return compare(rnn.double(), x, layout.lengths, gradients=False, tolerance=1e-5)
