"""Charts of how counts grow: points in log–log axes, and the straight line that fits them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from plotly.subplots import make_subplots

from packviz.core.fit import exponent
from packviz.draw.palette import SEQUENCES
from packviz.figures.chart import Chart

_SYMBOLS = ("circle", "square", "diamond", "triangle-up")  # as many curves as can be told apart
_DASHES = ("solid", "dash", "dot", "dashdot")


def log_log(
    x: Sequence[float], panels: Mapping[str, Mapping[str, Sequence[float]]], title: str, name: str = "time steps T"
) -> Chart:
    """How counts grow with `x`: on double logarithmic axes a power of `x` is a straight line, and its slope the power.

    Args:
        x: at least two positive numbers.
        panels: for each panel, by what is counted in it, up to four curves: by their names, a number for each `x`.
        title: stands above.
        name: of `x`.

    Raises:
        ValueError: a number is not positive, a curve is not as long as `x`, or there are more curves than four.
    """
    most = max(map(len, panels.values()), default=0)
    if most > len(_SYMBOLS):
        raise ValueError(f"panels holds one with {most} curves; at most {len(_SYMBOLS)} can be told apart")
    slopes = {
        what: {curve: f"{round(exponent(x, y), 2) + 0:.2f}" for curve, y in curves.items()}
        for what, curves in panels.items()
    }
    lines = [f"{title}. {name}: {_numbers(x)}"]
    lines += [
        f"{what}, {curve}: {_numbers(y)}; slope {slopes[what][curve]}"
        for what, curves in panels.items()
        for curve, y in curves.items()
    ]
    chart = Chart(
        make_subplots(1, len(panels), subplot_titles=list(panels), horizontal_spacing=0.12), text="\n".join(lines)
    )
    for column, (what, curves) in enumerate(panels.items(), 1):
        for i, (curve, y) in enumerate(curves.items()):
            colour, place = SEQUENCES[(4 + i) % len(SEQUENCES)], {"row": 1, "col": column}
            slope, height = np.polyfit(np.log(x), np.log(y), 1)
            fit = [_digits(np.exp(height) * value**slope) for value in x]
            line = {"color": colour, "dash": _DASHES[i]}
            chart.add_scatter(x=list(x), y=fit, mode="lines", line=line, showlegend=False, **place)
            marker = {"symbol": _SYMBOLS[i], "size": 10, "color": colour, "line": {"width": 1}}
            points = {"x": list(x), "y": list(map(_digits, y)), "mode": "markers", "marker": marker, "name": curve}
            chart.add_scatter(**points, legendgroup=curve, showlegend=column == 1, **place)
            beside = {"x": np.log10(x[-1]), "y": np.log10(fit[-1]), "xanchor": "left", "xshift": 10}
            chart.add_annotation(text=f"slope {slopes[what][curve]}", showarrow=False, **beside, **place)
    left, right = np.log10(min(x)), np.log10(max(x))
    ends = [_digits(left - 0.06 * (right - left)), _digits(right + 0.32 * (right - left))]  # with room for the slopes
    # No grid: it would strike through the slopes.
    axis = {"type": "log", "showgrid": False, "showline": True, "ticks": "outside"}
    chart.update_xaxes(title={"text": name, "standoff": 8}, tickvals=list(x), range=ends, **axis)
    chart.update_yaxes(exponentformat="power", dtick=1, **axis)
    chart.update_layout(title_text=title, height=390, width=860, margin={"t": 90, "b": 100})
    chart.update_layout(legend={"y": -0.34, "yanchor": "top", "x": 0, "xanchor": "left"})
    return chart


def _digits(value: float) -> float:
    """Three digits, and the same on every machine."""
    return float(f"{value:.3g}")


def _numbers(values: Sequence[float]) -> str:
    return ", ".join(f"{value:,}" if isinstance(value, int) else f"{value:.3g}" for value in values)
