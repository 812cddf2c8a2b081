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

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from packviz.count.flops import flops
from packviz.draw import palette
from packviz.draw.text import count
from packviz.draw.work import WorkAndTime
from packviz.measure import rnn_calls
from packviz.measure.advise import METHODS
from packviz.measure.study import (
    PASSES,
    Comparison,
    MeasureOptions,
    Point,
    Results,
    Study,
    by_pass,
)
from packviz.measure.timing import RATIOS, Timing
from packviz.ops.running import forget

if TYPE_CHECKING:
    from packviz.draw.figures import Chart

PADDED, PACKED, AUTO = "torch padded", "torch packed", "auto"

# The marks of the methods in the chart. `pv.run`'s own `packed` has none, because it runs torch's
# kernel. `auto` is drawn last, around the method that it chose.
_MARKS: dict[str, dict[str, Any]] = {
    PACKED: {"symbol": "x", "color": palette.METHODS["packed"]},
    "frozen": {"symbol": "triangle-up", "color": palette.METHODS["padded"]},
    "split": {"symbol": "diamond", "color": palette.METHODS["split"]},
    "staircase": {"symbol": "triangle-left", "color": palette.METHODS["staircase"]},
    AUTO: {
        "symbol": "circle-open",
        "size": 15,
        "line": {"width": 2.5},
        "color": palette.METHODS["run"],
    },
}

_MODES = ("LSTM", "GRU", "RNN")
_KINDS = {
    "evenly": 128,
    "uniform": 128,
    "log-normal around 20": 96,
    "nearly equal": 128,
    "sentences": 32,
    "equal": 128,
}
"""The distributions of `POINTS`, each with the largest length."""

POINTS = [
    *(
        Point("LSTM", kind, 512, steps, 16, 32)
        for steps in (128, 512)
        for kind in ("equal", "triangle")
    ),
    Point("LSTM", "evenly", 128, 200, 128, 256),
    Point("LSTM", "log-normal around 20", 64, 200, 128, 256),
    Point("LSTM", "log-normal around 20", 64, 200, 64, 128),
    *(Point(mode, kind, 64, steps, 32, 64) for mode in _MODES for kind, steps in _KINDS.items()),
    *(Point(mode, kind, 8, 32, 16, 16) for mode in _MODES for kind in ("uniform", "equal")),
    *(Point(mode, "uniform", 32, 64, 256, 512) for mode in _MODES),
    *(
        Point(mode, kind, 64, 64, 32, 64, 2)
        for mode in _MODES
        for kind in ("uniform", "nearly equal")
    ),
    *(Point(mode, "uniform", 512, 64, 16, 32) for mode in _MODES),
    *(Point(mode, "uniform", 8, 512, 32, 64) for mode in _MODES),
]

_SIZES = ((24, 40, 1, 64, 150), (100, 100, 2, 128, 60), (48, 96, 1, 32, 80))  # I, H, directions, B, T
UNTUNED = [
    Point(mode, kind, 1 if kind == "equal" else batch, steps, inputs, hidden, directions)
    for mode in _MODES
    for inputs, hidden, directions, batch, steps in _SIZES
    for kind in ("evenly", "uniform", "log-normal around 20", "nearly equal", "equal")
]
"""Points to which nothing was tuned. The last distribution of each size has a single sequence."""

Methods: TypeAlias = Results[Point, Mapping[str, Timing]]


def best(results: Methods, point: Point, which: str = "training") -> str:
    """Returns the fastest method that gives the right results.

    `auto` is left out, because it only chooses among the other methods.
    """
    timing = results.timing(point, which)
    exact = [name for name in timing.seconds if name not in (PADDED, AUTO)]
    return min(exact, key=timing.median)


def packed_faster(results: Methods) -> WorkAndTime:
    """Draws the batches on which torch packed is clearly faster than torch padded in training.

    The FLOPs and times of torch packed are drawn as multiples of those of torch padded.
    """
    faster = dict.fromkeys(PASSES, 0)
    groups = {}
    for point in sorted(results.points, key=lambda each: results.ratio(each, PACKED, PADDED).value):
        ratios = {which: results.ratio(point, PACKED, PADDED, which) for which in PASSES}
        clear = [which for which, ratio in ratios.items() if ratio.is_clear and ratio.value < 1]
        for which in clear:
            faster[which] += 1
        if "training" in clear:
            flop_count = flops(point.spec, point.layout, input_grad=True)
            works = {"training": flop_count.training, "forward": flop_count.forward}
            groups[str(point)] = {
                which: (work.packed / work.padded, ratios[which]) for which, work in works.items()
            }
    batches = count(len(results.points), "batch", "batches")
    title = (
        f"Packed is clearly faster in training on {faster['training']} of {batches},"
        f" forward alone on {faster['forward']}"
    )
    return WorkAndTime(title, groups, notes=[RATIOS, f"Measured on {results.caption}."])


def chart(results: Methods) -> Chart:
    """Returns a chart of all training times relative to torch padded, with a row for each point."""
    from packviz.draw.figures import axes

    ratios: dict[str, dict[str, Any]] = {}  # by point and method
    for point in results.points:
        timing = results.timing(point)
        ratios[str(point)] = {
            method: timing.ratio(method, PADDED) for method in _MARKS if method in timing.seconds
        }
    rows = [name for name in ratios if AUTO in ratios[name]]
    rows.sort(key=lambda name: (_MODES.index(name.partition("(")[0]), ratios[name][AUTO].value))
    clear = [ratios[name][AUTO].value for name in rows if ratios[name][AUTO].is_clear]
    faster = sum(value < 1 for value in clear)
    slower = len(clear) - faster
    title = (
        f"Training: auto is clearly faster than torch padded at {faster} of {len(rows)} points,"
        f" slower at {slower}"
    )
    below = [
        f"Measured on {results.caption}.",
        "Whiskers: quartiles. Clearly: the confidence interval of the ratio excludes 1.",
    ]
    lines = [title]
    for name in rows:
        values = [f"{method} {ratio.value:.2g}" for method, ratio in ratios[name].items()]
        lines.append(f"{name}: {', '.join(values)}")
    x = "times as long as torch padded (dashed: 1)"
    text = "\n".join([*lines, "", *below])
    drawn = axes(title, text, x=x, rows=rows, tall=22 * len(rows), below=below)
    for method, marker in _MARKS.items():
        there = {name: ratios[name][method] for name in rows if method in ratios[name]}
        values = [ratio.value for ratio in there.values()]
        whiskers = {
            "symmetric": False,
            "array": [_digits(ratio.high - ratio.value) for ratio in there.values()],
            "arrayminus": [_digits(ratio.value - ratio.low) for ratio in there.values()],
            "thickness": 1,
            "width": 0,
        }
        drawn.points(values, [*there], method, marker=marker, error_x=whiskers)
    line = {"width": 1, "dash": "dash", "color": palette.LIGHT.muted}
    drawn.figure.add_vline(x=1, line=line, layer="below")
    drawn.figure.update_xaxes(type="log", dtick="D2")
    drawn.figure.update_yaxes(showgrid=True)
    return drawn


def _digits(value: float) -> float:
    """Rounds a number to three significant digits."""
    return float(f"{value:.3g}")


def method_calls(point: Point, which: str, how: MeasureOptions) -> Comparison:
    """Returns a comparison with a call for every method at a point. Each call runs one pass."""
    n = torch.tensor(point.layout.lengths)
    rnn = rnn_calls.rnn_of(point.spec, batch_first=True).to(how.device)
    x = torch.randn(len(n), int(n.max()), point.input_size).to(how.device).requires_grad_()
    runs: dict[str, Callable[[], Any]] = {
        PADDED: lambda: rnn(x),
        PACKED: lambda: rnn_calls.packed(rnn, x, n),
    }
    for method in METHODS:
        runs[method] = partial(rnn_calls.run, rnn, x, n, method)
    leaves = [x, *rnn.parameters()]
    training = which == "training"
    calls = {name: rnn_calls.one_pass(run, leaves, training) for name, run in runs.items()}
    return Comparison(calls, forget, alike=[PACKED, *METHODS])


STUDY = Study(
    "methods",
    Point,
    by_pass(method_calls),
    Results,
    full=POINTS,
    quick=[Point(mode, "uniform", 8, 32, 16, 16) for mode in _MODES],
    others={"untuned": UNTUNED},
    parameters={"budget": 3.0},
    version=2,
)
