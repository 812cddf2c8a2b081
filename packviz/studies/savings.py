"""Measures whether equal savings in FLOPs also save equal time, for few and many distinct lengths.

All batches have the same size, the same padded width and the same number of real cells, so packing
saves the same FLOPs on each. They differ in their number of distinct lengths. A training step
(forward and backward) is timed without packing, and with packing (pack, RNN, pad) for each batch.
The input needs a gradient, as it does after an embedding.

`packviz study savings --out notebooks/recorded/savings_cpu.json` makes the recorded file.
"""

from __future__ import annotations

from functools import partial

import torch

from packviz.core.layout import Layout
from packviz.core.lengths import even_steps
from packviz.count.flops import flops
from packviz.draw.spans import Spans
from packviz.draw.text import percent
from packviz.measure import rnn_calls
from packviz.measure.study import Comparison, Point, Results, Study, TimedResults, time_training
from packviz.measure.timing import RATIO_NOTE

PADDED = "padded"
LENGTH_KIND = "even steps"
"""The name of the lengths, which are those of `even_steps`."""


def distinct_counts(point: Point) -> list[int]:
    """Returns the numbers of distinct lengths that are compared at a point."""
    return sorted({2, 4, 16, point.steps})


def name(distinct: int) -> str:
    """Returns the name of the batch with this number of distinct lengths."""
    return f"packed ({distinct} lengths)"


def picture(results: TimedResults) -> Spans:
    """Returns a picture of the FLOPs and times on every batch, relative to the padded step."""
    groups = {}
    flop_ratios = []
    times = []
    for point in results.points:
        rows = {}
        for distinct in distinct_counts(point):
            layout = Layout(even_steps(distinct, point.steps))
            training = flops(point.spec, layout, input_grad=True).training
            flop_ratios.append(training.packed / training.padded)
            ratio = results.ratio(point, name(distinct), PADDED)
            times.append(ratio.value)
            rows[f"packed, {distinct} distinct lengths"] = (flop_ratios[-1], ratio)
        batch = f"{point.spec}, {point.steps} sequences padded to {point.steps} steps"
        groups[batch] = rows
    title = (
        f"Packed training takes {percent(max(flop_ratios))} of the FLOPs and {min(times):.2g} to"
        f" {max(times):.2g} times the time"
    )
    return Spans(title, groups, notes=[RATIO_NOTE, f"Measured on {results.caption}."])


def make_comparison(point: Point, device: str) -> Comparison:
    """Compares a padded step with a packed step for each number of distinct lengths."""
    rnn = rnn_calls.make_rnn(point.spec).to(device)
    x = torch.randn(point.steps, point.batch_size, point.input_size, device=device)
    x.requires_grad_()
    leaves = [x, *rnn.parameters()]
    calls = {PADDED: rnn_calls.make_pass(partial(rnn, x), leaves)}
    for distinct in distinct_counts(point):
        lengths = torch.tensor(even_steps(distinct, point.steps))
        run = partial(rnn_calls.packed, rnn, x, lengths, is_sorted=True)
        calls[name(distinct)] = rnn_calls.make_pass(run, leaves)
    return Comparison(calls)


STUDY = Study(
    "savings",
    Point,
    partial(time_training, make_comparison),
    Results,
    full_points=[Point(mode, LENGTH_KIND, 256, 256, 32, 32) for mode in ("GRU", "LSTM")],
    quick_points=[Point("GRU", LENGTH_KIND, 16, 16, 32, 32)],
    parameters={"rounds": 15},
    version=3,
)
