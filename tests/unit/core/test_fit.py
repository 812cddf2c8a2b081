"""Tests of least squares: known constants are found, and no other constants of at least 0 come closer."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

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


constants = st.lists(st.sampled_from([0.0, 1e-9, 1e-3, 1.0, 1e6]), min_size=4, max_size=4)


@given(constants.filter(any), st.integers(0, 99))
def test_constants_of_exact_measurements_are_found(made_of, seed):
    rows = np.random.default_rng(seed).uniform(1, 100, (30, 4))
    found = fit.nonnegative(rows / (rows @ made_of)[:, None])
    assert found.min() >= 0
    assert rows @ found == pytest.approx(rows @ made_of, rel=1e-5)


@given(st.integers(0, 99), st.integers(0, 3))
def test_nothing_that_is_not_negative_is_closer(seed, which):
    random = np.random.default_rng(seed)
    rows = random.normal(0.2, 1, (12, 4))
    rows[:, which] = 0
    found = fit.nonnegative(rows)
    assert found.min() >= 0
    assert found[which] == 0
    least = np.sum((rows @ found - 1) ** 2)
    for other in [*np.eye(4) * 1e-3, *-np.eye(4) * 1e-3, *random.normal(0, 0.1, (40, 4))]:
        near = np.maximum(found + other, 0)
        assert np.sum((rows @ near - 1) ** 2) >= least - 1e-9
