"""The methods benchmark: torch padded, torch packed, and every method of `pv.run`, at named points.

A point is an RNN and a batch. At each, all are timed against each other in two passes: *training* (forward and
backward, with a gradient of ones, to the input and all weights) and *forward* (without a graph for autograd). Before a
point is timed, the results and gradients of all methods are compared with torch's packed ones, on a GPU without TF32.
A method that differs is left out there, and the point says why. torch padded is timed as a measure of speed only: its
states are read after the padding, and so are wrong.

What is built once for a batch's lengths (indices, the choice of `auto`) is forgotten before every call, because in
training every batch has lengths of its own.

Some points have no RNN: they compare only torch's packing and padding with packviz's, and *copy* is one copy of the
padded tensor.

`packviz study methods --out notebooks/recorded/methods_cpu.json` makes the recorded file. With `--points untuned` the
same methods are timed on a grid that nothing was tuned to.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from packviz.bench import rnn_calls
from packviz.bench.comparison import METHODS
from packviz.bench.study import PASSES, Comparison, MeasureOptions, Results, Study, by_pass, captions
from packviz.bench.timing import RATIOS, Ratio, Timing
from packviz.core import lengths
from packviz.core.layout import IntArray, Layout
from packviz.core.spec import Spec
from packviz.count.flops import flops
from packviz.draw import palette
from packviz.draw.quantities import milliseconds
from packviz.draw.text import count
from packviz.draw.work import Row, WorkAndTime
from packviz.ops import original, packing
from packviz.ops.running import forget

if TYPE_CHECKING:
    from packviz.draw.figures import Chart

PADDED, PACKED, AUTO = "torch padded", "torch packed", "auto"
OURS, COPY = "packviz", "copy"
# How each is marked in the chart; those of `pv.run` have the colours of what they do. Its `packed` is torch's.
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
"""Those of `packviz.core.lengths`, but the median of the log-normal ones is 20, however wide the batch is."""


@dataclass(frozen=True)
class MethodsPoint:
    """An RNN and a batch.

    Attributes:
        mode: `"LSTM"`, `"GRU"` or `"RNN"`, or `"none"` to pack and pad only.
        lengths: a key of `LENGTHS`.
        batch_size: `B`.
        steps: `T`, the width of the padded batch; its longest sequence may be shorter.
        input_size: `I`.
        hidden_size: `H`.
        directions: 1 or 2.
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
        """What it is called, as in `LSTM(16, 32), triangle, 512 × 512`."""
        sizes = f"({self.input_size}, {self.hidden_size}{', two directions' if self.directions == 2 else ''})"
        rnn = f"pack and pad, {self.hidden_size} features" if self.mode == "none" else f"{self.mode}{sizes}"
        return f"{rnn}, {self.lengths}, {self.batch_size} × {self.steps}"

    def __str__(self) -> str:
        return self.name

    @property
    def spec(self) -> Spec:
        """Its RNN."""
        return Spec(self.mode, self.input_size, self.hidden_size, bidirectional=self.directions == 2)

    def drawn(self) -> list[int]:
        """`(B,)` its lengths, in no particular order (longest first where nothing but packing is timed)."""
        n = np.sort(LENGTHS[self.lengths](self.batch_size, self.steps, 0))[::-1]
        if self.mode != "none":
            n = np.random.default_rng(1).permutation(n)
        return [int(length) for length in n]


_MODES = ("LSTM", "GRU", "RNN")
_MEANINGS = "Whiskers: quartiles. Clearly: the confidence interval of the ratio leaves out 1."
_GROUPS, _TINY = (*_MODES, "two directions", "tiny"), 256  # the groups of the chart; cells of a batch that is tiny
_KINDS = ("evenly", "uniform", "log-normal", "nearly equal", "sentences", "equal")
_WIDTHS = {"log-normal": 96, "sentences": 32}  # 64 such lengths are about so long; all others reach 128
POINTS = (
    *(MethodsPoint("none", "triangle", 512, steps, 32, 32) for steps in (128, 256, 512)),
    *(MethodsPoint("none", "equal", b, steps, 32, 32) for b, steps in ((512, 512), (8, 32))),
    MethodsPoint("none", "triangle", 8, 32, 32, 32),
    *(MethodsPoint("LSTM", kind, 512, steps, 16, 32) for steps in (128, 512) for kind in ("equal", "triangle")),
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
_SIZES = ((24, 40, 1, 64, 150), (100, 100, 2, 128, 60), (48, 96, 1, 32, 80))  # I, H, directions, B, T
UNTUNED = [
    MethodsPoint(mode, kind, 1 if kind == "equal" else batch, steps, inputs, hidden, directions)
    for mode in _MODES
    for inputs, hidden, directions, batch, steps in _SIZES
    for kind in ("evenly", "uniform", "log-normal", "nearly equal", "equal")  # the last of a single sequence
]
"""A grid that nothing was tuned to: other RNNs and batches than those of the calibration and of `POINTS`."""

_HARDLY_PADDED = ("equal", "nearly equal")


class _Target(NamedTuple):
    """Whether `auto` does what it should.

    Attributes:
        missed: the points where it does not.
        of: those that the target is for.
    """

    misses: list[MethodsPoint]
    of: list[MethodsPoint]


class MethodsBenchmark(Results[MethodsPoint, Mapping[str, Timing]]):
    """The results of the benchmark: by point and pass, the `Timing` of every method."""

    @property
    def points(self) -> list[MethodsPoint]:
        """Those with an RNN."""
        return [point for point in self.values if point.mode != "none"]

    def ratio(self, point: MethodsPoint, name: str, to: str, which: str = "training") -> float:
        """How many times as long one takes as another: the median over the rounds; NaN if one did not take part."""
        timing = self.values[point][which]
        return timing.ratio(name, to).value if {name, to} <= timing.seconds.keys() else math.nan

    def auto_to_padded(self) -> dict[MethodsPoint, Ratio]:
        """How many times as long `auto` takes in training as torch padded, wherever it took part."""
        timings = {point: self.values[point]["training"] for point in self.points}
        return {point: timing.ratio(AUTO, PADDED) for point, timing in timings.items() if AUTO in timing.seconds}

    def line(self, point: MethodsPoint) -> str:
        """The ratios at a point in words."""
        every = {name: self.ratio(point, name, PADDED) for name in (PACKED, *METHODS)}
        ratios = ", ".join(f"{name} {ratio:.2g}".replace("nan", "–") for name, ratio in every.items())
        return f"{point.name}: {ratios}; best: {self.best(point)}"

    def best(self, point: MethodsPoint, which: str = "training") -> str:
        """The fastest of those whose results are right, `auto` apart: it only chooses among them."""
        timing = self.values[point][which]
        return min((name for name in timing.seconds if name not in (PADDED, AUTO)), key=timing.median)

    def targets(self, which: str = "training") -> dict[str, _Target]:
        """Returns the targets of `auto`, by name, and where it misses them."""
        every = self.points
        slow = [point for point in every if self.values[point][which].median(PADDED) > 5e-3]
        even = [point for point in every if point.lengths in _HARDLY_PADDED]

        def at_most(times: float, to: str, points: list[MethodsPoint]) -> _Target:
            others = {point: to or self.best(point, which) for point in points}
            return _Target([p for p in points if not self.ratio(p, AUTO, others[p], which) <= times], points)

        return {
            "at most 1.05 times its own best method": at_most(1.05, "", every),
            "at most 1.03 times torch packed": at_most(1.03, PACKED, every),
            "at most 1.1 times torch padded where hardly anything is padded": at_most(1.1, PADDED, even),
            "at most 1.15 times torch padded where that takes over 5 ms": at_most(1.15, PADDED, slow),
        }

    def to_text(self) -> str:
        """All times in both passes, and where `auto` misses its targets."""
        lines = []
        for which, label in PASSES.items():
            lines.append(f"{label}, ms")
            for point, timings in self.values.items():
                timing = timings[which]
                times = ", ".join(f"{name} {milliseconds(timing.median(name))}" for name in timing.seconds)
                best = f"; best: {self.best(point, which)}" if point.mode != "none" else ""
                lines.append(f"  {point.name}: {times}{best}")
                lines += [f"  ✗ {name} was left out: {why}" for name, why in timing.missing.items()]
        for which, label in PASSES.items() if self.points else ():
            for name, target in self.targets(which).items():
                where = "; ".join(point.name for point in target.misses)
                missed = f"missed at {len(target.misses)} of {count(len(target.of), 'point')}"
                lines.append(f"{label}, auto {name}: {missed}{where and f' ({where})'}")
        return "\n".join([*lines, f"Measured on {self.caption}."])

    def packed_faster(self) -> WorkAndTime:
        """Where torch's packing makes a training step clearly faster: FLOPs and time as multiples of torch padded."""

        def ratio(point: MethodsPoint, which: str) -> Ratio:
            return self.values[point][which].ratio(PACKED, PADDED)

        faster = {
            which: [p for p in self.points if ratio(p, which).is_clear and ratio(p, which).value < 1]
            for which in PASSES
        }
        groups = {}
        for point in sorted(faster["training"], key=lambda point: ratio(point, "training").value):
            flop_count = flops(point.spec, Layout(point.drawn(), max_len=point.steps), input_grad=True)
            rows = []
            for which, work in (("training", flop_count.training), ("forward", flop_count.forward)):
                time = ratio(point, which)
                rows.append(Row(which, work.packed / work.padded, time.value, time.low, time.high, time.is_clear))
            groups[point.name] = rows
        training, forward = (len(found) for found in faster.values())
        of = f"of {count(len(self.points), 'batch', 'batches')}"
        title = f"Packed is clearly faster in training at {training} {of}, forward alone at {forward}"
        return WorkAndTime(title, groups, notes=[RATIOS, f"Measured on {self.caption}."])


def chart(machines: Mapping[str, MethodsBenchmark]) -> Chart:
    """How many times as long each method takes in training as torch padded: a row for each point.

    Args:
        machines: what each found, by what to call it: a panel for each. The first gives the order of the rows.
    """
    from packviz.draw.figures import axes  # noqa: PLC0415 - a bare machine has no plotly

    ratios = {name: result.auto_to_padded() for name, result in machines.items()}
    first = {point: ratio for some in reversed([*ratios.values()]) for point, ratio in some.items()}
    groups = {name: [point for point in first if _group(point) == name] for name in _GROUPS}
    for group in groups.values():
        group.sort(key=lambda point: first[point].value)
    rows = [row for name, group in groups.items() if group for row in (f"{name}:", *(p.name for p in group))]
    slower = {name: [p for p, r in some.items() if r.is_clear and r.value > 1] for name, some in ratios.items()}
    faster = {name: sum(r.is_clear and r.value < 1 for r in some.values()) for name, some in ratios.items()}
    title = f"Training: auto is clearly faster than torch padded at {_each(faster)} of {len(first)} points"
    worse = _each({name: len(some) for name, some in slower.items()})
    lines = [f"{title}, slower at {worse}; {PASSES['training']}", *_lines(machines, groups, ratios)]
    x = "times as long as torch padded (dashed: 1)" if len(machines) == 1 else "× torch padded"
    panels, below = [*machines] if len(machines) > 1 else [""], [*captions(machines), _MEANINGS]
    words = "\n".join([*lines, "", *below])
    drawn = axes(title, words, x=x, rows=rows, tall=22 * len(rows), on_top=True, panels=panels, below=below)
    for panel, (machine, result) in enumerate(machines.items()):
        timings = {point: result.values[point]["training"] for point in ratios[machine]}
        for name, mark in _MARKS.items():
            found = {point: timing.ratio(name, PADDED) for point, timing in timings.items() if name in timing.seconds}
            _put(drawn, found, name, marker=mark, panel=panel, key=not panel)
        # Last, over the method that it has chosen.
        for name, some, colour, shape in (
            (AUTO, [p for p in timings if p not in slower[machine]], palette.METHODS["run"], "circle-open"),
            (f"{AUTO}, clearly slower", slower[machine], palette.LIGHT.wrong, "square-open"),
        ):
            ring = {"symbol": shape, "size": 15, "line": {"width": 2.5}, "color": colour}
            if some:
                key = name not in {trace.name for trace in drawn.figure.data}
                _put(drawn, {p: ratios[machine][p] for p in some}, name, marker=ring, panel=panel, key=key)
    figure = drawn.figure
    figure.add_vline(x=1, line={"width": 1, "dash": "dash", "color": palette.LIGHT.muted}, layer="below")
    ticks = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50) if len(machines) == 1 else (0.1, 1, 10)
    figure.update_xaxes(type="log", tickvals=ticks, ticktext=[f"{tick:g}" for tick in ticks])
    if len(machines) > 1:
        figure.update_xaxes(matches="x")
    figure.update_yaxes(showgrid=True)
    return drawn


def _put(drawn: Chart, found: Mapping[MethodsPoint, Ratio], name: str, **how: Any) -> None:
    """Puts the ratios of one method into the chart, with whiskers from quartile to quartile."""
    ends = [[float(f"{one.high - one.value:.3g}"), float(f"{one.value - one.low:.3g}")] for one in found.values()]
    up, down = zip(*ends, strict=True) if ends else ((), ())
    whiskers = {"type": "data", "symmetric": False, "array": up, "arrayminus": down, "thickness": 1, "width": 0}
    values = [one.value for one in found.values()]
    drawn.points(values, [point.name for point in found], name, error_x=whiskers, **how)


def _lines(
    machines: Mapping[str, MethodsBenchmark],
    groups: Mapping[str, Sequence[MethodsPoint]],
    ratios: Mapping[str, Mapping[MethodsPoint, Ratio]],
) -> Iterator[str]:
    """The rows of the chart in words, for each machine."""
    for machine, result in machines.items():
        if len(machines) > 1:
            yield from ("", f"{machine}:")
        for name, group in groups.items():
            if group:
                yield f"{name}:"
            yield from (result.line(point) for point in group if point in ratios[machine])


def _each(values: Mapping[str, object]) -> str:
    """The value of the only machine, or those of all with their names."""
    if len(values) == 1:
        return f"{next(iter(values.values()))}"
    return ", ".join(f"{value} ({name})" for name, value in values.items())


def _group(point: MethodsPoint) -> str:
    """What a point stands under in the chart."""
    if point.batch_size * point.steps <= _TINY:
        return "tiny"
    return "two directions" if point.directions == 2 else point.mode


def method_calls(point: MethodsPoint, which: str, how: MeasureOptions) -> Comparison:
    """Every method at a point, in one pass."""
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
    calls = {name: rnn_calls.one_pass(run, leaves, which == "training") for name, run in runs.items()}
    return Comparison(calls, forget, [PACKED, *(name for name in calls if name not in (PACKED, PADDED, COPY))])


def _packers(x: Tensor, n: Tensor) -> dict[str, Callable[[], Any]]:
    def both(module: Any) -> Callable[[], Any]:
        return lambda: module.pad_packed_sequence(module.pack_padded_sequence(x, n))

    runs = {PACKED: both(original), OURS: both(packing), COPY: lambda: (x.clone(),)}
    if importlib.util.find_spec("torchrua"):  # not among what packviz depends on
        import torchrua  # type: ignore[import-not-found]  # noqa: PLC0415

        sizes = n.to(x.device)
        runs["torchrua"] = lambda: (torchrua.L(x.transpose(0, 1), sizes).pack().left().data.transpose(0, 1), n)
    return runs


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
