"""An experiment: the same FLOPs saved, from few and from many distinct lengths. Is the same time saved?

All batches have the same size, the same padded width and the same number of real cells, so packing saves the same FLOPs
on each. They differ in how many distinct lengths they have. One training step (forward and backward) is timed: padded,
and packed (pack, RNN, pad) for each batch. The input needs a gradient, as it does after an embedding.

`python -m packviz.studies.savings --out notebooks/recorded/savings_cpu.json` makes the recorded file.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from packviz.bench.command import in_a_line
from packviz.bench.machine import check_device
from packviz.bench.timing import Timing, measure
from packviz.core import files as recorded
from packviz.core.layout import Layout
from packviz.core.lengths import even_steps
from packviz.count.flops import Ledger, Spec, flops
from packviz.draw.text import milliseconds

PADDED = "padded"
_KIND, _VERSION = "savings", 1


@dataclass(frozen=True, repr=False)
class Savings:
    """FLOPs and time of one training step, padded and packed, at the same number of real cells.

    Attributes:
        spec: the RNN.
        size: sequences, and time steps of the padded batch.
        distinct: the numbers of distinct lengths that were packed.
        timing: under `"padded"`, and under `name(d)` for each `d` of `distinct`.
    """

    spec: Spec
    size: int
    distinct: tuple[int, ...]
    timing: Timing

    def ledger(self, distinct: int) -> Ledger:
        """The FLOPs of the batch with so many distinct lengths."""
        return flops(self.spec, Layout(even_steps(distinct, self.size)), input_grad=True)

    @property
    def flops(self) -> dict[str, int]:
        """GEMM FLOPs of a training step, by the names of `timing`."""
        packed = {name(d): self.ledger(d).training.packed for d in self.distinct}
        return {PADDED: self.ledger(self.distinct[0]).training.padded} | packed

    def verdict(self) -> str:
        """What the measurement says of FLOPs and time; it depends on nothing but the numbers."""
        counts, few, many = self.flops, name(self.distinct[0]), name(self.distinct[-1])
        share = counts[few] / counts[PADDED]
        lines = [f"Packed, every batch takes {share:.3g} times the padded FLOPs."]
        lines += [f"{self.timing.ratio(one, to)}." for one, to in ((few, PADDED), (many, PADDED), (many, few))]
        place = self.timing.provenance
        where = f"{place.get('device_name')}, torch {place.get('torch')}, torch threads: {place.get('threads')}"
        load = (
            f", load average {place['load_average'][0]} on {place['cores']} cores" if place.get("load_average") else ""
        )
        return "\n".join([*lines, f"Measured on {where}; {self.timing.rounds} interleaved rounds{load}."])

    def to_text(self) -> str:
        """FLOPs and milliseconds side by side, and the verdict."""
        layout = Layout(even_steps(self.distinct[0], self.size))
        lines = [
            f"{self.spec}, one training step. {layout.batch_size} sequences padded to {layout.max_len} time steps,"
            f" {layout.n_valid:,} of {layout.n_cells:,} cells real in every batch.",
            "In parentheses: how many distinct lengths a batch has.",
            f"{'':21}{'GFLOP':>8}{'ms':>9}  quartiles",
        ]
        for one, count in self.flops.items():
            middle, low, high = map(milliseconds, (self.timing.median(one), *self.timing.quartiles(one)))
            lines.append(f"{one:21}{count / 1e9:8.3g}{middle:>9}  {low} to {high}")
        return "\n".join([*lines, self.verdict()])

    def __repr__(self) -> str:
        return self.to_text()


def name(distinct: int) -> str:
    """What a batch with so many distinct lengths is called."""
    return f"packed ({distinct} lengths)"


def race(
    mode: str = "GRU",
    *,
    distinct: Sequence[int] = (2, 4, 8, 64),
    size: int = 64,
    input_size: int = 32,
    hidden_size: int = 32,
    rounds: int = 11,
    threads: int = 1,
    device: Any = "cpu",
    progress: Callable[[int, int], object] = lambda done, all: None,
    stop: Callable[[], bool] = lambda: False,
) -> Savings:
    """Runs the experiment with one RNN.

    Args:
        mode: `"RNN"`, `"GRU"` or `"LSTM"`.
        distinct: the numbers of distinct lengths to compare, each as `even_steps` takes it.
        size: sequences, and time steps of the padded batch.
        input_size: of the RNN.
        hidden_size: of the RNN.
        rounds: timed rounds.
        threads: torch's CPU threads meanwhile. More than one gain little on products this small, and on a machine that
            is shared they wait for each other.
        device: where to run.
        progress: see `measure`.
        stop: see `measure`.
    """
    import torch  # noqa: PLC0415
    from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence  # noqa: PLC0415

    spec = Spec(mode, input_size, hidden_size)
    with torch.random.fork_rng():  # the caller's random numbers stay the caller's
        torch.manual_seed(0)
        rnn = getattr(torch.nn, spec.mode)(input_size, hidden_size).to(device)
        x = torch.randn(size, size, input_size, device=device).requires_grad_()

    def padded() -> None:
        rnn(x)[0].sum().backward()

    def packed(lengths: Any) -> None:
        output, _ = rnn(pack_padded_sequence(x, lengths))
        pad_packed_sequence(output)[0].sum().backward()  # type: ignore[no-untyped-call]

    def clear() -> None:
        x.grad = None
        rnn.zero_grad()

    def call(d: int) -> Callable[[], None]:
        lengths = torch.tensor(even_steps(d, size))
        return lambda: packed(lengths)

    calls: dict[str, Callable[[], object]] = {PADDED: padded, **{name(d): call(d) for d in distinct}}
    parameters = {"mode": mode, "size": size, "input_size": input_size, "hidden_size": hidden_size}
    threads_before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        timing = measure(
            calls,
            rounds=rounds,
            device=device,
            before=dict.fromkeys(calls, clear),
            progress=progress,
            stop=stop,
            parameters=parameters | {"distinct": list(distinct), "rounds": rounds},
        )
    finally:
        torch.set_num_threads(threads_before)
    return Savings(spec, size, tuple(distinct), timing)


def save(path: str, races: Sequence[Savings]) -> None:
    """Writes races to a result file: schema `savings`, version 1, is a list `races` of what `Timing.to_dict` gives."""
    recorded.save(path, _KIND, _VERSION, {"races": [race.timing.to_dict() for race in races]})


def load(path: str) -> list[Savings]:
    """Reads what `save` wrote.

    Raises:
        ValueError: there is no such file, or it holds something else.
    """
    return [_from_dict(data) for data in recorded.load(path, _KIND, _VERSION)["races"]]


def _from_dict(data: Mapping[str, Any]) -> Savings:
    timing = Timing.from_dict(data)
    p = timing.provenance["parameters"]
    return Savings(Spec(p["mode"], p["input_size"], p["hidden_size"]), p["size"], tuple(p["distinct"]), timing)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures GRU and LSTM at full size, and writes the file."""
    parser = argparse.ArgumentParser(prog="python -m packviz.studies.savings", description=main.__doc__)
    parser.add_argument("--out", required=True, help="the file to write")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--size", type=int, default=256, help="sequences, and time steps")
    parser.add_argument("--distinct", type=int, nargs="+", default=[2, 4, 16, 256])
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args(arguments)
    races = []
    with in_a_line(parser):
        device = check_device(options.device)
        for mode in ("GRU", "LSTM"):
            measured = race(
                mode,
                distinct=options.distinct,
                size=options.size,
                rounds=options.rounds,
                device=device,
                progress=lambda done, of, mode=mode: print(f"\r{mode}: round {done} of {of}", end="", flush=True),  # type: ignore[misc]
            )
            print(f"\r{measured}\n", flush=True)
            races.append(measured)
    save(options.out, races)


if __name__ == "__main__":
    main()
