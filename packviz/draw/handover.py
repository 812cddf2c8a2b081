"""States handed from one batch to another: which row meets which, and which it should meet. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from packviz.core.layout import sequence_name
from packviz.draw import palette
from packviz.draw.drawn import Drawn
from packviz.draw.sheet import Sheet

_TALL, _PITCH, _BOX, _BETWEEN = 22.0, 30.0, 92.0, 120.0  # px: a row, to the next one, its box, between the columns


@dataclass(frozen=True, repr=False)
class Handover(Drawn):
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
        for name, taken in self._ways():
            pairs = [(sequence_name(self.states[j]), sequence_name(i)) for i, j in zip(self.rows, taken, strict=True)]
            said = ", ".join(f"{one} → {other}{'' if one == other else ' ✗'}" for one, other in pairs)
            lines.append(f"{name}: {said}")
        return "\n".join(["state of → decoder of (✗ another sequence)", *lines])

    def sheet(self, theme: str) -> Sheet:
        """Both ways side by side, a line from each row of the states to the row that starts from it."""
        sheet = Sheet(theme, self.to_text())
        x = 4.0
        for name, taken in self._ways():
            self._lines(sheet, name, taken, x)
            x += 2 * _BOX + _BETWEEN + 70
        sheet.size(max(sheet.width, 760), 52 + _PITCH * len(self.rows))
        return sheet

    def _ways(self) -> list[tuple[str, list[int]]]:
        wrong = sum(i != j for i, j in zip(self.states, self.rows, strict=True))
        return [
            (f"as the rows lie: {wrong} of {len(self.rows)} wrong", [*range(len(self.rows))]),
            ("by sequence: all right", self.taken),
        ]

    def _lines(self, sheet: Sheet, name: str, taken: Sequence[int], x: float) -> None:
        right, top, muted = x + _BOX + _BETWEEN, 44.0, sheet.colours.muted
        sheet.text(x, 16, name, bold=True)
        sheet.text(x, top - 8, "state after the encoder", size=11, ink=muted)
        sheet.text(right, top - 8, "the decoder starts", size=11, ink=muted)
        for r, (i, j) in enumerate(zip(self.rows, taken, strict=True)):
            start, end = (top + _PITCH * row + _TALL / 2 for row in (j, r))
            sheet.curve((x + _BOX, start), (right, end), palette.sequence_colour(self.states[j]))
            if self.states[j] != i:
                sheet.text(right + _BOX + 8, end + 4, "✗", bold=True, ink=sheet.colours.wrong)
        for r, (one, other) in enumerate(zip(self.states, self.rows, strict=True)):
            for left, i, said in ((x, one, "state of"), (right, other, "target of")):
                sheet.cell(
                    left, top + _PITCH * r, _BOX, _TALL, palette.sequence_colour(i), f"{said} {sequence_name(i)}"
                )
