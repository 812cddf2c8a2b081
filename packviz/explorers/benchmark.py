"""The forum's experiment on your machine: choose, start, and watch the curves grow beside recorded ones."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, ClassVar

import ipywidgets as widgets

from packviz.bench.machine import check_device, no_cuda
from packviz.explorers import job
from packviz.explorers.panel import Panel, View, dropdown, row, slider
from packviz.studies import benchmark as experiment
from packviz.studies.benchmark import Benchmark, BenchmarkPoint

YOURS, NOTHING = "yours", "nothing"
QUICK, FULL = "quick", "full"
_PRESETS = {QUICK: experiment.QUICK, FULL: experiment.FULL}
_SETUPS = {"A": ["A"], "B": ["B"], "A and B": ["A", "B"]}
_ROUNDS = 25  # at most: a point is done as soon as its ratios are known
_PAUSE = 0.5  # s between two signs of life: the page that shows them takes time from what is measured


class BenchmarkExplorer(Panel):
    """A form for the experiment, its curves as they come, and recorded ones beside them.

    The button starts it in a thread, and the notebook stays free; `measure()` runs it here and now. One runs at a time:
    a new panel, or a start elsewhere, stops the one before. Stopping waits for the call that is being timed.

    Attributes:
        device: where to run; only what is here.
        setups: A, B or both.
        size: quick or full: sets the sliders, and the rounds.
        batch_size: sequences.
        shortest: fewest time steps.
        longest: most time steps.
        step: from one size to the next.
        beside: a recorded file to draw beside.
        job: the buttons and the progress bar.
        result: what was measured last; none before that.
    """

    result: Benchmark | None
    _latest: ClassVar[BenchmarkExplorer | None] = None

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
        """Starts with this in the form; what is none is as quick or full has it.

        `beside` is the name of a recorded file, or none; if empty, one of a device of this kind, or else the first.
        `quick` may also be `"true"` or `"false"`: papermill's `-p quick false` brings it as text.

        Raises:
            ValueError: the device or the recorded file is not here, or one of the others cannot be.
        """
        self.result = None
        self._methods = tuple(method.strip() for method in methods.split(","))
        self._loaded: dict[str, Benchmark] = {}
        self.device = widgets.Dropdown(options=_devices(device), value=device, description="device")
        self.setups = dropdown("setups", setups, [*_SETUPS], "setup")
        self.size = dropdown("size", QUICK if _is_true(quick) else FULL, [QUICK, FULL])
        own = {"batch_size": batch_size, "shortest": shortest, "longest": longest, "step": step}
        start = _PRESETS[self.size.value] | {name: value for name, value in own.items() if value is not None}
        ranges = {"batch_size": (8, 512), "shortest": (1, 512), "longest": (1, 512), "step": (1, 256)}
        self.batch_size, self.shortest, self.longest, self.step = self._sizes = [
            slider(name, start[name], low, max(high, start[name])) for name, (low, high) in ranges.items()
        ]
        beside = _like(device) if beside == "" else beside
        self.beside = dropdown("beside", beside or NOTHING, [NOTHING, *experiment.STUDY.available()])
        self.job = job.Job("Start", self._prepare)
        self.size.observe(self._preset, names="value")
        lacking = widgets.Label(f"No CUDA: {why}." if (why := no_cuda()) else "")
        if BenchmarkExplorer._latest:
            BenchmarkExplorer._latest.halt()
        BenchmarkExplorer._latest = self
        super().__init__(
            row(self.device, self.setups, self.size),
            lacking,
            row(self.batch_size, self.step),
            row(self.shortest, self.longest),
            row(self.beside),
            self.job,
            quiet=(self.job,),
        )

    def view(self) -> View:
        """What Start would measure, over what was measured."""
        points, parameters = self._plan()
        sizes = [*dict.fromkeys(point.steps for point in points)]
        shown: dict[str, Benchmark | None] = {YOURS: self.result}
        notes = []
        if (name := self.beside.value) != NOTHING:
            if name not in self._loaded:
                self._loaded[name] = experiment.recorded(name)
            shown["recorded"] = beside = self._loaded[name].only(self._methods)
            here, there = (_kind(device) for device in (self.device.value, beside.provenance.get("device")))
            if here != there:
                notes.append(f"The recorded run is not one of your kind of device: {there}, not {here}.")
        plan = (
            f"Start measures {parameters['batch_size']} sequences of {_listed(sizes)} time steps, setup"
            f" {self.setups.value}, on {self.device.value}: up to {parameters['rounds']} rounds, until the ratios are"
            " known to about 5 %."
        )
        setups = _SETUPS[self.setups.value]
        sweep = experiment.beside(shown, setups, sizes, [plan, *notes], ("ratio", "time"))
        return View(draw=sweep.sheet, summary=plan, describe=sweep.to_text)

    def measure(self) -> Benchmark:
        """Does what Start does, but here and now, and returns what was measured.

        Raises:
            ValueError: the form holds what cannot be measured.
        """
        self.job.run()
        assert self.result is not None
        return self.result

    def halt(self) -> None:
        """Asks the thread to stop, if one runs."""
        self.job.stop.click()

    def close(self) -> None:
        """Stops the run, and takes the panel away."""
        if "job" in vars(self):  # not where the constructor refused
            self.halt()
        super().close()

    def _plan(self) -> tuple[list[BenchmarkPoint], dict[str, Any]]:
        rounds = max(_PRESETS[self.size.value]["rounds"], _ROUNDS)
        sizes = experiment.sizes(self.shortest.value, self.longest.value, self.step.value)
        parameters = {"methods": self._methods, "batch_size": self.batch_size.value, "rounds": rounds}
        return experiment.grid(_SETUPS[self.setups.value], sizes), parameters | {"until_narrow": True}

    def _prepare(self) -> job.Work:
        points, parameters = self._plan()
        device, before = self.device.value, BenchmarkExplorer._latest
        if before is not self and before is not None:
            before.halt()
        BenchmarkExplorer._latest = self

        def work(progress: job.Progress, stop: job.Stop) -> str:
            if before is not self and before is not None and before.job.thread:
                before.job.thread.join()  # the call that it is timing has to end first
            shown = -_PAUSE

            def report(share: float, words: str) -> None:
                nonlocal shown
                if time.monotonic() - shown >= _PAUSE:
                    shown = time.monotonic()
                    self.job.message.value = words
                    progress(round(100 * share), 100)

            steps = experiment.STUDY.steps(points, parameters=parameters, device=device, progress=report, stop=stop)
            for result in steps:
                self.result = result
                self._refresh()
            if (done := len(result.points)) < len(points):
                return f"Stopped; {done} of {len(points)} points were measured."
            progress(1, 1)
            return "Done."

        return work

    def _preset(self, change: object = None) -> None:
        preset = _PRESETS[self.size.value]
        for control in self._sizes:
            control.value = preset[control.description]


def _devices(device: str) -> list[tuple[str, str]]:
    """What can be chosen, and what it is called."""
    import torch  # noqa: PLC0415

    found = [("cpu", "cpu")]
    for i in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        found.append((f"cuda:{i}, {torch.cuda.get_device_name(i)}", f"cuda:{i}" if i else "cuda"))
    check_device(device)
    return found if device in dict(found).values() else [*found, (device, device)]


def _like(device: str) -> str | None:
    """The recorded file of a device of this kind, or else the first one; none where there is none."""
    study = experiment.STUDY
    try:
        found = {name: _kind(study.load(name).provenance.get("device")) for name in study.available()}
    except ValueError:  # one cannot be read; the list of files says which, when it is chosen
        return None
    alike = [name for name, kind in found.items() if kind == _kind(device)]
    return next(iter([*alike, *found]), None)


def _kind(device: object) -> str:
    return str(device).partition(":")[0]


def _is_true(value: bool | str) -> bool:
    shown = str(value).lower()
    if shown not in ("true", "false"):
        raise ValueError(f"quick is {value!r}; it is true or false")
    return shown == "true"


def _listed(sizes: Sequence[int]) -> str:
    some = [*map(str, sizes)]
    return ", ".join(some) if len(some) < 6 else f"{some[0]}, {some[1]}, … {some[-1]}"
