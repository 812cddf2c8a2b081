"""Fits the exponent of a power law, and constants that must not be negative, by least squares."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


def exponent(x: Sequence[float], y: Sequence[float]) -> float:
    """Returns the exponent of the power law that fits best: the slope of the best-fitting line in a
    log–log chart.

    Raises:
        ValueError: `x` and `y` differ in length, contain fewer than two numbers, or contain a
            number that is not positive.
    """
    if len(x) != len(y) or len(x) < 2 or min(*x, *y) <= 0:
        raise ValueError(
            "x and y must have the same length, with at least two positive numbers each"
        )
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def nonnegative(rows: FloatArray) -> FloatArray:
    """Fits constants of at least 0 for which `rows @ constants` is as close to 1 as possible.

    This is the algorithm of Lawson and Hanson. To minimise the squared relative errors of a model
    that is linear in the constants, divide the coefficients for each measurement by that
    measurement.

    Args:
        rows: `(measurements, constants)` numbers. Columns may differ in scale. The constant for a
            column of zeros is 0.

    Returns:
        The constants, `(constants,)`.
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
