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

from packviz.draw.bars import Bar, BarChart, draw_horizontal_bars
from packviz.draw.palette import METHODS, REAL, SIGNED_FILLS
from packviz.draw.quantities import format_milliseconds, whole_percent
from packviz.measure import rnn_calls
from packviz.measure.study import (
    Comparison,
    Point,
    Results,
    Study,
    TimedResults,
    machine_captions,
    time_training,
)
from packviz.studies import forum, network

TORCH = "all of torch's"
STEP_NAMES_BY_PART = {
    "pad": "pad replaced",
    "pack": "pack too",
    "packed LSTM": "and the LSTM: pv.run",
}
"""For each part, the name of the step in which it and all earlier parts are replaced."""

REST_LABEL = "the rest"
PART_COLOURS = {
    "pad": METHODS["packed"],
    "pack": REAL,
    "packed LSTM": SIGNED_FILLS[1],
    REST_LABEL: REAL,
}
BAR_LEGEND = [
    (PART_COLOURS["pad"], "pad"),
    (PART_COLOURS["packed LSTM"], "packed LSTM"),
    (REAL, "pack and the rest"),
    (METHODS["run"], "pv.run"),
]
"""The fills of the parts, and their meanings."""


def shares(results: TimedResults, point: Point) -> dict[str, float]:
    """Returns the shares of the step's time that each part and the rest take.

    The shares add up to 1.
    """
    steps = STEP_NAMES_BY_PART.values()
    remaining_shares = [1.0, *(results.ratio(point, step, TORCH).value for step in steps)]
    # Because of noise, a replacement may seem to cost time.
    falling_shares = [*accumulate(remaining_shares, min)]
    saved = [before - after for before, after in pairwise(falling_shares)]
    names = [*STEP_NAMES_BY_PART, REST_LABEL]
    return dict(zip(names, [*saved, falling_shares[-1]], strict=True))


def chart(results_by_machine: Mapping[str, TimedResults]) -> BarChart:
    """Draws the parts of the step in milliseconds, on one scale for all machines and batches."""
    groups = {}
    lines = []
    for machine, results in results_by_machine.items():
        prefix = f"{machine}, " if len(results_by_machine) > 1 else ""
        for point in results.points:
            bars = _step_bars(results, point)
            name = f"{prefix}{point.steps} steps"
            groups[name] = bars
            shares_text = ", ".join(
                f"{part} {whole_percent(share)}" for part, share in shares(results, point).items()
            )
            torch_bar, pv_run_bar = bars.values()
            lines.append(
                f"{name}: {torch_bar.label} ({shares_text}), {pv_run_bar.label} with pv.run"
            )
    notes = [
        "A part's time is what its replacement by an exact one saves. Whiskers: quartiles.",
        *machine_captions(results_by_machine),
    ]
    title = _finding(next(iter(results_by_machine.values())))
    text = "\n".join([title, *lines, *notes])
    return BarChart(
        text,
        lambda theme: draw_horizontal_bars(title, groups, theme, legend=BAR_LEGEND, notes=notes),
    )


def _finding(results: TimedResults) -> str:
    """Returns a sentence about the longest sequences."""
    point = results.points[-1]
    part_shares = shares(results, point)
    share_text = whole_percent(part_shares["pad"] + part_shares["packed LSTM"])
    torch_bar, pv_run_bar = _step_bars(results, point).values()
    return (
        f"At {point.steps} steps, pad and the packed LSTM take {share_text} of a packed step: "
        f"{torch_bar.label}, and {pv_run_bar.label} with pv.run"
    )


def _step_bars(results: TimedResults, point: Point) -> dict[str, Bar]:
    """Returns a bar for torch's step, divided into its parts, and one for `pv.run`."""
    timing = results.timing(point)
    drawn = {}
    for name, step in (("torch", TORCH), ("pv.run", STEP_NAMES_BY_PART["packed LSTM"])):
        low, total, high = timing.spread(step)
        parts = [(total, METHODS["run"])]
        if step == TORCH:
            part_shares = shares(results, point)
            parts = [(share * total, PART_COLOURS[part]) for part, share in part_shares.items()]
        drawn[name] = Bar(parts, f"{format_milliseconds(total)} ms", (low, high))
    return drawn


def make_comparison(point: Point, device: str) -> Comparison:
    """Returns steps with more and more parts replaced.

    A step returns the logits and the gradients of all weights.
    """
    n = forum.setup_lengths("B", point.batch_size, point.steps)
    methods: dict[str, network.MethodFunction] = {
        TORCH: network.METHODS["packed"],
        STEP_NAMES_BY_PART["pad"]: partial(rnn_calls.packed_packviz_pad, is_sorted=True),
        STEP_NAMES_BY_PART["pack"]: network.METHODS["drop-in"],
        STEP_NAMES_BY_PART["packed LSTM"]: network.METHODS["run"],
    }
    return network.make_comparison(n, methods, "training", device)


STUDY = Study(
    "parts",
    Point,
    partial(time_training, make_comparison, warmup=1),
    Results,
    full_points=[forum.point("B", steps) for steps in (64, 128, 256)],
    quick_points=[forum.point("B", 32, 64), forum.point("B", 64, 64)],
    parameters={"rounds": 15, "budget": 60.0, "fewest": 7},
    version=2,
)
