"""Charts of batches: how many sequences still run, how long they are, and what padding wastes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import plotly.graph_objects as go

from packviz.core.layout import Layout
from packviz.draw import text
from packviz.figures.chart import Chart
from packviz.figures.template import PADDING, REAL

HATCH = {"color": PADDING, "pattern": {"shape": "/", "size": 8, "solidity": 0.4}}


def batch_sizes(layout: Layout) -> Chart:
    """The number of sequences still running at each time step, over the padding that fills the rest of the batch."""
    sizes = layout.batch_sizes
    steps = list(range(layout.max_len))
    running = sizes.tolist() + [0] * (layout.max_len - sizes.size)
    finished = [layout.batch_size - size for size in running]
    chart = Chart(
        [
            go.Bar(x=steps, y=running, name="still running (real)", marker={"color": REAL}),
            go.Bar(x=steps, y=finished, name="finished (padding)", marker=HATCH),
        ],
        text=f"batch_sizes, sequences still running at each time step: {text.numbers(sizes)}\n{text.summary(layout)}",
    )
    return _stacked(chart, "batch_sizes: who is still running", "time step t", "sequences")


def padding_waste(groups: Mapping[str, Iterable[Layout]]) -> Chart:
    """Real and padding cells of whole groups of batches, side by side.

    Args:
        groups: a name for each way to form batches, with the batches it forms.
    """
    batches = {name: list(layouts) for name, layouts in groups.items()}
    real = [sum(layout.n_valid for layout in layouts) for layouts in batches.values()]
    padding = [sum(layout.n_padding for layout in layouts) for layouts in batches.values()]
    lines = [
        f"{name}: {text.count(len(layouts), 'batch', 'batches')}, {text.count(r, 'real cell')}, {p:,} padding"
        f" ({text.percent(p, r + p)} wasted)"
        for (name, layouts), r, p in zip(batches.items(), real, padding, strict=True)
    ]
    names = [f"{name}<br>{text.percent(p, r + p)} wasted" for name, r, p in zip(batches, real, padding, strict=True)]
    chart = Chart(
        [
            go.Bar(y=names, x=real, name="real", orientation="h", marker={"color": REAL}),
            go.Bar(y=names, x=padding, name="padding", orientation="h", marker=HATCH),
        ],
        text="\n".join(lines),
    )
    _stacked(chart, "What padding wastes", "cells", "")
    chart.update_layout(height=110 + 60 * len(names), yaxis={"autorange": "reversed"}, margin_l=180)
    return chart


def length_histogram(layout: Layout, bins: int = 20) -> Chart:
    """How many sequences have which length, in at most `bins` bars of equally many lengths each."""
    each = -(-layout.max_len // bins)
    n = layout.lengths
    counts = np.bincount((n - 1) // each, minlength=-(-layout.max_len // each))
    first = 1 + each * np.arange(counts.size)
    spread = f"shortest {n.min()}, median {np.median(n):g}, mean {n.mean():.3g}, longest {n.max()}"
    chart = Chart(
        go.Bar(x=(first + (each - 1) / 2).tolist(), y=counts.tolist(), width=each, marker={"color": REAL}),
        text=f"{n.size:,} sequences: {spread}\nsequences per {each} lengths, from 1 up: {text.numbers(counts)}",
    )
    return _stacked(chart, "How long the sequences are", "length in time steps", "sequences")


def _stacked(chart: Chart, title: str, x: str, y: str) -> Chart:
    chart.update_layout(barmode="stack", bargap=0.05, title_text=title, xaxis_title=x, yaxis_title=y)
    return chart
