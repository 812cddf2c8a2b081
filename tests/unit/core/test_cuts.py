"""Tests of cuts: the optimum is the same as that of trying everything."""

import itertools
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packviz.core.cuts import (
    StaircaseWork,
    best_cuts,
    count_work,
    cut_into_rectangles,
    cuts_at_lengths,
)

some_lengths = st.lists(st.integers(1, 9), min_size=1, max_size=7)
CALLS = st.sampled_from([0, 1, 3, 10, 50])


def cost(lengths, cuts, call):
    """Returns the cost of a staircase in cells."""
    work = count_work(lengths, cuts)
    return work.cells + call * work.calls


def every_staircase(lengths):
    """Yields all cuts that may be best."""
    first, *inner, last = cuts_at_lengths(lengths)
    for count in range(len(inner) + 1):
        for between in itertools.combinations(inner, count):
            yield (first, *between, last)


@given(some_lengths, CALLS)
def test_no_staircase_is_cheaper_than_the_best(lengths, call):
    costs = {cuts: cost(lengths, cuts, call) for cuts in every_staircase(lengths)}
    assert costs[best_cuts(lengths, call)] == min(costs.values())
    for calls in range(1, len(set(lengths)) + 1):
        cuts = best_cuts(lengths, call, calls)
        assert len(cuts) == calls + 1
        assert costs[cuts] == min(costs[other] for other in costs if len(other) == calls + 1)


@given(some_lengths)
def test_a_cut_elsewhere_than_at_an_end_never_helps(lengths):
    lowest = cost(lengths, best_cuts(lengths, 1), 1)
    longest = max(lengths)
    for count in range(3):
        for inner in itertools.combinations(range(1, longest), count):
            assert cost(lengths, (0, *inner, longest), 1) >= lowest


@given(some_lengths, st.data())
def test_rectangles_cover_exactly_the_cells_that_they_should(lengths, data):
    cuts = data.draw(st.sampled_from(list(every_staircase(lengths))))
    covered = np.zeros((len(lengths), max(lengths)), dtype=int)
    by_rank = sorted(lengths, reverse=True)
    for a, b, n in cut_into_rectangles(lengths, cuts):
        covered[:n, a:b] += 1
    real = np.arange(max(lengths)) < np.array(by_rank)[:, None]
    assert covered.max() == 1
    assert covered[real].all()
    wasted = (covered * ~real).sum()
    assert count_work(lengths, cuts) == StaircaseWork(len(cuts) - 1, covered.sum(), wasted)


def test_from_padding_to_packing():
    lengths = [8, 3, 5, 5, 1]
    assert best_cuts(lengths, 10**9) == best_cuts(lengths, 0, 1) == (0, 8)
    assert best_cuts(lengths, 0) == best_cuts(lengths, 0, 4) == cuts_at_lengths(lengths)
    assert cuts_at_lengths(lengths) == (0, 1, 3, 5, 8)
    assert cut_into_rectangles(lengths, (0, 3, 8)) == [(0, 3, 5), (3, 8, 3)]


@pytest.mark.parametrize("cuts", [(), (0,), (0, 4), (1, 5), (0, 3, 3, 5), (0, 5, 6)])
def test_cuts_that_are_none(cuts):
    with pytest.raises(
        ValueError, match=re.escape(f"staircase are {cuts}; give time steps that rise from 0 to 5")
    ):
        cut_into_rectangles([5, 2], cuts)
    for calls in (0, 3):
        with pytest.raises(
            ValueError, match=f"calls is {calls}; give 1 to 2, at most one for each distinct length"
        ):
            best_cuts([5, 2, 5], 1, calls)
