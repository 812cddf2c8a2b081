"""Writes measured quantities as text, with no more digits than are known."""

from __future__ import annotations

import math


def whole_percent(share: float) -> str:
    """Returns a measured share as a whole percentage, such as `91 %`."""
    return f"{100 * share:.0f} %"


def plain(value: float) -> str:
    """Returns a number with at most three significant digits or, from 1,000 upwards, as a whole
    number.

    For example, the text is `0.0123`, `12.3` or `12,345`.
    """
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def known(value: float, interval: tuple[float, float]) -> str:
    """Returns a number with only the digits that are known, such as `2.1` if the interval is 1.87
    to 2.13.

    The number has one to three significant digits. If it has fewer than three, a unit of its last
    digit is no larger than the width of the interval. If the width is 0, the number is written as
    in `plain`.
    """
    width = interval[1] - interval[0]
    if not width:
        return plain(value)
    coarsest = math.floor(math.log10(width)) if math.isfinite(width) else _digit(value)
    return _to_digit(value, max(coarsest, _digit(value) - 2))


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
    last = max(math.floor(math.log10(high - low)) - 1, _digit(max(abs(low), abs(high))) - 2)
    ends = []
    for end, outwards, slack in ((low, math.floor, 1e-9), (high, math.ceil, -1e-9)):
        unit = 10.0 ** min(last, _digit(end) if end else last)
        ends.append(_to_digit(outwards(end / unit + slack) * unit, last))
    return " to ".join(ends)


def _digit(value: float) -> int:
    """Returns the exponent of ten of a number's first digit, such as 3 for 1,234."""
    return math.floor(math.log10(abs(value))) if value else 0


def _to_digit(value: float, last: int) -> str:
    """Rounds a number to a multiple of `10**last`, but keeps at least its first digit, and returns it as text."""
    last = min(last, _digit(value)) if value else last
    return f"{round(value, -last):,.{max(-last, 0)}f}"


def milliseconds(seconds: float) -> str:
    """Converts seconds to milliseconds, and returns the number as text without the unit."""
    return plain(1e3 * seconds)
