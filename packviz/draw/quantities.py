"""Writes measured quantities as text, with no more digits than are known."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_UP, Decimal


def whole_percent(share: float) -> str:
    """Returns a measured share as a whole percentage, such as `91 %`."""
    return f"{100 * share:.0f} %"


def format_milliseconds(seconds: float) -> str:
    """Converts seconds to milliseconds, and returns the number as text without the unit."""
    return plain_number(1e3 * seconds)


def plain_number(value: float) -> str:
    """Returns a number with at most three significant digits, or whole from 1,000 upwards.

    For example, the text is `0.0123`, `12.3` or `12,345`.
    """
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def format_known_digits(value: float, interval: tuple[float, float]) -> str:
    """Returns a number with only the digits that are known.

    It is `2.1`, for example, if the interval is 1.87 to 2.13.

    The number has one to three significant digits. With fewer than three, one unit of the last
    digit is at most the width of the interval. If the width is 0, the number is written as in
    `plain_number`.
    """
    low, high = interval
    if low == high:
        return plain_number(value)
    width = high - low if math.isfinite(high - low) else value
    exponent = max(_exponent(width), _exponent(value) - 2)
    return _rounded_text(value, exponent, ROUND_HALF_UP)


def format_interval(interval: tuple[float, float]) -> str:
    """Returns an interval as text, such as `1.87 to 2.13`, or `–` if an end is not finite.

    The ends are rounded outwards, in steps of at most a tenth of the interval's width or to three
    significant digits, whichever is coarser.
    """
    low, high = interval
    if not math.isfinite(high - low):
        return "–"
    if low == high:
        return " to ".join(map(plain_number, interval))
    largest = max(abs(low), abs(high))
    exponent = max(_exponent(high - low) - 1, _exponent(largest) - 2)
    return (
        f"{_rounded_text(low, exponent, ROUND_FLOOR)}"
        f" to {_rounded_text(high, exponent, ROUND_CEILING)}"
    )


def _exponent(value: float) -> int:
    """Returns the exponent of ten of a number's first digit, such as 3 for 1,234."""
    return math.floor(math.log10(abs(value))) if value else 0


def _rounded_text(value: float, exponent: int, rounding: str) -> str:
    """Returns a number as text, rounded to a multiple of `10**exponent`.

    At least its first digit is kept.
    """
    if value:
        exponent = min(exponent, _exponent(value))
    unit = Decimal(1).scaleb(exponent)
    return f"{Decimal(f'{value:.12g}').quantize(unit, rounding):,f}"
