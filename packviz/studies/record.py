"""`packviz bench record`: all that the notebooks show as recorded, measured on this machine, as far as time goes.

A folder gets a file for each study, of the form that it has in `notebooks/recorded/`, and `record.json` with what is
known of the steps: the seconds that each took, and the traceback of each that failed. A step is one point of a study.
It is kept when it ends; what stops it, be it Ctrl-C, the end of the time or of the process, costs that step alone, and
the same command goes on from there. What failed, or ended the process, is tried again when all else is done.

It needs torch, numpy and the standard library. `packviz bench adopt` puts the files into a checkout.
"""

from __future__ import annotations

import argparse
import importlib
import math
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from packviz.bench.machine import check_device, load_average
from packviz.bench.study import ConflictError, Progress, Results, Study
from packviz.bench.terminal import STOPPED, Bar, kept, noting_ctrl_c, positive, writing
from packviz.core import results
from packviz.core.worded import first_line
from packviz.draw.text import count, duration

PARTS: dict[str, tuple[str, float]] = {
    "exact": ("packviz.studies.exact", 1.5),
    "calibration": ("packviz.bench.calibration", 6.0),
    "benchmark": ("packviz.studies.forum.sweep", 17.0),
    "race": ("packviz.studies.race", 9.0),
    "compiled": ("packviz.studies.compiled", 0.6),
    "thumb": ("packviz.studies.thumb", 3.0),
    "parts": ("packviz.studies.parts", 2.0),
    "savings": ("packviz.studies.savings", 2.8),
    "untuned": ("packviz.studies.untuned", 3.0),
    "helpers": ("packviz.studies.helpers", 0.1),
}
"""By name of a study its module, and the minutes that it took on one thread of a server CPU: all that is foreseen as
long as no step of it was measured. In this order: what is right, then by what `auto` chooses, then the times."""

_QUICK = {"rounds": 3, "budget": 0.05}
_SPARE = 0.02  # of the time given, to end in


@dataclass
class Part:
    """A study that is being recorded.

    Attributes:
        study: it.
        points: to measure.
        parameters: how.
        path: its file.
        foreseen: seconds for all points, as long as nothing is known.
        found: what the file holds, if there is one.
        took: by point the seconds that it took.
    """

    study: Study[Any, Any, Any]
    points: Sequence[Any]
    parameters: Mapping[str, Any]
    path: Path
    foreseen: float
    found: Any = None
    took: dict[Any, float] = field(default_factory=dict)

    @property
    def open(self) -> list[Any]:
        """The points still to measure."""
        done = self.found.values if self.found else {}
        return [point for point in self.points if point not in done]

    def expects(self, point: Any) -> float:
        """About how many seconds a point takes."""
        return self.study.foresee(self.took, point) or self.foreseen / len(self.points)


class Step(NamedTuple):
    """One point of one part."""

    part: Part
    point: Any

    def __str__(self) -> str:
        return f"{self.part.study.name}: {self.point}"


@dataclass
class Notes:
    """What is known of the steps, in a file beside the results.

    Attributes:
        path: of the file.
        seconds: by step, what it took.
        failed: by step, the lines of its traceback.
        begun: the step that is being measured, if any: who finds one here knows that it ended the process.
    """

    path: Path
    seconds: dict[str, float] = field(default_factory=dict)
    failed: dict[str, list[str]] = field(default_factory=dict)
    begun: str = ""

    @classmethod
    def of(cls, path: Path) -> Notes:
        """Those in a file, or new ones."""
        if not path.exists():
            return cls(path)
        data = results.load(path, "record", 1)
        return cls(path, data["seconds"], data["failed"], data["begun"])

    def save(self) -> None:
        """Writes the file."""
        with writing(self.path):
            data = {"seconds": self.seconds, "failed": self.failed, "begun": self.begun}
            results.save(self.path, "record", 1, data)

    def begin(self, step: Step) -> None:
        """Notes what is being measured."""
        self.begun = str(step)
        self.save()

    def end(self, step: Step, took: float) -> None:
        """Notes that it is done."""
        self.seconds[str(step)], self.begun = round(took, 3), ""
        self.failed.pop(str(step), None)
        step.part.took[step.point] = took
        self.save()

    def fail(self, step: str, why: str) -> None:
        """Notes why it is not."""
        self.failed[step], self.begun = why.rstrip().splitlines(), ""
        self.save()


def add_to(commands: Any) -> None:
    """Adds the command to those of `packviz bench`."""
    said = "measure all that the notebooks show as recorded, in one go or in several"
    parser = commands.add_parser("record", help=said, description=f"{said.capitalize()}.")
    add = parser.add_argument
    add("--out", required=True, metavar="DIR", help="the folder to write; if it is there, go on with it")
    add("--device", default="cpu", help="cpu, cuda or cuda:1 (default: cpu)")
    add("--threads", type=positive(int), default=1, metavar="N", help="torch's CPU threads (default: 1)")
    add("--minutes", type=positive(float), metavar="N", help="stop before so many are over; what is left waits")
    add("--parts", nargs="+", choices=[*PARTS], metavar="PART", help=f"some of {', '.join(PARTS)} (default: all)")
    add("--quick", action="store_true", help="few and small points, to see whether it works")
    parser.set_defaults(run=_record)


def _record(options: argparse.Namespace) -> int:
    began = time.monotonic()
    until = began + 60 * (1 - _SPARE) * options.minutes if options.minutes else math.inf
    device, folder = check_device(options.device), Path(options.out)
    with writing(folder):
        folder.mkdir(exist_ok=True)
    parts = [_part(name, device, options.threads, options.quick, folder) for name in options.parts or PARTS]
    return Recording(parts, Notes.of(folder / "record.json"), device, options.threads, until).carry_out()


def _part(name: str, device: str, threads: int, quick: bool, folder: Path) -> Part:
    module, minutes = PARTS[name]
    study: Study[Any, Any, Any] = importlib.import_module(module).STUDY
    parameters = {**study.parameters, **({"threads": threads} if "threads" in study.parameters else {})}
    if quick:
        parameters |= {key: value for key, value in _QUICK.items() if key in parameters}
    points, path = study.quick if quick else study.full, folder / study.file(device, threads)
    return Part(study, points, parameters, path, 60 * minutes / (30 if quick else 1), kept(study, path))


class Recording:
    """A folder that is being recorded."""

    def __init__(
        self,
        parts: Sequence[Part],
        notes: Notes,
        device: str,
        threads: int,
        until: float,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Takes what is to be measured, where, and until when by the clock `now`."""
        self.parts, self.notes, self.until, self.now = parts, notes, until, now
        self._how: dict[str, Any] = {"device": device, "threads": threads}
        self._chosen_by: Any = None
        steps = {str(step): step for part in parts for step in (Step(part, point) for point in part.points)}
        for name, took in notes.seconds.items():
            if step := steps.get(name):
                step.part.took[step.point] = took
        if (last := steps.get(notes.begun)) and last.point in last.part.open:
            notes.fail(notes.begun, "It began, and the process ended: it crashed, or somebody killed it.")

    def carry_out(self) -> int:
        """Measures what there is time for, and says what there is then. Returns the exit status."""
        self._look_for_conflicts()
        with Bar(sys.stderr) as bar, noting_ctrl_c() as pressed:
            self._go_on(bar, pressed)
        if self.notes.begun:
            self.notes.begun = ""
            self.notes.save()
        print(*self._summary(), sep="\n")
        return STOPPED if pressed else 1 if self.notes.failed else 0

    def _look_for_conflicts(self) -> None:
        for part in self.parts:
            try:
                next(part.study.steps([], parameters=part.parameters, start=part.found, **self._how))
            except ConflictError as error:
                raise ConflictError(f"{part.path}: {error}") from None

    def _go_on(self, bar: Bar, pressed: Sequence[bool]) -> None:
        done = count(sum(len(part.points) - len(part.open) for part in self.parts), "point")
        bar.say(f"{self.notes.path.parent} holds {done}; {duration(self.left)} left, about")
        if (load := load_average()) and load[0] > (os.cpu_count() or 1) - self._how["threads"] + 0.5:
            bar.say(f"Something else runs here (load {load[0]:.1f}): times will be off, those of a CPU by a factor")
        for step in self._steps():
            if self.now() + step.part.expects(step.point) > self.until:
                continue  # a shorter one may fit
            self._choose(step.part)
            self.notes.begin(step)
            began = self.now()
            try:
                found = self._measured(step, bar, lambda: bool(pressed) or self.now() > self.until)
            except Exception as error:  # whatever it is, the others go on
                if pressed:
                    return
                self.notes.fail(str(step), traceback.format_exc())
                bar.clear()
                bar.say(f"{step}: FAILED, {type(error).__name__}: {first_line(error)}")
                if not self._device_answers():
                    bar.say("The device does not answer any more. The same command again goes on in a new process.")
                    return
                continue
            if step.point not in found.values:
                return  # stopped
            with writing(step.part.path):
                step.part.study.save(step.part.path, found)
            step.part.found = found
            self.notes.end(step, self.now() - began)
            bar.clear()
            bar.say(f"{step}: done{step.part.study.remark(found.values[step.point])}")

    def _steps(self) -> Iterator[Step]:
        """What is left; last what failed before."""
        every = [Step(part, point) for part in self.parts for point in part.open]
        return iter(sorted(every, key=lambda step: str(step) in self.notes.failed))

    def _measured(self, step: Step, bar: Bar, stop: Callable[[], bool]) -> Results[Any, Any]:
        part, point = step
        every = sum(len(part.points) for part in self.parts)
        done = every - sum(len(part.open) for part in self.parts)
        coming, spent = self.left, sum(sum(part.took.values()) for part in self.parts)

        def show(progress: Progress) -> None:
            here = progress.fraction * part.expects(point)
            left = max(coming - here, 0.0)
            bar.show(Progress(str(step), done, every, (spent + here) / max(spent + coming, 1e-9), left))

        found: Results[Any, Any]
        *_, found = part.study.steps(
            [point], parameters=part.parameters, start=part.found, progress=show, stop=stop, **self._how
        )
        return found

    @property
    def left(self) -> float:
        """About how many seconds all that is left takes."""
        return sum(part.expects(point) for part in self.parts for point in part.open)

    def _choose(self, part: Part) -> None:
        """Has `auto` choose by the constants of this machine from here on, if they are measured."""
        measured: Any = next((some.found for some in self.parts if some.study.name == "calibration"), None)
        if part.study.name != "calibration" and measured is not self._chosen_by and measured.is_enough:
            measured.costs.use()
            self._chosen_by = measured

    def _device_answers(self) -> bool:
        import torch  # noqa: PLC0415

        try:
            return bool(torch.ones(1, device=self._how["device"]).sum().item() == 1)
        except RuntimeError:
            return False

    def _summary(self) -> Iterator[str]:
        """What there is, what is missing, and what it says."""
        from packviz.studies.summary import summary  # noqa: PLC0415 - torch

        for part in self.parts:
            of, points = len(part.points), part.open
            left = f", {duration(sum(map(part.expects, points)))} left" if points else ""
            yield f"{part.study.name}: {of - len(points)} of {count(of, 'point')}{left}"
            yield from (f"  left out: {said}" for said in (part.found.left_out if part.found else ()))
        for name, lines in self.notes.failed.items():
            yield f"failed: {name}: {lines[-1]}"
        if self.notes.failed:
            yield f"The tracebacks are in {self.notes.path}."
        if any(part.open for part in self.parts):
            yield "The same command again goes on from here."
        found = {part.study.name: part.found for part in self.parts if part.found and part.found.values}
        if table := summary(found):
            yield f"\n{table}"
