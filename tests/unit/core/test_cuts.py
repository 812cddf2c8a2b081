"""Tests of cuts: the optimum is the same as that of trying everything."""

import itertools
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packviz.core.cuts import Prediction, Rates, best_cuts, every_cut, predict, rectangles

some_lengths = st.lists(st.integers(1, 9), min_size=1, max_size=7)
some_rates = st.builds(
    Rates,
    st.sampled_from([0.0, 1.0]),
    st.sampled_from([0.0, 1.0, 2.5, 10.0, 50.0]),
    st.sampled_from([0.0, 1.0]),
    st.sampled_from([0.0, 0.5, 1.0, 3.0]),
)


def every_staircase(lengths):
    """Yields all cuts that may be best."""
    first, *inner, last = every_cut(lengths)
    for n in range(len(inner) + 1):
        for some in itertools.combinations(inner, n):
            yield (first, *some, last)


@given(some_lengths, some_rates)
def test_no_staircase_is_cheaper_than_the_best(lengths, rates):
    seconds = {cuts: predict(lengths, cuts, rates).seconds for cuts in every_staircase(lengths)}
    assert seconds[best_cuts(lengths, rates)] == pytest.approx(min(seconds.values()))
    for calls in range(1, len(set(lengths)) + 1):
        best = min(time for cuts, time in seconds.items() if len(cuts) == calls + 1)
        cuts = best_cuts(lengths, rates, calls)
        assert len(cuts) == calls + 1
        assert seconds[cuts] == pytest.approx(best)


@given(some_lengths)
def test_a_cut_elsewhere_than_at_an_end_never_helps(lengths):
    rates = Rates(0, 1, 0, 1)
    best = predict(lengths, best_cuts(lengths, rates), rates).seconds
    inner = range(1, max(lengths))
    for some in itertools.chain.from_iterable(itertools.combinations(inner, n) for n in range(3)):
        assert predict(lengths, (0, *some, max(lengths)), rates).seconds >= best - 1e-9


@given(some_lengths, st.data())
def test_rectangles_cover_exactly_the_cells_that_they_should(lengths, data):
    cuts = data.draw(st.sampled_from(list(every_staircase(lengths))))
    covered = np.zeros((len(lengths), max(lengths)), dtype=int)
    by_rank = sorted(lengths, reverse=True)
    for a, b, n in rectangles(lengths, cuts):
        covered[:n, a:b] += 1
    real = np.arange(max(lengths)) < np.array(by_rank)[:, None]
    assert covered.max() == 1
    assert covered[real].all()
    found = predict(lengths, cuts, Rates(0, 0, 0, 1))
    assert found == Prediction(covered.sum(), len(cuts) - 1, covered.sum(), (covered * ~real).sum())


def test_from_padding_to_packing():
    lengths = [8, 3, 5, 5, 1]
    free, dear = Rates(0, 0, 0, 1), Rates(0, 1e9, 0, 1)
    assert best_cuts(lengths, dear) == best_cuts(lengths, free, 1) == (0, 8)
    assert (
        best_cuts(lengths, free)
        == best_cuts(lengths, free, 4)
        == every_cut(lengths)
        == (0, 1, 3, 5, 8)
    )
    assert rectangles(lengths, (0, 3, 8)) == [(0, 3, 5), (3, 8, 3)]
    assert Rates(1, 2, 3, 4, 5).seconds(6, 7, 8) == 1 + 2 * 6 + 3 * 7 + 4 * 8 + 5 * 7 * 8


@pytest.mark.parametrize("cuts", [(), (0,), (0, 4), (1, 5), (0, 3, 3, 5), (0, 5, 6)])
def test_cuts_that_are_none(cuts):
    with pytest.raises(
        ValueError, match=re.escape(f"cuts are {cuts}; give time steps that rise from 0 to 5")
    ):
        rectangles([5, 2], cuts)
    for calls in (0, 3):
        with pytest.raises(
            ValueError, match=f"calls is {calls}; these lengths allow 1 to 2 rectangles"
        ):
            best_cuts([5, 2, 5], Rates(0, 1, 0, 1), calls)
