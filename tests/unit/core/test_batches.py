"""Tests of batches and shares: each sequence is in one, similar lengths meet, and a plain loop
counts the same."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from packviz.core import batches as buckets
from packviz.core.batches import (
    BUCKETED,
    CUT,
    FILLS,
    FIRST_FIT,
    NEXT_FIT,
    ORDERS,
    PADDED,
    SORTED,
    SPLITS,
)
from packviz.core.layout import Layout

lengths = st.lists(st.integers(1, 60), min_size=1, max_size=80)
seeds = st.integers(0, 5)


@given(lengths, st.integers(1, 20), st.sampled_from(ORDERS), st.integers(1, 5), seeds)
def test_every_sequence_is_in_one_batch(n, batch_size, order, window, seed):
    groups = buckets.batches(n, batch_size, order, window=window, seed=seed)
    assert sorted(np.concatenate(groups).tolist()) == list(range(len(n)))
    assert sorted(map(len, groups), reverse=True)[:-1] == [batch_size] * (len(groups) - 1)
    assert len(groups) == -(-len(n) // batch_size)
    again = buckets.batches(torch.tensor(n), batch_size, order, window=window, seed=seed)
    assert [b.tolist() for b in again] == [b.tolist() for b in groups]


@given(lengths, st.integers(1, 20), seeds)
def test_the_orders(n, batch_size, seed):
    as_they_come, shuffled, _, in_order = (
        np.concatenate(buckets.batches(n, batch_size, order, seed=seed)).tolist()
        for order in ORDERS
    )
    assert as_they_come == list(range(len(n)))
    assert shuffled == np.random.default_rng(seed).permutation(len(n)).tolist()
    assert in_order == sorted(range(len(n)), key=lambda i: -n[i])  # stable


@given(lengths, st.integers(1, 20), seeds)
def test_one_window_of_buckets_is_all_sorted(n, batch_size, seed):
    """The batches of a window follow each other in length. Here one window contains all batches."""
    groups = buckets.batches(n, batch_size, BUCKETED, seed=seed)
    ranked = sorted(([n[i] for i in batch] for batch in groups), reverse=True)
    assert [length for batch in ranked for length in batch] == sorted(n, reverse=True)
    padding = []
    for order in (BUCKETED, SORTED):
        batches = buckets.batches(n, batch_size, order, seed=seed)
        padding.append(sum(Layout([n[i] for i in batch]).n_padding for batch in batches))
    assert padding[0] == padding[1]


@given(lengths, st.integers(1, 9), st.sampled_from(SPLITS))
def test_every_sequence_has_one_worker(n, processes, strategy):
    shares = buckets.split(n, processes, strategy)
    assert len(shares) == processes
    assert sorted(np.concatenate(shares).tolist()) == list(range(len(n)))
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1
    for share in shares:
        assert [n[i] for i in share] == sorted((n[i] for i in share), reverse=True)


def test_the_ways_to_split():
    shares = [
        [[0, 1, 2, 3], [4, 5, 6, 7]],
        [[0, 2, 4, 6], [1, 3, 5, 7]],
        [[0, 3, 4, 7], [1, 2, 5, 6]],
    ]
    n = [80, 70, 60, 50, 40, 30, 7, 5]
    assert [
        [share.tolist() for share in buckets.split(n, 2, strategy)] for strategy in SPLITS
    ] == shares


@given(lengths, st.integers(1, 20), st.integers(1, 5), st.sampled_from(SPLITS), seeds)
def test_counts(n, batch_size, processes, strategy, seed):
    groups = buckets.batches(n, batch_size, seed=seed)
    tokens = buckets.tokens(n, groups, processes, strategy)
    for group, row in zip(groups, tokens.tolist(), strict=True):
        own = [n[i] for i in group]
        assert row == [
            sum(own[i] for i in share) for share in buckets.split(own, processes, strategy)
        ]
    waiting = sum(max(row) - mine for row in tokens.tolist() for mine in row)
    spent = processes * sum(max(row) for row in tokens.tolist())
    assert buckets.idle(tokens) == pytest.approx(waiting / spent)
    assert not buckets.tokens(n, [[]], processes, strategy).any()


WRONG = {
    r"batch_size is 0; give a whole number of at least 1": lambda: buckets.batches([1], 0),
    r"window is 1.5; give": lambda: buckets.batches([1], 2, BUCKETED, window=1.5),
    r"window is 0": lambda: buckets.batches([1], 2, SORTED, window=0),
    r"seed is -1; give a whole number": lambda: buckets.batches([1], 2, seed=-1),
    r"^lengths\[0\] is -1": lambda: buckets.batches([-1], 2),
    r"order is 'random'; choose one of 'as they": lambda: buckets.batches([1], 1, "random"),
    r"processes is 0": lambda: buckets.split([1], 0),
    r"strategy is 'zigzag'; choose one of 'cont": lambda: buckets.split([1], 1, "zigzag"),
    r"processes is 2.0": lambda: buckets.tokens([1], [np.array([0])], 2.0),
    r"^lengths\[1\] is 9, but row_size is 8; inc": lambda: buckets.fill([5, 9, 3], 8),
    r"^lengths\[1\] is 0": lambda: buckets.fill([3, 0, 2], 8),
    r"^row_size is 0": lambda: buckets.fill([5], 0),
    r"^strategy is 'best'": lambda: buckets.fill([5], 8, "best"),
}


@pytest.mark.parametrize("message", WRONG)
def test_bad_input(message):
    with pytest.raises(ValueError, match=message):
        WRONG[message]()


def fewest(lengths, row_size, rows=()):
    """Returns the smallest number of rows for these sequences, groups by trying everything."""
    if not lengths:
        return len(rows)
    first, rest = lengths[0], lengths[1:]
    tries = [
        (*rows[:i], left - first, *rows[i + 1 :]) for i, left in enumerate(rows) if left >= first
    ]
    return min(fewest(rest, row_size, tried) for tried in [*tries, (*rows, row_size - first)])


@given(
    lengths,
    st.integers(0, 200),
    st.sampled_from([strategy for strategy in FILLS if strategy != CUT]),
)
def test_no_sequence_is_cut_or_lost_and_no_row_overfull(n, spare, strategy):
    row_size = max(n) + spare
    rows = [row.tolist() for row in buckets.fill(n, row_size, strategy)]
    assert sorted(b for row in rows for b in row) == list(range(len(n)))
    held = [sum(n[b] for b in row) for row in rows]
    assert max(held) <= row_size
    assert len(rows) >= -(-sum(n) // row_size)
    if strategy == PADDED:
        assert rows == [[b] for b in range(len(n))]
    elif strategy == NEXT_FIT:  # a new row is begun only for what did not fit the last
        assert [b for row in rows for b in row] == list(range(len(n)))
        assert all(held[i] + n[rows[i + 1][0]] > row_size for i in range(len(rows) - 1))
    else:  # a sequence lies in the first row that had room for it
        order = (
            range(len(n)) if strategy == FIRST_FIT else sorted(range(len(n)), key=lambda b: -n[b])
        )
        left = [row_size] * len(n)
        for b in order:
            first = next(r for r, steps in enumerate(left) if steps >= n[b])
            assert b in rows[first]
            left[first] -= n[b]


@given(lengths, st.integers(1, 70))
def test_cut_rows_are_full_but_for_the_last(n, row_size):
    """Each row contains the sequences of its part of all time steps, whatever their lengths."""
    stream = [b for b, size in enumerate(n) for _ in range(size)]
    stretches = [stream[i : i + row_size] for i in range(0, len(stream), row_size)]
    assert [row.tolist() for row in buckets.fill(n, row_size, CUT)] == [
        sorted({*stretch}) for stretch in stretches
    ]


@given(st.lists(st.integers(1, 10), min_size=1, max_size=7), st.integers(0, 10))
def test_first_fit_decreasing_is_near_the_fewest_rows(n, spare):
    row_size = max(n) + spare
    best = fewest(tuple(n), row_size)
    assert best <= len(buckets.fill(n, row_size)) <= (11 * best + 6) / 9
