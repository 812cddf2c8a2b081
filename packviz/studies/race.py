"""The race: torch padded, torch packed, and every method of `pv.run`, at named points.

A point is an RNN and a batch. At each, all are timed against each other in two passes: *training* (forward and
backward, with a gradient of ones, to the input and all weights) and *forward* (without a graph for autograd). Before a
point is timed, the results and gradients of all methods are held against torch's packed ones. torch padded is timed as
a measure of speed only: its states are read after the padding, and so are wrong.

What is built once for a batch's lengths (indices, the choice of `auto`) is forgotten before every call, because in
training every batch has lengths of its own.

Some points have no RNN: there torch's packing and padding alone race packviz's, and *copy* is one copy of the padded
tensor.

A result file is JSON: schema `race`, version 1. Under `provenance` what it was measured on; under `points`, for each,
its sizes and, by pass, what `Timing.to_dict` gives.

`python -m packviz.studies.race --out notebooks/recorded/race_cpu.json` makes the recorded file, and goes on
with one that is not complete.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from packviz.bench.command import in_a_line
from packviz.bench.machine import calm_allocator, check_device, provenance
from packviz.bench.timing import Timing, measure
from packviz.core import files as recorded
from packviz.core import lengths
from packviz.core.layout import IntArray
from packviz.draw.text import milliseconds

PADDED, PACKED, AUTO = "torch padded", "torch packed", "auto"
METHODS = (AUTO, "padded", "packed", "split", "staircase")
OURS, COPY = "packviz", "copy"
PASSES = {"training": "forward and backward pass", "forward": "forward pass"}
_KIND, _VERSION = "race", 1
_TOLERANCE = 2e-4  # of float32 gradients, which are sums of many terms


LENGTHS: dict[str, Callable[[int, int, int], IntArray]] = {
    **lengths.DISTRIBUTIONS,
    "log-normal": partial(lengths.log_normal, median=math.exp(3)),
}
"""Those of `packviz.core.lengths`, but the median of the log-normal ones is 20, however wide the batch is."""


@dataclass(frozen=True)
class Point:
    """An RNN and a batch.

    Attributes:
        mode: `"LSTM"`, `"GRU"` or `"RNN"`, or `"none"` to pack and pad only.
        lengths: a key of `LENGTHS`.
        batch_size: `B`.
        steps: `T`, the width of the padded batch; its longest sequence may be shorter.
        input_size: `I`.
        hidden_size: `H`.
        directions: 1 or 2.
    """

    mode: str
    lengths: str
    batch_size: int
    steps: int
    input_size: int
    hidden_size: int
    directions: int = 1

    @property
    def name(self) -> str:
        """What it is called, as in `LSTM(16, 32), triangle, 512 × 512`."""
        sizes = f"({self.input_size}, {self.hidden_size}{', two directions' if self.directions == 2 else ''})"
        rnn = f"pack and pad, {self.hidden_size} features" if self.mode == "none" else f"{self.mode}{sizes}"
        return f"{rnn}, {self.lengths}, {self.batch_size} × {self.steps}"

    def drawn(self) -> list[int]:
        """`(B,)` its lengths, in no particular order (longest first where nothing but packing is timed)."""
        n = np.sort(LENGTHS[self.lengths](self.batch_size, self.steps, 0))[::-1]
        if self.mode != "none":
            n = np.random.default_rng(1).permutation(n)
        return [int(length) for length in n]


_MODES = ("LSTM", "GRU", "RNN")
_KINDS = ("evenly", "uniform", "log-normal", "nearly equal", "sentences", "equal")
_WIDTHS = {"log-normal": 96, "sentences": 32}  # 64 such lengths are about so long; all others reach 128
POINTS = (
    *(Point("none", "triangle", 512, steps, 32, 32) for steps in (128, 256, 512)),
    *(Point("none", "equal", b, steps, 32, 32) for b, steps in ((512, 512), (8, 32))),
    Point("none", "triangle", 8, 32, 32, 32),
    *(Point("LSTM", kind, 512, steps, 16, 32) for steps in (128, 512) for kind in ("equal", "triangle")),
    Point("LSTM", "evenly", 128, 200, 128, 256),
    Point("LSTM", "log-normal", 64, 200, 128, 256),
    Point("LSTM", "log-normal", 64, 200, 64, 128),
    *(Point(m, k, 64, _WIDTHS.get(k, 128), 32, 64) for m in _MODES for k in _KINDS),
    *(Point(m, k, 8, 32, 16, 16) for m in _MODES for k in ("uniform", "equal")),
    *(Point(m, "uniform", 32, 64, 256, 512) for m in _MODES),
    *(Point(m, k, 64, 64, 32, 64, 2) for m in _MODES for k in ("uniform", "nearly equal")),
    *(Point(m, "uniform", 512, 64, 16, 32) for m in _MODES),
    *(Point(m, "uniform", 8, 512, 32, 64) for m in _MODES),
)


@dataclass(frozen=True, repr=False)
class Race:
    """What a race found.

    Attributes:
        provenance: what it was measured on, as plain data.
        timings: by point and pass, the `Timing` of everybody who took part.
    """

    provenance: Mapping[str, Any]
    timings: Mapping[Point, Mapping[str, Timing]]

    @property
    def points(self) -> list[Point]:
        """Those with an RNN."""
        return [point for point in self.timings if point.mode != "none"]

    def ratio(self, point: Point, name: str, to: str, which: str = "training") -> float:
        """How many times as long one takes as another: the median over the rounds.

        Raises:
            ValueError: one of them did not take part.
        """
        return self.timings[point][which].ratio(name, to).value

    def best(self, point: Point, which: str = "training") -> str:
        """The fastest of those whose results are right, `auto` apart: it only chooses among them."""
        timing = self.timings[point][which]
        return min((name for name in timing.seconds if name not in (PADDED, AUTO)), key=timing.median)

    def misses(self, which: str = "training") -> dict[str, list[Point]]:
        """By what `auto` aims at, the points where it misses."""
        every = self.points
        slow = [p for p in every if self.timings[p][which].median(PADDED) > 5e-3]
        return {
            "within 10 % of the best method": [
                p for p in every if self.ratio(p, AUTO, self.best(p, which), which) > 1.1
            ],
            "at most 1.05 times torch packed": [p for p in every if self.ratio(p, AUTO, PACKED, which) > 1.05],
            "at most 1.15 times torch padded where that takes over 5 ms": [
                p for p in slow if self.ratio(p, AUTO, PADDED, which) > 1.15
            ],
        }

    def verdict(self) -> str:
        """What `auto` aims at, and where it misses."""
        lines = []
        for which, said in PASSES.items() if self.points else ():
            for aim, missed in self.misses(which).items():
                where = "; ".join(point.name for point in missed)
                lines.append(f"{said}, auto {aim}: missed at {len(missed)} of {len(self.points)} points")
                lines[-1] += f" ({where})" if missed else ""
        return "\n".join(lines)

    def to_text(self) -> str:
        """For every point and pass the times, the best method, and the verdict."""
        lines = []
        for which, said in PASSES.items():
            lines.append(f"{said}, ms")
            for point, timings in self.timings.items():
                timing = timings[which]
                times = ", ".join(f"{name} {milliseconds(timing.median(name))}" for name in timing.seconds)
                best = f"; best: {self.best(point, which)}" if point.mode != "none" else ""
                lines.append(f"  {point.name}: {times}{best}")
        place = self.provenance
        where = f"{place.get('device_name')}, torch {place.get('torch')}, torch threads: {place.get('threads')}"
        return "\n".join([*lines, self.verdict(), f"Measured on {where}, {str(place.get('date'))[:10]}."])

    def __repr__(self) -> str:
        return self.to_text()


def race(
    points: Sequence[Point] = POINTS,
    *,
    device: Any = "cpu",
    threads: int = 1,
    budget: float = 8.0,
    start: Race | None = None,
) -> Iterator[Race]:
    """Races at every point.

    Args:
        points: where.
        device: where to run.
        threads: torch's CPU threads meanwhile.
        budget: seconds for the training pass of a point, and half of it for the forward pass: at least 3 rounds are
            timed whatever they take, and at most 25.
        start: a race to go on with; its points are kept.

    Yields:
        The race so far, after every point.

    Raises:
        RuntimeError: a method gives other results than torch packed: there is nothing to time.
        ValueError: `start` was measured on another machine or otherwise.
    """
    import torch  # noqa: PLC0415

    threads_before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        if torch.device(device).type == "cpu":
            calm_allocator()
        place = provenance(device, {"budget": budget})
        found = start or Race(place, {})
        for key in ("device_name", "torch", "threads", "parameters"):
            if found.provenance.get(key) != place[key]:
                raise ValueError(f"start was measured with {key} {found.provenance.get(key)}, not {place[key]}")
        for point in points:
            if point not in found.timings:
                timings = {which: _measure(point, which, device, budget) for which in PASSES}
                found = dataclasses.replace(found, timings={**found.timings, point: timings})
                yield found
    finally:
        torch.set_num_threads(threads_before)


def _measure(point: Point, which: str, device: Any, budget: float) -> Timing:
    """Everybody at a point, in one pass."""
    calls, clear = _contestants(point, which, device)
    took = {}
    for name, call in calls.items():
        clear()
        call()  # the first call of all is slow
        began = time.perf_counter()
        call()
        took[name] = time.perf_counter() - began
    wanted = budget * (1 if which == "training" else 0.5) / sum(took.values())
    timing = measure(
        calls,
        rounds=int(min(max(wanted, 3), 25)),
        warmup=1,
        device=device,
        before=dict.fromkeys(calls, clear),
        memory=True,
    )
    return dataclasses.replace(timing, provenance={})


def _contestants(point: Point, which: str, device: Any) -> tuple[dict[str, Callable[[], object]], Callable[[], object]]:
    """Everybody as a function to time, held against torch packed; and what to call before each."""
    import torch  # noqa: PLC0415

    forwards, leaves, clear = (_packers if point.mode == "none" else _runners)(point, device)

    def training(forward: Callable[[], Any]) -> Callable[[], Any]:
        def run() -> Any:
            out = forward()[0]
            return torch.autograd.grad(out, leaves, torch.ones_like(out))

        return run

    def alone(forward: Callable[[], Any]) -> Callable[[], Any]:
        def run() -> Any:
            with torch.no_grad():
                return forward()

        return run

    calls = {name: (training if which == "training" else alone)(forward) for name, forward in forwards.items()}
    right = _tensors(calls[PACKED]())
    for name in calls.keys() - {PACKED, PADDED, COPY}:
        for ours, theirs in zip(_tensors(calls[name]()), right, strict=True):
            apart = float((ours - theirs).abs().max() / theirs.abs().max().clamp(min=1e-30))
            if not apart <= _TOLERANCE:
                raise RuntimeError(f"{point.name}: {name} is {apart:.2g} from torch packed ({which})")
    return calls, clear


def _runners(point: Point, device: Any) -> tuple[dict[str, Callable[[], Any]], list[Any], Callable[[], object]]:
    import torch  # noqa: PLC0415
    from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence  # noqa: PLC0415

    from packviz.ops.running import forget, run  # noqa: PLC0415

    torch.manual_seed(0)
    rnn = getattr(torch.nn, point.mode)(
        point.input_size, point.hidden_size, batch_first=True, bidirectional=point.directions == 2, device=device
    )
    n = point.drawn()
    x = torch.randn(point.batch_size, point.steps, point.input_size).to(device).requires_grad_()

    def packed() -> Any:
        output, final = rnn(pack_padded_sequence(x, torch.tensor(n), batch_first=True, enforce_sorted=False))
        return pad_packed_sequence(output, batch_first=True)[0], final

    calls: dict[str, Callable[[], Any]] = {PADDED: lambda: rnn(x), PACKED: packed}
    calls |= {method: lambda method=method: run(rnn, x, n, method=method) for method in METHODS}  # type: ignore[misc]
    return calls, [x, *rnn.parameters()], forget


def _packers(point: Point, device: Any) -> tuple[dict[str, Callable[[], Any]], list[Any], Callable[[], object]]:
    import torch  # noqa: PLC0415
    from torch.nn.utils import rnn  # noqa: PLC0415

    from packviz.ops import packing  # noqa: PLC0415

    n = torch.tensor(point.drawn())
    x = torch.randn(point.steps, point.batch_size, point.hidden_size).to(device).requires_grad_()

    def both(module: Any) -> Callable[[], Any]:
        return lambda: module.pad_packed_sequence(module.pack_padded_sequence(x, n))

    calls = {PACKED: both(rnn), OURS: both(packing), COPY: lambda: (x.clone(),)}
    if importlib.util.find_spec("torchrua"):  # not among what packviz depends on
        import torchrua  # type: ignore[import-not-found]  # noqa: PLC0415

        sizes = n.to(x.device)
        calls["torchrua"] = lambda: (torchrua.L(x.transpose(0, 1), sizes).pack().left().data.transpose(0, 1), n)
    return calls, [x], lambda: None


def _tensors(nested: Any) -> list[Any]:
    if isinstance(nested, tuple):
        return [tensor for part in nested for tensor in _tensors(part)]
    return [nested.double()]


def save(path: str, found: Race) -> None:
    """Writes a result file; its schema stands above."""
    points = [
        dataclasses.asdict(point) | {which: timing.to_dict() for which, timing in timings.items()}
        for point, timings in found.timings.items()
    ]
    recorded.save(path, _KIND, _VERSION, {"provenance": dict(found.provenance), "points": points})


def load(path: str) -> Race:
    """Reads what `save` wrote.

    Raises:
        ValueError: there is no such file, it is of another kind or version, or it is damaged.
    """
    data = recorded.load(path, _KIND, _VERSION)
    try:
        timings = {
            Point(**{field.name: entry[field.name] for field in dataclasses.fields(Point)}): {
                which: Timing.from_dict(entry[which]) for which in PASSES
            }
            for entry in data["points"]
        }
        return Race(dict(data["provenance"]), timings)
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path} is damaged: {type(error).__name__} {error}") from None


def main(arguments: Sequence[str] | None = None) -> None:
    """Races, and writes the file after every point."""
    parser = argparse.ArgumentParser(prog="python -m packviz.studies.race", description=main.__doc__)
    parser.add_argument("--out", required=True, help="the file to write, or to go on with")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--budget", type=float, default=8.0, help="seconds for each point, roughly")
    parser.add_argument("--only", default="", metavar="WORDS", help="the points whose name holds this")
    options = parser.parse_args(arguments)
    points = [point for point in POINTS if options.only in point.name]
    if not points:
        parser.error(f"no point's name holds {options.only!r}; one is {POINTS[-1].name!r}")
    with in_a_line(parser):
        device = check_device(options.device)
        start = load(options.out) if Path(options.out).exists() else None
        for found in race(points, device=device, threads=options.threads, budget=options.budget, start=start):
            save(options.out, found)
            print(f"{len(found.timings):3} {[*found.timings][-1].name}", flush=True)
        print(load(options.out))


if __name__ == "__main__":
    main()
