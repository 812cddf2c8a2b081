"""Charts with axes, as plotly figures, each with a text twin. The only file that knows plotly.

`axes` gives an empty chart; `bars`, `lines`, `points` and `label` put plain numbers into it. They look like the
pictures of `packviz.draw`: the same face, colours, axes and keys.
"""

from __future__ import annotations

import json
import math
import os
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from packviz.core import files, fit
from packviz.core.layout import Layout
from packviz.core.worded import first_line
from packviz.draw import palette, text, theme
from packviz.draw.chart import COLOURS, apart, doublings, heights_of, log_ticks, longest_x, ticks
from packviz.draw.palette import DARK, FONT, LIGHT, SEQUENCES
from packviz.draw.sheet import width_of

if TYPE_CHECKING:
    from packviz.draw.chart import Sweep

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


class Chart(go.Figure):
    """A `plotly.graph_objects.Figure` with a text twin.

    A notebook shows it in the colours of its theme, and again in others when the theme changes. (It hears of the theme
    through packviz's panels: in a notebook without any, it stays light.) The stored output holds plotly's JSON and the
    text, and in packviz's own notebooks an image.
    """

    def __init__(self, *args: Any, text: str = "", **kwargs: Any) -> None:
        """Takes what `go.Figure` takes, and the `text` that says what the chart shows."""
        super().__init__(*args, **kwargs)
        self._text = text
        self.update_layout(template=TEMPLATE)

    def to_text(self) -> str:
        """The chart in words and numbers."""
        return self._text

    def __repr__(self) -> str:
        return self.to_text()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the chart, or its text, to a file.

        Args:
            path: where to. The suffix says what is written: `.html`, a page to hover over that needs no network;
                `.png`, which needs kaleido and a browser; or `.txt` for the text alone.

        Raises:
            ValueError: the suffix is another one, or kaleido or a browser is missing, or they fail.
            OSError: the file cannot be written.
        """
        figure = go.Figure(self)
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
        said: Sequence[str] = (),
    ) -> Chart:
        """Adds bars: lying where the chart has rows, else upright; bars at one place stand on each other.

        Args:
            at: the row or the place on the x axis of each.
            values: their lengths.
            name: of these bars in the key; none where all are of one kind.
            fill: how they are filled.
            said: what is written in each, where it has room.
        """
        looks = {"name": name, "showlegend": bool(name), "marker": fill.marker()}
        if said:
            ink = {"size": _SMALL, "color": fill.ink}
            looks |= {"text": list(said), "textposition": "inside", "insidetextanchor": "middle", "textangle": 0}
            looks |= {"insidetextfont": ink, "constraintext": "none"}
        if self._lying:
            return self._put(go.Bar(y=list(at), x=_short(values), orientation="h", **looks), 0)
        return self._put(go.Bar(x=list(at), y=_short(values), **looks), 0)

    def lines(
        self,
        x: Sequence[float],
        y: Sequence[float],
        name: str,
        look: int = 0,
        *,
        dash: int | None = None,
        colour: str = "",
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
            look: the number of its colour, its mark and its dashes.
            dash: the number of its dashes, if it is another.
            colour: its colour, if it is another.
            panel: the number of the panel it is drawn in.
            key: whether the key has it.
            low: where the whisker of each point begins, if they have any.
            high: where it ends.
        """
        dashes = DASHES[(look if dash is None else dash) % len(DASHES)]
        self._line(x, y, dashes, panel, LIGHT.line, 4)  # an outline first: some colours are pale
        colour = colour or _colour(look)
        line = {"color": colour, "width": 2.6, "dash": dashes}
        mark = {"mode": "lines+markers", "line": line, "marker": {"color": colour}}
        whiskers = _whiskers(y, low, high)
        return self.points(x, y, name, look, panel=panel, key=key, error_y=whiskers, **mark)

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

    def label(self, x: float, y: Any, said: str, *, panel: int = 0, down: float = 0) -> Chart:
        """Writes at the right of a point.

        Args:
            x: place of the point; its power of ten where the axis is logarithmic.
            y: its height, or the name of its row.
            said: what is written.
            panel: the number of the panel.
            down: how much lower, in px.
        """
        return self._note(said, panel, x=x, y=y, xanchor="left", xshift=8, yshift=-round(down))

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
        for name, height, free in zip(order, heights, apart(heights, tall, room=14), strict=True):
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
        if self._lying:
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
        row, column = divmod(panel, len(self._grid_ref[0]))
        return {"row": row + 1, "col": column + 1}

    def _axis(self, letter: str, panel: int) -> Any:
        select = self.select_xaxes if letter == "x" else self.select_yaxes
        return next(select(**self._place(panel)))

    def _note(self, said: str, panel: int, **more: Any) -> Chart:
        self.add_annotation(text=said, **more, **self._place(panel))
        return self

    def _put(self, trace: Any, panel: int) -> Chart:
        """Adds a trace; and its key in the line of the title, or below where there is no room for all keys."""
        self.add_trace(trace, **self._place(panel))
        names = [trace.name for trace in self.data if trace.showlegend]
        widths = [width_of(name) + 48 for name in names]
        wide, room = sum(widths), WIDTH - self.layout.margin.l - self.layout.margin.r
        beside = wide < min(room, WIDTH - 16 - width_of(self.layout.title.text))
        columns = len(names) if wide < room else max(room // max(widths), 1)  # plotly makes them equally wide then
        lines = 0 if beside else math.ceil(len(names) / max(columns, 1))
        height = self._height + 18 * lines
        self.update_layout(height=height, margin_t=self._head + 18 * lines)
        self.update_layout(legend_y=_digits(1 - (12 + (9 * lines + 9 if lines else 0)) / height))
        return self

    def _dressed(self, dark: bool) -> dict[str, Any]:
        """Plotly's JSON in the colours of a theme. They stand in traces and notes too, so all are replaced there."""
        drawn = self.to_json()
        if dark:
            drawn = re.sub("|".join(f'"{colour}"' for colour in _DARKER), lambda m: f'"{_DARKER[m[0][1:-1]]}"', drawn)
        figure: dict[str, Any] = json.loads(drawn)
        return figure | {"config": CONFIG}

    def _repr_mimebundle_(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        return {"application/vnd.plotly.v1+json": self._dressed(theme.is_dark()), "text/plain": self.to_text()}

    _repr_html_ = None  # plotly's would fetch a script from a network

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
    named = 24 + 18 * bool(x)
    above, foot = 18 * any(panels) + 18 * bool(y) + named * on_top, 8 if on_top else named
    gap = right if rows else left + right
    inner = tall * down + (above + foot) * (down - 1)
    apart = (gap / (WIDTH - left - right) if across > 1 else 0, (above + foot) / inner if down > 1 else 0)
    spaces = dict(zip(("horizontal_spacing", "vertical_spacing"), apart, strict=True))
    chart = Chart(make_subplots(down, across, shared_yaxes=bool(rows), **spaces), text=words)
    chart._lying, chart._tall, chart._head = bool(rows), tall, 28 + above
    chart._height = round(chart._head + inner + foot + 17 * len(below))
    chart.update_layout(title_text=title, height=chart._height, width=WIDTH, barmode="stack")
    chart.update_layout(margin={"l": round(left), "r": round(right), "t": chart._head, "b": foot + 17 * len(below)})
    if rows:
        names = {"categoryarray": list(rows), "tickfont": {"size": _SIZE, "color": LIGHT.text}}
        chart.update_yaxes(type="category", range=[len(rows) - 0.5, -0.5], **names)
        chart.update_xaxes(side="top" if on_top else "bottom")
    else:
        chart.update_xaxes(showline=True).update_yaxes(showgrid=True)
    small, own = {"font": {"size": _SMALL}}, {"xref": "x domain", "yref": "y domain"}
    for i, panel in enumerate(panels):
        if panel:
            higher = 18 * bool(y) + named * on_top + 2
            beside = {"x": 0, "y": 1, "xanchor": "left", "yanchor": "bottom", "yshift": higher}
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
        chart.add_annotation(text="<br>".join(below), align="left", **place, xref="paper", yref="paper", **small)
    return chart


def batch_sizes(layout: Layout) -> Chart:
    """The number of sequences still running at each time step, over the padding that fills the rest of the batch."""
    sizes = layout.batch_sizes
    words = f"batch_sizes, sequences still running at each time step: {text.numbers(sizes)}\n{text.summary(layout)}"
    running = sizes.tolist() + [0] * (layout.max_len - sizes.size)
    steps = range(layout.max_len)
    chart = axes(
        "batch_sizes: how many sequences are still running at each step", words, x="time step t", y="sequences"
    )
    chart.update_yaxes(showgrid=False)  # no line over a hatch
    chart.bars(steps, running, "still running (real)")
    chart.bars(steps, [layout.batch_size - size for size in running], "finished (padding)", PADDING)
    chart.update_layout(bargap=0.05)
    return chart


def padding_waste(groups: Mapping[str, Iterable[Layout]]) -> Chart:
    """Real and padding cells of whole groups of batches, side by side.

    Args:
        groups: a name for each way to form batches, with the batches it forms.

    Raises:
        ValueError: there are none.
    """
    batches = {name: list(layouts) for name, layouts in groups.items()}
    if not batches:
        raise ValueError("groups is empty; give a name with its batches, as in {'shuffled': [Layout([5, 3, 2])]}")
    real = [sum(layout.n_valid for layout in layouts) for layouts in batches.values()]
    padding = [sum(layout.n_padding for layout in layouts) for layouts in batches.values()]
    wasted = [f"{text.percent(p, r + p)} wasted" for r, p in zip(real, padding, strict=True)]
    lines = [
        f"{name}: {text.count(len(layouts), 'batch', 'batches')}, {text.count(r, 'real cell')}, {p:,} padding ({said})"
        for (name, layouts), r, p, said in zip(batches.items(), real, padding, wasted, strict=True)
    ]
    names = list(batches)
    shares = sorted((p / max(r + p, 1), name) for name, r, p in zip(names, real, padding, strict=True))
    (least, best), (most, worst) = shares[0], shares[-1]
    title = f"Padding: {text.percent(most)} of the cells ({worst})"
    title += f", {text.percent(least)} ({best})" if least < most else ""
    chart = axes(title, "\n".join(lines), x="cells", rows=names, ends=wasted)
    chart.bars(names, real, "real").bars(names, padding, "padding", PADDING)
    for name, r, p, said in zip(names, real, padding, wasted, strict=True):
        chart.label(r + p, name, said)
    return chart.scale(max(1, *map(sum, zip(real, padding, strict=True))))


def length_histogram(layout: Layout, bins: int = 20) -> Chart:
    """How many sequences have which length, in at most `bins` bars of equally many lengths each."""
    each = -(-layout.max_len // bins)
    n = layout.lengths
    counts = np.bincount((n - 1) // each, minlength=-(-layout.max_len // each))
    first = 1 + each * np.arange(counts.size)
    spread = f"shortest {n.min()}, median {np.median(n):g}, mean {n.mean():.3g}, longest {n.max()}"
    words = f"{n.size:,} sequences: {spread}\nsequences per {each} lengths, from 1 up: {text.numbers(counts)}"
    title = f"Half of the sequences have up to {np.median(n):g} steps, the longest has {n.max()}"
    chart = axes(title, words, x="length in time steps", y="sequences")
    chart.bars((first + (each - 1) / 2).tolist(), counts.tolist())
    chart.update_traces(width=each)
    return chart


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
    if len(curves) > len(SYMBOLS):
        raise ValueError(f"curves holds {len(curves)} lines; at most {len(SYMBOLS)} can be told apart")
    rounded = {name: [float(f"{value:.2g}") for value in values] for name, values in curves.items()}
    wide = max(map(len, curves), default=0)
    lines = [f"{name.ljust(wide)}  {' '.join(f'{v:g}'.rjust(6) for v in values)}" for name, values in rounded.items()]
    words = "\n".join([f"{title} ({y} after each epoch)", *lines])
    chart = axes(title, words, x="epoch", y=y, ends=curves, tall=240)
    chart.scale(max((value for values in rounded.values() for value in values), default=1))
    for i, (name, values) in enumerate(rounded.items()):
        # One colour: it is no method's.
        chart.lines(range(1, len(values) + 1), values, name, i, colour=palette.REAL, key=False)
    longest = max(map(len, curves.values()), default=1)
    step = max(1, round(longest / 10))
    chart.update_xaxes(range=[0.7, longest + 0.2], tick0=step, dtick=step)
    return chart.name_ends({name: (len(values), values[-1]) for name, values in rounded.items() if values})


Spread = Sequence[float]
"""First quartile, median, third quartile."""


def log_log(
    x: Sequence[float],
    panels: Mapping[str, Mapping[str, Sequence[float | Spread]]],
    title: str,
    name: str = "time steps T",
    *,
    methods: Mapping[str, str] | None = None,
    together: bool = False,
    below: Sequence[str] = (),
) -> Chart:
    """How counts or times grow with `x`: on double logarithmic axes a power is a straight line, its slope the power.

    Args:
        x: at least two positive numbers.
        panels: for each panel, by what is counted in it, up to four curves: by their names, for each `x` a number, or a
            median between its quartiles.
        title: stands above.
        name: of `x`.
        methods: by the name of a curve the method, a key of `palette.METHODS`, whose colour it has.
        together: whether all panels have the same heights: what is counted is the same.
        below: lines that stand below.

    Raises:
        ValueError: a number is not positive, a curve is not as long as `x`, there is nothing to draw, or more curves
            than four.
    """
    if not panels or not all(panels.values()):
        raise ValueError(f"panels is {panels}; give at least one, each with at least one curve")
    most = max(map(len, panels.values()))
    if most > 4:
        raise ValueError(f"panels holds one with {most} curves; at most 4 can be told apart")
    spreads = {
        (what, curve): [value if isinstance(value, Sequence) else (value,) * 3 for value in values]
        for what, curves in panels.items()
        for curve, values in curves.items()
    }
    middles = {key: [middle for _, middle, _ in spread] for key, spread in spreads.items()}
    powers = {key: fit.exponent(x, y) for key, y in middles.items()}
    slopes = {key: f"slope {round(power, 2) + 0:.2f}" for key, power in powers.items()}
    named = {key: f"{key[1]}: {said}" for key, said in slopes.items()}
    lines = [f"{title}. {name}: {_numbers(x)}"]
    lines += [f"{what}, {curve}: {_numbers(middles[what, curve])}; {said}" for (what, curve), said in slopes.items()]
    chart = axes(title, "\n".join([*lines, *below]), x=name, panels=list(panels), ends=named.values(), below=below)
    # No grid: it would strike through the names.
    axis = {"type": "log", "showgrid": False, "showline": True, "ticks": "inside"}
    left, right = np.log10(min(x)), np.log10(max(x))
    edge = 0.05 * (right - left)
    chart.update_xaxes(tickvals=list(x), range=[_digits(left - edge), _digits(right + edge)], tickformat="", **axis)
    chart.update_yaxes(**axis)
    looks = list(palette.METHODS)
    for panel, (what, curves) in enumerate(panels.items()):
        ends = {}
        for i, curve in enumerate(curves):
            y, power, spread = middles[what, curve], powers[what, curve], spreads[what, curve]
            look = looks.index(methods[curve]) if methods else i
            height = np.mean(np.log(y)) - power * np.mean(np.log(x))
            straight = [float(np.exp(height)) * value**power for value in x]
            chart._line(x, straight, DASHES[i], panel, LIGHT.line, 4)
            chart._line(x, straight, DASHES[i], panel, _colour(look), 2.6)
            error = {"error_y": _whiskers(y, [low for low, _, _ in spread], [high for _, _, high in spread])}
            marker = {"symbol": SYMBOLS[i % len(SYMBOLS)]}
            chart.points(
                x, y, curve, look, panel=panel, key=False, marker=marker, **error if spread[0][0] < spread[0][2] else {}
            )
            ends[named[what, curve]] = (x[-1], straight[-1])
        shown = [spread for key, spread in spreads.items() if together or key[0] == what]
        every = [value for spread in shown for some in spread for value in some]
        chart._axis("y", panel).tickvals = log_ticks(min(every), max(every))
        chart._log_heights(panel).name_ends(ends, panel=panel)
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
                chart.data[-1].marker.update(color=LIGHT.ground)
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


def _numbers(values: Sequence[float]) -> str:
    return ", ".join(f"{value:,}" if isinstance(value, int) else text.plain(value) for value in values)
