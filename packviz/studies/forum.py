"""Repeats a benchmark from a forum question, in which batches have more and more time steps.

At every size and in every setup, each method is timed in two passes: *forward* (the model alone,
without a graph for autograd), and *training* (forward, loss, backward). In each pass the methods
take turns.

This table compares the original with this benchmark:

| the original | here |
|---|---|
| takes one mean over a block of 20 calls | takes the median of interleaved rounds, with quartiles |
| times one curve after the other, so a machine that warms up or throttles distorts them | times all
methods in turn, in a new random order each round, and takes ratios within rounds |
| warms up with the forward pass only, so the first backward passes are timed cold | warms up each
pass that it times |
| includes the loss and the clearing of gradients in the time, even for the forward pass | keeps no
    gradients, and times the model alone in the forward pass |
| sets gradients to zero, so that every backward pass adds to existing gradients | never adds to
existing gradients |
| uses the token 1 everywhere, so a sequence in the wrong place would not be noticed | uses random
tokens, and compares the logits and gradients of all methods at every point (on a GPU without TF32)
|
| repeats the mask to the size of the output | broadcasts the mask |
| runs on CUDA only | uses CUDA events on a GPU, and a monotonic clock on a CPU |
| records no seed, spread or memory | records all three, as well as the machine |

As in the original, the time does not include sorting the batch. Sizes are still measured in
ascending order, so compare methods at one size rather than sizes with each other.

A file made up for a test has `"fake"` in its provenance, and every picture and text made from it
states this.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np

from packviz.core.layout import IntArray
from packviz.core.validation import require_at_least, require_one_of
from packviz.draw import palette
from packviz.draw.curves import Curve, Plot, Sweep
from packviz.draw.quantities import format_milliseconds, plain_number
from packviz.draw.sheet import Point as Place
from packviz.draw.text import table
from packviz.measure.machine import JsonDict
from packviz.measure.study import (
    PASSES,
    Comparison,
    Point,
    Results,
    Study,
    TimedResults,
    machine_captions,
    time_passes,
)
from packviz.measure.timing import Timing

SETUPS = {"A": "equal", "B": "triangle", "evenly": "evenly"}
"""The distributions of lengths of the two setups from the forum question, and of one more."""

METHODS = ("padded", "packed", "drop-in", "run")
"""The names in `network.METHODS`, repeated here because importing that module needs torch."""

FULL_STEPS = (*range(32, 257, 32), *range(320, 513, 64))
FULL_BATCH = 512
"""The batch size; with `FULL_STEPS`, sizes from the forum question.

Above 256 steps, we leave out every other size, because a packed training step of 512 steps takes
over 20 seconds with glibc's default allocator.
"""

QUICK_STEPS = range(32, 129, 32)
QUICK_BATCH = 64
"""The batch size; with `QUICK_STEPS`, small sizes, which take seconds on a CPU."""

ALLOCATORS = (
    "allocator_default_cpu.json",
    "benchmark_cpu.json",
    "allocator_thp_cpu.json",
    "allocator_tuned_cpu.json",
)
"""The recorded files that show what the allocator's settings change (see tools/record.py)."""

MODEL_TEXT = "Embedding(10, 16) → LSTM(16, 32) → Linear(32, 2), float32"

QUANTITY_UNITS = {"ratio": "×", "time": "ms", "memory": "MB"}
"""The quantities that can be drawn, with their units.

Ratios and the finding are relative to padded.
"""


_QUANTITY_VERBS = {"ratio": "takes", "memory": "needs"}

_Quartiles = tuple[float, float, float]


def setup_lengths(setup: str, batch_size: int, steps: int) -> IntArray:
    """Returns `(B,)` lengths, longest first.

    They are all equal to `steps` (A), repeated countdowns to 1 (B), or evenly spread.

    Raises:
        ValueError: there is no such setup.
    """
    return -np.sort(-point(setup, steps, batch_size).layout.lengths)


def point(setup: str, steps: int, batch_size: int = FULL_BATCH) -> Point:
    """Returns the point of a setup at a size.

    Raises:
        ValueError: there is no such setup, or a number is below 1.
    """
    kind = SETUPS[require_one_of("setup", setup, SETUPS)]
    return Point(
        "LSTM",
        kind,
        require_at_least("batch_size", batch_size),
        require_at_least("steps", steps),
        16,
        32,
    )


def grid(
    setups: Sequence[str] = ("A", "B"),
    steps: Sequence[int] = FULL_STEPS,
    batch_size: int = FULL_BATCH,
) -> list[Point]:
    """Returns the points for every setup at every size, smallest sizes first."""
    return [point(setup, size, batch_size) for size in sorted(steps) for setup in setups]


def setup_points(results: TimedResults, setup: str) -> list[Point]:
    """Returns the measured points of a setup, smallest first."""
    points = [each for each in results.points if each.kind == SETUPS[setup]]
    return sorted(points, key=lambda each: each.steps)


def recordings(methods: Sequence[str] = ("padded", "packed")) -> dict[str, TimedResults]:
    """Returns, by machine, results recorded at the forum's batch size with all of these methods."""
    results_by_machine = {}
    for machine, results in STUDY.recordings().items():
        measured_methods = results.provenance["parameters"]["methods"]
        batch_size = results.points[0].batch_size
        if {*methods} <= {*measured_methods} and batch_size == FULL_BATCH:
            results_by_machine[machine] = results
    return results_by_machine


def finding(results: TimedResults, quantity: str, methods: Sequence[str], setup: str = "B") -> str:
    """Returns a sentence about a quantity in training, at the largest size of a setup."""
    largest = setup_points(results, setup)[-1]
    timing = results.timing(largest)
    reference_method = methods[0]
    medians = {}
    for name in methods:
        medians[name] = _quantity_quartiles(timing, quantity, name, reference_method)[1]
    reference_median = medians[reference_method]
    parts = []
    for name, median in medians.items():
        if math.isnan(median):
            continue
        if quantity == "time":
            parts.append(f"{name} {plain_number(median)}")
        elif name != reference_method:
            ratio_text = f"{median / reference_median:#.2g}".rstrip(".")
            parts.append(f"{name} {_QUANTITY_VERBS[quantity]} {ratio_text}")
    units = {"time": "ms", "ratio": f"times as long as {reference_method}"}
    unit = units.get(quantity, f"times the memory of {reference_method}")
    sentence = f"{', '.join(parts)} {unit} (training, setup {setup}, {largest.steps} steps)"
    return sentence[:1].upper() + sentence[1:]


def chart(
    results_by_machine: Mapping[str, TimedResults],
    quantity: str,
    setups: Sequence[str] = ("A", "B"),
    methods: Sequence[str] = METHODS[:2],
) -> Sweep:
    """Returns a chart of a quantity against the number of time steps, for each setup.

    The title is the finding of the first machine.

    Args:
        results_by_machine: the results by machine name. The first has solid lines, and the others
            have dashed lines.
        quantity: the quantity to draw, one of `QUANTITY_UNITS`.
        setups: the setups to draw.
        methods: the methods to draw. The first is the one that ratios refer to.

    Raises:
        ValueError: there is no such quantity.
    """
    unit = QUANTITY_UNITS[require_one_of("quantity", quantity, QUANTITY_UNITS)]
    label = f"times as long as {methods[0]}" if quantity == "ratio" else quantity
    drawn_methods = methods[1:] if quantity == "ratio" else methods
    plots = []
    lines = []
    for setup in setups:
        curves = []
        for source, results in enumerate(results_by_machine.values()):
            for method, pass_name in product(drawn_methods, PASSES):
                curves += _make_curves(
                    results, quantity, method, setup, pass_name, methods[0], source
                )
        guides = _guide_lines(quantity, curves, methods[0])
        plot = Plot(f"{setup} ({SETUPS[setup]}): {label}", curves[::-1], guides, unit, is_log=True)
        plots.append(plot)
        sizes = sorted({size for curve in curves for size in curve.x})
        rows = [["steps", *map(str, sizes)]]
        for curve in curves:
            values = dict(zip(curve.x, curve.y, strict=True))
            cells = [plain_number(values[size]) if size in values else "–" for size in sizes]
            rows.append([curve.name, *cells])
        lines += ["", f"{plot.title}, {unit}"]
        lines += table(rows)
    model = f"{MODEL_TEXT}."
    sources = machine_captions(results_by_machine)
    left_out = []
    for results in results_by_machine.values():
        left_out += [f"✗ {line}" for line in results.left_out]
    title = "Nothing was recorded"
    if results_by_machine:
        first_results = next(iter(results_by_machine.values()))
        title = finding(first_results, quantity, methods, setups[-1])
    text = "\n".join([title, *lines, "", model, *sources, *left_out])
    whiskers = "" if quantity == "memory" else " Whiskers: quartiles."
    marks = f"Filled marks: training. Hollow marks: forward.{whiskers}"
    notes = [model, *left_out, marks]
    if len(results_by_machine) == 1:
        notes[1:1] = sources
        sources = []
    return Sweep(title, [plots], sources, notes, text)


def ratios(results: TimedResults, methods: Sequence[str] = METHODS) -> Sweep:
    """Returns one plot of training times in setups A and B, as multiples of the first method's."""
    curves = []
    for setup, method in product("AB", methods[1:]):
        for curve in _make_curves(results, "ratio", method, setup, "training", methods[0]):
            curves.append(replace(curve, name=f"{method}, {setup}", hollow=setup == "A"))
    guides = _guide_lines("ratio", curves, methods[0])
    plot = Plot(f"training, times as long as {methods[0]}", curves, guides, "×", is_log=True)
    title = finding(results, "ratio", methods)
    notes = [
        f"Filled: B. Hollow: A. Whiskers: quartiles. {MODEL_TEXT}.",
        *machine_captions({"": results}),
    ]
    lines = [title]
    for curve in curves:
        values = [f"{plain_number(y)} at {x}" for x, y in zip(curve.x, curve.y, strict=True)]
        lines.append(f"{curve.name}: {', '.join(values)}")
    return Sweep(title, [[plot]], (), notes, "\n".join([*lines, *notes]))


def allocators(names: Sequence[str] = ALLOCATORS) -> str:
    """Returns a table of training steps in setup B with different settings of the allocator.

    A file that was not recorded is left out.
    """
    lines = [["batch", "padded", "packed", "page faults", "allocator"]]
    for point, name in product(STUDY.others["allocator"], names):
        with suppress(ValueError):
            results = STUDY.load(name)
            timing = results.timing(point)
            page_faults = timing.faults.get("packed")
            times = [f"{format_milliseconds(timing.median(method))} ms" for method in METHODS[:2]]
            faults_text = "not recorded" if page_faults is None else f"{page_faults:,}"
            size = f"{point.batch_size} × {point.steps}"
            lines.append([size, *times, faults_text, results.provenance["allocator"]])
    return "\n".join(table(lines, "<  >  >  >  <"))


def _make_curves(
    results: TimedResults,
    quantity: str,
    method: str,
    setup: str,
    pass_name: str,
    reference_method: str,
    source: int = 0,
) -> list[Curve]:
    """Returns a curve over the sizes at which the quantity was measured, or none without any."""
    quartiles_by_steps = {}
    for each in setup_points(results, setup):
        spread = _quantity_quartiles(
            results.timing(each, pass_name), quantity, method, reference_method
        )
        if not math.isnan(spread[1]):
            quartiles_by_steps[each.steps] = spread
    if not quartiles_by_steps:
        return []
    lows, medians, highs = zip(*quartiles_by_steps.values(), strict=True)
    name = f"{method}, {pass_name}"
    number = [*palette.METHODS].index(method)
    steps = [*quartiles_by_steps]
    is_hollow = pass_name == "forward"
    return [Curve(name, number, source, steps, medians, lows, highs, hollow=is_hollow)]


def _quantity_quartiles(
    timing: Timing, quantity: str, method: str, reference_method: str
) -> _Quartiles:
    """Returns the three quartiles of a quantity. They are NaN if it was not measured.

    Memory is measured once, so its quartiles are equal.
    """
    if quantity == "memory":
        return (timing.memory.get(method, math.nan) / 1e6,) * 3
    needed_methods = {method, reference_method} if quantity == "ratio" else {method}
    if not needed_methods <= timing.seconds.keys():
        return (math.nan,) * 3
    if quantity == "ratio":
        ratio = timing.ratio(method, reference_method)
        return ratio.low, ratio.value, ratio.high
    low, middle, high = timing.spread(method)
    return 1e3 * low, 1e3 * middle, 1e3 * high


def _guide_lines(
    quantity: str, curves: Sequence[Curve], reference_method: str
) -> dict[str, tuple[Place, Place]]:
    """Returns guide lines: one at 1 for ratios, and linear and quadratic growth for times."""
    sizes = sorted({x for curve in curves for x in curve.x})
    if len(sizes) < 2 or quantity == "memory":
        return {}
    start = sizes[0]
    end = sizes[-1]
    if quantity == "ratio":
        return {f"1: as {reference_method}": ((start, 1), (end, 1))}
    first_time = curves[0].y[0]
    growth = end / start
    linear_time = first_time * growth
    return {
        "slope 1: T": ((start, first_time), (end, linear_time)),
        "slope 2: T²": ((start, first_time), (end, linear_time * growth)),
    }


def _make_comparison(point: Point, pass_name: str, device: str, settings: JsonDict) -> Comparison:
    from packviz.studies import network  # noqa: PLC0415

    n = -np.sort(-point.layout.lengths)
    methods = {}
    for name in settings["methods"]:
        methods[name] = network.METHODS[require_one_of("methods", name, network.METHODS)]
    return network.make_comparison(n, methods, pass_name, device)


STUDY = Study(
    "benchmark",
    Point,
    partial(time_passes, _make_comparison),
    Results,
    full_points=grid()[::-1],  # largest sizes first, for a machine that is lent for a few minutes
    quick_points=grid(steps=(32, 64), batch_size=QUICK_BATCH),
    others={"allocator": [point("B", 128, 64), point("B", FULL_BATCH, FULL_BATCH)]},
    parameters={"methods": METHODS, "rounds": 7, "budget": 40.0, "fewest": 3},
    version=3,
)
