"""Draws spans between two values of a row, such as FLOPs and time, on a logarithmic axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from packviz.draw.curves import MARKER_PATHS, AxisScale, draw_marker, log_ticks
from packviz.draw.drawing import Drawing
from packviz.draw.palette import LIGHT, METHODS
from packviz.draw.sheet import WIDTH, Sheet, max_text_width, text_width
from packviz.draw.text import table

_ROW_HEIGHT = 26.0  # px: from one row to the next


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
            for row, (flops_ratio, time_ratio) in group.items():
                quartiles_text = f"{time_ratio.low:.2f} to {time_ratio.high:.2f}"
                if not time_ratio.is_clear:
                    quartiles_text += " (not clear)"
                rows.append(
                    [f"  {row}", f"{flops_ratio:.2f}", f"{time_ratio.value:.2f}", quartiles_text]
                )
        lines = table(rows, "<  >7  >7  <")
        return "\n".join([self.title, "multiples of the padded batch", *lines, *self.notes])

    def sheet(self, theme: str) -> Sheet:
        """Draws a span for each row of each group. A line crosses all rows at 1."""
        sheet = Sheet(theme, self.to_text())
        colours = sheet.colours
        values = [1.0]
        labels = []
        for flops_ratio, time_ratio in chain(*(group.values() for group in self.groups.values())):
            values += [flops_ratio, time_ratio.value, time_ratio.low, time_ratio.high]
            doubt = "" if time_ratio.is_clear else ", not clear"
            labels.append(
                f"{flops_ratio:.2f} × the FLOPs, {time_ratio.value:.2f} × the time{doubt}"
            )
        ticks = log_ticks(min(values), max(values))
        scale = AxisScale(ticks, ticks[0], ticks[-1], is_log=True)
        left = 24 + max_text_width(chain(*self.groups.values()))
        plot_width = WIDTH - left - 20 - max_text_width(labels)

        def x_of(value: float) -> float:
            return left + plot_width * scale.fraction(value)

        y = sheet.title(self.title)
        x = 10.0
        for marks_duration, legend_label in enumerate(("FLOPs", "time, with quartiles")):
            _draw_marker(sheet, x, y + 12, marks_duration=bool(marks_duration))
            sheet.text(x + 12, y + 16, legend_label)
            x += 40 + text_width(legend_label)
        y += 28
        top = y
        overlay_sheet = Sheet(theme)
        label_iterator = iter(labels)
        for name, group in self.groups.items():
            overlay_sheet.text(4, y + 17, name, bold=True, halo=colours.ground)
            y += _ROW_HEIGHT if name else 0
            for row, (flops_ratio, time_ratio) in group.items():
                middle = y + 12
                sheet.text(left - 12, middle + 4, row, anchor="end")
                start = x_of(flops_ratio)
                end = x_of(time_ratio.value)
                high_x = x_of(time_ratio.high)
                overlay_sheet.line([(start, middle), (end, middle)], METHODS["packed"], width=3)
                overlay_sheet.line([(x_of(time_ratio.low), middle), (high_x, middle)], width=1.5)
                _draw_marker(overlay_sheet, start, middle, marks_duration=False)
                _draw_marker(overlay_sheet, end, middle, marks_duration=True)
                right = max(start, end, high_x) + 12
                overlay_sheet.text(right, middle + 4, next(label_iterator), halo=colours.ground)
                y += _ROW_HEIGHT
        for value in ticks:
            x = x_of(value)
            line_colour = colours.hatch
            line_width = 0.5
            if value == 1:
                line_colour = colours.accent
                line_width = 1.5
            sheet.line([(x, top - 2), (x, y)], line_colour, width=line_width, dash="4 3")
            sheet.note(x, y + 14, f"{value:g}", "middle")
        sheet.note(WIDTH - 8, y + 30, "times the padded batch (logarithmic)", "end")
        sheet.place(overlay_sheet, 0, 0)
        bottom = sheet.paragraph(y + 38, self.notes)
        sheet.set_size(max(WIDTH, sheet.width), bottom)
        return sheet


def _draw_marker(sheet: Sheet, x: float, y: float, *, marks_duration: bool) -> None:
    """Draws the marker of FLOPs, which is hollow, or of a time."""
    if marks_duration:
        draw_marker(sheet, (x, y), MARKER_PATHS["circle"], METHODS["packed"], sheet.colours.line)
    else:
        draw_marker(sheet, (x, y), MARKER_PATHS["diamond"], sheet.colours.ground, LIGHT.muted)
