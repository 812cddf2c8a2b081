"""Shows padding in a panel: choose lengths, and see the padded and the packed batch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from packviz.core.layout import Layout
from packviz.draw import batch_picture, text
from packviz.panels.panel import Panel, View
from packviz.panels.picker import EXAMPLE, LengthsPicker


class PaddingPanel(Panel):
    """A batch of your choice, padded and packed, with the cells that padding wastes.

    Attributes:
        picker: the controls for choosing the lengths. `panel.lengths = [5, 3, 2]` sets them.
        shown: the `Layout` in the picture.
    """

    shown: Layout

    def __init__(
        self,
        lengths: Sequence[int] = EXAMPLE,
        *,
        kind: str | None = None,
        batch_size: int = 64,
        longest: int = 128,
        seed: int = 0,
    ) -> None:
        """Makes the panel with these lengths, or with lengths from the distribution `kind`.

        Args:
            lengths: your lengths. Up to 8 sequences of up to 12 steps have a slider each.
            kind: the name of a distribution that replaces your lengths at the start, such as
                `"triangle"`. See `pv.lengths.DISTRIBUTIONS`.
            batch_size: number of sequences to draw from the distribution, up to 512.
            longest: greatest length that may be drawn, up to 512 time steps.
            seed: the seed of a random distribution, up to 99.

        Raises:
            ValueError: a length is not valid, a number is out of its range, or `kind` is unknown.
        """
        self.picker = LengthsPicker(lengths, kind, sequences=batch_size, longest=longest, seed=seed)
        super().__init__(self.picker)

    @property
    def lengths(self) -> Layout:
        """The `Layout` in the picture. Set it to show other lengths."""
        return self.shown

    @lengths.setter
    def lengths(self, lengths: Layout | Sequence[int]) -> None:
        self.picker.set_lengths(lengths)

    def view(self) -> View:
        """Returns a view of the batch with the chosen lengths."""
        self.shown = layout = self.picker.lengths()
        draw = partial(batch_picture.draw, batch_picture.Shown(layout))
        return View(draw, text.summary(layout), partial(text.describe, layout))
