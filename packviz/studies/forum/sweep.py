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
| every token is 1, so a sequence in a wrong place would show nowhere | random tokens; logits and gradients of all methods are compared at every point |
| repeats the mask to the size of the output | broadcasts it |
| CUDA only | CUDA events on a GPU, a monotonic clock on a CPU with an allocator that keeps its pages |
| neither seed nor spread nor memory | all three, and a record of the machine |

Its sorting of the batch stays outside of the time, as there. Sizes still come in ascending order: compare methods at a
size rather than sizes with each other.
"""  # noqa: E501 - a table

from __future__ import annotations

import contextlib
import dataclasses
import gc
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from packviz.bench.machine import calm_allocator, check_device, provenance
from packviz.bench.timing import Timing, measure
from packviz.draw import text
from packviz.studies.forum.results import CHANGING, PASSES, Benchmark, Parameters, Point, call_name, setup_lengths

if TYPE_CHECKING:
    from torch import Tensor, nn

    from packviz.studies.forum.network import Batch, Method

FULL: dict[str, int] = {"batch_size": 512, "shortest": 32, "longest": 512, "step": 32, "rounds": 11, "warmup": 1}
"""The forum's sizes."""

QUICK: dict[str, int] = {"batch_size": 64, "shortest": 32, "longest": 128, "step": 32, "rounds": 5, "warmup": 1}
"""A try: seconds on a CPU."""

OUT_OF_MEMORY = "out of memory"


class ConflictError(ValueError):
    """The results to go on with were measured otherwise."""


@dataclass(frozen=True)
class Progress:
    """How far a sweep is.

    Attributes:
        setup: of the point that is being measured.
        steps: its time steps.
        done: points measured, of those to measure.
        points: to measure.
        fraction: of the time that all of it takes, as far as it can be foreseen.
        left: seconds still to go; none as long as nothing is known.
    """

    setup: str
    steps: int
    done: int
    points: int
    fraction: float
    left: float | None

    def to_text(self) -> str:
        """In words, with the time left."""
        rest = "" if self.left is None else f", {text.duration(self.left)} left"
        return f"point {self.done + 1} of {self.points} (setup {self.setup}, {self.steps} time steps){rest}"


def sweep(
    parameters: Parameters,
    setups: Sequence[str],
    sizes: Sequence[int],
    *,
    device: Any = "cpu",
    start: Benchmark | None = None,
    progress: Callable[[Progress], object] = lambda progress: None,
    stop: Callable[[], bool] = lambda: False,
    now: Callable[[], float] = time.monotonic,
) -> Iterator[Benchmark]:
    """Measures every setup at every size, from the smallest up.

    A method that runs out of memory is left out of that point, which notes it, and the sweep goes on.

    Args:
        parameters: how each point is measured.
        setups: keys of `SETUPS`.
        sizes: time steps of the padded batch.
        device: where to run.
        start: a result to go on with: its points are kept and not measured again.
        progress: told after every round.
        stop: asked before every call whether to stop; a point that is not complete is dropped.
        now: the clock by which the time left is foreseen.

    Yields:
        The result so far: at the start, and after every point.

    Raises:
        ValueError: the device is not there, there are fewer cores than threads, a method or setup is not known, or
            torch cannot run the network so.
        ConflictError: `start` was measured otherwise.
    """
    import torch  # noqa: PLC0415

    device = check_device(device)
    methods = _methods(parameters.methods)
    for setup in setups:
        setup_lengths(setup, 1, 1)
    if parameters.threads > (cores := os.cpu_count() or parameters.threads):
        raise ValueError(f"threads is {parameters.threads}, more than the cores here: {cores}")
    threads_before = torch.get_num_threads()
    torch.set_num_threads(parameters.threads)
    try:
        if device.startswith("cpu"):
            calm_allocator()  # before it is recorded
        place = provenance(device)
        del place["parameters"]  # the result holds them itself
        result = start or Benchmark(parameters, place)
        if conflicts := result.conflicts(parameters, place):
            raise ConflictError(
                f"the results there were measured otherwise: {'; '.join(conflicts)}. Take the same options on the same"
                " machine, or another file"
            )
        yield result
        there = {(point.setup, point.steps) for point in result.points}
        plan = [(s, steps) for steps in sorted(set(sizes)) for s in dict.fromkeys(setups) if (s, steps) not in there]
        took: dict[tuple[str, int], float] = {}
        for setup, steps in plan:
            began = now()

            def told(done: int, rounds: int, at: tuple[str, int] = (setup, steps), began: float = began) -> None:
                progress(_foreseen(plan, took, at, now() - began, done / rounds))

            told(0, 1)
            point = _measure_point(parameters, methods, setup, steps, device, told, stop)
            if point is None:
                return
            took[setup, steps] = now() - began
            result = result.with_point(point)
            yield result
    finally:
        torch.set_num_threads(threads_before)


def _methods(names: Sequence[str]) -> dict[str, Method]:
    from packviz.studies.forum.network import METHODS  # noqa: PLC0415 - brings torch

    for name in names:
        if name not in METHODS:
            raise ValueError(f"there is no method {name!r}; there are {', '.join(METHODS)}")
    return {name: METHODS[name] for name in names}


def _measure_point(
    parameters: Parameters,
    methods: Mapping[str, Method],
    setup: str,
    steps: int,
    device: str,
    progress: Callable[[int, int], object],
    stop: Callable[[], bool],
) -> Point | None:
    """One setup at one size; none where it was stopped."""
    missing: dict[str, str] = {}
    names = [call_name(method, which) for method in methods for which in PASSES]
    while len(missing) < len(names):
        trial = None
        try:
            trial = _Trial(parameters, methods, setup, steps, device)
            calls = {name: trial.call(name) for name in names if name not in missing}
            timing = measure(
                calls,
                rounds=parameters.rounds,
                warmup=parameters.warmup,
                device=device,
                before=dict.fromkeys(calls, trial.network.zero_grad),
                progress=progress,
                stop=stop,
                seed=parameters.seed + steps,
                memory=True,
            )
            if timing.stopped:
                return None
            changing = {name: value for name, value in timing.provenance.items() if name in CHANGING}
            timing = dataclasses.replace(timing, provenance=changing)
            return Point(setup, steps, timing, missing, *trial.differences())
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                what = trial.running if trial else "the network"
                autocast = f", autocast {parameters.autocast}" if parameters.autocast else ""
                how = f"on {device} with dtype {parameters.dtype}{autocast}"
                raise ValueError(f"torch cannot run {what} {how}: {_first_line(error)}") from error
            missing |= dict.fromkeys([trial.running] if trial else names, OUT_OF_MEMORY)
        del trial  # and with it what fills the memory
        _give_back(device)
    return Point(setup, steps, Timing({}), missing)


class _Trial:
    """A network and a batch on the device, and the calls to time.

    Attributes:
        network: its gradients are to be cleared before each call.
        running: the name of the last call.
    """

    def __init__(
        self, parameters: Parameters, methods: Mapping[str, Method], setup: str, steps: int, device: str
    ) -> None:
        import torch  # noqa: PLC0415

        from packviz.studies.forum import network as forum  # noqa: PLC0415

        p = parameters
        with torch.random.fork_rng(devices=[]):  # the caller's random numbers stay the caller's
            torch.manual_seed(p.seed)
            network = forum.Network(p.vocabulary, p.features, p.hidden, p.classes)
        self.network: nn.Module = network.to(device, getattr(torch, p.dtype))
        n = setup_lengths(setup, p.batch_size, steps)
        self._batch: Batch = forum.batch(
            n, steps, vocabulary=p.vocabulary, classes=p.classes, seed=p.seed, device=device
        )
        self._methods, self._device = dict(methods), torch.device(device)
        self._autocast = getattr(torch, p.autocast) if p.autocast else None
        self._dtype = p.autocast or p.dtype
        self._results: dict[str, list[Tensor]] = {}
        self.running = ""

    def call(self, name: str) -> Callable[[], None]:
        """The function to time under this name."""
        import torch  # noqa: PLC0415
        from torch.nn.functional import cross_entropy  # noqa: PLC0415

        method, which = name.rsplit(", ", 1)
        way, network, (ids, lengths, targets) = self._methods[method], self.network, self._batch
        weights = list(network.parameters())

        def cast() -> contextlib.AbstractContextManager[Any]:
            if self._autocast is None:
                return contextlib.nullcontext()
            return torch.autocast(self._device.type, self._autocast)

        def forward() -> None:
            self.running = name
            with torch.no_grad(), cast():
                logits = network(ids, lengths, way)
            self._results[name] = [logits]

        def training() -> None:
            self.running = name
            with cast():
                logits = network(ids, lengths, way)
                loss = cross_entropy(logits, targets)
            loss.backward()  # type: ignore[no-untyped-call]
            gradients = (torch.zeros_like(w) if w.grad is None else w.grad for w in weights)
            self._results[name] = [logits.detach(), *gradients]

        return forward if which == "forward" else training

    def differences(self) -> tuple[dict[str, float], float]:
        """By method, how far its results are from the first method's, relative to these; and what rounding explains."""
        import torch  # noqa: PLC0415

        from packviz.ops.tolerance import apart, of_gradients  # noqa: PLC0415 - it stands on torch

        first, *others = self._methods
        found = {
            method: max((apart(*pair) for which in PASSES for pair in self._pairs(method, first, which)), default=0.0)
            for method in others
        }
        return found, of_gradients(getattr(torch, self._dtype), self._device.type)

    def _pairs(self, method: str, first: str, which: str) -> Iterator[tuple[Tensor, Tensor]]:
        ours, theirs = (self._results.get(call_name(name, which), []) for name in (method, first))
        yield from zip(ours, theirs, strict=False)  # one may have run out of memory


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory has run out: a GPU's, the CPU's, or that of a library underneath."""
    import torch  # noqa: PLC0415

    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    said = str(error)
    return any(
        words in said for words in ("out of memory", "can't allocate memory", "not enough memory", "ALLOC_FAILED")
    )


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0].strip() or type(error).__name__


def _give_back(device: str) -> None:
    import torch  # noqa: PLC0415

    gc.collect()
    if device.startswith("cuda"):
        torch.cuda.empty_cache()


def _foreseen(
    plan: Sequence[tuple[str, int]],
    took: Mapping[tuple[str, int], float],
    at: tuple[str, int],
    elapsed: float,
    share: float,
) -> Progress:
    """How far a sweep is, from the seconds that its points took and how much of the present one is done."""
    known = dict(took)
    if share > 0 and elapsed > 0:
        known[at] = elapsed / share
    here = plan.index(at)
    coming = [expected(known, *point) or 0.0 for point in plan[here:]]
    if not any(coming):
        return Progress(*at, here, len(plan), 0.0, None)
    spent, left = sum(took.values()), max(sum(coming), elapsed)
    return Progress(*at, here, len(plan), (spent + elapsed) / (spent + left), left - elapsed)


def expected(known: Mapping[tuple[str, int], float], setup: str, steps: int) -> float | None:
    """The seconds that a point should take.

    Points of a setup are taken to grow as a power of their time steps, which its first and last known point tell (1.5
    where there is only one).

    Args:
        known: seconds by setup and time steps, in the order in which they were measured.
        setup: of the point.
        steps: of the point.

    Returns:
        The seconds; none where nothing is known.
    """
    if not known:
        return None
    like = setup if any(s == setup for s, _ in known) else [*known][-1][0]
    same = {n: seconds for (s, n), seconds in known.items() if s == like}
    (first, early), (last, late) = (min(same.items()), max(same.items()))
    power = math.log(late / early) / math.log(last / first) if last > first and min(early, late) > 0 else 1.5
    return late * math.pow(steps / last, min(max(power, 0.0), 3.0))
