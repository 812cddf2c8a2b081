"""Shows FLOPs in a panel: choose lengths and an RNN, and see how many FLOPs it needs."""

from __future__ import annotations

from collections.abc import Sequence

from packviz.core.spec import GATES, Spec
from packviz.count.flops import flops
from packviz.draw.picture import Picture
from packviz.draw.sheet import Sheet, stack
from packviz.draw.text import percent
from packviz.panels.panel import Panel, View, checkbox, dropdown, row, set_visible, slider
from packviz.panels.picker import lengths_field, read


class CostPanel(Panel):
    """The FLOPs of an RNN on a batch, padded and packed.

    They are shown in total, at each time step, and where they arise.

    Attributes:
        typed: the text field for the lengths.
        mode: the drop-down list for the kind of RNN.
        input_size: the slider for the input size of the RNN.
        hidden_size: the slider for the hidden size of the RNN.
        num_layers: the slider for the number of layers.
        bidirectional: the checkbox for an RNN that runs in both directions.
        proj_size: the slider for the size of an LSTM's projection; 0 means no projection.
        input_grad: the checkbox for a backward pass that also computes the gradient of `x`.
        shown: the `FlopCount` in the picture.
    """

    def __init__(
        self,
        lengths: Sequence[int] = (9, 8, 6, 4, 3, 2),
        mode: str = "LSTM",
        input_size: int = 3,
        hidden_size: int = 7,
    ) -> None:
        """Makes the panel with these lengths, and with an RNN of one layer in one direction.

        Raises:
            ValueError: a length or a size is not valid, or `mode` is unknown.
        """
        flops(Spec(mode, input_size, hidden_size), lengths)  # raises an error for wrong arguments
        self.typed = lengths_field(lengths)
        self.mode = dropdown("mode", mode, list(GATES), "RNN", width="200px")
        self.input_size = slider("input_size", input_size, 1, max(128, input_size))
        self.hidden_size = slider("hidden_size", hidden_size, 1, max(128, hidden_size))
        self.num_layers = slider("num_layers", 1, 1, 4)
        self.proj_size = slider("proj_size", 0, 0, max(hidden_size - 1, 1))
        self.bidirectional = checkbox("bidirectional")
        self.input_grad = checkbox("x needs a gradient")
        choices = row(self.typed, self.mode, self.bidirectional, self.input_grad)
        sizes = row(self.input_size, self.hidden_size)
        super().__init__(choices, sizes, row(self.num_layers, self.proj_size))

    def view(self) -> View:
        """Returns a view of the RNN's FLOPs on the batch."""
        hidden_size = self.hidden_size.value
        # Moves the slider back if it is beyond the range.
        self.proj_size.max = max(hidden_size - 1, 1)
        mode = self.mode.value
        layers = self.num_layers.value
        bidirectional = self.bidirectional.value
        allows_projection = mode == "LSTM" and hidden_size > 1
        proj_size = self.proj_size.value if allows_projection else 0
        set_visible(self.proj_size, allows_projection)
        spec = Spec(mode, self.input_size.value, hidden_size, layers, bidirectional, proj_size)
        layout = read(self.typed.value)
        batch = Picture(layout)
        self.shown = flop_count = flops(spec, layout, input_grad=self.input_grad.value)
        saved = percent(flop_count.saved, flop_count.padded)

        def draw(theme: str) -> Sheet:
            drawings = [*flop_count.drawings(theme), batch.sheet(theme)]
            return stack(flop_count.headline().partition(". ")[0], drawings, theme)

        work_text = f"{flop_count.padded:,} GEMM FLOPs padded and {flop_count.packed:,} packed"
        summary = f"A forward pass takes {work_text}, {saved} less."
        return View(draw, summary, lambda: f"{flop_count.to_text()}\n\n{batch.to_text()}")
