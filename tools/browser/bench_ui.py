"""Measures the time from a key press until the picture has changed on the screen: `make bench-ui`.

Every panel at every size has its own notebook, beside a bare slider whose Python callback writes a
label. Keys are pressed on the panel and on the bare slider in turn, so that the load of the machine
affects both alike. The result is the median of the ratios.

The page measures the time from the keydown event to two later events. At *change*, the last change
of the picture, the counts or the error is in the DOM and laid out. At *paint*, the second animation
frame after this change begins, so the frame that shows the change has been painted. There is a
frame every 17 ms, so the time of *paint* is coarse and hides small differences. The aim applies to
both ratios.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass

from browser.lab import Lab, LabError, Notebook, Panel
from packviz.draw.quantities import milliseconds
from packviz.draw.text import table
from packviz.measure import Timing


@dataclass(frozen=True)
class Subject:
    """An panel at one size.

    Attributes:
        name: the name of the panel.
        size: the size of its batch, as sequences × time steps.
        make: the Python expression that makes the panel.
        slider: the accessible name of the slider to move.
        aim: the longest time that it should take, as a multiple of the time that the bare slider
            and label take.
    """

    name: str
    size: str
    make: str
    slider: str
    aim: float


# Only these two constants depend on the panels' names and arguments.
IMPORT = """from packviz.panels import (
    BatchingPanel, CostPanel, PackedPanel, PaddingPanel, RowPanel, StaircasePanel,
)"""
SUBJECTS = (
    Subject(
        "padding",
        "64×128",
        "PaddingPanel(kind='uniform', batch_size=64, longest=128)",
        "longest",
        2.5,
    ),
    Subject(
        "padding",
        "512×512",
        "PaddingPanel(kind='uniform', batch_size=512, longest=512)",
        "longest",
        3.0,
    ),
    Subject(
        "packed",
        "64×128",
        "PackedPanel([128 - 2 * i for i in range(64)], t=64)",
        "time step t",
        2.5,
    ),
    Subject(
        "packed", "512×512", "PackedPanel([512 - i for i in range(512)], t=256)", "time step t", 3.0
    ),
    Subject("cost", "64×128", "CostPanel([128 - 2 * i for i in range(64)])", "hidden_size", 2.5),
    Subject("cost", "512×512", "CostPanel([512 - i for i in range(512)])", "hidden_size", 3.0),
    Subject("staircase", "64×128", "StaircasePanel(sequences=64, longest=128)", "rectangles", 2.5),
    Subject("staircase", "512×512", "StaircasePanel(sequences=512, longest=512)", "rectangles", 3.0),
    Subject("batching", "512×128", "BatchingPanel()", "batch size", 2.5),
    Subject("batching", "2000×512", "BatchingPanel(sequences=2000, longest=512)", "batch size", 3.0),
    Subject(
        "rows",
        "64×128",
        "RowPanel(kind='uniform', sequences=64, longest=128, row_size=128)",
        "row size",
        2.5,
    ),
    Subject(
        "rows",
        "512×512",
        "RowPanel(kind='uniform', sequences=512, longest=512, row_size=512)",
        "row size",
        3.0,
    ),
)
BARE = """
import ipywidgets
slider, label = ipywidgets.IntSlider(50, 0, 100), ipywidgets.Label("50")
slider.observe(lambda change: setattr(label, "value", str(change.new)), names="value")
ipywidgets.VBox([slider, label])
"""
PANEL_PARTS = ".packviz-picture, .packviz-summary, .packviz-error"
BARE_PARTS = "div.widget-label"
WARM_UP = 4
QUIET = 150  # a measurement ends after this many ms without a change
LIMIT = 15_000  # the longest wait for a change, in ms


BASE, OURS = "bare", "ours"
EVENTS = ("change", "paint")
COLUMNS = "<10<10>7>7>11>7>7>7>11>7>8  <"


def line(subject: Subject, times: dict[str, Timing]) -> str:
    """Returns a line of the table, which ends with ``ok`` or ``missed``."""
    cells = [subject.name, subject.size]
    for timing in times.values():
        low, middle, high = map(milliseconds, timing.spread(OURS))
        cells += [
            milliseconds(timing.median(BASE)),
            middle,
            f"{low}–{high}",
            f"{timing.ratio(OURS, BASE).value:.2f}",
        ]
    worst = max(timing.ratio(OURS, BASE).value for timing in times.values())
    return table(
        [[*cells, f"≤ {subject.aim}", "ok" if worst <= subject.aim else "missed"]], COLUMNS
    )[0]


def press(notebook: Notebook, panel: Panel, slider: str, parts: str) -> dict[str, float]:
    """Presses a key that moves a panel's slider, and returns the milliseconds until each event.

    Raises:
        LabError: the panel has no such slider, or its picture did not change.
    """
    sliders = {
        control.name: control for control in notebook.controls(panel, "slider") if control.usable
    }
    if slider not in sliders:
        raise LabError(f"no slider {slider!r} among {[*sliders]}")
    notebook.call("prepare", sliders[slider].id)
    notebook.call("time", panel.id, parts, QUIET, LIMIT)
    notebook.page.keyboard.press("ArrowLeft" if sliders[slider].at_maximum else "ArrowRight")
    took: dict[str, float] | None = notebook.call("timed")
    if took is None:
        raise LabError(f"slider {slider!r}: the picture does not change")
    return took


def measure(lab: Lab, subject: Subject, presses: int) -> dict[str, Timing]:
    """Measures a subject and the bare slider beside it in turn, after a warm-up, and returns the
    times by event.

    Raises:
        LabError: the notebook failed, or a picture did not change.
    """
    with lab.open(lab.write_notebook("bench.ipynb", [BARE, IMPORT, subject.make])) as notebook:
        notebook.run_all()
        if problems := [*notebook.cell_problems(), *notebook.problems()]:
            raise LabError("\n".join(map(str, problems)))
        panels = {
            BASE: (notebook.panels("output")[0], "", BARE_PARTS),
            OURS: (notebook.panels("panel")[0], subject.slider, PANEL_PARTS),
        }
        found: dict[str, list[dict[str, float]]] = {name: [] for name in panels}
        for i in range(WARM_UP + presses):
            for name in [*panels][:: 1 if i % 2 else -1]:
                found[name].append(press(notebook, *panels[name]))
    seconds = {
        event: {k: [t[event] / 1e3 for t in v[WARM_UP:]] for k, v in found.items()}
        for event in EVENTS
    }
    return {event: Timing(each, WARM_UP) for event, each in seconds.items()}


def main() -> int:
    """Measures the panels that the command line selects, and returns the exit status."""
    parser = argparse.ArgumentParser(description="Time each panel beside a bare slider.")
    parser.add_argument(
        "--presses", type=int, default=21, help="timed key presses for each panel (default: 21)"
    )
    parser.add_argument(
        "--only", default="", help="only the panels whose 'name size' contains this text"
    )
    options = parser.parse_args()
    each = [BASE, OURS, "quartiles", "ratio"]
    heads = [
        ["milliseconds to", "", "", "", "change", "", "", "", "", "paint"],
        ["", "", *each, *each, "aim"],
    ]
    print(*(table([head], COLUMNS)[0] for head in heads), sep="\n")
    try:
        with Lab() as lab:
            for subject in SUBJECTS:
                if options.only in f"{subject.name} {subject.size}":
                    print(line(subject, measure(lab, subject, options.presses)), flush=True)
    except LabError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
