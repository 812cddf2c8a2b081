"""Proves that each check can fail, by something that it must complain of and something good."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser.lab import Lab, Notebook, Panel, Problem
from browser_checks import Walk, barriers, faint_texts, unanswering_quiz, unreached_by_tab
from PIL import Image
from standin import GOOD, GOOD_QUIZ, SETUP, SPOILT

CELLS = {"set-up": SETUP, "good": GOOD, "good quiz": GOOD_QUIZ, **SPOILT}


def panel(notebook: Notebook, name: str) -> Panel:
    return next(panel for panel in notebook.panels() if panel.cell == list(CELLS).index(name))


def walk(notebook: Notebook, name: str) -> list[str]:
    return Walk(notebook, panel(notebook, name)).run()


def seen(problems: list[Problem], kind: str, text: str) -> bool:
    return any(problem.kind == kind and text in problem.text for problem in problems)


def good_panel_passes_everything(notebook: Notebook) -> None:
    good = panel(notebook, "good")
    walk = Walk(notebook, good)
    assert walk.run() == []
    assert unreached_by_tab(notebook, good) == []
    assert faint_texts(notebook, good.cell) == []
    assert notebook.problems() == []
    tried = {(kind, name) for kind, name, _ in walk.done}
    assert tried >= {("slider", "rows"), ("slider", "steps"), ("text", "lengths"), ("dropdown", "kind"),
                     ("checkbox", "hatch"), ("choice", "bold"), ("button", "reset"), ("play", "play")}  # fmt: skip


def good_quiz_passes(notebook: Notebook) -> None:
    assert unanswering_quiz(notebook, panel(notebook, "good quiz")) == []
    assert notebook.problems() == []


def raising_callback_is_seen(notebook: Notebook) -> None:
    walk(notebook, "callback raises")
    assert seen(notebook.problems(), "callback", "ZeroDivisionError")


def dead_slider_is_seen(notebook: Notebook) -> None:
    complaints = walk(notebook, "dead slider")
    for how in ("key", "drag"):
        assert any(
            f"slider 'rows' moved by {how} leaves the picture as it is" in text
            for text in complaints
        )


def nameless_slider_is_seen(notebook: Notebook) -> None:
    assert any(
        "slider number 0 has no accessible name" in text
        for text in walk(notebook, "nameless slider")
    )


def careless_field_is_seen(notebook: Notebook) -> None:
    assert any(
        "takes '3, two, -1; ☠' without a word" in text for text in walk(notebook, "careless field")
    )


def lost_picture_is_seen(notebook: Notebook) -> None:
    complaint = "text 'lengths' loses its picture over wrong input"
    assert any(complaint in text for text in walk(notebook, "loses its picture"))


def faint_text_is_seen(notebook: Notebook) -> None:
    assert "contrast" in faint_texts(notebook, panel(notebook, "faint text").cell)[0]


def barriers_are_seen(notebook: Notebook) -> None:
    cells = {f"cell {i}": name for i, name in enumerate(CELLS)}
    found = {(cells[text.partition(":")[0]], text.split()[2]) for text in barriers(notebook)}
    assert found >= {
        ("faint words", "color-contrast"),
        ("nameless slider", "aria-input-field-name"),
    }
    assert "good" not in dict(found)
    assert {text.split()[2] for text in barriers(notebook, "color-contrast")} == {"color-contrast"}


def control_out_of_tabs_reach_is_seen(notebook: Notebook) -> None:
    missed = unreached_by_tab(notebook, panel(notebook, "no tab"))
    assert [text.partition(": ")[2] for text in missed] == ["Tab does not reach button 'reset'"]


def mute_quiz_is_seen(notebook: Notebook) -> None:
    assert unanswering_quiz(notebook, panel(notebook, "mute quiz"))


def screenshots_hold_the_notebook(notebook: Notebook, folder: Path) -> None:
    shots = [Image.open(path) for path in notebook.screenshots(folder, "canaries", height=700)]
    bottom = max(end for _, end in notebook.call("cellSpans"))
    assert sum(shot.height for shot in shots) == pytest.approx(
        bottom, abs=2 * len(shots)
    )  # whole pixels
    assert all(len(shot.getcolors(100_000)) > 1 for shot in shots)


TROUBLE = [
    ("request", "https://packviz.invalid/pixel.png"),
    ("request", "wss://packviz.invalid/socket"),
    ("page", "canary on the page"),
    ("console", "canary on the console"),
    ("stderr", "canary on stderr"),
    ("cell", "RuntimeError: canary in a cell"),
    ("cell", "did not run"),
]
CANARIES = (
    good_panel_passes_everything,
    good_quiz_passes,
    raising_callback_is_seen,
    dead_slider_is_seen,
    nameless_slider_is_seen,
    careless_field_is_seen,
    lost_picture_is_seen,
    faint_text_is_seen,
    barriers_are_seen,
    control_out_of_tabs_reach_is_seen,
    mute_quiz_is_seen,
)


@pytest.mark.slow
def test_every_check_can_fail(lab: Lab, tmp_path: Path, subtests: pytest.Subtests) -> None:
    """All of them share one page, which is opened once."""
    with lab.open(lab.write_notebook("canaries.ipynb", list(CELLS.values()))) as notebook:
        notebook.run_all()
        problems = [*notebook.cell_problems(), *notebook.problems()]
        for kind, text in TROUBLE:
            with subtests.test(f"{kind}: {text}"):
                assert seen(problems, kind, text), problems
        for canary in CANARIES:
            with subtests.test(canary.__name__):
                canary(notebook)
            notebook.problems()  # those of the next are its own
        with subtests.test("screenshots hold the whole notebook"):
            screenshots_hold_the_notebook(notebook, tmp_path)
