"""Groups sequences into batches, into rows of a fixed size, or into shares for processes.

A group is an array of indices. A batch is as wide as its longest sequence, so batches of sequences
with similar lengths (*buckets*) contain little padding. When several processes share a training
step, it takes as long as the slowest process, so all should get about the same number of tokens
(real time steps).

Examples:
    >>> import packviz as pv
    >>> groups = pv.batches.batches([7, 2, 9, 3, 8, 1], 2, "sorted")
    >>> [group.tolist() for group in groups]
    [[2, 4], [0, 3], [1, 5]]
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from packviz.core.layout import IntArray, Layout, require_nonempty_sequences
from packviz.core.validation import require_at_least, require_one_of

Groups = list[IntArray]
"""The indices of the sequences in each group."""

AS_THEY_COME = "as they come"
SHUFFLED = "shuffled"
BUCKETED = "bucketed"
SORTED = "sorted"
ORDERS = (AS_THEY_COME, SHUFFLED, BUCKETED, SORTED)
"""The orders in which sequences are put into batches."""

CONTIGUOUS = "contiguous"
STRIDED = "strided"
SNAKE = "snake"
SPLITS = (CONTIGUOUS, STRIDED, SNAKE)
"""The strategies for dividing a batch, longest sequence first, among processes. `CONTIGUOUS`
gives each process a block of sequences. `STRIDED` gives each process one sequence in turn. `SNAKE`
does so too, but reverses every second turn."""

NEXT_FIT = "next-fit"
FIRST_FIT = "first-fit"
FIRST_FIT_DECREASING = "first-fit decreasing"
PADDED = "padded"
CUT = "cut where the row ends"
FILLS = (PADDED, NEXT_FIT, FIRST_FIT, FIRST_FIT_DECREASING, CUT)
"""The strategies for placing sequences in rows. `PADDED` gives each sequence its own row.
`NEXT_FIT` fills the last row until a sequence does not fit, `FIRST_FIT` uses the first row with
room, and `FIRST_FIT_DECREASING` does so from the longest sequence to the shortest. `CUT` fills one
row after another, and cuts a sequence where its row ends."""

WINDOW = 50
"""The number of batches sorted together. A larger window leaves less padding, and a smaller one
makes an epoch more random."""


def batches(
    lengths: object, batch_size: int, order: str = SHUFFLED, *, window: int = WINDOW, seed: int = 0
) -> Groups:
    """Divides a data set into the batches of one epoch.

    Args:
        lengths: `(N,)` the lengths of all sequences.
        batch_size: the number of sequences per batch. The last batch may be smaller.
        order: the order of the sequences: `"as they come"`, `"shuffled"`, `"bucketed"` (see
            `pv.BucketSampler`), or `"sorted"` (longest first).
        window: the number of batches whose sequences are sorted together if `order` is
            `"bucketed"`.
        seed: the seed for the random orders `"shuffled"` and `"bucketed"`.

    Returns:
        The indices of the sequences in each batch.

    Raises:
        ValueError: a length is not valid, `batch_size` or `window` is less than 1, `seed` is
            negative, or `order` is unknown.
    """
    n = Layout(lengths).lengths
    require_at_least("batch_size", batch_size)
    require_at_least("window", window)
    require_at_least("seed", seed, 0)
    require_one_of("order", order, ORDERS)
    all_indices = np.arange(n.size)
    if order == AS_THEY_COME:
        return _cut_into_groups(all_indices, batch_size)
    if order == SORTED:
        return _cut_into_groups(_sort_longest_first(n, all_indices), batch_size)
    random = np.random.default_rng(seed)
    shuffled_indices = random.permutation(n.size)
    if order == SHUFFLED:
        return _cut_into_groups(shuffled_indices, batch_size)
    buckets: Groups = []
    for window_indices in _cut_into_groups(shuffled_indices, window * batch_size):
        buckets += _cut_into_groups(_sort_longest_first(n, window_indices), batch_size)
    return [buckets[i] for i in random.permutation(len(buckets))]


def split(lengths: object, processes: int, strategy: str = SNAKE) -> Groups:
    """Divides the sequences of one batch among processes, longest first.

    Args:
        lengths: `(B,)` the lengths of the sequences in the batch.
        processes: the number of processes. If it is greater than the number of sequences, some get
            no sequence.
        strategy: one of `SPLITS`. For two processes and eight sequences, numbered from the longest
            to the shortest, `"contiguous"` gives 0123 and 4567, `"strided"` gives 0246 and 1357,
            and `"snake"` gives 0347 and 1256.

    Returns:
        The indices of the sequences that each process gets, longest first.

    Raises:
        ValueError: a length is not valid, `processes` is less than 1, or `strategy` is unknown.
    """
    return _split_among_processes(
        Layout(lengths).lengths, require_at_least("processes", processes), strategy
    )


def fill(lengths: object, row_size: int, strategy: str = FIRST_FIT_DECREASING) -> Groups:
    """Puts sequences, such as documents for a transformer, into rows of a fixed size.

    A model that runs on such a row must keep the sequences in the row apart. Attention needs a mask
    for this. For an RNN, the sequences have to be separated again.

    Args:
        lengths: `(B,)` the lengths of the sequences, whole numbers of at least 1.
        row_size: the number of time steps (tokens) in each row.
        strategy: one of `FILLS`: `"padded"` (one row per sequence), `"next-fit"`, `"first-fit"`,
            `"first-fit decreasing"`, or `"cut where the row ends"`. If `n` is the smallest possible
            number of rows, first-fit decreasing needs at most `11/9 · n + 6/9` rows.

    Returns:
        The indices of the sequences in each row, in the order in which they were added. Only `"cut
        where the row ends"` may spread a sequence over several rows. It fills every row except
        possibly the last one.

    Raises:
        ValueError: a length is not valid; a length exceeds `row_size`, and the strategy does not
            cut sequences; `row_size` is less than 1; or `strategy` is unknown.

    Source:
        G. Dósa (2007), "The tight bound of first fit decreasing bin-packing algorithm is FFD(I) ≤
        11/9 OPT(I) + 6/9".
    """
    require_at_least("row_size", row_size)
    require_one_of("strategy", strategy, FILLS)
    n = require_nonempty_sequences(Layout(lengths)).lengths
    if strategy == CUT:
        ends = np.cumsum(n)
        row_starts = np.arange(0, ends[-1], row_size)
        row_ends = np.minimum(row_starts + row_size, ends[-1])
        # The first sequence of each row.
        first_sequences = np.searchsorted(ends, row_starts, "right")
        last_sequences = np.searchsorted(ends, row_ends - 1, "right")
        pairs = zip(first_sequences, last_sequences, strict=True)
        return [np.arange(first_index, last_index + 1) for first_index, last_index in pairs]
    longest = np.argmax(n)
    if n[longest] > row_size:
        raise ValueError(
            f"lengths[{longest}] is {n[longest]}, but row_size is {row_size}; increase row_size, or"
            " cut the sequence"
        )
    order = np.arange(n.size)
    if strategy == FIRST_FIT_DECREASING:
        order = _sort_longest_first(n, order)
    # The free steps in all possible rows. There are never more rows than sequences.
    free_steps = np.full(n.size, row_size)
    rows: list[list[int]] = []
    for b in order.tolist():
        first_row = 0  # the first row that the strategy may use
        if strategy == PADDED:
            first_row = len(rows)
        elif strategy == NEXT_FIT:
            first_row = max(len(rows) - 1, 0)
        fits = free_steps[first_row : len(rows) + 1] >= n[b]
        row = first_row + int(np.argmax(fits))
        if row == len(rows):
            rows.append([])
        rows[row].append(b)
        free_steps[row] -= n[b]
    return [np.array(row) for row in rows]


def tokens(
    lengths: object, groups: Sequence[IntArray], processes: int, strategy: str = SNAKE
) -> IntArray:
    """Returns `(S, W)` the number of tokens (real time steps) of each process in each batch.

    Each batch is divided as in `split`, which also lists the errors.
    """
    n = Layout(lengths).lengths
    require_at_least("processes", processes)
    counts = np.zeros((len(groups), processes), dtype=np.int64)
    for step, group in enumerate(groups):
        group_lengths = n[group]
        counts[step] = [
            group_lengths[indices].sum()
            for indices in _split_among_processes(group_lengths, processes, strategy)
        ]
    return counts


def idle(tokens: IntArray) -> float:
    """Returns the share of time that processes spend waiting for the slowest one.

    Time is taken to be proportional to tokens.

    Args:
        tokens: `(S, W)` the number of tokens of each process in each batch.
    """
    processes = tokens.shape[1]
    slowest_total = tokens.max(axis=1).sum()
    return 1 - float(tokens.sum() / (processes * slowest_total))


def _split_among_processes(n: IntArray, processes: int, strategy: str) -> Groups:
    """Divides sequences of the lengths `n` as `split` does."""
    require_one_of("strategy", strategy, SPLITS)
    positions = np.arange(n.size)
    order = _sort_longest_first(n, positions)
    turns, process_ranks = np.divmod(positions, processes)
    if strategy == CONTIGUOUS:  # as evenly as possible, with the larger shares first
        process_ranks = np.sort(process_ranks)
    elif strategy == SNAKE:
        process_ranks = np.where(turns % 2 == 1, processes - 1 - process_ranks, process_ranks)
    return [order[process_ranks == process_rank] for process_rank in range(processes)]


def _sort_longest_first(lengths: IntArray, indices: IntArray) -> IntArray:
    return indices[np.argsort(-lengths[indices], kind="stable")]


def _cut_into_groups(indices: IntArray, size: int) -> Groups:
    return [indices[start : start + size] for start in range(0, indices.size, size)]
