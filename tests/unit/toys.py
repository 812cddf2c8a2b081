"""A study for tests, whose calls do next to nothing."""

from dataclasses import dataclass
from functools import partial

import torch

from packviz.measure.study import Comparison, Results, Study, time_training


@dataclass(frozen=True)
class Point:
    """A tensor of so many ones."""

    size: int

    def __str__(self):
        return f"size {self.size}"


def calls(point, device="cpu"):
    """Returns two ways to compute the same."""
    x = torch.ones(point.size, device=device)
    return Comparison(
        {"once": lambda: x + x, "twice": lambda: 2 * x}, agreeing_calls=("once", "twice")
    )


def study(calls=calls):
    """Returns the study."""
    return Study(
        "toy",
        Point,
        partial(time_training, calls, warmup=1),
        Results,
        full_points=[Point(2), Point(3)],
        quick_points=[Point(1)],
        others={"more": [Point(9)]},
        parameters={"rounds": 2},
        version=2,
    )
