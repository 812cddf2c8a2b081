"""The one place where packviz times anything.

What is compared is interleaved: every round calls everything once, in an order drawn anew, so that a machine that warms
up, throttles or is shared slows all of them alike. Ratios are taken within rounds for the same reason. Medians and
quartiles, because a stray pause should not count.

What n rounds tell about a median, of a time or of a ratio, is its confidence interval (`median_interval`). It assumes
nothing about the distribution except that the rounds are independent: each lies above the true median with probability
1/2, so the number of rounds above it is binomial. With the rounds in ascending order, x₁ … xₙ,

    P(xₖ₊₁ ≤ median ≤ xₙ₋ₖ) ≥ 1 − 2 · (C(n,0) + … + C(n,k)) / 2ⁿ

and k is the largest number for which this is at least `CONFIDENCE`. Two calls are told apart if the interval of their
ratio leaves out 1, which is the sign test. Fewer than `FEWEST_ROUNDS` rounds have no such interval.
"""

from __future__ import annotations

import gc
import math
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

from packviz.bench.machine import calm_allocator, caption, load_average, overload, page_faults, peak, provenance
from packviz.core.has_text import HasText
from packviz.draw import quantities, text

Call = Callable[[], object]

CONFIDENCE = 0.95
"""The probability with which a confidence interval covers the true median, at least."""

FEWEST_ROUNDS = 6
"""All n rounds lie on one side of the true median with probability 2 / 2ⁿ: only from 6 on is that below 5 %."""

NARROW = 1.1
"""An interval is narrow if its upper end is at most this many times its lower end: it is known to about 5 %."""

_UNSTEADY = 1.5  # third over first quartile of the same call: 1.02 to 1.2 on a machine that does nothing else

_FORMED = "the median of the rounds' ratios, not the ratio of two medians"
RATIOS = f"A ratio is {_FORMED}."
"""What to say under a table that has ratios beside medians: the two may differ."""

_BUSY = "The machine is busy: {}. Times and ratios may be wrong."


class _WallClock:
    """A monotonic clock, for the CPU, or for a device that can be waited for. It times one stretch of work."""

    def __init__(self, synchronize: Callable[[], object]) -> None:
        self._synchronize, self._began = synchronize, 0

    def start(self) -> None:
        """Waits for the device, and notes the time."""
        self._synchronize()
        self._began = time.perf_counter_ns()

    def stop(self) -> float:
        """Waits for the device, and gives the seconds since."""
        self._synchronize()
        return (time.perf_counter_ns() - self._began) / 1e9


class _CudaClock:
    """CUDA events, which the GPU itself stamps: what Python does after the last kernel is asked for does not count."""

    stopped: ClassVar[dict[str, float]] = {}  # by device, when a clock was last stopped

    def __init__(self, device: Any) -> None:
        """Makes a clock, and wakes its GPU: the GPU's own clocks that have slept need up to a second of work."""
        import torch  # noqa: PLC0415

        self._cuda, self._device = torch.cuda, device
        if time.monotonic() - self.stopped.get(str(device), -math.inf) > _AWAKE:
            _keep_busy(device, _AWAKE)
        with torch.cuda.device(device):
            self._began, self._ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]

    def start(self) -> None:
        """Waits for the GPU, and has it note the time."""
        self._cuda.synchronize(self._device)
        self._began.record(self._cuda.current_stream(self._device))

    def stop(self) -> float:
        """Has the GPU note the time, waits for it, and gives the seconds between."""
        self._ended.record(self._cuda.current_stream(self._device))
        self._cuda.synchronize(self._device)
        self.stopped[str(self._device)] = time.monotonic()
        return float(self._began.elapsed_time(self._ended)) / 1e3


_AWAKE = 1.0  # seconds


def _keep_busy(device: Any, seconds: float) -> None:
    import torch  # noqa: PLC0415

    x, until = torch.ones(1024, 1024, device=device), time.monotonic() + seconds
    while time.monotonic() < until:
        float((x @ x).sum())


def clock_for(device: Any) -> _WallClock | _CudaClock:
    """Returns the clock of a device: CUDA events, or else a monotonic clock that waits for the device."""
    import torch  # noqa: PLC0415

    device = torch.device(device)
    if device.type == "cuda":
        return _CudaClock(device)
    return _WallClock((lambda: None) if device.type == "cpu" else getattr(torch, device.type).synchronize)


class Estimate(float):
    """The median of what the rounds measured, as a number.

    Attributes:
        low: lower end of its 95 % confidence interval; -inf if there were too few rounds for one.
        high: upper end.
    """

    low: float
    high: float

    def __new__(cls, median: float, low: float = -math.inf, high: float = math.inf) -> Estimate:
        """Makes the number and keeps its range."""
        made = super().__new__(cls, median)
        made.low, made.high = low, high
        return made

    def __repr__(self) -> str:
        return f"{self:.3g} (95 % interval {quantities.between((self.low, self.high))})"

    @property
    def known(self) -> str:
        """The digits that are known."""
        return quantities.known(self, (self.low, self.high))


@dataclass(frozen=True)
class Ratio(HasText):
    """How many times as long one takes as another: the median of the rounds' ratios, and their quartiles.

    Attributes:
        name: what is compared.
        to: what it is compared to.
        value: median of `name` over `to`.
        low: first quartile.
        high: third quartile.
        rounds: how many were measured.
        interval: confidence interval of `value` (see `median_interval`); unknown where only quartiles were kept.
    """

    name: str
    to: str
    value: float
    low: float
    high: float
    rounds: int
    interval: tuple[float, float] = (-math.inf, math.inf)

    @property
    def is_clear(self) -> bool:
        """Whether the rounds tell the two apart: the interval leaves out 1."""
        low, high = self.interval
        return not low <= 1 <= high

    @property
    def is_narrow(self) -> bool:
        """Whether the interval is narrow enough to stop measuring. This does not depend on where the interval lies."""
        return _is_narrow(self.interval)

    @property
    def number(self) -> str:
        """The value with the digits that are known."""
        return quantities.known(self.value, self.interval)

    @property
    def between(self) -> str:
        """The interval in words: `1.87 to 2.13`."""
        return quantities.between(self.interval)

    def to_text(self) -> str:
        """The ratio in words, or that the rounds do not tell the two apart."""
        if self.rounds < FEWEST_ROUNDS:
            return f"{text.count(self.rounds, 'round')} cannot tell {self.name} and {self.to} apart; measure at least 6"
        if self.is_clear:
            sentence = f"{self.name} takes {self.number} times as long as {self.to}"
            return f"{sentence} ({CONFIDENCE:.0%} interval {self.between})".replace("%", " %")
        return f"cannot tell {self.name} and {self.to} apart: {self.name} takes {self.between} times as long"


@dataclass(frozen=True, repr=False)
class Timing(HasText):
    """What was measured, round by round.

    Attributes:
        seconds: for each name its time in every complete round. Entry `i` of each is of the same round.
        warmup: rounds that were run before and not counted.
        stopped: whether it was stopped before the last round.
        provenance: what it was measured on, as plain data.
        memory: for each name the most bytes that a call had in use at once (see `machine.peak`), where that was asked
            for and could be counted.
        missing: why somebody who belongs here was not timed, by name.
    """

    seconds: Mapping[str, Sequence[float]]
    warmup: int = 0
    stopped: bool = False
    provenance: Mapping[str, Any] = field(default_factory=dict)
    memory: Mapping[str, int] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)

    @property
    def rounds(self) -> int:
        """Complete rounds."""
        return min(map(len, self.seconds.values()), default=0)

    @property
    def caption(self) -> str:
        """What it was measured on, how and when, in a line."""
        return caption(self.provenance, [self.rounds])

    def median(self, name: str) -> float:
        """The median time in seconds.

        Raises:
            ValueError: there is no such name, or no round was completed.
        """
        return statistics.median(self._of(name))

    def spread(self, name: str) -> tuple[float, float, float]:
        """First quartile, median and third quartile in seconds. Raises as `median` does."""
        low, high = _quartiles(self._of(name))
        return low, self.median(name), high

    def interval(self, name: str) -> tuple[float, float]:
        """The confidence interval of the median in seconds (see `median_interval`). Raises as `median` does."""
        return median_interval(self._of(name))

    def ratio(self, name: str, to: str) -> Ratio:
        """How many times as long `name` takes as `to`. Raises as `median` does."""
        # A clock that is too coarse may say 0.
        ratios = [max(a, 1e-12) / max(b, 1e-12) for a, b in zip(self._of(name), self._of(to), strict=True)]
        return Ratio(name, to, statistics.median(ratios), *_quartiles(ratios), len(ratios), median_interval(ratios))

    def is_narrow(self, to: str | None = None) -> bool:
        """Whether every ratio to `to`, or to the first name, is known to about 5 %; of a single name, its time."""
        first, *others = dict.fromkeys([to or next(iter(self.seconds)), *self.seconds])
        intervals = [self.ratio(name, first).interval for name in others] or [self.interval(first)]
        return all(map(_is_narrow, intervals))

    @property
    def busy(self) -> str:
        """Why the machine looks busy: its load, or the spread of the rounds. Empty if it does not."""
        if load := overload(self.provenance):
            return load
        if self.rounds < FEWEST_ROUNDS:
            return ""
        usual = statistics.median(high / max(low, 1e-12) for low, _, high in map(self.spread, self.seconds))
        if usual <= _UNSTEADY:
            return ""
        return f"the same call takes up to {usual:.2g} times as long, even in the middle half of the rounds"

    @property
    def notes(self) -> list[str]:
        """What stands below a picture of it: what it was measured on, and whether the machine was busy."""
        return [f"Measured on {self.caption}.", *([_BUSY.format(self.busy)] if self.busy else [])]

    def against(self, to: str) -> list[list[str]]:
        """Rows of a table: each name, its median in ms, and how many times as long as `to` it takes, with quartiles."""
        rows = []
        for name in self.seconds:
            ratio = self.ratio(name, to)
            doubt = "" if ratio.is_clear or name == to else ", not told apart"
            said = f"{ratio.value:.3g} ({ratio.low:.3g} to {ratio.high:.3g}){doubt}"
            rows.append([name, quantities.milliseconds(self.median(name)), said])
        return rows

    def to_text(self) -> str:
        """Median and quartiles of each, and each against the first."""
        names = list(self.seconds)
        if not self.rounds:
            return f"stopped before the first round was complete: nothing to say of {', '.join(names)}"
        rows = []
        for name in names:
            low, middle, high = map(quantities.milliseconds, self.spread(name))
            most = f", at most {self.memory[name] / 1e6:.3g} MB at once" if name in self.memory else ""
            rows.append([name, f"{middle} ms", f"(quartiles {low} to {high}){most}"])
        lines = text.table(rows, "<  .12  <")
        lines += [self.ratio(name, names[0]).to_text() for name in names[1:]]
        lines += [f"✗ {name} was left out: {why}" for name, why in self.missing.items()]
        lines += filter(None, [self.provenance.get("results")])
        stopped = ", then stopped" if self.stopped else ""
        rounds = "1 round" if self.rounds == 1 else f"{self.rounds} interleaved rounds"
        how = f"; a ratio is {_FORMED}" if len(names) > 1 else ""
        lines.append(f"{rounds} after {self.warmup} to warm up{stopped}{how}.")
        return "\n".join([*lines, *(self.notes if self.provenance else [])])

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain data for a JSON file."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Timing:
        """Reads what `to_dict` gave.

        Raises:
            ValueError: `data` is something else.
        """
        try:
            seconds = {name: tuple(map(float, values)) for name, values in data["seconds"].items()}
            return cls(**{**data, "seconds": seconds})
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"data is no record of a Timing: {type(error).__name__} {error}") from None

    def _of(self, name: str) -> Sequence[float]:
        if name in self.missing:
            raise ValueError(f"{name} was left out: {self.missing[name]}")
        if name not in self.seconds:
            raise ValueError(f"there is no timing of {name!r}; there are {', '.join(map(repr, self.seconds))}")
        if not self.rounds:
            raise ValueError(f"no round was completed, so there is no time of {name!r}")
        return self.seconds[name]


def measure(
    calls: Mapping[str, Call],
    *,
    rounds: int = 20,
    warmup: int = 3,
    device: Any = "cpu",
    before: Mapping[str, Call] | None = None,
    progress: Callable[[int, int], object] = lambda done, all: None,
    stop: Callable[[], bool] = lambda: False,
    clock: Any = None,
    parameters: Mapping[str, Any] | None = None,
    memory: bool = False,
    until_narrow: bool = False,
    to: str | None = None,
    budget: float = math.inf,
) -> Timing:
    """Times several functions against each other.

    On the CPU it first calls `calm_allocator()`, which holds for the rest of the process. A sample is one call: both
    clocks tell tens of nanoseconds apart (CUDA's half a microsecond), far less than anything here takes.

    Args:
        calls: what to time, by name.
        rounds: how often each is timed, at most.
        warmup: rounds before that, not counted.
        device: where the work is done, so that it can be waited for.
        before: by name, what to call before each call of that name, outside of the time (build a graph, clear
            gradients). What it returns is dropped.
        progress: called after every round, also those of the warm-up, with the rounds done and the rounds in all.
        stop: asked before every call whether to stop; a round that is not complete is dropped.
        clock: with `start()` and `stop()`, in place of the device's own.
        parameters: kept in the provenance: what was measured.
        memory: whether to count the peak memory too: of one more call of each, after the warm-up, untimed.
        until_narrow: whether to stop as soon as every ratio is known to about 5 % (`Timing.is_narrow`). That is looked
            at after `FEWEST_ROUNDS` rounds, and then whenever their number has grown by a quarter. It depends on the
            width of the intervals alone and never on where they lie: to stop once two are told apart would find
            differences that are not there.
        to: the name that ratios are taken to, for `until_narrow`; if not given, the first.
        budget: seconds after which no round begins, once `FEWEST_ROUNDS` are complete.

    Returns:
        A `Timing`. Its provenance also holds the page faults per round, to tell whether the allocator was calm.

    Raises:
        ValueError: nothing to time, no rounds, or `before` or `to` has a name that `calls` has not.
    """
    before = before or {}
    _require_sense(calls, rounds, warmup, before, to)
    if clock is None:
        if str(device).startswith("cpu"):
            calm_allocator()
        clock = clock_for(device)
    place = provenance(device, parameters)  # first: if it fails, nothing is lost
    order, shuffle, end = list(calls), random.Random(0).shuffle, time.monotonic() + budget
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    found = Timing(seconds, warmup, provenance=place, memory={})
    faults, look = None, FEWEST_ROUNDS
    prepared = partial(_prepared, calls, before, stop)
    try:
        with _no_garbage_collection():
            for done in range(warmup + rounds):
                if found.rounds >= FEWEST_ROUNDS and time.monotonic() >= end:
                    break
                if done == warmup:
                    most = {name: peak(prepared(name), device) for name in order if memory}
                    found = replace(found, memory={name: size for name, size in most.items() if size is not None})
                    faults = page_faults()
                shuffle(order)
                for name, took in {name: _seconds(prepared(name), clock) for name in order}.items():
                    seconds[name] += [took] * (done >= warmup)
                progress(done + 1, warmup + rounds)
                if until_narrow and found.rounds >= look:
                    if found.is_narrow(to):
                        break
                    look = found.rounds + max(1, found.rounds // 4)
    except StoppedError:
        found = replace(found, stopped=True)
    place["load_average"] = load_average()
    if faults is not None and found.rounds:
        place["page_faults_per_round"] = ((page_faults() or 0) - faults) // found.rounds
    return replace(found, seconds={name: tuple(times) for name, times in seconds.items()})


class StoppedError(Exception):
    """What is measured was stopped before it was complete."""


def _prepared(calls: Mapping[str, Call], before: Mapping[str, Call], stop: Callable[[], bool], name: str) -> Call:
    if stop():
        raise StoppedError
    before.get(name, lambda: None)()
    return calls[name]


def _seconds(call: Call, clock: Any) -> float:
    clock.start()
    call()
    return float(clock.stop())


def _require_sense(
    calls: Mapping[str, Call], rounds: int, warmup: int, before: Mapping[str, Call], to: str | None
) -> None:
    if not calls:
        raise ValueError("calls is empty; give at least one function to time, by name")
    if rounds < 1 or warmup < 0:
        raise ValueError(
            f"rounds is {rounds} and warmup {warmup}; give at least 1 round, and no fewer than 0 to warm up"
        )
    for argument, names in (("before has", before), ("to is", [to] if to is not None else [])):
        if unknown := [name for name in names if name not in calls]:
            raise ValueError(f"{argument} {unknown[0]!r}, which is not among calls; there are {', '.join(calls)}")


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Collects the young now, and then nothing until the end: a collection in the middle would be timed.

    What a measurement leaves behind is young, since nothing is collected meanwhile. The old as well would take up to
    half a second where much is loaded, and no call would be any faster for it.
    """
    was_on = gc.isenabled()
    gc.disable()
    gc.collect(1)
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _quartiles(values: Sequence[float]) -> tuple[float, float]:
    """First and third quartile, by linear interpolation between the values."""
    if len(values) == 1:
        return values[0], values[0]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """The confidence interval of the median of what the values are drawn from, at `CONFIDENCE`.

    Its ends are two of the values, by the formula at the top of this file. Without an assumption about the distribution
    fewer than `FEWEST_ROUNDS` values say nothing: the interval is then everything from -inf to inf.
    """
    n = len(values)
    outside, k = 2 / 2**n, 0
    if outside > 1 - CONFIDENCE:
        return -math.inf, math.inf
    while (outside := outside + 2 * math.comb(n, k + 1) / 2**n) <= 1 - CONFIDENCE:
        k += 1
    ordered = sorted(values)
    return ordered[k], ordered[n - 1 - k]


def _is_narrow(interval: tuple[float, float]) -> bool:
    low, high = interval
    return low >= 0 and high <= NARROW * low
