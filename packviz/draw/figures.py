"""Draws measured numbers as interactive plotly charts with a text twin. No other module imports
plotly.

`axes` returns an empty chart, and `Chart.points` adds numbers to it. The charts use the same
typeface and colours as the SVG pictures. Pictures of counts, and pictures that a panel redraws, are
SVG instead.
"""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from packviz.core.has_text import HasText
from packviz.draw import theme
from packviz.draw.curves import COLOURS, doublings, heights_of
from packviz.draw.palette import DARK, FONT, LIGHT, SEQUENCES
from packviz.draw.sheet import width_of

if TYPE_CHECKING:
    from packviz.draw.curves import Sweep

CONFIG = {"displayModeBar": False, "responsive": False}
"""Options for plotly. The mode bar would cover the chart, and one of its buttons uploads the data to the cloud."""

# The same markers and dashes as in the SVG pictures, in the same order.
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "star")
DASHES = ("solid", "8px,4px", "2px,3px", "9px,3px,2px,3px")

WIDTH = 860  # px, as for the SVG pictures
_SIZE, _SMALL = 12, 11  # px: font sizes
_ABOVE, _BELOW, _BESIDE = (
    26,
    50,
    80,
)  # px: the room for the title, the x axis and the y axis of a panel

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
    "xanchor": "left",
    "x": 0,
    "yanchor": "top",
    "y": 1,
    "yref": "container",
    "pad": {"l": 4, "t": 5},
}
TEMPLATE = go.layout.Template(
    layout={
        "paper_bgcolor": LIGHT.ground,
        "plot_bgcolor": LIGHT.ground,
        "font": {"family": FONT, "size": _SIZE, "color": LIGHT.text},
        "title": {"font": {"size": _SIZE, "weight": "bold"}, "subtitle": {"font": {"size": _SMALL}}}
        | _TITLE,
        "margin": {"l": 8, "r": 20, "b": 8},
        "colorway": list(SEQUENCES),
        "xaxis": _AXIS,
        "yaxis": _AXIS,
        "legend": {
            "traceorder": "normal",
            "orientation": "h",
            "xref": "container",
            "yref": "container",
            "y": 0,
        },
    },
)
"""The look of every chart. Plotly makes room for the axes, and for the keys below them."""

_DARKER = dict(zip(vars(LIGHT).values(), vars(DARK).values(), strict=True))


class Chart(HasText):
    """A plotly figure with a text twin.

    A notebook shows the chart in the colours of the notebook's theme, and redraws it when the theme
    changes. Only the panels and quizzes of packviz report the theme, so the chart stays light in a
    notebook without them. The output stored in a notebook contains plotly's JSON and the text twin
    and, in packviz's own notebooks, also an image.

    Attributes:
        figure: the `plotly.graph_objects.Figure`. Its methods can change the chart and write it to
            a file.
    """

    def __init__(self, figure: go.Figure, words: str) -> None:
        """Takes a figure made by `axes`, and its text twin."""
        self.figure, self._words = figure, words

    def to_text(self) -> str:
        """Returns the text twin."""
        return self._words

    def points(
        self,
        x: Sequence[Any],
        y: Sequence[Any],
        name: str,
        look: int = 0,
        *,
        panel: int = 0,
        **more: Any,
    ) -> Chart:
        """Adds points to a panel, and returns the chart.

        Args:
            x: the places of the points on the x axis.
            y: the places of the points on the y axis, or the names of their rows.
            name: the name of the points. The key shows each name once, and leaves out an empty
                name.
            look: the number of the marker, which sets its shape and its colour.
            panel: the number of the panel, counted from 0.
            more: further arguments for `plotly.graph_objects.Scatter`.
        """
        mark = {
            "symbol": SYMBOLS[look % len(SYMBOLS)],
            "size": 8,
            "color": COLOURS[look % len(COLOURS)],
        }
        mark |= {"line": {"color": LIGHT.line, "width": 1}} | more.pop("marker", {})
        new = name not in {"", *(trace.name for trace in self.figure.data)}
        looks = {
            "mode": "markers",
            "marker": mark,
            "name": name,
            "legendgroup": name,
            "showlegend": new,
        } | more
        self.figure.add_trace(go.Scatter(x=_short(x), y=_short(y), **looks), **self.place(panel))
        return self

    def place(self, panel: int) -> dict[str, int]:
        """Returns the row and the column of a panel as arguments for plotly's methods."""
        row, column = divmod(panel, len(self.figure._grid_ref[0]))
        return {"row": row + 1, "col": column + 1}

    def _shown(self, dark: bool) -> dict[str, Any]:
        """Returns the chart as plotly's JSON, in the colours of the dark or the light theme."""
        figure = cast(dict[str, Any], json.loads(self.figure.to_json()))
        return (_darker(figure) if dark else figure) | {"config": CONFIG}

    def _repr_mimebundle_(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        return {
            "application/vnd.plotly.v1+json": self._shown(theme.is_dark()),
            "text/plain": self.to_text(),
        }

    def _ipython_display_(self) -> None:
        # A FigureWidget would bring megabytes of script, and would stay empty if they take two
        # seconds to load.
        from IPython.display import display

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
    x: str = "",
    y: str = "",
    rows: Sequence[str] = (),
    panels: Sequence[str] = ("",),
    across: int = 0,
    tall: float = 200,
    below: Sequence[str] = (),
) -> Chart:
    """Returns an empty chart.

    Args:
        title: the title above the chart, which states the finding.
        words: the text twin, which has the same content as the chart.
        x: the title of the x axes.
        y: the title of the y axes.
        rows: the names of the rows from top to bottom, if the chart has rows instead of a y axis.
        panels: the titles of the panels.
        across: the number of panels in each row. By default, all panels are in one row.
        tall: the height of a panel in px.
        below: lines of text below the title.
    """
    across = across or len(panels)
    down = -(-len(panels) // across)
    notes = [
        part
        for line in below
        for part in textwrap.wrap(line, int((WIDTH - 8) / width_of("x", _SMALL)))
    ]
    top, gap = 36 + 17 * len(notes) + _ABOVE * any(panels), _BELOW + _ABOVE * any(panels)
    inner = tall * down + gap * (down - 1)
    figure = make_subplots(
        down,
        across,
        shared_yaxes=bool(rows),
        subplot_titles=list(panels) if any(panels) else None,
        horizontal_spacing=(20 if rows else _BESIDE) / WIDTH,
        vertical_spacing=gap / inner if down > 1 else 0,
    )
    figure.update_annotations(font_size=_SIZE, yshift=4)
    titles = {"text": title, "subtitle": {"text": "<br>".join(notes)}}
    height = round(top + inner + _BELOW + _ABOVE)
    figure.update_layout(template=TEMPLATE, title=titles, margin_t=top, height=height, width=WIDTH)
    figure.update_xaxes(title_text=x, showline=not rows)
    figure.update_yaxes(title_text=y, showgrid=not rows)
    if rows:
        names = {"categoryarray": list(rows), "tickfont": {"size": _SIZE, "color": LIGHT.text}}
        figure.update_yaxes(type="category", range=[len(rows) - 0.5, -0.5], **names)
    return Chart(figure, words)


def times_by_size(sweep: Sweep) -> Chart:
    """Draws the plots of a sweep as an interactive chart, with quartiles as whiskers."""
    plots = [plot for row in sweep.rows for plot in row]
    units = [plot.y for plot in plots]
    unit = units[0] if len({*units}) == 1 else ""
    chart = axes(
        sweep.title,
        sweep.to_text(),
        x=sweep.x,
        y=unit,
        panels=[plot.title if unit else f"{plot.title}, {plot.y}" for plot in plots],
        across=max(map(len, sweep.rows), default=1),
        below=[*sweep.sources, *sweep.notes],
    )
    for panel, (plot, ticks) in enumerate(zip(plots, chain(*heights_of(sweep.rows)), strict=True)):
        for (name, ((x0, y0), (x1, y1))), dash in zip(plot.guides.items(), DASHES, strict=False):
            line = {"color": LIGHT.muted, "width": 1, "dash": dash}
            chart.points([x0, x1], [y0, y1], name, panel=panel, mode="lines", line=line)
        for curve in reversed(plot.curves):
            source = (
                f", {sweep.sources[curve.source].partition(':')[0]}"
                if len(sweep.sources) > 1
                else ""
            )
            look: dict[str, Any] = {"marker": {"color": LIGHT.ground}} if curve.hollow else {}
            line = {"dash": DASHES[curve.source % len(DASHES)]}
            # The outline comes first. It is needed because some colours are pale.
            outline = line | {"color": LIGHT.line, "width": 4}
            chart.points(
                curve.x, curve.y, "", panel=panel, mode="lines", line=outline, hoverinfo="skip"
            )
            line |= {"color": COLOURS[curve.method % len(COLOURS)], "width": 2.6}
            up, down = (
                _short(abs(end - value) for value, end in zip(curve.y, ends, strict=False))
                for ends in (curve.high, curve.low)
            )
            whiskers = {
                "array": up,
                "arrayminus": down,
                "color": LIGHT.line,
                "thickness": 1,
                "width": 4,
            }
            look |= {"mode": "lines+markers", "line": line, "error_y": whiskers}
            chart.points(
                curve.x, curve.y, f"{curve.name}{source}", curve.method, panel=panel, **look
            )
        look = {
            "type": "log" if plot.log else "linear",
            "rangemode": "tozero",
            **chart.place(panel),
        }
        same = units.index(plot.y)  # plots with the same unit share their y axis
        chart.figure.update_yaxes(
            matches=f"y{same + 1 if same else ''}" if same < panel else None, **look
        )
        chart.figure.update_xaxes(tickvals=doublings(plot.sizes) if plot.log else None, **look)
        if plot.log:  # with the ticks of the SVG picture, because plotly's labels 10, 9, 8, … would touch each other
            low, high = math.log10(ticks[0]), math.log10(ticks[-1])
            room = 0.04 * (high - low)  # for half a marker
            span = _short([low - room, high + room])
            chart.figure.update_yaxes(tickvals=ticks, range=span, **chart.place(panel))
    return chart


def _short(values: Iterable[Any]) -> list[Any]:
    """Rounds numbers to three significant digits, so that a stored chart is the same on every machine."""
    return [value if isinstance(value, (str, int)) else float(f"{value:.3g}") for value in values]


def _darker(value: Any) -> Any:
    """Returns plotly's JSON with all colours of the light theme replaced by those of the dark theme."""
    if isinstance(value, dict):
        return {key: _darker(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_darker(part) for part in value]
    return _DARKER.get(value, value) if isinstance(value, str) else value
