"""Measured charts to hover over, as plotly figures, each with a text twin. The only file that knows plotly.

`axes` returns an empty chart; `points` and `label` put plain numbers into it. They look like the
pictures of `packviz.draw`: the same face, colours, axes and keys. What is counted, and what a panel redraws, is SVG.
"""

from __future__ import annotations

import json
import math
import os
import textwrap
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from packviz.core import files
from packviz.core.has_text import HasText, first_line
from packviz.draw import theme
from packviz.draw.chart import COLOURS, spread_labels
from packviz.draw.palette import DARK, FONT, LIGHT, SEQUENCES
from packviz.draw.sheet import width_of
from packviz.draw.sweep import doublings, heights_of

if TYPE_CHECKING:
    from packviz.draw.sweep import Curve, Sweep

CONFIG = {"displayModeBar": False, "responsive": False}
"""No mode bar: it would cover the chart, and one of its buttons uploads the data to a cloud."""

# Of the first, second, … line: those of the pictures.
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "star")
DASHES = ("solid", "8px,4px", "2px,3px", "9px,3px,2px,3px")

WIDTH = 860  # px: that of the pictures
_LEFT, _RIGHT = 74, 20
_SIZE, _SMALL = 12, 11  # of letters

_AXIS = {
    "showgrid": False,
    "zeroline": False,
    "linecolor": LIGHT.line,
    "gridcolor": LIGHT.hatch,
    "gridwidth": 0.5,
    "tickformat": ",",
    "tickfont": {"size": _SMALL, "color": LIGHT.muted},
    "ticklabelstandoff": 5,
    "title": {"font": {"size": _SMALL}, "standoff": 6},
}
_TITLE = {"xanchor": "left", "x": 0, "yanchor": "top", "y": 1, "yref": "container", "pad": {"l": 4, "t": 5}}
_LEGEND = {"orientation": "h", "xref": "container", "xanchor": "right", "x": 1, "yref": "container", "yanchor": "top"}
TEMPLATE = go.layout.Template(
    layout={
        "paper_bgcolor": LIGHT.ground,
        "plot_bgcolor": LIGHT.ground,
        "font": {"family": FONT, "size": _SIZE, "color": LIGHT.text},
        "title": {"font": {"size": _SIZE, "weight": "bold"}} | _TITLE,
        "annotationdefaults": {"showarrow": False},
        "colorway": list(SEQUENCES),
        "xaxis": _AXIS,
        "yaxis": _AXIS,
        "legend": {"traceorder": "normal"} | _LEGEND,
    },
)
"""How every chart looks."""

_DARKER = dict(zip(vars(LIGHT).values(), vars(DARK).values(), strict=True))


class Chart(HasText):
    """A plotly figure with a text twin.

    A notebook shows it in the colours of its theme, and again in others when the theme changes. (It hears of the theme
    through packviz's panels: in a notebook without any, it stays light.) The stored output holds plotly's JSON and the
    text, and in packviz's own notebooks an image.

    Attributes:
        figure: the `plotly.graph_objects.Figure`; call its methods to change the chart.
    """

    def __init__(self, figure: go.Figure, words: str) -> None:
        """Takes a figure made by `axes`, and its text twin."""
        self.figure, self._words = figure, words

    def to_text(self) -> str:
        """The chart in words and numbers."""
        return self._words

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the chart, or its text, to a file.

        Args:
            path: where to. The suffix says what is written: `.html`, a page to hover over that needs no network;
                `.png`, which needs kaleido and a browser; or `.txt` for the text alone.

        Raises:
            ValueError: the suffix is another one, or kaleido or a browser is missing, or they fail.
            OSError: the file cannot be written.
        """
        figure = self.figure
        files.write(
            path,
            {
                ".html": lambda: figure.to_html(include_plotlyjs=True, config=CONFIG),
                ".png": lambda: _image(figure),
                ".txt": lambda: f"{self.to_text()}\n",
            },
        )

    def points(
        self,
        x: Sequence[Any],
        y: Sequence[Any],
        name: str,
        look: int = 0,
        *,
        panel: int = 0,
        key: bool = True,
        **more: Any,
    ) -> Chart:
        """Adds points.

        Args:
            x: their places.
            y: their heights, or the names of their rows.
            name: of these points.
            look: the number of their colour and their mark.
            panel: the number of the panel they are drawn in.
            key: whether the key has them.
            more: what else `go.Scatter` takes.
        """
        mark = {"symbol": SYMBOLS[look % len(SYMBOLS)], "size": 8, "color": COLOURS[look % len(COLOURS)]}
        mark |= {"line": {"color": LIGHT.line, "width": 1}} | more.pop("marker", {})
        looks = {"mode": "markers", "marker": mark, "name": name, "legendgroup": name, "showlegend": key} | more
        return self._put(go.Scatter(x=_short(x), y=_short(y), **looks), panel)

    def label(self, x: float, y: Any, words: str, *, panel: int = 0, down: float = 0) -> Chart:
        """Writes at the right of a point.

        Args:
            x: place of the point; its power of ten where the axis is logarithmic.
            y: its height, or the name of its row.
            words: what is written.
            panel: the number of the panel.
            down: how much lower, in px.
        """
        look = {"xanchor": "left", "xshift": 8, "yshift": -round(down)}
        self.figure.add_annotation(x=x, y=y, text=words, **look, **self._place(panel))
        return self

    def _place(self, panel: int) -> dict[str, int]:
        row, column = divmod(panel, len(self.figure._grid_ref[0]))
        return {"row": row + 1, "col": column + 1}

    def _put(self, trace: Any, panel: int) -> Chart:
        """Adds a trace; the keys stand below the title, in columns of one width if they need several lines."""
        figure = self.figure.add_trace(trace, **self._place(panel))
        before = figure.layout.meta["key"]
        wide = [width_of(trace.name) + 48 for trace in figure.data if trace.showlegend]
        space = WIDTH - figure.layout.margin.l - figure.layout.margin.r
        lines = -(-len(wide) // max(int(space // max(wide)), 1)) if sum(wide) > space else bool(wide)
        more = 24 * lines - before
        height, top = figure.layout.height + more, figure.layout.margin.t + more
        figure.update_layout(height=height, margin_t=top, legend_y=_digits(1 - 26 / height), meta={"key": 24 * lines})
        return self

    def _shown(self, dark: bool) -> dict[str, Any]:
        """Plotly's JSON in the colours of a theme."""
        figure = cast(dict[str, Any], json.loads(self.figure.to_json()))
        return (_darker(figure) if dark else figure) | {"config": CONFIG}

    def _repr_mimebundle_(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        return {"application/vnd.plotly.v1+json": self._shown(theme.is_dark()), "text/plain": self.to_text()}

    def _ipython_display_(self) -> None:
        # Not a FigureWidget: each would bring megabytes of script, and stays empty where loading it takes two seconds.
        from IPython.display import display  # noqa: PLC0415 - only a notebook calls this

        shown = cast(Any, display)(self._repr_mimebundle_(), raw=True, display_id=True)

        def redraw(dark: bool) -> None:
            # JupyterLab's plotly renderer draws once and ignores news: show the text for a moment, and it starts anew.
            shown.update({"text/plain": self.to_text()}, raw=True)
            shown.update(self._repr_mimebundle_(), raw=True)

        if shown is not None:  # there is a front end to show it
            theme.follow(redraw)


def axes(
    title: str,
    words: str,
    *,
    x: str = "",
    y: str = "",
    rows: Sequence[str] = (),
    panels: Sequence[str] = ("",),
    across: int = 0,
    tall: float = 200,
    ends: Iterable[str] = (),
    below: Sequence[str] = (),
    on_top: bool = False,
) -> Chart:
    """A chart with nothing in it yet.

    Args:
        title: stands above.
        words: the text twin.
        x: what the x axis says.
        y: what the y axis says.
        rows: the names of rows from top to bottom, if the chart has rows instead of a y axis.
        panels: what stands above each panel.
        across: how many panels stand side by side; all if not given.
        tall: height of a panel, in px.
        ends: what will be written at the right of bars or lines: it gets room.
        below: lines under everything.
        on_top: whether the x axis stands above: for many rows.
    """
    across = across or len(panels)
    below = [part for line in below for part in textwrap.wrap(line, int((WIDTH - 8) / width_of("x", _SMALL)))]
    down = math.ceil(len(panels) / across)
    left = min(max(map(width_of, rows)) + 20, WIDTH / 2) if rows else _LEFT
    right = max(map(width_of, ends), default=0) + _RIGHT
    named = 44 if x else 24
    above, foot = 26 * any(panels) + named * on_top, 8 if on_top else named
    inner, gap = tall * down + (above + foot) * (down - 1), right if rows else left + right
    spaces = {"horizontal_spacing": gap / (WIDTH - left - right)} if across > 1 else {}
    spaces |= {"vertical_spacing": (above + foot) / inner} if down > 1 else {}
    head, low = 32 + above, foot + 17 * len(below)
    titles = {"subplot_titles": list(panels)} if any(panels) else {}
    figure = make_subplots(down, across, shared_yaxes=bool(rows), **titles, **spaces)
    figure.update_annotations(font_size=_SIZE, yshift=4 + named * on_top)
    figure.update_layout(template=TEMPLATE, title_text=title, meta={"key": 0})
    margins = {"l": round(left), "r": round(right), "t": head, "b": low}
    figure.update_layout(height=round(head + inner + low), width=WIDTH, margin=margins)
    figure.update_xaxes(title_text=x, side="top" if on_top else "bottom", showline=not rows)
    figure.update_yaxes(title_text=y, showgrid=not rows)
    if rows:
        names = {"categoryarray": list(rows), "tickfont": {"size": _SIZE, "color": LIGHT.text}}
        figure.update_yaxes(type="category", range=[len(rows) - 0.5, -0.5], **names)
    if below:
        place: dict[str, Any] = {"x": 0, "xshift": 4 - left, "xanchor": "left", "y": 0}
        place |= {
            "yshift": -foot,
            "yanchor": "top",
            "xref": "paper",
            "yref": "paper",
            "font": {"size": _SMALL},
            "align": "left",
        }
        figure.add_annotation(text="<br>".join(below), **place)
    return Chart(figure, words)


def times_by_size(sweep: Sweep) -> Chart:
    """The plots of a sweep as a chart, for who wants a page to hover over; whiskers are quartiles."""
    plots = [plot for row in sweep.rows for plot in row]
    named = len(sweep.sources) <= 1  # with more the ends are too many to be named
    units = {plot.y for plot in plots}
    chart = axes(
        sweep.title,
        sweep.to_text(),
        x=sweep.x,
        y=min(units) if len(units) == 1 else "",
        panels=[plot.title if len(units) == 1 else f"{plot.title}, {plot.y}" for plot in plots],
        across=max(map(len, sweep.rows), default=1),
        ends={name for plot in plots for name in plot.names} if named else (),
        below=[*sweep.sources, *sweep.notes],
    )
    keys: set[str] = set()
    for panel, (plot, heights) in enumerate(zip(plots, chain.from_iterable(heights_of(sweep.rows)), strict=True)):
        ends, place = {}, chart._place(panel)
        for name, points in plot.guides.items():
            x, y = zip(*points, strict=True)
            ends[name] = points[-1]
            chart._put(_line(x, y, LIGHT.muted, 1), panel)
        for curve in reversed(plot.curves):
            name = curve.name if named else f"{curve.name}, {sweep.sources[curve.source].partition(':')[0]}"
            ends[curve.name] = curve.x[-1], curve.y[-1]
            _curve(chart, curve, name, panel, key=not named and name not in keys)
            keys.add(name)
        scale = math.log10 if plot.log else float
        kind = "log" if plot.log else "linear"
        low, high = (_digits(scale(heights[end])) for end in (0, -1)) if heights else (0, 1)
        chart.figure.update_yaxes(type=kind, range=[low, high], tickvals=heights, **place)
        ends_x = [scale(plot.sizes[0]) - 0.02, scale(plot.sizes[-1]) + 0.02] if plot.log and plot.sizes else [0, None]
        columns = doublings(plot.sizes) if plot.log and plot.sizes else None
        chart.figure.update_xaxes(type=kind, range=ends_x, tickvals=columns, **place)
        if named:  # each name beside the end of its curve, none over another
            order = sorted(ends, key=lambda name: -ends[name][1])
            at = [200 * (high - scale(ends[name][1])) / (high - low) for name in order]  # px from the top
            for name, height, free in zip(order, at, spread_labels(at, 200, gap=14), strict=True):
                right, end = (_digits(scale(value)) for value in ends[name])
                chart.label(right, end, name, panel=panel, down=free - height)
    return chart


def _line(x: Sequence[float], y: Sequence[float], colour: str, width: float, dash: str = DASHES[0]) -> go.Scatter:
    """A line without marks, which no key names."""
    line = {"color": colour, "width": width, "dash": dash}
    return go.Scatter(x=list(x), y=_short(y), mode="lines", line=line, showlegend=False, hoverinfo="skip")


def _image(figure: go.Figure) -> bytes:
    """A chart as PNG, by means of kaleido and a browser."""
    try:
        import kaleido  # noqa: PLC0415

        image = kaleido.calc_fig_sync(figure, opts={"format": "png", "scale": 2}, kopts={"mathjax": False})
    except ImportError:
        raise ValueError("a PNG needs kaleido: python -m pip install kaleido; .html does without") from None
    except Exception as error:  # kaleido's and its browser's are many
        raise ValueError(
            f"a PNG needs Chrome or Chromium, found on PATH or named by BROWSER_PATH; it failed: {first_line(error)}."
            " .html does without"
        ) from None
    return bytes(image)


def _curve(chart: Chart, curve: Curve, name: str, panel: int, *, key: bool) -> None:
    """Adds a curve with its quartiles, an outline under it, because some colours are pale."""
    dash = DASHES[curve.source % len(DASHES)]
    chart._put(_line(curve.x, curve.y, LIGHT.line, 4, dash), panel)
    up, down = (
        _short([sign * (end - value) for value, end in zip(curve.y, ends, strict=True)])
        for sign, ends in ((1, curve.high), (-1, curve.low))
    )
    whiskers = {"type": "data", "symmetric": False, "array": up, "arrayminus": down}
    look: dict[str, Any] = {"marker": {"color": LIGHT.ground}} if curve.hollow else {}
    look["line"] = {"color": COLOURS[curve.method % len(COLOURS)], "width": 2.6, "dash": dash}
    look["error_y"] = whiskers | {"color": LIGHT.line, "thickness": 1, "width": 4}
    chart.points(curve.x, curve.y, name, curve.method, panel=panel, key=key, mode="lines+markers", **look)


def _short(values: Iterable[Any]) -> list[Any]:
    return [value if isinstance(value, (str, int)) else _digits(value) for value in values]


def _digits(value: float) -> float:
    """Three digits, the same on every machine: more would be noise in a stored chart."""
    return float(f"{value:.3g}")


def _darker(value: Any) -> Any:
    """Returns plotly's JSON with the colours of the light theme, wherever they stand, replaced by those of the dark."""
    if isinstance(value, dict):
        return {key: _darker(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_darker(part) for part in value]
    return _DARKER.get(value, value) if isinstance(value, str) else value
