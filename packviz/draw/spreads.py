"""Measured times as bars: each method's with its spread, and a whole with its shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from packviz.draw import quantities
from packviz.draw.bars import _WIDTH, SOLID
from packviz.draw.sheet import HATCHED, Sheet, width_of
from packviz.draw.sheet import n as px


@dataclass(frozen=True)
class Spread:
    """A bar with its quartiles.

    Attributes:
        low: first quartile.
        middle: median: the length of the bar.
        high: third quartile.
        said: stands behind the bar.
        hatched: whether it is set apart from the others.
        bold: whether its name is.
        fill: its colour.
    """

    low: float
    middle: float
    high: float
    said: str
    hatched: bool = False
    bold: bool = False
    fill: str = SOLID


def spreads(
    title: str,
    rows: Mapping[str, Spread],
    theme: str,
    *,
    hatched: str = "",
    line: float | None = None,
    notes: Sequence[str] = (),
) -> Sheet:
    """A bar for each name with a whisker from quartile to quartile.

    Args:
        title: stands above.
        rows: the bars, by name.
        theme: a key of `palette.THEMES`.
        hatched: what it means that a bar is.
        line: where to draw a line down through all bars, such as the 1 of a ratio.
        notes: lines that stand below.
    """
    sheet, left = Sheet(theme, title), 24 + width_of(max(rows, key=len))
    scale = (_WIDTH - left - 230) / max(spread.high for spread in rows.values())
    sheet.title(title)
    if any(spread.hatched for spread in rows.values()):
        sheet.key(_WIDTH - 40 - width_of(hatched), 6, [(HATCHED, hatched)])
    whiskers, labels, y = "", [], 32.0
    across = left + scale * (line or 0.0)
    for name, spread in rows.items():
        low, middle, high = (left + scale * value for value in (spread.low, spread.middle, spread.high))
        sheet.box(left, y, middle - left, 20, HATCHED if spread.hatched else spread.fill)
        sheet.text(left - 8, y + 14, name, anchor="end", bold=spread.bold)
        behind = max(middle, high) + 10
        crossed = behind - 8 < across < behind + width_of(spread.said)
        labels.append((across + 8 if crossed else behind, y + 14, spread.said))
        whiskers += f"M{low:.2f} {y + 10:g}H{high:.2f}M{low:.2f} {y + 5:g}v10M{high:.2f} {y + 5:g}v10"
        y += 28
    sheet.layer()
    if line is not None:
        sheet.line([(across, 26), (across, y)], sheet.colours.accent, dash="4 3")
    _whiskers(sheet, whiskers)
    for label in labels:
        sheet.text(*label, halo=sheet.colours.ground)
    foot = sheet.paragraph(4, y + 4, notes, size=11, ink=sheet.colours.muted)
    sheet.size(max(_WIDTH, sheet.width), foot if notes else y + 4)
    return sheet


@dataclass(frozen=True)
class Share:
    """A part of a whole.

    Attributes:
        name: what it is.
        share: how much of the whole, from 0 to 1.
        fill: of its stretch of the bar; `HATCHED` is wasted work.
        ends: the quartiles of where its stretch ends, from 0 to 1; none if it is not known.
    """

    name: str
    share: float
    fill: str
    ends: tuple[float, float] | None = None


def shares(
    title: str, rows: Mapping[str, tuple[Sequence[Share], str]], theme: str, *, notes: Sequence[str] = ()
) -> Sheet:
    """Bars of equal length, each cut into the shares of a whole, which are named below it.

    Args:
        title: stands above.
        rows: by name, the shares of a bar from left to right, and what is said behind it.
        theme: a key of `palette.THEMES`.
        notes: lines that stand below.
    """
    sheet, left = Sheet(theme, title), 24 + width_of(max(rows, key=len))
    sheet.title(title)
    wide, y, whiskers = _WIDTH - left - 110, 32.0, ""
    for name, (parts, said) in rows.items():
        sheet.text(left - 8, y + 14, name, anchor="end")
        sheet.text(left + wide + 10, y + 14, said)
        x, labels = left, []
        for part in parts:
            sheet.box(x, y, wide * part.share, 20, part.fill)
            labels.append((x + wide * part.share / 2, f"{part.name} {quantities.whole_percent(part.share)}"))
            x += wide * part.share
            if part.ends:
                low, high = (left + wide * end for end in part.ends)
                at = y + 5 * (len(labels) % 2 * 2 - 1) + 10  # neighbours apart
                whiskers += f"M{px(low)} {px(at)}H{px(high)}M{px(low)} {px(at - 4)}v8M{px(high)} {px(at - 4)}v8"
        # Each below the middle of its stretch, moved to the left where the next ones leave no room.
        free = left + wide + 90
        for middle, label in reversed(labels):
            room = width_of(label, 11)
            at = min(middle + room / 2, free)
            sheet.text(at, y + 36, label, anchor="end", size=11)
            sheet.line([(middle, y + 20), (at - room / 2, y + 26)], sheet.colours.muted)
            free = at - room - 14
        y += 54
    sheet.layer()
    _whiskers(sheet, whiskers)
    foot = sheet.paragraph(4, y, notes, size=11, ink=sheet.colours.muted)
    sheet.size(max(_WIDTH, sheet.width), foot if notes else y + 4)
    return sheet


def _whiskers(sheet: Sheet, path: str) -> None:
    """Seen on whatever they stand."""
    sheet.path(path, stroke=sheet.colours.ground, width=4)
    sheet.path(path, stroke=sheet.colours.text, width=1.5)
