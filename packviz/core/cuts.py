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

Line = tuple[int, int, int]
"""A line of the search in `best_cuts`: its cost at step 0, its cost per step, and its index."""


@dataclass(frozen=True)
class Prediction:
    """The work that a staircase takes.

    Attributes:
        calls: the number of rectangles, each of which needs one call of the kernel.
        cells: the number of cells that are computed, both real and wasted.
        wasted: the number of padding cells that are computed.
    """

    calls: int
    cells: int
    wasted: int


def rectangles(lengths: Sequence[int], cuts: Sequence[int]) -> list[tuple[int, int, int]]:
    """Returns the rectangles of a staircase, each with its beginning, end and number of sequences.

    The end is the time step after the last one of the rectangle.

    Args:
        lengths: `(B,)` lengths of at least 1, in any order.
        cuts: ascending time steps from 0 to `max(lengths)`.

    Raises:
        ValueError: the cuts do not rise from 0 to `max(lengths)`.
    """
    rising = sorted(lengths)
    longest = rising[-1]
    ascends = all(start < end for start, end in pairwise(cuts))
    reaches = len(cuts) > 1 and (cuts[0], cuts[-1]) == (0, longest)
    if not reaches or not ascends:
        steps = f"time steps that rise from 0 to {longest}, the longest length"
        raise ValueError(f"the cuts of the staircase are {tuple(cuts)}; give {steps}")
    return [
        (start, end, len(rising) - bisect_right(rising, start)) for start, end in pairwise(cuts)
    ]


def predict(lengths: Sequence[int], cuts: Sequence[int]) -> Prediction:
    """Counts the work of a staircase. See `rectangles` for the lengths, the cuts and the errors."""
    stairs = rectangles(lengths, cuts)
    cells = sum((end - start) * sequences for start, end, sequences in stairs)
    return Prediction(len(stairs), cells, cells - sum(lengths))


def every_cut(lengths: Sequence[int]) -> Cuts:
    """Returns cuts at 0 and at every distinct length, so that no cell is wasted."""
    return tuple(sorted({0, *lengths}))


def best_cuts(lengths: Sequence[int], call: int, calls: int | None = None) -> Cuts:
    """Returns the cuts of the cheapest staircase, where a cell costs 1 and a call costs `call`.

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
        call: the number of cells that cost as much as a call of the kernel.
        calls: the number of rectangles, from 1 to `D`. Defaults to the number with the lowest cost.

    Returns:
        Ascending time steps from 0 to `max(lengths)`.

    Raises:
        ValueError: these lengths have no staircase with `calls` rectangles.
    """
    ends = every_cut(lengths)
    ending = Counter(lengths)
    left = len(lengths)
    running = []
    for end in ends:
        left -= ending[end]
        running.append(left)
    most = len(ends) - 1
    if calls is None:
        _, begins = _cheapest(ends, running, call, None)
        return _traced(ends, [begins] * most)
    if not 1 <= calls <= most:
        raise ValueError(
            f"calls is {calls}; give 1 to {most}, at most one for each distinct length"
        )
    costs: list[int | None] = [0] + [None] * most
    layers = []
    for _ in range(calls):
        costs, begins = _cheapest(ends, running, call, costs)
        layers.append(begins)
    return _traced(ends, layers)


def _cheapest(
    ends: Sequence[int], running: Sequence[int], call: int, before: Sequence[int | None] | None
) -> tuple[list[int | None], list[int]]:
    """Returns the lowest cost to reach each end with one more rectangle, and its beginning.

    A beginning is an index into `ends`.

    Args:
        ends: the time steps at which rectangles may begin and end.
        running: the number of sequences that are still running at each of these steps.
        call: the cost of a rectangle, apart from its cells.
        before: the cost of reaching each beginning; `None` for one that cannot be reached. If
            `before` itself is `None`, any number of rectangles may come first.
    """
    costs: list[int | None] = [0 if before is None else None]
    begins = [0]
    lines: list[Line] = []  # each is the lowest at some step
    lowest = 0
    for j in range(1, len(ends)):
        start = costs[j - 1] if before is None else before[j - 1]
        if start is not None:
            slope = running[j - 1]
            height = start + call - slope * ends[j - 1]
            line = (height, slope, j - 1)
            while len(lines) - lowest > 1 and _is_above(lines[-1], lines[-2], line):
                lines.pop()
            lines.append(line)
        end = ends[j]
        while len(lines) - lowest > 1 and _at(lines[lowest + 1], end) <= _at(lines[lowest], end):
            lowest += 1
        costs.append(_at(lines[lowest], end) if lines else None)
        begins.append(lines[lowest][2] if lines else 0)
    return costs, begins


def _at(line: Line, step: int) -> int:
    return line[0] + line[1] * step


def _is_above(middle: Line, left: Line, right: Line) -> bool:
    """Returns whether the middle one of three lines with falling slopes is never the lowest."""
    by_right = (right[0] - left[0]) * (left[1] - middle[1])
    by_middle = (middle[0] - left[0]) * (left[1] - right[1])
    return by_right <= by_middle


def _traced(ends: Sequence[int], layers: Sequence[Sequence[int]]) -> Cuts:
    """Returns all cuts in order, by following the best beginnings from the last cut to 0."""
    j = len(ends) - 1
    cuts = [ends[j]]
    for begins in reversed(layers):
        if j:
            j = begins[j]
            cuts.append(ends[j])
    return tuple(reversed(cuts))
