"""Lines of code with their numbers, and a mark at those with a finding: drawn and as text. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from packviz.draw.drawing import Drawing
from packviz.draw.sheet import CHAR, Sheet

_STEP = 17.0  # px from one line to the next


@dataclass(frozen=True, repr=False)
class Listing(Drawing):
    """Some lines of code.

    Attributes:
        lines: `(number, code, mark, wrong)` of each: `mark` is drawn before it; `wrong`: whether that is an error's.
    """

    lines: Sequence[tuple[int, str, str, bool]]

    def to_text(self) -> str:
        """Mark, number and code of each line."""
        return "\n".join(f"{mark or ' '} {number:3}  {code}".rstrip() for number, code, mark, _ in self.lines)

    def sheet(self, theme: str) -> Sheet:
        """The same; a marked line in bold."""
        sheet = Sheet(theme, self.to_text())
        for i, (number, code, mark, wrong) in enumerate(self.lines):
            y, ink, bare = 14 + i * _STEP, sheet.colours.wrong if wrong else "", code.lstrip(" ")
            sheet.text(8, y, mark, bold=True, ink=ink)
            sheet.text(8 + 6 * CHAR, y, str(number), anchor="end", ink=sheet.colours.muted)
            sheet.text(8 + CHAR * (8 + len(code) - len(bare)), y, bare, bold=bool(mark), ink=ink)
        return sheet
