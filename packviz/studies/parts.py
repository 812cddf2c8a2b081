"""What a packed training step spends its time on: one part after the other is exchanged for one that does not copy.

The step is that of the forum's network (see `packviz.studies.forum.network`), setup B. Exchanged are, in this order,
torch's pad, its pack and its packed LSTM; all give the same. What the step then takes less was that part's share.

`packviz study parts --out notebooks/recorded/parts_cpu.json` makes the recorded file, in about two minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from packviz.bench import ways
from packviz.bench.study import Contest, Study, Timings, by_contest, captions
from packviz.bench.timing import RATIOS
from packviz.draw import bars
from packviz.draw.drawn import Drawn
from packviz.draw.palette import METHODS
from packviz.draw.sheet import HATCHED, Sheet
from packviz.draw.text import milliseconds, table, whole_percent
from packviz.ops.running import forget
from packviz.studies.forum import network as forum
from packviz.studies.forum.points import setup_lengths

TORCH = "all of torch's"
EXCHANGED = {"pad": "pad exchanged", "pack": "pack too", "packed LSTM": "and the LSTM: pv.run"}
"""By the name of a part, the step in which it and those before it are exchanged."""

REST = "the rest"


@dataclass(frozen=True)
class Point:
    """A batch: sequences whose lengths count down from `steps` to 1, over and over."""

    steps: int
    batch_size: int = 512

    def __str__(self) -> str:
        return f"{self.batch_size} sequences of up to {self.steps} time steps"


class Parts(Drawn, Timings[Point]):
    """One training step of the forum's network, with more and more of its parts exchanged."""

    def shares(self, point: Point) -> dict[str, float]:
        """The share of each part in the time of the step, and of all the rest; they add up to 1."""
        left = [1.0]
        for name in EXCHANGED.values():  # what noise turns round is nothing
            left.append(min(left[-1], self.ratio(point, name, TORCH).value))
        return dict(zip(EXCHANGED, (a - b for a, b in pairwise(left)), strict=True)) | {REST: left[-1]}

    def finding(self) -> str:
        """What the largest batch says, in a line."""
        point = self.points[-1]
        return f"Of a packed training step at {point.steps} time steps: {self._said(point)}"

    def _said(self, point: Point) -> str:
        return ", ".join(f"{part} {whole_percent(share)}" for part, share in self.shares(point).items())

    def to_text(self) -> str:
        """Milliseconds of every step, and the shares that follow."""
        lines = [f"{self.finding()}."]
        for point, timing in self.values.items():
            rows = [[f"{point}", "ms", f"times {TORCH} (quartiles)"], *timing.against(TORCH)]
            lines += ["", *table(rows, "<8   <"), f"Shares: {self._said(point)}."]
        return "\n".join([*lines, "", RATIOS, f"Measured on {self.caption}."])

    def bar(self, point: Point) -> tuple[list[bars.Share], str]:
        """The shares of a step as they are drawn, and the time of all of it."""
        *exchanged, rest = self.shares(point).items()
        made = []
        for part, share in exchanged:
            ratio = self.ratio(point, EXCHANGED[part], TORCH)
            low, high = (min(max(1 - end, 0.0), 1.0) for end in (ratio.high, ratio.low))
            made.append(bars.Share(part, share, HATCHED, (low, high)))
        made.append(bars.Share(*rest, METHODS["run"]))
        return made, f"{milliseconds(self.values[point].median(TORCH))} ms"

    def sheet(self, theme: str) -> Sheet:
        """A bar for each batch, cut into shares."""
        return OnMachines({"": self}).sheet(theme)


@dataclass(frozen=True, repr=False)
class OnMachines(Drawn):
    """What several machines found.

    Attributes:
        found: by what to call the machine.
    """

    found: Mapping[str, Parts]

    def to_text(self) -> str:
        """One after the other."""
        several = len(self.found) > 1
        return "\n\n".join(f"{name}. " * several + found.to_text() for name, found in self.found.items())

    def sheet(self, theme: str) -> Sheet:
        """A bar for each machine and batch, cut into shares."""
        several = len(self.found) > 1
        rows = {
            f"{name}, " * several + f"{point.steps} steps": found.bar(point)
            for name, found in self.found.items()
            for point in found.points
        }
        hatched = "Hatched: the time that is saved when this part is exchanged for one with the same results."
        notes = [f"{hatched} Whiskers: quartiles of where it ends.", *captions(self.found)]
        name, first = next(iter(self.found.items()))
        return bars.shares(first.finding() + f" ({name})" * several, rows, theme, notes=notes)


def contest(point: Point, device: Any) -> Contest:
    """The step by its loss and the gradients of its weights, with more and more of its parts exchanged."""
    torch.manual_seed(0)
    network = forum.Network().to(device)
    n = setup_lengths("B", point.batch_size, point.steps)
    batch = forum.batch(n, point.steps, vocabulary=10, classes=2, seed=0, device=device)
    weights = list(network.parameters())

    def step(method: forum.Method) -> Callable[[], Any]:
        def call() -> Any:
            loss = cross_entropy(network(batch.ids, batch.lengths, method), batch.targets)
            return loss.detach(), *torch.autograd.grad(loss, weights)

        return call

    own_pad = partial(ways.own_pad, in_order=True)
    methods: list[forum.Method] = [forum.packed, own_pad, forum.METHODS["drop-in"], forum.METHODS["run"]]
    calls = dict(zip((TORCH, *EXCHANGED.values()), map(step, methods), strict=True))
    return Contest(calls, forget, alike=list(calls))


STUDY = Study(
    "parts",
    Point,
    by_contest(contest, warmup=1),
    Parts,
    full=[Point(64), Point(128), Point(256)],
    quick=[Point(32, 64), Point(64, 64)],
    parameters={"rounds": 15},
)
run, recorded = STUDY.run, STUDY.load
