"""Draws measured numbers as interactive plotly charts. No other module imports plotly.

`empty_chart` returns an empty chart, and `Chart.add_points` adds numbers to it. The charts use the
same typeface and colours as the SVG pictures. Pictures of counts, and pictures that a panel
redraws, are SVG instead.
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
from packviz.draw.curves import DASHES, MARKER_NAMES, METHOD_COLOURS, spread_labels
from packviz.draw.palette import DARK, FONT, LIGHT, SEQUENCE_FILLS
from packviz.draw.sheet import WIDTH, max_text_width, text_width

if TYPE_CHECKING:
    from packviz.draw.curves import Curve, Sweep

PLOTLY_CONFIG = {"displayModeBar": False, "responsive": False}
"""Options for plotly. The mode bar would cover the chart, and one of its buttons uploads the data
to the cloud."""

_FONT_SIZE = 12  # px: the font size of most text
_SMALL_FONT_SIZE = 11  # px: the font size of notes and numbers
_PANEL_HEIGHT = 200  # px: the height of a panel
_PANEL_TITLE_HEIGHT = 26  # px: the space for the title of a panel, or for the legend
_X_AXIS_HEIGHT = 50  # px: the space for the x axis of a panel
_Y_AXIS_WIDTH = 80  # px: the space for the y axis of a panel

_AXIS_STYLE = {
    "automargin": True,
    "showgrid": False,
    "zeroline": False,
    "linecolor": LIGHT.line,
    "gridcolor": LIGHT.hatch,
    "gridwidth": 0.5,
    "tickformat": ",",
    "tickfont": {"size": _SMALL_FONT_SIZE, "color": LIGHT.muted},
    "ticklabelstandoff": 5,
    "title": {"font": {"size": _SMALL_FONT_SIZE}, "standoff": 6},
}
_TITLE_STYLE = {
    "font": {"size": _FONT_SIZE, "weight": "bold"},
    "xanchor": "left",
    "x": 0,
    "yanchor": "top",
    "y": 1,
    "yref": "container",
    "pad": {"l": 4, "t": 5},
}
_CURVE_NAME_STYLE = {
    "xanchor": "left",
    "xshift": 6,
    "showarrow": False,
    "font": {"size": _SMALL_FONT_SIZE},
    "bgcolor": LIGHT.ground,  # hides the grid behind a name
}
_FOOTNOTE_STYLE = {
    "xref": "paper",
    "yref": "paper",
    "x": 0,
    "xanchor": "left",
    "yanchor": "bottom",
    "align": "left",
    "showarrow": False,
    "font": {"size": _SMALL_FONT_SIZE, "color": LIGHT.muted},
}
_LEGEND_STYLE = {
    "traceorder": "normal",
    "orientation": "h",
    "xref": "container",
    "yref": "container",
    "y": 0,
}
CHART_TEMPLATE = go.layout.Template(
    layout={
        "paper_bgcolor": LIGHT.ground,
        "plot_bgcolor": LIGHT.ground,
        "font": {"family": FONT, "size": _FONT_SIZE, "color": LIGHT.text},
        "title": _TITLE_STYLE,
        "margin": {"l": 8, "r": 20, "b": 8},
        "colorway": list(SEQUENCE_FILLS),
        "xaxis": _AXIS_STYLE,
        "yaxis": _AXIS_STYLE,
        "legend": _LEGEND_STYLE,
    },
)
"""The look of every chart. Plotly makes space for the axes, and for the legends below them."""

_DARK_COLOURS: dict[str, str] = dict(zip(vars(LIGHT).values(), vars(DARK).values(), strict=True))


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

    def add_points(
        self,
        x: Iterable[float],
        y: Iterable[float],
        name: str,
        marker_index: int = 0,
        *,
        panel_index: int = 0,
        marker: dict[str, Any] | None = None,
        **scatter_options: Any,
    ) -> Chart:
        """Adds points to a panel, and returns the chart.

        Args:
            x: the places of the points on the x axis.
            y: the places of the points on the y axis.
            name: the name of the points. The legend shows each name once, and leaves out an
                empty name.
            marker_index: the number of the marker, which sets its shape and its colour.
            panel_index: the number of the panel, counted from 0.
            marker: changes to the look of the markers, as in `plotly.graph_objects.Scatter`.
            scatter_options: further arguments for `plotly.graph_objects.Scatter`.
        """
        known_names = {"", *(trace.name for trace in self.figure.data)}
        marker_name = MARKER_NAMES[marker_index % len(MARKER_NAMES)]
        colour = METHOD_COLOURS[marker_index % len(METHOD_COLOURS)]
        outline_style = {"color": LIGHT.line, "width": 1}
        default_marker = {"symbol": marker_name, "size": 8, "color": colour, "line": outline_style}
        points = go.Scatter(x=_round_values(x), y=_round_values(y), mode="markers")
        marker = default_marker | (marker or {})
        is_new_name = name not in known_names
        points.update(
            name=name, legendgroup=name, showlegend=is_new_name, marker=marker, **scatter_options
        )
        self.figure.add_trace(points, **self.panel_position(panel_index))
        return self

    def panel_position(self, panel_index: int) -> dict[str, int]:
        """Returns the row and the column of a panel as arguments for plotly's methods."""
        row, column = divmod(panel_index, len(self.figure._grid_ref[0]))
        return {"row": row + 1, "col": column + 1}

    def _repr_mimebundle_(self, **kwargs: object) -> dict[str, Any]:
        json_text = self.figure.to_json()
        if theme.is_dark():
            json_text = re.sub(
                '(?<=")#[0-9a-f]{6}(?=")',
                lambda match: _DARK_COLOURS.get(match[0], match[0]),
                json_text,
            )
        return {
            "application/vnd.plotly.v1+json": json.loads(json_text) | {"config": PLOTLY_CONFIG},
            "text/plain": self.to_text(),
        }

    def _ipython_display_(self) -> None:
        # A FigureWidget would bring megabytes of script, and would stay empty if they take two
        # seconds to load.
        from IPython.display import display  # noqa: PLC0415

        display_handle = cast(Any, display)(self._repr_mimebundle_(), raw=True, display_id=True)

        def redraw(is_dark: bool) -> None:
            # JupyterLab's plotly renderer ignores updates. It draws again if the text is shown in
            # between.
            display_handle.update({"text/plain": self.to_text()}, raw=True)
            display_handle.update(self._repr_mimebundle_(), raw=True)

        if display_handle is not None:  # a front end shows it
            theme.register_callback(redraw)


def empty_chart(
    title: str,
    words: str,
    *,
    x: str,
    y: str,
    panels: Sequence[str],
    panels_per_row: int = 0,
    panel_height: float = _PANEL_HEIGHT,
    footnotes: Iterable[str] = (),
    has_legend: bool = True,
) -> Chart:
    """Returns an empty chart.

    Args:
        title: the title above the chart, which states the finding.
        words: the content of the chart in words.
        x: the title of the x axes.
        y: the title of the y axes.
        panels: the titles of the panels.
        panels_per_row: the number of panels in each row. By default, all panels are in one row.
        panel_height: the height of a panel in px.
        footnotes: lines of text below the chart.
        has_legend: whether there is a legend of the names of the points.
    """
    panels_per_row = panels_per_row or len(panels)
    n_rows = math.ceil(len(panels) / panels_per_row)
    line_length = int((WIDTH - 24 - _Y_AXIS_WIDTH) / text_width("x", _SMALL_FONT_SIZE))
    note_lines = [
        wrapped_line for line in footnotes for wrapped_line in textwrap.wrap(line, line_length)
    ]
    title_height = _PANEL_TITLE_HEIGHT if any(panels) else 0
    top_margin = 36 + title_height
    notes_height = 8 + 17 * len(note_lines)
    row_gap = _X_AXIS_HEIGHT + title_height
    plots_height = panel_height * n_rows + row_gap * (n_rows - 1)
    bottom_margin = _X_AXIS_HEIGHT + notes_height
    if has_legend:
        bottom_margin += _PANEL_TITLE_HEIGHT
    height = round(top_margin + plots_height + bottom_margin)
    figure = make_subplots(
        n_rows,
        panels_per_row,
        subplot_titles=list(panels) if title_height else None,
        horizontal_spacing=_Y_AXIS_WIDTH / WIDTH,
        vertical_spacing=row_gap / plots_height if n_rows > 1 else 0,
    )
    figure.update_annotations(font_size=_FONT_SIZE, font_weight="bold", yshift=4, xanchor="left")
    for heading, axis in zip(figure.layout.annotations, figure.select_xaxes(), strict=False):
        heading.x = axis.domain[0]
    figure.update_layout(
        template=CHART_TEMPLATE,
        margin_t=top_margin,
        margin_b=bottom_margin,
        title_text=title,
        height=height,
        width=WIDTH,
        legend_y=notes_height / height,
        showlegend=has_legend,
    )
    if note_lines:
        # An annotation cannot refer to the foot of the whole chart, so it refers to the axes.
        figure.add_annotation(
            text="<br>".join(note_lines), y=0, yshift=-bottom_margin + 4, **_FOOTNOTE_STYLE
        )
    figure.update_xaxes(title_text=x, showline=True)
    figure.update_yaxes(title_text=y, showgrid=True)
    return Chart(figure, words)


def plotly_chart(sweep: Sweep) -> Chart:
    """Draws the plots of a sweep as an interactive chart, with quartiles as whiskers.

    All plots are logarithmic and have the same unit, so they share their vertical axis.
    """
    first_plot = sweep.plots[0]
    y_axis = sweep.y_axis(first_plot)
    log_first = math.log10(y_axis.first)
    log_last = math.log10(y_axis.last)
    axis_margin = 0.04 * (log_last - log_first)  # for half a marker
    y_range = _round_values([log_first - axis_margin, log_last + axis_margin])
    machine_names = [source.partition(":")[0] for source in sweep.sources]
    # Names are beside the last panel of a row if it has all curves. A legend tells machines apart.
    row_end_panels = range(sweep.n_columns - 1, len(sweep.plots), sweep.n_columns)
    names_beside_panels = {
        curve.name for panel_index in row_end_panels for curve in sweep.plots[panel_index].curves
    }
    all_names = {curve.name for plot in sweep.plots for curve in plot.curves}
    has_legend = len(machine_names) > 1 or names_beside_panels != all_names
    chart = empty_chart(
        sweep.title,
        sweep.to_text(),
        x=sweep.x,
        y=first_plot.y,
        panels=[plot.title for plot in sweep.plots],
        panels_per_row=sweep.n_columns,
        footnotes=[*sweep.sources, *sweep.notes],
        has_legend=has_legend,
    )
    figure = chart.figure
    figure.update_xaxes(rangemode="tozero")
    figure.update_yaxes(rangemode="tozero")
    for panel_index, plot in enumerate(sweep.plots):
        for (name, ends), dash in zip(plot.guide_lines.items(), DASHES, strict=False):
            line = {"color": LIGHT.muted, "width": 1, "dash": _plotly_dashes(dash)}
            x, y = zip(*ends, strict=True)
            chart.add_points(x, y, name, panel_index=panel_index, mode="lines", line=line)
        for curve in reversed(plot.curves):
            name = curve.name
            if len(machine_names) > 1:
                name += f", {machine_names[curve.source_index]}"
            _draw_curve(chart, panel_index, curve, name)
        row_and_column = chart.panel_position(panel_index)
        if panel_index:
            figure.update_yaxes(matches="y", **row_and_column)
        # Without ticks of our own, plotly's labels 10, 9, 8, … would touch each other.
        figure.update_yaxes(type="log", tickvals=y_axis.ticks, range=y_range, **row_and_column)
        if plot.x_axis.is_log:
            figure.update_xaxes(type="log", tickvals=plot.x_axis.ticks, **row_and_column)
        if panel_index in row_end_panels and not has_legend:
            _write_curve_names(chart, sweep, panel_index)
    return chart


def _write_curve_names(chart: Chart, sweep: Sweep, panel_index: int) -> None:
    """Writes the names of a panel's curves beside their ends, where the margin leaves room."""
    plot = sweep.plots[panel_index]
    y_axis = sweep.y_axis(plot)
    curve_ends = plot.curve_ends
    ordered_names = sorted(curve_ends, key=lambda name: -curve_ends[name][1])
    label_ys = [
        (1 - y_axis.fraction(curve_ends[name][1])) * _PANEL_HEIGHT for name in ordered_names
    ]
    for name, label_y, moved_y in zip(
        ordered_names, label_ys, spread_labels(label_ys, _PANEL_HEIGHT), strict=True
    ):
        x, y = curve_ends[name]
        chart.figure.add_annotation(
            text=name,
            x=math.log10(x) if plot.x_axis.is_log else x,
            y=math.log10(y),
            yshift=label_y - moved_y,
            **_CURVE_NAME_STYLE,
            **chart.panel_position(panel_index),
        )
    right_margin = max(
        chart.figure.layout.margin.r or 0, max_text_width(curve_ends, _SMALL_FONT_SIZE) + 16
    )
    chart.figure.update_layout(margin_r=round(right_margin))


def _draw_curve(chart: Chart, panel_index: int, curve: Curve, name: str) -> None:
    """Adds a curve with its quartiles to a panel."""
    x = curve.x
    y = curve.y
    line = {"dash": _plotly_dashes(curve.dash), "color": curve.colour, "width": 2.6}
    # The outline comes first. It is needed because some colours are pale.
    outline_style = line | {"color": LIGHT.line, "width": 4}
    chart.add_points(
        x, y, "", panel_index=panel_index, mode="lines", line=outline_style, hoverinfo="skip"
    )
    upper_lengths = _whisker_lengths(y, curve.upper_quartiles)
    lower_lengths = _whisker_lengths(y, curve.lower_quartiles)
    whiskers = {
        "array": upper_lengths,
        "arrayminus": lower_lengths,
        "color": LIGHT.line,
        "thickness": 1,
        "width": 4,
    }
    curve_style: dict[str, Any] = {"mode": "lines+markers", "line": line, "error_y": whiskers}
    if curve.hollow:
        curve_style["marker"] = {"color": LIGHT.ground}
    chart.add_points(x, y, name, curve.method_index, panel_index=panel_index, **curve_style)


def _plotly_dashes(dash: str) -> str:
    """Returns the dashes of a line as plotly writes them."""
    return ",".join(f"{length}px" for length in dash.split()) or "solid"


def _whisker_lengths(values: Iterable[float], ends: Iterable[float]) -> list[Any]:
    pairs = zip(values, ends, strict=False)
    return _round_values(abs(end - value) for value, end in pairs)


def _round_values(values: Iterable[Any]) -> list[Any]:
    """Rounds numbers to three significant digits.

    A stored chart is then the same on every machine.
    """
    rounded_values = []
    for value in values:
        is_text_or_integer = isinstance(value, (str, int))
        rounded_values.append(value if is_text_or_integer else float(f"{value:.3g}"))
    return rounded_values
