"""Rules of thumb for packing, held against measurements over a grid of batches.

One batch is run padded and packed (pack, RNN, pad), forward and backward or forward alone, for several kinds of RNN,
sizes and lengths. Which was faster? And what would a rule have chosen? (Padded results are not the packed ones: see
notebook 04. Here only time counts.)

`python -m packviz.studies.thumb --out notebooks/recorded/thumb_cpu.json` makes the recorded file, in
about four minutes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

from packviz.bench.command import in_a_line
from packviz.bench.machine import check_device
from packviz.bench.timing import Ratio, measure
from packviz.core import files as recorded
from packviz.core.layout import Layout
from packviz.core.lengths import DISTRIBUTIONS
from packviz.core.spec import Spec

PADDED, PACKED = "padded", "packed"
_KIND, _VERSION = "thumb", 1


KINDS = ("equal", "nearly equal", "uniform", "log-normal")
"""Where the lengths of a case come from: keys of `packviz.core.lengths.DISTRIBUTIONS`."""


@dataclass(frozen=True)
class Grid:
    """Sizes to combine, each with each."""

    modes: Sequence[str] = ("LSTM", "GRU", "RNN")
    training: Sequence[bool] = (True, False)
    batch_sizes: Sequence[int] = (4, 16, 64)
    longest: Sequence[int] = (16, 64, 256)
    sizes: Sequence[int] = (32, 128)
    kinds: Sequence[str] = KINDS

    def __iter__(self) -> Iterator[tuple[str, bool, int, int, int, str]]:
        return product(self.modes, self.training, self.batch_sizes, self.longest, self.sizes, self.kinds)

    def __len__(self) -> int:
        return sum(1 for _ in self)


QUICK = Grid(modes=("LSTM", "GRU"), batch_sizes=(4, 32), longest=(32,), sizes=(32,))
"""A grid of seconds."""


@dataclass(frozen=True)
class Case:
    """One batch and one RNN, and what was measured.

    Attributes:
        mode: `"LSTM"`, `"GRU"` or `"RNN"`.
        training: forward and backward; else forward alone.
        batch_size: sequences.
        longest: the upper end of the lengths.
        size: both `input_size` and `hidden_size` of the RNN.
        kind: of the lengths, one of `KINDS`.
        seconds: median times, padded and packed.
        ratio: packed over padded, within rounds.
    """

    mode: str
    training: bool
    batch_size: int
    longest: int
    size: int
    kind: str
    seconds: Mapping[str, float]
    ratio: Ratio

    @cached_property
    def layout(self) -> Layout:
        """The batch."""
        return Layout(DISTRIBUTIONS[self.kind](self.batch_size, self.longest, 0))

    @property
    def spec(self) -> Spec:
        """The RNN."""
        return Spec(self.mode, self.size, self.size)

    @property
    def faster(self) -> str | None:
        """`"padded"` or `"packed"`; none where the measurement does not tell them apart."""
        if not self.ratio.is_clear:
            return None
        return PACKED if self.ratio.value < 1 else PADDED

    def slowdown(self, packs: bool) -> float:
        """How many times as long this choice takes as the better one."""
        packed_over_padded = self.ratio.value
        return max(packed_over_padded if packs else 1 / packed_over_padded, 1.0)


@dataclass(frozen=True, repr=False)
class Measured:
    """The cases of a grid, and what they were measured on."""

    cases: tuple[Case, ...]
    provenance: Mapping[str, Any]

    def of(self, mode: str | None = None, training: bool | None = None) -> tuple[Case, ...]:
        """The cases of one kind of RNN, or of training or not."""
        return tuple(c for c in self.cases if mode in (None, c.mode) and training in (None, c.training))

    def to_text(self) -> str:
        """How often packing was faster, by kind of RNN and pass."""
        lines = [f"{'':18}{'cases':>6}{'packed faster':>15}{'padded faster':>15}{'not told apart':>16}"]
        for mode, training in dict.fromkeys((c.mode, c.training) for c in self.cases):
            some = self.of(mode, training)
            counts = [sum(c.faster == which for c in some) for which in (PACKED, PADDED, None)]
            name = f"{mode}, {'training' if training else 'forward'}"
            lines.append(f"{name:18}{len(some):6}{counts[0]:15}{counts[1]:15}{counts[2]:16}")
        place = self.provenance
        lines.append(f"Measured on {place['device_name']}, torch {place['torch']}, torch threads: {place['threads']}.")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return self.to_text()


def race(
    grid: Grid = QUICK,
    *,
    rounds: int = 5,
    threads: int = 1,
    device: Any = "cpu",
    progress: Callable[[int, int], object] = lambda done, all: None,
    stop: Callable[[], bool] = lambda: False,
) -> Measured:
    """Times every case of a grid, padded against packed.

    Args:
        grid: the cases.
        rounds: timed rounds of each.
        threads: torch's CPU threads meanwhile.
        device: where to run.
        progress: called after every case with the cases done and the cases in all.
        stop: see `measure`; what is complete by then is kept.

    Raises:
        ValueError: it was stopped before the first case was complete.
    """
    import torch  # noqa: PLC0415

    threads_before, cases, place = torch.get_num_threads(), [], {}
    torch.set_num_threads(threads)
    try:
        for done, sizes in enumerate(grid, 1):
            mode, training, batch_size, longest, size, kind = sizes
            layout = Layout(DISTRIBUTIONS[kind](batch_size, longest, 0))
            calls = contestants(Spec(mode, size, size), layout, training, device)
            timing = measure(calls, rounds=rounds, warmup=2, device=device, stop=stop)
            if timing.stopped:
                break
            medians = {name: timing.median(name) for name in calls}
            cases.append(Case(*sizes, medians, timing.ratio(PACKED, PADDED)))
            place = dict(timing.provenance)
            progress(done, len(grid))
    finally:
        torch.set_num_threads(threads_before)
    if not cases:
        raise ValueError("stopped before the first case was complete")
    place["parameters"] = {"cases": len(cases), "rounds": rounds}
    place.pop("page_faults_per_round", None)
    return Measured(tuple(cases), place)


def contestants(spec: Spec, layout: Layout, training: bool, device: Any = "cpu") -> dict[str, Callable[[], Any]]:
    """The batch padded and packed, as functions that return the outputs `(T, B, H)`, after their gradients if any."""
    import torch  # noqa: PLC0415
    from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence  # noqa: PLC0415

    with torch.random.fork_rng():  # the caller's random numbers stay the caller's
        torch.manual_seed(0)
        rnn = getattr(torch.nn, spec.mode)(spec.input_size, spec.hidden_size).to(device)
        x = torch.randn(layout.max_len, layout.batch_size, spec.input_size, device=device).requires_grad_(training)
    wanted, lengths = [x, *rnn.parameters()], torch.tensor(layout.lengths)

    def run(forward: Callable[[], Any]) -> Callable[[], Any]:
        def call() -> Any:
            with torch.set_grad_enabled(training):
                output = forward()
                if training:
                    torch.autograd.grad(output.sum(), wanted)
                return output

        return call

    def packed() -> Any:
        output, _ = rnn(pack_padded_sequence(x, lengths, enforce_sorted=False))
        return pad_packed_sequence(output)[0]

    return {PADDED: run(lambda: rnn(x)[0]), PACKED: run(packed)}


_FIELDS = ("mode", "training", "batch_size", "longest", "size", "kind")


def save(path: str, measured: Measured) -> None:
    """Writes a result file: schema `thumb`, version 1.

    Under `cases` a list of objects: the fields of a `Case`, with `padded` and `packed` in seconds, and in `ratio`
    median and quartiles. Four digits: more would be noise.
    """
    cases = []
    for c in measured.cases:
        numbers = [*c.seconds.values(), c.ratio.value, c.ratio.low, c.ratio.high]
        padded, packed, *ratio = (float(f"{number:.4g}") for number in numbers)
        cases.append({name: getattr(c, name) for name in _FIELDS} | {PADDED: padded, PACKED: packed, "ratio": ratio})
    recorded.save(path, _KIND, _VERSION, {"provenance": measured.provenance, "cases": cases})


def load(path: str) -> Measured:
    """Reads what `save` wrote.

    Raises:
        ValueError: there is no such file, or it holds something else.
    """
    data = recorded.load(path, _KIND, _VERSION)
    rounds = data["provenance"]["parameters"]["rounds"]
    cases = [
        Case(
            **{name: c[name] for name in _FIELDS},
            seconds={PADDED: c[PADDED], PACKED: c[PACKED]},
            ratio=Ratio(PACKED, PADDED, *(*c["ratio"], rounds)),
        )
        for c in data["cases"]
    ]
    return Measured(tuple(cases), data["provenance"])


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures the whole grid, and writes the file."""
    parser = argparse.ArgumentParser(prog="python -m packviz.studies.thumb", description=main.__doc__)
    parser.add_argument("--out", required=True, help="the file to write")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="a small grid")
    options = parser.parse_args(arguments)
    with in_a_line(parser):
        measured = race(
            QUICK if options.quick else Grid(),
            rounds=options.rounds,
            device=check_device(options.device),
            progress=lambda done, of: print(f"\rcase {done} of {of}", end="", flush=True),
        )
    print(f"\r{measured}", flush=True)
    save(options.out, measured)


if __name__ == "__main__":
    main()
