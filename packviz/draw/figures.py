"""Measured charts to hover over, as plotly figures, each with a text twin. The only file that knows plotly.

`axes` returns an empty chart; `bars`, `lines`, `points` and `label` put plain numbers into it. They look like the
pictures of `packviz.draw`: the same face, colours, axes and keys. What is counted, and what a panel redraws, is SVG.
"""

from __future__ import annotations

import json
import math
import os
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from packviz.core import files
from packviz.core.has_text import HasText, first_line
from packviz.draw import palette, theme
from packviz.draw.chart import COLOURS, spread_labels, ticks
from packviz.draw.palette import DARK, FONT, LIGHT, SEQUENCES
from packviz.draw.sheet import width_of
from packviz.draw.sweep import doublings, heights_of, longest_x

if TYPE_CHECKING:
    from packviz.draw.sweep import Sweep

CONFIG = {"displayModeBar": False, "responsive": False}
"""No mode bar: it would cover the chart, and one of its buttons uploads the data to a cloud."""

# Of the first, second, … line: those of the pictures.
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "star")
DASHES = ("solid", "8px,4px", "2px,3px", "9px,3px,2px,3px")

WIDTH = 860  # px: that of the pictures
_LEFT, _RIGHT, _ROW = 74, 20, 28
_SIZE, _SMALL = 12, 11  # of letters

_axis = {"showgrid": False, "zeroline": False, "showline": False, "linecolor": LIGHT.line, "gridcolor": LIGHT.hatch}
_axis |= {
    "tickformat": ",",
    "gridwidth": 0.5,
    "tickfont": {"size": _SMALL, "color": LIGHT.muted},
    "ticklabelstandoff": 5,
}
TEMPLATE = go.layout.Template(
    layout={
        "paper_bgcolor": LIGHT.ground,
        "plot_bgcolor": LIGHT.ground,
        "font": {"family": FONT, "size": _SIZE, "color": LIGHT.text},
        "title": {
            "font": {"size": _SIZE, "weight": "bold"},
            "x": 0,
            "xanchor": "left",
            "y": 1,
            "yanchor": "top",
            "yref": "container",
            "pad": {"l": 4, "t": 5},
        },
        "annotationdefaults": {"showarrow": False},
        "colorway": list(SEQUENCES),
        "xaxis": _axis,
        "yaxis": _axis,
        "width": WIDTH,
        "height": 280,
        "bargap": 1 - 20 / _ROW,
        "legend": {"orientation": "h", "x": 1, "xref": "container", "xanchor": "right", "yref": "container"}
        | {"yanchor": "middle", "traceorder": "normal"},
    },
    data={"bar": [{"marker": {"line": {"color": LIGHT.line, "width": 0.5}}}]},
)
"""How every chart looks."""

_DARKER = dict(zip(vars(LIGHT).values(), vars(DARK).values(), strict=True))


@dataclass(frozen=True)
class Fill:
    """How a bar is filled.

    Attributes:
        colour: of the bar, or of its hatch.
        hatched: for padding or wasted work.
        ink: of what is written on it.
    """

    colour: str
    hatched: bool = False
    ink: str = LIGHT.text

    def marker(self) -> dict[str, Any]:
        """As plotly has it."""
        if not self.hatched:
            return {"color": self.colour}
        pattern = {"shape": "/", "bgcolor": LIGHT.padding, "size": 8.5, "solidity": 0.17}
        return {"color": self.colour, "pattern": pattern}


REAL, PADDING = Fill(palette.REAL, ink=palette.ink_on(palette.REAL)), Fill(LIGHT.hatch, hatched=True)
WRONG, NEITHER = Fill(LIGHT.wrong, ink=LIGHT.ground), Fill(LIGHT.ground)


class Chart(HasText):
    """A plotly figure with a text twin.

    A notebook shows it in the colours of its theme, and again in others when the theme changes. (It hears of the theme
    through packviz's panels: in a notebook without any, it stays light.) The stored output holds plotly's JSON and the
    text, and in packviz's own notebooks an image.

    Attributes:
        figure: the `plotly.graph_objects.Figure`; call its methods to change the chart.
    """

    def __init__(self, figure: go.Figure, words: str, *, rows: bool, tall: float, head: float, height: float) -> None:
        """Takes a figure made by `axes`.

        Args:
            figure: the figure.
            words: the text twin.
            rows: whether it has rows in place of an axis of heights.
            tall: height of a panel in px.
            head: room above the panels in px.
            height: height of the whole in px.
        """
        self.figure, self._words = figure, words
        self._rows, self._tall, self._head, self._height = rows, tall, head, height

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

    def bars(
        self,
        at: Sequence[Any],
        values: Sequence[float],
        name: str = "",
        fill: Fill = REAL,
        *,
        labels: Sequence[str] = (),
    ) -> Chart:
        """Adds bars to a chart with rows; those in one row follow each other.

        Args:
            at: the row of each.
            values: their lengths.
            name: of these bars in the key; none where all are of one kind.
            fill: how they are filled.
            labels: what is written in each, where it has room.
        """
        looks = {"name": name, "showlegend": bool(name), "marker": fill.marker()}
        if labels:
            ink = {"size": _SMALL, "color": fill.ink}
            looks |= {"text": list(labels), "textposition": "inside", "insidetextanchor": "middle", "textangle": 0}
            looks |= {"insidetextfont": ink, "constraintext": "none"}
        return self._put(go.Bar(y=list(at), x=_short(values), orientation="h", **looks), 0)

    def lines(
        self,
        x: Sequence[float],
        y: Sequence[float],
        name: str,
        look: int = 0,
        *,
        dash: int = 0,
        panel: int = 0,
        key: bool = True,
        low: Sequence[float] = (),
        high: Sequence[float] = (),
    ) -> Chart:
        """Adds a line with a mark at each point.

        Args:
            x: places of the points.
            y: their heights.
            name: of the line.
            look: the number of its colour and its mark.
            dash: the number of its dashes.
            panel: the number of the panel it is drawn in.
            key: whether the key has it.
            low: where the whisker of each point begins, if they have any.
            high: where it ends.
        """
        dashes = DASHES[dash % len(DASHES)]
        self._line(x, y, dashes, panel, LIGHT.line, 4)  # an outline first: some colours are pale
        line = {"color": _colour(look), "width": 2.6, "dash": dashes}
        whiskers = _whiskers(y, low, high)
        return self.points(x, y, name, look, panel=panel, key=key, error_y=whiskers, mode="lines+markers", line=line)

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
        mark = {"symbol": SYMBOLS[look % len(SYMBOLS)], "size": 8, "color": _colour(look)}
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
        return self._note(words, panel, x=x, y=y, xanchor="left", xshift=8, yshift=-round(down))

    def name_ends(self, ends: Mapping[str, tuple[float, float]], *, panel: int = 0) -> Chart:
        """Writes the names of lines beside their last points, apart from each other. The axis must have its `scale`.

        Args:
            ends: the last point of each line, by its name.
            panel: the number of the panel.
        """
        # On a logarithmic axis plotly wants the powers of ten.
        across, up = (math.log10 if self._axis(one, panel).type == "log" else float for one in "xy")
        (low, high), tall = self._axis("y", panel).range, self._tall
        order = sorted(ends, key=lambda name: -ends[name][1])
        heights = [tall * (high - up(ends[name][1])) / (high - low) for name in order]  # px from the top
        for name, height, free in zip(order, heights, spread_labels(heights, tall, gap=14), strict=True):
            x, y = ends[name]
            self.label(_digits(across(x)), _digits(up(y)), name, panel=panel, down=free - height)
        return self

    def _log_heights(self, panel: int) -> Chart:
        """Makes an axis of heights, which has its numbers, logarithmic between their ends."""
        axis = self._axis("y", panel)
        ends = [_digits(math.log10(axis.tickvals[end])) for end in (0, -1)]
        axis.update(type="log", range=ends)
        return self

    def scale(self, longest: float, *, panel: int = 0) -> Chart:
        """Lets the axis of values run from 0 to the longest; upright to the next round number, as in a picture."""
        if self._rows:
            self._axis("x", panel).range = [0, _digits(1.01 * longest)]
        else:
            values = ticks(0.0, longest)
            self._axis("y", panel).update(range=[0, values[-1]], tickvals=values)
        return self

    def _line(self, x: Sequence[float], y: Sequence[float], dash: str, panel: int, colour: str, width: float) -> None:
        """A line without marks, which no key names."""
        line = {"color": colour, "width": width, "dash": dash}
        self._put(
            go.Scatter(x=list(x), y=_short(y), mode="lines", line=line, showlegend=False, hoverinfo="skip"), panel
        )

    def _place(self, panel: int) -> dict[str, int]:
        row, column = divmod(panel, len(self.figure._grid_ref[0]))
        return {"row": row + 1, "col": column + 1}

    def _axis(self, letter: str, panel: int) -> Any:
        select = self.figure.select_xaxes if letter == "x" else self.figure.select_yaxes
        return next(select(**self._place(panel)))

    def _note(self, words: str, panel: int, **more: Any) -> Chart:
        self.figure.add_annotation(text=words, **more, **self._place(panel))
        return self

    def _put(self, trace: Any, panel: int) -> Chart:
        """Adds a trace; and its key in the line of the title, or below where there is no room for all keys."""
        figure = self.figure
        figure.add_trace(trace, **self._place(panel))
        names = [trace.name for trace in figure.data if trace.showlegend]
        widths = [width_of(name) + 48 for name in names]
        wide, space = sum(widths), WIDTH - figure.layout.margin.l - figure.layout.margin.r
        beside = wide < min(space, WIDTH - 16 - width_of(figure.layout.title.text))
        columns = len(names) if wide < space else max(space // max(widths), 1)  # plotly makes them equally wide then
        lines = 0 if beside else math.ceil(len(names) / max(columns, 1))
        height = self._height + 18 * lines
        figure.update_layout(height=height, margin_t=self._head + 18 * lines)
        figure.update_layout(legend_y=_digits(1 - (12 + (9 * lines + 9 if lines else 0)) / height))
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
    tall: float = 0,
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
        tall: height of a panel, in px; by the rows if not given.
        ends: what will be written at the right of bars or lines: it gets room.
        below: lines under everything.
        on_top: whether the x axis stands above: for many rows.
    """
    across = across or len(panels)
    below = [part for line in below for part in textwrap.wrap(line, int((WIDTH - 8) / width_of("x", _SMALL)))]
    down = math.ceil(len(panels) / across)
    tall = tall or (_ROW * len(rows) if rows else 200)
    left = min(max(map(width_of, rows)) + 20, WIDTH / 2) if rows else _LEFT
    right = max(map(width_of, ends), default=0) + _RIGHT
    named = 42 if x else 24
    higher = (18 if y else 0) + (named if on_top else 0)
    above, foot = higher + (18 if any(panels) else 0), 8 if on_top else named
    gap = right if rows else left + right
    inner = tall * down + (above + foot) * (down - 1)
    spacing = (gap / (WIDTH - left - right) if across > 1 else 0, (above + foot) / inner if down > 1 else 0)
    spaces = dict(zip(("horizontal_spacing", "vertical_spacing"), spacing, strict=True))
    head = 28 + above
    height = round(head + inner + foot + 17 * len(below))
    figure = make_subplots(down, across, shared_yaxes=bool(rows), **spaces)
    figure.update_layout(template=TEMPLATE, title_text=title, height=height, width=WIDTH, barmode="stack")
    figure.update_layout(margin={"l": round(left), "r": round(right), "t": head, "b": foot + 17 * len(below)})
    if rows:
        names = {"categoryarray": list(rows), "tickfont": {"size": _SIZE, "color": LIGHT.text}}
        figure.update_yaxes(type="category", range=[len(rows) - 0.5, -0.5], **names)
        figure.update_xaxes(side="top" if on_top else "bottom")
    else:
        figure.update_xaxes(showline=True).update_yaxes(showgrid=True)
    chart = Chart(figure, words, rows=bool(rows), tall=tall, head=head, height=height)
    small, own = {"font": {"size": _SMALL}}, {"xref": "x domain", "yref": "y domain"}
    for i, panel in enumerate(panels):
        if panel:
            beside = {"x": 0, "y": 1, "xanchor": "left", "yanchor": "bottom", "yshift": higher + 2}
            chart._note(panel, i, **beside, **own)
        if y:
            fits = width_of(y, _SMALL) < left - 12
            side = {"xanchor": "right", "xshift": -8} if fits else {"xanchor": "left", "xshift": 4 - left}
            chart._note(y, i, x=0, y=1, yanchor="bottom", yshift=7, **side, **small, **own)
        if x:
            side = {"y": 1, "yanchor": "bottom", "yshift": 20} if on_top else {"y": 0, "yanchor": "top", "yshift": -20}
            chart._note(x, i, x=1, xanchor="right", **side, **small, **own)
    if below:
        place = {"x": 0, "xshift": 4 - left, "xanchor": "left", "y": 0, "yshift": -foot, "yanchor": "top"}
        figure.add_annotation(text="<br>".join(below), align="left", **place, xref="paper", yref="paper", **small)
    return chart


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
    heights = [found for row in heights_of(sweep.rows) for found in row]
    for panel, plot in enumerate(plots):
        if plot.log:
            chart._axis("y", panel).tickvals = heights[panel]
            chart._log_heights(panel)
        else:
            chart.scale(max((max(curve.high) for curve in plot.curves), default=1.0), panel=panel)
        for guide in plot.guides:
            x, y = zip(*guide.points, strict=True)
            chart._line(x, y, DASHES[0], panel, LIGHT.muted, 1)
        for curve in reversed(plot.curves):
            name = curve.name if named else f"{curve.name}, {sweep.sources[curve.source].partition(':')[0]}"
            key, look, low, high = not named and name not in keys, curve.method, curve.low, curve.high
            chart.lines(curve.x, curve.y, name, look, dash=curve.source, panel=panel, key=key, low=low, high=high)
            if curve.hollow:
                chart.figure.data[-1].marker.update(color=LIGHT.ground)
            keys.add(name)
        if plot.log and len(plot.sizes) > 1:
            edges = [_digits(math.log10(plot.sizes[end]) + beyond) for end, beyond in ((0, -0.02), (-1, 0.02))]
            chart._axis("x", panel).update(type="log", range=edges, tickvals=doublings(plot.sizes))
        else:
            chart._axis("x", panel).range = [0, _digits(1.01 * longest_x(plot))]
        if named:
            ends = {curve.name: (curve.x[-1], curve.y[-1]) for curve in plot.curves}
            chart.name_ends(ends | {guide.name: guide.points[-1] for guide in plot.guides}, panel=panel)
    return chart


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


def _colour(look: int) -> str:
    return COLOURS[look % len(COLOURS)]


def _whiskers(values: Sequence[float], low: Sequence[float], high: Sequence[float]) -> dict[str, Any] | None:
    if not high:
        return None
    up = _short([end - value for value, end in zip(values, high, strict=True)])
    down = _short([value - end for value, end in zip(values, low, strict=True)])
    looks = {"color": LIGHT.line, "thickness": 1, "width": 4}
    return {"type": "data", "symmetric": False, "array": up, "arrayminus": down} | looks


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
