"""Measures the constants by which `pv.run(…, method="auto")` decides: see `packviz.ops.costs`.

Runs of known sizes are timed by every method, and the constants are those that explain the times best: least squares of
the relative errors, with no constant below zero.

`python -m packviz.bench.calibration --threads 1 2 --out packviz/ops` makes the constants that come with the package, a
file for each number of torch's threads: `costs_cpu_1.json` and so on.
"""

from __future__ import annotations

import argparse
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from packviz.bench import ways
from packviz.bench.machine import check_device, provenance
from packviz.bench.terminal import in_a_line
from packviz.bench.timing import measure
from packviz.core.cuts import Rates, best_cuts, predict
from packviz.core.fit import nonnegative
from packviz.core.given import at_least
from packviz.core.lengths import evenly, nearly_equal
from packviz.core.spec import Spec
from packviz.ops.costs import TERMS, Costs, amounts, in_force, key
from packviz.ops.running import Staircase, forget

MODES = ("RNN", "GRU", "LSTM")

SHAPES = (
    (8, 32, 16, 16, 1, 1),
    (64, 64, 16, 32, 1, 1),
    (32, 50, 64, 128, 1, 2),
    (16, 16, 256, 256, 1, 1),
    (256, 32, 32, 64, 2, 1),
    (4, 64, 64, 64, 1, 1),
    (128, 100, 32, 64, 1, 1),
    (8, 128, 128, 256, 1, 1),
    (32, 32, 512, 512, 1, 1),
    (2, 32, 32, 128, 2, 2),
    (256, 128, 16, 32, 1, 1),
    (16, 200, 64, 128, 1, 1),
    (512, 16, 16, 16, 1, 2),
    (64, 100, 128, 256, 1, 1),
    (512, 64, 16, 64, 1, 1),
    (8, 512, 16, 32, 1, 1),
)
"""`(B, T, I, H, layers, directions)`, those that say most first. Lengths run evenly from `T` down to 1. What works step
by step has them nearly equal as well: it goes on with fewer sequences after each distinct one, at a cost."""

_FIRST, _MOST_PASSES = 4, 20

_Points = defaultdict[str, dict[str, tuple[tuple[float, ...], float]]]
"""By key of `Costs.seconds`, and then by what was run: how much of each term it takes, and how many seconds."""


def calibrate(
    device: str = "cpu",
    *,
    modes: Sequence[str] = MODES,
    threads: int | None = None,
    seconds: float = 180.0,
    progress: Callable[[str], object] = lambda said: None,
) -> Costs:
    """Measures what runs cost on this machine, with one number of torch's threads.

    It changes nothing: `.use()` on the result puts it in force for this process, `.save(path)` keeps it, and
    `packviz.ops.costs.Costs.load(path)` gets it back.

    Args:
        device: `"cpu"` or `"cuda"`.
        modes: the RNNs to measure; for the others the constants in force are taken over.
        threads: torch's threads meanwhile; as many as it is set to now, if not given.
        seconds: how long to go on. As often as there is time for it everything is measured again, and the shortest time
            counts: a busy machine only ever makes things slower. The first shapes of `SHAPES` are measured in any case.
        progress: told what comes next.

    Raises:
        ValueError: there is no such device or RNN, or `threads` is no whole number of at least 1.
    """
    if device not in ("cpu", "cuda"):
        raise ValueError(f"device is {device!r}; choose 'cpu' or 'cuda'")
    check_device(device)
    if unknown := set(modes) - set(MODES):
        raise ValueError(f"modes has {sorted(unknown)[0]!r}; choose among {', '.join(map(repr, MODES))}")
    before = torch.get_num_threads()
    torch.set_num_threads(at_least("threads", before if threads is None else threads))
    try:
        return _calibrated(device, modes, seconds, progress)
    finally:
        torch.set_num_threads(before)


def _calibrated(device: str, modes: Sequence[str], seconds: float, progress: Callable[[str], object]) -> Costs:
    began, points, done = time.monotonic(), _Points(dict), 0
    for again, (i, shape), mode in product(range(_MOST_PASSES), enumerate(SHAPES), modes):
        if (again or i >= _FIRST) and time.monotonic() - began > seconds:
            break
        progress(f"{mode}, shape {i + 1} of {len(SHAPES)}" + f", time {again + 1}" * bool(again))
        with torch.inference_mode(False):
            _measure(points, mode, shape, device)
        done += 1
    known = in_force(device, torch.get_num_threads()).seconds
    constants = {**known, **{name: _fitted(name, points[name].values()) for name in points}}
    return Costs(device, constants, provenance(device, {"modes": list(modes), "batches": done}))


def _measure(points: _Points, mode: str, shape: Sequence[int], device: str) -> None:
    """Times one RNN on one batch by every method."""
    batch, steps, inputs, hidden, layers, directions = shape
    lengths = tuple(evenly(batch, steps).tolist())
    spec = Spec(mode, inputs, hidden, layers, directions == 2)
    distinct = len(set(lengths))
    cuts = [best_cuts(lengths, Rates(0, 1, 0, 1), k) for k in sorted({1, min(4, distinct), min(12, distinct)})]
    stairs: list[Any] = [Staircase(each) for each in cuts]
    fused = mode == "LSTM" and device == "cpu"
    for kernel, training in product({fused, False}, (True, False)):
        # oneDNN has no LSTM in double precision. The other methods are the same on either kernel.
        dtype = torch.float64 if kernel != fused else torch.float32
        with torch.random.fork_rng():  # the caller's random numbers stay the caller's
            rnn = getattr(torch.nn, mode)(inputs, hidden, layers, bidirectional=directions == 2, batch_first=True)
        rnn.to(device, dtype)
        x = torch.ones(batch, steps, inputs, device=device, dtype=dtype, requires_grad=True)
        leaves = [x, *rnn.parameters()]
        tried: dict[str, tuple[Sequence[int], Any, str, tuple[int, int, int]]] = {}
        for method in stairs:
            found = predict(lengths, method.cuts, Rates(0, 0, 0, 0))
            tried[str(method)] = lengths, method, "staircase", (found.calls, steps, found.cells)
        if kernel == fused:
            tried["whole"] = [steps] * batch, "padded", "whole", (1, steps, steps * batch)
            few = nearly_equal(batch, steps).tolist()
            for n in (lengths, few) if len(set(few)) > 1 else (lengths,):  # torch has a kernel of its own for one
                for name in ("packed", "split"):
                    tried[f"{name}, {sum(n)} cells"] = n, name, name, (len(set(n)), max(n), sum(n))
        runs = {what: partial(ways.run, rnn, x, n, method) for what, (n, method, *_) in tried.items()}
        calls = {name: ways.training(run, leaves) if training else ways.forward(run) for name, run in runs.items()}
        timing = measure(calls, rounds=3, warmup=1, device=device, before=dict.fromkeys(calls, forget))
        for what, (_, _, name, amount) in tried.items():
            known, point = points[key(name, spec, training, kernel)], f"{shape} {what}"
            before = known[point][1] if point in known else math.inf
            known[point] = amounts(spec, *amount), min(before, timing.median(what))


def _fitted(name: str, points: Iterable[tuple[tuple[float, ...], float]]) -> list[float]:
    """Constants, none below zero, with the smallest sum of squares of relative errors."""
    counted, seconds = map(np.array, zip(*points, strict=True))
    rows = counted / seconds[:, None]
    if not (name.startswith("packed") and name.endswith("training")):
        rows[:, TERMS.index("cell, step, gate")] = 0
    return [float(f"{value:.4g}") for value in nonnegative(rows)]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, and writes the files."""
    parser = argparse.ArgumentParser(prog="python -m packviz.bench.calibration", description=main.__doc__)
    parser.add_argument("--out", required=True, metavar="FOLDER", help="where to write costs_cpu_1.json and so on")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=240.0, help="for each number of threads")
    parser.add_argument("--threads", type=int, nargs="+", default=[1], help="of torch; one number after the other")
    options = parser.parse_args(arguments)
    say = partial(print, flush=True)
    for threads in options.threads:
        with in_a_line(parser):
            found = calibrate(options.device, threads=threads, seconds=options.seconds, progress=say)
        print(found)
        number = f"_{threads}" if options.device == "cpu" else ""
        found.save(Path(options.out) / f"costs_{options.device}{number}.json")


if __name__ == "__main__":
    main()
