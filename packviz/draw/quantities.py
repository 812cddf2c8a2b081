"""Writes measured quantities as text, with no more digits than are known."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_UP, Decimal


def whole_percent(share: float) -> str:
    """Returns a measured share as a whole percentage, such as `91 %`."""
    return f"{100 * share:.0f} %"


def milliseconds(seconds: float) -> str:
    """Converts seconds to milliseconds, and returns the number as text without the unit."""
    return plain(1e3 * seconds)


def plain(value: float) -> str:
    """Returns a number with at most three significant digits, or whole from 1,000 upwards.

    For example, the text is `0.0123`, `12.3` or `12,345`.
    """
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def known(value: float, interval: tuple[float, float]) -> str:
    """Returns a number with only the digits that are known.

    It is `2.1`, for example, if the interval is 1.87 to 2.13.

    The number has one to three significant digits. With fewer than three, one unit of the last
    digit is at most the width of the interval. If the width is 0, the number is written as in
    `plain`.
    """
    low, high = interval
    if low == high:
        return plain(value)
    width = high - low if math.isfinite(high - low) else value
    last = max(_digit(width), _digit(value) - 2)
    return _rounded(value, last, ROUND_HALF_UP)


def between(interval: tuple[float, float]) -> str:
    """Returns an interval as text, such as `1.87 to 2.13`, or `–` if an end is not finite.

    The ends are rounded outwards, in steps of at most a tenth of the interval's width or to three
    significant digits, whichever is coarser.
    """
    low, high = interval
    if not math.isfinite(high - low):
        return "–"
    if low == high:
        return f"{plain(low)} to {plain(high)}"
    largest = max(abs(low), abs(high))
    last = max(_digit(high - low) - 1, _digit(largest) - 2)
    return f"{_rounded(low, last, ROUND_FLOOR)} to {_rounded(high, last, ROUND_CEILING)}"


def _digit(value: float) -> int:
    """Returns the exponent of ten of a number's first digit, such as 3 for 1,234."""
    return math.floor(math.log10(abs(value))) if value else 0


def _rounded(value: float, last: int, rounding: str) -> str:
    """Returns a number as text, rounded to a multiple of `10**last`, with at least one digit."""
    if value:
        last = min(last, _digit(value))
    unit = Decimal(1).scaleb(last)
    return f"{Decimal(f'{value:.12g}').quantize(unit, rounding):,f}"
