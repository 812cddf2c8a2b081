"""The race of the everyday helpers against a plain loop over the sequences.

Mask: making it. The others: forward and backward, with a gradient of ones. The unpacking also races torch's own.

`packviz study helpers --out notebooks/recorded/helpers_cpu.json` makes the recorded file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from packviz.bench.study import Contest, How, Study, Timings, timed
from packviz.bench.timing import Timing
from packviz.core.lengths import uniform

HELPER, LOOP, TORCH = "helper", "loop", "torch"
NAMES = ("padding_mask", "masked_loss", "align", "unpack_to_length")


@dataclass(frozen=True)
class Point:
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
    def said(self) -> str:
        """The batch in words."""
        return f"{self.batch} sequences of 1 to {self.steps} time steps, {self.features} features"


class Helpers(Timings[Point]):
    """The `Timing` of `"helper"`, `"loop"` and, where there is one, `"torch"`, for every helper."""

    def faster(self, point: Point, than: str = LOOP) -> float:
        """How many times as long the other takes as the helper: the median over the rounds."""
        return self.ratio(point, than, HELPER).value

    def to_text(self) -> str:
        """A line per helper with median times in milliseconds, and how many times as long the others take."""
        lines: list[str] = []
        batch = ""
        for point, timing in self.values.items():
            if point.said != batch:
                batch = point.said
                lines += [batch, f"{'':18}{'helper ms':>10}{'loop ms':>9}   how many times as long"]
            others = [timing.ratio(other, HELPER) for other in timing.seconds if other != HELPER]
            said = ", ".join(f"{r.name} {r.value:.2g}{'' if r.is_clear else ' (not clear)'}" for r in others)
            helper, loop = (1e3 * timing.median(one) for one in (HELPER, LOOP))
            lines.append(f"{point.helper:18}{helper:10.2g}{loop:9.2g}   {said}")
        rounds = max((timing.rounds for timing in self.values.values()), default=0)
        return "\n".join([*lines, f"Measured on {self.machine}, {rounds} interleaved rounds."])


def contest(helper: str, lengths: Sequence[int], steps: int, features: int, device: Any = "cpu") -> Contest:
    """A helper and those it races: all give the same result, then its gradient if it has one."""
    import torch  # noqa: PLC0415
    from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence  # noqa: PLC0415

    from packviz.bench.ways import training  # noqa: PLC0415
    from packviz.ops import masks  # noqa: PLC0415

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

    def torchs_unpack() -> Any:
        return pad_packed_sequence(packed._replace(data=data), total_length=steps)[0]

    if helper == "padding_mask":
        calls: dict[str, Callable[[], Any]] = {HELPER: lambda: masks.padding_mask(n.to(device), steps), LOOP: mask_loop}
        return Contest(calls, alike=list(calls))
    forwards: dict[str, Callable[[], Any]]
    forwards, leaf = {
        "masked_loss": ({HELPER: lambda: masks.masked_loss(x, n), LOOP: loss_loop}, x),
        "align": ({HELPER: lambda: masks.align(x, n, "right"), LOOP: align_loop}, x),
        "unpack_to_length": (
            {
                HELPER: lambda: masks.unpack_to_length(packed._replace(data=data), steps),
                LOOP: unpack_loop,
                TORCH: torchs_unpack,
            },
            data,
        ),
    }[helper]
    calls = {name: training(forward, [leaf]) for name, forward in forwards.items()}
    return Contest(calls, alike=list(calls))


def measure(point: Point, how: How) -> Timing:
    """The helper against its loop."""
    lengths = uniform(point.batch, point.steps).tolist()
    return timed(contest(point.helper, lengths, point.steps, point.features, how.device), how)


STUDY = Study(
    "helpers",
    Point,
    measure,
    Helpers,
    full=[Point(name) for name in NAMES],
    quick=[Point(name, 16, 64) for name in NAMES],
    parameters={"rounds": 31},
    version=2,
)
run, recorded = STUDY.run, STUDY.load
