"""Shows in a panel how documents fill rows: choose a strategy and a mask, and see which scores attention computes."""

from __future__ import annotations

from collections.abc import Sequence

from packviz.core.batches import CUT, FILLS, FIRST_FIT_DECREASING
from packviz.draw.documents import MASKS, NONE, Scores
from packviz.panels.lengths import MOST, LengthsPicker
from packviz.panels.panel import Panel, View, dropdown, row, slider

LEAST, TIMES = 16, 4
"""The slider ends at 16 time steps, the initial row size, or 4 times the longest document, whichever is greatest."""


class RowPanel(Panel):
    """Documents of your choice in rows of equal size, and the scores that attention computes in
    these rows.

    Attributes:
        picker: the controls for choosing the lengths.
        row_size: the slider for the number of time steps in a row.
        strategy: the drop-down list of rules for filling rows.
        mask: the drop-down list of attention masks.
        shown: the `Scores` in the picture.
    """

    shown: Scores

    def __init__(
        self,
        lengths: Sequence[int] = (5, 3, 2),
        *,
        kind: str | None = None,
        many: int = 64,
        longest: int = 128,
        row_size: int = 10,
        strategy: str = FIRST_FIT_DECREASING,
        mask: str = NONE,
    ) -> None:
        """Makes the panel with these lengths or, if `kind` names a distribution, with lengths from
        it.

        Args:
            lengths: the lengths of your documents. Up to 8 documents of up to 12 steps have a
                slider each.
            kind: the name of a distribution that replaces your lengths at the start, such as
                `"sentences"`. See `pv.lengths.DISTRIBUTIONS`.
            many: number of documents to draw from the distribution, up to 512.
            longest: greatest length that may be drawn, up to 512 time steps.
            row_size: number of time steps in a row.
            strategy: the rule for filling rows, one of `pv.batches.FILLS`.
            mask: the attention mask, `"none"`, `"causal"`, `"document"` or `"both"`.

        Raises:
            ValueError: a length is not valid, a number is out of its range, or `kind`, `strategy`
                or `mask` is unknown.
        """
        self.picker = LengthsPicker(lengths, kind, many=many, longest=longest, most=MOST)
        self._reach = max(row_size, LEAST)
        self.row_size = slider("row size", row_size, 1, self._reach)
        self.strategy = dropdown("strategy", strategy, FILLS, "rows")
        self.mask = dropdown("mask", mask, MASKS)
        super().__init__(self.picker, row(self.row_size, self.strategy, self.mask))

    def view(self) -> View:
        """Returns a view of the rows and their scores."""
        layout, strategy = self.picker.lengths(), self.strategy.value
        longest = int(layout.lengths.max())
        # The range grows first, so that it is never empty. Then a value outside of it moves to the
        # nearest end.
        self.row_size.max = max(self._reach, TIMES * longest, self.row_size.max)
        self.row_size.min, self.row_size.max = (
            1 if strategy == CUT else longest,
            max(self._reach, TIMES * longest),
        )
        self.shown = scores = Scores(layout, self.row_size.value, strategy, self.mask.value)
        return View(scores.sheet, scores.summary(), scores.to_text)
