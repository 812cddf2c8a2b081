"""Lines of code with their numbers, and a mark at those with a finding: drawn and as text. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from packviz.draw.drawing import Drawing
from packviz.draw.sheet import CHAR, Sheet

_STEP = 17.0  # px from one line to the next


class Line(NamedTuple):
    """A line of code. `mark` is what is drawn before it; `wrong` whether that mark is an error's."""

    number: int
    code: str
    mark: str = ""
    wrong: bool = False


@dataclass(frozen=True, repr=False)
class Listing(Drawing):
    """Some lines of code.

    Attributes:
        lines: in their order.
    """

    lines: Sequence[Line]

    def to_text(self) -> str:
        """Mark, number and code of each line."""
        return "\n".join(f"{line.mark or ' '} {line.number:3}  {line.code}".rstrip() for line in self.lines)

    def sheet(self, theme: str) -> Sheet:
        """The same; a marked line in bold."""
        sheet = Sheet(theme, self.to_text())
        for i, line in enumerate(self.lines):
            y, ink = 14 + i * _STEP, sheet.colours.wrong if line.wrong else ""
            sheet.text(8, y, line.mark, bold=True, ink=ink)
            sheet.text(8 + 6 * CHAR, y, str(line.number), anchor="end", ink=sheet.colours.muted)
            bare = line.code.lstrip(" ")
            x = 8 + CHAR * (8 + len(line.code) - len(bare))
            sheet.text(x, y, bare, bold=bool(line.mark), ink=ink)
        return sheet
