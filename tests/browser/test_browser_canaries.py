"""The checks can fail: each is held against something that it must complain of, and against something good."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import browser_checks
import pytest
from browser.chromium import find_chromium
from browser.lab import Lab, Notebook, Panel, Problem, cut, tracebacks
from browser_checks import Walk, faint_texts, unanswering_quiz, unreached_by_tab
from standin import GOOD, GOOD_QUIZ, SETUP, SPOILT

CELLS = {"set-up": SETUP, "good": GOOD, "good quiz": GOOD_QUIZ, **SPOILT}


@pytest.fixture(scope="module")
def notebook(lab: Lab) -> Iterator[Notebook]:
    with lab.open(lab.write_notebook("canaries.ipynb", list(CELLS.values()))) as opened:
        opened.run_all()
        yield opened


@pytest.fixture(scope="module")
def while_running(notebook: Notebook) -> list[Problem]:
    return [*notebook.cell_problems(), *notebook.problems()]


@pytest.fixture(autouse=True)
def _drained(while_running: list[Problem], notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook.problems()
    monkeypatch.setattr(browser_checks, "PATIENCE", 1.5)


def panel(notebook: Notebook, name: str) -> Panel:
    return next(panel for panel in notebook.panels() if panel.cell == list(CELLS).index(name))


def walk(notebook: Notebook, name: str) -> list[str]:
    return Walk(notebook, panel(notebook, name)).run()


def seen(problems: list[Problem], kind: str, text: str) -> bool:
    return any(problem.kind == kind and text in problem.text for problem in problems)


def test_good_explorer_passes_everything(notebook: Notebook) -> None:
    good = panel(notebook, "good")
    walk = Walk(notebook, good)
    assert walk.run() == []
    assert unreached_by_tab(notebook, good) == []
    assert faint_texts(notebook, good.cell) == []
    assert notebook.problems() == []
    tried = {(kind, name) for kind, name, _ in walk.done}
    assert tried >= {("slider", "rows"), ("slider", "steps"), ("text", "lengths"), ("dropdown", "kind"),
                     ("checkbox", "hatch"), ("choice", "bold"), ("button", "reset"), ("play", "play")}  # fmt: skip


def test_good_quiz_passes(notebook: Notebook) -> None:
    assert unanswering_quiz(notebook, panel(notebook, "good quiz")) == []
    assert notebook.problems() == []


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("request", "https://packviz.invalid/pixel.png"),
        ("request", "https://packviz.invalid/data.json"),
        ("request", "wss://packviz.invalid/socket"),
        ("page", "canary on the page"),
        ("console", "canary on the console"),
        ("stderr", "canary on stderr"),
        ("stderr", "canary in a thread"),
        ("cell", "RuntimeError: canary in a cell"),
        ("cell", "did not run"),
    ],
)
def test_trouble_while_running_is_seen(while_running: list[Problem], kind: str, text: str) -> None:
    assert seen(while_running, kind, text), while_running


def test_raising_callback_is_seen(notebook: Notebook) -> None:
    walk(notebook, "callback raises")
    assert seen(notebook.problems(), "callback", "ZeroDivisionError")


def test_callback_raising_inside_output_is_seen(notebook: Notebook) -> None:
    walk(notebook, "callback raises inside Output")
    assert seen(notebook.problems(), "callback", "KeyError: 'swallowed'")


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("dead slider", "slider 'rows' moved by key leaves the picture as it is"),
        ("dead slider", "slider 'rows' moved by drag leaves the picture as it is"),
        ("nameless slider", "slider number 0 has no accessible name"),
        ("careless field", "takes '3, two, -1; ☠' without a word"),
        ("loses its picture", "text 'lengths' loses its picture over wrong input"),
    ],
)
def test_walk_complains(notebook: Notebook, name: str, complaint: str) -> None:
    assert any(complaint in text for text in walk(notebook, name))


def test_faint_text_is_seen(notebook: Notebook) -> None:
    assert "contrast" in faint_texts(notebook, panel(notebook, "faint text").cell)[0]


def test_control_out_of_tabs_reach_is_seen(notebook: Notebook) -> None:
    missed = unreached_by_tab(notebook, panel(notebook, "no tab"))
    assert [text.partition(": ")[2] for text in missed] == ["Tab does not come to button 'reset'"]


def test_mute_quiz_is_seen(notebook: Notebook) -> None:
    assert unanswering_quiz(notebook, panel(notebook, "mute quiz"))


def test_theme_switch_is_real_and_comes_back(notebook: Notebook) -> None:
    notebook.set_theme(dark=True)
    assert notebook.call("isDark")
    notebook.set_theme(dark=False)
    assert not notebook.call("isDark")


def test_screenshots_hold_every_cell(notebook: Notebook, tmp_path: Path) -> None:
    shots = notebook.screenshots(tmp_path, "canaries", max_height=700)
    numbers = [(int(path.stem[-5:-3]), int(path.stem[-2:])) for path in shots]
    assert {n for first, last in numbers for n in range(first, last + 1)} == set(range(len(CELLS)))


def test_cut_keeps_cells_whole_and_cuts_tall_ones() -> None:
    pieces = cut([(0, 40), (50, 90), (100, 310), (320, 330)], 100)
    assert [(p.top, p.bottom, p.first, p.last) for p in pieces] == [
        (0, 90, 0, 1), (100, 200, 2, 2), (200, 300, 2, 2), (300, 330, 2, 3),
    ]  # fmt: skip


def test_tracebacks_are_found_in_a_log() -> None:
    log = "fine\n[E 12] Exception in comm_msg\nTraceback (most recent call last):\n  boom\n"
    assert tracebacks(log)[0].startswith("[E 12]")
    assert tracebacks("fine\n") == []


def test_named_chromium_that_is_not_there_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACKVIZ_CHROMIUM", "/no/such/chromium")
    assert find_chromium() is None
