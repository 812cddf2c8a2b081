"""Every notebook in a real JupyterLab: run, looked at in light and dark, and every control moved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from browser.lab import Lab, Notebook
from browser_checks import SCREENSHOTS, Walk, faint_texts, unanswering_quiz, unreached_by_tab


def refuse(complaints: Iterable[object]) -> None:
    """Fail with all complaints, one per line."""
    text = "\n".join(map(str, complaints))
    if text:
        pytest.fail(text, pytrace=False)


@pytest.fixture(scope="module")
def notebook(lab: Lab, notebook_name: str) -> Iterator[Notebook]:
    """The notebook, run; the tests below share the page, in their order."""
    with lab.open(notebook_name) as opened:
        opened.run_all()
        yield opened


@pytest.fixture(autouse=True)
def _no_problem(notebook: Notebook) -> Iterator[None]:
    """Whatever a test does: no error in a callback, on the page or in the log, and no request to the outside."""
    yield
    refuse(notebook.problems())


def test_all_cells_run_clean(notebook: Notebook) -> None:
    refuse(notebook.cell_problems())


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_in_pictures_is_legible(notebook: Notebook, theme: str) -> None:
    notebook.set_theme(dark=theme == "dark")
    try:
        assert notebook.screenshots(SCREENSHOTS, f"{Path(notebook.name).stem}-{theme}")
        refuse(text for i in range(len(notebook.call("cells"))) for text in faint_texts(notebook, i))
    finally:
        notebook.set_theme(dark=False)


def test_tab_reaches_every_control(notebook: Notebook) -> None:
    panels = notebook.panels()
    refuse(text for panel in panels for text in unreached_by_tab(notebook, panel))


def test_every_control_of_every_panel_works(notebook: Notebook) -> None:
    panels = [*notebook.panels("explorer"), *notebook.panels("output")]
    refuse(text for panel in panels for text in Walk(notebook, panel).run())


def test_quizzes_answer(notebook: Notebook) -> None:
    refuse(text for panel in notebook.panels("quiz") for text in unanswering_quiz(notebook, panel))
