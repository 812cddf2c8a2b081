"""Draws how rows of one batch become rows of another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from packviz.core.layout import sequence_name
from packviz.draw import palette
from packviz.draw.drawing import Drawing
from packviz.draw.sheet import Sheet

_LINE = 34.0  # px: from one row to the next
_FROM = 190.0  # px: the left ends of the ribbons
_TO = 430.0  # px: their right ends


@dataclass(frozen=True, repr=False)
class HandOver(Drawing):
    """A ribbon from each sequence's row in one batch to its row in another.

    Attributes:
        title: the title, which states the finding.
        before: the index of the sequence in each row of the first batch.
        after: the index of the sequence in each row of the second batch.
        names: what a row is called in the first batch, and in the second.
    """

    title: str
    before: Sequence[int]
    after: Sequence[int]
    names: tuple[str, str]

    def to_text(self) -> str:
        """Returns each row in words."""
        lines = [self.title]
        for row, pair in enumerate(zip(self.before, self.after, strict=True)):
            sides = zip(self.names, map(sequence_name, pair), strict=True)
            words = [f"{side} {name}" for side, name in sides]
            lines.append(f"row {row}: {words[0]} meets {words[1]}")
        return "\n".join(lines)

    def sheet(self, theme: str) -> Sheet:
        """Draws the ribbons. A row that meets another sequence's row has a ✗."""
        sheet = Sheet(theme, self.to_text())
        sheet.title(self.title)
        for row, sequence in enumerate(self.before):
            y = 50 + _LINE * row
            target = self.after[row]
            end = 50 + _LINE * self.after.index(sequence)
            sheet.curve((_FROM, y), (_TO, end), palette.sequence_colour(sequence), width=7)
            left = f"{row}: {self.names[0]} {sequence_name(sequence)}"
            right = f"{row}: {self.names[1]} {sequence_name(target)}"
            sheet.text(_FROM - 10, y + 4, left, anchor="end")
            sheet.text(_TO + 10, y + 4, right)
            if target != sequence:
                sheet.text(_TO + 150, y + 4, "✗ wrong state", bold=True, ink=sheet.colours.wrong)
        return sheet
