"""Who wins where: the race of the methods, point by point."""

from __future__ import annotations

from packviz.draw.palette import SEQUENCES
from packviz.figures.chart import Chart
from packviz.studies.race import AUTO, METHODS, PACKED, PADDED, PASSES, Race

_SYMBOLS = {PACKED: "x", "padded": "triangle-up", "packed": "square", "split": "diamond", "staircase": "triangle-left"}


def who_wins(race: Race, which: str = "training") -> Chart:
    """How many times as long each method takes as torch padded, on a logarithmic axis, a row for each point.

    Args:
        race: what was measured.
        which: a key of `race.PASSES`.

    Raises:
        ValueError: there is no such pass.
    """
    if which not in PASSES:
        raise ValueError(f"which is {which!r}; choose from {', '.join(PASSES)}")
    points = race.points
    names = [point.name for point in points]
    lines = [f"{PASSES[which].capitalize()}: how many times as long as torch padded"]
    for point in points:
        ratios = ", ".join(f"{name} {race.ratio(point, name, PADDED, which):.2g}" for name in (PACKED, *METHODS))
        lines.append(f"{point.name}: {ratios}; best: {race.best(point, which)}")
    chart = Chart(text="\n".join(lines))
    # auto last, over the one that it has chosen.
    for i, name in enumerate((PACKED, *METHODS[1:], AUTO)):
        marker = {"symbol": _SYMBOLS.get(name, "circle-open"), "size": 9, "color": SEQUENCES[i % len(SEQUENCES)]}
        if name == AUTO:
            marker = {"symbol": "circle-open", "size": 15, "color": SEQUENCES[i], "line": {"width": 2.5}}
        across = [float(f"{race.ratio(point, name, PADDED, which):.3g}") for point in points]
        chart.add_scatter(x=across, y=names, mode="markers", name=name, marker=marker)
    chart.add_vline(x=1, line={"width": 1.5, "dash": "dash", "color": "#808080"})  # to be seen in either theme
    ticks = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50]
    axis = {"type": "log", "tickvals": ticks, "ticktext": [f"{t:g}" for t in ticks], "side": "top"}
    chart.update_xaxes(title="times as long as torch padded (dashed: 1)", **axis)
    chart.update_yaxes(autorange="reversed", automargin=True, dtick=1, tickfont={"size": 11})
    legend = {"orientation": "h", "y": -0.01, "yanchor": "top", "x": 0, "xanchor": "left"}
    chart.update_layout(title_text=PASSES[which].capitalize(), legend=legend, height=150 + 22 * len(names), width=900)
    chart.update_layout(margin={"t": 110, "l": 10, "b": 60})
    return chart
