"""Draws spans between two values of a row, such as FLOPs and time, on a logarithmic axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from packviz.draw.curves import MARKERS, Scale, log_ticks, mark
from packviz.draw.drawing import Drawing
from packviz.draw.palette import LIGHT, METHODS
from packviz.draw.sheet import WIDTH, Sheet, widest, width_of
from packviz.draw.text import table

_ROW = 26.0  # px: from one row to the next


@dataclass(frozen=True)
class Spans(Drawing):
    """Groups of rows, each with a span between two multiples of the same quantity.

    The two multiples are a row's FLOPs and its time, each relative to the padded batch.

    Attributes:
        title: the title, which states the finding.
        groups: the rows of each group, by the name of the group, which may be empty. A group maps
            the name of each row to a pair: the multiple of the FLOPs, and that of the time as a
            `packviz.measure.timing.Ratio`, whose quartiles are drawn as a whisker.
        notes: lines of text below the rows.
    """

    title: str
    groups: Mapping[str, Mapping[str, tuple[float, Any]]]
    notes: Sequence[str]

    def to_text(self) -> str:
        """Returns the title, the multiples, and the notes."""
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
        labels = []
        for first, last in chain(*(group.values() for group in self.groups.values())):
            values += [first, last.value, last.low, last.high]
            doubt = "" if last.is_clear else ", not clear"
            labels.append(f"{first:.2f} × the FLOPs, {last.value:.2f} × the time{doubt}")
        marks = log_ticks(min(values), max(values))
        scale = Scale(marks, marks[0], marks[-1], log=True)
        left = 24 + widest(chain(*self.groups.values()))
        wide = WIDTH - left - 20 - widest(labels)

        def across(value: float) -> float:
            return left + wide * scale.share(value)

        y = sheet.title(self.title)
        x = 10.0
        for is_time, meaning in enumerate(("FLOPs", "time, with quartiles")):
            _mark(sheet, x, y + 12, is_time=bool(is_time))
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
                above.line([(start, middle), (end, middle)], METHODS["packed"], width=3)
                above.line([(across(last.low), middle), (high, middle)], width=1.5)
                _mark(above, start, middle, is_time=False)
                _mark(above, end, middle, is_time=True)
                right = max(start, end, high) + 12
                above.text(right, middle + 4, next(unused), halo=colours.ground)
                y += _ROW
        for value in marks:
            x = across(value)
            stroke = colours.hatch
            width = 0.5
            if value == 1:
                stroke = colours.accent
                width = 1.5
            sheet.line([(x, top - 2), (x, y)], stroke, width=width, dash="4 3")
            sheet.note(x, y + 14, f"{value:g}", "middle")
        sheet.note(WIDTH - 8, y + 30, "times the padded batch (logarithmic)", "end")
        sheet.place(above, 0, 0)
        foot = sheet.paragraph(y + 38, self.notes)
        sheet.size(max(WIDTH, sheet.width), foot)
        return sheet


def _mark(sheet: Sheet, x: float, y: float, *, is_time: bool) -> None:
    """Draws the marker of FLOPs, which is hollow, or of a time."""
    if is_time:
        mark(sheet, (x, y), MARKERS["circle"], METHODS["packed"], sheet.colours.line)
    else:
        mark(sheet, (x, y), MARKERS["diamond"], sheet.colours.ground, LIGHT.muted)
