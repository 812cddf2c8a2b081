"""Shows that each check of the browser tests can fail."""

from __future__ import annotations

import pytest
from browser.lab import Lab
from browser_checks import Walk, barriers, faint_texts, unanswering_quiz, unreached_by_tab

GOOD = """
import ipywidgets as widgets
from packviz.panels import AlignPanel
AlignPanel([9, 1])
"""
SPOILT = """
slider = widgets.IntSlider(5)
slider.observe(lambda change: 1 / 0, names="value")
text = widgets.Text("3", description="lengths")
words = '<text y="20" style="fill:#ccc">faint</text>'
drawing = f'<svg class="packviz" width="99" height="30">{words}</svg>'
picture = widgets.HTML(drawing).add_class("packviz-picture")
widgets.VBox([slider, text, picture]).add_class("packviz-panel")
"""
QUIZ = """
answers = widgets.RadioButtons(options=["64", "45"], index=None)
widgets.VBox([answers, widgets.Button(description="check")]).add_class("packviz-quiz")
"""
UNREACHED = """
from IPython.display import HTML, Javascript
HTML('<button>reached</button><button tabindex="-1">never</button>')
"""
TROUBLE = {
    "HTML('<img src=\"https://packviz.invalid/pixel.png\">')": "packviz.invalid/pixel.png",
    "Javascript('new WebSocket(\"wss://packviz.invalid/socket\")')": "request: websocket wss:",
    "Javascript('setTimeout(() => { throw new Error(\"on the page\") })')": "page: ",
    "Javascript('console.error(\"canary\")')": "console: canary",
    "import sys; print('canary', file=sys.stderr)": "stderr: canary",
    "raise RuntimeError('canary')": "RuntimeError: canary",
    "print('never')": "did not run",
}


@pytest.mark.slow
def test_every_check_can_fail(lab: Lab) -> None:
    cells = [GOOD, SPOILT, QUIZ, UNREACHED, *TROUBLE]
    with lab.open(lab.server.write_notebook("canary.ipynb", cells)) as notebook:
        notebook.run_all()
        problems = "\n".join([*notebook.call("cellProblems"), *notebook.problems()])
        for text in TROUBLE.values():
            assert text in problems
        good, spoilt, quiz, unreached = notebook.panels()
        assert Walk(notebook, good).run() == []
        assert notebook.problems() == []
        complaints = "\n".join(Walk(notebook, spoilt).run())
        assert "slider '' leaves the picture as it is" in complaints
        assert "text 'lengths' takes '3, two, -1; ☠' without a word" in complaints
        assert any("callback: ZeroDivisionError" in problem for problem in notebook.problems())
        assert "contrast" in faint_texts(notebook, spoilt.cell)[0]
        assert any("aria-input-field-name" in barrier for barrier in barriers(notebook))
        assert unanswering_quiz(notebook, quiz)
        assert "button 'never'" in unreached_by_tab(notebook, unreached)[0]
