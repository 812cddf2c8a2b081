"""Least squares: a power, and constants that are not negative."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


def exponent(x: Sequence[float], y: Sequence[float]) -> float:
    """The power of `x` that `y` grows with: the slope of the straight line that fits best in a log–log chart.

    Raises:
        ValueError: fewer than two points, or a number that has no logarithm.
    """
    if len(x) != len(y) or len(x) < 2 or min(*x, *y) <= 0:
        raise ValueError("x and y must be at least two positive numbers each, and equally many")
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def nonnegative(rows: FloatArray) -> FloatArray:
    """The constants, none below 0, that bring `rows @ constants` closest to 1: by the method of Lawson and Hanson.

    Where a row is what a measurement is made of, divided by the measurement, these have the least squared relative
    error.

    Args:
        rows: `(measurements, constants)`, of any scale. The constant of a column of zeros is 0.

    Returns:
        `(constants,)`.
    """
    scale = np.linalg.norm(rows, axis=0)
    scale[scale == 0] = np.inf
    rows, ones = rows / scale, np.ones(len(rows))
    x, free = np.zeros(len(scale)), np.zeros(len(scale), dtype=bool)
    while (pull := np.where(free, 0, rows.T @ (ones - rows @ x))).max() > 1e-9:
        free[pull.argmax()] = True
        while True:
            found = np.zeros(len(x))
            found[free] = np.linalg.lstsq(rows[:, free], ones, rcond=None)[0]
            below = free & (found <= 0)
            if not below.any():
                break
            x += (x[below] / (x[below] - found[below])).min() * (found - x)
            free &= x > 1e-12
        x = found
    solution: FloatArray = x / scale
    return solution
