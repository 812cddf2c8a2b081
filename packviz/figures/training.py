"""Charts of trainings: a number per epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from packviz.draw.palette import SEQUENCES
from packviz.figures.chart import Chart

_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star")  # as many lines can be told apart
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "solid")


def training_curves(curves: Mapping[str, Sequence[float]], title: str, y: str = "loss") -> Chart:
    """One line per training, epoch by epoch.

    Values are drawn and said with two significant digits: further ones may differ from one machine to the next.

    Args:
        curves: for each name its value after every epoch; at most seven.
        title: stands above.
        y: what is measured.

    Raises:
        ValueError: there are more lines than can be told apart.
    """
    if len(curves) > len(_SYMBOLS):
        raise ValueError(f"curves holds {len(curves)} lines; at most {len(_SYMBOLS)} can be told apart")
    rounded = {name: [float(f"{value:.2g}") for value in values] for name, values in curves.items()}
    wide = max(map(len, curves), default=0)
    lines = [f"{name.ljust(wide)}  {' '.join(f'{v:g}'.rjust(6) for v in values)}" for name, values in rounded.items()]
    chart = Chart(
        [
            go.Scatter(
                x=list(range(1, len(values) + 1)),
                y=values,
                name=name,
                mode="lines+markers",
                line={"color": SEQUENCES[(4 + i) % len(SEQUENCES)], "dash": _DASHES[i], "width": 2.5},
                marker={"symbol": _SYMBOLS[i], "size": 9},
            )
            for i, (name, values) in enumerate(rounded.items())
        ],
        text="\n".join([f"{title} ({y} after each epoch)", *lines]),
    )
    chart.update_layout(title_text=title, xaxis_title="epoch", yaxis_title=y, yaxis_rangemode="tozero")
    chart.update_layout(legend={"y": -0.3, "yanchor": "top", "x": 0, "xanchor": "left"}, margin_b=110, height=380)
    return chart
