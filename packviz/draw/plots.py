"""Draws charts of padding, of lengths, and of how counts grow with the number of time steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from packviz.core import fit
from packviz.core.layout import Layout, require_steps
from packviz.core.validation import one_of
from packviz.draw import bars, palette, quantities, text
from packviz.draw.curves import Curve, Plot, Sweep


def padding_waste(groups: Mapping[str, Iterable[Layout]]) -> bars.BarChart:
    """Draws a bar for each group of batches, with a part for the real cells and a part for the
    padding.

    Args:
        groups: the batches of each group, by the name of the group.

    Raises:
        ValueError: `groups` is empty.
    """
    if not groups:
        raise ValueError(
            "groups is empty; give a name with its batches, as in {'shuffled': [Layout([5, 3, 2])]}"
        )
    cells, shares, lines = {}, [], []
    for name, layouts in groups.items():
        batches = list(layouts)
        real, padding = (
            sum(getattr(one, kind) for one in batches) for kind in ("n_real", "n_padding")
        )
        cells[name] = real, padding
        shares.append((padding / max(real + padding, 1), name))
        lines.append(
            f"{name}: {text.count(len(batches), 'batch', 'batches')}, {text.count(real, 'real cell')},"
            f" {padding:,} padding ({text.percent(padding, real + padding)} wasted)"
        )
    (least, best), (most, worst) = min(shares), max(shares)
    title = f"Padding takes {text.percent(most)} of the cells ({worst})"
    title += f" or {text.percent(least)} ({best})" if least < most else ""
    parts = ("real cells", "padding", "wasted")
    return bars.BarChart("\n".join(lines), lambda theme: bars.totals(title, cells, theme, parts))


def length_histogram(layout: Layout) -> bars.BarChart:
    """Draws a histogram of the lengths in at most 20 bars, each of which covers the same number of
    lengths.

    Raises:
        ValueError: a sequence is empty.
    """
    n = require_steps(layout).lengths
    each = -(-layout.max_len // 20)  # at most 20 bars
    counts = np.bincount((n - 1) // each, minlength=-(-layout.max_len // each))
    spread = f"shortest {n.min()}, median {np.median(n):g}, mean {n.mean():.3g}, longest {n.max()}"
    words = f"{n.size:,} sequences: {spread}\nsequences per {each} lengths, from 1 up: {text.numbers(counts)}"
    title = (
        f"Half of the sequences have up to {np.median(n):g} steps, and the longest has {n.max()}"
    )
    names = [
        f"{first}" if each == 1 else f"{first}–{first + each - 1}"
        for first in range(1, layout.max_len + 1, each)
    ]
    parts = ("number of sequences", "", "")
    return bars.BarChart(
        words, lambda theme: bars.steps(title, counts, counts, theme, parts, "length", names)
    )


def log_log(
    x: Sequence[float],
    panels: Mapping[str, Mapping[str, Sequence[float]]],
    title: str,
    *,
    y: str = "",
    methods: Mapping[str, str] | None = None,
) -> Sweep:
    """Plots counts against the number of time steps, on logarithmic axes.

    On such axes, a power of `T` is a straight line whose slope is the exponent.

    Args:
        x: two or more numbers of time steps.
        panels: the curves of each panel, by the panel's title. A panel maps the name of each curve
            to the curve's numbers, which must be positive, with one for each `x`.
        title: the title above the panels, which states the finding.
        y: the unit of the numbers.
        methods: for each curve, by name, a key of `palette.METHODS`, whose colour the curve gets.
            By default, the curves have the colours of `palette.METHODS` in order.

    Raises:
        ValueError: `x` has fewer than two numbers; a number is not positive; a curve does not have
            one number for each `x`; `panels` is empty; a panel has no curves or more than four; or
            `methods` names an unknown method.
    """
    if not panels or not all(panels.values()):
        raise ValueError(f"panels is {panels}; give at least one, each with at least one curve")
    if (most := max(map(len, panels.values()))) > 4:
        raise ValueError(
            f"panels has a panel with {most} curves; give at most 4, so that they can be told apart"
        )
    lines, plots, looks = [f"{title}. time steps T: {_numbers(x)}"], [], list(palette.METHODS)
    for what, curves in panels.items():
        drawn = []
        for i, (curve, values) in enumerate(curves.items()):
            slope = f"slope {round(fit.exponent(x, values), 2) + 0:.2f}"
            lines.append(f"{what}, {curve}: {_numbers(values)}; {slope}")
            look = (
                looks.index(one_of(f"methods[{curve!r}]", methods.get(curve, ""), looks))
                if methods
                else i
            )
            drawn.append(Curve(f"{curve}: {slope}", look, i, x, values, hollow=i % 2 > 0))
        plots.append(Plot(what, drawn, y=y, log=True))
    return Sweep(title, [plots], (), (), "\n".join(lines), "time steps T")


def _numbers(values: Sequence[float]) -> str:
    return ", ".join(
        f"{value:,}" if isinstance(value, int) else quantities.plain(value) for value in values
    )
