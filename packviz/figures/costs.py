"""Charts of FLOPs, and of FLOPs beside milliseconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from packviz.draw import text
from packviz.figures.batches import HATCH
from packviz.figures.chart import Chart
from packviz.figures.template import REAL

if TYPE_CHECKING:
    from packviz.count.flops import Ledger
    from packviz.studies.savings import Point, Savings

PACKED, LEFT_OUT = "packed computes", "only padded computes"


def flops_per_step(ledger: Ledger) -> Chart:
    """GEMM FLOPs of a forward pass at each time step: what packing computes, and what only padding does."""
    both = ledger.per_step
    steps = list(range(len(both.padded)))
    chart = Chart(
        [
            go.Bar(x=steps, y=both.packed.tolist(), name=PACKED, marker={"color": REAL}),
            go.Bar(x=steps, y=both.saved.tolist(), name=LEFT_OUT, marker=HATCH),
        ],
        text=f"{ledger.spec}, GEMM FLOPs of a forward pass per time step: padded {both.padded[0]:,} at each;"
        f" packed {text.numbers(both.packed)}",
    )
    title = f"GEMM FLOPs at each time step: {ledger.spec}"
    chart.update_layout(barmode="stack", bargap=0.05, title={"text": title, "y": 0.97}, margin_t=80)
    chart.update_layout(xaxis_title="time step t", yaxis_title="GEMM FLOPs, forward")
    return chart


def flops_ledger(ledger: Ledger) -> Chart:
    """The counts of a ledger, one bar each: what packing computes, and what only padding does."""
    rows = ledger.rows()
    names = list(rows)
    chart = Chart(
        [
            go.Bar(y=names, x=[w.packed for w in rows.values()], name=PACKED, orientation="h", marker={"color": REAL}),
            go.Bar(y=names, x=[w.saved for w in rows.values()], name=LEFT_OUT, orientation="h", marker=HATCH),
        ],
        text=ledger.to_text(),
    )
    title = f"FLOPs: {ledger.spec}"
    chart.update_layout(
        barmode="stack", title={"text": title, "y": 0.97}, xaxis_title="FLOPs", margin={"l": 190, "t": 80}
    )
    chart.update_layout(yaxis={"autorange": "reversed"})
    return chart


def flops_and_time(savings: Savings, point: Point) -> Chart:
    """GEMM FLOPs and milliseconds of one training step side by side, with the quartiles of the time."""
    counts, timing = point.flops, savings.values[point]
    names, gflops = list(counts), [count / 1e9 for count in counts.values()]
    milliseconds = [1e3 * timing.median(name) for name in names]
    quartiles = [[1e3 * quartile for quartile in timing.quartiles(name)] for name in names]
    spread = {
        "type": "data",
        "symmetric": False,
        "array": [_digits(high - middle) for middle, (_, high) in zip(milliseconds, quartiles, strict=True)],
        "arrayminus": [_digits(middle - low) for middle, (low, _) in zip(milliseconds, quartiles, strict=True)],
    }
    # The padded bar is hatched, as padding is everywhere: what is compared must not be told by colour alone.
    marker = {"color": REAL, "pattern": {"shape": ["/", *[""] * (len(names) - 1)], "size": 8, "solidity": 0.4}}
    chart = Chart(
        make_subplots(1, 2, shared_yaxes=True, subplot_titles=("GFLOPs (GEMM)", "milliseconds (median, quartiles)")),
        text=savings.table(point),
    )
    ends = [high for _, high in quartiles]
    for column, values, reach, error in ((1, gflops, gflops, None), (2, milliseconds, ends, spread)):
        bars = {"x": list(map(_digits, values)), "y": names, "orientation": "h", "marker": marker}
        chart.add_bar(**bars, error_x=error, row=1, col=column)
        for name, value, end in zip(names, values, reach, strict=True):
            place = {"x": _digits(end), "y": name, "xanchor": "left", "xshift": 6, "showarrow": False}
            chart.add_annotation(text=f"{value:,.0f}" if value >= 1000 else f"{value:.3g}", **place, row=1, col=column)
        chart.update_xaxes(range=[0, _digits(1.3 * max(reach))], row=1, col=column)
    chart.update_yaxes(autorange="reversed", row=1, col=1)
    chart.update_layout(title_text=f"One training step: {point.spec}", showlegend=False)
    chart.update_layout(margin={"l": 170, "t": 80}, height=130 + 44 * len(names))
    return chart


def _digits(value: float) -> float:
    """Three digits: more would be noise in a stored chart."""
    return float(f"{value:.3g}")
