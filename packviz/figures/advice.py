"""Charts of advice: rules judged, where packing pays, what a run's time is made of, and the shares of workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from packviz.draw import text
from packviz.draw.palette import LIGHT, SEQUENCES
from packviz.figures.batches import HATCH
from packviz.figures.chart import Chart
from packviz.figures.template import REAL
from packviz.studies import rules
from packviz.studies.thumb import PACKED, PADDED

if TYPE_CHECKING:
    from packviz.studies.rules import CostModel, Judged
    from packviz.studies.thumb import Case
    from packviz.studies.workers import Workers

_WRONG = {"color": SEQUENCES[5], "pattern": {"shape": "x", "size": 7, "solidity": 0.35}}
_WINNERS = {
    PACKED: ("packed is faster", {"symbol": "circle", "color": REAL, "size": 9}),
    PADDED: ("padded is faster", {"symbol": "x", "color": SEQUENCES[5], "size": 8}),
    None: ("not told apart", {"symbol": "diamond-open", "color": SEQUENCES[1], "size": 9}),
}


def rules_judged(verdicts: Sequence[Judged]) -> Chart:
    """A bar per rule: the cases it gets right and wrong, and those the measurement does not tell apart."""
    names = [f"{v.name}<br>{v.accuracy:.0%} right, {v.slowdown:.2f} × the best" for v in verdicts]
    parts = {
        "right": [v.count(True, PACKED) + v.count(False, PADDED) for v in verdicts],
        "wrong": [v.count(True, PADDED) + v.count(False, PACKED) for v in verdicts],
        "not told apart": [v.count(True, None) + v.count(False, None) for v in verdicts],
    }
    markers = ({"color": REAL}, _WRONG, HATCH)
    wide = max(len(v.name) for v in verdicts)
    lines = [f"{'cases'.ljust(wide)}  right  wrong  not told apart  times as long as the better choice"]
    for i, v in enumerate(verdicts):
        right, wrong, neither = (counts[i] for counts in parts.values())
        lines.append(f"{v.name.ljust(wide)}  {right:5}  {wrong:5}  {neither:14}  {v.slowdown:.2f}")
    chart = Chart(
        [
            go.Bar(y=names, x=counts, name=part, orientation="h", marker=marker)
            for (part, counts), marker in zip(parts.items(), markers, strict=True)
        ],
        text="\n".join(lines),
    )
    chart.update_layout(barmode="stack", title={"text": "Rules against measurements", "y": 0.97}, xaxis_title="cases")
    chart.update_layout(legend_traceorder="normal")
    chart.update_layout(yaxis={"autorange": "reversed"}, height=130 + 52 * len(names), margin={"l": 220, "t": 80})
    return chart


def where_packing_pays(cases: Sequence[Case], title: str) -> Chart:
    """Each case by its padding and by its work per packed time step, forward and training side by side."""
    sides = {"forward alone": False, "forward and backward": True}
    chart = Chart(make_subplots(1, 2, shared_yaxes=True, subplot_titles=list(sides)), text="")
    lines = [title]
    for column, (side, training) in enumerate(sides.items(), 1):
        some = [case for case in cases if case.training == training]
        for winner, (name, marker) in _WINNERS.items():
            won = [case for case in some if case.faster == winner]
            chart.add_scatter(
                x=[_digits(100 * rules.padding_share(case)) for case in won],
                y=[_digits(rules.work_per_step(case)) for case in won],
                mode="markers",
                name=name,
                marker=marker | {"line": {"width": 1}},
                showlegend=column == 1,
                legendgroup=name,
                row=1,
                col=column,
            )
            lines.append(f"{side}, {name}: {_outline(won)}")
        chart.update_xaxes(title_text="padding, % of the cells", range=[-5, 75], row=1, col=column)
    chart.update_yaxes(type="log", dtick=1)
    chart.update_yaxes(title_text="FLOPs per time step", row=1, col=1)
    chart.update_layout(title={"text": title, "y": 0.97}, height=460, margin={"t": 80, "b": 120})
    chart.update_layout(legend={"y": -0.3, "yanchor": "top", "x": 0, "xanchor": "left"})
    chart._text = "\n".join(lines)
    return chart


def cost_of(model: CostModel, case: Case) -> Chart:
    """What the time of a case is made of, padded and packed, as the model has it; and what was measured."""
    choices = (PADDED, PACKED)
    parts = {choice: model.parts(case, choice) for choice in choices}
    measured = [1e3 * case.seconds[choice] for choice in choices]
    fills = [(SEQUENCES[6], "."), (SEQUENCES[1], "\\"), (REAL, ""), (SEQUENCES[5], "x")]
    bars = [
        go.Bar(
            y=list(choices),
            x=[_digits(1e3 * parts[choice][part]) for choice in choices],
            name=part,
            orientation="h",
            marker={"color": colour, "pattern": {"shape": shape, "size": 7, "solidity": 0.3}},
        )
        for part, (colour, shape) in zip(rules.PARTS, fills, strict=True)
    ]
    mark = {"symbol": "diamond", "size": 14, "color": SEQUENCES[3], "line": {"width": 2, "color": LIGHT.text}}
    seen = go.Scatter(x=[_digits(ms) for ms in measured], y=list(choices), mode="markers", name="measured", marker=mark)
    batch = f"{case.batch_size} {case.kind} lengths up to {case.longest}"
    title = f"{case.spec}, {'training' if case.training else 'forward'}: {batch}"
    lines = [f"{title}, milliseconds", f"{'':8}{'measured':>10}" + "".join(f"{part:>30}" for part in rules.PARTS)]
    for choice, ms in zip(choices, measured, strict=True):
        counts = "".join(f"{1e3 * seconds:30.2g}" for seconds in parts[choice].values())
        lines.append(f"{choice:8}{ms:10.3g}{counts}")
    chart = Chart([*bars, seen], text="\n".join(lines))
    chart.update_layout(barmode="stack", title={"text": title, "y": 0.97}, xaxis_title="milliseconds", height=340)
    chart.update_layout(yaxis={"autorange": "reversed"}, margin={"l": 80, "t": 60, "b": 140})
    chart.update_layout(legend={"y": -0.5, "yanchor": "top", "x": 0, "xanchor": "left", "traceorder": "normal"})
    return chart


def shares(workers: Workers) -> Chart:
    """The tokens of each worker, for each way of splitting."""
    ways = list(workers.errors)
    shapes = ("", "/", "x", "\\", ".", "+", "-", "|")
    chart = Chart(
        [
            go.Bar(
                x=ways,
                y=[workers.tokens(way)[rank] for way in ways],
                name=f"worker {rank}",
                text=[f"{workers.tokens(way)[rank]:,}" for way in ways],
                textposition="outside",
                marker={
                    "color": SEQUENCES[(4 + rank) % len(SEQUENCES)],
                    "pattern": {"shape": shapes[rank % len(shapes)], "size": 8, "solidity": 0.3},
                },
            )
            for rank in range(len(workers.shares))
        ],
        text=workers.to_text(),
    )
    most = max(max(workers.tokens(way)) for way in ways)
    chart.update_layout(barmode="group", title_text="Tokens of each worker", xaxis_title="split", yaxis_title="tokens")
    chart.update_layout(yaxis={"range": [0, int(1.15 * most)], "showgrid": False})
    return chart


def _outline(cases: Sequence[Case]) -> str:
    """How many cases, and where they lie."""
    if not cases:
        return "no case"
    padding = [100 * rules.padding_share(case) for case in cases]
    work = [rules.work_per_step(case) for case in cases]
    return (
        f"{text.count(len(cases), 'case')} with {min(padding):.2g} to {max(padding):.2g} % padding"
        f" and {min(work):.2g} to {max(work):.2g} FLOPs per time step"
    )


def _digits(value: float) -> float:
    """Three digits: more would be noise in a stored chart."""
    return float(f"{value:.3g}")
