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

_Line = tuple[float, float, int]


@dataclass(frozen=True)
class Rates:
    """The costs of one method of running an RNN, in seconds.

    Attributes:
        fixed: the part of the cost that does not depend on the size of the run.
        call: the cost of each rectangle.
        step: the cost of each time step, however many sequences run in it.
        cell: the cost of each cell, real or wasted.
        square: the cost of each pair of a cell and a time step; it is high in torch's packed
            backward pass on a CPU.
    """

    fixed: float
    call: float
    step: float
    cell: float
    square: float = 0.0

    def seconds(self, calls: int, steps: int, cells: int) -> float:
        """Returns the predicted time of a run in seconds."""
        return (
            self.fixed
            + self.call * calls
            + self.step * steps
            + self.cell * cells
            + self.square * steps * cells
        )


@dataclass(frozen=True)
class Prediction:
    """The expected costs of a staircase.

    Attributes:
        seconds: the predicted time in seconds.
        calls: the number of rectangles, each of which needs one call of the kernel.
        cells: the number of cells that are computed, both real and wasted.
        wasted: the number of padding cells that are computed.
    """

    seconds: float
    calls: int
    cells: int
    wasted: int


def rectangles(lengths: Sequence[int], cuts: Sequence[int]) -> list[tuple[int, int, int]]:
    """Returns the rectangles of a staircase, each as `(first step, step after the last, number of
    sequences)`.

    Args:
        lengths: `(B,)` lengths of at least 1, in any order.
        cuts: ascending time steps from 0 to `max(lengths)`.

    Raises:
        ValueError: the cuts do not rise from 0 to `max(lengths)`.
    """
    rising = sorted(lengths)
    if (
        len(cuts) < 2
        or cuts[0] != 0
        or cuts[-1] != rising[-1]
        or any(a >= b for a, b in pairwise(cuts))
    ):
        raise ValueError(
            f"cuts are {tuple(cuts)}; give time steps that rise from 0 to {rising[-1]}, the longest length"
        )
    return [(a, b, len(rising) - bisect_right(rising, a)) for a, b in pairwise(cuts)]


def predict(lengths: Sequence[int], cuts: Sequence[int], rates: Rates) -> Prediction:
    """Predicts the costs of a staircase. See `rectangles` for the lengths, the cuts and the errors."""
    found = rectangles(lengths, cuts)
    cells = sum((b - a) * n for a, b, n in found)
    return Prediction(
        rates.seconds(len(found), cuts[-1], cells), len(found), cells, cells - sum(lengths)
    )


def every_cut(lengths: Sequence[int]) -> tuple[int, ...]:
    """Returns cuts at 0 and at every distinct length, so that no cell is wasted."""
    return (0, *sorted(set(lengths) - {0}))


def best_cuts(lengths: Sequence[int], rates: Rates, calls: int | None = None) -> tuple[int, ...]:
    """Returns the cuts of the cheapest staircase.

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
        rates: the costs of a call and of a cell. The other costs have no effect here.
        calls: the number of rectangles, from 1 to `D`. Defaults to the number with the lowest cost.

    Returns:
        Ascending time steps from 0 to `max(lengths)`.

    Raises:
        ValueError: these lengths have no staircase with `calls` rectangles.
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
        raise ValueError(f"calls is {calls}; these lengths allow 1 to {most} rectangles")
    costs, layers = [0.0] + [float("inf")] * most, []
    for _ in range(calls):
        costs, begins = _cheapest(ends, running, rates, costs)
        layers.append(begins)
    return _traced(ends, layers)


def _cheapest(
    ends: Sequence[int], running: Sequence[int], rates: Rates, before: Sequence[float] | None
) -> tuple[list[float], list[int]]:
    """Returns, for each end, the lowest cost to reach it with one more rectangle, and the index of
    its best beginning.

    Args:
        ends: the time steps at which rectangles may begin and end.
        running: the number of sequences that are still running at each of these steps.
        rates: the costs of a call and of a cell.
        before: the cost of reaching each beginning. If `before` is `None`, any number of rectangles
            may come first.
    """
    costs, begins = [0.0 if before is None else float("inf")], [0]
    lines: list[
        _Line
    ] = []  # each line is the lowest at some step: (cost at step 0, cost per step, index)
    lowest = 0
    for j in range(1, len(ends)):
        start = costs[j - 1] if before is None else before[j - 1]
        if start < float("inf"):
            slope = rates.cell * running[j - 1]
            line = (start + rates.call - slope * ends[j - 1], slope, j - 1)
            while len(lines) - lowest > 1 and _is_above(lines[-1], lines[-2], line):
                lines.pop()
            lines.append(line)
        while len(lines) - lowest > 1 and _at(lines[lowest + 1], ends[j]) <= _at(
            lines[lowest], ends[j]
        ):
            lowest += 1
        costs.append(_at(lines[lowest], ends[j]) if lines else float("inf"))
        begins.append(lines[lowest][2] if lines else 0)
    return costs, begins


def _at(line: _Line, step: int) -> float:
    return line[0] + line[1] * step


def _is_above(middle: _Line, left: _Line, right: _Line) -> bool:
    """Returns whether the middle line is never the lowest of three lines whose slopes fall from left to right."""
    return (right[0] - left[0]) * (left[1] - middle[1]) <= (middle[0] - left[0]) * (
        left[1] - right[1]
    )


def _traced(ends: Sequence[int], layers: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Traces the best beginning of each rectangle from the last cut back to 0, and returns all cuts in order."""
    j, cuts = len(ends) - 1, [ends[-1]]
    for begins in reversed(layers):
        if j:
            j = begins[j]
            cuts.append(ends[j])
    return tuple(reversed(cuts))
