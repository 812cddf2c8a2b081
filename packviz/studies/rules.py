"""Times padded and packed runs over a grid of batches, and tests rules that decide whether to pack.

Each batch is run padded and packed (pack, RNN, pad), both in training and in the forward pass
alone. (Padded results differ from packed ones, as notebook 03 shows, but only the time counts
here.) A rule uses only the lengths and the sizes, which are known before the run. The measured
cases show whether the rule is right.

`packviz study heuristics --out notebooks/recorded/heuristics_cpu.json` makes the recorded file in
about four minutes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import product
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from packviz.core.layout import BoolArray, Layout
from packviz.draw.palette import SIGNED
from packviz.draw.quantities import whole_percent
from packviz.draw.table import Table
from packviz.measure import rnn_calls
from packviz.measure.machine import Data
from packviz.measure.study import (
    PASSES,
    Comparison,
    Point,
    Results,
    Study,
    captions,
    timed,
)
from packviz.studies.methods import calls_of

if TYPE_CHECKING:
    from packviz.draw.figures import Chart

PADDED = "padded"
PACKED = "packed"
_REGION = "shaded: where packing pays"
_SHADED: dict[str, Any] = {
    "mode": "lines",
    "fill": "toself",
    "fillcolor": SIGNED[2],
    "opacity": 0.4,
    "line": {"width": 0},
}
_MOST_PADDING = 75  # %, at the end of the axis
_WINNERS = {PACKED: "packed faster", PADDED: "padded faster", "": "no clear difference"}
_HEAD = (
    "cases",
    "✓ right",
    "✗ wrong",
    "unclear",
    "share right",
    "time ÷ better",
)
_KINDS = ("equal", "nearly equal", "uniform", "log-normal")


def grid(
    modes: Sequence[str], batch_sizes: Sequence[int], steps: Sequence[int], sizes: Sequence[int]
) -> list[Point]:
    """Returns the points for all combinations of these values.

    A size is both the input size and the hidden size.
    """
    points = []
    for mode, batch_size, longest, size in product(modes, batch_sizes, steps, sizes):
        points += [Point(mode, kind, batch_size, longest, size, size) for kind in _KINDS]
    return points


LARGE = [
    *grid(["LSTM"], [16, 64], [64], [256, 512, 1024]),
    *grid(["GRU"], [16], [64], [256, 512, 1024]),
]
"""Points with large sizes, where matrix products take most of the time.

There are few, because each takes seconds.
"""


@dataclass(frozen=True)
class Case:
    """A measured batch in one pass.

    Attributes:
        point: the RNN and the batch.
        training: True for the forward and backward pass, False for the forward pass alone.
        ratio: the packed time as a multiple of the padded time, as the median of the rounds.
        low: the first quartile of the rounds.
        high: the third quartile.
    """

    point: Point
    training: bool
    ratio: float
    low: float
    high: float

    @property
    def faster(self) -> str:
        """The faster method, `"padded"` or `"packed"`, or `""` if there is no clear difference.

        The difference is clear if the factor between the two times is larger than the factor
        between the ratio's quartiles.
        """
        if self.high / self.low >= max(self.ratio, 1 / self.ratio):
            return ""
        return PACKED if self.ratio < 1 else PADDED

    def slowdown(self, packs: bool) -> float:
        """Returns the time of a choice as a multiple of the better choice's."""
        return max(self.ratio if packs else 1 / self.ratio, 1.0)

    @property
    def kind(self) -> tuple[str, bool]:
        """The kind of RNN, and whether this is the training pass."""
        return self.point.mode, self.training

    @cached_property
    def padding(self) -> float:
        """The share of the padded batch's cells that are padding."""
        return self.point.layout.n_padding / self.point.layout.n_cells

    @cached_property
    def work(self) -> float:
        """The average GEMM FLOPs of a time step in a packed forward pass."""
        layout = self.point.layout
        return layout.n_real * self.point.spec.gemm_per_cell / layout.max_len


T = TypeVar("T")

Measured = Results[Point, Data]

Packs = Callable[[Case], bool]
"""A rule: a function that returns whether to pack a case."""

Fit = Callable[[Sequence[Case]], Packs]
"""A function that makes a rule from cases."""


def cases(results: Measured, mode: str | None = None) -> list[Case]:
    """Returns the measured cases in both passes, of one kind of RNN or of all."""
    measured = []
    for point, passes in results.values.items():
        for which, summary in passes.items():
            if mode in (None, point.mode):
                measured.append(Case(point, which == "training", *summary["ratio"]))
    return measured


def rule_of_thumb(lengths: object) -> bool:
    """Returns whether a rule of thumb recommends packing.

    Equal lengths are never packed, even if every sequence is padded. Different lengths are packed
    if they vary by over 10 % of the longest, or if there are at least 8 sequences. The rule is from
    "RNN Packed Sequences" in the documentation of transformertf. (The code is our own.)
    """
    n = Layout(lengths).lengths
    variation = (n.max() - n.min()) / n.max()
    return bool(variation > 0 and (variation > 0.1 or n.size >= 8))


@dataclass(frozen=True)
class Verdict:
    """The evaluation of a rule on measured cases.

    Attributes:
        right: number of cases in which the rule chose the faster method.
        wrong: number of cases in which the rule chose the slower method.
        unclear: number of cases with no clear difference.
        slowdown: time of the chosen method as a multiple of the faster method's time, averaged over
            all cases.
    """

    right: int
    wrong: int
    unclear: int
    slowdown: float

    @property
    def accuracy(self) -> float:
        """The share of right choices among the cases with a clear difference."""
        return self.right / max(self.right + self.wrong, 1)


def judge(packs: Packs, measured: Sequence[Case]) -> Verdict:
    """Evaluates a rule on measured cases."""
    choices = [packs(case) for case in measured]
    slowdowns = map(Case.slowdown, measured, choices)
    judged = []
    for case, choice in zip(measured, choices, strict=True):
        if case.faster:
            judged.append(choice == (case.faster == PACKED))
    right = sum(judged)
    wrong = len(judged) - right
    unclear = len(measured) - len(judged)
    return Verdict(right, wrong, unclear, sum(slowdowns) / len(measured))


def held_out(fit: Fit, measured: Sequence[Case]) -> Packs:
    """Returns a rule that was fitted, for each case, to the cases of all other sizes.

    A size combines a batch size, a number of time steps and a hidden size, so a rule is never
    tested on the size that it was fitted to.
    """

    def size(case: Case) -> tuple[int, int, int]:
        return case.point.batch_size, case.point.steps, case.point.hidden_size

    rules = {}
    for left_out in {size(case) for case in measured}:
        others = [case for case in measured if size(case) != left_out]
        rules[left_out] = fit(others)
    return lambda case: rules[size(case)](case)


def fit_threshold(number: Callable[[Case], float]) -> Fit:
    """Returns a function that fits the rule "pack if `number` is over a threshold" to cases.

    Each kind of RNN has a threshold of its own for each pass. The fit chooses the threshold with
    the smallest slowdown. A kind of RNN without any case is never packed.
    """

    def fit(measured: Sequence[Case]) -> Packs:
        groups: dict[tuple[str, bool], list[Case]] = {}
        for case in measured:
            groups.setdefault(case.kind, []).append(case)
        thresholds = {}
        for kind, group in groups.items():
            numbers = np.array([*map(number, group)])
            thresholds[kind] = _best(group, [-math.inf, *np.unique(numbers)], numbers.__gt__)
        return lambda case: number(case) > thresholds.get(case.kind, math.inf)

    return fit


def _best(measured: Sequence[Case], options: Iterable[T], packs: Callable[[T], BoolArray]) -> T:
    """Returns the option with the smallest slowdown; `packs` returns which cases it would pack."""
    packed, padded = [[case.slowdown(choice) for case in measured] for choice in (True, False)]
    return min(options, key=lambda option: np.where(packs(option), packed, padded).sum())


def compare(
    machines: Mapping[str, Measured],
    rules: Mapping[str, Packs],
    fits: Mapping[str, Fit] | None = None,
) -> Table:
    """Returns a table of the right, wrong and unclear cases of each rule on each machine.

    Args:
        machines: the measurements, by machine name.
        rules: the rules by name.
        fits: functions that fit further rules to cases, by the name of the rule. Each rule is
            tested on the sizes that were left out of the fit (see `held_out`).
    """
    verdicts = {}
    for machine, results in machines.items():
        measured = cases(results)
        prefix = f"{machine}: " if len(machines) > 1 else ""
        tested = dict(rules)
        for name, fit in (fits or {}).items():
            tested[name] = held_out(fit, measured)
        for name, packs in tested.items():
            verdicts[f"{prefix}{name}"] = judge(packs, measured)
    best = max(verdicts, key=lambda name: verdicts[name].accuracy)
    rows = []
    for name, verdict in verdicts.items():
        counts = (verdict.right, verdict.wrong, verdict.unclear)
        share = whole_percent(verdict.accuracy)
        rows.append([name, *map(str, counts), share, f"{verdict.slowdown:.2f}"])
    return Table(
        rows,
        _HEAD,
        f"Where there is a clear difference, this rule is right most often: {best}",
        captions(machines),
    )


def where_packing_pays(machine: str, results: Measured, mode: str) -> Chart:
    """Plots the work per packed time step of each case against its padding.

    Each pass and number of time steps has a panel.

    Args:
        machine: the name of the machine.
        results: the measurements.
        mode: the kind of RNN.
    """
    from packviz.draw.figures import axes  # noqa: PLC0415

    measured = cases(results, mode)
    panels: dict[str, list[Case]] = {}
    for case in sorted(measured, key=lambda case: (case.training, case.point.steps)):
        which = "training" if case.training else "forward"
        panels.setdefault(f"{which}, {case.point.steps} steps", []).append(case)
    wins = Counter(case.training for case in measured if case.faster == PACKED)
    title = (
        f"{mode}, {machine}: packing is faster on {wins[False]} of {len(measured) // 2} batches"
        f" forward, and on {wins[True]} in training"
    )
    shades = (
        "Brown: packing saves time, strong if it takes a third or less. Green: it takes longer."
        " Points are shifted sideways by up to 1.5 %, so that all can be seen."
    )
    notes = [shades, *captions({machine: results})]
    regions = [paying_region(group) for group in panels.values()]
    lines = [title]
    for (panel, group), (padding, work) in zip(panels.items(), regions, strict=True):
        winners = _by_winner(group)
        counts = [f"{len(won)} {label}" for label, won in winners.items()]
        lines.append(f"{panel}: {', '.join(counts)}")
        if padding < 1:
            lines.append(f"{_REGION}: from {padding:.0%} padding and {work:.2g} FLOPs on")
    chart = axes(
        title,
        "\n".join([*lines, *notes]),
        x="padding, % of the cells",
        y="FLOPs per time step",
        panels=list(panels),
        across=len(panels) // 2,
        tall=220,
        below=notes,
    )
    highest = max((case.work for case in measured), default=1.0)
    for i, group in enumerate(panels.values()):
        padding, work = regions[i]
        if padding < 1:
            x = [100 * padding, _MOST_PADDING, _MOST_PADDING, 100 * padding]
            y = [work, work, highest, highest]
            chart.points(x, y, _REGION, panel=i, **_SHADED)
        for look, (label, won) in enumerate(_by_winner(group).items()):
            x = [100 * case.padding + _jitter(k) for k, case in enumerate(won)]
            y = [case.work for case in won]
            marker = {"color": [_shade(case.ratio) for case in won]}
            chart.points(x, y, label, look, panel=i, marker=marker)
    chart.figure.update_xaxes(range=[-5, _MOST_PADDING])
    chart.figure.update_yaxes(type="log", dtick=1, tickformat="", matches="y")
    return chart


def _by_winner(measured: Sequence[Case]) -> dict[str, list[Case]]:
    """Returns the cases by the label of the faster method."""
    return {
        label: [case for case in measured if case.faster == winner]
        for winner, label in _WINNERS.items()
    }


def paying_region(measured: Sequence[Case]) -> tuple[float, float]:
    """Returns the least share of padding and the least work per step with which packing pays.

    A rule packs if both are reached. The region is the one whose rule has the smallest slowdown. If
    it is best never to pack, both numbers are infinite.
    """
    padding = np.array([case.padding for case in measured])
    work = np.array([case.work for case in measured])
    wins = np.array([case.ratio < 1 for case in measured])
    corners = product(np.unique(padding[wins]), np.unique(work[wins]))
    options = [(math.inf, math.inf), *corners]
    return _best(measured, options, lambda least: (padding >= least[0]) & (work >= least[1]))


def _jitter(number: int) -> float:
    """Returns a shift by less than 1.5, so that points at one place can be told apart."""
    return 3 * (0.618 * number % 1) - 1.5


def _shade(ratio: float) -> str:
    """Returns the colour of a packed time that is `ratio` times the padded time."""
    middle = len(SIGNED) // 2
    shift = np.clip(2 * np.log2(ratio), -middle, middle)
    return SIGNED[middle + round(shift)]


def _both(point: Point, which: str, device: str) -> Comparison:
    methods = {PADDED: rnn_calls.padded, PACKED: rnn_calls.packed}
    return Comparison(calls_of(point, methods, which, device))


def _summaries(point: Point, device: str, settings: Data) -> Data:
    """Returns the quartiles of the rounds' ratios, and the page faults, for each pass."""
    summaries = {}
    for which in PASSES:
        timing = timed(partial(_both, point, which, device), device, settings, warmup=1)
        ratio = timing.ratio(PACKED, PADDED)
        # Four significant digits are enough.
        values = [float(f"{value:.4g}") for value in (ratio.value, ratio.low, ratio.high)]
        summaries[which] = {"ratio": values, "rounds": ratio.rounds, "faults": timing.faults}
    return summaries


STUDY = Study(
    "heuristics",
    Point,
    _summaries,
    Results,
    full=[*grid(["LSTM", "GRU", "RNN"], [4, 16, 64], [16, 64, 256], [32, 128]), *LARGE],
    quick=grid(["LSTM", "GRU"], [4, 32], [32], [32]),
    parameters={"rounds": 7},
    read=lambda row: {which: row[which] for which in PASSES},
    write=dict,
    version=3,
)
