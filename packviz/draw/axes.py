"""What every drawing with axes needs: round numbers beside them, and labels that do not cover each other."""

from __future__ import annotations

import math
from collections.abc import Sequence


def ticks(low: float, high: float) -> list[float]:
    """At least two round numbers that enclose the range."""
    span = max(high - low, 1e-3)
    power = 10 ** math.floor(math.log10(span / 3))
    step = next(s * power for s in (1, 2, 5, 10) if s * power >= span / 4)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [round(i * step, 10) + 0.0 for i in range(first, max(last, first + 1) + 1)]


def apart(heights: Sequence[float], lowest: float, room: float = 12.0) -> list[float]:
    """The heights from top to bottom, moved so that labels there do not cover each other, none below the lowest."""
    placed = sorted(heights)
    for i in range(1, len(placed)):
        placed[i] = max(placed[i], placed[i - 1] + room)
    for i in reversed(range(len(placed))):
        placed[i] = min(placed[i], lowest)
        lowest = placed[i] - room
    return placed
