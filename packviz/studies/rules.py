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
from packviz.draw.palette import SIGNED_FILLS
from packviz.draw.quantities import whole_percent
from packviz.draw.table import Table
from packviz.measure import rnn_calls
from packviz.measure.machine import JsonDict
from packviz.measure.study import (
    PASSES,
    Comparison,
    Point,
    Results,
    Study,
    machine_captions,
    time_comparison,
)
from packviz.studies.methods import method_calls

if TYPE_CHECKING:
    from packviz.draw.figures import Chart

PADDED = "padded"
PACKED = "packed"
_REGION_LABEL = "shaded: where packing pays"
_REGION_STYLE: dict[str, Any] = {
    "mode": "lines",
    "fill": "toself",
    "fillcolor": SIGNED_FILLS[2],
    "opacity": 0.4,
    "line": {"width": 0},
}
_MAX_PADDING_PERCENT = 75  # %, at the end of the axis
_WINNER_LABELS = {PACKED: "packed faster", PADDED: "padded faster", "": "no clear difference"}
_COLUMN_TITLES = (
    "cases",
    "✓ right",
    "✗ wrong",
    "unclear",
    "share right",
    "time ÷ better",
)
_LENGTH_KINDS = ("equal", "nearly equal", "uniform", "log-normal")


def grid(
    modes: Sequence[str], batch_sizes: Sequence[int], steps: Sequence[int], sizes: Sequence[int]
) -> list[Point]:
    """Returns the points for all combinations of these values.

    A size is both the input size and the hidden size.
    """
    points = []
    for mode, batch_size, longest, size in product(modes, batch_sizes, steps, sizes):
        points += [Point(mode, kind, batch_size, longest, size, size) for kind in _LENGTH_KINDS]
    return points


LARGE_POINTS = [
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

GridResults = Results[Point, JsonDict]

PackingRule = Callable[[Case], bool]
"""A rule: a function that returns whether to pack a case."""

RuleFitter = Callable[[Sequence[Case]], PackingRule]
"""A function that makes a rule from cases."""


def cases(results: GridResults, mode: str | None = None) -> list[Case]:
    """Returns the measured cases in both passes, of one kind of RNN or of all."""
    measured_cases = []
    for point, summary_by_pass in results.values.items():
        for pass_name, summary in summary_by_pass.items():
            if mode in (None, point.mode):
                measured_cases.append(Case(point, pass_name == "training", *summary["ratio"]))
    return measured_cases


def rule_of_thumb(lengths: object) -> bool:
    """Returns whether a rule of thumb recommends packing.

    Equal lengths are never packed, even if every sequence is padded. Different lengths are packed
    if they vary by over 10 % of the longest, or if there are at least 8 sequences. The rule is from
    "RNN Packed Sequences" in the documentation of transformertf. (The code is our own.)
    """
    n = Layout(lengths).lengths
    relative_range = (n.max() - n.min()) / n.max()
    return bool(relative_range > 0 and (relative_range > 0.1 or n.size >= 8))


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


def judge(rule: PackingRule, measured_cases: Sequence[Case]) -> Verdict:
    """Evaluates a rule on measured cases."""
    choices = [rule(case) for case in measured_cases]
    slowdowns = map(Case.slowdown, measured_cases, choices)
    is_right = []
    for case, choice in zip(measured_cases, choices, strict=True):
        if case.faster:
            is_right.append(choice == (case.faster == PACKED))
    right = sum(is_right)
    wrong = len(is_right) - right
    unclear = len(measured_cases) - len(is_right)
    return Verdict(right, wrong, unclear, sum(slowdowns) / len(measured_cases))


def held_out(fit: RuleFitter, measured_cases: Sequence[Case]) -> PackingRule:
    """Returns a rule that was fitted, for each case, to the cases of all other sizes.

    A size combines a batch size, a number of time steps and a hidden size, so a rule is never
    tested on the size that it was fitted to.
    """

    def size_of(case: Case) -> tuple[int, int, int]:
        return case.point.batch_size, case.point.steps, case.point.hidden_size

    rules = {}
    for held_out_size in {size_of(case) for case in measured_cases}:
        others = [case for case in measured_cases if size_of(case) != held_out_size]
        rules[held_out_size] = fit(others)
    return lambda case: rules[size_of(case)](case)


def fit_threshold(number: Callable[[Case], float]) -> RuleFitter:
    """Returns a function that fits the rule "pack if `number` is over a threshold" to cases.

    Each kind of RNN has a threshold of its own for each pass. The fit chooses the threshold with
    the smallest slowdown. A kind of RNN without any case is never packed.
    """

    def fit(measured_cases: Sequence[Case]) -> PackingRule:
        groups: dict[tuple[str, bool], list[Case]] = {}
        for case in measured_cases:
            groups.setdefault(case.kind, []).append(case)
        thresholds = {}
        for kind, group in groups.items():
            numbers = np.array([*map(number, group)])
            thresholds[kind] = _best_candidate(
                group, [-math.inf, *np.unique(numbers)], numbers.__gt__
            )
        return lambda case: number(case) > thresholds.get(case.kind, math.inf)

    return fit


def _best_candidate(
    measured_cases: Sequence[Case], candidates: Iterable[T], select_packed: Callable[[T], BoolArray]
) -> T:
    """Returns the candidate with the smallest slowdown.

    `select_packed` returns which cases a candidate would pack.
    """
    packed, padded = [
        [case.slowdown(choice) for case in measured_cases] for choice in (True, False)
    ]
    return min(
        candidates, key=lambda candidate: np.where(select_packed(candidate), packed, padded).sum()
    )


def compare(
    results_by_machine: Mapping[str, GridResults],
    rules: Mapping[str, PackingRule],
    fits: Mapping[str, RuleFitter] | None = None,
) -> Table:
    """Returns a table of the right, wrong and unclear cases of each rule on each machine.

    Args:
        results_by_machine: the measurements, by machine name.
        rules: the rules by name.
        fits: functions that fit further rules to cases, by the name of the rule. Each rule is
            tested on the sizes that were left out of the fit (see `held_out`).
    """
    verdicts = {}
    for machine, results in results_by_machine.items():
        measured_cases = cases(results)
        prefix = f"{machine}: " if len(results_by_machine) > 1 else ""
        tested_rules = dict(rules)
        for name, fit in (fits or {}).items():
            tested_rules[name] = held_out(fit, measured_cases)
        for name, rule in tested_rules.items():
            verdicts[f"{prefix}{name}"] = judge(rule, measured_cases)
    best = max(verdicts, key=lambda name: verdicts[name].accuracy)
    rows = []
    for name, verdict in verdicts.items():
        counts = (verdict.right, verdict.wrong, verdict.unclear)
        share = whole_percent(verdict.accuracy)
        rows.append([name, *map(str, counts), share, f"{verdict.slowdown:.2f}"])
    return Table(
        rows,
        _COLUMN_TITLES,
        f"Where there is a clear difference, this rule is right most often: {best}",
        machine_captions(results_by_machine),
    )


def where_packing_pays(machine: str, results: GridResults, mode: str) -> Chart:
    """Plots the work per packed time step of each case against its padding.

    Each pass and number of time steps has a panel.

    Args:
        machine: the name of the machine.
        results: the measurements.
        mode: the kind of RNN.
    """
    from packviz.draw.figures import empty_chart  # noqa: PLC0415

    measured_cases = cases(results, mode)
    panels: dict[str, list[Case]] = {}
    for case in sorted(measured_cases, key=lambda case: (case.training, case.point.steps)):
        pass_name = "training" if case.training else "forward"
        panels.setdefault(f"{pass_name}, {case.point.steps} steps", []).append(case)
    packed_win_counts = Counter(case.training for case in measured_cases if case.faster == PACKED)
    title = (
        f"{mode}, {machine}: packing is faster on {packed_win_counts[False]} of"
        f" {len(measured_cases) // 2} batches forward, and on {packed_win_counts[True]} in training"
    )
    colour_note = (
        "Brown: packing saves time, strong if it takes a third or less. Green: it takes longer."
        " Points are shifted sideways by up to 1.5 %, so that all can be seen."
    )
    notes = [colour_note, *machine_captions({machine: results})]
    contents = []
    for group in panels.values():
        cases_by_winner = {
            label: [case for case in group if case.faster == winner]
            for winner, label in _WINNER_LABELS.items()
        }
        contents.append((paying_region(group), cases_by_winner))
    lines = [title]
    for panel_title, ((padding, work), cases_by_winner) in zip(panels, contents, strict=True):
        counts = [f"{len(won_cases)} {label}" for label, won_cases in cases_by_winner.items()]
        lines.append(f"{panel_title}: {', '.join(counts)}")
        if padding < 1:
            lines.append(f"{_REGION_LABEL}: from {padding:.0%} padding and {work:.2g} FLOPs on")
    chart = empty_chart(
        title,
        "\n".join([*lines, *notes]),
        x="padding, % of the cells",
        y="FLOPs per time step",
        panels=list(panels),
        panels_per_row=len(panels) // 2,
        panel_height=220,
        footnotes=notes,
    )
    largest_work = max((case.work for case in measured_cases), default=1.0)
    for i, ((padding, work), cases_by_winner) in enumerate(contents):
        if padding < 1:
            x = [100 * padding, _MAX_PADDING_PERCENT, _MAX_PADDING_PERCENT, 100 * padding]
            y = [work, work, largest_work, largest_work]
            chart.add_points(x, y, _REGION_LABEL, panel_index=i, **_REGION_STYLE)
        for marker_index, (label, won_cases) in enumerate(cases_by_winner.items()):
            x = [100 * case.padding + _jitter_shift(k) for k, case in enumerate(won_cases)]
            y = [case.work for case in won_cases]
            marker_style = {"color": [_ratio_colour(case.ratio) for case in won_cases]}
            chart.add_points(x, y, label, marker_index, panel_index=i, marker=marker_style)
    chart.figure.update_xaxes(range=[-5, _MAX_PADDING_PERCENT])
    chart.figure.update_yaxes(type="log", dtick=1, tickformat="", matches="y")
    return chart


def paying_region(measured_cases: Sequence[Case]) -> tuple[float, float]:
    """Returns the least share of padding and the least work per step with which packing pays.

    A rule packs if both are reached. The region is the one whose rule has the smallest slowdown. If
    it is best never to pack, both numbers are infinite.
    """
    padding = np.array([case.padding for case in measured_cases])
    work = np.array([case.work for case in measured_cases])
    is_packed_faster = np.array([case.ratio < 1 for case in measured_cases])
    region_corners = product(
        np.unique(padding[is_packed_faster]), np.unique(work[is_packed_faster])
    )
    candidates = [(math.inf, math.inf), *region_corners]
    return _best_candidate(
        measured_cases, candidates, lambda least: (padding >= least[0]) & (work >= least[1])
    )


def _jitter_shift(number: int) -> float:
    """Returns a shift by less than 1.5, so that points at one place can be told apart."""
    return 3 * (0.618 * number % 1) - 1.5


def _ratio_colour(ratio: float) -> str:
    """Returns the colour of a packed time that is `ratio` times the padded time."""
    middle = len(SIGNED_FILLS) // 2
    shift = np.clip(2 * np.log2(ratio), -middle, middle)
    return SIGNED_FILLS[middle + round(shift)]


def _make_comparison(point: Point, pass_name: str, device: str) -> Comparison:
    methods = {PADDED: rnn_calls.padded, PACKED: rnn_calls.packed}
    return Comparison(method_calls(point, methods, pass_name, device))


def _measure_passes(point: Point, device: str, settings: JsonDict) -> JsonDict:
    """Returns the quartiles of the rounds' ratios, and the page faults, for each pass."""
    summary_by_pass = {}
    for pass_name in PASSES:
        timing = time_comparison(
            partial(_make_comparison, point, pass_name, device), device, settings, warmup=1
        )
        ratio = timing.ratio(PACKED, PADDED)
        # Four significant digits are enough.
        values = [float(f"{value:.4g}") for value in (ratio.value, ratio.low, ratio.high)]
        summary_by_pass[pass_name] = {
            "ratio": values,
            "rounds": ratio.rounds,
            "faults": timing.faults,
        }
    return summary_by_pass


STUDY = Study(
    "heuristics",
    Point,
    _measure_passes,
    Results,
    full_points=[
        *grid(["LSTM", "GRU", "RNN"], [4, 16, 64], [16, 64, 256], [32, 128]),
        *LARGE_POINTS,
    ],
    quick_points=grid(["LSTM", "GRU"], [4, 32], [32], [32]),
    parameters={"rounds": 7},
    read=lambda row: {pass_name: row[pass_name] for pass_name in PASSES},
    write=dict,
    version=3,
)
