"""Work and time beside each other, as multiples of those of one and the same thing. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from packviz.draw import bars, palette
from packviz.draw.drawing import Drawing
from packviz.draw.sheet import Sheet
from packviz.draw.text import table


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
class WorkAndTime(Drawing):
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
        """A bar from 1 to the time with its quartiles, on a logarithmic axis, and a hollow diamond for the work."""
        groups = {
            name: {
                row.name: bars.Bar(
                    [(row.time, palette.METHODS["packed"])],
                    f"{row.time:.2f} × the time{'' if row.clear else ', not clear'}; {row.work:.2f} × the FLOPs",
                    (row.low, row.high),
                    mark=row.work,
                )
                for row in group
            }
            for name, group in self.groups.items()
        }
        notes = [f"◇ FLOPs. Bars begin at 1, {self.one}, and end at the median of the time; whiskers: quartiles."]
        sheet = bars.rows(self.title, groups, theme, line=1, log=True, notes=[*notes, *self.notes])
        sheet.description = self.to_text()
        return sheet
