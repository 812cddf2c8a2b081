"""Runs the methods benchmark, which times torch padded, torch packed and every method of `pv.run`
against each other.

A point is an RNN and a batch. At each point, all methods are timed against each other in two
passes: *training* (forward, and then backward from a gradient of ones to the input and all weights)
and *forward* (without a graph for autograd). Before a point is timed, the results and gradients of
all methods are compared with those of torch packed (without TF32 on a GPU). A method that differs
is left out, and the results give the reason. torch padded is timed only to show how fast padded
data can be processed. Its final states are those after the padding, so they are wrong.

Everything that is computed once for the lengths of a batch (indices, the choice of `auto`) is
dropped before each call, because in training the lengths differ from batch to batch.

Some points have no RNN. They only compare torch's packing and padding with packviz's, and with
*copy*, which copies the padded tensor once.

`packviz study methods --out notebooks/recorded/methods_cpu.json` makes the recorded file. With
`--points untuned`, the same methods are timed at points to which nothing was tuned.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from packviz.core import lengths
from packviz.core.layout import IntArray, Layout
from packviz.core.spec import Spec
from packviz.count.flops import flops
from packviz.draw import palette
from packviz.draw.quantities import milliseconds
from packviz.draw.text import count
from packviz.draw.work import WorkAndTime
from packviz.measure import rnn_calls
from packviz.measure.comparison import METHODS
from packviz.measure.study import PASSES, Comparison, MeasureOptions, Results, Study, by_pass
from packviz.measure.timing import RATIOS, Timing
from packviz.ops import original, packing
from packviz.ops.running import forget

if TYPE_CHECKING:
    from packviz.draw.figures import Chart

PADDED, PACKED, AUTO = "torch padded", "torch packed", "auto"
OURS, COPY = "packviz", "copy"
# The marks of the methods in the chart. `pv.run`'s own `packed` has none, because it runs torch's
# kernel.
_MARKS = {
    PACKED: {"symbol": "x", "color": palette.METHODS["packed"]},
    "padded": {"symbol": "triangle-up", "color": palette.METHODS["padded"]},
    "split": {"symbol": "diamond", "color": palette.METHODS["split"]},
    "staircase": {"symbol": "triangle-left", "color": palette.METHODS["staircase"]},
}
LENGTHS: dict[str, Callable[[int, int, int], IntArray]] = {
    **lengths.DISTRIBUTIONS,
    "log-normal": partial(lengths.log_normal, median=math.exp(3)),
}
"""The distributions of `packviz.core.lengths`, except that log-normal lengths have a median of 20 at any width."""


@dataclass(frozen=True)
class MethodsPoint:
    """An RNN and a batch.

    Attributes:
        mode: the kind of RNN, `"LSTM"`, `"GRU"` or `"RNN"`; or `"none"` to time packing and padding
            alone.
        lengths: the distribution of the lengths, one of `LENGTHS`.
        batch_size: number of sequences, `B`.
        steps: width of the padded batch, `T`. The longest sequence may be shorter.
        input_size: number of features per time step, `I`.
        hidden_size: number of hidden units, `H`.
        directions: number of directions, 1 or 2.
    """

    mode: str
    lengths: str
    batch_size: int
    steps: int
    input_size: int
    hidden_size: int
    directions: int = 1

    @property
    def name(self) -> str:
        """The name of the point, such as `LSTM(16, 32), triangle, 512 × 512`."""
        sizes = f"({self.input_size}, {self.hidden_size}{', two directions' if self.directions == 2 else ''})"
        rnn = (
            f"pack and pad, {self.hidden_size} features"
            if self.mode == "none"
            else f"{self.mode}{sizes}"
        )
        return f"{rnn}, {self.lengths}, {self.batch_size} × {self.steps}"

    def __str__(self) -> str:
        return self.name

    @property
    def spec(self) -> Spec:
        """The kind and the sizes of the RNN."""
        return Spec(
            self.mode, self.input_size, self.hidden_size, bidirectional=self.directions == 2
        )

    def drawn(self) -> list[int]:
        """Returns `(B,)` lengths in random order, or longest first if the point has no RNN."""
        n = np.sort(LENGTHS[self.lengths](self.batch_size, self.steps, 0))[::-1]
        if self.mode != "none":
            n = np.random.default_rng(1).permutation(n)
        return [int(length) for length in n]


_MODES = ("LSTM", "GRU", "RNN")
_MEANINGS = "Whiskers: quartiles. Clearly: the confidence interval of the ratio excludes 1."
_GROUPS, _TINY = (
    (*_MODES, "two directions", "tiny"),
    256,
)  # the groups of the chart; the most cells of a tiny batch
_KINDS = ("evenly", "uniform", "log-normal", "nearly equal", "sentences", "equal")
_WIDTHS = {
    "log-normal": 96,
    "sentences": 32,
}  # the longest of 64 such lengths; all others reach 128
POINTS = (
    *(MethodsPoint("none", "triangle", 512, steps, 32, 32) for steps in (128, 256, 512)),
    *(MethodsPoint("none", "equal", b, steps, 32, 32) for b, steps in ((512, 512), (8, 32))),
    MethodsPoint("none", "triangle", 8, 32, 32, 32),
    *(
        MethodsPoint("LSTM", kind, 512, steps, 16, 32)
        for steps in (128, 512)
        for kind in ("equal", "triangle")
    ),
    MethodsPoint("LSTM", "evenly", 128, 200, 128, 256),
    MethodsPoint("LSTM", "log-normal", 64, 200, 128, 256),
    MethodsPoint("LSTM", "log-normal", 64, 200, 64, 128),
    *(MethodsPoint(m, k, 64, _WIDTHS.get(k, 128), 32, 64) for m in _MODES for k in _KINDS),
    *(MethodsPoint(m, k, 8, 32, 16, 16) for m in _MODES for k in ("uniform", "equal")),
    *(MethodsPoint(m, "uniform", 32, 64, 256, 512) for m in _MODES),
    *(MethodsPoint(m, k, 64, 64, 32, 64, 2) for m in _MODES for k in ("uniform", "nearly equal")),
    *(MethodsPoint(m, "uniform", 512, 64, 16, 32) for m in _MODES),
    *(MethodsPoint(m, "uniform", 8, 512, 32, 64) for m in _MODES),
)
_SIZES = (
    (24, 40, 1, 64, 150),
    (100, 100, 2, 128, 60),
    (48, 96, 1, 32, 80),
)  # I, H, directions, B, T
UNTUNED = [
    MethodsPoint(mode, kind, 1 if kind == "equal" else batch, steps, inputs, hidden, directions)
    for mode in _MODES
    for inputs, hidden, directions, batch, steps in _SIZES
    for kind in (
        "evenly",
        "uniform",
        "log-normal",
        "nearly equal",
        "equal",
    )  # the last one has a single sequence
]
"""Points to which nothing was tuned. Neither the calibration nor `POINTS` contains their RNNs and batches."""


class MethodsBenchmark(Results[MethodsPoint, Mapping[str, Timing]]):
    """The results of the benchmark: the `Timing` of all methods, by point and pass."""

    @property
    def points(self) -> list[MethodsPoint]:
        """The points with an RNN."""
        return [point for point in self.values if point.mode != "none"]

    def best(self, point: MethodsPoint, which: str = "training") -> str:
        """Returns the fastest method that gives the right results.

        `auto` is left out, because it only chooses among the other methods.
        """
        timing = self.values[point][which]
        return min(
            (name for name in timing.seconds if name not in (PADDED, AUTO)), key=timing.median
        )

    def to_text(self) -> str:
        """Returns all times in both passes, and the best method at each point."""
        lines = []
        for which, label in PASSES.items():
            lines.append(f"{label}, ms")
            for point, timings in self.values.items():
                timing = timings[which]
                times = ", ".join(
                    f"{name} {milliseconds(timing.median(name))}" for name in timing.seconds
                )
                best = f"; best: {self.best(point, which)}" if point.mode != "none" else ""
                lines.append(f"  {point.name}: {times}{best}")
                lines += [f"  ✗ {name} was left out: {why}" for name, why in timing.missing.items()]
        return "\n".join([*lines, f"Measured on {self.caption}."])

    def _multiple(self, point: MethodsPoint, name: str, to: str, which: str = "training") -> float:
        """Returns the time of `name` as a multiple of the time of `to`, or 0 if one of the two was not timed."""
        timing = self.values[point][which]
        return timing.ratio(name, to).value if {name, to} <= timing.seconds.keys() else 0.0

    def packed_faster(self) -> WorkAndTime:
        """Draws the batches on which torch packed is clearly faster than torch padded in training.

        The FLOPs and times of torch packed are drawn as multiples of those of torch padded.
        """
        faster = {
            which: [
                p
                for p in self.points
                if (r := self.ratio(p, PACKED, PADDED, which)).is_clear and r.value < 1
            ]
            for which in PASSES
        }
        groups = {}
        for point in sorted(
            faster["training"], key=lambda point: self._multiple(point, PACKED, PADDED)
        ):
            flop_count = flops(
                point.spec, Layout(point.drawn(), max_len=point.steps), input_grad=True
            )
            works = {"training": flop_count.training, "forward": flop_count.forward}
            groups[point.name] = {
                which: (work.packed / work.padded, self.ratio(point, PACKED, PADDED, which))
                for which, work in works.items()
            }
        training, forward = (len(found) for found in faster.values())
        of = f"of {count(len(self.points), 'batch', 'batches')}"
        title = (
            f"Packed is clearly faster in training on {training} {of}, forward alone on {forward}"
        )
        return WorkAndTime(title, groups, notes=[RATIOS, f"Measured on {self.caption}."])

    def chart(self) -> Chart:
        """Returns a chart of all training times relative to torch padded, with a row for each point."""
        from packviz.draw.figures import axes

        timings = {point: self.values[point]["training"] for point in self.points}
        ratios = {
            point: timing.ratio(AUTO, PADDED)
            for point, timing in timings.items()
            if AUTO in timing.seconds
        }
        order = sorted(
            ratios, key=lambda point: (_GROUPS.index(_group(point)), ratios[point].value)
        )
        rows = [
            row
            for name, some in groupby(order, _group)
            for row in (f"{name}:", *(p.name for p in some))
        ]
        slower = [point for point in order if ratios[point].is_clear and ratios[point].value > 1]
        faster = [point for point in order if ratios[point].is_clear and ratios[point].value < 1]
        title = f"Training: auto is clearly faster than torch padded at {len(faster)} of {len(order)} points"
        below = [f"Measured on {self.caption}.", _MEANINGS]
        words = [
            f"{title}, slower at {len(slower)}; {PASSES['training']}",
            *self._lines(order),
            "",
            *below,
        ]
        x = "times as long as torch padded (dashed: 1)"
        drawn = axes(title, "\n".join(words), x=x, rows=rows, tall=22 * len(rows), below=below)

        def ring(colour: str, shape: str) -> dict[str, Any]:
            return {"symbol": shape, "size": 15, "line": {"width": 2.5}, "color": colour}

        fast = [point for point in order if point not in slower]
        marks = [(name, name, order, mark) for name, mark in _MARKS.items()]
        # `auto` is drawn last, around the method that it chose.
        marks.append((AUTO, AUTO, fast, ring(palette.METHODS["run"], "circle-open")))
        marks.append(
            (f"{AUTO}, clearly slower", AUTO, slower, ring(palette.LIGHT.wrong, "square-open"))
        )
        for key, name, points, mark in marks:
            there = {
                p.name: timings[p].ratio(name, PADDED) for p in points if name in timings[p].seconds
            }
            spread = [
                (_digits(one.high - one.value), _digits(one.value - one.low))
                for one in there.values()
            ]
            if spread:
                up, down = zip(*spread, strict=True)
                whiskers = {
                    "symmetric": False,
                    "array": up,
                    "arrayminus": down,
                    "thickness": 1,
                    "width": 0,
                }
                drawn.points(
                    [one.value for one in there.values()],
                    [*there],
                    key,
                    marker=mark,
                    error_x=whiskers,
                )
        figure = drawn.figure
        figure.add_vline(
            x=1, line={"width": 1, "dash": "dash", "color": palette.LIGHT.muted}, layer="below"
        )
        figure.update_xaxes(type="log", dtick="D2")
        figure.update_yaxes(showgrid=True)
        return drawn

    def _lines(self, order: list[MethodsPoint]) -> Iterator[str]:
        """Yields the rows of the chart as text."""
        for name, points in groupby(order, _group):
            yield f"{name}:"
            for point in points:
                every = {
                    method: self._multiple(point, method, PADDED) for method in (PACKED, *METHODS)
                }
                ratios = (
                    f"{method} {ratio:.2g}" if ratio else f"{method} –"
                    for method, ratio in every.items()
                )
                yield f"{point.name}: {', '.join(ratios)}; best: {self.best(point)}"


def _digits(value: float) -> float:
    """Rounds a number to three significant digits."""
    return float(f"{value:.3g}")


def _group(point: MethodsPoint) -> str:
    """Returns the heading under which the chart shows a point."""
    if point.batch_size * point.steps <= _TINY:
        return "tiny"
    return "two directions" if point.directions == 2 else point.mode


def method_calls(point: MethodsPoint, which: str, how: MeasureOptions) -> Comparison:
    """Returns a comparison with a call for every method at a point. Each call runs one pass."""
    n, pack_only = torch.tensor(point.drawn()), point.mode == "none"
    shape = (point.steps, point.batch_size) if pack_only else (point.batch_size, point.steps)
    rnn = None if pack_only else rnn_calls.rnn_of(point.spec, batch_first=True).to(how.device)
    x = torch.randn(*shape, point.input_size).to(how.device).requires_grad_()
    runs: dict[str, Callable[[], Any]]
    if rnn is None:
        runs, leaves = _packers(x, n), [x]
    else:
        runs = {PADDED: lambda: rnn(x), PACKED: lambda: rnn_calls.packed(rnn, x, n)}
        runs |= {method: partial(rnn_calls.run, rnn, x, n, method) for method in METHODS}
        leaves = [x, *rnn.parameters()]
    calls = {
        name: rnn_calls.one_pass(run, leaves, which == "training") for name, run in runs.items()
    }
    return Comparison(
        calls, forget, [PACKED, *(name for name in calls if name not in (PACKED, PADDED, COPY))]
    )


def _packers(x: Tensor, n: Tensor) -> dict[str, Callable[[], Any]]:
    def both(module: Any) -> Callable[[], Any]:
        return lambda: module.pad_packed_sequence(module.pack_padded_sequence(x, n))

    return {PACKED: both(original), OURS: both(packing), COPY: lambda: (x.clone(),)}


STUDY = Study(
    "methods",
    MethodsPoint,
    by_pass(method_calls),
    MethodsBenchmark,
    full=POINTS,
    quick=[
        MethodsPoint("none", "triangle", 8, 32, 32, 32),
        *(MethodsPoint(m, "uniform", 8, 32, 16, 16) for m in _MODES),
    ],
    others={"untuned": UNTUNED},
    parameters={"budget": 3.0},
)
run, recorded = STUDY.run, STUDY.load
