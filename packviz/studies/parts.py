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

import torch

from packviz.draw.bars import Bar, BarChart, draw_horizontal_bars
from packviz.draw.palette import METHODS, REAL, SIGNED_FILLS
from packviz.draw.quantities import milliseconds, whole_percent
from packviz.measure import rnn_calls
from packviz.measure.study import (
    Comparison,
    Point,
    Results,
    Study,
    TimedResults,
    captions,
    time_training,
)
from packviz.ops.running import clear_caches
from packviz.studies import forum, network

TORCH = "all of torch's"
STEP_NAMES = {"pad": "pad replaced", "pack": "pack too", "packed LSTM": "and the LSTM: pv.run"}
"""For each part, the name of the step in which it and all earlier parts are replaced."""

REST_LABEL = "the rest"
FILL_COLOURS = {
    "pad": METHODS["packed"],
    "pack": REAL,
    "packed LSTM": SIGNED_FILLS[1],
    REST_LABEL: REAL,
}
LEGEND = [
    (FILL_COLOURS["pad"], "pad"),
    (FILL_COLOURS["packed LSTM"], "packed LSTM"),
    (REAL, "pack and the rest"),
    (METHODS["run"], "pv.run"),
]
"""The fills of the parts, and their meanings."""


def shares(results: TimedResults, point: Point) -> dict[str, float]:
    """Returns the shares of the step's time that each part and the rest take.

    The shares add up to 1.
    """
    remaining_shares = [1.0]
    for step in STEP_NAMES.values():
        remaining_shares.append(results.ratio(point, step, TORCH).value)
    # Because of noise, a replacement may seem to cost time.
    falling = [*accumulate(remaining_shares, min)]
    saved = [before - after for before, after in pairwise(falling)]
    names = [*STEP_NAMES, REST_LABEL]
    return dict(zip(names, [*saved, falling[-1]], strict=True))


def chart(machines: Mapping[str, TimedResults]) -> BarChart:
    """Draws the parts of the step in milliseconds, on one scale for all machines and batches."""
    groups = {}
    lines = []
    for machine, results in machines.items():
        prefix = f"{machine}, " if len(machines) > 1 else ""
        for point in results.points:
            bars = _step_bars(results, point)
            name = f"{prefix}{point.steps} steps"
            groups[name] = bars
            listed = ", ".join(
                f"{part} {whole_percent(share)}" for part, share in shares(results, point).items()
            )
            whole, run_bar = bars.values()
            lines.append(f"{name}: {whole.label} ({listed}), {run_bar.label} with pv.run")
    notes = [
        "A part's time is what its replacement by an exact one saves. Whiskers: quartiles.",
        *captions(machines),
    ]
    title = _finding(next(iter(machines.values())))
    text = "\n".join([title, *lines, *notes])
    return BarChart(
        text, lambda theme: draw_horizontal_bars(title, groups, theme, legend=LEGEND, notes=notes)
    )


def _finding(results: TimedResults) -> str:
    """Returns a sentence about the longest sequences."""
    point = results.points[-1]
    own = shares(results, point)
    slow = whole_percent(own["pad"] + own["packed LSTM"])
    whole, run_bar = _step_bars(results, point).values()
    return (
        f"At {point.steps} steps, pad and the packed LSTM take {slow} of a packed step: "
        f"{whole.label}, and {run_bar.label} with pv.run"
    )


def _step_bars(results: TimedResults, point: Point) -> dict[str, Bar]:
    """Returns a bar for torch's step, divided into its parts, and one for `pv.run`."""
    timing = results.timing(point)
    drawn = {}
    for name, step in (("torch", TORCH), ("pv.run", STEP_NAMES["packed LSTM"])):
        low, total, high = timing.spread(step)
        parts = [(total, METHODS["run"])]
        if step == TORCH:
            own = shares(results, point)
            parts = [(share * total, FILL_COLOURS[part]) for part, share in own.items()]
        drawn[name] = Bar(parts, f"{milliseconds(total)} ms", (low, high))
    return drawn


def make_replaced_steps(point: Point, device: str) -> Comparison:
    """Returns steps with more and more parts replaced.

    A step returns the logits and the gradients of all weights.
    """
    torch.manual_seed(0)
    model = network.Network().to(device)
    n = forum.setup_lengths("B", point.batch_size, point.steps)
    batch = network.batch(n, point.steps, device)
    methods: dict[str, network.Method] = {
        TORCH: network.METHODS["packed"],
        STEP_NAMES["pad"]: partial(rnn_calls.packed_packviz_pad, in_order=True),
        STEP_NAMES["pack"]: network.METHODS["drop-in"],
        STEP_NAMES["packed LSTM"]: network.METHODS["run"],
    }
    calls = {
        name: network.make_training_step(model, batch, method) for name, method in methods.items()
    }
    return Comparison(calls, clear_caches, alike=list(calls))


STUDY = Study(
    "parts",
    Point,
    partial(time_training, make_replaced_steps, warmup=1),
    Results,
    full_points=[forum.point("B", steps) for steps in (64, 128, 256)],
    quick_points=[forum.point("B", 32, 64), forum.point("B", 64, 64)],
    parameters={"rounds": 15, "budget": 60.0, "fewest": 7},
    version=2,
)
