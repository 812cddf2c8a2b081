"""Provides the controls for a panel's lengths.

You type lengths, or draw them from a distribution.
"""

from __future__ import annotations

from collections.abc import Sequence

import ipywidgets as widgets

from packviz.core import lengths as sources
from packviz.core.layout import Layout, require_nonempty_sequences
from packviz.core.sentences import sentences
from packviz.panels.panel import dropdown, row, set_visible, slider

OWN_LIST = "your own list"
LENGTH_KINDS = (*sources.DISTRIBUTIONS, OWN_LIST)
MAX_LENGTH = 512
"""The upper end of the slider *longest*. For sentences, the slider ends at the longest sentence."""
MAX_DRAWN = 2000
"""The largest number of sequences that are drawn from a distribution."""
MAX_TYPED = 5000
"""The largest number of sequences in a list."""
EXAMPLE_LENGTHS = (4, 6, 8, 5, 4, 3, 7, 8)


def lengths_field(lengths: Sequence[int]) -> widgets.Text:
    """Returns a text field with these lengths."""
    return widgets.Text(value=lengths_text(lengths), description="lengths")


def lengths_text(lengths: Layout | Sequence[int]) -> str:
    """Returns lengths as text for a field.

    Raises:
        ValueError: a length is not valid.
    """
    return ", ".join(map(str, require_nonempty_sequences(Layout(lengths)).lengths.tolist()))


def read(text: str) -> Layout:
    """Reads lengths from the text of a field.

    Raises:
        ValueError: the text is not a list of lengths.
    """
    return require_nonempty_sequences(Layout(sources.parse(text)))


class LengthsPicker(widgets.VBox):
    """The controls for choosing lengths. Controls without an effect are hidden.

    Attributes:
        kind: the drop-down list for the source of the lengths. Its choices are `LENGTH_KINDS`.
        sequences: the slider for the number of sequences in a distribution.
        longest: the slider for the greatest length in a distribution, in time steps.
        seed: the slider for the seed of random lengths.
        typed: the field for your own list: numbers, JSON, or a pasted CSV column.
    """

    def __init__(
        self,
        lengths: Sequence[int] | None,
        kind: str,
        *,
        sequences: int,
        longest: int,
    ) -> None:
        """Makes the controls.

        Args:
            lengths: your lengths, or `None` for an example.
            kind: the source of the lengths, one of `LENGTH_KINDS`.
            sequences: the number of sequences to draw from a distribution.
            longest: the greatest length that may be drawn, up to 512 time steps.

        Raises:
            ValueError: a length is not valid, a number is out of its range, or `kind` is unknown.
        """
        listed_lengths = EXAMPLE_LENGTHS if lengths is None else lengths
        self.kind = dropdown("kind", kind, LENGTH_KINDS, "lengths")
        self.sequences = slider("sequences", sequences, 1, MAX_DRAWN)
        self.longest = slider("longest", longest, 1, MAX_LENGTH)
        self.seed = slider("seed", 0, 0, 99)
        field_layout = widgets.Layout(width="680px", height="64px")
        self.typed = widgets.Textarea(
            value=lengths_text(listed_lengths), description="list", layout=field_layout
        )
        self.kind.observe(lambda _: self._show_controls(), names="value")
        self._show_controls()
        self._limit_longest()
        super().__init__([row(self.kind, self.sequences), row(self.longest, self.seed), self.typed])

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
        self._limit_longest()
        if kind != OWN_LIST:
            draw = sources.DISTRIBUTIONS[kind]
            return Layout(draw(self.sequences.value, self.longest.value, self.seed.value))
        layout = read(self.typed.value)
        if layout.batch_size > MAX_TYPED:
            limit = f"the panel takes at most {MAX_TYPED:,}, so shorten the list"
            raise ValueError(f"there are {layout.batch_size:,} lengths; {limit}")
        return layout

    def _show_controls(self) -> None:
        kind = self.kind.value
        is_sampled = kind != OWN_LIST
        set_visible(self.sequences, is_sampled)
        set_visible(self.longest, is_sampled)
        set_visible(self.seed, self.is_random)
        set_visible(self.typed, not is_sampled)

    def _limit_longest(self) -> None:
        """Limits the slider `longest` to the greatest value that makes a difference."""
        has_sentences = self.kind.value == "sentences"
        self.longest.max = max(map(len, sentences())) if has_sentences else MAX_LENGTH
