"""Cuts the time axis of a ragged batch into a staircase of rectangles, given only the lengths.

A staircase covers the real cells of a batch with `K` rectangles. Rectangle `k` spans the time steps
from `cuts[k]` up to, but not including, `cuts[k + 1]`, and all sequences that are still running
when it begins. A single rectangle is the padded batch. With one rectangle per distinct length, no
cell is wasted, as in the packed batch. Fewer rectangles need fewer calls, and more rectangles waste
fewer cells. The best number depends on the costs of a call and of a cell.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

Cuts = tuple[int, ...]
"""The cuts of a staircase: ascending time steps from 0 to the longest length."""

CostLine = tuple[int, int, int]
"""A line of the search in `best_cuts`: its cost at step 0, its cost per step, and its index."""


@dataclass(frozen=True)
class StaircaseWork:
    """The work that a staircase takes.

    Attributes:
        calls: the number of rectangles, each of which needs one call of the kernel.
        cells: the number of cells that are computed, both real and wasted.
        wasted: the number of padding cells that are computed.
    """

    calls: int
    cells: int
    wasted: int


def cut_into_rectangles(lengths: Sequence[int], cuts: Sequence[int]) -> list[tuple[int, int, int]]:
    """Returns the rectangles of a staircase, each with its beginning, end and number of sequences.

    The end is the time step after the last one of the rectangle.

    Args:
        lengths: `(B,)` lengths of at least 1, in any order.
        cuts: ascending time steps from 0 to `max(lengths)`.

    Raises:
        ValueError: the cuts do not rise from 0 to `max(lengths)`.
    """
    ascending_lengths = sorted(lengths)
    longest = ascending_lengths[-1]
    is_ascending = all(start < end for start, end in pairwise(cuts))
    has_both_ends = len(cuts) > 1 and (cuts[0], cuts[-1]) == (0, longest)
    if not has_both_ends or not is_ascending:
        steps = f"time steps that rise from 0 to {longest}, the longest length"
        raise ValueError(f"the cuts of the staircase are {tuple(cuts)}; give {steps}")
    return [
        (start, end, len(ascending_lengths) - bisect_right(ascending_lengths, start))
        for start, end in pairwise(cuts)
    ]


def count_work(lengths: Sequence[int], cuts: Sequence[int]) -> StaircaseWork:
    """Counts the work of a staircase.

    See `cut_into_rectangles` for the lengths, the cuts and the errors.
    """
    rectangles = cut_into_rectangles(lengths, cuts)
    cells = sum((end - start) * sequences for start, end, sequences in rectangles)
    return StaircaseWork(len(rectangles), cells, cells - sum(lengths))


def cuts_at_lengths(lengths: Sequence[int]) -> Cuts:
    """Returns cuts at 0 and at every distinct length, so that no cell is wasted."""
    return tuple(sorted({0, *lengths}))


def best_cuts(lengths: Sequence[int], call_cost: int, calls: int | None = None) -> Cuts:
    """Returns the cuts of the cheapest staircase. A cell costs 1, and a call costs `call_cost`.

    The best place for a cut is right after the end of a sequence, so only the `D` distinct lengths
    are candidates. Dynamic programming finds the best cuts, because the cheapest staircase that
    ends at a length consists of a last rectangle and the cheapest staircase that ends where this
    rectangle begins. The cost of a rectangle is a linear function of the step at which it ends. The
    slope is proportional to the number of sequences that are running when the rectangle begins, so
    rectangles that begin later have smaller slopes. Therefore the lowest line at each step can be
    found without trying all lines (the "convex hull trick"). Apart from sorting the lengths, the
    search takes time proportional to `D`, or to `calls · D` if `calls` is given.

    Args:
        lengths: `(B,)` lengths of at least 1, in any order.
        call_cost: the number of cells that cost as much as a call of the kernel.
        calls: the number of rectangles, from 1 to `D`. Defaults to the number with the lowest cost.

    Returns:
        Ascending time steps from 0 to `max(lengths)`.

    Raises:
        ValueError: these lengths have no staircase with `calls` rectangles.
    """
    ends = cuts_at_lengths(lengths)
    ending_counts = Counter(lengths)
    n_remaining = len(lengths)
    running_counts = []
    for end in ends:
        n_remaining -= ending_counts[end]
        running_counts.append(n_remaining)
    max_calls = len(ends) - 1
    if calls is None:
        _, start_indices = _cheapest_last_rectangles(ends, running_counts, call_cost, None)
        return _trace_cuts(ends, [start_indices] * max_calls)
    if not 1 <= calls <= max_calls:
        raise ValueError(
            f"calls is {calls}; give 1 to {max_calls}, at most one for each distinct length"
        )
    costs: list[int | None] = [0] + [None] * max_calls
    start_tables = []
    for _ in range(calls):
        costs, start_indices = _cheapest_last_rectangles(ends, running_counts, call_cost, costs)
        start_tables.append(start_indices)
    return _trace_cuts(ends, start_tables)


def _cheapest_last_rectangles(
    ends: Sequence[int],
    running_counts: Sequence[int],
    call_cost: int,
    previous_costs: Sequence[int | None] | None,
) -> tuple[list[int | None], list[int]]:
    """Returns the lowest cost to reach each end with one more rectangle, and its beginning.

    A beginning is an index into `ends`.

    Args:
        ends: the time steps at which rectangles may begin and end.
        running_counts: the number of sequences that are still running at each of these steps.
        call_cost: the cost of a rectangle, apart from its cells.
        previous_costs: the cost of reaching each beginning; `None` for one that cannot be reached.
            If `previous_costs` itself is `None`, any number of rectangles may come first.
    """
    costs: list[int | None] = [0 if previous_costs is None else None]
    start_indices = [0]
    lines: list[CostLine] = []  # each is the lowest at some step
    best_index = 0
    for j in range(1, len(ends)):
        start_cost = costs[j - 1] if previous_costs is None else previous_costs[j - 1]
        if start_cost is not None:
            slope = running_counts[j - 1]
            intercept = start_cost + call_cost - slope * ends[j - 1]
            line = (intercept, slope, j - 1)
            while len(lines) - best_index > 1 and _is_never_lowest(lines[-1], lines[-2], line):
                lines.pop()
            lines.append(line)
        end = ends[j]
        while len(lines) - best_index > 1 and (
            _cost_at_step(lines[best_index + 1], end) <= _cost_at_step(lines[best_index], end)
        ):
            best_index += 1
        costs.append(_cost_at_step(lines[best_index], end) if lines else None)
        start_indices.append(lines[best_index][2] if lines else 0)
    return costs, start_indices


def _cost_at_step(line: CostLine, step: int) -> int:
    return line[0] + line[1] * step


def _is_never_lowest(middle_line: CostLine, left_line: CostLine, right_line: CostLine) -> bool:
    """Returns whether the middle one of three lines with falling slopes is never the lowest."""
    right_crossing = (right_line[0] - left_line[0]) * (left_line[1] - middle_line[1])
    middle_crossing = (middle_line[0] - left_line[0]) * (left_line[1] - right_line[1])
    return right_crossing <= middle_crossing


def _trace_cuts(ends: Sequence[int], start_tables: Sequence[Sequence[int]]) -> Cuts:
    """Returns all cuts in order, by following the best beginnings from the last cut to 0."""
    j = len(ends) - 1
    cuts = [ends[j]]
    for start_indices in reversed(start_tables):
        if j:
            j = start_indices[j]
            cuts.append(ends[j])
    return tuple(reversed(cuts))
