"""Tests the fit of a power law."""

import pytest

from packviz.core import fit


def test_exponent():
    x = [1, 3, 10, 50]
    for power in (-1, 0, 0.5, 2):
        assert fit.exponent(x, [7 * v**power for v in x]) == pytest.approx(power, abs=1e-12)
    for x, y in (([1], [1]), ([1, 2], [1]), ([1, 2], [0, 1]), ([-1, 2], [1, 1])):
        with pytest.raises(
            ValueError, match="x and y must have the same length, with at least two positive"
        ):
            fit.exponent(x, y)
