"""What padding costs: choose lengths, see the padded and the packed batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ipywidgets as widgets

from packviz.core import lengths as sources
from packviz.core.layout import Layout, sequence_name
from packviz.draw import layouts as svg
from packviz.draw import text
from packviz.explorers.panel import Panel, View, row, slider

ONE_BY_ONE = "a slider each"
TYPED = "your own list"
MOST_SLIDERS = 8
LONGEST_SLIDER = 12


class PaddingExplorer(Panel):
    """A batch of your choice, padded and packed, with what padding wastes.

    Attributes:
        kind: where the lengths come from: a slider each, a distribution, or your own list.
        few: the number of sequences with a slider each.
        many: the number of sequences of a distribution.
        longest: the upper end of a distribution, in time steps.
        seed: chooses among random batches.
        sliders: one per sequence.
        typed: your own list: numbers, JSON, or a pasted CSV column.
        shown: the `Layout` in the picture.
    """

    shown: Layout

    def __init__(
        self,
        lengths: Sequence[int] = (4, 6, 8, 5, 4, 3, 7, 8),
        *,
        kind: str | None = None,
        batch_size: int = 64,
        longest: int = 128,
        seed: int = 0,
    ) -> None:
        """Starts from these lengths, or from a distribution.

        Args:
            lengths: the lengths at the start. Up to 8 sequences of up to 12 steps get a slider each.
            kind: start from this instead: a key of `packviz.lengths.DISTRIBUTIONS` such as `"triangle"`.
            batch_size: sequences of a distribution, up to 512.
            longest: its upper end in time steps, up to 512.
            seed: of a random distribution.
        """
        start = Layout(lengths)
        kinds = [ONE_BY_ONE, *sources.DISTRIBUTIONS, TYPED]
        few = start.batch_size <= MOST_SLIDERS and start.max_len <= LONGEST_SLIDER
        if kind is not None and kind not in kinds:
            raise ValueError(f"kind is {kind!r}; choose one of {', '.join(map(repr, kinds))}")
        kind = kind or (ONE_BY_ONE if few else TYPED)

        self.kind = widgets.Dropdown(options=kinds, value=kind, description="lengths")
        first = start.lengths.tolist() if few else [4, 6, 8, 5, 4, 3, 7, 8]
        self.few = slider("sequences", len(first), 1, MOST_SLIDERS)
        self.sliders = [
            slider(sequence_name(i), n, 1, LONGEST_SLIDER, width=230)
            for i, n in enumerate((first + [6] * MOST_SLIDERS)[:MOST_SLIDERS])
        ]
        self.many = slider("sequences", batch_size, 1, 512)
        self.longest = slider("longest", longest, 1, 512)
        self.seed = slider("seed", seed, 0, 99)
        self.typed = widgets.Textarea(
            value=", ".join(map(str, start.lengths.tolist())),
            description="list",
            layout=widgets.Layout(width="680px", height="64px"),
        )
        for control in (self.kind, self.few):
            control.observe(self._show_controls, names="value")
        self._show_controls()
        super().__init__(
            [row(self.kind, self.few, self.many), row(self.longest, self.seed), row(*self.sliders), self.typed],
            [self.kind, self.few, self.many, self.longest, self.seed, *self.sliders, self.typed],
        )

    def lengths(self) -> Any:
        """The lengths that the controls say now."""
        if self.kind.value == TYPED:
            return sources.parse(self.typed.value)
        if self.kind.value == ONE_BY_ONE:
            return [s.value for s in self.sliders[: self.few.value]]
        return sources.DISTRIBUTIONS[self.kind.value](self.many.value, self.longest.value, self.seed.value)

    def view(self) -> View:
        """The picture of the lengths chosen."""
        self.shown = layout = Layout(self.lengths())
        return View(
            draw=lambda theme: svg.draw(layout, theme=theme),
            summary=text.summary(layout),
            describe=lambda: text.describe(layout),
        )

    def _show_controls(self, change: Any = None) -> None:
        """Shows only the controls that have a say in this kind of lengths."""
        kind = self.kind.value
        drawn = kind in sources.DISTRIBUTIONS
        shown = {
            self.few: kind == ONE_BY_ONE,
            self.many: drawn,
            self.longest: drawn,
            self.seed: kind in sources.RANDOM,
            self.typed: kind == TYPED,
        }
        shown |= {s: kind == ONE_BY_ONE and i < self.few.value for i, s in enumerate(self.sliders)}
        for control, visible in shown.items():
            control.layout.display = None if visible else "none"
