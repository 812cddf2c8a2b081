"""The forum's experiment: how long packing takes, forward and backward, against the length of the sequences.

At every size and in every setup each method is timed in two passes: *forward* (the network alone, without a graph for
autograd), and *training* (forward, loss, backward). All of these are interleaved in one call of `measure`, so that what
is compared has met the same machine in the same mood.

What the original did, and what is done here:

| the original | here |
|---|---|
| one mean over a block of 20 calls | the median of interleaved rounds, with quartiles |
| one curve after the other: a machine that warms up or throttles bends them | all methods and passes in turn, in an order drawn anew each round; ratios within rounds |
| warms up with the forward pass only, so the first backward passes are timed cold | warms up what is timed |
| clears gradients and takes the loss within the time, of the forward pass too | gradients are cleared outside of the time; the forward pass is the network alone |
| sets gradients to zero, so that every backward pass adds to the last one | drops them |
| every token is 1, so a sequence in a wrong place would show nowhere | random tokens; logits and gradients of all methods are compared at every point, on a GPU without TF32 |
| repeats the mask to the size of the output | broadcasts it |
| CUDA only | CUDA events on a GPU, a monotonic clock on a CPU with an allocator that keeps its pages |
| neither seed nor spread nor memory | all three, and a record of the machine |

Its sorting of the batch stays outside of the time, as there. Sizes still come in ascending order: compare methods at a
size rather than sizes with each other.
"""  # noqa: E501 - a table

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from packviz.bench.study import How, Study
from packviz.studies.forum.points import METHODS, At, Parameters, Point, setup_lengths
from packviz.studies.forum.results import Benchmark, checked

FULL: dict[str, int] = {"batch_size": 512, "shortest": 32, "longest": 512, "step": 32, "rounds": 11, "warmup": 1}
"""The forum's sizes."""

QUICK: dict[str, int] = {"batch_size": 64, "shortest": 32, "longest": 128, "step": 32, "rounds": 5, "warmup": 1}
"""A try: seconds on a CPU."""


def sweep(parameters: Parameters, setups: Sequence[str], sizes: Sequence[int], **given: Any) -> Iterator[Benchmark]:
    """Measures every setup at every size, from the smallest up.

    A method that runs out of memory is left out of that point, which notes it, and the sweep goes on.

    Args:
        parameters: how each point is measured.
        setups: keys of `SETUPS`.
        sizes: time steps of the padded batch.
        **given: what `Study.steps` takes: `device`, `start`, `progress`, `stop`.

    Yields:
        The result so far: at the start, and after every point.

    Raises:
        ValueError: the device is not there, there are fewer cores than threads, a method or setup is not known, or
            torch cannot run the network so.
        ConflictError: `start` was measured otherwise.
    """
    from packviz.studies.forum.trial import methods  # noqa: PLC0415 - torch

    methods(parameters.methods)
    for setup in setups:
        setup_lengths(setup, 1, 1)
    points = [At(setup, steps) for steps in sorted(set(sizes)) for setup in dict.fromkeys(setups)]
    yield from STUDY.steps(points, parameters=dataclasses.asdict(parameters), threads=parameters.threads, **given)


def _measure(at: At, how: How) -> Point:
    from packviz.studies.forum.trial import measure  # noqa: PLC0415 - torch

    return measure(at, how)


def expected(known: Mapping[At, float], at: At) -> float | None:
    """The seconds that a point should take.

    Points of a setup are taken to grow as a power of their time steps, which its first and last known point tell (1.5
    where there is only one).

    Args:
        known: seconds by point, in the order in which they were measured.
        at: the point.

    Returns:
        The seconds; none where nothing is known.
    """
    if not known:
        return None
    like = at.setup if any(other.setup == at.setup for other in known) else [*known][-1].setup
    same = {other.steps: seconds for other, seconds in known.items() if other.setup == like}
    (first, early), (last, late) = (min(same.items()), max(same.items()))
    power = math.log(late / early) / math.log(last / first) if last > first and min(early, late) > 0 else 1.5
    return late * math.pow(at.steps / last, min(max(power, 0.0), 3.0))


STUDY = Study(
    "benchmark",
    At,
    _measure,
    checked,
    full=[At(setup, steps) for steps in range(32, 513, 32) for setup in "AB"],
    quick=[At(setup, steps) for steps in (32, 64) for setup in "AB"],
    parameters=dataclasses.asdict(Parameters(methods=METHODS, rounds=7)),
    read=Point.from_dict,
    write=Point.to_dict,
    foresee=expected,
    remark=lambda point: point.remark,
)
recorded = STUDY.load


def recordings(methods: Sequence[str] = ("padded", "packed")) -> dict[str, Benchmark]:
    """What was recorded of these methods, by machine as `Study.recordings` calls it. Raises as `recorded` does."""
    found = STUDY.recordings()
    return {name: result.only(methods) for name, result in found.items() if {*methods} <= {*result.parameters.methods}}
