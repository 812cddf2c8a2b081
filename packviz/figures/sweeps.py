"""Times against a size as a chart, and as a file."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from packviz.draw import axes
from packviz.draw.chart import COLOURS, Curve, Plot, Sweep
from packviz.figures.chart import Chart
from packviz.figures.template import CONFIG, TEMPLATES

_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "star")  # those of the picture
_HEIGHT = 200  # px: about that of a plot
_DASHES = ("solid", "dash", "dot", "dashdot")


def times_by_size(sweep: Sweep) -> Chart:
    """The plots of a sweep: a row for each setup, a column for each pass; whiskers are quartiles."""
    across, down = max(map(len, sweep.rows), default=1), max(len(sweep.rows), 1)
    titles = [plot.title for row in sweep.rows for plot in row]
    grid = make_subplots(down, across, subplot_titles=titles, vertical_spacing=0.12 if down > 1 else 0.0)
    chart = Chart(grid, text=sweep.to_text())
    named: set[str] = set()
    for (i, row), j in product(enumerate(sweep.rows, 1), range(1, across + 1)):
        for curve in reversed(row[j - 1].curves):
            name = _name(sweep, curve)
            chart.add_trace(_line(curve, name, name not in named), row=i, col=j)
            named.add(name)
        if len(sweep.sources) == 1:  # with more the ends are too many to be named
            _label_ends(chart, row[j - 1], i, j)
        title = {"text": sweep.x if i == down else "", "standoff": 4}
        chart.update_xaxes(rangemode="tozero", title=title, row=i, col=j)
        chart.update_yaxes(rangemode="tozero", title={"text": "ms" if j == 1 else "", "standoff": 4}, row=i, col=j)
    below = [*sweep.sources, *sweep.notes]
    where = {"x": 0, "y": 0, "yshift": -44, "xref": "paper", "yref": "paper", "xanchor": "left", "yanchor": "top"}
    chart.add_annotation(text="<br>".join(below), showarrow=False, align="left", **where)
    height = 150 + 270 * down + 18 * len(below)
    chart.update_layout(
        title={"text": sweep.title, "y": 1 - 12 / height, "yanchor": "top"},
        width=900,
        height=height,
        margin={"t": 90, "b": 60 + 18 * len(below), "r": 80},
        legend={"yref": "container", "y": 1 - 36 / height, "yanchor": "top", "x": 0, "xanchor": "left"},
    )
    return chart


def write(sweep: Sweep, path: Path) -> None:
    """Writes the chart: as .html, a page that needs no network; or as .png, by means of kaleido and a browser.

    Raises:
        ValueError: kaleido or a browser is missing, or they fail.
        OSError: the file cannot be written.
    """
    figure = go.Figure(times_by_size(sweep)).update_layout(template=TEMPLATES[False])
    if path.suffix.lower() == ".html":
        figure.write_html(path, include_plotlyjs=True, config=CONFIG)
        return
    try:
        import kaleido  # noqa: PLC0415

        image = kaleido.calc_fig_sync(figure, opts={"format": "png", "scale": 2}, kopts={"mathjax": False})
    except ImportError:
        raise ValueError("a PNG needs kaleido: python -m pip install kaleido; .svg and .html do without") from None
    except Exception as error:  # kaleido's and its browser's are many
        why = str(error).strip().partition("\n")[0] or type(error).__name__
        raise ValueError(
            f"a PNG needs Chrome or Chromium, found on PATH or named by BROWSER_PATH; it failed: {why}."
            " .svg and .html do without"
        ) from None
    path.write_bytes(image)


def _name(sweep: Sweep, curve: Curve) -> str:
    source = sweep.sources[curve.source].partition(":")[0]
    return curve.name if len(sweep.sources) == 1 else f"{curve.name}, {source}"


def _line(curve: Curve, name: str, in_legend: bool) -> Any:
    spread = {
        "type": "data",
        "symmetric": False,
        "array": [_digits(high - y) for y, high in zip(curve.y, curve.high, strict=True)],
        "arrayminus": [_digits(y - low) for y, low in zip(curve.y, curve.low, strict=True)],
    }
    colour = COLOURS[curve.method % len(COLOURS)]
    return go.Scatter(
        x=list(curve.x),
        y=[_digits(y) for y in curve.y],
        error_y=spread,
        name=name,
        legendgroup=name,
        showlegend=in_legend,
        mode="lines+markers",
        line={"color": colour, "dash": _DASHES[curve.source % len(_DASHES)], "width": 2.5},
        marker={"symbol": _SYMBOLS[curve.method % len(_SYMBOLS)], "size": 8},
    )


def _label_ends(chart: Chart, plot: Plot, row: int, column: int) -> None:
    top = max((max(curve.high) for curve in plot.curves), default=0.0) or 1.0
    ends = sorted(plot.curves, key=lambda curve: -curve.y[-1])
    heights = [_HEIGHT * (1 - curve.y[-1] / top) for curve in ends]  # px from the top
    for curve, height, free in zip(ends, heights, axes.apart(heights, _HEIGHT, room=14), strict=True):
        beside = {"xanchor": "left", "xshift": 8, "yshift": round(height - free), "showarrow": False}
        place = {"x": curve.x[-1], "y": _digits(curve.y[-1])}
        chart.add_annotation(text=curve.name, **place, **beside, row=row, col=column)


def _digits(value: float) -> float:
    """Three digits: more would be noise in a stored chart."""
    return float(f"{value:.3g}")
