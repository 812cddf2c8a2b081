"""Shows in a panel how documents fill rows, and which scores attention computes."""

from __future__ import annotations

from collections.abc import Sequence

from packviz.core.batches import CUT, FILLS, FIRST_FIT_DECREASING
from packviz.core.validation import require_at_least
from packviz.draw.documents import MASKS, NO_MASK, Scores
from packviz.panels.panel import Panel, View, dropdown, row, slider
from packviz.panels.picker import OWN_LIST, LengthsPicker

MIN_SLIDER_END = 16
"""The slider `row_size` reaches at least this many time steps."""
SLIDER_END_FACTOR = 4
"""The slider `row_size` reaches at least this many times the longest document."""


class RowPanel(Panel):
    """Documents of your choice in rows of equal size, and the scores that attention computes.

    Attributes:
        picker: the controls for choosing the lengths.
        row_size: the slider for the number of time steps in a row.
        strategy: the drop-down list of rules for filling rows.
        mask: the drop-down list of attention masks.
        shown: the `Scores` in the picture.
    """

    def __init__(
        self,
        lengths: Sequence[int] = (5, 3, 2),
        *,
        kind: str = OWN_LIST,
        sequences: int = 64,
        longest: int = 128,
        row_size: int = 10,
        strategy: str = FIRST_FIT_DECREASING,
        mask: str = NO_MASK,
    ) -> None:
        """Makes the panel with these lengths, or with lengths from the distribution `kind`.

        Args:
            lengths: the lengths of your documents.
            kind: the name of a distribution that replaces your lengths at the start, such as
                `"sentences"`. See `pv.lengths.DISTRIBUTIONS`.
            sequences: number of documents to draw from the distribution, up to 2,000.
            longest: greatest length that may be drawn, up to 512 time steps.
            row_size: number of time steps in a row.
            strategy: the rule for filling rows, one of `pv.batches.FILLS`.
            mask: the attention mask, `"none"`, `"causal"`, `"document"` or `"both"`.

        Raises:
            ValueError: a length is not valid, a number is out of its range, or `kind`, `strategy`
                or `mask` is unknown.
        """
        self.picker = LengthsPicker(lengths, kind, sequences=sequences, longest=longest)
        self._reach = max(require_at_least("row_size", row_size), MIN_SLIDER_END)
        self.row_size = slider("row_size", row_size, 1, self._reach, "row size")
        self.strategy = dropdown("strategy", strategy, FILLS, "rows")
        self.mask = dropdown("mask", mask, MASKS)
        super().__init__(self.picker, row(self.row_size, self.strategy, self.mask))

    def view(self) -> View:
        """Returns a view of the rows and their scores."""
        layout = self.picker.lengths()
        strategy = self.strategy.value
        longest = int(layout.lengths.max())
        max_row_size = max(self._reach, SLIDER_END_FACTOR * longest)
        # The range grows first, so that it is never empty. Then a value outside of it moves to the
        # nearest end.
        self.row_size.max = max(max_row_size, self.row_size.max)
        self.row_size.min = 1 if strategy == CUT else longest
        self.row_size.max = max_row_size
        self.shown = scores = Scores(layout, self.row_size.value, strategy, self.mask.value)
        return View(scores.sheet, scores.summary(), scores.to_text)
