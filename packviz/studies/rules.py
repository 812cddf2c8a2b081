"""Rules that say when to pack: the rule of thumb, thresholds, and a model of the cost. And how to judge them.

A rule sees what is known before anything is run: lengths and sizes. Whether it is right is for the cases of
`packviz.studies.heuristics` to say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from packviz.bench.study import captions
from packviz.core.fit import nonnegative
from packviz.core.layout import Layout
from packviz.draw import bars, plots, quantities, text
from packviz.draw.palette import LIGHT, METHODS, THEMES
from packviz.draw.sheet import Sheet
from packviz.ops.costs import amounts
from packviz.studies.heuristics import PACKED, PADDED, Case, Measured

if TYPE_CHECKING:
    from packviz.draw.figures import Chart

Packs = Callable[[Case], bool]
"""A rule: whether to pack this case."""

Fit = Callable[[Sequence[Case]], Packs]
"""Makes a rule from cases."""


def rule_of_thumb(lengths: Any) -> bool:
    """Whether the rule of the transformertf page would pack: lengths vary by over 10 % of the longest, or 8 sequences.

    Equal lengths it does not pack, however many there are and however far they are padded.
    Source of the rule: "RNN Packed Sequences", documentation of transformertf. (The words are theirs, the code is not.)
    """
    n = Layout(lengths).lengths
    variation = (n.max() - n.min()) / n.max()
    return bool(variation > 0 and (variation > 0.1 or n.size >= 8))


def padding_share(case: Case) -> float:
    """The share of the padded cells that is padding."""
    return case.layout.n_padding / case.layout.n_cells


def work_per_step(case: Case) -> float:
    """GEMM FLOPs of an average packed time step, forward: real cells times the cost of one, over the steps."""
    return case.layout.n_valid * case.spec.gemm_per_cell / case.layout.max_len


class _Judged(NamedTuple):
    """What became of a rule on measured cases.

    Attributes:
        name: of the rule.
        right: how often it chose the faster one.
        wrong: how often it chose the slower one; the measurement does not tell the two of the others apart.
        slowdown: how many times as long its choices take as the better ones, on average over all cases.
        of: how many cases it was tried on.
    """

    name: str
    right: int
    wrong: int
    slowdown: float
    of: int

    @property
    def accuracy(self) -> float:
        """The share of right choices, among the cases that the measurement tells apart."""
        return self.right / max(self.right + self.wrong, 1)


def judge(name: str, packs: Packs, cases: Sequence[Case]) -> _Judged:
    """Tries a rule on cases."""
    choices = [PACKED if packs(case) else PADDED for case in cases]
    told = [choice == case.faster for choice, case in zip(choices, cases, strict=True) if case.faster]
    slowdown = np.mean([case.slowdown(choice == PACKED) for choice, case in zip(choices, cases, strict=True)])
    return _Judged(name, sum(told), len(told) - sum(told), float(slowdown), len(cases))


def judge_fitted(name: str, fit: Fit, cases: Sequence[Case]) -> _Judged:
    """Tries a rule that is fitted to cases, each time on cases of a size that it was not fitted to.

    A size is batch size, time steps and hidden size together: `fit` never sees those that its rule is then tried on.
    Where it sees no case of the same RNN and pass, there is no rule, and the case is not packed.
    """

    def size(case: Case) -> tuple[int, int, int]:
        return case.batch_size, case.longest, case.size

    rules, known = {}, {}
    for left_out in {size(case) for case in cases}:
        others = [case for case in cases if size(case) != left_out]
        rules[left_out], known[left_out] = fit(others), _by_kind(others)
    return judge(name, lambda case: (case.mode, case.training) in known[size(case)] and rules[size(case)](case), cases)


def fit_threshold(number: Callable[[Case], float]) -> Fit:
    """Makes a fit of the rule "pack if this number is over a threshold", one threshold per RNN and pass.

    The threshold is the one with the least slowdown on the cases it is fitted to.
    """

    def fit(cases: Sequence[Case]) -> Packs:
        thresholds = {}
        for key, some in _by_kind(cases).items():
            values = np.array([number(case) for case in some])
            candidates = [-np.inf, *np.unique(values)]
            cost = [sum(case.slowdown(v > limit) for case, v in zip(some, values, strict=True)) for limit in candidates]
            thresholds[key] = candidates[int(np.argmin(cost))]
        return lambda case: number(case) > thresholds[case.mode, case.training]

    return fit


_SQUARE = "cell, step, gate"  # the copies of a packed RNN
_PAD = "pad"  # those of torch's pad


@dataclass(frozen=True)
class CostModel:
    """Predicts times by the model of `packviz.ops.costs`, with constants fitted to cases.

    These were packed by torch itself. So one term is added for training (notebook 09): torch's pad makes a gradient of
    the padded size for each distinct length.

    Batches without padding are not for this model: packing has nothing to save there. (And a packed LSTM whose
    lengths are all equal gets the fused kernel of the padded one, where there is one: in torch 2.13, not in 2.11.)

    Attributes:
        seconds: by RNN, pass and choice (`"padded"` or `"packed"`) the constants by term.
    """

    seconds: Mapping[tuple[str, bool, str], Mapping[str, float]]

    @classmethod
    def fit(cls, cases: Sequence[Case]) -> CostModel:
        """Chooses the constants, none negative, with the least squared relative error."""
        found = {}
        for (mode, training), some in _by_kind(cases).items():
            padded = [case for case in some if case.layout.n_padding]
            for choice in (PADDED, PACKED):
                terms = [_terms(case, choice) for case in padded]
                measured = np.array([case.seconds[choice] for case in padded])
                constants = nonnegative(np.array([[*one.values()] for one in terms]) / measured[:, None])
                found[mode, training, choice] = dict(zip(terms[0], constants.tolist(), strict=True))
        return cls(found)

    def predict(self, case: Case, choice: str) -> float:
        """The seconds of a case."""
        constants = self.seconds[case.mode, case.training, choice]
        return sum(constants[term] * amount for term, amount in _terms(case, choice).items())

    def packs(self, case: Case) -> bool:
        """The rule that follows: pack what is predicted to be faster packed."""
        return bool(case.layout.n_padding) and self.predict(case, PACKED) < self.predict(case, PADDED)


def fit_model(cases: Sequence[Case]) -> Packs:
    """The rule of a `CostModel` fitted to these cases."""
    return CostModel.fit(cases).packs


def compare(
    machines: Mapping[str, Measured], rules: Mapping[str, Packs], fits: Mapping[str, Fit] | None = None
) -> plots.Chart:
    """A bar per rule and machine: the cases it gets right and wrong, and those the measurement does not tell apart.

    Args:
        machines: what was measured, by what to call the machine.
        rules: by name.
        fits: by name, those that are fitted, as `judge_fitted` does it.
    """
    verdicts, below = {}, captions(machines)
    for machine, measured in machines.items():
        verdicts[machine] = [judge(name, packs, measured.cases) for name, packs in rules.items()]
        verdicts[machine] += [judge_fitted(name, fit, measured.cases) for name, fit in (fits or {}).items()]
    many = len(machines) > 1
    rows = {f"{machine}: " * many + one.name: one for machine, some in verdicts.items() for one in some}
    parts = {
        "✓ right": [v.right for v in rows.values()],
        "✗ wrong": [v.wrong for v in rows.values()],
        "not told apart": [v.of - v.right - v.wrong for v in rows.values()],
    }
    lines = [["cases", *parts, "times as long as the better choice"]]
    for (name, v), *counts in zip(rows.items(), *parts.values(), strict=True):
        lines.append([name, *map(str, counts), f"{v.slowdown:.2f}"])
    best = {machine: max(some, key=lambda one: one.accuracy) for machine, some in verdicts.items()}
    labels = [
        f"{one.name}, {quantities.whole_percent(one.accuracy)}" + f" ({machine})" * many
        for machine, one in best.items()
    ]
    title = f"Most often right{'' if many else ', of the cases that are told apart'}: {'; '.join(labels)}"
    words = "\n".join([title, *text.table(lines, "<  >  >  >  <"), *below])

    def draw(theme: str) -> Sheet:
        colours, drawn = THEMES[theme], {}
        fills = (bars.SOLID, colours.wrong, colours.ground)
        for (name, v), *counts in zip(rows.items(), *parts.values(), strict=True):
            share = f"{quantities.whole_percent(v.accuracy)} right, {v.slowdown:.2f} × the best"
            drawn[name] = bars.Bar([*zip(counts, fills, strict=True)], f"✓ {v.right} ✗ {v.wrong}: {share}")
        return bars.rows(title, {"": drawn}, theme, key=[*zip(fills, parts, strict=True)], notes=below)

    return plots.Chart(words, draw)


_WINNERS = {
    PACKED: ("packed is faster", {"symbol": "circle", "color": METHODS["packed"]}),
    PADDED: ("padded is faster", {"symbol": "x", "color": METHODS["padded"]}),
    None: ("not told apart", {"symbol": "diamond-open", "color": LIGHT.muted}),
}


def where_packing_pays(machines: Mapping[str, Measured], mode: str) -> list[Chart]:
    """Each case by its padding and by its work per packed time step: a panel for each pass and number of steps.

    Args:
        machines: what was measured, by what to call the machine: a chart for each, on the same axes.
        mode: the kind of RNN.
    """
    return [
        _where(found.of(mode), f"{mode}, {machine}" if len(machines) > 1 else mode, captions({machine: found}))
        for machine, found in machines.items()
        if found.of(mode)
    ]


def _where(cases: Sequence[Case], name: str, below: Sequence[str]) -> Chart:
    from packviz.draw.figures import axes  # noqa: PLC0415 - a bare machine has no plotly

    steps = sorted({case.longest for case in cases})
    panels = {
        f"{side}, {count} steps": [case for case in cases if (case.training, case.longest) == (training, count)]
        for side, training in {"forward": False, "training": True}.items()
        for count in steps
    }
    passes = [[case.faster for case in cases if case.training == side] for side in (False, True)]
    forward, training = (f"{some.count(PACKED)} of {len(some)}" for some in passes)
    title = f"{name}: packing is faster forward at {forward} batches, in training at {training}"
    lines = [title]
    for panel, some in panels.items():
        for winner, (label, _) in _WINNERS.items():
            lines.append(f"{panel}, {label}: {_outline([case for case in some if case.faster == winner])}")
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
    for i, some in enumerate(panels.values()):
        for winner, (label, marker) in _WINNERS.items():
            here = [case for case in some if case.faster == winner]
            x, y = [100 * padding_share(case) for case in here], [work_per_step(case) for case in here]
            chart.points(x, y, label, marker=marker, panel=i, key=i == 0)
    chart.figure.update_xaxes(range=[-5, 75])
    chart.figure.update_yaxes(type="log", dtick=1, tickformat="", matches="y")
    return chart


def _outline(cases: Sequence[Case]) -> str:
    """How many cases, and where they lie."""
    if not cases:
        return "no case"
    padding = [100 * padding_share(case) for case in cases]
    work = [work_per_step(case) for case in cases]
    return (
        f"{text.count(len(cases), 'case')} with {min(padding):.2g} to {max(padding):.2g} % padding"
        f" and {min(work):.2g} to {max(work):.2g} FLOPs per time step"
    )


def _terms(case: Case, choice: str) -> dict[str, int]:
    """What the constants are multiplied with: `amounts`, and what torch's own pad copies."""
    layout, copies = case.layout, choice == PACKED and case.training
    distinct = np.unique(layout.lengths).size
    calls, cells = (distinct, layout.n_valid) if choice == PACKED else (1, layout.n_cells)
    terms = amounts(case.spec, calls, layout.max_len, cells) | {_PAD: distinct * layout.n_cells * case.size}
    return {term: amount if copies or term not in (_PAD, _SQUARE) else 0 for term, amount in terms.items()}


def _by_kind(cases: Sequence[Case]) -> dict[tuple[str, bool], list[Case]]:
    kinds: dict[tuple[str, bool], list[Case]] = {}
    for case in cases:
        kinds.setdefault((case.mode, case.training), []).append(case)
    return kinds
