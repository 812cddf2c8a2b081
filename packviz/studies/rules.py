"""Times padded and packed runs over a grid of batches, and tests rules that decide whether to pack.

Each batch is run padded and packed (pack, RNN, pad), both in training and in the forward pass
alone. (Padded results differ from packed ones, as notebook 03 shows, but only the time counts
here.) A rule uses only the lengths and the sizes, which are known before the run. The measured
cases show whether the rule is right.

`packviz study heuristics --out notebooks/recorded/heuristics_cpu.json` makes the recorded file in
about four minutes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from packviz.core.layout import Layout
from packviz.draw import bars, quantities, text
from packviz.draw.palette import SIGNED, THEMES
from packviz.draw.sheet import Sheet
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
_SYMBOLS = {PACKED: "circle", PADDED: "x", "": "diamond"}
_REGION = "shaded: where packing pays"
_MOST_PADDING = 75  # %, at the end of the axis
_WINNERS = {PACKED: "packed is faster", PADDED: "padded is faster", "": "no clear difference"}
_PARTS = ("✓ right", "✗ wrong", "no clear difference")
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
    def padding(self) -> float:
        """The share of the padded batch's cells that are padding."""
        return self.point.layout.n_padding / self.point.layout.n_cells

    @property
    def work(self) -> float:
        """The average GEMM FLOPs of a time step in a packed forward pass."""
        layout = self.point.layout
        return layout.n_real * self.point.spec.gemm_per_cell / layout.max_len


Measured: TypeAlias = Results[Point, Data]

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
    """Returns whether a rule of thumb says to pack.

    It does if lengths vary by over 10 % of the longest, or if there are at least 8 sequences. Equal
    lengths are never packed, even if every sequence is padded. The rule is from "RNN Packed
    Sequences" in the documentation of transformertf. (The code is our own.)
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
    def counts(self) -> tuple[int, int, int]:
        """The numbers of right, wrong and unclear cases."""
        return self.right, self.wrong, self.unclear

    @property
    def accuracy(self) -> float:
        """The share of right choices among the cases with a clear difference."""
        return self.right / max(self.right + self.wrong, 1)


def judge(packs: Packs, measured: Sequence[Case]) -> Verdict:
    """Evaluates a rule on measured cases."""
    counts = Counter[str]()
    slowdown = 0.0
    for case in measured:
        choice = packs(case)
        slowdown += case.slowdown(choice) / len(measured)
        if not case.faster:
            counts["unclear"] += 1
        elif choice == (case.faster == PACKED):
            counts["right"] += 1
        else:
            counts["wrong"] += 1
    return Verdict(counts["right"], counts["wrong"], counts["unclear"], slowdown)


def held_out(fit: Fit, measured: Sequence[Case]) -> Packs:
    """Returns a rule that decides each case as fitted to the cases of all other sizes.

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
            key = (case.point.mode, case.training)
            groups.setdefault(key, []).append(case)
        thresholds = {}
        for key, group in groups.items():
            limits = [-np.inf, *sorted({number(case) for case in group})]
            costs = []
            for limit in limits:
                slowdowns = [case.slowdown(number(case) > limit) for case in group]
                costs.append(sum(slowdowns))
            thresholds[key] = limits[int(np.argmin(costs))]

        def packs(case: Case) -> bool:
            key = (case.point.mode, case.training)
            return number(case) > thresholds.get(key, np.inf)

        return packs

    return fit


def compare(
    machines: Mapping[str, Measured],
    rules: Mapping[str, Packs],
    fits: Mapping[str, Fit] | None = None,
) -> bars.BarChart:
    """Draws a bar for each rule and machine, with the numbers of right, wrong and unclear cases.

    Args:
        machines: the measurements, by machine name.
        rules: the rules by name.
        fits: functions that fit further rules to cases, by the name of the rule. Each rule is
            tested on the sizes that were left out of the fit (see `held_out`).
    """
    verdicts: dict[str, Verdict] = {}
    for machine, results in machines.items():
        measured = cases(results)
        every = dict(rules)
        for name, fit in (fits or {}).items():
            every[name] = held_out(fit, measured)
        prefix = f"{machine}: " if len(machines) > 1 else ""
        for name, packs in every.items():
            verdicts[f"{prefix}{name}"] = judge(packs, measured)
    best = max(verdicts, key=lambda name: verdicts[name].accuracy)
    accuracy = quantities.whole_percent(verdicts[best].accuracy)
    title = f"Where there is a clear difference, this rule is right most often: {best}, {accuracy}"
    rows = [["cases", *_PARTS, "times as long as the better choice"]]
    for name, verdict in verdicts.items():
        counts = map(str, verdict.counts)
        rows.append([name, *counts, f"{verdict.slowdown:.2f}"])
    notes = captions(machines)
    lines = text.table(rows, "<  >  >  >  <")
    words = "\n".join([title, *lines, *notes])
    return bars.BarChart(words, partial(_bars, title, verdicts, notes))


def _bars(title: str, verdicts: Mapping[str, Verdict], notes: Sequence[str], theme: str) -> Sheet:
    colours = THEMES[theme]
    fills = (bars.SOLID, colours.wrong, colours.ground)
    drawn = {}
    for name, verdict in verdicts.items():
        accuracy = quantities.whole_percent(verdict.accuracy)
        counts = f"✓ {verdict.right} ✗ {verdict.wrong}"
        label = f"{counts}: {accuracy} right, {verdict.slowdown:.2f} × the best"
        parts = [*zip(verdict.counts, fills, strict=True)]
        drawn[name] = bars.Bar(parts, label)
    key = [*zip(fills, _PARTS, strict=True)]
    return bars.rows(title, {"": drawn}, theme, key=key, notes=notes)


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
    steps = sorted({case.point.steps for case in measured})
    panels: dict[str, list[Case]] = {}
    for which in ("forward", "training"):
        panels |= {f"{which}, {t} steps": [] for t in steps}
    faster = dict.fromkeys(PASSES, 0)
    for case in measured:
        which = "training" if case.training else "forward"
        panels[f"{which}, {case.point.steps} steps"].append(case)
        faster[which] += case.faster == PACKED
    title = (
        f"{mode}, {machine}: packing is faster on {faster['forward']} of {len(measured) // 2}"
        f" batches forward, and on {faster['training']} in training"
    )
    shades = (
        "Brown: packing saves time, dark if it takes a third or less. Green: it takes longer."
        " Points are shifted sideways by up to 1.5 %, so that all can be seen."
    )
    notes = [shades, *captions({machine: results})]
    lines = [title]
    for panel, group in panels.items():
        for winner, label in _WINNERS.items():
            here = [case for case in group if case.faster == winner]
            count = text.count(len(here), "case")
            extent = f" with {_extent(here)}" if here else ""
            lines.append(f"{panel}, {label}: {count}{extent}")
    chart = axes(
        title,
        "\n".join([*lines, *notes]),
        x="padding, % of the cells",
        y="FLOPs per time step",
        panels=list(panels),
        across=len(steps),
        tall=220,
        below=notes,
    )
    highest = max((case.work for case in measured), default=1.0)
    for i, group in enumerate(panels.values()):
        padding, work = paying_region(group)
        if padding < 1:
            x = [100 * padding, _MOST_PADDING, _MOST_PADDING, 100 * padding]
            y = [work, work, highest, highest]
            area: dict[str, Any] = {
                "mode": "lines",
                "fill": "toself",
                "fillcolor": SIGNED[2],
                "opacity": 0.4,
            }
            chart.points(x, y, _REGION, panel=i, line={"width": 0}, **area)
        for winner, label in _WINNERS.items():
            here = [case for case in group if case.faster == winner]
            x = [100 * case.padding + _jitter(k) for k, case in enumerate(here)]
            y = [case.work for case in here]
            marker = {"symbol": _SYMBOLS[winner], "color": [_shade(case.ratio) for case in here]}
            chart.points(x, y, label, marker=marker, panel=i)
    chart.figure.update_xaxes(range=[-5, _MOST_PADDING])
    chart.figure.update_yaxes(type="log", dtick=1, tickformat="", matches="y")
    return chart


def paying_region(measured: Sequence[Case]) -> tuple[float, float]:
    """Returns the least share of padding and the least work per step with which packing pays.

    A rule packs if both are reached. The region is the one whose rule has the smallest slowdown. If
    it is best never to pack, both numbers are infinite.
    """
    paddings = sorted({case.padding for case in measured if case.ratio < 1})
    works = sorted({case.work for case in measured if case.ratio < 1})
    best = (np.inf, np.inf)
    least = sum(case.slowdown(False) for case in measured)
    for padding, work in product(paddings, works):
        packs = [case.padding >= padding and case.work >= work for case in measured]
        slowdown = sum(map(Case.slowdown, measured, packs))
        if slowdown < least:
            least = slowdown
            best = (padding, work)
    return best


def _jitter(number: int) -> float:
    """Returns a shift by less than 1.5, so that points at one place can be told apart."""
    return 3 * (0.618 * number % 1) - 1.5


def _shade(ratio: float) -> str:
    """Returns the colour of a packed time that is `ratio` times the padded time."""
    middle = len(SIGNED) // 2
    return SIGNED[middle + round(np.clip(2 * np.log2(ratio), -middle, middle))]


def _extent(measured: Sequence[Case]) -> str:
    padding = [100 * case.padding for case in measured]
    work = [case.work for case in measured]
    shares = f"{min(padding):.2g} to {max(padding):.2g} % padding"
    return f"{shares} and {min(work):.2g} to {max(work):.2g} FLOPs per time step"


def _both(point: Point, which: str, device: str) -> Comparison:
    methods = {PADDED: rnn_calls.padded, PACKED: rnn_calls.packed}
    return Comparison(calls_of(point, methods, which, device))


def _summaries(point: Point, device: str, settings: Data) -> Data:
    """Returns the quartiles of the rounds' ratios, and the page faults, for each pass."""
    summaries = {}
    for which in PASSES:
        timing = timed(partial(_both, point, which, device), device, settings, warmup=1)
        ratio = timing.ratio(PACKED, PADDED)
        values = [_digits(ratio.value), _digits(ratio.low), _digits(ratio.high)]
        summaries[which] = {"ratio": values, "rounds": ratio.rounds, "faults": timing.faults}
    return summaries


def _digits(value: float) -> float:
    """Rounds a number to four significant digits."""
    return float(f"{value:.4g}")


STUDY = Study(
    "heuristics",
    Point,
    _summaries,
    Results,
    full=[*grid(["LSTM", "GRU", "RNN"], [4, 16, 64], [16, 64, 256], [32, 128]), *LARGE],
    quick=grid(["LSTM", "GRU"], [4, 32], [32], [32]),
    parameters={"rounds": 7},
    read=lambda point, row: {which: row[which] for which in PASSES},
    write=dict,
    version=3,
)
