"""Axes with curves: the parts that all SVG charts share, and plots of numbers against a size, in rows. Pure.

Colour, marker and the name at the end of a curve show its method; dashes show where it was measured (your machine, a
recorded one).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from packviz.draw import palette, text
from packviz.draw.cellgrid import roomy
from packviz.draw.sheet import Point, Sheet, n, width_of

COLOURS = (*palette.METHODS.values(), palette.REAL)
"""Of the first, second, … method, the last for what is no method's; after it they start over."""


_BESIDE = 20.0  # names of curves that end so near to each other stand in one column
_MOST_TICKS = 8  # of a logarithmic axis


@dataclass(frozen=True)
class Axes:
    """A plot on a sheet: where numbers lie in it, and what stands around it.

    Attributes:
        sheet: what is drawn on.
        left: its left side, in px.
        top: its top.
        wide: its width.
        tall: its height.
        heights: the numbers that stand beside it, from the one at its foot to the one at its top.
        across: gives the share of the width, from 0 to 1, at which a number lies.
        log: whether heights lie at their logarithms.
    """

    sheet: Sheet
    left: float
    top: float
    wide: float
    tall: float
    heights: Sequence[float]
    across: Callable[[float], float]
    log: bool = False

    @property
    def right(self) -> float:
        """Its right side."""
        return self.left + self.wide

    @property
    def foot(self) -> float:
        """Its lower side."""
        return self.top + self.tall

    def x(self, value: float) -> float:
        """Where a number lies across."""
        return self.left + self.across(value) * self.wide

    def y(self, value: float) -> float:
        """Where a number lies in height; one that has no logarithm lies at the foot."""
        scale, low, high = math.log if self.log else float, self.heights[0], self.heights[-1]
        value = max(value, low) if self.log else value
        return self.top + (scale(high) - scale(value)) / (scale(high) - scale(low)) * self.tall

    def point(self, x: float, y: float) -> Point:
        """Where a point lies."""
        return self.x(x), self.y(y)

    def rows(self, title: str = "", unit: str = "") -> None:
        """A line at each of the heights with its number; the title above, and what the numbers are."""
        sheet = self.sheet
        if title:
            sheet.text(self.left, self.top - 16, title, bold=True)
        if unit:
            sheet.text(self.left - 6, self.top - 16, unit, anchor="end", size=11)
        for value in self.heights:
            y = self.y(value)
            sheet.line([(self.left, y), (self.right, y)], sheet.colours.hatch, width=0.5)
            if all(value == end or abs(y - self.y(end)) > 10 for end in (self.heights[0], self.heights[-1])):
                sheet.text(self.left - 10, y + 4, _number(value), anchor="end", size=11, ink=sheet.colours.muted)

    def columns(self, values: Iterable[float], name: str = "", before: str = "") -> None:
        """The line at the foot, and below it the numbers that have room.

        Args:
            values: the numbers, rising.
            name: what they are; stands below them.
            before: the same in short, on their left.
        """
        sheet, y = self.sheet, self.foot + 16
        sheet.line([(self.left, self.foot), (self.right, self.foot)])
        for x, label in roomy([(self.x(value), _number(value)) for value in values]):
            sheet.text(x, y, label, anchor="middle", size=11, ink=sheet.colours.muted)
        if name:
            sheet.text(self.left + self.wide / 2, y + 15, name, anchor="middle", size=11)
        if before:
            sheet.text(self.left - 6, y, before, anchor="end", size=11)

    def whiskers(self, spreads: Iterable[tuple[float, float, float]]) -> None:
        """A line from low to high at each number across: `(number, low, high)`."""
        d = ""
        for value, *ends in spreads:
            x, (low, high) = self.x(value), map(self.y, ends)
            d += f"M{n(x)} {n(low)}V{n(high)}M{n(x - 4)} {n(low)}h8M{n(x - 4)} {n(high)}h8"
        self.sheet.path(d, stroke=self.sheet.colours.line)

    def band(self, spreads: Sequence[tuple[float, float, float]], fill: str) -> None:
        """The area from low to high along a curve: `(number, low, high)`."""
        edge = [(x, high) for x, _, high in spreads] + [(x, low) for x, low, _ in reversed(spreads)]
        d = "M" + "L".join(f"{n(self.x(x))} {n(self.y(value))}" for x, value in edge) + "z"
        self.sheet.path(d, fill=fill, opacity=0.3)

    def names(self, ends: Iterable[tuple[Point, str]], lowest: float) -> None:
        """A name beside the end of each curve, none over another or below the lowest height, in px."""
        sheet, ends = self.sheet, list(ends)
        last = max((x for (x, _), _ in ends), default=0.0)
        ends = [((last if last - x < _BESIDE else x, y), name) for (x, y), name in ends]
        for right in sorted({x for (x, _), _ in ends}):
            here = sorted((y, name) for (x, y), name in ends if x == right)
            for beside, (y, name) in zip(spread_labels([y for y, _ in here], lowest), here, strict=True):
                sheet.line([(right + 7, y), (right + 18, beside)], sheet.colours.muted)
                sheet.text(right + 21, beside + 4, name, size=11, halo=sheet.colours.ground)


def ticks(low: float, high: float) -> list[float]:
    """At least two round numbers that enclose the range."""
    span = max(high - low, 1e-3)
    power = 10 ** math.floor(math.log10(span / 3))
    step = next(s * power for s in (1, 2, 5, 10) if s * power >= span / 4)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [round(i * step, 10) + 0.0 for i in range(first, max(last, first + 1) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """At least two round numbers that enclose the range, 1, 2 or 5 at the ends; if they are many, powers of ten."""
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    steps = [float(f"{digit}e{power}") for power in powers for digit in (1, 2, 5)]
    first = max(i for i, step in enumerate(steps) if step <= low * (1 + 1e-9))
    last = min(i for i, step in enumerate(steps) if step >= high * (1 - 1e-9))
    found = steps[first : max(last, first + 1) + 1]
    if len(found) <= _MOST_TICKS:
        return found
    return [step for step in found if step in (found[0], found[-1]) or f"{step:e}".startswith("1.000000")]


def spread_labels(heights: Sequence[float], lowest: float, gap: float = 12.0) -> list[float]:
    """The heights from top to bottom, moved so that labels there do not cover each other, none below the lowest."""
    placed = sorted(heights)
    for i in range(1, len(placed)):
        placed[i] = max(placed[i], placed[i - 1] + gap)
    for i in reversed(range(len(placed))):
        placed[i] = min(placed[i], lowest)
        lowest = placed[i] - gap
    return placed


def mark(sheet: Sheet, at: Point, shape: str, fill: str, stroke: str = "") -> None:
    """A small shape: an SVG path from the place that it marks."""
    sheet.path(f"M{n(at[0])} {n(at[1])}{shape}", fill=fill, stroke=stroke)


def line_key(
    sheet: Sheet, x: float, y: float, name: str, stroke: str = "", *, width: float = 2.5, dash: str = "", size: int = 12
) -> float:
    """What a look of lines means, on the line `y`; gives the x behind it."""
    sheet.line([(x, y - 4), (x + 34, y - 4)], stroke, width=width, dash=dash)
    sheet.text(x + 40, y, name, size=size)
    return x + 60 + width_of(name, size)


def _number(value: float) -> str:
    return f"{value:,g}" if abs(value) < 1e6 else text.short(round(value))
