"""The count that explains packing in textbooks: multiplications and additions of one product with a padded batch.

A batch of `B` sequences of single numbers, padded to `(B, T)`, is multiplied by a weight of shape `(T, columns)`. A row
with `n` real entries takes `n` multiplications and `n - 1` additions for each column of the result.

It is a picture of the idea and not what an RNN does: an RNN multiplies one *time step* at a time, by the same weights
(see `packviz.count.flops`). And the well-known figures, 54/48 against 32/26, are those of a single output column.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from packviz.core.layout import Layout, sequence_name
from packviz.core.validation import at_least
from packviz.draw import text
from packviz.draw.cellgrid import Cell, CellGrid, real_cells
from packviz.draw.drawing import Drawing
from packviz.draw.sheet import HATCHED, Sheet


class Operations(NamedTuple):
    """Multiplications and additions."""

    mult: int
    add: int

    def __str__(self) -> str:
        return f"{self.mult:,} mult, {self.add:,} add"


@dataclass(frozen=True, repr=False)
class Textbook(Drawing):
    """The count, row by row.

    Attributes:
        layout: the batch.
        columns: how many output columns are counted.
    """

    layout: Layout
    columns: int = 1

    @property
    def rows(self) -> tuple[Operations, ...]:
        """What each sequence takes without its padding, in the caller's order."""
        return tuple(Operations(self.columns * n, self.columns * (n - 1)) for n in self.layout.lengths.tolist())

    @property
    def padded(self) -> Operations:
        """What the padded batch takes."""
        n, t = self.columns * self.layout.batch_size, self.layout.max_len
        return Operations(n * t, n * (t - 1))

    @property
    def packed(self) -> Operations:
        """What the real entries take."""
        return Operations(*map(sum, zip(*self.rows, strict=True)))

    @property
    def saved(self) -> Operations:
        """The difference."""
        return Operations(self.padded.mult - self.packed.mult, self.padded.add - self.packed.add)

    def to_text(self) -> str:
        """The rows and their sums."""
        lines = [self._title()]
        lines += [f"  {sequence_name(b):>2}  {row.mult}-mult {row.add}-add" for b, row in enumerate(self.rows)]
        return "\n".join([*lines, *self._sums()])

    def sheet(self, theme: str) -> Sheet:
        """Each row's entries, padding hatched, with what they take beside them."""
        sheet, layout = Sheet(theme, self.to_text()), self.layout
        grid = CellGrid(sheet, layout.batch_size, layout.max_len, min(26.0, 460 / layout.max_len), top=28)
        sheet.title(self._title())
        grid.names([sequence_name(b) for b in range(layout.batch_size)])
        grid.draw(
            [*real_cells(layout, b, lambda b, t: ""), Cell(HATCHED, span=layout.max_len - n)]
            for b, n in enumerate(layout.lengths.tolist())
        )
        for b, operations in enumerate(self.rows):
            sheet.text(grid.right + 16, grid.line(b), f"{operations.mult}-mult {operations.add}-add")
        sheet.paragraph(grid.left, grid.foot + 4, self._sums())
        return sheet

    def _title(self) -> str:
        shape = f"({self.layout.batch_size}, {self.layout.max_len})"
        product = f"{shape} batch times a weight, {text.count(self.columns, 'output column')}"
        return f"{product}: {self.padded.mult:,} multiplications padded, {self.packed.mult:,} packed"

    def _sums(self) -> list[str]:
        return [f"{name}: {getattr(self, name)}" for name in ("padded", "packed", "saved")]


def count(lengths: Any, columns: int = 1) -> Textbook:
    """Counts multiplications and additions of a padded batch times a weight, and of its real entries alone.

    Args:
        lengths: `(B,)` the real entries of each sequence, or a `Layout`.
        columns: output columns to count; 1 gives the well-known figures.

    Raises:
        ValueError: the lengths are not valid, or `columns` is under 1.
    """
    columns = at_least("columns", columns)
    return Textbook(Layout(lengths), columns)
