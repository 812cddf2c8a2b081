"""How long after a key press the picture has changed on the screen: `make bench-ui`.

Every explorer at every size stands in a notebook of its own beside a bare slider whose Python callback writes a label.
Keys go to the two in turn, so both meet the same machine in the same mood; what counts is the ratio of the medians.

Time runs in the page. It starts at the keydown event and is read twice: when the last change of picture, counts or
error is in the DOM and laid out (*change*), and at the second animation frame after that, when the frame that holds it
has been painted (*paint*). A frame comes every 17 ms, so paint is coarse and hides small differences: an aim holds for
both ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median, quantiles

from browser.lab import Control, Lab, LabError, Notebook, Panel

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
    Subject("rows", "8×10", "RowExplorer([4, 6, 10, 5, 4, 3, 7, 8], room=16)", "row size", None),
    Subject("rows", "64×128", "RowExplorer(kind='uniform', many=64, longest=128, room=128)", "row size", 2.5),
    Subject("rows", "512×512", "RowExplorer(kind='uniform', many=512, longest=512, room=512)", "row size", 3.0),
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


@dataclass(frozen=True)
class Timing:
    """Milliseconds from a key press on: until the change is laid out, and until it is painted."""

    change: float
    paint: float


@dataclass(frozen=True)
class Spread:
    """Milliseconds of an explorer beside those of the bare slider: medians, our quartiles, the ratio of the medians."""

    bare: float
    median: float
    low: float
    high: float
    ratio: float

    @classmethod
    def of(cls, bare: Sequence[float], times: Sequence[float]) -> Spread:
        """From two lists of times."""
        low, _, high = quantiles(times, n=4)
        return cls(median(bare), median(times), low, high, median(times) / median(bare))


@dataclass(frozen=True)
class Row:
    """What was measured of a subject."""

    name: str
    size: str
    presses: int
    change: Spread
    paint: Spread
    aim: float | None

    @property
    def verdict(self) -> str:
        """``ok``, ``missed``, or nothing where nothing was promised."""
        if self.aim is None:
            return ""
        return "ok" if max(self.change.ratio, self.paint.ratio) <= self.aim else "missed"


@dataclass
class Runner:
    """A slider that is pressed to and fro, and the panel that answers."""

    notebook: Notebook
    panel: Panel
    slider: str
    parts: str
    key: str = "ArrowRight"

    def press(self) -> Timing:
        """One key press.

        Raises:
            LabError: no such slider, or the picture did not answer.
        """
        control = self._control()
        if control.at_maximum or control.at_minimum:
            self.key = "ArrowLeft" if control.at_maximum else "ArrowRight"
        self.notebook.call("prepare", control.id)
        self.notebook.call("time", self.panel.id, self.parts, QUIET, LIMIT)
        self.notebook.page.keyboard.press(self.key)
        took = self.notebook.call("timed")
        if took is None:
            raise LabError(f"slider {self.slider!r}, {self.key}: the picture does not answer")
        return Timing(took["change"], took["paint"])

    def _control(self) -> Control:
        sliders = [c for c in self.notebook.controls(self.panel, "slider") if c.usable]
        for control in sliders:
            if control.name == self.slider:
                return control
        raise LabError(f"no slider {self.slider!r} among {[control.name for control in sliders]}")


def measure(lab: Lab, subject: Subject, presses: int) -> Row:
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
        times = interleave(bare, explorer, presses)
    return summarise(subject, *times)


def interleave(bare: Runner, explorer: Runner, presses: int) -> tuple[list[Timing], list[Timing]]:
    """Press both in turn, changing who goes first; the warm-up is thrown away."""
    ours: list[Timing] = []
    theirs: list[Timing] = []
    for i in range(WARM_UP + presses):
        for runner, kept in ((bare, theirs), (explorer, ours))[:: 1 if i % 2 else -1]:
            took = runner.press()
            if i >= WARM_UP:
                kept.append(took)
    return theirs, ours


def summarise(subject: Subject, bare: Sequence[Timing], times: Sequence[Timing]) -> Row:
    """A row of the result."""
    change = Spread.of([t.change for t in bare], [t.change for t in times])
    paint = Spread.of([t.paint for t in bare], [t.paint for t in times])
    return Row(subject.name, subject.size, len(times), change, paint, subject.aim)


def load() -> float | None:
    """How many processes wanted a core over the last minute; None where the system does not say."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None


COLUMNS = f"{'bare':>7}{'ours':>7}{'quartiles':>11}{'ratio':>7}"
HEADER = (
    f"{'milliseconds to':<20}{'change':>{len(COLUMNS)}}{'paint':>{len(COLUMNS)}}\n{'':<20}{COLUMNS}{COLUMNS}     aim"
)


def columns(spread: Spread) -> str:
    """Four columns of the table."""
    between = f"{spread.low:.0f}–{spread.high:.0f}"
    return f"{spread.bare:>7.1f}{spread.median:>7.1f}{between:>11}{spread.ratio:>7.2f}"


def line(row: Row) -> str:
    """A row of the table."""
    aim = f"≤ {row.aim}" if row.aim else ""
    cells = f"{row.name:<10}{row.size:<10}{columns(row.change)}{columns(row.paint)}{aim:>8}"
    return f"{cells}  {row.verdict}".rstrip()


def store(rows: Sequence[Row], browser: str, path: Path) -> None:
    """Write the result with its provenance."""
    packages = {name: version(name) for name in ("jupyterlab", "ipywidgets", "anywidget", "playwright")}
    document = {
        "what": "milliseconds from key press to change and to painted frame, and the ratio to a bare slider and label",
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {"platform": platform.platform(), "cores": os.cpu_count(), "python": platform.python_version()},
        "load": load(),
        "browser": browser,
        "packages": packages,
        "rows": [asdict(row) | {"verdict": row.verdict} for row in rows],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


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
    busy, cores = load(), os.cpu_count() or 1
    if busy is not None and busy > cores / 2:
        print(f"This machine is busy (load {busy:.1f} on {cores} cores): expect scatter.", file=sys.stderr)
    print(HEADER)
    rows: list[Row] = []
    try:
        with Lab() as lab:
            for subject in subjects:
                rows.append(measure(lab, subject, given.presses))
                print(line(rows[-1]), flush=True)
            store(rows, f"Chromium {lab.browser.version}", given.out)
    except LabError as error:
        print(error, file=sys.stderr)
        return 2
    print(given.out)
    return 1 if given.strict and any(row.verdict == "missed" for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
