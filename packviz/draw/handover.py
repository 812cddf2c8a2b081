"""States handed from one batch to another: which row meets which, and which it should meet. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from packviz.core.layout import sequence_name
from packviz.draw import palette
from packviz.draw.cellgrid import Cell, CellGrid
from packviz.draw.drawing import Drawing
from packviz.draw.sheet import Sheet

_BOX, _BETWEEN = 92.0, 120.0  # px: the width of a row, the room between the columns


@dataclass(frozen=True, repr=False)
class Handover(Drawing):
    """States in the order of one batch, taken over by a batch in another order: row by row, and by sequence.

    Attributes:
        states: which sequence each row of the states is of.
        rows: which sequence each row of the batch is of that starts from them.
    """

    states: Sequence[int]
    rows: Sequence[int]

    def __post_init__(self) -> None:
        if sorted(self.states) != sorted(self.rows) or len(set(self.rows)) != len(self.rows) or not self.rows:
            raise ValueError(f"states {[*self.states]} and rows {[*self.rows]} must hold the same sequences, each once")

    @property
    def taken(self) -> list[int]:
        """The row of the states that each row of the batch must take."""
        return [self.states.index(i) for i in self.rows]

    def to_text(self) -> str:
        """Each pair that meets, and whether it should."""
        lines = []
        for name, taken in self._pairings():
            pairs = [(sequence_name(self.states[j]), sequence_name(i)) for i, j in zip(self.rows, taken, strict=True)]
            shown = ", ".join(f"{one} → {other}{'' if one == other else ' ✗'}" for one, other in pairs)
            lines.append(f"{name}: {shown}")
        return "\n".join(["state of → decoder of (✗ another sequence)", *lines])

    def sheet(self, theme: str) -> Sheet:
        """Draws both side by side, a line from each row of the states to the row that starts from it."""
        sheet = Sheet(theme, self.to_text())
        for i, (name, taken) in enumerate(self._pairings()):
            self._lines(sheet, name, taken, 4 + i * (2 * _BOX + _BETWEEN + 70))
        return sheet

    def _pairings(self) -> list[tuple[str, list[int]]]:
        wrong = sum(i != j for i, j in zip(self.states, self.rows, strict=True))
        return [
            (f"as the rows lie: {wrong} of {len(self.rows)} wrong", [*range(len(self.rows))]),
            ("by sequence: all right", self.taken),
        ]

    def _lines(self, sheet: Sheet, name: str, taken: Sequence[int], x: float) -> None:
        states, starts = (CellGrid(sheet, len(self.rows), 1, _BOX, 28, left) for left in (x, x + _BOX + _BETWEEN))
        sheet.text(x, 16, name, bold=True)
        for grid, head, label, rows in (
            (states, "state after the encoder", "state of", self.states),
            (starts, "the decoder starts", "target of", self.rows),
        ):
            sheet.text(grid.left, grid.top - 9, head, size=11, ink=sheet.colours.muted)
            grid.draw([Cell(palette.sequence_colour(i), f"{label} {sequence_name(i)}")] for i in rows)
        for r, (i, j) in enumerate(zip(self.rows, taken, strict=True)):
            one, other = (states.right, states.y(j + 0.5)), (starts.left, starts.y(r + 0.5))
            sheet.curve(one, other, palette.sequence_colour(self.states[j]))
            if self.states[j] != i:
                sheet.text(starts.right + 8, starts.line(r), "✗", bold=True, ink=sheet.colours.wrong)
        sheet.reach(starts.right + 20, 0)
