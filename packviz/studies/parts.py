"""Measures the parts of a packed training step, by replacing one after another.

The step trains the model from the forum question (see `packviz.studies.network`) on a batch of
setup B. First torch's pad is replaced, then torch's pack, and then torch's packed LSTM. The results
stay the same. The share of a part is the time that its replacement saves, divided by the time of
the whole step.

`packviz study parts --out notebooks/recorded/parts_cpu.json` makes the recorded file in about four
minutes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import accumulate, pairwise

import numpy as np
import torch

from packviz.draw import bars
from packviz.draw.palette import METHODS
from packviz.draw.quantities import milliseconds, whole_percent
from packviz.draw.sheet import HATCHED
from packviz.measure import rnn_calls
from packviz.measure.study import (
    Comparison,
    Point,
    Results,
    Study,
    TimedPoints,
    by_comparison,
    captions,
)
from packviz.ops.running import forget
from packviz.studies import forum, network

TORCH = "all of torch's"
REPLACED = {"pad": "pad replaced", "pack": "pack too", "packed LSTM": "and the LSTM: pv.run"}
"""For each part, the name of the step in which it and all earlier parts are replaced."""

REST = "the rest"


def shares(results: TimedPoints, point: Point) -> dict[str, float]:
    """Returns the shares of the step's time that each part and the rest take.

    The shares add up to 1.
    """
    left = [1.0]
    for step in REPLACED.values():
        left.append(results.ratio(point, step, TORCH).value)
    falling = [*accumulate(left, min)]  # because of noise, a replacement may seem to cost time
    saved = [before - after for before, after in pairwise(falling)]
    names = [*REPLACED, REST]
    return dict(zip(names, [*saved, falling[-1]], strict=True))


def chart(machines: Mapping[str, TimedPoints]) -> bars.BarChart:
    """Draws the parts of the step for each machine and batch."""
    groups = {}
    lines = []
    for machine, results in machines.items():
        prefix = f"{machine}, " if len(machines) > 1 else ""
        for point in results.points:
            total = milliseconds(results.timing(point).median(TORCH))
            group = f"{prefix}{point.steps} steps, {total} ms"
            groups[group] = _bars(results, point)
            lines.append(
                f"At {point.steps} steps, a packed step consists of {_listed(results, point)}"
            )
        lines += [f"{results}", ""]
    notes = [
        "Hatched: the time saved by replacing this part with one that gives the same results."
        " Whiskers: quartiles of where the bar ends.",
        *captions(machines),
    ]
    first = next(iter(machines.values()))
    largest = first.points[-1]
    title = f"At {largest.steps} steps, a packed step consists of {_listed(first, largest)}"
    text = "\n".join([title, *lines])
    return bars.BarChart(text, lambda theme: bars.rows(title, groups, theme, notes=notes))


def _listed(results: TimedPoints, point: Point) -> str:
    parts = []
    for part, share in shares(results, point).items():
        parts.append(f"{part} {whole_percent(share)}")
    return ", ".join(parts)


def _bars(results: TimedPoints, point: Point) -> dict[str, bars.Bar]:
    """Returns a bar for each part of a step. Each bar begins where the previous one ends."""
    drawn = {}
    start = 0.0
    for part, share in shares(results, point).items():
        fill = METHODS["run"]
        whisker = None
        if part in REPLACED:
            fill = HATCHED
            ratio = results.ratio(point, REPLACED[part], TORCH)
            ends = np.clip([1 - ratio.high, 1 - ratio.low], 0, 1)
            whisker = (float(ends[0]), float(ends[1]))
        lengths = [(start, ""), (share, fill)]
        drawn[part] = bars.Bar(lengths, whole_percent(share), whisker)
        start += share
    return drawn


def replaced_steps(point: Point, device: str) -> Comparison:
    """Returns steps with more and more parts replaced.

    A step returns the logits and the gradients of all weights.
    """
    torch.manual_seed(0)
    model = network.Network().to(device)
    n = forum.setup_lengths("B", point.batch_size, point.steps)
    batch = network.batch(n, point.steps, device)
    methods: dict[str, network.Method] = {
        TORCH: network.METHODS["packed"],
        REPLACED["pad"]: partial(rnn_calls.own_pad, in_order=True),
        REPLACED["pack"]: network.METHODS["drop-in"],
        REPLACED["packed LSTM"]: network.METHODS["run"],
    }
    calls = {name: network.training_step(model, batch, method) for name, method in methods.items()}
    return Comparison(calls, forget, alike=list(calls))


STUDY = Study(
    "parts",
    Point,
    by_comparison(replaced_steps, warmup=1),
    Results,
    full=[forum.point("B", steps) for steps in (64, 128, 256)],
    quick=[forum.point("B", 32, 64), forum.point("B", 64, 64)],
    parameters={"rounds": 15, "budget": 60.0, "fewest": 7},
    version=2,
)
