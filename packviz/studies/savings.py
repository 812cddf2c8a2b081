"""An experiment: the same FLOPs saved, from few and from many distinct lengths. Is the same time saved?

All batches have the same size, the same padded width and the same number of real cells, so packing saves the same FLOPs
on each. They differ in how many distinct lengths they have. One training step (forward and backward) is timed: padded,
and packed (pack, RNN, pad) for each batch. The input needs a gradient, as it does after an embedding.

`packviz study savings --out notebooks/recorded/savings_cpu.json` makes the recorded file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from packviz.bench import rnn_calls
from packviz.bench.study import Comparison, Study, Timings, by_comparison
from packviz.bench.timing import RATIOS
from packviz.core.layout import Layout
from packviz.core.lengths import even_steps
from packviz.core.spec import Spec
from packviz.count.flops import FlopCount, flops
from packviz.draw.drawing import Drawing
from packviz.draw.quantities import milliseconds
from packviz.draw.sheet import Sheet
from packviz.draw.text import percent, table
from packviz.draw.work import WorkAndTime

PADDED = "padded"


def name(distinct: int) -> str:
    """What a batch with so many distinct lengths is called."""
    return f"packed ({distinct} lengths)"


@dataclass(frozen=True)
class SavingsPoint:
    """One RNN, padded, and packed with so many distinct lengths.

    Attributes:
        mode: `"RNN"`, `"GRU"` or `"LSTM"`.
        size: sequences, and time steps of the padded batch.
        distinct: the numbers of distinct lengths to compare, each as `even_steps` takes it.
        input_size: of the RNN.
        hidden_size: of the RNN.
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
        """The RNN."""
        return Spec(self.mode, self.input_size, self.hidden_size)

    def count(self, distinct: int) -> FlopCount:
        """The FLOPs of the batch with so many distinct lengths."""
        return flops(self.spec, Layout(even_steps(distinct, self.size)), input_grad=True)

    @property
    def flops(self) -> dict[str, int]:
        """GEMM FLOPs of a training step, by the names of what is timed."""
        packed = {name(d): self.count(d).training.packed for d in self.distinct}
        return {PADDED: self.count(self.distinct[0]).training.padded} | packed


class Savings(Timings[SavingsPoint], Drawing):
    """FLOPs and time of one training step, padded and packed, at the same number of real cells."""

    def finding(self, point: SavingsPoint) -> str:
        """What the measurement says of FLOPs and time; it depends on nothing but the numbers."""
        counts, few, many = point.flops, name(point.distinct[0]), name(point.distinct[-1])
        lines = [f"Packed, every batch takes {counts[few] / counts[PADDED]:.3g} times the padded FLOPs."]
        lines += [f"{self.ratio(point, one, to)}." for one, to in ((few, PADDED), (many, PADDED), (many, few))]
        return "\n".join([*lines, f"Measured on {self.caption}."])

    def to_text(self) -> str:
        """FLOPs and milliseconds side by side, and the verdict."""
        return "\n\n".join(map(self.table, self.values))

    def table(self, point: SavingsPoint) -> str:
        """The same for one point."""
        layout, timing = Layout(even_steps(point.distinct[0], point.size)), self.values[point]
        lines = [
            f"{point.spec}, one training step. {layout.batch_size} sequences padded to {layout.max_len} time steps,"
            f" {layout.n_valid:,} of {layout.n_cells:,} cells real in every batch.",
            "In parentheses: how many distinct lengths a batch has.",
        ]
        rows = [["", "GFLOP", "ms", "quartiles"]]
        for one, count in point.flops.items():
            low, middle, high = map(milliseconds, timing.spread(one))
            rows.append([one, f"{count / 1e9:.3g}", middle, f"{low} to {high}"])
        return "\n".join([*lines, *table(rows, "<21.8.9  <"), self.finding(point)])

    def sheet(self, theme: str) -> Sheet:
        """The picture."""
        return self.picture.sheet(theme)

    @property
    def picture(self) -> WorkAndTime:
        """FLOPs and time of every batch, as multiples of the padded ones."""
        groups = {}
        for point in self.values:
            counts, rows = point.flops, {}
            for distinct in point.distinct:
                one, label = name(distinct), f"packed, {distinct} distinct lengths"
                rows[label] = counts[one] / counts[PADDED], self.ratio(point, one, PADDED)
            groups[f"{point.spec}, {point.size} sequences padded to {point.size} steps"] = rows
        works = [work for rows in groups.values() for work, _ in rows.values()]
        times = [time.value for rows in groups.values() for _, time in rows.values()]
        share = "half the FLOPs" if 0.45 < min(works) <= max(works) < 0.55 else f"{percent(max(works))} of the FLOPs"
        title = f"One training step: {share}, {min(times):.2g} to {max(times):.2g} times the time"
        return WorkAndTime(title, groups, notes=[RATIOS, f"Measured on {self.caption}."])


def training_steps(point: SavingsPoint, device: Any) -> Comparison:
    """Padded, and packed with each number of distinct lengths."""
    rnn = rnn_calls.rnn_of(point.spec).to(device)
    x = torch.randn(point.size, point.size, point.input_size, device=device).requires_grad_()

    def packed(distinct: int) -> Callable[[], Any]:
        lengths = torch.tensor(even_steps(distinct, point.size))
        return lambda: rnn_calls.packed(rnn, x, lengths, in_order=True)

    runs = {PADDED: lambda: rnn(x)} | {name(d): packed(d) for d in point.distinct}
    return Comparison({one: rnn_calls.one_pass(run, [x, *rnn.parameters()]) for one, run in runs.items()})


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
