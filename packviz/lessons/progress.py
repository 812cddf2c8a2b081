"""Which exercises there are and which the reader has solved: kept in a file beside the notebooks, shown in notebook 00.

A check that passes in a notebook leaves its name in `.packviz-progress.json`, in the folder of the notebooks. Not in
strict mode, not in CI, not from the folder of solutions, and not where the file cannot be written: it is a convenience,
and never in the way. What the file holds goes into the live panel alone, so that no stored output depends on it.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, cast
from weakref import WeakSet

import ipywidgets as widgets

from packviz.core import files as recorded
from packviz.draw import palette, text
from packviz.explorers.panel import Companion

FILE = ".packviz-progress.json"
NOTEBOOKS = (
    "00_start_here",
    "01_why_pack",
    "02_inside_a_packed_sequence",
    "03_counting_flops",
    "04_hidden_states",
    "05_masks_and_alignment",
    "06_benchmark",
    "07_why_backward_is_slow",
    "08_making_packing_pay",
    "09_static_graphs",
    "10_should_you_pack",
    "11_error_museum",
)
_KIND, _VERSION = "progress", 1
_shown: WeakSet[Overview] = WeakSet()


@dataclass(frozen=True)
class Exercise:
    """An exercise of a notebook.

    Attributes:
        name: of its check.
        notebook: the file it is in, without its suffix.
        task: what is asked for, in a few words.
    """

    name: str
    notebook: str
    task: str


_exercises: dict[str, Exercise] = {}


def register(name: str, notebook: str, task: str) -> None:
    """Adds an exercise to the list, in the place of one of the same name.

    Args:
        name: of its check.
        notebook: the number of the one that it stands in, as in `"03"`.
        task: what is asked for, in a few words.

    Raises:
        ValueError: there is no such notebook.
    """
    found = [stem for stem in NOTEBOOKS if stem.split("_")[0] == notebook]
    if not found:
        raise ValueError(f"notebook is {notebook!r}; give a number from '00' to '{len(NOTEBOOKS) - 1}'")
    _exercises[name] = Exercise(name, found[0], task)


def exercises() -> list[Exercise]:
    """Every exercise, notebook by notebook."""
    return sorted(_exercises.values(), key=lambda one: one.notebook)


def solved() -> set[str]:
    """The names of the exercises that have been solved in this folder."""
    path = _path()
    if path is None:
        return set()
    try:
        return set(recorded.load(path, _KIND, _VERSION)["solved"])
    except (ValueError, KeyError, TypeError, OSError):  # not there, or not ours
        return set()


def note(name: str) -> None:
    """Keeps that an exercise was solved, if a person solved it in a notebook and there is a place to keep it."""
    path = _path()
    if path is None or name not in _exercises or not _is_live() or name in (before := solved()):
        return
    with contextlib.suppress(OSError):
        recorded.save(path, _KIND, _VERSION, {"solved": sorted(before | {name})})
    _refresh()


def reset() -> None:
    """Forgets what was solved."""
    path = _path()
    if path is not None:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
    _refresh()


class Overview(widgets.VBox):
    """The exercises of all notebooks, and which of them are solved here.

    Where no kernel runs it is the list alone.

    Attributes:
        table: the list, with its marks.
        again: a button that reads the file again, in which other notebooks write.
        forget: a button that forgets everything, when it is pressed twice.
    """

    def __init__(self) -> None:
        """Lists what is solved now."""
        self.table = widgets.HTML()
        self.table.add_class("packviz-summary")
        self.again = widgets.Button(description="Look again")
        self.forget = widgets.Button(description=_FORGET, layout=widgets.Layout(width="auto"))
        super().__init__([Companion(), self.table, widgets.HBox([self.again, self.forget])])
        self.add_class("packviz")
        self.again.on_click(lambda button: self.refresh())
        self.forget.on_click(self._forget)
        self.refresh()
        _shown.add(self)

    def refresh(self) -> None:
        """Reads the file again."""
        self.forget.description = _FORGET
        self.table.value = _table(exercises(), solved())

    def to_text(self) -> str:
        """The exercises, without the marks: the same for every reader."""
        return "\n".join(text.table([[exercise.notebook, exercise.task] for exercise in exercises()], "<  <"))

    def _forget(self, button: Any = None) -> None:
        if self.forget.description == _FORGET:
            self.forget.description = _SURE
        else:
            reset()

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        bundle = cast(dict[str, Any], super()._repr_mimebundle_(**kwargs))
        return bundle | {"text/plain": self.to_text(), "text/html": _table(exercises(), None)}


_FORGET, _SURE = "Forget all", "Press again to forget all"


def _table(listed: Sequence[Exercise], done: set[str] | None) -> str:
    """The list in HTML, with links; with marks unless `done` is none."""
    rows = []
    for one in listed:
        look = "color:inherit;text-decoration:underline"
        link = f'<a href="{one.notebook}.ipynb" style="{look}">{one.notebook.replace("_", " ")}</a>'
        mark = "" if done is None else f"<td>{'✓ solved' if one.name in done else '○ open'}</td>"
        rows.append(f"<tr>{mark}<td>{link}</td><td>{_code(one.task)}</td></tr>")
    head = "" if done is None else "<th>here</th>"
    count = "" if done is None else f"<div>{len(done & {one.name for one in listed})} of {len(listed)} solved</div>"
    style = f"color:{palette.LIVE.text};text-align:left;border-spacing:12px 2px;line-height:1.4"
    titles = f"<tr>{head}<th>notebook</th><th>exercise</th></tr>"
    return f'{count}<table style="{style}"><thead>{titles}</thead><tbody>{"".join(rows)}</tbody></table>'


def _code(said: str) -> str:
    """Text in HTML, what stands between back quotes as code."""
    return re.sub("`(.*?)`", r"<code>\1</code>", escape(said))


def _path() -> Path | None:
    """Where progress is kept: beside the notebooks, if the kernel runs there; none elsewhere."""
    try:
        here = Path.cwd()
    except OSError:  # the folder is gone
        return None
    beside = (here / f"{NOTEBOOKS[0]}.ipynb").is_file() and here.name != "solutions"
    return here / FILE if beside else None


def _is_live() -> bool:
    """Whether this is a notebook's kernel, and neither strict mode nor CI."""
    shell = sys.modules.get("IPython")
    kernel = None if shell is None else getattr(shell.get_ipython(), "kernel", None)
    in_ci = os.environ.get("CI", "").lower() not in ("", "0", "false")
    return kernel is not None and not in_ci and os.environ.get("PACKVIZ_STRICT") != "1"


def _refresh() -> None:
    for overview in tuple(_shown):
        overview.refresh()
