"""Draws FLOPs and times together, as multiples of the FLOPs and the time of the padded batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from packviz.draw import palette, spans
from packviz.draw.drawing import Drawing
from packviz.draw.sheet import Sheet
from packviz.draw.spans import Span
from packviz.draw.text import table


@dataclass(frozen=True, repr=False)
class WorkAndTime(Drawing):
    """Groups of spans that compare FLOPs with time.

    Attributes:
        title: the title, which states the finding.
        groups: the rows of each group, by the name of the group. A group maps the name of each row
            to a pair: the FLOPs as a multiple of the padded batch's FLOPs, and the time as a
            `packviz.measure.timing.Ratio`.
        notes: lines of text below the bars.
    """

    title: str
    groups: Mapping[str, Mapping[str, tuple[float, Any]]]
    notes: Sequence[str] = ()

    def to_text(self) -> str:
        """Returns the title, a table of the multiples, and the notes."""
        rows = [["", "FLOPs", "time", "quartiles"]]
        for name, group in self.groups.items():
            rows.append([name])
            for row, (work, time) in group.items():
                quartiles = f"{time.low:.2f} to {time.high:.2f}"
                if not time.is_clear:
                    quartiles += " (not clear)"
                multiples = [f"{work:.2f}", f"{time.value:.2f}"]
                rows.append([f"  {row}", *multiples, quartiles])
        lines = table(rows, "<  >7  >7  <")
        return "\n".join([self.title, "multiples of the padded batch", *lines, *self.notes])

    def sheet(self, theme: str) -> Sheet:
        """Draws a span from the FLOPs to the time of each row, and a line at 1."""
        groups: dict[str, dict[str, Span]] = {}
        for name, group in self.groups.items():
            groups[name] = {}
            for row, (work, time) in group.items():
                doubt = "" if time.is_clear else ", not clear"
                label = f"{work:.2f} × the FLOPs, {time.value:.2f} × the time{doubt}"
                groups[name][row] = (work, time.value, label, (time.low, time.high))
        sheet = spans.rows(
            self.title,
            groups,
            theme,
            fills=(palette.LIGHT.muted, palette.METHODS["packed"]),
            meanings=("FLOPs", "time, with quartiles"),
            axis="times the padded batch (logarithmic)",
            notes=self.notes,
        )
        sheet.description = self.to_text()
        return sheet
