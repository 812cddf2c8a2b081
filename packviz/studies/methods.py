"""Times torch padded, torch packed and every method of `pv.run` against each other.

A point is an RNN and a batch. At each point, all methods are timed against each other in two
passes: *training* (forward, and then backward from a gradient of ones to the input and all weights)
and *forward* (without a graph for autograd). The padded batch is as wide as its longest sequence.
Before a point is timed, the results and gradients of all methods are compared with those of torch
packed (without TF32 on a GPU). A method that differs is left out, and the results give the reason.
torch padded is timed only to show how fast padded data can be processed. Its final states are those
after the padding, so they are wrong.

Everything that is computed once for the lengths of a batch (indices, the choice of `auto`) is
dropped before each call, because in training the lengths differ from batch to batch.

`packviz study methods --out notebooks/recorded/methods_cpu.json` makes the recorded file. With
`--points untuned`, the same methods are timed at points to which nothing was tuned.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch

from packviz.count.flops import flops
from packviz.draw.spans import Spans
from packviz.draw.table import Table
from packviz.draw.text import with_noun
from packviz.measure import rnn_calls
from packviz.measure.advise import METHODS, MethodFunction
from packviz.measure.machine import JsonDict
from packviz.measure.study import (
    PASSES,
    Comparison,
    Point,
    Results,
    Study,
    TimedResults,
    time_passes,
)
from packviz.measure.timing import RATIO_NOTE, Call
from packviz.ops import running

PADDED = "torch padded"
PACKED = "torch packed"
AUTO = "auto"

_RNN_MODES = ("LSTM", "GRU", "RNN")
_LARGE_BATCHES = (
    ("equal", 512, 128, 16, 32),
    ("triangle", 512, 128, 16, 32),
    ("evenly", 128, 200, 128, 256),
    ("log-normal around 20", 64, 200, 128, 256),
    ("log-normal around 20", 64, 200, 64, 128),
)
_BATCHES_FOR_ALL_MODES = (
    ("evenly", 64, 128, 32, 64),
    ("uniform", 64, 128, 32, 64),
    ("log-normal around 20", 64, 96, 32, 64),
    ("nearly equal", 64, 128, 32, 64),
    ("sentences", 64, 32, 32, 64),
    ("equal", 64, 128, 32, 64),
    ("uniform", 8, 32, 16, 16),
    ("equal", 8, 32, 16, 16),
    ("uniform", 32, 64, 256, 512),
    ("uniform", 64, 64, 32, 64, 2),
    ("nearly equal", 64, 64, 32, 64, 2),
    ("uniform", 512, 64, 16, 32),
    ("uniform", 8, 512, 32, 64),
)
"""Batches that are run with each kind of RNN: the fields of a `Point` after the mode."""

_UNTUNED_SIZES = ((64, 150, 24, 40, 1), (128, 60, 100, 100, 2), (32, 80, 48, 96, 1))
_UNTUNED_LENGTH_KINDS = ("evenly", "uniform", "log-normal around 20", "nearly equal")


def tuned_points() -> list[Point]:
    """Returns the points of the recorded file."""
    points = [Point("LSTM", *point_fields) for point_fields in _LARGE_BATCHES]
    for mode in _RNN_MODES:
        points += [Point(mode, *point_fields) for point_fields in _BATCHES_FOR_ALL_MODES]
    return points


def untuned_points() -> list[Point]:
    """Returns points to which nothing was tuned.

    The last one of each size has a single sequence.
    """
    points = []
    for mode in _RNN_MODES:
        for batch_size, *sizes in _UNTUNED_SIZES:
            points += [Point(mode, kind, batch_size, *sizes) for kind in _UNTUNED_LENGTH_KINDS]
            points.append(Point(mode, "equal", 1, *sizes))
    return points


def best(results: TimedResults, point: Point) -> str:
    """Returns the fastest method in training that gives the right results.

    `auto` is left out, because it only chooses among the other methods.
    """
    timing = results.timing(point)
    exact_methods = [name for name in timing.seconds if name not in (PADDED, AUTO)]
    return min(exact_methods, key=timing.median)


def packed_faster(results: TimedResults) -> Spans:
    """Draws the batches whose forward pass is clearly faster with torch packed than torch padded.

    The FLOPs and times of torch packed are drawn as multiples of those of torch padded.
    """
    n_faster_by_pass = dict.fromkeys(PASSES, 0)
    groups = {}
    ratios = {each: results.ratio(each, PACKED, PADDED, "forward").value for each in results.points}
    for point in sorted(ratios, key=ratios.__getitem__):
        flop_count = flops(point.spec, point.layout, input_grad=True)
        rows = {}
        for pass_name, work in (("training", flop_count.training), ("forward", flop_count.forward)):
            ratio = results.ratio(point, PACKED, PADDED, pass_name)
            rows[pass_name] = (work.packed / work.padded, ratio)
            if ratio.is_clear and ratio.value < 1:
                n_faster_by_pass[pass_name] += 1
                if pass_name == "forward":
                    groups[str(point)] = rows
    batches = with_noun(len(results.points), "batch", "batches")
    title = (
        f"Packed is clearly faster in training on {n_faster_by_pass['training']} of {batches},"
        f" forward alone on {n_faster_by_pass['forward']}"
    )
    return Spans(title, groups, notes=[RATIO_NOTE, f"Measured on {results.caption}."])


def verdicts(results: TimedResults) -> Table:
    """Returns a table of how often `auto` makes a training step clearly faster or slower.

    Each column is a kind of RNN.
    """
    modes = [point.mode for point in results.points]
    distinct_modes = list(dict.fromkeys(modes))
    rows = [["batches", *(str(modes.count(mode)) for mode in distinct_modes)]]
    for compared_method in (PACKED, PADDED):
        clear_ratios: dict[str, list[float]] = {mode: [] for mode in distinct_modes}
        for point in results.points:
            ratio = results.ratio(point, AUTO, compared_method)
            if ratio.is_clear:
                clear_ratios[point.mode].append(ratio.value)
        counts = []
        for values in clear_ratios.values():
            n_faster = sum(value < 1 for value in values)
            counts.append(f"{n_faster} faster, {len(values) - n_faster} slower")
        rows.append([f"auto, compared with {compared_method}", *counts])
    return Table(rows, ["", *distinct_modes], notes=[f"Measured on {results.caption}."])


def method_calls(
    point: Point, methods: Mapping[str, MethodFunction], pass_name: str, device: str
) -> dict[str, Call]:
    """Returns a call for each method, which runs one pass over the same batch with the same RNN.

    A call returns the output, `(B, T, H)`. In training, it also returns the gradients of the input
    and all weights. In the forward pass alone, it also returns the final states.
    """
    n = torch.tensor(point.layout.lengths)
    rnn = rnn_calls.make_rnn(point.spec, batch_first=True).to(device)
    shape = (len(n), int(n.max()), point.input_size)
    x = torch.randn(shape).to(device).requires_grad_()
    leaves = [x, *rnn.parameters()]
    calls = {}
    for name, method in methods.items():
        call = partial(method, rnn, x, n)
        calls[name] = rnn_calls.make_pass(call, leaves, pass_name == "training")
    return calls


def _make_comparison(point: Point, pass_name: str, device: str, settings: JsonDict) -> Comparison:
    methods: dict[str, MethodFunction] = {PADDED: rnn_calls.padded, PACKED: rnn_calls.packed}
    for method in METHODS:
        methods[method] = partial(running.run, method=method)
    calls = method_calls(point, methods, pass_name, device)
    return Comparison(calls, running.clear_caches, agreeing_calls=[PACKED, *METHODS])


STUDY = Study(
    "methods",
    Point,
    partial(time_passes, _make_comparison),
    Results,
    full_points=tuned_points(),
    quick_points=[Point(mode, "uniform", 8, 32, 16, 16) for mode in _RNN_MODES],
    others={"untuned": untuned_points()},
    parameters={"budget": 3.0},
    version=2,
)
