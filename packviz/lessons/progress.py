"""The notebooks, their exercises and which the reader has solved: kept in a file beside them, shown in notebook 00.

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
from packviz.draw import palette
from packviz.explorers.panel import Companion

FILE = ".packviz-progress.json"
NOTEBOOKS = {
    "00_start_here": ("What is here, and is my set-up alive?", 5),
    "01_why_pack": ("What does padding waste, and what does it corrupt?", 12),
    "02_inside_a_packed_sequence": ("How does a `PackedSequence` order its data, and what is `batch_sizes`?", 20),
    "03_counting_flops": ("How much work does packing save, and why is that not time saved?", 20),
    "04_hidden_states": ("Which results of an RNN does padding change, and which not?", 20),
    "05_masks_and_alignment": ("Which computations read the padding by mistake, and how do you stop them?", 20),
    "06_benchmark": ("How long do packing and unpacking take, forward and backward, on your machine?", 15),
    "07_why_backward_is_slow": (
        "Training on a packed batch can take many times as long as on a padded one. What takes so long?",
        20,
    ),
    "08_making_packing_pay": ("Can a step of training be faster than padded, with the results of packing?", 20),
    "09_static_graphs": ("What does a compiler make of a packed sequence?", 20),
    "10_should_you_pack": ("With your lengths and your model: pad, pack, or something better?", 15),
    "11_error_museum": (
        "You have an error, or a wrong result without one. Which mistake is it, and what do you do?",
        None,
    ),
    "12_beyond_rnns": (
        "Transformers on texts of different lengths: where do the tokens lie, who may see whom, and what does it cost?",
        20,
    ),
}
"""By file name: the question that it asks at its head, and the minutes it takes; none where one walks at will."""

_FIRST = next(iter(NOTEBOOKS))
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
    """All notebooks with the question each answers, the minutes it takes and its exercises: which are solved here.

    Where no kernel runs it is the table without the marks.

    Attributes:
        table: the list, with its marks.
        again: a button that reads the file again, in which other notebooks write.
        forget: a button that forgets everything, when it is pressed twice.
    """

    def __init__(self) -> None:
        """Shows what is solved now."""
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
        """The notebooks and their exercises, without the marks: the same for every reader."""
        lines = []
        for stem, (question, minutes) in NOTEBOOKS.items():
            lines.append(f"{stem}: {question}" + (f" {minutes} minutes." if minutes else " At will."))
            lines += [f"    exercise: {one.task}" for one in exercises() if one.notebook == stem]
        return "\n".join(lines)

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
    """The notebooks in HTML, with links; the exercises with marks unless `done` is none."""
    rows = []
    for stem, (question, minutes) in NOTEBOOKS.items():
        link = f'<a href="{stem}.ipynb" style="color:inherit;text-decoration:underline">{stem.replace("_", " ")}</a>'
        tasks = []
        for one in (one for one in listed if one.notebook == stem):
            mark = "" if done is None else "✓ " if one.name in done else "○ "
            tasks.append(f"<div>{mark}{_code(one.task)}</div>")
        name = stem.replace("_", " ") if stem == _FIRST else link
        cells = [_code(question), "at&nbsp;will" if minutes is None else f"{minutes}&nbsp;min", "".join(tasks)]
        parts = "".join(f'<td style="{_CELL}">{cell}</td>' for cell in cells)
        rows.append(f'<tr><th scope="row" style="{_CELL};white-space:nowrap">{name}</th>{parts}</tr>')
    count = "" if done is None else f"<div>{len(done & {one.name for one in listed})} of {len(listed)} solved</div>"
    heads = ("notebook", "the question it answers", "time", "exercises")
    titles = "".join(f'<th scope="col" style="{_CELL}">{head}</th>' for head in heads)
    colour = "inherit" if done is None else palette.LIVE.text  # what is stored has no style sheet beside it
    style = f"color:{colour};border-collapse:collapse;line-height:1.4"
    return f'{count}<table style="{style}"><thead><tr>{titles}</tr></thead><tbody>{"".join(rows)}</tbody></table>'


_CELL = "text-align:left;vertical-align:top;padding:.3em .8em .3em 0"


def _code(said: str) -> str:
    """Text in HTML, what stands between back quotes as code."""
    return re.sub("`(.*?)`", r"<code>\1</code>", escape(said))


def _path() -> Path | None:
    """Where progress is kept: beside the notebooks, if the kernel runs there; none elsewhere."""
    try:
        here = Path.cwd()
    except OSError:  # the folder is gone
        return None
    beside = (here / f"{_FIRST}.ipynb").is_file() and here.name != "solutions"
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
