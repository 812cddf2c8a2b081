"""Documents in rows: choose how rows are filled and what attention may not see, and count the scores it computes."""

from __future__ import annotations

from collections.abc import Sequence

from packviz.core.batches import CUT, FILLS, FIRST_FIT_DECREASING
from packviz.draw.scores import MASKS, NONE, Scores
from packviz.explorers.lengths import MOST, LengthsPicker
from packviz.explorers.panel import Panel, View, dropdown, row, slider

LEAST, TIMES = 16, 4
"""The size of a row goes up to so many time steps at least, and to so many times the longest document."""


class RowExplorer(Panel):
    """Documents of your choice in rows of one size, and the scores that attention computes in these rows.

    Attributes:
        picker: the controls that choose the lengths.
        row_size: the time steps of a row.
        strategy: how rows are filled.
        mask: what attention may not see.
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
        """Starts from these lengths, or from a distribution.

        Args:
            lengths: of the documents. Up to 8 of up to 12 steps get a slider each.
            kind: start from this instead: a key of `pv.lengths.DISTRIBUTIONS` such as `"sentences"`.
            many: documents of a distribution, up to 512.
            longest: its upper end in time steps, up to 512.
            row_size: the time steps of a row.
            strategy: one of `pv.batches.FILLS`.
            mask: `"none"`, `"causal"`, `"document"` or `"both"`.

        Raises:
            ValueError: a length is not valid, a number is out of range, or there is no such kind, strategy or mask.
        """
        self.picker = LengthsPicker(lengths, kind, many=many, longest=longest, most=MOST)
        self._reach = max(row_size, LEAST)
        self.row_size = slider("row size", row_size, 1, self._reach)
        self.strategy = dropdown("strategy", strategy, FILLS, "rows")
        self.mask = dropdown("mask", mask, MASKS)
        super().__init__(self.picker, row(self.row_size, self.strategy, self.mask))

    def view(self) -> View:
        """The rows, and their scores."""
        layout, strategy = self.picker.lengths(), self.strategy.value
        longest = int(layout.lengths.max())
        # The range first grows, so that it is never empty; then a value beyond it moves to its nearest end.
        self.row_size.max = max(self._reach, TIMES * longest, self.row_size.max)
        self.row_size.min, self.row_size.max = 1 if strategy == CUT else longest, max(self._reach, TIMES * longest)
        self.shown = scores = Scores(layout, self.row_size.value, strategy, self.mask.value)
        return View(scores.sheet, scores.summary(), scores.to_text)
