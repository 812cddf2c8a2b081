"""Runs experiments whose results are saved to a file and shown in a notebook.

A `Study` defines its points and the measurement at each point. This module does the rest. It sets
the threads, records the provenance, checks that the results of all calls agree before it times
them, shows the progress, and appends each point to a result file (see `rows`). Points that the file
already has are not measured again.
"""

from __future__ import annotations

import dataclasses
import json
import math
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np

from packviz.core.layout import Layout
from packviz.core.lengths import DISTRIBUTIONS, log_normal
from packviz.core.spec import Spec
from packviz.core.util import HasText, PathLike, first_line
from packviz.draw.text import table
from packviz.measure import rows
from packviz.measure.machine import (
    CHANGING_FIELDS,
    PROCESS_PER_CALL,
    JsonDict,
    caption,
    check_device,
    is_default_allocator,
    is_on_gpu,
    provenance,
    wait_until_idle,
)
from packviz.measure.timing import (
    MIN_INTERVAL_ROUNDS,
    RATIO_NOTE,
    Call,
    Ratio,
    Sampler,
    Timing,
    make_stopwatch,
    peak_memories,
    time_call,
    time_rounds,
)

if TYPE_CHECKING:
    import torch
    from _typeshed import DataclassInstance

P = TypeVar("P", bound="DataclassInstance")
V = TypeVar("V")
R = TypeVar("R", bound="Results[Any, Any]")

PASSES = {"training": "forward and backward pass", "forward": "forward pass"}
"""The two passes, which are timed separately.

The forward pass alone builds no graph for autograd.
"""

LENGTH_KINDS = DISTRIBUTIONS | {"log-normal around 20": partial(log_normal, median=math.exp(3))}
"""The distributions of lengths by name, as functions of `(batch_size, longest, seed)`."""

_MAX_ROUNDS = 25  # within a budget
_UNCOMPARED_FIELDS = (
    *CHANGING_FIELDS,
    "device",
    "fake",
    "parameters",
    "wait",
)  # the device's name is compared, and
# so is each of the parameters


@dataclass(frozen=True)
class Point:
    """An RNN and a batch.

    Attributes:
        mode: the kind of RNN, `"LSTM"`, `"GRU"` or `"RNN"`.
        kind: the distribution of the lengths, one of `LENGTH_KINDS`.
        batch_size: number of sequences, `B`.
        steps: the largest length that may be drawn. The padded batch is as wide as the longest
            length that was drawn.
        input_size: number of features per time step, `I`.
        hidden_size: number of hidden units, `H`.
        directions: number of directions, 1 or 2.
    """

    mode: str
    kind: str
    batch_size: int
    steps: int
    input_size: int
    hidden_size: int
    directions: int = 1

    def __str__(self) -> str:
        directions_text = ", two directions" if self.directions == 2 else ""
        rnn = f"{self.mode}({self.input_size}, {self.hidden_size}{directions_text})"
        return f"{rnn}, {self.kind}, {self.batch_size} × {self.steps}"

    @property
    def spec(self) -> Spec:
        """The kind and the sizes of the RNN."""
        is_bidirectional = self.directions == 2
        return Spec(self.mode, self.input_size, self.hidden_size, bidirectional=is_bidirectional)

    @cached_property
    def layout(self) -> Layout:
        """The lengths of the batch, in random order."""
        drawn = LENGTH_KINDS[self.kind](self.batch_size, self.steps, 0)
        return Layout(np.random.default_rng(1).permutation(drawn))


@dataclass(frozen=True)
class Results(HasText, Generic[P, V]):
    """The results of a study.

    Attributes:
        provenance: a description of the machine, as plain data, with the settings under
            `"parameters"`.
        values: the value measured at each point, in the order of measurement. In most studies, this
            is a dict of timings by pass.
    """

    provenance: JsonDict
    values: Mapping[P, V]

    @property
    def points(self) -> list[P]:
        """The points that were measured."""
        return [*self.values]

    def timings(self, point: P) -> dict[str, Timing]:
        """Returns the timings at a point, by pass. A study that keeps only summaries has none."""
        value = self.values[point]
        pass_items = value.items() if isinstance(value, Mapping) else ()
        return {pass_name: timing for pass_name, timing in pass_items if isinstance(timing, Timing)}

    def timing(self, point: P, pass_name: str = "training") -> Timing:
        """Returns the timing of a pass at a point.

        Raises:
            ValueError: the point was not measured.
        """
        if point not in self.values:
            points_text = "; ".join(map(str, self.values))
            raise ValueError(f"{point} was not measured; choose one of .points: {points_text}")
        return self.timings(point)[pass_name]

    def ratio(self, point: P, name: str, to: str, pass_name: str = "training") -> Ratio:
        """Returns the time of `name` at a point as a multiple of the time of `to`.

        Raises:
            ValueError: one of the calls was not timed.
        """
        return self.timing(point, pass_name).ratio(name, to)

    @property
    def left_out(self) -> list[str]:
        """A line for each call that was not timed, with the point, the pass and the reason."""
        lines = []
        for point in self.values:
            for pass_name, timing in self.timings(point).items():
                for name, why in timing.missing.items():
                    lines.append(f"{point}, {pass_name}, {name}: {why}")
        return lines

    @property
    def caption(self) -> str:
        """The machine, the number of rounds and the date, as one line for charts and tables."""
        rounds = []
        places = []
        for point in self.values:
            for timing in self.timings(point).values():
                if timing.rounds:
                    rounds.append(timing.rounds)
                    places.append(timing.provenance)
        parameters = self.provenance.get("parameters", {})
        if not rounds and "rounds" in parameters:
            rounds = [parameters["rounds"]]
        return caption(self.provenance, rounds, places)

    def to_text(self) -> str:
        """Returns a table of times, ratios to the first call and costs for each point and pass."""
        lines = []
        for point in self.values:
            for pass_name, timing in self.timings(point).items():
                first = next(iter(timing.seconds), "")
                lines.append(f"{point}, {pass_name}")
                head = ["", "ms", f"times as long as {first} (quartiles)"]
                call_rows = [[*row, timing.costs(row[0])] for row in timing.against(first)]
                lines += table([head, *call_rows], "<  >  <  <")
        lines += ["", RATIO_NOTE]
        lines += [f"✗ {line}." for line in self.left_out]
        lines.append(f"Measured on {self.caption}.")
        return "\n".join(lines)


TimedResults = Results[Point, dict[str, Timing]]
"""The results of a study whose points are an RNN and a batch, with timings by pass."""


def machine_captions(results_by_machine: Mapping[str, Results[Any, Any]]) -> list[str]:
    """Returns a line for each machine, with the caption of its results, to place below a chart."""
    if len(results_by_machine) == 1:
        return [f"Measured on {results.caption}." for results in results_by_machine.values()]
    return [f"{name}: {results.caption}." for name, results in results_by_machine.items()]


class Comparison(NamedTuple):
    """Calls whose times are compared.

    Attributes:
        calls: the functions by name.
        before_call: a function to run before each call, outside the measured time.
        agreeing_calls: names of calls that must return the same results, apart from rounding. The
            first of these calls is the reference. A call that fails, or whose results differ from
            the reference, is left out.
        parameters: plain data to store with the times.
    """

    calls: Mapping[str, Call]
    before_call: Call = lambda: None
    agreeing_calls: Sequence[str] = ()
    parameters: JsonDict | None = None


MakeComparison = Callable[[], Comparison]
"""A function that makes a comparison. For child processes, it can be pickled."""


def time_comparison(
    make_comparison: MakeComparison,
    device: str,
    settings: JsonDict,
    *,
    warmup: int = 3,
    measure_memory: bool = False,
    share: float = 1.0,
) -> Timing:
    """Checks that the results of the calls agree, and times the calls.

    The results are compared in this process, and their peak memory is measured here. With child
    processes, the times are not affected by what that leaves in memory.

    Args:
        make_comparison: a function that makes the comparison.
        device: the device to measure on.
        settings: the study's parameters: the `rounds`, the `budget` in seconds, the `fewest` rounds
            that are measured whatever they take, and `processes` and `wait` (see `Study.record`).
        warmup: number of further warm-up rounds, which do not count.
        measure_memory: whether to measure peak memory. It does not depend on the allocator's
            settings, with which torch's profiler may need all memory of the machine. So it is not
            measured then.
        share: the share of the budget to use.

    Returns:
        A `Timing`. Its provenance has only the fields that change from point to point, the
        comparison's parameters, and, as `difference`, the largest error of each call relative to
        the reference. Calls that were left out are in `missing`.

    Raises:
        Exception: the reference failed for a reason other than lack of memory, so nothing can be
            compared.
    """
    wait = settings.get("wait", 0)
    place: dict[str, Any] = {"busy_cores": wait_until_idle(wait)} if wait else {}
    with _fixed_random_state():  # as in the child processes
        comparison = make_comparison()
    difference, missing = _compare_calls(comparison)
    calls = {name: call for name, call in comparison.calls.items() if name not in missing}
    if not calls:
        return Timing({}, missing=missing)
    peak_bytes_by_call: dict[str, int] = {}
    if measure_memory and is_default_allocator():
        peak_bytes_by_call = peak_memories(calls, comparison.before_call, device)
    time_calls = partial(
        time_rounds,
        rounds=settings.get("rounds", _MAX_ROUNDS),
        warmup=warmup,
        budget=settings.get("budget", math.inf) * share,
        min_rounds=settings.get("fewest", MIN_INTERVAL_ROUNDS),
    )
    if settings.get("processes") == PROCESS_PER_CALL:
        from packviz.measure.children import start_children  # noqa: PLC0415

        with start_children(
            partial(_make_samplers, make_comparison, device), [*calls]
        ) as child_samplers:
            timing = time_calls(child_samplers)
    else:
        timing = time_calls(_make_samplers(lambda: comparison._replace(calls=calls), device))
    current_provenance = provenance(device)
    place |= {
        name: current_provenance[name] for name in CHANGING_FIELDS if name in current_provenance
    }
    if comparison.parameters:
        place["parameters"] = dict(comparison.parameters)
    place["difference"] = difference
    return dataclasses.replace(timing, provenance=place, memory=peak_bytes_by_call, missing=missing)


def _make_samplers(make_comparison: MakeComparison, device: str) -> dict[str, Sampler]:
    comparison = make_comparison()
    stopwatch = make_stopwatch(device)
    return {
        name: partial(time_call, call, stopwatch, comparison.before_call)
        for name, call in comparison.calls.items()
    }


def _compare_calls(comparison: Comparison) -> tuple[dict[str, float], dict[str, str]]:
    """Returns the errors relative to the reference, and the reasons for leaving calls out."""
    from packviz.ops.agreement import full_precision, leaves, relative_error  # noqa: PLC0415
    from packviz.ops.tolerance import gradient_tolerance  # noqa: PLC0415

    difference = {}
    missing = {}
    reference_name = ""
    expected = []
    with full_precision():
        for name in comparison.agreeing_calls:
            comparison.before_call()
            try:
                result = [*leaves(comparison.calls[name]()).values()]
            except Exception as error:  # compilers and drivers raise errors of any kind
                if _is_out_of_memory(error):
                    missing[name] = "out of memory"
                elif reference_name:
                    missing[name] = f"{type(error).__name__}: {first_line(error)}"
                else:
                    raise
                continue
            if not reference_name:
                reference_name = name
                expected = result
                continue
            largest_error, agree = relative_error(result, expected, gradient_tolerance)
            if agree:
                difference[name] = largest_error
            else:
                missing[name] = (
                    f"its results differ from those of {reference_name!r} by {largest_error:.2g} of"
                    " the largest value"
                )
    return difference, missing


def _is_out_of_memory(error: BaseException) -> bool:
    """Returns whether an error means that the GPU, the CPU or a library has run out of memory."""
    memory_error_texts = (
        "out of memory",
        "can't allocate memory",
        "not enough memory",
        "ALLOC_FAILED",
    )
    return isinstance(error, MemoryError) or any(sign in str(error) for sign in memory_error_texts)


def time_training(
    make_point_comparison: Callable[[P, str], Comparison],
    point: P,
    device: str,
    settings: JsonDict,
    warmup: int = 3,
) -> dict[str, Timing]:
    """Times training steps.

    With `make_point_comparison` given, it is the `measure` function of a study.
    `make_point_comparison` makes the comparison for a point and a device.
    """
    make_comparison = partial(make_point_comparison, point, device)
    return {"training": time_comparison(make_comparison, device, settings, warmup=warmup)}


def time_passes(
    make_point_comparison: Callable[[P, str, str, JsonDict], Comparison],
    point: P,
    device: str,
    settings: JsonDict,
) -> dict[str, Timing]:
    """Times each of `PASSES`, and measures peak memory, in the way of `time_training`.

    `make_point_comparison` makes the comparison for a point, a pass, a device and the settings. The
    forward pass gets half the budget of the training pass.
    """
    timings = {}
    for pass_name, share in (("training", 1.0), ("forward", 0.5)):
        make_comparison = partial(make_point_comparison, point, pass_name, device, settings)
        timings[pass_name] = time_comparison(
            make_comparison, device, settings, warmup=1, measure_memory=True, share=share
        )
    return timings


def _read(row: JsonDict) -> Any:
    return {pass_name: Timing(**row[pass_name]) for pass_name in PASSES if pass_name in row}


def _timings_as_data(value: Any) -> JsonDict:
    return {pass_name: dataclasses.asdict(timing) for pass_name, timing in value.items()}


@dataclass(frozen=True)
class Study(Generic[P, V, R]):
    """An experiment: its points, the measurement at each of them, and its results.

    Attributes:
        name: the name of the study, which is also the kind of its files.
        point: the class of the points, a frozen dataclass of plain data. The `str` of a point is
            its name.
        measure: a function that returns the value at a point, measured on a device with the given
            parameters. Torch gets the same random seed before every point, and its random state is
            restored afterwards.
        results: a function that makes the results from the provenance and the values.
        full_points: the points of a recorded file.
        quick_points: a few small points, which take seconds on a CPU.
        others: further sets of points, by name.
        parameters: the default parameters, including `rounds` or a `budget`.
        read: a function that reads the value at a point from its row.
        write: a function that returns a value as plain data. The names in this data must differ
            from the names of the point's fields.
        version: the version of the file format.
    """

    name: str
    point: type[P]
    measure: Callable[[P, str, JsonDict], V]
    results: Callable[[JsonDict, Mapping[P, V]], R]
    full_points: Sequence[P] = ()
    quick_points: Sequence[P] = ()
    others: Mapping[str, Sequence[P]] = field(default_factory=dict)
    parameters: JsonDict = field(default_factory=dict)
    read: Callable[[JsonDict], V] = _read
    write: Callable[[V], JsonDict] = _timings_as_data
    version: int = 1

    def run(self, points: Sequence[P] = (), **options: Any) -> R:
        """Measures the points, by default the quick ones, and returns the results.

        Args:
            points: the points to measure.
            **options: the options of `record`. By default, there is no progress bar, and this
                process makes all calls.
        """
        return self.record(
            None, points or self.quick_points, **{"progress": False, "processes": False, **options}
        )

    def record(
        self,
        path: PathLike | None,
        points: Sequence[P] = (),
        *,
        device: str | torch.device = "cpu",
        threads: int = 1,
        progress: bool = True,
        processes: bool = True,
        wait: float = 0,
        **parameters: Any,
    ) -> R:
        """Measures the points that a result file lacks, and appends them to it.

        Several processes can record to the same file, except on Windows.

        Args:
            path: the file. If it is `None`, the results are only returned.
            points: the points to measure, by default the full set.
            device: the device to run on.
            threads: number of torch's CPU threads during the run. With the small matrices of most
                studies, more threads save very little time, and on a shared machine they wait for
                each other.
            progress: whether to show a progress bar, or a line for each point if tqdm is not
                installed.
            processes: whether each call gets a process of its own, as methods have in different
                programs. In a shared process, what one call frees, the next one reuses. A GPU has
                an allocator of its own, so all calls share a process there, and on Windows, which
                cannot copy a process.
            wait: the longest time, in seconds, to wait before each measurement until other programs
                use less than a fifth of a core. The result then records how many cores they used.
            **parameters: parameters that replace the study's own, such as `rounds` or `budget`.
                Each of these two replaces the other.

        Returns:
            All results in the file.

        Raises:
            ValueError: the device does not exist, there are fewer cores than threads, or the file
                was measured under different conditions.
        """
        device = check_device(device)
        settings = {**self.parameters, **parameters}
        for name, other in (("rounds", "budget"), ("budget", "rounds")):
            if name in parameters and other not in parameters:
                settings.pop(other, None)
        can_fork = "forkserver" in multiprocessing.get_all_start_methods()
        separate_processes = processes and can_fork and not device.startswith("cuda")
        settings["processes"] = PROCESS_PER_CALL if separate_processes else "one"
        cores = os.cpu_count() or threads
        if threads > cores:
            raise ValueError(
                f"threads is {threads}; give at most {cores}, as many as the machine has cores"
            )
        with _torch_threads(threads):
            place = provenance(device, settings)
            place = json.loads(json.dumps(place))  # the same types as in a file
            values = {}
            all_points = list(dict.fromkeys(points or self.full_points))
            for point in _with_progress(all_points) if progress else all_points:
                if path and Path(path).exists():
                    recorded_results = self.load(path)  # another process may have added points
                    _require_same_conditions(recorded_results.provenance, place, path)
                    if point in recorded_results.values:
                        continue
                with _fixed_random_state():
                    value = self.measure(point, device, {**settings, "wait": wait})
                values[point] = value
                if path:
                    head = {"packviz": self.name, "version": self.version, "provenance": place}
                    row = {**dataclasses.asdict(point), **self.write(value)}
                    rows.append_row(path, head, row)
        return self.load(path) if path else self.results(place, values)

    def load(self, name: PathLike = "") -> R:
        """Reads a result file.

        Args:
            name: the path of the file. Inside a checkout, the name of a file in
                `notebooks/recorded/` is enough. Defaults to the file that was recorded on a CPU.

        Raises:
            ValueError: the file does not exist, has a different kind or version, or is damaged.
        """
        path = rows.find_file(name or f"{self.name}_cpu.json")
        place, entries = rows.read(path, self.name, self.version)
        field_names = [each.name for each in dataclasses.fields(self.point)]
        values: dict[P, V] = {}
        try:
            for entry in entries:
                point = self.point(**{name: entry[name] for name in field_names})
                # If two processes measured the same point, the first measurement counts.
                values.setdefault(point, self.read(entry))
        except KeyError as error:
            raise ValueError(
                f"{path} is damaged: a row has no {error}; measure into another file"
            ) from None
        except TypeError as error:
            raise ValueError(f"{path} is damaged: {error}") from None
        return self.results(place, values)

    def recordings(self) -> dict[str, R]:
        """Returns all recorded results by machine name.

        CPUs come first, by number of threads, and then GPUs.

        Raises:
            ValueError: a file cannot be loaded (see `load`).
        """
        results_by_path = {path: self.load(path) for path in rows.recorded_files(self.name)}

        def order(path: Path) -> tuple[bool, int]:
            place = results_by_path[path].provenance
            return is_on_gpu(place), place.get("threads", 1)

        paths = sorted(results_by_path, key=order)
        names = [_machine_name(results_by_path[path].provenance) for path in paths]
        if len({*names}) < len(names):
            names = [path.name for path in paths]
        return {name: results_by_path[path] for name, path in zip(names, paths, strict=True)}

    def without_gpu(self) -> str:
        """Returns a note for a page that shows only CPU times.

        It is empty if a GPU was recorded.
        """
        if any(is_on_gpu(results.provenance) for results in self.recordings().values()):
            return ""
        return (
            "All times on this page were measured on a CPU, because no GPU results have been"
            " recorded yet."
        )


@contextmanager
def _fixed_random_state() -> Iterator[None]:
    """Gives torch the same random seed every time, and then restores its random state."""
    import torch  # noqa: PLC0415

    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


@contextmanager
def _torch_threads(threads: int) -> Iterator[None]:
    import torch  # noqa: PLC0415

    previous_threads = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(previous_threads)


def _with_progress(points: Iterable[P]) -> Iterator[P]:
    """Yields the points, and shows the progress."""
    try:
        from tqdm import tqdm  # noqa: PLC0415
    except ModuleNotFoundError:
        for point in points:
            yield point
            print(f"{point}: done", file=sys.stderr, flush=True)
        return
    with tqdm(points, leave=False) as bar:
        for point in bar:
            bar.set_description(str(point))
            yield point


def _machine_name(place: JsonDict) -> str:
    """Returns the name of a machine, such as `CPU, 4 threads` or `GPU`."""
    if is_on_gpu(place):
        return "GPU"
    threads = place.get("threads", 1)
    return "CPU" if threads == 1 else f"CPU, {threads} threads"


def _require_same_conditions(
    recorded_provenance: JsonDict, current_provenance: JsonDict, path: PathLike
) -> None:
    """Checks that a file's results were measured under the current conditions.

    Raises:
        ValueError: they were not. The message lists the differences.
    """
    recorded_values = {**recorded_provenance.get("parameters", {}), **recorded_provenance}
    current_values = {**current_provenance["parameters"], **current_provenance}
    differences = []
    for name in recorded_values | current_values:
        old = recorded_values.get(name)
        new = current_values.get(name)
        if name not in _UNCOMPARED_FIELDS and old != new:
            differences.append(f"{name} {old}, not {new}")
    if differences:
        differences_text = "; ".join(differences)
        raise ValueError(
            f"cannot resume {os.fspath(path)}, which was measured under different conditions"
            f" ({differences_text}); use the same options, machine and versions, or another file"
        )
