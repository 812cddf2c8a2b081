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
import gc
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from packviz.bench.study import Contest, How, StoppedError, Study, timed
from packviz.bench.timing import Timing
from packviz.core.worded import first_line
from packviz.studies.forum.points import METHODS, PASSES, At, Parameters, Point, call_name, setup_lengths
from packviz.studies.forum.results import Benchmark, checked

if TYPE_CHECKING:
    from torch import Tensor, nn

    from packviz.studies.forum.network import Batch, Method

FULL: dict[str, int] = {"batch_size": 512, "shortest": 32, "longest": 512, "step": 32, "rounds": 11, "warmup": 1}
"""The forum's sizes."""

QUICK: dict[str, int] = {"batch_size": 64, "shortest": 32, "longest": 128, "step": 32, "rounds": 5, "warmup": 1}
"""A try: seconds on a CPU."""

OUT_OF_MEMORY = "out of memory"


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
    _methods(parameters.methods)
    for setup in setups:
        setup_lengths(setup, 1, 1)
    points = [At(setup, steps) for steps in sorted(set(sizes)) for setup in dict.fromkeys(setups)]
    yield from STUDY.steps(points, parameters=dataclasses.asdict(parameters), threads=parameters.threads, **given)


def _methods(names: Sequence[str]) -> dict[str, Method]:
    from packviz.studies.forum import network  # noqa: PLC0415 - brings torch

    for name in names:
        if name not in network.METHODS:
            raise ValueError(f"there is no method {name!r}; there are {', '.join(network.METHODS)}")
    return {name: network.METHODS[name] for name in names}


def _measure(at: At, how: How) -> Point:
    """Every method in every pass; one that runs out of memory is left out."""
    parameters = Parameters.of(how.parameters)
    methods = _methods(parameters.methods)
    missing: dict[str, str] = {}
    names = [call_name(method, which) for method in methods for which in PASSES]
    while len(missing) < len(names):
        trial = None
        try:
            trial = _Trial(parameters, methods, at, how.device)
            calls = {name: trial.call(name) for name in names if name not in missing}
            apart = trial.differences(calls, how.stop)
            contest, seed = Contest(calls, trial.clear), parameters.seed + at.steps
            timing = timed(contest, how, warmup=parameters.warmup, memory=True, seed=seed)
            return Point(at.setup, at.steps, timing, missing, *apart)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                what = trial.running if trial else "the network"
                autocast = f", autocast {parameters.autocast}" if parameters.autocast else ""
                where = f"on {how.device} with dtype {parameters.dtype}{autocast}"
                raise ValueError(f"torch cannot run {what} {where}: {first_line(error)}") from error
            missing |= dict.fromkeys([trial.running] if trial else names, OUT_OF_MEMORY)
        del trial  # and with it what fills the memory
        _give_back(how.device)
    return Point(at.setup, at.steps, Timing({}), missing)


class _Trial:
    """A network and a batch on the device, and the calls to time.

    Attributes:
        running: the name of the last call.
    """

    def __init__(self, parameters: Parameters, methods: Mapping[str, Method], at: At, device: str) -> None:
        import torch  # noqa: PLC0415

        from packviz.studies.forum import network as forum  # noqa: PLC0415

        p = parameters
        torch.manual_seed(p.seed)
        network = forum.Network(p.vocabulary, p.features, p.hidden, p.classes)
        self._network: nn.Module = network.to(device, getattr(torch, p.dtype))
        n = setup_lengths(at.setup, p.batch_size, at.steps)
        self._batch: Batch = forum.batch(
            n, at.steps, vocabulary=p.vocabulary, classes=p.classes, seed=p.seed, device=device
        )
        self._methods, self._device = dict(methods), torch.device(device)
        cast = partial(torch.autocast, self._device.type, getattr(torch, p.autocast)) if p.autocast else nullcontext
        self._cast: Callable[[], AbstractContextManager[Any]] = cast
        self._dtype = p.autocast or p.dtype
        self.running = ""

    def clear(self) -> None:
        """What is to be done before each call: in training every batch has fresh gradients, and lengths of its own."""
        from packviz.ops.running import forget  # noqa: PLC0415

        self._network.zero_grad()
        forget()

    def call(self, name: str) -> Callable[[], list[Tensor]]:
        """The function to time under this name. It gives the logits; in training also the gradients."""
        import torch  # noqa: PLC0415
        from torch.nn.functional import cross_entropy  # noqa: PLC0415

        method, which = name.rsplit(", ", 1)
        way, network, (ids, lengths, targets) = self._methods[method], self._network, self._batch
        weights = list(network.parameters())

        def forward() -> list[Tensor]:
            self.running = name
            with torch.no_grad(), self._cast():
                return [network(ids, lengths, way)]

        def training() -> list[Tensor]:
            self.running = name
            with self._cast():
                logits = network(ids, lengths, way)
                loss = cross_entropy(logits, targets)
            loss.backward()  # type: ignore[no-untyped-call]
            gradients = (torch.zeros_like(w) if w.grad is None else w.grad for w in weights)
            return [logits.detach(), *gradients]

        return forward if which == "forward" else training

    def differences(
        self, calls: Mapping[str, Callable[[], list[Tensor]]], stop: Callable[[], bool]
    ) -> tuple[dict[str, float], float]:
        """By method, how far its results are from the first method's, relative to these; and what rounding explains."""
        import torch  # noqa: PLC0415

        from packviz.ops.tolerance import apart, full_precision, of_gradients  # noqa: PLC0415 - it stands on torch

        first, *others = self._methods
        found = dict.fromkeys(others, 0.0)
        with full_precision():
            for which in PASSES if others else ():
                right: list[Tensor] = []
                for method in self._methods:
                    if (name := call_name(method, which)) not in calls:
                        continue  # it has run out of memory
                    if stop():
                        raise StoppedError
                    self.clear()
                    results = calls[name]()
                    if method == first:
                        right = results
                    else:
                        pairs = zip(results, right, strict=False)  # none if the first has run out of memory
                        found[method] = max(found[method], *(apart(*pair) for pair in pairs), 0.0)
        return found, of_gradients(getattr(torch, self._dtype))


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory has run out: a GPU's, the CPU's, or that of a library underneath."""
    import torch  # noqa: PLC0415

    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    said = str(error)
    return any(
        words in said for words in ("out of memory", "can't allocate memory", "not enough memory", "ALLOC_FAILED")
    )


def _give_back(device: str) -> None:
    import torch  # noqa: PLC0415

    gc.collect()
    if device.startswith("cuda"):
        torch.cuda.empty_cache()


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
