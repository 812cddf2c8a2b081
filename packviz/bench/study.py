"""A study: an experiment whose results are kept in a file and shown in a notebook. One form for all of them.

A study defines its points, what is measured at one, and how its results are presented. The form does the rest: threads,
allocator, provenance, rounds or a budget, comparing results before they are timed, progress, stopping, resuming, and
the file.

A result file is JSON, of the kind that the study is named:

    {"packviz": "methods", "version": 1,
     "provenance": {…},   what it was measured on (see `provenance`); under "parameters" how
     "points": [{…}]}     for each point its fields, and what was measured there (see `Study.write`)
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from packviz.bench.machine import calm_allocator, caption, check_device, provenance
from packviz.bench.timing import Ratio, StoppedError, Timing, measure
from packviz.core import results
from packviz.core.has_text import HasText, first_line

P = TypeVar("P")
V = TypeVar("V")
R = TypeVar("R", bound="Results[Any, Any]")

CHANGING = ("date", "load_average", "page_faults_per_round")
"""What of the provenance each point has for itself."""

_NOT_COMPARED = (*CHANGING, "device", "fake")  # the device has a name too
_OF_A_GPU = ("device_name", "cpu", "threads", "torch", "packviz", "python", "cuda", "cudnn", "tf32")
"""What must be equal to resume from results of a GPU on another machine, with its own settings of the allocator. On a
CPU everything else must be equal, too."""
_OF_A_HOST = ("driver", "cores")  # kept by each point of a GPU

_LABELS = {"device_name": "device", "cuda": "CUDA", "cudnn": "cuDNN"}
_MOST_ROUNDS = 25  # that a budget buys; it always buys enough for an interval (see `measure`)
_EFFORT = "rounds", "budget"


@dataclass(frozen=True, repr=False)
class Results(HasText, Generic[P, V]):
    """What a study has found so far.

    Attributes:
        provenance: what it was measured on, as plain data; under `"parameters"` how.
        values: by point, in the order in which they were measured.
    """

    provenance: Mapping[str, Any]
    values: Mapping[P, V]

    @property
    def points(self) -> Sequence[Any]:
        """Those that were measured."""
        return [*self.values]

    @property
    def timings(self) -> Iterable[Timing]:
        """Everything that was timed, as far as it was kept round by round."""
        return [timing for value in self.values.values() for timing in self.timed(value).values()]

    def timed(self, value: V) -> Mapping[str, Timing]:
        """What was timed against each other at a point, by pass where there are several."""
        some = value if isinstance(value, dict) else {"": value}
        return {which: timing for which, timing in some.items() if isinstance(timing, Timing)}

    @property
    def left_out(self) -> list[str]:
        """What was not timed, where, and why."""
        return [line for point in self.values for line in self.left_out_at(point)]

    def left_out_at(self, point: P) -> list[str]:
        """What was not timed at a point, and why."""
        return [
            ", ".join(filter(None, (str(point), which, f"{name}: {why}")))
            for which, timing in self.timed(self.values[point]).items()
            for name, why in timing.missing.items()
        ]

    @property
    def unverified(self) -> list[str]:
        """The points where the results of what was timed were never compared."""
        return [
            str(point)
            for point, value in self.values.items()
            if any("difference" not in timing.provenance for timing in self.timed(value).values())
        ]

    @property
    def caption(self) -> str:
        """What it was measured on, how and when, in a line: it stands under every chart and table of it."""
        timed = [timing for timing in self.timings if timing.rounds]
        planned = self.provenance.get("parameters", {}).get("rounds")
        rounds = [timing.rounds for timing in timed] or ([planned] if planned else [])
        return caption(self.provenance, rounds, [timing.provenance for timing in timed])

    def to_text(self) -> str:
        """What was found, in words."""
        raise NotImplementedError


def captions(machines: Mapping[str, Results[Any, Any]]) -> list[str]:
    """What was measured on, to stand below a chart: of several machines, by what to call them, a line for each."""
    line = "{}: {}." if len(machines) > 1 else "Measured on {1}."
    return [line.format(name, found.caption) for name, found in machines.items()]


PASSES = {"training": "forward and backward pass", "forward": "forward pass"}
"""The two passes that are timed apart: training is forward and backward, forward builds no graph for autograd."""


class Timings(Results[P, Timing]):
    """Results of a study that times one comparison at each point."""

    def ratio(self, point: P, name: str, to: str) -> Ratio:
        """How many times as long one takes as another. Raises as `Timing.ratio` does."""
        return self.values[point].ratio(name, to)


Report = Callable[[float, str], object]
"""Takes how far a study is: the share of its points that are done, and the same in words."""


@dataclass(frozen=True)
class MeasureOptions:
    """How a point is measured.

    Attributes:
        name: of the point.
        device: where.
        parameters: `rounds` for each point, or `budget`, the seconds for one, roughly; others are the study's own.
        progress: to call with the rounds done and the rounds in all.
        stop: to ask before every call whether to stop.
    """

    name: str
    device: str
    parameters: Mapping[str, Any]
    progress: Callable[[int, int], object] = lambda done, of: None
    stop: Callable[[], bool] = lambda: False

    def part(self, name: str, i: int, of: int) -> MeasureOptions:
        """The same for part `i` of a point that is measured in several."""
        report, whole = self.progress, f"{self.name}, {name}"
        return dataclasses.replace(self, name=whole, progress=lambda done, all: report(i * all + done, of * all))


class Comparison(NamedTuple):
    """Calls whose times are compared.

    Attributes:
        calls: by name.
        clear: what to do before each call, outside of the time.
        alike: names of calls that must give the same results as the first of them, apart from rounding. Those that
            differ or fail are left out.
        parameters: what else to keep beside the times, as plain data.
    """

    calls: Mapping[str, Callable[[], Any]]
    clear: Callable[[], object] = lambda: None
    alike: Sequence[str] = ()
    parameters: Mapping[str, Any] | None = None


def timed(
    comparison: Comparison, how: MeasureOptions, *, warmup: int = 3, memory: bool = False, share: float = 1.0
) -> Timing:
    """Compares the results of the calls, and times them.

    Args:
        comparison: the calls.
        how: `rounds` or `budget`, and whom to notify.
        warmup: rounds before those that count.
        memory: whether to count the peak memory.
        share: of the budget.

    Returns:
        A `Timing`; of its provenance what changes from point to point, the comparison's parameters, and by name the
        largest `difference` from the first that is alike. Whatever was left out is among the missing.

    Raises:
        Exception: that of the first that is alike, unless memory ran out: the others cannot be compared with it.
        StoppedError: it was stopped.
    """
    difference, missing = _compared(comparison, how)
    calls = {name: call for name, call in comparison.calls.items() if name not in missing}
    if not calls:
        return Timing({}, provenance={"difference": difference}, missing=missing)
    timing = measure(
        calls,
        rounds=how.parameters.get("rounds", _MOST_ROUNDS),
        budget=how.parameters.get("budget", math.inf) * share,
        warmup=warmup,
        device=how.device,
        before=dict.fromkeys(calls, comparison.clear),
        progress=how.progress,
        stop=how.stop,
        parameters=comparison.parameters,
        memory=memory,
        until_narrow=bool(how.parameters.get("until_narrow")),
    )
    if timing.stopped:
        raise StoppedError
    own = without_place(timing)
    return dataclasses.replace(own, provenance={**own.provenance, "difference": difference}, missing=missing)


def by_comparison(calls: Callable[[P, str], Comparison], warmup: int = 3) -> Callable[[P, MeasureOptions], Timing]:
    """Returns how a study measures that times one comparison at each point, made of the point and a device."""
    return lambda point, how: timed(calls(point, how.device), how, warmup=warmup)


def by_pass(calls: Callable[[P, str, MeasureOptions], Comparison]) -> Callable[[P, MeasureOptions], dict[str, Timing]]:
    """Returns how a study measures that times a comparison in each of `PASSES`, with memory.

    The forward pass gets half of the budget.
    """

    def timed_by_pass(point: P, how: MeasureOptions) -> dict[str, Timing]:
        found = {}
        for i, which in enumerate(PASSES):
            part, share = how.part(which, i, len(PASSES)), 1 if which == "training" else 0.5
            found[which] = timed(calls(point, which, how), part, warmup=1, memory=True, share=share)
        return found

    return timed_by_pass


def _read(point: Any, entry: Mapping[str, Any]) -> Any:
    """Reads a timing, or those of both passes, from plain data."""
    if PASSES.keys() & entry.keys():
        return {which: Timing.from_dict(entry[which]) for which in PASSES}
    return Timing.from_dict(entry["timing"])


def _write(value: Any) -> dict[str, Any]:
    """Returns a timing, or those of both passes, as plain data."""
    some = {"timing": value} if isinstance(value, Timing) else value
    return {name: timing.to_dict() for name, timing in some.items()}


def without_place(timing: Timing) -> Timing:
    """The timing with no more of the provenance than is its own."""
    kept = (*CHANGING, *_OF_A_HOST) if _on_gpu(timing.provenance) else CHANGING
    own = {name: timing.provenance[name] for name in kept if name in timing.provenance}
    if parameters := timing.provenance.get("parameters"):
        own["parameters"] = parameters
    return dataclasses.replace(timing, provenance=own)


def _compared(comparison: Comparison, how: MeasureOptions) -> tuple[dict[str, float], dict[str, str]]:
    """How far each result is from the first that is alike; and which calls are left out, and why."""
    from packviz.ops.agreement import leaves, relative_error  # noqa: PLC0415 - needs torch
    from packviz.ops.tolerance import full_precision, of_gradients  # noqa: PLC0415

    difference: dict[str, float] = {}
    missing: dict[str, str] = {}
    right: list[Any] = []
    reference = ""
    with full_precision():
        for name in comparison.alike:
            if how.stop():
                raise StoppedError
            comparison.clear()
            try:
                found = [*leaves(comparison.calls[name]()).values()]
                right, reference = (right, reference) if right else (found, name)
                error, wrong = relative_error(found, right, of_gradients)
            except Exception as problem:  # whatever a compiler or a driver may raise: the others are worth measuring
                missing[name] = "out of memory"
                if not _is_out_of_memory(problem):
                    if not right:
                        raise
                    missing[name] = f"{type(problem).__name__}: {first_line(problem)}"
                continue
            if wrong is not None:
                missing[name] = f"{error:.2g} from {reference}"
            elif name != reference:
                difference[name] = error
    return difference, missing


def _is_out_of_memory(error: BaseException) -> bool:
    """Whether the memory of the GPU, of the CPU, or of a library underneath has run out."""
    signs = "out of memory", "can't allocate memory", "not enough memory", "ALLOC_FAILED"
    return isinstance(error, MemoryError) or any(sign in str(error) for sign in signs)


@dataclass(frozen=True)
class Study(Generic[P, V, R]):
    """An experiment.

    Attributes:
        name: also the kind of its files.
        point: a frozen dataclass of plain data, whose `str` names it.
        measure: what was found at a point; raises `StoppedError` if it was stopped. The random state is its own.
        results: makes the results of their provenance and values; refuses with a ValueError what cannot be.
        full: the points of a recorded file.
        others: more sets of points, by name.
        quick: a few small ones: seconds on a CPU.
        parameters: `rounds` or `budget`, if none are given.
        read: what was found at a point, from plain data.
        write: what was found as plain data, with other names than the fields of a point.
        version: of its files.
    """

    name: str
    point: type[P]
    measure: Callable[[P, MeasureOptions], V]
    results: Callable[[Mapping[str, Any], Mapping[P, V]], R]
    full: Sequence[P] = ()
    quick: Sequence[P] = ()
    others: Mapping[str, Sequence[P]] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    read: Callable[[P, Mapping[str, Any]], V] = _read
    write: Callable[[V], dict[str, Any]] = _write
    version: int = 1

    def run(self, points: Sequence[P] = (), **options: Any) -> R:
        """Measures the points, the quick ones if none are given, and returns the results.

        Args:
            points: to measure.
            **options: parameters in place of the study's own, such as `rounds` or `budget`, and what `steps` takes.
        """
        own = {name: options.pop(name) for name in [*options] if name in (*_EFFORT, "until_narrow", *self.parameters)}
        *_, last = self.steps(points or self.quick, parameters=self.with_parameters(**own), **options)
        return last

    def with_parameters(self, **changed: Any) -> dict[str, Any]:
        """Returns the study's parameters with some replaced; `rounds` and `budget` replace each other.

        Raises:
            ValueError: the study times nothing.
        """
        effort = [name for name in changed if name in _EFFORT]
        if effort and not self.parameters:
            raise ValueError(f"the study {self.name} does no timing, so --{effort[0]} does not apply")
        return {name: value for name, value in self.parameters.items() if not effort or name not in _EFFORT} | changed

    def steps(
        self,
        points: Sequence[P],
        *,
        parameters: Mapping[str, Any],
        device: Any = "cpu",
        threads: int = 1,
        start: R | None = None,
        progress: Report = lambda share, words: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> Iterator[R]:
        """Measures one point after the other.

        Args:
            points: to measure, in this order.
            parameters: how: `rounds` or `budget`, or what the study takes.
            device: where to run.
            threads: torch's CPU threads meanwhile. More than one gain little on products this small, and on a machine
                that is shared they wait for each other.
            start: results to resume from: their points are kept and not measured again.
            progress: called after every round, as `Report` says.
            stop: asked before every call whether to stop; a point that is not complete is dropped.

        Yields:
            The results so far: at the start, and after every point.

        Raises:
            ValueError: the device is not there, there are fewer cores than threads, the study refuses, or `start` was
                measured under different conditions.
        """
        import torch  # noqa: PLC0415

        device = check_device(device)
        if threads > (cores := os.cpu_count() or threads):
            raise ValueError(f"threads is {threads}, more than the cores here: {cores}")
        threads_before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            if device.startswith("cpu"):
                calm_allocator()  # before it is recorded
            place = json.loads(json.dumps(provenance(device, parameters)))  # as a file has it
            result = start or self.results(place, {})
            if conflicts := differences(result.provenance, place):
                raise ValueError(
                    "cannot resume from results that were measured under different conditions"
                    f" ({'; '.join(conflicts)}). Use the same options on the same machine, or choose another file"
                )
            yield result
            plan = [point for point in dict.fromkeys(points) if point not in result.values]
            for i, point in enumerate(plan):

                def report(done: int, rounds: int, i: int = i, point: P = point) -> None:
                    words = f"point {i + 1} of {len(plan)} ({point})"
                    progress((i + done / rounds) / len(plan), words)

                report(0, 1)
                try:
                    with torch.random.fork_rng():  # the caller's random numbers stay the caller's
                        torch.manual_seed(0)
                        value = self.measure(point, MeasureOptions(str(point), device, parameters, report, stop))
                except StoppedError:
                    return
                result = self.results(result.provenance, {**result.values, point: value})
                yield result
        finally:
            torch.set_num_threads(threads_before)

    def save(self, path: str | os.PathLike[str], found: R) -> None:
        """Writes a result file, all of it or nothing.

        Raises:
            OSError: the folder is not there or cannot be written to.
        """
        points = [dataclasses.asdict(point) | self.write(value) for point, value in found.values.items()]
        results.save(path, self.name, self.version, {"provenance": dict(found.provenance), "points": points})

    def load(self, name: str | os.PathLike[str] = "") -> R:
        """Reads a result file.

        Args:
            name: its path; or the name of a file in `notebooks/recorded/`, from any folder of the checkout: the one of
                a CPU, if none is given.

        Raises:
            ValueError: there is no such file, it is of another kind or version, or it is damaged.
        """
        name = name or f"{self.name}_cpu.json"
        data = results.load(name, self.name, self.version)
        try:
            values: dict[P, V] = {}
            for entry in data["points"]:
                fields = {one.name: _frozen(entry[one.name]) for one in dataclasses.fields(self.point)}  # type: ignore[arg-type]
                point = self.point(**fields)
                if point in values:
                    raise ValueError("it contains the same point twice")
                values[point] = self.read(point, entry)
            return self.results(data["provenance"], values)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            what = f"it has no {error}" if isinstance(error, KeyError) else f"{error}"
            raise ValueError(f"{os.fspath(name)} is damaged: {what}") from None

    def available(self) -> list[str]:
        """The names of the recorded files, `NAME_….json`, as `load` takes them."""
        return results.available(self.name)

    def recordings(self) -> dict[str, R]:
        """All recorded results by what to call the machine, one thread of a CPU first. Raises as `load` does."""
        found = {name: self.load(name) for name in self.available()}
        order = sorted(found, key=lambda name: (_on_gpu(found[name].provenance), _threads(found[name].provenance)))
        for called in ([_machine(found[file].provenance, full) for file in order] for full in (False, True)):
            if len(set(called)) == len(called):
                return {label: found[file] for label, file in zip(called, order, strict=True)}
        return {file: found[file] for file in order}

    def without_gpu(self) -> str:
        """A line for a page whose times are all of a CPU; empty where a recorded file is of a GPU."""
        if any(_on_gpu(found.provenance) for found in self.recordings().values()):
            return ""
        return "All times on this page are those of a CPU: none was recorded on a GPU yet."


def _on_gpu(provenance: Mapping[str, Any]) -> bool:
    return str(provenance.get("device")).startswith("cuda")


def _threads(provenance: Mapping[str, Any]) -> int:
    return int(provenance.get("threads") or 1)


def _machine(provenance: Mapping[str, Any], in_full: bool) -> str:
    """In a word or two, as in `CPU`, `CPU, 4 threads`, `GPU`; or by the name of the device."""
    on_gpu, threads = _on_gpu(provenance), _threads(provenance)
    name = str(provenance.get("device_name")) if in_full else "GPU" if on_gpu else "CPU"
    return name if on_gpu or threads == 1 else f"{name}, {threads} threads"


def differences(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    """In words, what keeps results of these two provenances from standing side by side; the parameters first."""
    one, other = dict(_flat(ours)), dict(_flat(theirs))
    names = sorted(dict.fromkeys([*one, *other]), key=lambda name: not name.startswith("parameters "))
    if _on_gpu(ours) and _on_gpu(theirs):
        own = "parameters ", "allocator environment PYTORCH_"
        names = [name for name in names if name in _OF_A_GPU or name.startswith(own)]
    values = {name: (one.get(name), other.get(name)) for name in names if name not in _NOT_COMPARED}
    found = [
        "{} {}, not {}".format(_LABELS.get(name, name.removeprefix("parameters ")), *map(_shown, pair))
        for name, pair in values.items()
        if pair[0] != pair[1]
    ]
    return list(dict.fromkeys(found))  # the threads may be a parameter too


def _flat(data: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Everything with its full name, as in `allocator library`."""
    for name, value in data.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name} ")
        else:
            yield f"{before}{name}", value


def _shown(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
