"""Measures whether equal savings in FLOPs also save equal time, for few and for many distinct
lengths.

All batches have the same size, the same padded width and the same number of real cells, so packing
saves the same FLOPs on each. They differ in their number of distinct lengths. A training step
(forward and backward) is timed without packing, and with packing (pack, RNN, pad) for each batch.
The input needs a gradient, as it does after an embedding.

`packviz study savings --out notebooks/recorded/savings_cpu.json` makes the recorded file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from packviz.core.layout import Layout
from packviz.core.lengths import even_steps
from packviz.core.spec import Spec
from packviz.count.flops import flops
from packviz.draw.drawing import Drawing
from packviz.draw.sheet import Sheet
from packviz.draw.text import percent
from packviz.draw.work import WorkAndTime
from packviz.measure import rnn_calls
from packviz.measure.study import Comparison, Results, Study, by_comparison
from packviz.measure.timing import RATIOS, Timing

PADDED = "padded"


def name(distinct: int) -> str:
    """Returns the name of the batch with this number of distinct lengths."""
    return f"packed ({distinct} lengths)"


@dataclass(frozen=True)
class SavingsPoint:
    """One RNN, one padded batch, and packed batches that have different numbers of distinct
    lengths.

    Attributes:
        mode: the kind of RNN, `"RNN"`, `"GRU"` or `"LSTM"`.
        size: number of sequences in the padded batch, which is also its number of time steps.
        distinct: the numbers of distinct lengths to compare (see `even_steps`).
        input_size: number of features per time step.
        hidden_size: number of hidden units.
    """

    mode: str = "GRU"
    size: int = 64
    distinct: tuple[int, ...] = (2, 4, 8, 64)
    input_size: int = 32
    hidden_size: int = 32

    def __str__(self) -> str:
        return f"{self.spec}, {self.size} × {self.size}"

    @property
    def spec(self) -> Spec:
        """The kind and the sizes of the RNN."""
        return Spec(self.mode, self.input_size, self.hidden_size)

    @property
    def flops(self) -> dict[str, int]:
        """The GEMM FLOPs of each training step, by the name under which the step is timed."""
        layouts = {
            name(distinct): Layout(even_steps(distinct, self.size)) for distinct in self.distinct
        }
        counts = {
            one: flops(self.spec, layout, input_grad=True).training
            for one, layout in layouts.items()
        }
        return {PADDED: next(iter(counts.values())).padded} | {
            one: count.packed for one, count in counts.items()
        }


class Savings(Drawing, Results[SavingsPoint, Timing]):
    """The FLOPs and times of a training step, padded and packed, on batches with equal numbers of real cells."""

    def to_text(self) -> str:
        """Returns a table of FLOPs and times relative to the padded step."""
        return self.picture.to_text()

    def sheet(self, theme: str) -> Sheet:
        """Draws FLOPs and times relative to the padded step."""
        return self.picture.sheet(theme)

    @property
    def picture(self) -> WorkAndTime:
        """A picture of the FLOPs and times on every batch, relative to the padded step."""
        groups = {}
        for point in self.values:
            counts, rows = point.flops, {}
            for distinct in point.distinct:
                one, label = name(distinct), f"packed, {distinct} distinct lengths"
                rows[label] = counts[one] / counts[PADDED], self.ratio(point, one, PADDED)
            groups[f"{point.spec}, {point.size} sequences padded to {point.size} steps"] = rows
        works = [work for rows in groups.values() for work, _ in rows.values()]
        times = [time.value for rows in groups.values() for _, time in rows.values()]
        share = (
            "half the FLOPs"
            if 0.45 < min(works) <= max(works) < 0.55
            else f"{percent(max(works))} of the FLOPs"
        )
        title = (
            f"Packed training takes {share} and {min(times):.2g} to {max(times):.2g} times the time"
        )
        return WorkAndTime(title, groups, notes=[RATIOS, f"Measured on {self.caption}."])


def training_steps(point: SavingsPoint, device: Any) -> Comparison:
    """Returns the comparison of a padded step with one packed step for each number of distinct lengths."""
    rnn = rnn_calls.rnn_of(point.spec).to(device)
    x = torch.randn(point.size, point.size, point.input_size, device=device).requires_grad_()

    def packed(distinct: int) -> Callable[[], Any]:
        lengths = torch.tensor(even_steps(distinct, point.size))
        return lambda: rnn_calls.packed(rnn, x, lengths, in_order=True)

    runs = {PADDED: lambda: rnn(x)} | {name(d): packed(d) for d in point.distinct}
    return Comparison(
        {one: rnn_calls.one_pass(run, [x, *rnn.parameters()]) for one, run in runs.items()}
    )


STUDY = Study(
    "savings",
    SavingsPoint,
    by_comparison(training_steps),
    Savings,
    full=[SavingsPoint(mode, 256, (2, 4, 16, 256)) for mode in ("GRU", "LSTM")],
    quick=[SavingsPoint()],
    parameters={"rounds": 31},
    version=2,
)
run, recorded = STUDY.run, STUDY.load
