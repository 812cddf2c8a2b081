"""A study for tests, whose calls do next to nothing."""

from dataclasses import dataclass

import torch

from packviz.measure.study import Comparison, Results, Study, by_comparison
from packviz.measure.timing import Timing


@dataclass(frozen=True)
class Point:
    """A tensor of so many ones."""

    size: int
    shape: tuple[int, ...] = (1, 2)

    def __str__(self):
        return f"size {self.size}"


class Found(Results[Point, Timing]):
    """What it found."""

    def to_text(self):
        """The points."""
        return f"found: {', '.join(map(str, self.values))}"


def calls(point, device="cpu"):
    """Two ways to the same."""
    x = torch.ones(point.size, device=device)
    return Comparison({"once": lambda: x + x, "twice": lambda: 2 * x}, alike=("once", "twice"))


def study(calls=calls, **options):
    """The study."""
    points, others, parameters = [Point(2), Point(3)], {"more": [Point(9)]}, {"rounds": 2}
    measured = by_comparison(calls, warmup=1)
    return Study(
        "toy", Point, measured, Found, points, [Point(1)], others, parameters, version=2, **options
    )
