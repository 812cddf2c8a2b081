"""Draws lines of code with line numbers, and marks the lines that have a finding."""

from __future__ import annotations

from collections.abc import Sequence

from packviz.draw.sheet import CHAR, Sheet

Line = tuple[int, str, str, bool]
"""A line of code: its number, its text, the mark before it (may be empty), and whether the mark is for an error."""

_STEP = 17.0  # px: from one line to the next


def describe(lines: Sequence[Line]) -> str:
    """Returns the lines as text, each with its mark, its number and its code."""
    return "\n".join(
        f"{mark or ' '} {number:3}  {code}".rstrip() for number, code, mark, _ in lines
    )


def draw(lines: Sequence[Line], theme: str) -> Sheet:
    """Draws the lines of code one below the other, with marked lines in bold."""
    sheet = Sheet(theme, describe(lines))
    for i, (number, code, mark, wrong) in enumerate(lines):
        y, ink, bare = 14 + i * _STEP, sheet.colours.wrong if wrong else "", code.lstrip(" ")
        sheet.text(8, y, mark, bold=True, ink=ink)
        sheet.text(8 + 6 * CHAR, y, str(number), anchor="end", ink=sheet.colours.muted)
        sheet.text(8 + CHAR * (8 + len(code) - len(bare)), y, bare, bold=bool(mark), ink=ink)
    return sheet
