"""Draws spans between two values of a row, such as FLOPs and time, on a logarithmic axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from packviz.draw.curves import MARKERS, Scale, log_ticks, mark
from packviz.draw.drawing import Drawing
from packviz.draw.palette import LIGHT, METHODS
from packviz.draw.sheet import WIDTH, Sheet, width_of
from packviz.draw.text import table

_ROW = 26.0  # px: from one row to the next
_DIAMOND = MARKERS["diamond"]
_CIRCLE = MARKERS["circle"]
_LEFT = "m-7 0l10-6v12z"  # an arrowhead
_RIGHT = "m7 0l-10-6v12z"


@dataclass(frozen=True)
class Spans(Drawing):
    """Groups of rows, each with a span between two multiples of the same quantity.

    By default, the two multiples are a row's FLOPs and its time, each relative to the padded batch.

    Attributes:
        title: the title, which states the finding.
        groups: the rows of each group, by the name of the group, which may be empty. A group maps
            the name of each row to a pair: the first multiple, and the second as a
            `packviz.measure.timing.Ratio`, whose quartiles are drawn as a whisker.
        notes: lines of text below the rows.
        meanings: what the first and the second multiple mean.
        fills: the colours of the first and of the second multiple.
        axis: the title of the axis.
        arrows: the text after each row if the spans are arrows. Otherwise, they end in a circle,
            and both multiples are written.
        words: the content in words. Defaults to a table of FLOPs and times.
    """

    title: str
    groups: Mapping[str, Mapping[str, tuple[float, Any]]]
    notes: Sequence[str] = ()
    meanings: tuple[str, str] = ("FLOPs", "time, with quartiles")
    fills: tuple[str, str] = (LIGHT.muted, METHODS["packed"])
    axis: str = "times the padded batch (logarithmic)"
    arrows: Sequence[str] = ()
    words: str = ""

    def to_text(self) -> str:
        """Returns the title, the multiples, and the notes."""
        if self.words:
            return self.words
        rows = [["", "FLOPs", "time", "quartiles"]]
        for name, group in self.groups.items():
            rows.append([name])
            for row, (work, time) in group.items():
                quartiles = f"{time.low:.2f} to {time.high:.2f}"
                if not time.is_clear:
                    quartiles += " (not clear)"
                rows.append([f"  {row}", f"{work:.2f}", f"{time.value:.2f}", quartiles])
        lines = table(rows, "<  >7  >7  <")
        return "\n".join([self.title, "multiples of the padded batch", *lines, *self.notes])

    def sheet(self, theme: str) -> Sheet:
        """Draws a span for each row of each group. A line crosses all rows at 1."""
        sheet = Sheet(theme, self.to_text())
        colours = sheet.colours
        values = [1.0]
        labels = [*self.arrows]
        for first, last in chain(*(group.values() for group in self.groups.values())):
            values += [first, last.value, last.low, last.high]
            if not self.arrows:
                doubt = "" if last.is_clear else ", not clear"
                labels.append(f"{first:.2f} × the FLOPs, {last.value:.2f} × the time{doubt}")
        marks = log_ticks(min(values), max(values))
        scale = Scale(marks, marks[0], marks[-1], log=True)
        left = 24 + max(map(width_of, chain(*self.groups.values())), default=0.0)
        wide = WIDTH - left - 20 - max(map(width_of, labels), default=0.0)

        def across(value: float) -> float:
            return left + wide * scale.share(value)

        y = sheet.title(self.title)
        x = 10.0
        ends = (_DIAMOND, _LEFT if self.arrows else _CIRCLE)
        for which, (shape, meaning) in enumerate(zip(ends, self.meanings, strict=True)):
            self._mark(sheet, x, y + 12, which, shape)
            sheet.text(x + 12, y + 16, meaning)
            x += 40 + width_of(meaning)
        y += 28
        top = y
        above = Sheet(theme)
        unused = iter(labels)
        for name, group in self.groups.items():
            above.text(4, y + 17, name, bold=True, halo=colours.ground)
            y += _ROW if name else 0
            for row, (first, last) in group.items():
                middle = y + 12
                sheet.text(left - 12, middle + 4, row, anchor="end")
                start = across(first)
                end = across(last.value)
                high = across(last.high)
                above.line([(start, middle), (end, middle)], self.fills[1], width=3)
                above.line([(across(last.low), middle), (high, middle)], width=1.5)
                self._mark(above, start, middle, 0, _DIAMOND)
                head = _LEFT if end < start else _RIGHT
                self._mark(above, end, middle, 1, head if self.arrows else _CIRCLE)
                right = max(start, end, high) + 12
                above.text(right, middle + 4, next(unused), halo=colours.ground)
                y += _ROW
        for value in marks:
            x = across(value)
            if value == 1:
                sheet.line([(x, top - 2), (x, y)], colours.accent, width=1.5, dash="4 3")
            else:
                sheet.line([(x, top - 2), (x, y)], colours.hatch, width=0.5, dash="4 3")
            sheet.note(x, y + 14, f"{value:g}", "middle")
        sheet.note(WIDTH - 8, y + 30, self.axis, "end")
        sheet.place(above, 0, 0)
        foot = sheet.paragraph(4, y + 38, self.notes, size=11, ink=colours.muted)
        sheet.size(max(WIDTH, sheet.width), foot)
        return sheet

    def _mark(self, sheet: Sheet, x: float, y: float, which: int, shape: str) -> None:
        """Draws the marker of the first multiple, which is hollow, or of the second."""
        if which:
            mark(sheet, (x, y), shape, self.fills[1], sheet.colours.line)
        else:
            mark(sheet, (x, y), shape, sheet.colours.ground, self.fills[0])
