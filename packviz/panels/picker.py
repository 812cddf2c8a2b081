"""Provides the controls for a panel's lengths.

You type lengths, set them with sliders, or draw them from a distribution.
"""

from __future__ import annotations

from collections.abc import Sequence

import ipywidgets as widgets
import traitlets

from packviz.core import lengths as sources
from packviz.core.layout import Layout, require_steps, sequence_name
from packviz.core.sentences import sentences
from packviz.panels.panel import dropdown, row, show, slider

ONE_BY_ONE = "a slider each"
TYPED = "your own list"
KINDS = (*sources.DISTRIBUTIONS, ONE_BY_ONE, TYPED)
MOST_SLIDERS = 8
LONGEST_SLIDER = 12
LONGEST = 512
"""The upper end of the slider *longest*. For sentences, the slider ends at the longest sentence."""
MOST = 5000
"""The largest number of sequences in a panel that puts each of them into a batch or a row."""
EXAMPLE = (4, 6, 8, 5, 4, 3, 7, 8)


def lengths_field(lengths: Sequence[int]) -> widgets.Text:
    """Returns a text field with these lengths."""
    return widgets.Text(value=listed(lengths), description="lengths")


def listed(lengths: Layout | Sequence[int]) -> str:
    """Returns lengths as text for a field.

    Raises:
        ValueError: a length is not valid.
    """
    return ", ".join(map(str, require_steps(Layout(lengths)).lengths.tolist()))


def read(text: str) -> Layout:
    """Reads lengths from the text of a field.

    Raises:
        ValueError: the text is not a list of lengths.
    """
    return require_steps(Layout(sources.parse(text)))


class LengthsPicker(widgets.VBox):
    """The controls for choosing lengths. Controls without an effect are hidden.

    Attributes:
        kind: the drop-down list for the source of the lengths. Its choices are `KINDS`.
        few: the slider for the number of sequences, if each has a slider of its own.
        sliders: one slider for the length of each of these sequences.
        sequences: the slider for the number of sequences in a distribution.
        longest: the slider for the greatest length in a distribution, in time steps.
        seed: the slider for the seed of random lengths.
        typed: the field for your own list: numbers, JSON, or a pasted CSV column.
    """

    def __init__(
        self,
        lengths: Sequence[int] | None,
        kind: str | None = None,
        *,
        sequences: int = 64,
        longest: int = 128,
        seed: int = 0,
        sizes: tuple[int, int] = (1, 512),
        most: int | None = None,
    ) -> None:
        """Makes the controls.

        Args:
            lengths: your lengths, or `None` for an example. Up to 8 sequences of up to 12 steps
                have a slider each.
            kind: the source of the lengths, one of `KINDS`. Defaults to sliders if your lengths fit
                on them, and otherwise to a list.
            sequences: the number of sequences to draw from a distribution.
            longest: the greatest length that may be drawn, up to 512 time steps.
            seed: the seed of random lengths, up to 99.
            sizes: the smallest and the largest value that `sequences` may have.
            most: the largest number of lengths that a list may contain; `None` for no limit.

        Raises:
            ValueError: a length is not valid, a number is out of its range, or `kind` is unknown.
        """
        self._most = most
        start = require_steps(Layout(EXAMPLE if lengths is None else lengths))
        fits_on_sliders = start.batch_size <= MOST_SLIDERS and start.max_len <= LONGEST_SLIDER
        by_slider = start.lengths.tolist() if fits_on_sliders else list(EXAMPLE)
        if kind is None:
            kind = ONE_BY_ONE if fits_on_sliders else TYPED
        self.kind = dropdown("kind", kind, KINDS, "lengths")
        self.few = slider("sequences", len(by_slider), 1, MOST_SLIDERS)
        self.sliders = []
        filler = [6] * (MOST_SLIDERS - len(by_slider))
        for i, n in enumerate(by_slider + filler):
            control = slider(sequence_name(i), n, 1, LONGEST_SLIDER, width="230px")
            control.style.description_width = "14px"  # enough for one letter
            self.sliders.append(control)
        self.sequences = slider("sequences", sequences, *sizes)
        self.longest = slider("longest", longest, 1, LONGEST)
        self.seed = slider("seed", seed, 0, 99)
        look = widgets.Layout(width="680px", height="64px")
        self.typed = widgets.Textarea(value=listed(start), description="list", layout=look)
        for control in (self.kind, self.few):
            control.observe(self._show_controls, names="value")
        self._show_controls()
        self._fit_longest()
        sizes_row = row(self.kind, self.few, self.sequences)
        random_row = row(self.longest, self.seed)
        super().__init__([sizes_row, random_row, row(*self.sliders), self.typed])

    @property
    def is_random(self) -> bool:
        """True if the lengths depend on the seed."""
        return self.kind.value in sources.RANDOM

    def lengths(self) -> Layout:
        """Returns the lengths that the controls describe.

        Raises:
            ValueError: the list contains too many lengths or something other than lengths.
        """
        kind = self.kind.value
        self._fit_longest()
        if kind == ONE_BY_ONE:
            in_use = self.sliders[: self.few.value]
            return Layout([control.value for control in in_use])
        if kind != TYPED:
            draw = sources.DISTRIBUTIONS[kind]
            return Layout(draw(self.sequences.value, self.longest.value, self.seed.value))
        layout = read(self.typed.value)
        if self._most and layout.batch_size > self._most:
            limit = f"the panel takes at most {self._most:,}. For more, call packviz.batches"
            raise ValueError(f"there are {layout.batch_size:,} lengths; {limit}")
        return layout

    def _show_controls(self, change: traitlets.Bunch | None = None) -> None:
        kind = self.kind.value
        is_drawn = kind in sources.DISTRIBUTIONS
        show(self.sequences, is_drawn)
        show(self.longest, is_drawn)
        show(self.seed, self.is_random)
        show(self.few, kind == ONE_BY_ONE)
        for i, control in enumerate(self.sliders):
            show(control, kind == ONE_BY_ONE and i < self.few.value)
        show(self.typed, kind == TYPED)

    def _fit_longest(self) -> None:
        """Limits the slider `longest` to the greatest value that makes a difference."""
        is_real = self.kind.value == "sentences"
        self.longest.max = max(map(len, sentences())) if is_real else LONGEST
