"""Fits the exponent of a power law by least squares."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def exponent(x: Sequence[float], y: Sequence[float]) -> float:
    """Returns the exponent of the power law that fits best.

    It is the slope of the best-fitting line in a log–log chart.

    Raises:
        ValueError: `x` and `y` differ in length, contain fewer than two numbers, or contain a
            number that is not positive.
    """
    if len(x) != len(y) or len(x) < 2 or min(*x, *y) <= 0:
        raise ValueError(
            "x and y must have the same length, with at least two positive numbers each"
        )
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])
