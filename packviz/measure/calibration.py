"""Measures the constants that `pv.run(…, method="auto")` uses to choose a method (see
`packviz.ops.costs`).

This module times runs of known sizes with every method, and fits the constants to these times. The
fit minimises the sum of the squared relative errors, and allows no negative constant.

`tools/record.py --studies calibration --threads 2 --out DIR` measures the constants that packviz
ships for 2 torch
threads. Each number of threads has its own file: `costs_cpu_1.json` and so on. Calibration is a
study, so you can stop and resume it.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, product
from typing import Any, NamedTuple

import numpy as np
import torch

from packviz.core.cuts import Rates, best_cuts, predict
from packviz.core.fit import nonnegative
from packviz.core.lengths import evenly, nearly_equal
from packviz.core.spec import Spec
from packviz.core.validation import at_least, one_of, renamed, require_seconds
from packviz.measure import rnn_calls
from packviz.measure.study import Comparison, MeasureOptions, Results, Study, timed
from packviz.ops.costs import TERMS, Costs, amounts, in_force, key
from packviz.ops.running import forget

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
    (8, 64, 64, 512, 1, 1),
)
"""The sizes `(B, T, I, H, layers, directions)` to measure, the most informative first. Lengths run
evenly from `T` down to 1. Methods that work step by step also get nearly equal lengths, because
each distinct length costs them time."""

_FIRST, _PASSES, _MOST_PASSES = (
    4,
    3,
    20,
)  # the fewest shapes; the passes in a recorded file; the most passes


@dataclass(frozen=True)
class _Point:
    """One measurement of an RNN on a batch.

    Attributes:
        mode: the kind of RNN, one of `MODES`.
        shape: the sizes, as in `SHAPES`.
        again: number of earlier measurements of the same RNN and shape.
    """

    mode: str
    shape: tuple[int, ...]
    again: int = 0

    def __str__(self) -> str:
        number = (
            f"{SHAPES.index(self.shape) + 1} of {len(SHAPES)}"
            if self.shape in SHAPES
            else f"{self.shape}"
        )
        return f"{self.mode}, shape {number}" + f", time {self.again + 1}" * bool(self.again)

    @property
    def spec(self) -> Spec:
        """The kind and the sizes of the RNN."""
        _, _, inputs, hidden, layers, directions = self.shape
        return Spec(self.mode, inputs, hidden, layers, directions == 2)


class _Run(NamedTuple):
    """One of the runs that are timed at a point.

    Attributes:
        name: name of the method, as it appears in `key`.
        what: text that distinguishes the run from others with the same `name`.
        lengths: lengths of the batch.
        method: the argument `method` of `pv.run`.
        amount: the numbers of calls, time steps and cells in the run.
        key: the key of the method's constants (see `costs.key`).
    """

    name: str
    what: str
    lengths: Sequence[int]
    method: Any
    amount: tuple[int, int, int]
    key: str = ""


# The seconds at a point, by the key in `Costs.seconds` and then by the run's `what`.
_Seconds = Mapping[str, Mapping[str, float]]


class _Calibration(Results[_Point, _Seconds]):
    """The times of runs of known sizes, and the constants that fit them."""

    @property
    def is_enough(self) -> bool:
        """True if every kind of RNN was measured at every shape. Fewer measurements may not determine all constants."""
        return {(point.mode, point.shape) for point in self.values} >= {*product(MODES, SHAPES)}

    @property
    def costs(self) -> Costs:
        """The constants, fitted to the shortest time of each run, because a busy machine only makes
        runs slower.

        For kinds of RNN that were not measured, the constants in force are kept, and the provenance
        records this.
        """
        device = str(self.provenance["device"]).partition(":")[0]
        known: defaultdict[str, dict[Any, tuple[Mapping[str, int], float]]] = defaultdict(dict)
        for point, found in self.values.items():
            for run in chain.from_iterable(runs for *_, runs in _rounds(point, device)):
                if run.what in found.get(run.key, {}):
                    here, seconds = (point.shape, run.what), found[run.key][run.what]
                    _, before = known[run.key].get(here, ({}, math.inf))
                    known[run.key][here] = amounts(point.spec, *run.amount), min(before, seconds)
        modes = list(dict.fromkeys(point.mode for point in self.values))
        older = in_force(device, int(self.provenance["threads"]))
        constants = {**older.seconds} | {
            name: _fitted(name, some.values(), device) for name, some in known.items()
        }
        how: dict[str, Any] = {"parameters": {"modes": modes, "batches": len(self.values)}}
        if taken_over := {
            mode: dict(older.measured_on(mode)) for mode in MODES if mode not in modes
        }:
            how["taken_over"] = taken_over
        return Costs(device, constants, {**self.provenance, **how})

    def to_text(self) -> str:
        """Returns the constants as a table."""
        return f"{self.costs}"


@renamed(seconds="budget")
def calibrate(
    device: str = "cpu",
    *,
    modes: Sequence[str] = MODES,
    threads: int | None = None,
    budget: float = 180.0,
) -> Costs:
    """Measures the cost of running RNNs on this machine, with a fixed number of torch threads.

    The measurement alone does not change what `pv.run` chooses. Call `.use()` on the result to put
    it in force for this process, `.save(path)` to keep it, and `packviz.ops.costs.Costs.load(path)`
    to load it again.

    Args:
        device: `"cpu"` or `"cuda"`.
        modes: the kinds of RNN to measure, from `"RNN"`, `"GRU"` and `"LSTM"`. For the others, the
            constants in force are kept, with their provenance.
        threads: number of torch threads during the measurement. Defaults to the current number.
        budget: the approximate time for the whole measurement in seconds. Until the budget is
            spent, measurements are repeated, and the shortest time counts, because a busy machine
            can only make runs slower. The first four entries of `SHAPES` are always measured.

    Returns:
        The measured `Costs`, with their provenance.

    Raises:
        ValueError: there is no such device or RNN, `threads` is not a whole number of at least 1,
            or `budget` is not a number above 0.

    Examples:
        >>> import packviz as pv
        >>> costs = pv.calibrate(modes=["RNN"], budget=0.1)  # much too short to be used
        >>> costs.device
        'cpu'
    """
    budget = require_seconds("budget", budget)
    one_of("device", device, ("cpu", "cuda"))
    modes = [one_of("one of modes", mode, MODES) for mode in modes]
    count = at_least("threads", torch.get_num_threads() if threads is None else threads)
    points = [_Point(*some) for some in _points(modes, _MOST_PASSES)]
    first, began = len(SHAPES[:_FIRST]) * len(modes), time.monotonic()
    with torch.inference_mode(False):
        for found in STUDY.steps(points, parameters=STUDY.parameters, device=device, threads=count):
            if len(found.values) >= first and time.monotonic() - began > budget:
                break
    return found.costs


def _points(modes: Sequence[str], passes: int) -> Iterator[tuple[str, tuple[int, ...], int]]:
    for again, shape, mode in product(range(passes), SHAPES, modes):
        yield mode, shape, again


def _rounds(point: _Point, device: str) -> Iterator[tuple[bool, bool, list[_Run]]]:
    """Yields `(fused, training, runs)`: whether fused kernels run, whether to train, and the runs to time in turn."""
    batch, steps, *_ = point.shape
    lengths = tuple(evenly(batch, steps).tolist())
    distinct = len(set(lengths))
    cuts = [
        best_cuts(lengths, Rates(0, 1, 0, 1), k)
        for k in sorted({1, min(4, distinct), min(12, distinct)})
    ]
    stairs = []
    for method in cuts:
        found = predict(lengths, method, Rates(0, 0, 0, 0))
        stairs.append(
            _Run(
                "staircase",
                f"Staircase(cuts={method})",
                lengths,
                method,
                (found.calls, steps, found.cells),
            )
        )
    rest = [_Run("whole", "whole", [steps] * batch, "padded", (1, steps, steps * batch))]
    few = nearly_equal(batch, steps).tolist()
    for n in (
        (lengths, few) if len(set(few)) > 1 else (lengths,)
    ):  # torch runs equal lengths with a special kernel
        for name in ("packed", "split"):
            rest.append(
                _Run(name, f"{name}, {sum(n)} cells", n, name, (len(set(n)), max(n), sum(n)))
            )
    own = point.mode == "LSTM" or device == "cuda"
    for fused, training in product(
        [own, False] if own and device == "cpu" else [own], (True, False)
    ):
        runs = stairs + rest * (fused == own)  # the rest doesn't depend on the kernel
        yield (
            fused,
            training,
            [run._replace(key=key(run.name, point.spec, training, fused, device)) for run in runs],
        )


def _time_shape(point: _Point, how: MeasureOptions) -> _Seconds:
    """Times one RNN on one batch with every method."""
    (batch, steps, inputs, *_), device = point.shape, how.device
    rounds, taken = (
        [*_rounds(point, device.partition(":")[0])],
        defaultdict[str, dict[str, float]](dict),
    )
    own = rounds[0][0]
    for i, (fused, training, runs) in enumerate(rounds):
        # oneDNN has no LSTM in double precision, so float64 avoids the fused kernel.
        dtype = torch.float64 if fused != own else torch.float32
        rnn = rnn_calls.rnn_of(point.spec, batch_first=True).to(device, dtype)
        x = torch.ones(batch, steps, inputs, device=device, dtype=dtype, requires_grad=True)
        leaves = [x, *rnn.parameters()]
        made = {run.what: partial(rnn_calls.run, rnn, x, run.lengths, run.method) for run in runs}
        calls = {what: rnn_calls.one_pass(run, leaves, training) for what, run in made.items()}
        timing = timed(Comparison(calls, forget), how.part(i, len(rounds)), warmup=1)
        for run in runs:
            taken[run.key][run.what] = timing.median(run.what)
    return taken


def _fitted(
    name: str, points: Iterable[tuple[Mapping[str, int], float]], device: str = "cpu"
) -> dict[str, float]:
    """Returns the non-negative constants that minimise the sum of the squared relative errors."""
    unused = set()
    if not (device == "cpu" and name.startswith("packed") and name.endswith("training")):
        unused.add("cell, step, gate")
    if not (device == "cuda" and name.startswith(("packed", "whole"))):
        unused.add("step of all")
    rows = [
        [0 if term in unused else amount[term] / seconds for term in TERMS]
        for amount, seconds in points
    ]
    return {
        term: float(f"{value:.4g}")
        for term, value in zip(TERMS, nonnegative(np.array(rows)), strict=True)
    }


STUDY = Study(
    "calibration",
    _Point,
    _time_shape,
    _Calibration,
    full=[_Point(*some) for some in _points(MODES, _PASSES)],
    quick=[_Point(mode, SHAPES[0]) for mode in MODES],
    parameters={"rounds": 3},
    read=lambda point, entry: entry["seconds"],
    write=lambda found: {"seconds": found},
)
