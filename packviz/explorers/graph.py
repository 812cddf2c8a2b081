"""What the backward pass goes through: choose time steps and distinct lengths, see the autograd graph, counted live."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from packviz.core.lengths import spread
from packviz.draw import text
from packviz.draw.sheet import stack
from packviz.explorers.panel import Panel, View, dropdown, row, slider

if TYPE_CHECKING:
    from packviz.count.profile import Counted, Profile

SEQUENCES, FEATURES, MOST_STEPS = 32, 8, 32
OPERATIONS = {"pad_packed_sequence": "pad", "pack_padded_sequence": "pack"}


class GraphExplorer(Panel):
    """The autograd graph that torch records for a batch, and what its backward pass writes. Every position is counted.

    Attributes:
        steps: `T`, the length of the longest sequence.
        distinct: how many distinct lengths there are, spread from `T` down.
        operation: of which the graph is.
        counted: what is in the picture, as counted.
    """

    counted: Counted

    def __init__(self, steps: int = 8, distinct: int = 3) -> None:
        """Starts with so many time steps and distinct lengths.

        Raises:
            ValueError: they are out of the range of their sliders.
        """
        if not 1 <= distinct <= steps <= MOST_STEPS:
            raise ValueError(
                f"steps is {steps} and distinct {distinct}; give at most {MOST_STEPS} steps, and at least 1 but no more"
                " distinct lengths than steps"
            )
        self.steps = slider("time steps T", steps, 1, MOST_STEPS)
        self.distinct = slider("distinct lengths", distinct, 1, steps)
        self.distinct.style.description_width = "110px"
        self.operation = dropdown("graph of", "pad_packed_sequence", [*OPERATIONS])
        super().__init__(row(self.steps, self.distinct, self.operation))

    def view(self) -> View:
        """The graph of the operation and the batch chosen."""
        self.distinct.max = self.steps.value  # moves the slider if it stood beyond
        profile = _profile(self.steps.value, self.distinct.value)
        self.counted = counted = getattr(profile, OPERATIONS[self.operation.value])
        graph, layout = counted.graph(), profile.layout
        batch = (
            f"{layout.batch_size} sequences of {FEATURES} features, {text.count(layout.max_len, 'time step')};"
            f" lengths {text.numbers(np.unique(layout.lengths)[::-1])}"
        )
        summary = (
            f"Backward: {text.count(counted.nodes, 'node')}, {text.count(counted.backward.kernels, 'kernel')},"
            f" {text.size(counted.backward.bytes)} written."
        )
        return View(
            draw=lambda theme: stack(batch, [graph.sheet(theme)], theme),
            summary=summary,
            describe=lambda: f"{batch}\n{summary}\n{graph.to_text()}",
        )


@functools.lru_cache(512)
def _profile(steps: int, distinct: int) -> Profile:
    # On the meta device: the same counts, and nothing is computed.
    from packviz.count import profile  # noqa: PLC0415 - torch takes seconds to import

    return profile.count(spread(distinct, SEQUENCES, steps), FEATURES, device="meta")
