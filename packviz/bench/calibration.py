"""Measures the constants by which `pv.run(…, method="auto")` decides: see `packviz.ops.costs`.

Runs of known sizes are timed by every method, and the constants are those that explain the times best: least squares of
the relative errors, with no constant below zero.

`python -m packviz.bench.calibration --out packviz/ops/costs_cpu.json` makes the constants that come with the package.
"""

from __future__ import annotations

import argparse
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import torch

from packviz.bench import ways
from packviz.bench.command import in_a_line
from packviz.bench.machine import check_device, provenance
from packviz.bench.timing import measure
from packviz.core.cuts import Rates, best_cuts, predict
from packviz.core.fit import nonnegative
from packviz.core.lengths import evenly
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
"""`(B, T, I, H, layers, directions)`, those that say most first. Lengths run evenly from `T` down to 1."""

_FIRST, _MOST_PASSES = 4, 20

_Points = defaultdict[str, dict[str, tuple[tuple[float, ...], float]]]
"""By key of `Costs.seconds`, and then by what was run: how much of each term it takes, and how many seconds."""


def calibrate(
    device: str = "cpu",
    *,
    modes: Sequence[str] = MODES,
    seconds: float = 180.0,
    progress: Callable[[str], object] = lambda said: None,
) -> Costs:
    """Measures what runs cost on this machine, at the number of threads that torch is set to.

    It changes nothing: `.use()` on the result puts it in force for this process, `.save(path)` keeps it, and
    `packviz.ops.costs.Costs.load(path)` gets it back.

    Args:
        device: `"cpu"` or `"cuda"`.
        modes: the RNNs to measure; for the others the constants in force are taken over.
        seconds: how long to go on. As often as there is time for it everything is measured again, and the shortest time
            counts: a busy machine only ever makes things slower. The first shapes of `SHAPES` are measured in any case.
        progress: told what comes next.

    Raises:
        ValueError: there is no such device or RNN.
    """
    if device not in ("cpu", "cuda"):
        raise ValueError(f"device is {device!r}; choose 'cpu' or 'cuda'")
    check_device(device)
    if unknown := set(modes) - set(MODES):
        raise ValueError(f"modes has {sorted(unknown)[0]!r}; choose among {', '.join(map(repr, MODES))}")
    began, points, done = time.monotonic(), _Points(dict), 0
    for again, (i, shape), mode in product(range(_MOST_PASSES), enumerate(SHAPES), modes):
        if (again or i >= _FIRST) and time.monotonic() - began > seconds:
            break
        progress(f"{mode}, shape {i + 1} of {len(SHAPES)}" + f", time {again + 1}" * bool(again))
        with torch.inference_mode(False):
            _measure(points, mode, shape, device)
        done += 1
    constants = {**in_force(device).seconds, **{name: _fitted(name, points[name].values()) for name in points}}
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
        methods = ["packed", "split", "whole", *stairs] if kernel == fused else stairs
        runs = {str(method): partial(ways.run, rnn, x, lengths, method) for method in methods}
        if "whole" in runs:
            runs["whole"] = partial(ways.run, rnn, x, [steps] * batch, "padded")
        leaves = [x, *rnn.parameters()]
        calls = {name: ways.training(run, leaves) if training else ways.forward(run) for name, run in runs.items()}
        timing = measure(calls, rounds=3, warmup=1, device=device, before=dict.fromkeys(calls, forget))
        for method in methods:
            name, counted = method, (0, steps, sum(lengths))
            if method == "whole":
                counted = (1, steps, steps * batch)
            elif isinstance(method, Staircase):
                found = predict(lengths, method.cuts, Rates(0, 0, 0, 0))
                name, counted = "staircase", (found.calls, steps, found.cells)
            known = points[key(name, spec, training, kernel)]
            what = f"{shape} {method}"
            before = known[what][1] if what in known else math.inf
            known[what] = amounts(spec, *counted), min(before, timing.median(str(method)))


def _fitted(name: str, points: Iterable[tuple[tuple[float, ...], float]]) -> list[float]:
    """Constants, none below zero, with the smallest sum of squares of relative errors."""
    counted, seconds = map(np.array, zip(*points, strict=True))
    rows = counted / seconds[:, None]
    if not (name.startswith("packed") and name.endswith("training")):
        rows[:, TERMS.index("cell, step, gate")] = 0
    return [float(f"{value:.4g}") for value in nonnegative(rows)]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, and writes the file."""
    parser = argparse.ArgumentParser(prog="python -m packviz.bench.calibration", description=main.__doc__)
    parser.add_argument("--out", required=True, help="the file to write")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=240.0)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    with in_a_line(parser):
        found = calibrate(options.device, seconds=options.seconds, progress=lambda said: print(said, flush=True))
    print(found)
    found.save(options.out)


if __name__ == "__main__":
    main()
