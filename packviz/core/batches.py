"""Which sequences share a batch, and which worker takes them: index lists, from lengths alone.

A batch is as wide as its longest sequence, so batches of similar lengths (*buckets*) hold little padding. And a step of
several workers is over when the slowest is, so their shares should hold equally many tokens (real time steps).

Examples:
    >>> import packviz as pv
    >>> groups = pv.batches.batches([7, 2, 9, 3, 8, 1], 2, "sorted")
    >>> [group.tolist() for group in groups]
    [[2, 4], [0, 3], [1, 5]]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from packviz.core.layout import IntArray, Layout
from packviz.core.validation import at_least, one_of, renamed

AS_THEY_COME, SHUFFLED, BUCKETED, SORTED = "as they come", "shuffled", "bucketed", "sorted"
ORDERS = (AS_THEY_COME, SHUFFLED, BUCKETED, SORTED)
"""How sequences are put into batches."""

CONTIGUOUS, STRIDED, SNAKE = "contiguous", "strided", "snake"
SPLITS = (CONTIGUOUS, STRIDED, SNAKE)
"""How a batch, longest sequence first, is dealt out to workers: in blocks; in turn; in turn there and back."""

NEXT_FIT, FIRST_FIT, FIRST_FIT_DECREASING = "next-fit", "first-fit", "first-fit decreasing"
PADDED, CUT = "padded", "cut where the row ends"
FILLS = (PADDED, NEXT_FIT, FIRST_FIT, FIRST_FIT_DECREASING, CUT)
"""Which row takes a sequence: one of its own; the last one begun; the first with room; the first with room, longest
sequence first; or the last one begun takes what it has room for, and the next ones the rest."""

WINDOW = 50
"""Batches that are sorted together: enough for little padding, few enough that an epoch stays random."""


def batches(
    lengths: Any, batch_size: int, order: str = SHUFFLED, *, window: int = WINDOW, seed: int = 0
) -> list[IntArray]:
    """The batches of one epoch.

    Args:
        lengths: `(N,)` of the whole data set.
        batch_size: sequences per batch; the last one may be smaller.
        order: one of `ORDERS`: as they come, shuffled, bucketed (see `pv.BucketSampler`), or all sorted, longest first.
        window: for `"bucketed"`, how many batches are sorted together.
        seed: for `"shuffled"` and `"bucketed"`.

    Returns:
        For each batch the indices of its sequences.

    Raises:
        ValueError: a length is not valid, `batch_size` or `window` is under 1, `seed` under 0, or there is no such
            order.
    """
    n = Layout(lengths).lengths
    at_least("batch_size", batch_size)
    one_of("order", order, ORDERS)
    everyone = np.arange(n.size)
    if order in (SHUFFLED, BUCKETED):
        random = np.random.default_rng(at_least("seed", seed, 0))
        everyone = random.permutation(n.size)
    if order == BUCKETED:
        pools = _cut(everyone, at_least("window", window) * batch_size)
        found = [batch for pool in pools for batch in _cut(_longest_first(n, pool), batch_size)]
        return [found[i] for i in random.permutation(len(found))]
    return _cut(_longest_first(n, everyone) if order == SORTED else everyone, batch_size)


@renamed(way="strategy")
def split(lengths: Any, workers: int, strategy: str = SNAKE) -> list[IntArray]:
    """Deals the sequences of one batch out to workers, longest first.

    Args:
        lengths: `(B,)` of the batch.
        workers: how many. Where they are more than the sequences, some get none.
        strategy: one of `SPLITS`. Of eight sequences, two workers get, by rank of length: contiguous 0123 and 4567,
            strided 0246 and 1357, snake 0347 and 1256.

    Returns:
        For each worker the indices of its sequences, longest first.

    Raises:
        ValueError: a length is not valid, `workers` is under 1, or there is no such strategy.
    """
    n = Layout(lengths).lengths
    at_least("workers", workers)
    order, taker = _longest_first(n, np.arange(n.size)), _takers(n.size, workers, strategy)
    return [order[taker == worker] for worker in range(workers)]


@renamed(way="strategy", room="row_size")
def fill(lengths: Any, row_size: int, strategy: str = FIRST_FIT_DECREASING) -> list[IntArray]:
    """Puts several sequences into each row of a fixed size: documents for a transformer.

    Whatever runs on such a row must keep its sequences apart: attention by a mask, an RNN by unpacking them.

    Args:
        lengths: `(B,)` whole numbers of at least 1.
        row_size: time steps (tokens) that a row has.
        strategy: one of `FILLS`. First-fit decreasing needs at most 11/9 of the fewest rows possible, and 6/9 of a row.

    Returns:
        For each row the indices of its sequences, in the order they were put in. None is cut, unless the strategy is to
        cut: then a sequence may be in several rows, each but its last one full.

    Raises:
        ValueError: a length is not valid, or over `row_size` though none may be cut; `row_size` is under 1, or there is
            no such strategy.

    Source:
        G. Dósa (2007), "The tight bound of first fit decreasing bin-packing algorithm is FFD(I) ≤ 11/9 OPT(I) + 6/9".
    """
    at_least("row_size", row_size)
    one_of("strategy", strategy, FILLS)
    n = Layout(lengths).lengths
    if strategy == CUT:
        ends = np.cumsum(n)
        tops = np.arange(0, ends[-1], row_size)
        firsts = np.searchsorted(ends, tops, "right")  # the sequence that the first time step of each row is of
        lasts = np.searchsorted(ends, np.minimum(tops + row_size, ends[-1]) - 1, "right")
        return [np.arange(first, last + 1) for first, last in zip(firsts, lasts, strict=True)]
    if (n > row_size).any():
        b = int(np.argmax(n > row_size))
        raise ValueError(
            f"lengths[{b}] is {n[b]}, over row_size={row_size}: give the rows more room, or cut the sequence"
        )
    everyone = np.arange(n.size)
    left = np.full(n.size, row_size)  # of every row, begun or not: there are never more rows than sequences
    rows: list[list[int]] = []
    for b in _longest_first(n, everyone) if strategy == FIRST_FIT_DECREASING else everyone:
        first = {PADDED: len(rows), NEXT_FIT: max(len(rows) - 1, 0)}.get(strategy, 0)
        row = first + int(np.argmax(left[first : len(rows) + 1] >= n[b]))
        if row == len(rows):
            rows.append([])
        rows[row].append(b)
        left[row] -= n[b]
    return [np.array(row) for row in rows]


@dataclass(frozen=True, eq=False)
class Load:
    """What batches hold. `S` batches.

    Attributes:
        real: `(S,)` real cells of each batch.
        cells: `(S,)` all its cells: sequences times the longest of them.
    """

    real: IntArray
    cells: IntArray

    @classmethod
    def of(cls, lengths: Any, groups: Sequence[IntArray]) -> Load:
        """Counts the cells of these batches of sequences."""
        n = Layout(lengths).lengths
        real = [n[group].sum() for group in groups]
        return cls(np.array(real), np.array([group.size * n[group].max() for group in groups]))

    @property
    def padding(self) -> int:
        """Padding cells of all batches."""
        return int(self.cells.sum() - self.real.sum())


def tokens(lengths: Any, groups: Sequence[IntArray], workers: int, strategy: str = SNAKE) -> IntArray:
    """`(S, W)` the tokens (real time steps) that each worker gets of each batch. Raises as `split` does."""
    n, _ = Layout(lengths).lengths, at_least("workers", workers)
    longest_first = [-np.sort(-n[group]) for group in groups]
    return np.array([np.bincount(_takers(some.size, workers, strategy), some, workers) for some in longest_first], int)


def idle(tokens: IntArray) -> float:
    """The share of the workers' time that is spent waiting for the slowest, if time goes with tokens.

    Args:
        tokens: `(S, W)` of each batch and worker.
    """
    return 1 - float(tokens.sum() / (tokens.shape[1] * tokens.max(axis=1).sum()))


def _takers(sequences: int, workers: int, strategy: str) -> IntArray:
    """The worker that takes the sequence of each rank."""
    one_of("strategy", strategy, SPLITS)
    ranks = np.arange(sequences)
    turn, place = np.divmod(ranks, workers)
    if strategy == CONTIGUOUS:  # as even as can be, larger shares first
        return np.sort(place)
    return np.where((turn % 2 == 1) & (strategy == SNAKE), workers - 1 - place, place)


def _longest_first(lengths: IntArray, indices: IntArray) -> IntArray:
    return indices[np.argsort(-lengths[indices], kind="stable")]


def _cut(indices: IntArray, size: int) -> list[IntArray]:
    return [indices[start : start + size] for start in range(0, indices.size, size)]
