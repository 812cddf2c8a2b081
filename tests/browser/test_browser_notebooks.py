"""Runs every notebook in a real JupyterLab, in light or dark, and moves every control."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

import pytest
from browser.lab import Lab, Notebook
from browser_checks import (
    Walk,
    barriers,
    faint_texts,
    unanswering_quiz,
    unreached_by_tab,
)

FULL = os.environ.get("HYPOTHESIS_PROFILE") == "full"


def legible(notebook: Notebook, theme: str) -> list[str]:
    """Lists what is faint in a theme, or a barrier otherwise."""
    notebook.set_theme(dark=theme == "dark")
    complaints = barriers(notebook)
    for i in range(notebook.call("cellCount")):
        complaints += faint_texts(notebook, i)
    return complaints


def unreached(notebook: Notebook) -> list[str]:
    return [text for panel in notebook.panels() for text in unreached_by_tab(notebook, panel)]


def not_working(notebook: Notebook) -> list[str]:
    panels = [*notebook.panels("panel"), *notebook.panels("output")]
    return [text for panel in panels for text in Walk(notebook, panel).run()]


def not_answering(notebook: Notebook) -> list[str]:
    return [text for panel in notebook.panels("quiz") for text in unanswering_quiz(notebook, panel)]


def themes(name: str) -> list[str]:
    """Returns one theme for a notebook, which depends on its name, or both in the full profile."""
    both = ["light", "dark"]
    return both if FULL else [both[sum(name.encode()) % 2]]


CHECKS: dict[str, Callable[[Notebook], Iterable[object]]] = {
    "every cell runs clean": lambda notebook: notebook.call("cellProblems"),
    "all is legible, and nobody is barred": lambda notebook: [
        text for theme in themes(notebook.name) for text in legible(notebook, theme)
    ],
    "Tab reaches every control": unreached,
    "every control of every panel works": not_working,
    "every quiz answers": not_answering,
}


def refuse(complaints: Iterable[object]) -> None:
    """Fails with all complaints, one per line."""
    text = "\n".join(map(str, complaints))
    if text:
        pytest.fail(text, pytrace=False)


def test_a_notebook_as_its_reader_meets_it(
    lab: Lab, notebook_name: str, subtests: pytest.Subtests
) -> None:
    """One test makes all checks, because opening and running a notebook is most of the work."""
    with lab.open(notebook_name) as notebook:
        notebook.run_all()
        if not FULL:  # the tests of the panels see them move, which takes a third of the time here
            notebook.page.emulate_media(reduced_motion="reduce")
        for what, check in CHECKS.items():
            with subtests.test(what):
                refuse(check(notebook))
            # No error in a callback, on the page or in the log, and no request to the outside.
            with subtests.test(f"{what}, and nothing goes wrong meanwhile"):
                refuse(notebook.problems())
