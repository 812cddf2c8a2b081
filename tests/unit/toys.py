"""A study for tests, whose contestants do next to nothing."""

from dataclasses import dataclass

import torch

from packviz.bench.study import Contest, Timings


@dataclass(frozen=True)
class Point:
    """A tensor of so many ones."""

    size: int
    shape: tuple[int, ...] = (1, 2)

    def __str__(self):
        return f"size {self.size}"


class Found(Timings[Point]):
    """What it found."""

    def to_text(self):
        """The points."""
        return f"found: {', '.join(map(str, self.values))}"


def contest(point, device="cpu"):
    """Two ways to the same."""
    x = torch.ones(point.size, device=device)
    return Contest({"once": lambda: x + x, "twice": lambda: 2 * x}, alike=("once", "twice"))
