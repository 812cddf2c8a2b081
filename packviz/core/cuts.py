"""Where to cut the time axis of a ragged batch: a staircase of rectangles, from its lengths alone.

A staircase covers the real cells of a batch with `K` rectangles. Rectangle `k` spans the time steps from `cuts[k]` up
to `cuts[k + 1]`, and all sequences that are still running when it begins. With one rectangle that is the padded batch;
with one for every distinct length it is the packed one, without a wasted cell. Fewer rectangles cost fewer calls, more
of them waste fewer cells: which is best depends on what a call and a cell cost.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

_Line = tuple[float, float, int]


@dataclass(frozen=True)
class Rates:
    """What a method costs, in seconds.

    Attributes:
        fixed: once.
        call: for each rectangle.
        step: for each time step, however many sequences run in it.
        cell: for each cell, real or wasted.
        square: for each cell once for every time step: what makes torch's packed backward on the CPU slow.
    """

    fixed: float
    call: float
    step: float
    cell: float
    square: float = 0.0

    def seconds(self, calls: int, steps: int, cells: int) -> float:
        """The time of a run."""
        return self.fixed + self.call * calls + self.step * steps + self.cell * cells + self.square * steps * cells


@dataclass(frozen=True)
class Prediction:
    """What a staircase is expected to cost.

    Attributes:
        seconds: the time, by the rates it was predicted with.
        calls: rectangles, each one call of the kernel.
        cells: cells computed, real and wasted.
        wasted: those that are padding.
    """

    seconds: float
    calls: int
    cells: int
    wasted: int


def rectangles(lengths: Sequence[int], cuts: Sequence[int]) -> list[tuple[int, int, int]]:
    """The rectangles of a staircase as `(first step, step after the last, sequences)`.

    Args:
        lengths: `(B,)` at least 1 each, in any order.
        cuts: rising time steps, from 0 to `max(lengths)`.

    Raises:
        ValueError: the cuts do not rise from 0 to `max(lengths)`.
    """
    rising = sorted(lengths)
    if len(cuts) < 2 or cuts[0] != 0 or cuts[-1] != rising[-1] or any(a >= b for a, b in pairwise(cuts)):
        raise ValueError(
            f"cuts are {tuple(cuts)}; give time steps that rise from 0 to {rising[-1]}, the longest length"
        )
    return [(a, b, len(rising) - bisect_right(rising, a)) for a, b in pairwise(cuts)]


def predict(lengths: Sequence[int], cuts: Sequence[int], rates: Rates) -> Prediction:
    """What a staircase is expected to cost. Takes and raises what `rectangles` does."""
    found = rectangles(lengths, cuts)
    cells = sum((b - a) * n for a, b, n in found)
    return Prediction(rates.seconds(len(found), cuts[-1], cells), len(found), cells, cells - sum(lengths))


def every_cut(lengths: Sequence[int]) -> tuple[int, ...]:
    """A cut after every distinct length: no wasted cell."""
    return (0, *sorted(set(lengths) - {0}))


def best_cuts(lengths: Sequence[int], rates: Rates, calls: int | None = None) -> tuple[int, ...]:
    """The cuts of the staircase that costs least.

    A cut is best made right after some sequence ends, so only the `D` distinct lengths come into question. Dynamic
    programming over them finds the optimum: the cheapest way to come to a length is the cheapest last rectangle, added
    to the cheapest way to come to where that begins. As a function of where a rectangle ends, its cost is a straight
    line whose slope is the number of sequences at its beginning. Slopes only fall, so the lowest line is found without
    trying all (the "convex hull trick"): the time is in proportion to `D`, after sorting.

    Args:
        lengths: `(B,)` at least 1 each, in any order.
        rates: what a call and a cell cost; nothing else matters here.
        calls: how many rectangles, 1 to `D`; the best number of them if not given.

    Returns:
        Rising time steps, from 0 to `max(lengths)`.

    Raises:
        ValueError: there is no staircase of so many rectangles.
    """
    ends = every_cut(lengths)
    ending, left, running = Counter(lengths), len(lengths), []
    for end in ends:
        left -= ending[end]
        running.append(left)
    most = len(ends) - 1
    if calls is None:
        _, begins = _cheapest(ends, running, rates, None)
        return _traced(ends, [begins] * most)
    if not 1 <= calls <= most:
        raise ValueError(f"calls is {calls}; these lengths allow for 1 to {most} rectangles")
    costs, layers = [0.0] + [float("inf")] * most, []
    for _ in range(calls):
        costs, begins = _cheapest(ends, running, rates, costs)
        layers.append(begins)
    return _traced(ends, layers)


def _cheapest(
    ends: Sequence[int], running: Sequence[int], rates: Rates, before: Sequence[float] | None
) -> tuple[list[float], list[int]]:
    """For each end the cost of coming there with one more rectangle, and the index of where that best begins.

    Args:
        ends: where rectangles may begin and end.
        running: how many sequences are still running there.
        rates: of a call and a cell.
        before: the costs of coming to where it begins; if not given, any number of rectangles may come before.
    """
    costs, begins = [0.0 if before is None else float("inf")], [0]
    lines: list[_Line] = []  # those that are somewhere the lowest: (cost at step 0, cost per step, index)
    lowest = 0
    for j in range(1, len(ends)):
        start = costs[j - 1] if before is None else before[j - 1]
        if start < float("inf"):
            slope = rates.cell * running[j - 1]
            line = (start + rates.call - slope * ends[j - 1], slope, j - 1)
            while len(lines) - lowest > 1 and _is_above(lines[-1], lines[-2], line):
                lines.pop()
            lines.append(line)
        while len(lines) - lowest > 1 and _at(lines[lowest + 1], ends[j]) <= _at(lines[lowest], ends[j]):
            lowest += 1
        costs.append(_at(lines[lowest], ends[j]) if lines else float("inf"))
        begins.append(lines[lowest][2] if lines else 0)
    return costs, begins


def _at(line: _Line, step: int) -> float:
    return line[0] + line[1] * step


def _is_above(middle: _Line, left: _Line, right: _Line) -> bool:
    """Whether a line is nowhere the lowest of three whose slopes fall from left to right."""
    return (right[0] - left[0]) * (left[1] - middle[1]) <= (middle[0] - left[0]) * (left[1] - right[1])


def _traced(ends: Sequence[int], layers: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """The cuts, from the last back to 0, by where each rectangle best begins."""
    j, cuts = len(ends) - 1, [ends[-1]]
    for begins in reversed(layers):
        if j:
            j = begins[j]
            cuts.append(ends[j])
    return tuple(reversed(cuts))
