"""Runs experiments whose results are saved to a file and shown in a notebook.

A `Study` defines its points, the measurement at each point, and the presentation of the results.
This module does the rest. It sets the threads and the allocator, records the provenance, and
measures for a number of rounds or within a time budget. It checks that the results of all calls
agree before it times them. It reports progress, can be stopped, resumes from existing results, and
writes the file.

A result file is JSON. Its kind is the name of the study:

    {"packviz": "methods", "version": 1,
     "provenance": {…},   the machine (see `machine.provenance`), with the settings under
     "parameters" "points": [{…}]}     for each point, its fields and what was measured there (see
     `Study.write`)
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from packviz.core import results
from packviz.core.has_text import HasText, first_line
from packviz.measure.machine import calm_allocator, caption, check_device, provenance
from packviz.measure.timing import Ratio, StoppedError, Timing, measure

P = TypeVar("P")
V = TypeVar("V")
R = TypeVar("R", bound="Results[Any, Any]")

CHANGING = ("date", "load_average", "page_faults_per_round")
"""The fields of the provenance that can differ from point to point."""

_NOT_COMPARED = (*CHANGING, "device", "fake")  # the device's name is compared, but not `device`
# These fields must be equal if GPU results are resumed on a different machine. On a CPU, all others
# must be, too.
_OF_A_GPU = ("device_name", "cpu", "threads", "torch", "packviz", "python", "cuda", "cudnn", "tf32")
_OF_A_HOST = ("driver", "cores")  # also kept for each point measured on a GPU

_LABELS = {"device_name": "device", "cuda": "CUDA", "cudnn": "cuDNN"}
_MOST_ROUNDS = 25  # the most rounds within a budget, which always allows enough for an interval (see `measure`)
_EFFORT = "rounds", "budget"

PASSES = {"training": "forward and backward pass", "forward": "forward pass"}
"""The two passes, which are timed separately. The forward pass alone builds no graph for autograd."""


@dataclass(frozen=True, repr=False)
class Results(HasText, Generic[P, V]):
    """The results of a study so far.

    Attributes:
        provenance: a description of the machine, as plain data, with the settings under
            `"parameters"`.
        values: the value measured at each point, in the order of measurement.
    """

    provenance: Mapping[str, Any]
    values: Mapping[P, V]

    @property
    def points(self) -> Sequence[Any]:
        """The points that were measured."""
        return [*self.values]

    @property
    def timings(self) -> Iterable[Timing]:
        """The timings of all points. A study that keeps only summaries has none."""
        return [timing for point in self.values for timing in self.timed(point).values()]

    def timed(self, point: P) -> Mapping[str, Timing]:
        """Returns the timings at a point, by pass. If passes are not timed separately, the only key is `""`."""
        value: Any = self.values[point]
        some = value if isinstance(value, dict) else {"": value}
        return {which: timing for which, timing in some.items() if isinstance(timing, Timing)}

    def ratio(self, point: P, name: str, to: str, which: str = "") -> Ratio:
        """Returns the time of `name` at a point as a multiple of the time of `to`.

        If the study times two passes, `which` names the pass.

        Raises:
            ValueError: one of the calls was not timed.
        """
        return self.timed(point)[which].ratio(name, to)

    @property
    def left_out(self) -> list[str]:
        """A line for each call that was not timed, with the point and the reason."""
        return [
            ", ".join(filter(None, (str(point), which, f"{name}: {why}")))
            for point in self.values
            for which, timing in self.timed(point).items()
            for name, why in timing.missing.items()
        ]

    @property
    def caption(self) -> str:
        """The machine, the number of rounds and the date, as one line for charts and tables."""
        timed = [timing for timing in self.timings if timing.rounds]
        planned = self.provenance.get("parameters", {}).get("rounds")
        rounds = [timing.rounds for timing in timed] or ([planned] if planned else [])
        return caption(self.provenance, rounds, [timing.provenance for timing in timed])


def captions(machines: Mapping[str, Results[Any, Any]]) -> list[str]:
    """Returns one line for each machine, with the caption of its results, to place below a chart."""
    line = "{}: {}." if len(machines) > 1 else "Measured on {1}."
    return [line.format(name, found.caption) for name, found in machines.items()]


@dataclass(frozen=True)
class MeasureOptions:
    """The settings of one measurement.

    Attributes:
        device: the device to measure on.
        parameters: the `rounds` or the `budget` in seconds for each point, and the study's own
            parameters.
        progress: a function to call after every round. Its arguments are the number of rounds done
            and the total number of rounds.
        stop: a function to call before every measured call. Measuring stops if it returns True.
    """

    device: str
    parameters: Mapping[str, Any]
    progress: Callable[[int, int], object] = lambda done, of: None
    stop: Callable[[], bool] = lambda: False

    def part(self, i: int, of: int) -> MeasureOptions:
        """Returns the settings for part `i` of a point that is measured in `of` parts."""
        report = self.progress
        return dataclasses.replace(
            self, progress=lambda done, all: report(i * all + done, of * all)
        )


class Comparison(NamedTuple):
    """Calls whose times are compared.

    Attributes:
        calls: the functions by name.
        clear: a function to run before each call, outside the measured time.
        alike: names of calls that must return the same results, apart from rounding. The first of
            these calls is the reference. A call that fails, or whose results differ from the
            reference, is left out.
        parameters: plain data to store with the times.
    """

    calls: Mapping[str, Callable[[], Any]]
    clear: Callable[[], object] = lambda: None
    alike: Sequence[str] = ()
    parameters: Mapping[str, Any] | None = None


def timed(
    comparison: Comparison,
    how: MeasureOptions,
    *,
    warmup: int = 3,
    memory: bool = False,
    share: float = 1.0,
) -> Timing:
    """Checks that the results of the calls agree, and times the calls.

    Args:
        comparison: the calls.
        how: the settings, whose parameters include `rounds` or a `budget`.
        warmup: number of warm-up rounds, which do not count.
        memory: whether to measure peak memory.
        share: the share of the budget to use.

    Returns:
        A `Timing`. Its provenance has only the fields that change from point to point, the
        comparison's parameters, and, as `difference`, the largest error of each call relative to
        the reference. Calls that were left out are in `missing`.

    Raises:
        Exception: the reference failed for a reason other than lack of memory, so nothing can be
            compared.
        StoppedError: the measurement was stopped.
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
    return dataclasses.replace(
        own, provenance={**own.provenance, "difference": difference}, missing=missing
    )


def by_comparison(
    calls: Callable[[P, str], Comparison], warmup: int = 3
) -> Callable[[P, MeasureOptions], Timing]:
    """Returns a `measure` function for a study. `calls` makes the comparison for a point and a device."""
    return lambda point, how: timed(calls(point, how.device), how, warmup=warmup)


def by_pass(
    calls: Callable[[P, str, MeasureOptions], Comparison],
) -> Callable[[P, MeasureOptions], dict[str, Timing]]:
    """Returns, for a study, a `measure` function that times each of `PASSES` and measures peak
    memory.

    `calls` makes the comparison for a point, a pass and the settings. The forward pass gets half
    the budget of the training pass.
    """

    def timed_by_pass(point: P, how: MeasureOptions) -> dict[str, Timing]:
        found = {}
        for i, which in enumerate(PASSES):
            part, share = how.part(i, len(PASSES)), 1 if which == "training" else 0.5
            found[which] = timed(calls(point, which, how), part, warmup=1, memory=True, share=share)
        return found

    return timed_by_pass


def _read(point: Any, entry: Mapping[str, Any]) -> Any:
    """Reads a timing, or the timings of both passes, from plain data."""
    if PASSES.keys() & entry.keys():
        return {which: Timing.from_dict(entry[which]) for which in PASSES}
    return Timing.from_dict(entry["timing"])


def _write(value: Any) -> dict[str, Any]:
    """Returns a timing, or the timings of both passes, as plain data."""
    some = {"timing": value} if isinstance(value, Timing) else value
    return {name: dataclasses.asdict(timing) for name, timing in some.items()}


def without_place(timing: Timing) -> Timing:
    """Returns the timing with its provenance reduced to the fields that belong to the point."""
    kept = (*CHANGING, *_OF_A_HOST) if _on_gpu(timing.provenance) else CHANGING
    own = {name: timing.provenance[name] for name in kept if name in timing.provenance}
    if parameters := timing.provenance.get("parameters"):
        own["parameters"] = parameters
    return dataclasses.replace(timing, provenance=own)


def _compared(
    comparison: Comparison, how: MeasureOptions
) -> tuple[dict[str, float], dict[str, str]]:
    """Returns two dicts by call: the errors relative to the reference, and the reasons for leaving calls out."""
    from packviz.ops.agreement import full_precision, leaves, of_gradients, relative_error

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
            except Exception as problem:  # compilers and drivers raise errors of any kind
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
    """Returns whether an error means that the GPU, the CPU or a library has run out of memory."""
    signs = "out of memory", "can't allocate memory", "not enough memory", "ALLOC_FAILED"
    return isinstance(error, MemoryError) or any(sign in str(error) for sign in signs)


@dataclass(frozen=True)
class Study(Generic[P, V, R]):
    """An experiment: its points, the measurement at each of them, and its results.

    Attributes:
        name: the name of the study, which is also the kind of its files.
        point: the class of the points, a frozen dataclass of plain data. The `str` of a point is
            its name.
        measure: a function that returns the value at a point, or raises `StoppedError`. Torch gets
            the same random seed before every point, and its random state is restored afterwards.
        results: a function that makes the results from the provenance and the values. This function
            may raise a `ValueError`.
        full: the points of a recorded file.
        quick: a few small points, which take seconds on a CPU.
        others: further sets of points, by name.
        parameters: the default parameters, including `rounds` or a `budget`; empty if the study
            does no timing.
        read: a function that reads the value at a point from plain data.
        write: a function that returns a value as plain data. The names in this data must differ
            from the names of the point's fields.
        version: the version of the file format.
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
        """Measures the points, by default the quick ones, and returns the results.

        Args:
            points: the points to measure.
            **options: parameters that replace the study's own, such as `rounds` or `budget`, and
                options of `steps`.
        """
        own = {
            name: options.pop(name)
            for name in [*options]
            if name in (*_EFFORT, "until_narrow", *self.parameters)
        }
        *_, last = self.steps(
            points or self.quick, parameters=self.with_parameters(**own), **options
        )
        return last

    def with_parameters(self, **changed: Any) -> dict[str, Any]:
        """Returns the study's parameters with some of them replaced.

        A new `rounds` also replaces `budget`, and vice versa.

        Raises:
            ValueError: `rounds` or `budget` is given, but the study does no timing.
        """
        effort = [name for name in changed if name in _EFFORT]
        if effort and not self.parameters:
            raise ValueError(
                f"the study {self.name} does no timing, so --{effort[0]} does not apply"
            )
        return {
            name: value
            for name, value in self.parameters.items()
            if not effort or name not in _EFFORT
        } | changed

    def steps(
        self,
        points: Sequence[P],
        *,
        parameters: Mapping[str, Any],
        device: Any = "cpu",
        threads: int = 1,
        start: R | None = None,
        progress: Callable[[float, str], object] = lambda share, words: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> Iterator[R]:
        """Measures the points one after another.

        Args:
            points: the points to measure, in this order.
            parameters: `rounds` or a `budget`, and the parameters of the study.
            device: the device to run on.
            threads: number of torch's CPU threads during the run. With the small matrices of most
                studies, more threads save very little time, and on a shared machine they wait for
                each other.
            start: results to resume from. Their points are kept and not measured again.
            progress: a function to call after every round. Its arguments are the share of the work
                done so far, and a progress message.
            stop: a function to call before every measured call. If it returns True, measuring
                stops, and an incomplete point is dropped.

        Yields:
            The results so far, at the start and after every point.

        Raises:
            ValueError: the device does not exist, there are fewer cores than threads, the study
                rejects the parameters, or `start` was measured under different conditions.
        """
        import torch

        device = check_device(device)
        if threads > (cores := os.cpu_count() or threads):
            raise ValueError(
                f"threads is {threads}; this machine has {cores} cores, so give at most {cores}"
            )
        threads_before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            if device.startswith("cpu"):
                calm_allocator()  # before the provenance is recorded
            place = json.loads(
                json.dumps(provenance(device, parameters))
            )  # the same types as in a file
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
                    with torch.random.fork_rng():  # restores the caller's random state
                        torch.manual_seed(0)
                        value = self.measure(
                            point, MeasureOptions(device, parameters, report, stop)
                        )
                except StoppedError:
                    return
                result = self.results(result.provenance, {**result.values, point: value})
                yield result
        finally:
            torch.set_num_threads(threads_before)

    def save(self, path: str | os.PathLike[str], found: R) -> None:
        """Writes a result file, completely or not at all.

        Raises:
            ValueError: the path does not end in `.json`.
            OSError: the folder does not exist or is not writable.
        """
        points = [
            dataclasses.asdict(point) | self.write(value) for point, value in found.values.items()
        ]
        results.save(
            path, self.name, self.version, {"provenance": dict(found.provenance), "points": points}
        )

    def load(self, name: str | os.PathLike[str] = "") -> R:
        """Reads a result file.

        Args:
            name: the path of the file. Inside a checkout, the name of a file in
                `notebooks/recorded/` is enough. Defaults to the file that was recorded on a CPU.

        Raises:
            ValueError: the file does not exist, has a different kind or version, or is damaged.
        """
        name = name or f"{self.name}_cpu.json"
        data = results.load(name, self.name, self.version)
        try:
            values: dict[P, V] = {}
            for entry in data["points"]:
                fixed = {
                    name: tuple(field) if isinstance(field, list) else field
                    for name, field in entry.items()
                }
                point = self.point(
                    **{one.name: fixed[one.name] for one in dataclasses.fields(self.point)}
                )  # type: ignore[arg-type]
                if point in values:
                    raise ValueError("it contains the same point twice")
                values[point] = self.read(point, entry)
            return self.results(data["provenance"], values)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            what = f"it has no {error}" if isinstance(error, KeyError) else f"{error}"
            raise ValueError(f"{os.fspath(name)} is damaged: {what}") from None

    def available(self) -> list[str]:
        """Returns the names of the recorded files, all of the form `NAME_….json`. `load` accepts them."""
        return results.available(self.name)

    def recordings(self) -> dict[str, R]:
        """Returns all recorded results by machine name: CPUs first, by number of threads, and then
        GPUs.

        Raises:
            ValueError: a file cannot be loaded (see `load`).
        """
        found = [(file, self.load(file)) for file in self.available()]
        found.sort(key=lambda pair: (_on_gpu(pair[1].provenance), _threads(pair[1].provenance)))
        places = [result.provenance for _, result in found]
        short, full = ([_machine(place, in_full) for place in places] for in_full in (False, True))
        names = next(
            (some for some in (short, full) if len({*some}) == len(some)),
            [file for file, _ in found],
        )
        return dict(zip(names, (result for _, result in found), strict=True))

    def without_gpu(self) -> str:
        """Returns a note for a page that shows only CPU times, or an empty string if a GPU was recorded."""
        if any(_on_gpu(found.provenance) for found in self.recordings().values()):
            return ""
        return "All times on this page were measured on a CPU, because no GPU results have been recorded yet."


def _on_gpu(provenance: Mapping[str, Any]) -> bool:
    return str(provenance.get("device")).startswith("cuda")


def _threads(provenance: Mapping[str, Any]) -> int:
    return int(provenance.get("threads") or 1)


def _machine(provenance: Mapping[str, Any], in_full: bool) -> str:
    """Returns the name of a machine, such as `CPU, 4 threads` or `GPU`. With `in_full`, it names the device itself."""
    on_gpu, threads = _on_gpu(provenance), _threads(provenance)
    name = str(provenance.get("device_name")) if in_full else "GPU" if on_gpu else "CPU"
    return name if on_gpu or threads == 1 else f"{name}, {threads} threads"


def differences(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    """Returns a line for each difference in provenance that keeps results from sharing a file, parameters first."""
    one, other = dict(_flat(ours)), dict(_flat(theirs))
    names = sorted(
        dict.fromkeys([*one, *other]), key=lambda name: not name.startswith("parameters ")
    )
    if _on_gpu(ours) and _on_gpu(theirs):
        own = "parameters ", "allocator environment PYTORCH_"
        names = [name for name in names if name in _OF_A_GPU or name.startswith(own)]
    found = [
        f"{_LABELS.get(name, name.removeprefix('parameters '))} {_shown(one.get(name))}, not {_shown(other.get(name))}"
        for name in names
        if name not in _NOT_COMPARED and one.get(name) != other.get(name)
    ]
    return list(
        dict.fromkeys(found)
    )  # removes repeats, because the threads may also be a parameter


def _flat(data: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Yields every value in nested data as a pair with its full name, such as `allocator library`."""
    for name, value in data.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name} ")
        else:
            yield f"{before}{name}", value


def _shown(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)
