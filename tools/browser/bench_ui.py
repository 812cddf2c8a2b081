"""How long after a key press the picture has changed on the screen: `make bench-ui`.

Every explorer at every size stands in a notebook of its own beside a bare slider whose Python callback writes a label.
Keys go to the two in turn, so both meet the same machine in the same mood; what counts is the median of the ratios.

Time runs in the page. It starts at the keydown event and is read twice: when the last change of picture, counts or
error is in the DOM and laid out (*change*), and at the second animation frame after that, when the frame that holds it
has been painted (*paint*). A frame comes every 17 ms, so paint is coarse and hides small differences: an aim holds for
both ratios.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from browser.lab import Control, Lab, LabError, Notebook, Panel
from packviz.bench import Timing, provenance
from packviz.bench.machine import load_average
from packviz.core import results
from packviz.draw.quantities import milliseconds
from packviz.draw.text import table

ROOT = Path(__file__).resolve().parents[2]
RESULT = ROOT / "artefacts" / "bench_ui.json"


@dataclass(frozen=True)
class Subject:
    """An explorer at a size.

    Attributes:
        name: of the explorer.
        size: sequences × time steps.
        make: the expression that makes it.
        slider: the accessible name of the slider that is moved.
        aim: the most it should take, as a multiple of the bare slider and label; None where nothing is promised.
    """

    name: str
    size: str
    make: str
    slider: str
    aim: float | None


# The one place that knows the explorers' arguments.
IMPORT = """from packviz.explorers import (
    BatchingExplorer, CostExplorer, GraphExplorer, PackedExplorer, PaddingExplorer, RowExplorer, StaircaseExplorer,
    StatesExplorer,
)"""
SUBJECTS = (
    Subject("padding", "8×10", "PaddingExplorer([4, 6, 10, 5, 4, 3, 7, 8])", "a", None),
    Subject("padding", "64×128", "PaddingExplorer(kind='uniform', batch_size=64, longest=128)", "longest", 2.5),
    Subject("padding", "512×512", "PaddingExplorer(kind='uniform', batch_size=512, longest=512)", "longest", 3.0),
    Subject("packed", "8×10", "PackedExplorer([4, 6, 10, 5, 4, 3, 7, 8], t=4)", "time step t", None),
    Subject("packed", "64×128", "PackedExplorer([128 - 2 * i for i in range(64)], t=64)", "time step t", 2.5),
    Subject("packed", "512×512", "PackedExplorer([512 - i for i in range(512)], t=256)", "time step t", 3.0),
    Subject("cost", "8×10", "CostExplorer([4, 6, 10, 5, 4, 3, 7, 8])", "hidden_size", None),
    Subject("cost", "64×128", "CostExplorer([128 - 2 * i for i in range(64)])", "hidden_size", 2.5),
    Subject("cost", "512×512", "CostExplorer([512 - i for i in range(512)])", "hidden_size", 3.0),
    Subject("states", "8×10", "StatesExplorer([4, 6, 10, 5, 4, 3, 7, 8])", "seed", None),  # it runs two RNNs each time
    Subject("staircase", "8×10", "StaircaseExplorer([4, 6, 10, 5, 4, 3, 7, 8])", "rectangles", None),
    Subject("staircase", "64×128", "StaircaseExplorer(many=64, longest=128)", "rectangles", 2.5),
    Subject("staircase", "512×512", "StaircaseExplorer(many=512, longest=512)", "rectangles", 3.0),
    Subject("graph", "32×10", "GraphExplorer(10, 10)", "time steps T", None),  # it packs and pads, and counts
    Subject("batching", "512×128", "BatchingExplorer()", "batch size", 2.5),
    Subject("batching", "2000×512", "BatchingExplorer(many=2000, longest=512)", "batch size", 3.0),
    Subject("rows", "8×10", "RowExplorer([4, 6, 10, 5, 4, 3, 7, 8], row_size=16)", "row size", None),
    Subject("rows", "64×128", "RowExplorer(kind='uniform', many=64, longest=128, row_size=128)", "row size", 2.5),
    Subject("rows", "512×512", "RowExplorer(kind='uniform', many=512, longest=512, row_size=512)", "row size", 3.0),
)
BARE = """
import ipywidgets
slider, label = ipywidgets.IntSlider(50, 0, 100), ipywidgets.Label("50")
slider.observe(lambda change: setattr(label, "value", str(change.new)), names="value")
ipywidgets.VBox([slider, label])
"""
EXPLORER_PARTS = ".packviz-picture, .packviz-summary, .packviz-error"
BARE_PARTS = "div.widget-label"
WARM_UP = 4
QUIET = 150  # ms without a change that end a measurement
LIMIT = 15_000  # ms to wait for one


BASE, OURS = "bare", "ours"
EVENTS = ("change", "paint")
COLUMNS = "<10<10>7>7>11>7>7>7>11>7>8  <"


Times = Mapping[str, Timing]  # what was measured of a subject: by event, the explorer beside the bare slider


def verdict(subject: Subject, times: Times) -> str:
    """``ok``, ``missed``, or nothing where nothing was promised."""
    if subject.aim is None:
        return ""
    return "ok" if max(t.ratio(OURS, BASE).value for t in times.values()) <= subject.aim else "missed"


def line(subject: Subject, times: Times) -> str:
    """A line of the table."""
    cells = [subject.name, subject.size]
    for timing in times.values():
        low, middle, high = map(milliseconds, timing.spread(OURS))
        cells += [milliseconds(timing.median(BASE)), middle, f"{low}–{high}", f"{timing.ratio(OURS, BASE).value:.2f}"]
    return table([[*cells, f"≤ {subject.aim}" if subject.aim else "", verdict(subject, times)]], COLUMNS)[0]


@dataclass
class Runner:
    """A slider that is pressed to and fro, and the panel that answers."""

    notebook: Notebook
    panel: Panel
    slider: str
    parts: str
    key: str = "ArrowRight"

    def press(self) -> dict[str, float]:
        """One key press: by event, the milliseconds until it.

        Raises:
            LabError: no such slider, or the picture did not answer.
        """
        control = self._control()
        if control.at_maximum or control.at_minimum:
            self.key = "ArrowLeft" if control.at_maximum else "ArrowRight"
        self.notebook.call("prepare", control.id)
        self.notebook.call("time", self.panel.id, self.parts, QUIET, LIMIT)
        self.notebook.page.keyboard.press(self.key)
        took: dict[str, float] | None = self.notebook.call("timed")
        if took is None:
            raise LabError(f"slider {self.slider!r}, {self.key}: the picture does not answer")
        return took

    def _control(self) -> Control:
        sliders = [c for c in self.notebook.controls(self.panel, "slider") if c.usable]
        for control in sliders:
            if control.name == self.slider:
                return control
        raise LabError(f"no slider {self.slider!r} among {[control.name for control in sliders]}")


def measure(lab: Lab, subject: Subject, presses: int) -> Times:
    """Measure one subject against the bare slider beside it.

    Raises:
        LabError: the notebook failed, or a picture did not answer.
    """
    name = lab.write_notebook("bench.ipynb", [BARE, IMPORT, subject.make])
    with lab.open(name) as notebook:
        notebook.run_all()
        problems = [*notebook.cell_problems(), *notebook.problems()]
        if problems:
            raise LabError("\n".join(map(str, problems)))
        bare = Runner(notebook, notebook.panels("output")[0], "", BARE_PARTS)
        explorer = Runner(notebook, notebook.panels("explorer")[0], subject.slider, EXPLORER_PARTS)
        return interleave({BASE: bare, OURS: explorer}, presses)


def interleave(runners: Mapping[str, Runner], presses: int) -> dict[str, Timing]:
    """Press both in turn, changing who goes first; the warm-up is thrown away."""
    seconds: dict[str, dict[str, list[float]]] = {event: {name: [] for name in runners} for event in EVENTS}
    for i in range(WARM_UP + presses):
        for name in [*runners][:: 1 if i % 2 else -1]:
            took = runners[name].press()
            for event in EVENTS if i >= WARM_UP else ():
                seconds[event][name].append(took[event] / 1e3)
    return {event: Timing(each, WARM_UP) for event, each in seconds.items()}


def store(found: Mapping[Subject, Times], browser: str, path: Path) -> None:
    """Write the result with its provenance."""
    packages = {name: version(name) for name in ("jupyterlab", "ipywidgets", "anywidget", "playwright")}
    rows = [
        {
            "subject": asdict(subject),
            "timings": {k: t.to_dict() for k, t in times.items()},
            "verdict": verdict(subject, times),
        }
        for subject, times in found.items()
    ]
    document = {"provenance": provenance() | {"browser": browser, "packages": packages}, "rows": rows}
    path.parent.mkdir(parents=True, exist_ok=True)
    results.save(path, "bench_ui", 1, document)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="Key press to painted frame, per explorer, against a bare slider.")
    parser.add_argument("--presses", type=int, default=21, help="counted presses per explorer (default: 21)")
    parser.add_argument("--only", default="", help="only those whose 'name size' holds this text")
    parser.add_argument("--out", type=Path, default=RESULT, help="where the JSON goes")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if an aim is missed")
    given = parser.parse_args(arguments)
    if given.presses < 2:
        parser.error("--presses: at least 2")
    subjects = [subject for subject in SUBJECTS if given.only in f"{subject.name} {subject.size}"]
    busy, cores = load_average(), os.cpu_count() or 1
    if busy and busy[0] > cores / 2:
        print(f"This machine is busy (load {busy[0]:.1f} on {cores} cores): expect scatter.", file=sys.stderr)
    each = [BASE, OURS, "quartiles", "ratio"]
    heads = [["milliseconds to", "", "", "", "change", "", "", "", "", "paint"], ["", "", *each, *each, "aim"]]
    print(*(table([head], COLUMNS)[0] for head in heads), sep="\n")
    found: dict[Subject, Times] = {}
    try:
        with Lab() as lab:
            for subject in subjects:
                found[subject] = measure(lab, subject, given.presses)
                print(line(subject, found[subject]), flush=True)
            store(found, f"Chromium {lab.browser.version}", given.out)
    except LabError as error:
        print(error, file=sys.stderr)
        return 2
    print(given.out)
    return 1 if given.strict and "missed" in map(verdict, found, found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
