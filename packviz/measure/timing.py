"""Times functions against each other. All measurements in packviz use this module.

The functions take turns: every round calls each of them once, in a new random order. If the machine
warms up, throttles or is shared, this affects all functions alike. For the same reason, each ratio
compares two times from the same round. Results are medians and quartiles, so that a single pause
has little effect.

The confidence interval of a median time or ratio shows how precisely n rounds determine that median
(`median_interval`). It assumes only that the rounds are independent and have the same median. Each
round lies above the true median with probability 1/2, so the number of rounds above it is binomial.
If x₁ … xₙ are the rounds in ascending order,

    P(xₖ₊₁ ≤ median ≤ xₙ₋ₖ) ≥ 1 − 2 · (C(n,0) + … + C(n,k)) / 2ⁿ

The interval uses the largest k for which the right-hand side is at least `CONFIDENCE`. The rounds
can tell two calls apart if the interval of their ratio excludes 1. This is the sign test. With
fewer than `MIN_INTERVAL_ROUNDS` rounds, there is no such interval.
"""

from __future__ import annotations

import gc
import math
import random
import statistics
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from packviz.core.util import HasText
from packviz.draw import quantities
from packviz.draw.text import table, with_noun
from packviz.measure.machine import (
    JsonDict,
    caption,
    describe_overload,
    load_average,
    page_faults,
    peak_memory,
    provenance,
)

if TYPE_CHECKING:
    import torch

Call = Callable[[], object]
Stopwatch = Callable[[Call], float]
"""A function that makes a call, and returns the seconds that the call took."""
Sample = tuple[float, int | None]
"""The seconds and the page faults of a call. If the platform does not count page faults, they are
`None`."""
Sampler = Callable[[], Sample]
"""A function that makes a call, in this process or in another one, and returns its `Sample`."""

CONFIDENCE = 0.95
"""The lowest probability with which a confidence interval covers the true median."""

MIN_INTERVAL_ROUNDS = 6
"""The smallest number of rounds that gives a confidence interval. All n rounds lie on one side of
the median with probability 2 / 2ⁿ, which is at most 1 − `CONFIDENCE` if n is at least 6."""

NARROW_FACTOR = 1.1
"""An interval is narrow if its ends differ by at most this factor.

The value is then known to about 5 %.
"""

RATIO_NOTE = "A ratio is the median of the rounds' ratios, not the ratio of two medians."
"""The note below a table of ratios and medians, which explains why they may not match."""

_UNSTEADY_FACTOR = 1.5  # the third quartile divided by the first; 1.02 to 1.2 on an idle machine
_AWAKE_SECONDS = 1.0  # the work that wakes a GPU, and the longest pause in which it stays awake
_SECONDS_FLOOR = 1e-12  # seconds; a coarse clock may measure 0, by which no time can be divided


_gpu_last_used: dict[str, float] = {}
"""The time at which each GPU last finished a timed call."""


def make_stopwatch(device: object) -> Stopwatch:
    """Returns a stopwatch for work on the CPU or on a GPU."""
    name = str(device)
    return _make_cuda_stopwatch(name) if name.startswith("cuda") else _cpu_seconds


def _cpu_seconds(call: Call) -> float:
    start = time.perf_counter_ns()
    call()
    return (time.perf_counter_ns() - start) / 1e9


def _make_cuda_stopwatch(device: str) -> Stopwatch:
    """Returns a stopwatch that uses CUDA events, and wakes the GPU.

    The GPU records the times of the events, so time spent in Python afterwards does not count.
    After a pause, a GPU needs up to a second to reach its frequency.
    """
    import torch  # noqa: PLC0415

    if time.monotonic() - _gpu_last_used.get(device, -math.inf) > _AWAKE_SECONDS:
        _keep_busy(device, _AWAKE_SECONDS)
    event: Callable[..., torch.cuda.Event] = torch.cuda.Event
    with torch.cuda.device(device):
        start_event = event(enable_timing=True)
        end_event = event(enable_timing=True)

    def measure_seconds(call: Call) -> float:
        torch.cuda.synchronize(device)
        start_event.record(torch.cuda.current_stream(device))
        call()
        end_event.record(torch.cuda.current_stream(device))
        torch.cuda.synchronize(device)
        _gpu_last_used[device] = time.monotonic()
        return float(start_event.elapsed_time(end_event)) / 1e3

    return measure_seconds


def _keep_busy(device: str, seconds: float) -> None:
    import torch  # noqa: PLC0415

    x = torch.ones(1024, 1024, device=device)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        float((x @ x).sum())


@dataclass(frozen=True)
class Ratio(HasText):
    """The time of one call as a multiple of another call's time.

    It is given by the median and the quartiles of the rounds' ratios.

    Attributes:
        name: the call whose time is divided.
        to: the call whose time is the divisor.
        value: median of the ratios.
        low: first quartile.
        high: third quartile.
        rounds: number of rounds.
        interval: confidence interval of `value` (see `median_interval`). It is infinite if there
            were too few rounds.
    """

    name: str
    to: str
    value: float
    low: float
    high: float
    rounds: int
    interval: tuple[float, float]

    @property
    def is_clear(self) -> bool:
        """True if the rounds tell the two calls apart, which means that the interval excludes 1."""
        low, high = self.interval
        return not low <= 1 <= high

    @property
    def doubt(self) -> str:
        """The reason why the rounds do not tell the two calls apart, or `""` if they do."""
        if self.is_clear:
            return ""
        if self.rounds < MIN_INTERVAL_ROUNDS:
            return "too few rounds to tell"
        return "no clear difference"

    @property
    def number(self) -> str:
        """The value as text, with as many digits as are known."""
        return quantities.format_known_digits(self.value, self.interval)

    @property
    def between(self) -> str:
        """The interval as text, such as `1.87 to 2.13`."""
        return quantities.format_interval(self.interval)

    def to_text(self) -> str:
        """Returns a sentence with the ratio, or with "no clear difference"."""
        if self.rounds < MIN_INTERVAL_ROUNDS:
            rounds = with_noun(self.rounds, "round")
            return f"{rounds} cannot tell {self.name} and {self.to} apart; measure at least 6"
        if self.is_clear:
            return (
                f"{self.name} takes {self.number} times as long as {self.to}"
                f" (95 % interval {self.between})"
            )
        return (
            f"no clear difference between {self.name} and {self.to}:"
            f" {self.name} takes {self.between} times as long"
        )


@dataclass(frozen=True)
class Timing(HasText):
    """The times of several calls, round by round.

    Attributes:
        seconds: the times of each call in every complete round, by name. Times at the same index
            are from the same round.
        warmup: number of rounds that were run first and not counted.
        provenance: the machine and the parameters, as plain data (see `machine.provenance`).
        memory: the peak memory of each call in bytes, by name (see `machine.peak_memory`), if it
            was measured.
        faults: the median number of page faults in a call, by name. It is empty if the platform
            does not count them, or if the file is older than this field.
        missing: the reasons why calls were not timed, by name.
    """

    seconds: Mapping[str, Sequence[float]]
    warmup: int = 0
    provenance: JsonDict = field(default_factory=dict)
    memory: Mapping[str, int] = field(default_factory=dict)
    faults: Mapping[str, int] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)

    @property
    def rounds(self) -> int:
        """The number of rounds."""
        return min(map(len, self.seconds.values()), default=0)

    @property
    def caption(self) -> str:
        """The machine, the number of rounds and the date, in one line."""
        return caption(self.provenance, [self.rounds])

    def median(self, name: str) -> float:
        """Returns the median time in seconds.

        Raises:
            ValueError: there is no call of this name, or it was left out.
        """
        return self.spread(name)[1]

    def spread(self, name: str) -> tuple[float, float, float]:
        """Returns the three quartiles in seconds; the second is the median.

        Raises the same errors as `median`.
        """
        return _quartiles(self._call_times(name))

    def ratio(self, name: str, to: str) -> Ratio:
        """Returns the time of `name` as a multiple of the time of `to`.

        Raises the same errors as `median`.
        """
        pairs = zip(self._call_times(name), self._call_times(to), strict=True)
        ratios = [
            max(dividend, _SECONDS_FLOOR) / max(divisor, _SECONDS_FLOOR)
            for dividend, divisor in pairs
        ]
        low, middle, high = _quartiles(ratios)
        return Ratio(name, to, middle, low, high, len(ratios), median_interval(ratios))

    @property
    def is_narrow(self) -> bool:
        """Whether the ratios to the first call, or its time if it is the only one, are narrow."""
        first, *others = self.seconds
        intervals = [self.ratio(name, first).interval for name in others]
        intervals = intervals or [median_interval(self._call_times(first))]
        return all(low >= 0 and high <= NARROW_FACTOR * low for low, high in intervals)

    @property
    def busy(self) -> str:
        """The reason why the machine looks busy, which is its load or the spread; or `""`."""
        if overload := describe_overload(self.provenance):
            return overload
        if self.rounds < MIN_INTERVAL_ROUNDS:
            return ""
        factors = []
        for name in self.seconds:
            low, _, high = self.spread(name)
            factors.append(high / max(low, _SECONDS_FLOOR))
        typical_spread = statistics.median(factors)
        if typical_spread <= _UNSTEADY_FACTOR:
            return ""
        return (
            "even in the middle half of the rounds, times of the same call differ by a factor of"
            f" {typical_spread:.2g}"
        )

    @property
    def notes(self) -> list[str]:
        """The lines below a picture or table: the machine, whether it was busy, and the results."""
        lines = [f"Measured on {self.caption}."]
        if self.busy:
            lines.append(f"The machine is busy: {self.busy}. Times and ratios may be wrong.")
        if self.provenance.get("agreement"):
            lines.append(self.provenance["agreement"])
        return lines

    def against(self, to: str) -> list[list[str]]:
        """Returns a row for each call: its name, its median in ms, and its ratio to `to`."""
        rows = []
        for name in self.seconds:
            ratio = self.ratio(name, to)
            ratio_text = f"{ratio.value:.3g} ({ratio.low:.3g} to {ratio.high:.3g})"
            if ratio.doubt and name != to:
                ratio_text += f", {ratio.doubt}"
            milliseconds = quantities.format_milliseconds(self.median(name))
            rows.append([name, milliseconds, ratio_text])
        return rows

    def costs(self, name: str) -> str:
        """Returns the peak memory and the page faults of a call, as far as they were measured."""
        parts = []
        if name in self.memory:
            parts.append(f"peak memory {self.memory[name] / 1e6:.3g} MB")
        if name in self.faults:
            parts.append(with_noun(self.faults[name], "page fault"))
        return ", ".join(parts)

    def to_text(self) -> str:
        """Returns the median, quartiles and costs of each call, and its ratio to the first call."""
        if not self.rounds:
            return "no call was timed"
        first, *others = self.seconds
        rows = []
        for name in self.seconds:
            low, middle, high = map(quantities.format_milliseconds, self.spread(name))
            quartiles_text = f"(quartiles {low} to {high})"
            rows.append([name, f"{middle} ms", quartiles_text, self.costs(name)])
        lines = table(rows, "<  .12  <  <")
        lines += [self.ratio(name, first).to_text() for name in others]
        for name, why in self.missing.items():
            lines.append(f"✗ {name} was left out: {why}")
        rounds = with_noun(self.rounds, "round")
        lines.append(f"{rounds} after {self.warmup} to warm up.")
        if others:
            lines.append(RATIO_NOTE)
        if self.provenance:
            lines += self.notes
        return "\n".join(lines)

    def _call_times(self, name: str) -> Sequence[float]:
        if name in self.missing:
            raise ValueError(f"{name!r} was left out: {self.missing[name]}")
        if name not in self.seconds:
            names = ", ".join(map(repr, self.seconds))
            raise ValueError(f"there is no timing of {name!r}; choose one of {names}")
        return self.seconds[name]


def time_call(call: Call, stopwatch: Stopwatch, before_call: Call) -> Sample:
    """Makes a call, and returns its seconds and page faults.

    Args:
        call: the function to time.
        stopwatch: the stopwatch that makes the call.
        before_call: a function to run before the call, outside the measured time.
    """
    before_call()
    faults_before = page_faults()
    seconds = stopwatch(call)
    faults_after = page_faults()
    return (
        seconds,
        None if faults_after is None or faults_before is None else faults_after - faults_before,
    )


def measure(
    calls: Mapping[str, Call],
    *,
    rounds: int = 20,
    warmup: int = 3,
    device: str | torch.device = "cpu",
    before_call: Call | None = None,
    stopwatch: Stopwatch | None = None,
    until_narrow: bool = False,
    budget: float = math.inf,
    min_rounds: int = MIN_INTERVAL_ROUNDS,
) -> Timing:
    """Times several functions against each other, in this process.

    Each sample is a single call. This is precise enough if a call takes far longer than the
    resolution of the clock, which is tens of nanoseconds on a CPU and half a microsecond on a GPU.

    Args:
        calls: the functions to time, by name.
        rounds: the largest number of rounds.
        warmup: number of rounds to run first, which are not counted.
        device: the device that does the work. The clock waits until the device has finished.
        before_call: a function to run before each call, outside the measured time, for example to
            clear gradients.
        stopwatch: a stopwatch to use in place of the device's own.
        until_narrow: whether to stop as soon as every ratio is known to about 5 %
            (`Timing.is_narrow`). This is checked after `MIN_INTERVAL_ROUNDS` rounds, and then
            whenever their number has grown by a quarter. The check depends only on the width of the
            intervals, because stopping as soon as two calls can be told apart would find
            differences that don't exist.
        budget: seconds after which no new round begins, once `min_rounds` rounds are complete.
        min_rounds: number of rounds that are completed even if the budget is spent.

    Raises:
        ValueError: `calls` is empty, `rounds` is below 1, or `warmup` is below 0.
    """
    if not calls:
        raise ValueError(
            "calls is empty; give at least one function with its name, as in {'a': function}"
        )
    if rounds < 1 or warmup < 0:
        raise ValueError(
            f"rounds is {rounds}, and warmup is {warmup}; give rounds of at least 1, and warmup of"
            " at least 0"
        )
    stopwatch = stopwatch or make_stopwatch(device)
    before_call = before_call or (lambda: None)
    place = provenance(device)  # first, so that no times are lost if this fails
    samplers = {
        name: partial(time_call, call, stopwatch, before_call) for name, call in calls.items()
    }
    timing = time_rounds(
        samplers,
        rounds,
        warmup,
        until_narrow=until_narrow,
        budget=budget,
        min_rounds=min_rounds,
    )
    place["load_average"] = load_average()
    return replace(timing, provenance=place)


def peak_memories(
    calls: Mapping[str, Call], before_call: Call, device: str | torch.device
) -> dict[str, int]:
    """Returns the peak memory of each call in bytes, by name, if it can be measured."""
    peak_bytes_by_call = {}
    for name, call in calls.items():
        before_call()
        peak_bytes = peak_memory(call, device)
        if peak_bytes is not None:
            peak_bytes_by_call[name] = peak_bytes
    return peak_bytes_by_call


def time_rounds(
    calls: Mapping[str, Sampler],
    rounds: int,
    warmup: int,
    *,
    budget: float,
    min_rounds: int,
    until_narrow: bool = False,
) -> Timing:
    """Times calls in rounds.

    The other arguments are those of `measure`; the result has no provenance.
    """
    names = list(calls)
    shuffle = random.Random(0).shuffle
    end = time.monotonic() + budget
    seconds: dict[str, list[float]] = {name: [] for name in names}
    fault_counts: dict[str, list[int]] = {name: [] for name in names}
    next_check = MIN_INTERVAL_ROUNDS

    with no_garbage_collection():
        for round_index in range(warmup + rounds):
            if round_index >= warmup + min_rounds and time.monotonic() >= end:
                break
            shuffle(names)
            for name in names:
                call_seconds, call_faults = calls[name]()
                if round_index >= warmup:
                    seconds[name].append(call_seconds)
                    if call_faults is not None:
                        fault_counts[name].append(call_faults)
            if until_narrow and round_index + 1 - warmup >= next_check:
                if Timing(seconds).is_narrow:
                    break
                next_check += max(1, next_check // 4)
    median_faults = {
        name: statistics.median_low(fault_counts[name]) for name in calls if fault_counts[name]
    }
    times = {name: tuple(seconds[name]) for name in calls}
    return Timing(times, warmup, faults=median_faults)


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Prevents the collection of garbage in a `with` block, because it would be timed.

    Young garbage is collected first.

    The previous measurement has left only young garbage, because nothing was collected during it.
    To collect the old generation as well would take up to half a second if many modules are loaded,
    and would not make any call faster.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    gc.collect(1)
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Returns the three quartiles, by linear interpolation between the values."""
    low, middle, high = np.percentile(values, [25, 50, 75]).tolist()
    return low, middle, high


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Returns an interval that covers the true median with probability `CONFIDENCE` or more.

    Its ends are two of the values, chosen by the formula in the docstring of this module. With
    fewer than `MIN_INTERVAL_ROUNDS` values, there is no such interval, and the result is -inf to
    inf.
    """
    n = len(values)
    two_sided_probabilities = [2 * math.comb(n, k) / 2**n for k in range(n)]
    tail_probabilities = [*accumulate(two_sided_probabilities)]
    k = bisect_right(tail_probabilities, 1 - CONFIDENCE) - 1
    if k < 0:
        return -math.inf, math.inf
    sorted_values = sorted(values)
    return sorted_values[k], sorted_values[n - 1 - k]
