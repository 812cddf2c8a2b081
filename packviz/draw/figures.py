"""Draws measured numbers as interactive plotly charts. No other module imports plotly.

`axes` returns an empty chart, and `Chart.points` adds numbers to it. The charts use the same
typeface and colours as the SVG pictures. Pictures of counts, and pictures that a panel redraws, are
SVG instead.
"""

from __future__ import annotations

import json
import math
import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from packviz.core.util import HasText
from packviz.draw import theme
from packviz.draw.curves import COLOURS, DASHES, SYMBOLS, spread_labels
from packviz.draw.palette import DARK, FONT, LIGHT, SEQUENCES
from packviz.draw.sheet import WIDTH, widest, width_of

if TYPE_CHECKING:
    from packviz.draw.curves import Curve, Sweep

CONFIG = {"displayModeBar": False, "responsive": False}
"""Options for plotly. The mode bar would cover the chart, and one of its buttons uploads the data
to the cloud."""

_SIZE = 12  # px: the font size of most text
_SMALL = 11  # px: the font size of notes and numbers
_TALL = 200  # px: the height of a panel
_ABOVE = 26  # px: the space for the title of a panel
_BELOW = 50  # px: the space for the x axis of a panel
_BESIDE = 80  # px: the space for the y axis of a panel

_AXIS = {
    "automargin": True,
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
_TITLE = {
    "font": {"size": _SIZE, "weight": "bold"},
    "xanchor": "left",
    "x": 0,
    "yanchor": "top",
    "y": 1,
    "yref": "container",
    "pad": {"l": 4, "t": 5},
}
_NAME = {
    "xanchor": "left",
    "xshift": 6,
    "showarrow": False,
    "font": {"size": _SMALL},
    "bgcolor": LIGHT.ground,  # hides the grid behind a name
}
_FOOTNOTE = {
    "xref": "paper",
    "yref": "paper",
    "x": 0,
    "xanchor": "left",
    "yanchor": "bottom",
    "align": "left",
    "showarrow": False,
    "font": {"size": _SMALL, "color": LIGHT.muted},
}
_LEGEND = {
    "traceorder": "normal",
    "orientation": "h",
    "xref": "container",
    "yref": "container",
    "y": 0,
}
TEMPLATE = go.layout.Template(
    layout={
        "paper_bgcolor": LIGHT.ground,
        "plot_bgcolor": LIGHT.ground,
        "font": {"family": FONT, "size": _SIZE, "color": LIGHT.text},
        "title": _TITLE,
        "margin": {"l": 8, "r": 20, "b": 8},
        "colorway": list(SEQUENCES),
        "xaxis": _AXIS,
        "yaxis": _AXIS,
        "legend": _LEGEND,
    },
)
"""The look of every chart. Plotly makes space for the axes, and for the keys below them."""

_DARKER: dict[str, str] = dict(zip(vars(LIGHT).values(), vars(DARK).values(), strict=True))


@dataclass(eq=False)
class Chart(HasText):
    """A plotly figure with its content in words.

    A notebook shows the chart in the colours of the notebook's theme, and redraws it when the theme
    changes. Only the panels and quizzes of packviz report the theme, so the chart stays light in a
    notebook without them. The output stored in a notebook contains plotly's JSON and the words and,
    in packviz's own notebooks, also an image.

    Attributes:
        figure: the `plotly.graph_objects.Figure`. Its methods can change the chart and write it to
            a file.
        words: the content of the chart in words.
    """

    figure: go.Figure
    words: str

    def to_text(self) -> str:
        """Returns the content of the chart in words."""
        return self.words

    def points(
        self,
        x: Iterable[float],
        y: Iterable[float],
        name: str,
        look: int = 0,
        *,
        panel: int = 0,
        marker: dict[str, Any] | None = None,
        **more: Any,
    ) -> Chart:
        """Adds points to a panel, and returns the chart.

        Args:
            x: the places of the points on the x axis.
            y: the places of the points on the y axis.
            name: the name of the points. The key shows each name once, and leaves out an empty
                name.
            look: the number of the marker, which sets its shape and its colour.
            panel: the number of the panel, counted from 0.
            marker: changes to the look of the markers, as in `plotly.graph_objects.Scatter`.
            more: further arguments for `plotly.graph_objects.Scatter`.
        """
        named = {"", *(trace.name for trace in self.figure.data)}
        symbol = SYMBOLS[look % len(SYMBOLS)]
        colour = COLOURS[look % len(COLOURS)]
        outline = {"color": LIGHT.line, "width": 1}
        default = {"symbol": symbol, "size": 8, "color": colour, "line": outline}
        points = go.Scatter(x=_rounded(x), y=_rounded(y), mode="markers")
        marker = default | (marker or {})
        is_new = name not in named
        points.update(name=name, legendgroup=name, showlegend=is_new, marker=marker, **more)
        self.figure.add_trace(points, **self.place(panel))
        return self

    def place(self, panel: int) -> dict[str, int]:
        """Returns the row and the column of a panel as arguments for plotly's methods."""
        row, column = divmod(panel, len(self.figure._grid_ref[0]))
        return {"row": row + 1, "col": column + 1}

    def _repr_mimebundle_(self, **kwargs: object) -> dict[str, Any]:
        written = self.figure.to_json()
        if theme.is_dark():
            written = re.sub(
                '(?<=")#[0-9a-f]{6}(?=")', lambda hex: _DARKER.get(hex[0], hex[0]), written
            )
        return {
            "application/vnd.plotly.v1+json": json.loads(written) | {"config": CONFIG},
            "text/plain": self.to_text(),
        }

    def _ipython_display_(self) -> None:
        # A FigureWidget would bring megabytes of script, and would stay empty if they take two
        # seconds to load.
        from IPython.display import display  # noqa: PLC0415

        shown = cast(Any, display)(self._repr_mimebundle_(), raw=True, display_id=True)

        def redraw(dark: bool) -> None:
            # JupyterLab's plotly renderer ignores updates. It draws again if the text is shown in
            # between.
            shown.update({"text/plain": self.to_text()}, raw=True)
            shown.update(self._repr_mimebundle_(), raw=True)

        if shown is not None:  # a front end shows it
            theme.follow(redraw)


def axes(
    title: str,
    words: str,
    *,
    x: str,
    y: str,
    panels: Sequence[str],
    across: int = 0,
    tall: float = _TALL,
    below: Iterable[str] = (),
    key: bool = True,
) -> Chart:
    """Returns an empty chart.

    Args:
        title: the title above the chart, which states the finding.
        words: the content of the chart in words.
        x: the title of the x axes.
        y: the title of the y axes.
        panels: the titles of the panels.
        across: the number of panels in each row. By default, all panels are in one row.
        tall: the height of a panel in px.
        below: lines of text below the chart.
        key: whether there is a key to the names of the points.
    """
    across = across or len(panels)
    down = math.ceil(len(panels) / across)
    columns = int((WIDTH - 24 - _BESIDE) / width_of("x", _SMALL))
    notes = [part for line in below for part in textwrap.wrap(line, columns)]
    above = _ABOVE if any(panels) else 0
    top = 36 + above
    foot = 8 + 17 * len(notes)
    gap = _BELOW + above
    inner = tall * down + gap * (down - 1)
    bottom = _BELOW + foot
    if key:
        bottom += _ABOVE
    height = round(top + inner + bottom)
    figure = make_subplots(
        down,
        across,
        subplot_titles=list(panels) if above else None,
        horizontal_spacing=_BESIDE / WIDTH,
        vertical_spacing=gap / inner if down > 1 else 0,
    )
    figure.update_annotations(font_size=_SIZE, font_weight="bold", yshift=4, xanchor="left")
    for heading, axis in zip(figure.layout.annotations, figure.select_xaxes(), strict=False):
        heading.x = axis.domain[0]
    figure.update_layout(
        template=TEMPLATE,
        margin_t=top,
        margin_b=bottom,
        title_text=title,
        height=height,
        width=WIDTH,
        legend_y=foot / height,
        showlegend=key,
    )
    if notes:
        # An annotation cannot refer to the foot of the whole chart, so it refers to the axes.
        figure.add_annotation(text="<br>".join(notes), y=0, yshift=-bottom + 4, **_FOOTNOTE)
    figure.update_xaxes(title_text=x, showline=True)
    figure.update_yaxes(title_text=y, showgrid=True)
    return Chart(figure, words)


def times_by_size(sweep: Sweep) -> Chart:
    """Draws the plots of a sweep as an interactive chart, with quartiles as whiskers.

    All plots are logarithmic and have the same unit, so they share their vertical axis.
    """
    first = sweep.plots[0]
    up = sweep.up(first)
    low = math.log10(up.first)
    high = math.log10(up.last)
    margin = 0.04 * (high - low)  # for half a marker
    span = _rounded([low - margin, high + margin])
    titles = [plot.title for plot in sweep.plots]
    machines = [source.partition(":")[0] for source in sweep.sources]
    # Names are beside the last panel of a row if it has all curves. A key tells machines apart.
    last = range(sweep.columns - 1, len(sweep.plots), sweep.columns)
    named = {curve.name for panel in last for curve in sweep.plots[panel].curves}
    drawn = {curve.name for plot in sweep.plots for curve in plot.curves}
    key = len(machines) > 1 or named != drawn
    chart = axes(
        sweep.title,
        sweep.to_text(),
        x=sweep.x,
        y=first.y,
        panels=titles,
        across=sweep.columns,
        below=[*sweep.sources, *sweep.notes],
        key=key,
    )
    figure = chart.figure
    figure.update_xaxes(rangemode="tozero")
    figure.update_yaxes(rangemode="tozero")
    for panel, plot in enumerate(sweep.plots):
        for (name, ends), dash in zip(plot.guides.items(), DASHES, strict=False):
            line = {"color": LIGHT.muted, "width": 1, "dash": _dashes(dash)}
            x, y = zip(*ends, strict=True)
            chart.points(x, y, name, panel=panel, mode="lines", line=line)
        for curve in reversed(plot.curves):
            name = curve.name
            if len(machines) > 1:
                name += f", {machines[curve.source]}"
            _draw_curve(chart, panel, curve, name)
        place = chart.place(panel)
        if panel:
            figure.update_yaxes(matches="y", **place)
        # Without ticks of our own, plotly's labels 10, 9, 8, … would touch each other.
        figure.update_yaxes(type="log", tickvals=up.ticks, range=span, **place)
        if plot.across.log:
            figure.update_xaxes(type="log", tickvals=plot.across.ticks, **place)
        if panel in last and not key:
            _write_names(chart, sweep, panel)
    return chart


def _write_names(chart: Chart, sweep: Sweep, panel: int) -> None:
    """Writes the names of a panel's curves beside their ends, where the margin leaves room."""
    plot = sweep.plots[panel]
    up = sweep.up(plot)
    ends = plot.ends
    order = sorted(ends, key=lambda name: -ends[name][1])
    heights = [(1 - up.share(ends[name][1])) * _TALL for name in order]
    for name, height, moved in zip(order, heights, spread_labels(heights, _TALL), strict=True):
        x, y = ends[name]
        place = {
            "x": math.log10(x) if plot.across.log else x,
            "y": math.log10(y),
            "yshift": height - moved,
        }
        chart.figure.add_annotation(text=name, **place, **_NAME, **chart.place(panel))
    margin = max(chart.figure.layout.margin.r or 0, widest(ends, _SMALL) + 16)
    chart.figure.update_layout(margin_r=round(margin))


def _draw_curve(chart: Chart, panel: int, curve: Curve, name: str) -> None:
    """Adds a curve with its quartiles to a panel."""
    x = curve.x
    y = curve.y
    line = {"dash": _dashes(curve.dash), "color": curve.colour, "width": 2.6}
    # The outline comes first. It is needed because some colours are pale.
    outline = line | {"color": LIGHT.line, "width": 4}
    chart.points(x, y, "", panel=panel, mode="lines", line=outline, hoverinfo="skip")
    up = _distances(y, curve.high)
    down = _distances(y, curve.low)
    whiskers = {"array": up, "arrayminus": down, "color": LIGHT.line, "thickness": 1, "width": 4}
    look: dict[str, Any] = {"mode": "lines+markers", "line": line, "error_y": whiskers}
    if curve.hollow:
        look["marker"] = {"color": LIGHT.ground}
    chart.points(x, y, name, curve.method, panel=panel, **look)


def _dashes(dash: str) -> str:
    """Returns the dashes of a line as plotly writes them."""
    return ",".join(f"{length}px" for length in dash.split()) or "solid"


def _distances(values: Iterable[float], ends: Iterable[float]) -> list[Any]:
    pairs = zip(values, ends, strict=False)
    return _rounded(abs(end - value) for value, end in pairs)


def _rounded(values: Iterable[Any]) -> list[Any]:
    """Rounds numbers to three significant digits.

    A stored chart is then the same on every machine.
    """
    rounded = []
    for value in values:
        is_exact = isinstance(value, (str, int))
        rounded.append(value if is_exact else float(f"{value:.3g}"))
    return rounded
