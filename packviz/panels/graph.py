"""Shows the autograd graph in a panel: choose lengths, and see what the backward pass of packing or padding writes."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from packviz.core.lengths import spread
from packviz.draw import text
from packviz.draw.sheet import stack
from packviz.panels.panel import Panel, View, dropdown, row, slider

if TYPE_CHECKING:
    from packviz.count.profile import Counted, Profile

SEQUENCES, FEATURES, MOST_STEPS = 32, 8, 32
OPERATIONS = {"pad_packed_sequence": "pad", "pack_padded_sequence": "pack"}


class GraphPanel(Panel):
    """The autograd graph that torch records for a batch, and the bytes that its backward pass
    writes, counted live.

    Attributes:
        steps: the slider for `T`, the length of the longest sequence.
        distinct: the slider for the number of distinct lengths, which are spread from `T` down to
            1.
        operation: the drop-down list for the operation whose graph is drawn.
        counted: the counts in the picture.
    """

    counted: Counted

    def __init__(self, steps: int = 8, distinct: int = 3) -> None:
        """Makes the panel.

        Args:
            steps: number of time steps, up to 32.
            distinct: number of distinct lengths, up to `steps`.

        Raises:
            ValueError: a number is out of its range.
        """
        self.steps = slider("time steps T", steps, 1, MOST_STEPS)
        self.distinct = slider("distinct lengths", distinct, 1, steps)
        self.distinct.style.description_width = "110px"
        self.operation = dropdown("graph of", "pad_packed_sequence", [*OPERATIONS])
        super().__init__(row(self.steps, self.distinct, self.operation))

    def view(self) -> View:
        """Returns a view of the operation's graph for the batch."""
        self.distinct.max = self.steps.value  # moves the slider back if it is beyond the range
        profile = _profile(self.steps.value, self.distinct.value)
        self.counted = counted = getattr(profile, OPERATIONS[self.operation.value])
        graph, layout = counted.graph(), profile.layout
        batch = (
            f"{layout.batch_size} sequences of {FEATURES} features, {text.count(layout.max_len, 'time step')};"
            f" lengths {text.numbers(np.unique(layout.lengths)[::-1])}"
        )
        summary = (
            f"The backward pass of {text.count(counted.nodes, 'node')} runs"
            f" {text.count(counted.backward.kernels, 'kernel')} and writes {text.size(counted.backward.bytes)}."
        )
        return View(
            draw=lambda theme: stack(batch, [graph.sheet(theme)], theme),
            summary=summary,
            describe=lambda: f"{batch}\n{summary}\n{graph.to_text()}",
        )


@functools.lru_cache(512)
def _profile(steps: int, distinct: int) -> Profile:
    # The counts on the meta device are the same, and nothing is computed.
    from packviz.count import profile

    return profile.count(spread(distinct, SEQUENCES, steps), FEATURES, device="meta")
