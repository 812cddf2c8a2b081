"""Charts of studies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from packviz.draw import text
from packviz.draw.figures import NEITHER, REAL, Chart, Fill, axes
from packviz.draw.palette import LIGHT, METHODS, SEQUENCES
from packviz.studies import race, rules
from packviz.studies.thumb import PACKED, PADDED

if TYPE_CHECKING:
    from packviz.studies.race import Race
    from packviz.studies.rules import CostModel, Judged
    from packviz.studies.thumb import Case
    from packviz.studies.workers import Workers

_TEXTURES = ("", ".", "+", "-", "|")
_WINNERS = {
    PACKED: ("packed is faster", {"symbol": "circle", "color": METHODS["packed"]}),
    PADDED: ("padded is faster", {"symbol": "x", "color": METHODS["padded"]}),
    None: ("not told apart", {"symbol": "diamond-open", "color": SEQUENCES[1]}),
}
_RACERS = {  # mark and colour of each; those of `pv.run` have the colours of what they do
    race.PACKED: {"symbol": "x", "color": METHODS["packed"]},
    "padded": {"symbol": "triangle-up", "color": METHODS["padded"]},
    "packed": {"symbol": "square", "color": METHODS["drop-in"]},
    "split": {"symbol": "diamond", "color": METHODS["split"]},
    "staircase": {"symbol": "triangle-left", "color": METHODS["staircase"]},
    # Last, over the one that it has chosen.
    race.AUTO: {"symbol": "circle-open", "color": METHODS["run"], "size": 15, "line": {"width": 2.5}},
}


def rules_judged(verdicts: Sequence[Judged]) -> Chart:
    """A bar per rule: the cases it gets right and wrong, and those the measurement does not tell apart."""
    names = [v.name for v in verdicts]
    said = [f"{v.accuracy:.0%} right, {v.slowdown:.2f} × the best" for v in verdicts]
    parts = {
        "right": [v.count(True, PACKED) + v.count(False, PADDED) for v in verdicts],
        "wrong": [v.count(True, PADDED) + v.count(False, PACKED) for v in verdicts],
        "not told apart": [v.count(True, None) + v.count(False, None) for v in verdicts],
    }
    wide = max(map(len, names))
    lines = [f"{'cases'.ljust(wide)}  right  wrong  not told apart  times as long as the better choice"]
    for i, v in enumerate(verdicts):
        right, wrong, neither = (counts[i] for counts in parts.values())
        lines.append(f"{v.name.ljust(wide)}  {right:5}  {wrong:5}  {neither:14}  {v.slowdown:.2f}")
    chart = axes("Rules against measurements", "\n".join(lines), x="cases", rows=names, ends=said)
    for (part, counts), fill in zip(parts.items(), (REAL, Fill(SEQUENCES[5], "."), NEITHER), strict=True):
        chart.bars(names, counts, part, fill)
    for v, end in zip(verdicts, said, strict=True):
        chart.label(len(v.cases), v.name, end)
    return chart.scale(max(len(v.cases) for v in verdicts))


def where_packing_pays(cases: Sequence[Case], title: str) -> Chart:
    """Each case by its padding and by its work per packed time step, forward and training side by side."""
    sides = {"forward alone": False, "forward and backward": True}
    won = {
        (side, winner): [case for case in cases if case.training == training and case.faster == winner]
        for side, training in sides.items()
        for winner in _WINNERS
    }
    lines = [f"{side}, {_WINNERS[winner][0]}: {_outline(some)}" for (side, winner), some in won.items()]
    words = "\n".join([title, *lines])
    chart = axes(title, words, x="padding, % of the cells", y="FLOPs per time step", panels=list(sides), tall=300)
    for panel, side in enumerate(sides):
        for winner, (name, marker) in _WINNERS.items():
            x = [100 * rules.padding_share(case) for case in won[side, winner]]
            y = [rules.work_per_step(case) for case in won[side, winner]]
            chart.points(x, y, name, marker=marker, panel=panel, key=panel == 0)
    chart.update_xaxes(range=[-5, 75])
    chart.update_yaxes(type="log", dtick=1, tickformat="", matches="y")
    return chart


def cost_of(model: CostModel, case: Case) -> Chart:
    """What the time of a case is made of, padded and packed, as the model has it; and what was measured."""
    choices = (PADDED, PACKED)
    parts = {choice: model.parts(case, choice) for choice in choices}
    measured = [1e3 * case.seconds[choice] for choice in choices]
    batch = f"{case.batch_size} {case.kind} lengths up to {case.longest}"
    title = f"{case.spec}, {'training' if case.training else 'forward'}: {batch}"
    lines = [f"{title}, milliseconds", f"{'':8}{'measured':>10}" + "".join(f"{part:>30}" for part in rules.PARTS)]
    for choice, ms in zip(choices, measured, strict=True):
        counts = "".join(f"{1e3 * seconds:30.2g}" for seconds in parts[choice].values())
        lines.append(f"{choice:8}{ms:10.3g}{counts}")
    chart = axes(title, "\n".join(lines), x="milliseconds", rows=choices)
    fills = (Fill(SEQUENCES[6], "."), Fill(SEQUENCES[1], "|"), REAL, Fill(SEQUENCES[5], "+"))
    for part, fill in zip(rules.PARTS, fills, strict=True):
        chart.bars(choices, [1e3 * parts[choice][part] for choice in choices], part, fill)
    mark = {"symbol": "diamond", "size": 14, "color": SEQUENCES[3], "line": {"width": 2, "color": LIGHT.text}}
    return chart.points(measured, choices, "measured", marker=mark)


def shares(workers: Workers) -> Chart:
    """The tokens of each worker, for each way of splitting."""
    tokens = {way: workers.tokens(way) for way in workers.errors}
    chart = axes("Tokens of each worker", workers.to_text(), x="split", y="tokens")
    for rank in range(len(workers.shares)):
        fill = Fill(SEQUENCES[(4 + rank) % len(SEQUENCES)], _TEXTURES[rank % len(_TEXTURES)])
        chart.bars(list(tokens), [each[rank] for each in tokens.values()], f"worker {rank}", fill)
    chart.update_traces(texttemplate="%{y:,}", textposition="outside", cliponaxis=False)
    chart.scale(1.1 * max(map(max, tokens.values()))).update_yaxes(showgrid=False)
    chart.update_layout(barmode="group")
    return chart


def who_wins(raced: Race, which: str = "training") -> Chart:
    """How many times as long each method takes as torch padded, on a logarithmic axis, a row for each point.

    Args:
        raced: what was measured.
        which: a key of `race.PASSES`.

    Raises:
        ValueError: there is no such pass.
    """
    if which not in race.PASSES:
        raise ValueError(f"which is {which!r}; choose from {', '.join(race.PASSES)}")
    rows = {point.name: point for point in raced.points}
    ratios = {name: [raced.ratio(point, name, race.PADDED, which) for point in rows.values()] for name in _RACERS}
    lines = [f"{race.PASSES[which].capitalize()}: how many times as long as torch padded"]
    for i, point in enumerate(rows.values()):
        said = ", ".join(f"{name} {ratios[name][i]:.2g}" for name in (race.PACKED, *race.METHODS))
        lines.append(f"{point.name}: {said}; best: {raced.best(point, which)}")
    title, x = race.PASSES[which].capitalize(), "times as long as torch padded (dashed: 1)"
    chart = axes(title, "\n".join(lines), x=x, rows=list(rows), tall=22 * len(rows), on_top=True)
    for name, marker in _RACERS.items():
        chart.points(ratios[name], list(rows), name, marker=marker)
    chart.add_vline(x=1, line={"width": 1, "dash": "dash", "color": LIGHT.muted}, layer="below")
    ticks = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50]
    chart.update_xaxes(type="log", tickvals=ticks, ticktext=[f"{tick:g}" for tick in ticks])
    chart.update_yaxes(showgrid=True)
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
