"""Work and time beside each other, as multiples of those of one and the same thing: a line with two dots each. Pure.

The axis is logarithmic: twice as much and half as much lie equally far from 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from packviz.draw import palette
from packviz.draw.chart import mark
from packviz.draw.drawing import Drawing
from packviz.draw.sheet import Sheet, n, width_of
from packviz.draw.text import table

_WIDTH, _PITCH, _TOP, _NUMBERS = 880.0, 26.0, 74.0, 252.0  # px: the picture, a row, above the first, right of the plot
_TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500)
_DIAMOND, _DOT = "m0-6l6 6l-6 6l-6-6z", "m-5.5 0a5.5 5.5 0 1 0 11 0a5.5 5.5 0 1 0-11 0z"


@dataclass(frozen=True)
class Row:
    """One thing compared.

    Attributes:
        name: stands on the left.
        work: its FLOPs.
        time: its time: the median.
        low: first quartile of the time.
        high: third quartile.
        clear: whether the time is told apart from 1.
    """

    name: str
    work: float
    time: float
    low: float
    high: float
    clear: bool = True


@dataclass(frozen=True, repr=False)
class Dumbbells(Drawing):
    """Rows in groups, all as multiples of the same.

    Attributes:
        title: the finding.
        groups: by the name of each group its rows.
        one: what is 1.
        notes: lines that stand below.
    """

    title: str
    groups: Mapping[str, Sequence[Row]]
    one: str = "padded"
    notes: Sequence[str] = ()

    @property
    def rows(self) -> list[Row]:
        """Those of all groups."""
        return [row for rows in self.groups.values() for row in rows]

    def to_text(self) -> str:
        """The multiples in columns."""
        rows = [["", "FLOPs", "time", "quartiles"]]
        for name, group in self.groups.items():
            rows.append([name])
            for row in group:
                cells = [f"  {row.name}", *(f"{value:.2f}" for value in (row.work, row.time))]
                rows.append([*cells, f"{row.low:.2f} to {row.high:.2f}{'' if row.clear else ' (not clear)'}"])
        head = [self.title, f"multiples of {self.one}"]
        return "\n".join([*head, *table(rows, "<  >7  >7  <"), *self.notes])

    def sheet(self, theme: str) -> Sheet:
        """A hollow diamond for the work, a dot with quartiles for the time, on a line through both."""
        sheet, rows = Sheet(theme, self.to_text()), self.rows
        left = 24 + max((width_of(row.name) for row in rows), default=0)
        right, foot = _WIDTH - _NUMBERS, _TOP + _PITCH * (len(rows) + len(self.groups))
        values = [1.0, *(value for row in rows for value in (row.work, row.time, row.low, row.high))]
        low, high = min(values), max(values)
        first = max((tick for tick in _TICKS if tick < 0.9 * low), default=_TICKS[0])
        last = min((tick for tick in _TICKS if tick > 1.1 * high), default=_TICKS[-1])

        def x(value: float) -> float:
            held = min(max(value, first), last)
            return left + (math.log(held / first)) / math.log(last / first) * (right - left)

        sheet.title(self.title)
        self._axis(sheet, {tick: x(tick) for tick in _TICKS if first <= tick <= last}, (left, right, foot))
        y = _TOP
        for name, group in self.groups.items():
            sheet.text(4, y + 17, name, bold=True, halo=sheet.colours.ground)
            y += _PITCH
            for row in group:
                self._row(sheet, row, x, (left, y + _PITCH / 2, right))
                y += _PITCH
        foot = sheet.paragraph(4, foot + 26, self.notes, size=11, ink=sheet.colours.muted) if self.notes else foot + 22
        sheet.size(max(_WIDTH, sheet.width), foot + 4)
        return sheet

    def _axis(self, sheet: Sheet, ticks: Mapping[float, float], sides: tuple[float, float, float]) -> None:
        left, right, foot = sides
        muted, colour = sheet.colours.muted, palette.METHODS["packed"]
        for tick, at in ticks.items():
            sheet.line([(at, _TOP), (at, foot)], sheet.colours.hatch, width=0.5)
            sheet.text(at, foot + 14, f"{tick:g} ×", anchor="middle", size=11, ink=muted)
        sheet.line([(left, foot), (right, foot)])
        sheet.layer()
        sheet.line([(ticks[1], _TOP - 8), (ticks[1], foot)], palette.METHODS["padded"], width=2.5)
        sheet.text(ticks[1], _TOP - 13, f"{self.one} = 1", anchor="middle", size=11)
        mark(sheet, (12, 40), _DIAMOND, sheet.colours.ground, colour)
        sheet.text(24, 44, "FLOPs")
        mark(sheet, (88, 40), _DOT, colour, sheet.colours.line)
        sheet.text(100, 44, "time: median, with quartiles")
        for at, label in ((right + 66, "FLOPs"), (right + 122, "time"), (right + 238, "quartiles")):
            sheet.text(at, _TOP - 13, label, anchor="end", size=11, ink=muted)

    def _row(self, sheet: Sheet, row: Row, x: Callable[[float], float], sides: tuple[float, float, float]) -> None:
        (left, y, right), colour = sides, palette.METHODS["packed"]
        sheet.text(left - 12, y + 4, row.name, anchor="end")
        sheet.layer()
        sheet.line([(x(row.work), y), (x(row.time), y)], colour, width=2.5)
        sheet.path(
            "".join(f"M{n(x(end))} {n(y - 5)}v10" for end in (row.low, row.high)), stroke=sheet.colours.text, width=1.5
        )
        sheet.path(f"M{n(x(row.low))} {n(y)}H{n(x(row.high))}", stroke=sheet.colours.text, width=1.5)
        mark(sheet, (x(row.work), y), _DIAMOND, sheet.colours.ground, colour)
        mark(sheet, (x(row.time), y), _DOT, colour, sheet.colours.line)
        low, high = (f"{row.low:.2f} –", f"{row.high:.2f}") if row.clear else ("", "not clear")
        before = 230 - max(width_of(f"{one.high:.2f}") for one in self.rows)
        for at, words in ((66, f"{row.work:.2f}"), (122, f"{row.time:.2f}"), (before, low), (238, high)):
            bold = at == 122
            ink = sheet.colours.text if bold else sheet.colours.muted
            sheet.text(right + at, y + 4, words, anchor="end", bold=bold, ink=ink)
