"""Draws spans between two values of a row, such as the times of two methods, on a log scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TypeAlias

from packviz.draw.curves import MARKERS, Scale, log_ticks, mark
from packviz.draw.sheet import WIDTH, Sheet, width_of

_ROW = 26.0  # px: from one row to the next
_DIAMOND = MARKERS["diamond"]
_CIRCLE = MARKERS["circle"]
_LEFT = "m-7 0l10-6v12z"  # an arrowhead
_RIGHT = "m7 0l-10-6v12z"


Span: TypeAlias = tuple[float, float, str, tuple[float, float]]
"""The value at the hollow diamond, the value at the filled circle, the text after the right end,
and the quartiles of the second value."""


def rows(
    title: str,
    groups: Mapping[str, Mapping[str, Span]],
    theme: str,
    *,
    fills: tuple[str, str],
    meanings: tuple[str, str],
    axis: str,
    notes: Sequence[str] = (),
    arrow: bool = False,
) -> Sheet:
    """Draws a span for each row of each group. A line crosses all rows at 1.

    Args:
        title: the title above the rows, which states the finding.
        groups: the groups, by name. Each group maps the names of rows to their spans. A group's
            name may be empty.
        theme: the name of the theme, one of the keys in `palette.THEMES`.
        fills: the colours of the start and of the end. The start is hollow.
        meanings: what the start and the end of a span mean.
        axis: the title of the axis.
        notes: lines of text below the rows.
        arrow: whether a span ends in an arrowhead instead of a circle.
    """
    sheet = Sheet(theme, title)
    colours = sheet.colours
    y = sheet.title(title)
    spans = [*chain.from_iterable(group.values() for group in groups.values())]
    values = [1.0]
    for first, last, _, quartiles in spans:
        values += [first, last, *quartiles]
    marks = log_ticks(min(values), max(values))
    scale = Scale(marks, min(marks[0], *values), max(marks[-1], *values), log=True)
    left = 24 + max(map(width_of, chain(*groups.values())), default=0.0)
    wide = WIDTH - left - 20 - max((width_of(label) for _, _, label, _ in spans), default=0.0)

    def across(value: float) -> float:
        return left + wide * scale.share(value)

    ground = colours.ground
    mark(sheet, (10, y + 12), _DIAMOND, ground, fills[0])
    sheet.text(22, y + 16, meanings[0])
    x = 50 + width_of(meanings[0])
    mark(sheet, (x, y + 12), _LEFT if arrow else _CIRCLE, fills[1], colours.line)
    sheet.text(x + 12, y + 16, meanings[1])
    y += 28
    top = y
    above = Sheet(theme)
    for name, group in groups.items():
        above.text(4, y + 17, name, bold=True, halo=ground)
        y += _ROW if name else 0
        for row, (first, last, label, quartiles) in group.items():
            middle = y + 12
            sheet.text(left - 12, middle + 4, row, anchor="end")
            start = across(first)
            end = across(last)
            above.line([(start, middle), (end, middle)], fills[1], width=3)
            whisker = [(across(value), middle) for value in quartiles]
            above.line(whisker, colours.line, width=1.5)
            mark(above, (start, middle), _DIAMOND, ground, fills[0])
            head = _LEFT if end < start else _RIGHT
            mark(above, (end, middle), head if arrow else _CIRCLE, fills[1], colours.line)
            right = max(start, end, *(x for x, _ in whisker)) + 12
            above.text(right, middle + 4, label, halo=ground)
            y += _ROW
    for value in marks:
        x = across(value)
        is_one = value == 1
        stroke = colours.accent if is_one else colours.hatch
        sheet.line([(x, top - 2), (x, y)], stroke, width=1.5 if is_one else 0.5, dash="4 3")
        sheet.note(x, y + 14, f"{value:g}", "middle")
    sheet.note(WIDTH - 8, y + 30, axis, "end")
    sheet.place(above, 0, 0)
    foot = sheet.paragraph(4, y + 38, notes, size=11, ink=colours.muted)
    sheet.size(max(WIDTH, sheet.width), foot)
    return sheet
