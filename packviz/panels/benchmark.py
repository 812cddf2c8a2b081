"""Shows the forum benchmark in a panel: choose sizes, start it on your machine, and compare it with a recorded run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import ipywidgets as widgets

from packviz.core.validation import one_of
from packviz.measure.machine import check_device, no_cuda
from packviz.panels.job import Job, Progress, Stop
from packviz.panels.panel import Panel, View, dropdown, row, slider
from packviz.studies import benchmark as experiment
from packviz.studies.benchmark import Benchmark, BenchmarkPoint

YOURS, NOTHING = "yours", "nothing"
_PRESETS = {"quick": experiment.QUICK, "full": experiment.FULL}
_SETUPS = {"A": ["A"], "B": ["B"], "A and B": ["A", "B"]}
_ROUNDS = 25  # the largest number of rounds; a point ends earlier if its ratios are known
_PAUSE = 0.5  # seconds between two messages, because showing them slows down the measurement


class BenchmarkPanel(Panel):
    """The controls of the benchmark, and your curves beside recorded ones.

    The button runs the benchmark in a thread, so that the notebook stays responsive; `measure()`
    runs it in the calling thread. Only one benchmark runs at a time, and stopping waits for the
    call that is being timed (see `Job`).

    Attributes:
        device: the drop-down list of the devices of this machine.
        setups: the drop-down list for setup A, B or both.
        size: the drop-down list that sets the sliders to the sizes of the quick or the full
            benchmark.
        batch_size: the slider for the number of sequences.
        shortest: the slider for the smallest number of time steps.
        longest: the slider for the largest number of time steps.
        step: the slider for the difference between successive sizes, in time steps.
        beside: the drop-down list for the recorded file that is drawn beside your results.
        job: the buttons and the progress bar.
        result: the last result, or `None` if there is none yet.
    """

    result: Benchmark | None

    def __init__(
        self,
        device: str = "cpu",
        *,
        quick: bool | str = True,
        setups: str = "A and B",
        batch_size: int | None = None,
        shortest: int | None = None,
        longest: int | None = None,
        step: int | None = None,
        methods: str = "padded, packed",
        beside: str | None = "",
    ) -> None:
        """Makes the panel. If a number is `None`, the panel takes it from the quick or the full
        benchmark.

        Args:
            device: the device to run on.
            quick: whether to start with the sizes of the quick benchmark. The strings `"true"` and
                `"false"` are accepted, too, because papermill's `-p quick false` passes a string.
            setups: the setups to measure, `"A"`, `"B"` or `"A and B"`.
            batch_size: number of sequences.
            shortest: smallest number of time steps.
            longest: largest number of time steps.
            step: difference between successive sizes, in time steps.
            methods: names from `packviz.studies.benchmark.METHODS`, separated by commas.
            beside: the name of a recorded file, or `None` for no file. If the name is empty, the
                panel takes a file whose name contains the kind of device, such as `cuda`, or else
                the first file.

        Raises:
            ValueError: this machine does not have the device, the recorded file does not exist, or
                another argument is not valid.
        """
        self.result = None
        self._methods = tuple(method.strip() for method in methods.split(","))
        self._loaded: dict[str, Benchmark] = {}
        self.device = widgets.Dropdown(options=_devices(device), value=device, description="device")
        self.setups = dropdown("setups", setups, [*_SETUPS], "setup")
        is_quick = one_of("quick", str(quick).lower(), ["true", "false"]) == "true"
        self.size = dropdown("size", "quick" if is_quick else "full", [*_PRESETS])
        own = {"batch_size": batch_size, "shortest": shortest, "longest": longest, "step": step}
        start = _PRESETS[self.size.value] | {
            name: value for name, value in own.items() if value is not None
        }
        ranges = {
            "batch_size": (8, 512),
            "shortest": (1, 512),
            "longest": (1, 512),
            "step": (1, 256),
        }
        self.batch_size, self.shortest, self.longest, self.step = self._sizes = [
            slider(name, start[name], low, max(high, start[name]))
            for name, (low, high) in ranges.items()
        ]
        names = experiment.STUDY.available()
        if beside == "":
            beside = next(
                (name for name in names if _kind(device) in name), next(iter(names), None)
            )
        self.beside = dropdown("beside", beside or NOTHING, [NOTHING, *names])
        self.job = Job("Start", self._run)
        self.size.observe(self._preset, names="value")
        super().__init__(
            row(self.device, self.setups, self.size),
            widgets.Label(f"No CUDA: {why}." if (why := no_cuda()) else ""),
            row(self.batch_size, self.step),
            row(self.shortest, self.longest),
            row(self.beside),
            self.job,
            quiet=(self.job,),
        )

    def view(self) -> View:
        """Returns a view of the benchmark's plan and of the curves measured so far."""
        points, parameters = self._plan()
        sizes = [*dict.fromkeys(point.steps for point in points)]
        shown: dict[str, Benchmark | None] = {YOURS: self.result}
        notes = []
        if (name := self.beside.value) != NOTHING:
            if name not in self._loaded:
                self._loaded[name] = experiment.recorded(name)
            shown["recorded"] = beside = self._loaded[name].only(self._methods)
            here, there = (
                _kind(device) for device in (self.device.value, beside.provenance.get("device"))
            )
            if here != there:
                notes.append(
                    f"The recorded run is from a different kind of device: {there}, not {here}."
                )
        plan = (
            f"Start measures {parameters['batch_size']} sequences of {_listed(sizes)} time steps, setup"
            f" {self.setups.value}, on {self.device.value}, in up to {parameters['rounds']} rounds, until ratios are"
            " known to about 5 %."
        )
        setups = _SETUPS[self.setups.value]
        sweep = experiment.beside(shown, setups, sizes, [plan, *notes], ("ratio", "time"))
        return View(draw=sweep.sheet, summary=plan, describe=sweep.to_text)

    def measure(self) -> Benchmark:
        """Runs the benchmark in the calling thread, and returns its result.

        Raises:
            ValueError: the controls have values that cannot be measured together.
        """
        self.job.run()
        assert self.result is not None
        return self.result

    def _plan(self) -> tuple[list[BenchmarkPoint], dict[str, Any]]:
        rounds = max(_PRESETS[self.size.value]["rounds"], _ROUNDS)
        sizes = experiment.sizes(self.shortest.value, self.longest.value, self.step.value)
        parameters = {
            "methods": self._methods,
            "batch_size": self.batch_size.value,
            "rounds": rounds,
        }
        return experiment.grid(_SETUPS[self.setups.value], sizes), parameters | {
            "until_narrow": True
        }

    def _run(self, progress: Progress, stop: Stop) -> str:
        points, parameters = self._plan()
        shown = -_PAUSE

        def report(share: float, words: str) -> None:
            nonlocal shown
            if time.monotonic() - shown >= _PAUSE:
                shown = time.monotonic()
                self.job.message.value = words
                progress(round(100 * share), 100)

        device = self.device.value
        steps = experiment.STUDY.steps(
            points, parameters=parameters, device=device, progress=report, stop=stop
        )
        for result in steps:
            self.result = result
            self._refresh()
        if (done := len(result.points)) < len(points):
            return f"Stopped; {done} of {len(points)} points were measured."
        progress(1, 1)
        return "Done."

    def _preset(self, change: object = None) -> None:
        preset = _PRESETS[self.size.value]
        for control in self._sizes:
            control.value = preset[control.description]


def _devices(device: str) -> list[tuple[str, str]]:
    """Returns the label and the value of each device of this machine, including `device`."""
    import torch

    found = [("cpu", "cpu")]
    for i in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        found.append((f"cuda:{i}, {torch.cuda.get_device_name(i)}", f"cuda:{i}" if i else "cuda"))
    check_device(device)
    return found if device in dict(found).values() else [*found, (device, device)]


def _kind(device: object) -> str:
    return str(device).partition(":")[0]


def _listed(sizes: Sequence[int]) -> str:
    some = [*map(str, sizes)]
    return ", ".join(some) if len(some) < 6 else f"{some[0]}, {some[1]}, … {some[-1]}"
