"""Defines rules that decide whether to pack (a rule of thumb, thresholds, and a cost model), and
evaluates them.

A rule uses only the lengths and the sizes, which are known before the run. The cases that
`packviz.studies.heuristics` has measured show whether the rule is right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from packviz.core.fit import nonnegative
from packviz.core.layout import Layout
from packviz.draw import bars, quantities, text
from packviz.draw.palette import LIGHT, METHODS, THEMES
from packviz.draw.sheet import Sheet
from packviz.measure.study import captions
from packviz.ops.costs import amounts
from packviz.studies.heuristics import PACKED, PADDED, Case, Measured

if TYPE_CHECKING:
    from packviz.draw.figures import Chart

Packs = Callable[[Case], bool]
"""A rule: a function that returns whether to pack a case."""

Fit = Callable[[Sequence[Case]], Packs]
"""A function that makes a rule from cases."""


def rule_of_thumb(lengths: Any) -> bool:
    """Returns whether a rule of thumb says to pack: if lengths vary by over 10 %, or if there are
    at least 8 sequences.

    The 10 % is relative to the longest length. Equal lengths are never packed, even if every
    sequence is padded. The rule is from "RNN Packed Sequences" in the documentation of
    transformertf. (The code is our own.)
    """
    n = Layout(lengths).lengths
    variation = (n.max() - n.min()) / n.max()
    return bool(variation > 0 and (variation > 0.1 or n.size >= 8))


def padding_share(case: Case) -> float:
    """Returns the share of the padded batch's cells that are padding."""
    return case.layout.n_padding / case.layout.n_cells


def work_per_step(case: Case) -> float:
    """Returns the average GEMM FLOPs of a time step in a packed forward pass."""
    return case.layout.n_real * case.spec.gemm_per_cell / case.layout.max_len


class _Judged(NamedTuple):
    """The evaluation of a rule on measured cases.

    Attributes:
        name: name of the rule.
        right: number of cases in which the rule chose the faster method.
        wrong: number of cases in which the rule chose the slower method. In all other cases, the
            two methods were not told apart.
        slowdown: time of the chosen method as a multiple of the faster method's time, averaged over
            all cases.
        of: total number of cases.
    """

    name: str
    right: int
    wrong: int
    slowdown: float
    of: int

    @property
    def accuracy(self) -> float:
        """The share of right choices among the cases in which the two methods were told apart."""
        return self.right / max(self.right + self.wrong, 1)


def judge(name: str, packs: Packs, cases: Sequence[Case]) -> _Judged:
    """Evaluates a rule on measured cases."""
    choices = [PACKED if packs(case) else PADDED for case in cases]
    told = [
        choice == case.faster for choice, case in zip(choices, cases, strict=True) if case.faster
    ]
    slowdown = np.mean(
        [case.slowdown(choice == PACKED) for choice, case in zip(choices, cases, strict=True)]
    )
    return _Judged(name, sum(told), len(told) - sum(told), float(slowdown), len(cases))


def judge_fitted(name: str, fit: Fit, cases: Sequence[Case]) -> _Judged:
    """Evaluates a fitted rule on each case, after fitting it to the cases of all other sizes.

    A size combines a batch size, a number of time steps and a hidden size. `fit` never sees the
    size on which its rule is evaluated. If `fit` sees no case with the same RNN and pass, there is
    no rule, and the case is not packed.
    """

    def size(case: Case) -> tuple[int, int, int]:
        return case.batch_size, case.longest, case.size

    rules, known = {}, {}
    for left_out in {size(case) for case in cases}:
        others = [case for case in cases if size(case) != left_out]
        rules[left_out], known[left_out] = fit(others), _by_kind(others)
    return judge(
        name,
        lambda case: (case.mode, case.training) in known[size(case)] and rules[size(case)](case),
        cases,
    )


def fit_threshold(number: Callable[[Case], float]) -> Fit:
    """Returns a function that fits the rule "pack if `number` is over a threshold" to cases.

    Each kind of RNN has a threshold of its own for each pass. The fit chooses the threshold with
    the smallest slowdown.
    """

    def fit(cases: Sequence[Case]) -> Packs:
        thresholds = {}
        for key, some in _by_kind(cases).items():
            values = np.array([number(case) for case in some])
            candidates = [-np.inf, *np.unique(values)]
            cost = [
                sum(case.slowdown(v > limit) for case, v in zip(some, values, strict=True))
                for limit in candidates
            ]
            thresholds[key] = candidates[int(np.argmin(cost))]
        return lambda case: number(case) > thresholds[case.mode, case.training]

    return fit


_SQUARE, _PAD = "cell, step, gate", "pad"  # the terms for copies in a packed RNN and in torch's pad


@dataclass(frozen=True)
class CostModel:
    """A model that predicts times in the same way as `packviz.ops.costs`, but with constants fitted
    to cases.

    The cases were measured with torch's own packing and padding functions. In the backward pass,
    torch's pad makes a gradient of the padded size for each distinct length, so packed training has
    one more term (see notebook 09).

    The model does not cover batches without padding, where packing cannot save anything. (Besides,
    if all lengths are equal, a packed LSTM uses the same fused kernel as a padded one in torch
    2.13, but not in 2.11.)

    Attributes:
        seconds: the constants by term, for each RNN, pass and choice (`"padded"` or `"packed"`).
    """

    seconds: Mapping[tuple[str, bool, str], Mapping[str, float]]

    @classmethod
    def fit(cls, cases: Sequence[Case]) -> CostModel:
        """Fits the constants with the smallest sum of squared relative errors. No constant is below 0."""
        found = {}
        for (mode, training), some in _by_kind(cases).items():
            padded = [case for case in some if case.layout.n_padding]
            for choice in (PADDED, PACKED):
                terms = [_terms(case, choice) for case in padded]
                measured = np.array([case.seconds[choice] for case in padded])
                constants = nonnegative(
                    np.array([[*one.values()] for one in terms]) / measured[:, None]
                )
                found[mode, training, choice] = dict(zip(terms[0], constants.tolist(), strict=True))
        return cls(found)

    def predict(self, case: Case, choice: str) -> float:
        """Predicts the time of a case in seconds."""
        constants = self.seconds[case.mode, case.training, choice]
        return sum(constants[term] * amount for term, amount in _terms(case, choice).items())

    def packs(self, case: Case) -> bool:
        """Returns whether the model predicts that packing makes a case faster."""
        return bool(case.layout.n_padding) and self.predict(case, PACKED) < self.predict(
            case, PADDED
        )


def fit_model(cases: Sequence[Case]) -> Packs:
    """Returns the rule of a `CostModel` fitted to these cases."""
    return CostModel.fit(cases).packs


def compare(
    machines: Mapping[str, Measured],
    rules: Mapping[str, Packs],
    fits: Mapping[str, Fit] | None = None,
) -> bars.BarChart:
    """Draws a bar for each rule and machine, with the numbers of right, wrong and undecided cases.

    Args:
        machines: the measurements, by machine name.
        rules: the rules by name.
        fits: functions that fit further rules to cases, by the name of the rule (see
            `judge_fitted`).
    """
    rows: dict[str, _Judged] = {}
    best, below, many = [], captions(machines), len(machines) > 1
    for machine, measured in machines.items():
        judged = [judge(name, packs, measured.cases) for name, packs in rules.items()]
        judged += [judge_fitted(name, fit, measured.cases) for name, fit in (fits or {}).items()]
        rows |= {f"{machine}: " * many + one.name: one for one in judged}
        top = max(judged, key=lambda one: one.accuracy)
        best.append(
            f"{top.name}, {quantities.whole_percent(top.accuracy)}" + f" ({machine})" * many
        )
    parts = ("✓ right", "✗ wrong", "not told apart")
    counts = {
        name: (one.right, one.wrong, one.of - one.right - one.wrong) for name, one in rows.items()
    }
    lines = [["cases", *parts, "times as long as the better choice"]]
    lines += [[name, *map(str, counts[name]), f"{one.slowdown:.2f}"] for name, one in rows.items()]
    title = f"{'These rules get' if many else 'Of the cases told apart, this rule gets'} most right: {'; '.join(best)}"
    words = "\n".join([title, *text.table(lines, "<  >  >  >  <"), *below])

    def draw(theme: str) -> Sheet:
        colours, drawn = THEMES[theme], {}
        fills = (bars.SOLID, colours.wrong, colours.ground)
        for name, one in rows.items():
            share = f"{quantities.whole_percent(one.accuracy)} right, {one.slowdown:.2f} × the best"
            label = f"✓ {one.right} ✗ {one.wrong}: {share}"
            drawn[name] = bars.Bar([*zip(counts[name], fills, strict=True)], label)
        return bars.rows(
            title, {"": drawn}, theme, key=[*zip(fills, parts, strict=True)], notes=below
        )

    return bars.BarChart(words, draw)


_WINNERS = {
    PACKED: ("packed is faster", {"symbol": "circle", "color": METHODS["packed"]}),
    PADDED: ("padded is faster", {"symbol": "x", "color": METHODS["padded"]}),
    None: ("not told apart", {"symbol": "diamond-open", "color": LIGHT.muted}),
}


def where_packing_pays(machines: Mapping[str, Measured], mode: str) -> list[Chart]:
    """Plots the work per packed time step of each case against its padding, by pass and number of
    time steps.

    Args:
        machines: the measurements, by machine name. Each machine gets a chart of its own.
        mode: the kind of RNN.
    """
    return [
        _where(
            found.of(mode),
            f"{mode}, {machine}" if len(machines) > 1 else mode,
            captions({machine: found}),
        )
        for machine, found in machines.items()
        if found.of(mode)
    ]


def _where(cases: Sequence[Case], name: str, below: Sequence[str]) -> Chart:
    from packviz.draw.figures import axes

    steps = sorted({case.longest for case in cases})
    panels = {
        f"{'training' if training else 'forward'}, {count} steps": [
            case for case in cases if (case.training, case.longest) == (training, count)
        ]
        for training in (False, True)
        for count in steps
    }
    passes = [[case.faster for case in cases if case.training == side] for side in (False, True)]
    forward, training = (f"{some.count(PACKED)} of {len(some)}" for some in passes)
    title = f"{name}: packing is faster on {forward} batches forward, and on {training} in training"
    lines, marks = [title], []
    for i, (panel, some) in enumerate(panels.items()):
        for winner, (label, marker) in _WINNERS.items():
            here = [case for case in some if case.faster == winner]
            x, y = (
                [100 * padding_share(case) for case in here],
                [work_per_step(case) for case in here],
            )
            marks.append((x, y, label, marker, i))
            extent = (
                f"{min(x):.2g} to {max(x):.2g} % padding and {min(y):.2g} to {max(y):.2g} FLOPs"
                if here
                else ""
            )
            many = (
                f"{text.count(len(here), 'case')} with {extent} per time step"
                if here
                else "no case"
            )
            lines.append(f"{panel}, {label}: {many}")
    chart = axes(
        title,
        "\n".join([*lines, *below]),
        x="padding, % of the cells",
        y="FLOPs per time step",
        panels=list(panels),
        across=len(steps),
        tall=220,
        below=below,
    )
    for x, y, label, marker, i in marks:
        chart.points(x, y, label, marker=marker, panel=i)
    chart.figure.update_xaxes(range=[-5, 75])
    chart.figure.update_yaxes(type="log", dtick=1, tickformat="", matches="y")
    return chart


def _terms(case: Case, choice: str) -> dict[str, int]:
    """Returns, by term, the factors of the constants: those from `amounts`, and the cells that torch's pad copies."""
    layout, copies = case.layout, choice == PACKED and case.training
    distinct = np.unique(layout.lengths).size
    calls, cells = (distinct, layout.n_real) if choice == PACKED else (1, layout.n_cells)
    terms = amounts(case.spec, calls, layout.max_len, cells) | {
        _PAD: distinct * layout.n_cells * case.size
    }
    return {
        term: amount if copies or term not in (_PAD, _SQUARE) else 0
        for term, amount in terms.items()
    }


def _by_kind(cases: Sequence[Case]) -> dict[tuple[str, bool], list[Case]]:
    kinds: dict[tuple[str, bool], list[Case]] = {}
    for case in cases:
        kinds.setdefault((case.mode, case.training), []).append(case)
    return kinds
