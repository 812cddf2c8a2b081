"""Measures the time of each part of a packed training step, by replacing one after another with
parts that don't copy.

The step trains the network from the forum question (see `packviz.studies.network`) on a batch of
setup B. First torch's pad is replaced, then torch's pack, and then torch's packed LSTM. The results
stay the same. The share of a part is the time that its replacement saves, divided by the time of
the whole step.

`packviz study parts --out notebooks/recorded/parts_cpu.json` makes the recorded file in about two
minutes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

import torch

from packviz.draw.bars import Bar, rows
from packviz.draw.drawing import Drawing
from packviz.draw.palette import METHODS
from packviz.draw.quantities import milliseconds, whole_percent
from packviz.draw.sheet import HATCHED, Sheet
from packviz.draw.text import table
from packviz.measure import rnn_calls
from packviz.measure.study import Comparison, Results, Study, by_comparison, captions
from packviz.measure.timing import RATIOS, Timing
from packviz.ops.running import forget
from packviz.studies import network as forum
from packviz.studies.benchmark import setup_lengths

TORCH = "all of torch's"
REPLACED = {"pad": "pad replaced", "pack": "pack too", "packed LSTM": "and the LSTM: pv.run"}
"""For each part, the name of the step in which it and all earlier parts are replaced."""

REST = "the rest"


@dataclass(frozen=True)
class PartsPoint:
    """A batch whose lengths repeatedly count down from `steps` to 1."""

    steps: int
    batch_size: int = 512

    def __str__(self) -> str:
        return f"{self.batch_size} sequences of up to {self.steps} time steps"


class Parts(Results[PartsPoint, Timing]):
    """The times of a training step of the network from the forum question, with more and more parts replaced."""

    def shares(self, point: PartsPoint) -> dict[str, float]:
        """Returns the shares of the step's time that each part and the rest take. The shares add up to 1."""
        left = [1.0, *(self.ratio(point, name, TORCH).value for name in REPLACED.values())]
        falling = [*accumulate(left, min)]  # because of noise, a replacement may seem to cost time
        return dict(zip(REPLACED, (a - b for a, b in pairwise(falling)), strict=True)) | {
            REST: falling[-1]
        }

    def finding(self) -> str:
        """Returns a line about the shares of the parts for the largest batch."""
        point = self.points[-1]
        return f"At {point.steps} steps, a packed step consists of {self._listed(point)}"

    def _listed(self, point: PartsPoint) -> str:
        return ", ".join(
            f"{part} {whole_percent(share)}" for part, share in self.shares(point).items()
        )

    def to_text(self) -> str:
        """Returns, for each batch, a table of the times in milliseconds and a line with the shares."""
        lines = [f"{self.finding()}."]
        for point, timing in self.values.items():
            rows = [[f"{point}", "ms", f"times {TORCH} (quartiles)"], *timing.against(TORCH)]
            lines += ["", *table(rows, "<8   <"), f"Shares: {self._listed(point)}."]
        return "\n".join([*lines, "", RATIOS, f"Measured on {self.caption}."])

    def bars(self, point: PartsPoint) -> dict[str, Bar]:
        """Returns a bar for each part of a step. Each bar begins where the previous one ends."""
        made, start = {}, 0.0
        for part, share in self.shares(point).items():
            fill, ends = METHODS["run"], None
            if part in REPLACED:
                ratio = self.ratio(point, REPLACED[part], TORCH)
                fill, ends = (
                    HATCHED,
                    (min(max(1 - ratio.high, 0.0), 1.0), min(max(1 - ratio.low, 0.0), 1.0)),
                )
            made[part] = Bar([(start, ""), (share, fill)], whole_percent(share), ends)
            start += share
        return made


@dataclass(frozen=True, repr=False)
class ByMachine(Drawing):
    """A picture of the results from several machines.

    Attributes:
        found: the results by machine name.
    """

    found: Mapping[str, Parts]

    def to_text(self) -> str:
        """Returns the texts of all results."""
        return "\n\n".join(found.to_text() for found in self.found.values())

    def sheet(self, theme: str) -> Sheet:
        """Draws the parts of the step for each machine and batch."""
        groups = {
            f"{name}, " * (len(self.found) > 1)
            + f"{point.steps} steps, {milliseconds(found.values[point].median(TORCH))} ms": found.bars(
                point
            )
            for name, found in self.found.items()
            for point in found.points
        }
        hatched = (
            "Hatched: the time saved by replacing this part with one that gives the same results."
        )
        notes = [f"{hatched} Whiskers: quartiles of where the bar ends.", *captions(self.found)]
        return rows(next(iter(self.found.values())).finding(), groups, theme, notes=notes)


def replaced_steps(point: PartsPoint, device: Any) -> Comparison:
    """Returns steps with more and more parts replaced. A step returns the logits and the gradients of all weights."""
    torch.manual_seed(0)
    network = forum.Network().to(device)
    n = setup_lengths("B", point.batch_size, point.steps)
    batch = forum.batch(n, point.steps, device)
    own_pad = partial(rnn_calls.own_pad, in_order=True)
    methods: list[forum.Method] = [
        forum.packed,
        own_pad,
        forum.METHODS["drop-in"],
        forum.METHODS["run"],
    ]
    steps = [forum.training_step(network, batch, method) for method in methods]
    calls = dict(zip((TORCH, *REPLACED.values()), steps, strict=True))
    return Comparison(calls, forget, alike=list(calls))


STUDY = Study(
    "parts",
    PartsPoint,
    by_comparison(replaced_steps, warmup=1),
    Parts,
    full=[PartsPoint(64), PartsPoint(128), PartsPoint(256)],
    quick=[PartsPoint(32, 64), PartsPoint(64, 64)],
    parameters={"rounds": 15},
)
run, recorded = STUDY.run, STUDY.load
