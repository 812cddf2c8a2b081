"""Compares the everyday helpers with a plain loop over the sequences.

Mask: making it. The others: forward and backward, with a gradient of ones. Unpacking is compared with torch's own, too.

`packviz study helpers --out notebooks/recorded/helpers_cpu.json` makes the recorded file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, cast

import torch

from packviz.bench.rnn_calls import one_pass
from packviz.bench.study import Comparison, MeasureOptions, Study, Timings, timed
from packviz.bench.timing import RATIOS, Timing
from packviz.core.lengths import uniform
from packviz.draw.quantities import milliseconds
from packviz.draw.table import Table, Tabled
from packviz.ops import masks, packing
from packviz.ops.original import pack_padded_sequence, pad_packed_sequence

HELPER, LOOP, TORCH = "helper", "loop", "torch"
NAMES = ("real_mask", "masked_loss", "align", "unpack_to_length")


@dataclass(frozen=True)
class HelperPoint:
    """A helper and a batch.

    Attributes:
        helper: one of `NAMES`.
        batch: sequences. Their lengths are drawn evenly from 1 to `steps`.
        steps: time steps of the padded batch.
        features: numbers per cell.
    """

    helper: str
    batch: int = 64
    steps: int = 128
    features: int = 32

    def __str__(self) -> str:
        return f"{self.helper}, {self.batch} × {self.steps}, {self.features} features"

    @property
    def shape(self) -> str:
        """The batch in words."""
        return f"{self.batch} sequences of 1 to {self.steps} time steps, {self.features} features"


class Helpers(Tabled, Timings[HelperPoint]):
    """The `Timing` of `"helper"`, `"loop"` and, where there is one, `"torch"`, for every helper."""

    def faster(self, point: HelperPoint, than: str = LOOP) -> float:
        """How many times as long the other takes as the helper: the median over the rounds."""
        return self.ratio(point, than, HELPER).value

    @property
    def table(self) -> Table:
        """A line per helper with median times, and how many times as long the others take."""
        rows: list[list[str]] = []
        for batch, points in groupby(self.values, lambda point: point.shape):
            rows.append([f"{batch}:"])
            for point in points:
                timing = self.values[point]
                cells = [point.helper, milliseconds(timing.median(HELPER))]
                for other in (LOOP, TORCH):
                    ratio = timing.ratio(other, HELPER) if other in timing.seconds else None
                    times = f"{'' if ratio.is_clear else '?'}{ratio.value:.1f} ×" if ratio else "–"
                    cells += [milliseconds(timing.median(other)) if ratio else "–", times]
                rows.append(cells)
        unclear = any("?" in cell for row in rows for cell in row[1:])
        notes = [RATIOS, *["?: not told apart."] * unclear, f"Measured on {self.caption}."]
        head = ["", "helper, ms", "loop, ms", "loop / helper", "torch, ms", "torch / helper"]
        ratios = [self.faster(point) for point in self.points]
        title = f"A plain Python loop takes {min(ratios):.1f} to {max(ratios):.1f} times as long as the helper"
        return Table(rows, head, title, notes, form="<  .")


def helper_calls(helper: str, lengths: Sequence[int], steps: int, features: int, device: Any = "cpu") -> Comparison:
    """Returns a helper and what it is compared with: all give the same result, then its gradient if it has one."""
    x = torch.randn(steps, len(lengths), features).to(device).requires_grad_()
    n = torch.tensor(lengths)
    packed = pack_padded_sequence(x.detach(), n, enforce_sorted=False)
    data = packed.data.requires_grad_()
    sizes, back = packed.batch_sizes.tolist(), cast(Any, packed.unsorted_indices)

    def mask_loop() -> Any:
        mask = torch.zeros(len(lengths), steps, dtype=torch.bool, device=device)
        for b, length in enumerate(lengths):
            mask[b, :length] = True
        return mask

    def loss_loop() -> Any:
        total = x.new_zeros(())
        for b, length in enumerate(lengths):
            total = total + x[:length, b].sum()
        return total / (sum(lengths) * features)

    def align_loop() -> Any:
        out = torch.zeros_like(x)
        for b, length in enumerate(lengths):
            out[steps - length :, b] = x[:length, b]
        return out

    def unpack_loop() -> Any:
        out, start = data.new_zeros(steps, len(lengths), features), 0
        for t, size in enumerate(sizes):
            out[t, :size] = data[start : start + size]
            start += size
        return out.index_select(1, back)

    def unpack() -> Any:
        return packing.unpack_to_length(packed._replace(data=data), steps)

    def torchs_unpack() -> Any:
        return pad_packed_sequence(packed._replace(data=data), total_length=steps)[0]

    calls: dict[str, Callable[[], Any]]
    calls, leaf = {
        "real_mask": ({HELPER: lambda: masks.real_mask(n.to(device), steps), LOOP: mask_loop}, None),
        "masked_loss": ({HELPER: lambda: masks.masked_loss(x, n), LOOP: loss_loop}, x),
        "align": ({HELPER: lambda: masks.align(x, n, padding_side="left"), LOOP: align_loop}, x),
        "unpack_to_length": ({HELPER: unpack, LOOP: unpack_loop, TORCH: torchs_unpack}, data),
    }[helper]
    if leaf is not None:
        calls = {name: one_pass(forward, [leaf]) for name, forward in calls.items()}
    return Comparison(calls, alike=list(calls))


def _time_helper(point: HelperPoint, how: MeasureOptions) -> Timing:
    """The helper against its loop."""
    lengths = uniform(point.batch, point.steps).tolist()
    return timed(helper_calls(point.helper, lengths, point.steps, point.features, how.device), how)


STUDY = Study(
    "helpers",
    HelperPoint,
    _time_helper,
    Helpers,
    full=[HelperPoint(name) for name in NAMES],
    quick=[HelperPoint(name, 16, 64) for name in NAMES],
    parameters={"rounds": 31},
    version=2,
)
run, recorded = STUDY.run, STUDY.load
