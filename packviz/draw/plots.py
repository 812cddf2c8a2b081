"""Charts of what is counted or computed: bars, a histogram, curves against a size. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat

import numpy as np

from packviz.core import fit
from packviz.core.layout import Layout, require_steps
from packviz.draw import bars, palette, quantities, text
from packviz.draw.cellgrid import nice
from packviz.draw.chart import COLOURS, Axes, ticks
from packviz.draw.drawing import Drawing
from packviz.draw.sheet import Sheet
from packviz.draw.sweep import Curve, Plot, Sweep

Spread = Sequence[float]
"""First quartile, median, third quartile."""

_MOST = 7  # curves that can be told apart


@dataclass(frozen=True, repr=False)
class Chart(Drawing):
    """A chart with its text twin.

    Attributes:
        words: the text twin.
        draw: draws the chart in a theme.
    """

    words: str
    draw: Callable[[str], Sheet]

    def to_text(self) -> str:
        """Returns the chart in words and numbers."""
        return self.words

    def sheet(self, theme: str) -> Sheet:
        """Draws the chart."""
        return self.draw(theme)


def totals(
    title: str,
    rows: Mapping[str, tuple[int, int]],
    words: tuple[str, str, str] = ("needed", "computed for nothing", "wasted"),
) -> Chart:
    """Draws a bar for each name: its first number solid, its second one hatched behind it.

    Args:
        title: stands above.
        rows: by name, the number that is needed, and the number that is not.
        words: what solid and hatched mean, and a word for the hatched share.
    """
    lines = [
        f"{name}: {text.short(one)} {words[0]}, {text.short(other)} {words[1]}" for name, (one, other) in rows.items()
    ]
    return Chart("\n".join([title, *lines]), lambda theme: bars.totals(title, rows, theme, words))


def padding_waste(groups: Mapping[str, Iterable[Layout]]) -> Chart:
    """Draws the real and the padding cells of whole groups of batches, a bar for each group.

    Args:
        groups: the batches of each group, by its name.

    Raises:
        ValueError: there is no group.
    """
    batches = {name: list(layouts) for name, layouts in groups.items()}
    if not batches:
        raise ValueError("groups is empty; give a name with its batches, as in {'shuffled': [Layout([5, 3, 2])]}")
    cells = {
        name: (sum(layout.n_valid for layout in layouts), sum(layout.n_padding for layout in layouts))
        for name, layouts in batches.items()
    }
    lines = [
        f"{name}: {text.count(len(batches[name]), 'batch', 'batches')}, {text.count(real, 'real cell')},"
        f" {padding:,} padding ({text.percent(padding, real + padding)} wasted)"
        for name, (real, padding) in cells.items()
    ]
    shares = sorted((padding / max(real + padding, 1), name) for name, (real, padding) in cells.items())
    (least, best), (most, worst) = shares[0], shares[-1]
    title = f"Padding: {text.percent(most)} of the cells ({worst})"
    title += f", {text.percent(least)} ({best})" if least < most else ""
    words = ("real cells", "padding", "wasted")
    return Chart("\n".join(lines), lambda theme: bars.totals(title, cells, theme, words))


def length_histogram(layout: Layout, bins: int = 20) -> Chart:
    """Draws how many sequences have which length, in at most `bins` bars of equally many lengths each."""
    n = require_steps(layout).lengths
    each = -(-layout.max_len // bins)
    counts = np.bincount((n - 1) // each, minlength=-(-layout.max_len // each))
    spread = f"shortest {n.min()}, median {np.median(n):g}, mean {n.mean():.3g}, longest {n.max()}"
    words = f"{n.size:,} sequences: {spread}\nsequences per {each} lengths, from 1 up: {text.numbers(counts)}"
    title = f"Half of the sequences have up to {np.median(n):g} steps, the longest has {n.max()}"

    def draw(theme: str) -> Sheet:
        sheet, last = Sheet(theme, words), each * counts.size
        axes = Axes(sheet, 70, 58, 620, 170, ticks(0, int(counts.max())), lambda length: (length - 0.5) / last)
        sheet.title(title)
        axes.rows(unit="sequences")
        for i, count in enumerate(counts.tolist()):
            left, top = axes.x(1 + i * each - 0.5), axes.y(count)
            sheet.box(left, top, axes.x(1 + (i + 1) * each - 0.5) - left, axes.foot - top, palette.REAL)
        step = nice(last / 15)
        axes.columns([1, *range(step if step > 1 else 2, last + 1, step)], "length in time steps")
        sheet.size(760, axes.foot + 42)
        return sheet

    return Chart(words, draw)


def training_curves(curves: Mapping[str, Sequence[float]], title: str, y: str = "loss") -> Sweep:
    """Draws a curve for each training, epoch by epoch.

    Values have two significant digits: further ones may differ from one machine to the next.

    Args:
        curves: for each name its value after every epoch; at most seven.
        title: stands above.
        y: what is measured.

    Raises:
        ValueError: there are more curves than can be told apart.
    """
    if len(curves) > _MOST:
        raise ValueError(f"curves holds {len(curves)} lines; at most {_MOST} can be told apart")
    rounded = {name: [float(f"{value:.2g}") for value in values] for name, values in curves.items()}
    wide = max(map(len, curves), default=0)
    lines = [f"{name.ljust(wide)}  {' '.join(f'{v:g}'.rjust(6) for v in values)}" for name, values in rounded.items()]
    words = "\n".join([f"{title} ({y} after each epoch)", *lines])
    drawn = [  # in one colour, which is no method's
        Curve(name, len(COLOURS) - 1, i, range(1, len(values) + 1), values, values, values, hollow=i % 2 > 0)
        for i, (name, values) in enumerate(rounded.items())
        if values
    ]
    return Sweep(title, [[Plot("", drawn, y=y)]], (), (), words, "epoch")


def log_log(
    x: Sequence[float],
    panels: Mapping[str, Mapping[str, Sequence[float | Spread]]],
    title: str,
    name: str = "time steps T",
    *,
    y: str | Sequence[str] = "",
    methods: Mapping[str, str] | None = None,
    below: Sequence[str] = (),
) -> Sweep:
    """Draws how counts or times grow with `x`: on double logarithmic axes a power is a straight line of that slope.

    Args:
        x: at least two positive numbers.
        panels: for each panel, by what is counted in it, up to four curves: by their names, for each `x` a number, or a
            median between its quartiles.
        title: stands above.
        name: of `x`.
        y: the unit of all panels, which then have the same heights; or of each.
        methods: by the name of a curve the method, a key of `palette.METHODS`, whose colour it has.
        below: lines that stand below.

    Raises:
        ValueError: a number is not positive, a curve is not as long as `x`, there is nothing to draw, or more curves
            than four.
    """
    if not panels or not all(panels.values()):
        raise ValueError(f"panels is {panels}; give at least one, each with at least one curve")
    if (most := max(map(len, panels.values()))) > 4:
        raise ValueError(f"panels holds one with {most} curves; at most 4 can be told apart")
    lines, plots, looks = [f"{title}. {name}: {_numbers(x)}"], [], list(palette.METHODS)
    for (what, curves), unit in zip(panels.items(), repeat(y) if isinstance(y, str) else y, strict=False):
        drawn = []
        for i, (curve, values) in enumerate(curves.items()):
            spreads = [value if isinstance(value, Sequence) else (value,) * 3 for value in values]
            middles = [middle for _, middle, _ in spreads]
            slope = f"slope {round(fit.exponent(x, middles), 2) + 0:.2f}"
            lines.append(f"{what}, {curve}: {_numbers(middles)}; {slope}")
            look, (low, _, high) = looks.index(methods[curve]) if methods else i, zip(*spreads, strict=True)
            drawn.append(Curve(f"{curve}: {slope}", look, i, x, middles, low, high, hollow=i % 2 > 0))
        plots.append(Plot(what, drawn, y=unit, log=True))
    return Sweep(title, [plots], (), below, "\n".join([*lines, *below]), name)


def _numbers(values: Sequence[float]) -> str:
    return ", ".join(f"{value:,}" if isinstance(value, int) else quantities.plain(value) for value in values)
