"""Measures padded and packed runs over a grid of batches, to test heuristics for packing.

Each batch is run padded and packed (pack, RNN, pad), both in training and in the forward pass
alone. The grid covers several kinds of RNN, several sizes, and several distributions of lengths.
`packviz.studies.rules` compares the choices of rules with the faster method. (Padded results differ
from packed ones, as notebook 03 shows, but only the time counts here.)

`packviz study heuristics --out notebooks/recorded/heuristics_cpu.json` makes the recorded file in
about four minutes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import torch

from packviz.core.layout import Layout
from packviz.core.lengths import DISTRIBUTIONS
from packviz.core.spec import Spec
from packviz.draw.text import table
from packviz.measure import rnn_calls
from packviz.measure.study import Comparison, MeasureOptions, Results, Study, timed
from packviz.measure.timing import Ratio

PADDED, PACKED = "padded", "packed"

KINDS = ("equal", "nearly equal", "uniform", "log-normal")
"""The distributions of lengths, by their names in `packviz.core.lengths.DISTRIBUTIONS`."""


@dataclass(frozen=True)
class GridPoint:
    """One RNN, one batch and one pass.

    Attributes:
        mode: the kind of RNN, `"LSTM"`, `"GRU"` or `"RNN"`.
        training: True for the forward and backward pass, False for the forward pass alone.
        batch_size: number of sequences.
        longest: the largest length that may be drawn.
        size: the `input_size` and the `hidden_size` of the RNN, which are equal.
        kind: the distribution of the lengths, one of `KINDS`.
    """

    mode: str
    training: bool
    batch_size: int
    longest: int
    size: int
    kind: str

    def __str__(self) -> str:
        which = "training" if self.training else "forward"
        return f"{self.spec}, {which}, {self.kind}, {self.batch_size} × {self.longest}"

    @cached_property
    def layout(self) -> Layout:
        """The lengths of the batch."""
        return Layout(DISTRIBUTIONS[self.kind](self.batch_size, self.longest, 0))

    @property
    def spec(self) -> Spec:
        """The kind and the sizes of the RNN."""
        return Spec(self.mode, self.size, self.size)


def grid(
    modes: Sequence[str] = ("LSTM", "GRU", "RNN"),
    batch_sizes: Sequence[int] = (4, 16, 64),
    longest: Sequence[int] = (16, 64, 256),
    sizes: Sequence[int] = (32, 128),
    kinds: Sequence[str] = KINDS,
) -> list[GridPoint]:
    """Returns the points for all combinations of these values, in both passes."""
    return [
        GridPoint(*fields)
        for fields in product(modes, (True, False), batch_sizes, longest, sizes, kinds)
    ]


LARGE = [
    *grid(modes=("LSTM",), batch_sizes=(16, 64), longest=(64,), sizes=(256, 512, 1024)),
    *grid(modes=("GRU",), batch_sizes=(16,), longest=(64,), sizes=(256, 512, 1024)),
]
"""Points with large sizes, where matrix products take most of the time. There are few, because each takes seconds."""


@dataclass(frozen=True)
class Case(GridPoint):
    """A point with its measurement.

    Attributes:
        seconds: the median times by method, `"padded"` and `"packed"`.
        ratio: the packed time as a multiple of the padded time, compared round by round.
    """

    seconds: Mapping[str, float]
    ratio: Ratio

    @property
    def faster(self) -> str | None:
        """The faster method, `"padded"` or `"packed"`, or `None` if the two are not told apart.

        They are told apart if the factor between their times is larger than the factor between the
        ratio's quartiles.
        """
        ratio = self.ratio
        if ratio.high / ratio.low >= max(ratio.value, 1 / ratio.value):
            return None
        return PACKED if ratio.value < 1 else PADDED

    def slowdown(self, packs: bool) -> float:
        """Returns the time of a choice, packed or not, as a multiple of the time of the better choice."""
        packed_over_padded = self.ratio.value
        return max(packed_over_padded if packs else 1 / packed_over_padded, 1.0)


class Measured(Results[GridPoint, Case]):
    """The cases of a grid."""

    @property
    def cases(self) -> tuple[Case, ...]:
        """All cases, point by point."""
        return tuple(self.values.values())

    def of(self, mode: str | None = None, training: bool | None = None) -> tuple[Case, ...]:
        """Returns the cases of one kind of RNN and one pass. By default, it returns all cases."""
        return tuple(
            c for c in self.cases if mode in (None, c.mode) and training in (None, c.training)
        )

    def to_text(self) -> str:
        """Returns a table that counts how often each method was faster, by kind of RNN and pass."""
        rows = [["", "cases", "packed faster", "padded faster", "not told apart"]]
        for mode, training in dict.fromkeys((c.mode, c.training) for c in self.cases):
            some = self.of(mode, training)
            counts = [
                len(some),
                *(sum(c.faster == which for c in some) for which in (PACKED, PADDED, None)),
            ]
            rows.append([f"{mode}, {'training' if training else 'forward'}", *map(str, counts)])
        return "\n".join([*table(rows, "<18>6>15>15>16"), f"Measured on {self.caption}."])


def padded_and_packed(
    spec: Spec, layout: Layout, training: bool, device: Any = "cpu"
) -> Comparison:
    """Returns the comparison of a padded and a packed run.

    Each run returns the output, `(T, B, H)`. In training, it also returns the gradients of `x` and
    all weights. In the forward pass alone, it also returns the final states.
    """
    rnn = rnn_calls.rnn_of(spec).to(device)
    x = torch.randn(
        layout.max_len, layout.batch_size, spec.input_size, device=device
    ).requires_grad_(training)
    lengths, leaves = torch.tensor(layout.lengths), [x, *rnn.parameters()]
    runs = {PADDED: lambda: rnn(x), PACKED: lambda: rnn_calls.packed(rnn, x, lengths)}
    return Comparison(
        {name: rnn_calls.one_pass(run, leaves, training) for name, run in runs.items()}
    )


def _time_case(point: GridPoint, how: MeasureOptions) -> Case:
    """Times the batch padded and packed."""
    timing = timed(
        padded_and_packed(point.spec, point.layout, point.training, how.device), how, warmup=2
    )
    seconds = {name: timing.median(name) for name in timing.seconds}
    return Case(**dataclasses.asdict(point), seconds=seconds, ratio=timing.ratio(PACKED, PADDED))


def _read(point: GridPoint, entry: Mapping[str, Any]) -> Case:
    seconds = {name: entry[name] for name in (PADDED, PACKED)}
    value, low, high = entry["ratio"]
    ratio = Ratio(PACKED, PADDED, value, low, high, entry["rounds"])
    return Case(**dataclasses.asdict(point), seconds=seconds, ratio=ratio)


def _write(case: Case) -> dict[str, Any]:
    """Returns the median times in seconds and the ratio's median and quartiles, all with four significant digits."""
    numbers = [*case.seconds.values(), case.ratio.value, case.ratio.low, case.ratio.high]
    padded, packed, *ratio = (float(f"{number:.4g}") for number in numbers)
    return {PADDED: padded, PACKED: packed, "ratio": ratio, "rounds": case.ratio.rounds}


STUDY = Study(
    "heuristics",
    GridPoint,
    _time_case,
    Measured,
    full=[*grid(), *LARGE],
    quick=grid(modes=("LSTM", "GRU"), batch_sizes=(4, 32), longest=(32,), sizes=(32,)),
    parameters={"rounds": 7},
    read=_read,
    write=_write,
    version=2,
)
run, recorded = STUDY.run, STUDY.load
