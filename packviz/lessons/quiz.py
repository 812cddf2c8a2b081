"""Asks quiz questions, which the reader answers before seeing the right answer."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from html import escape
from pathlib import Path
from textwrap import wrap
from typing import Any

import ipywidgets as widgets
import traitlets

from packviz.core.validation import require_one_of
from packviz.draw.palette import LIVE
from packviz.panels.panel import Companion, drop_unusable_widget


class Quiz(widgets.VBox):
    """A question with a few choices, and a button that shows feedback on the reader's choice.

    Without a kernel, a quiz is shown as text: the question and the choices, without the answer.

    Attributes:
        choices: the radio buttons.
        check: the button that shows the feedback.
        feedback: the feedback on the choice.
    """

    def __init__(self, question: str, choices: Mapping[str, str], answer: str) -> None:
        """Makes a quiz.

        Args:
            question: the question.
            choices: each choice with its feedback, which explains why the choice is right, or what
                it overlooks.
            answer: the right choice.

        Raises:
            ValueError: `answer` is not among the choices.
        """
        require_one_of("answer", answer, choices)
        self.question = question
        self.answer = answer
        self._feedback_to = dict(choices)
        self.choices = widgets.RadioButtons(
            options=list(choices), value=None, layout=widgets.Layout(width="auto")
        )
        self.check = widgets.Button(description="Check my answer", disabled=True)
        self.feedback = widgets.HTML()
        self.feedback.add_class("packviz-summary")
        question_widget = widgets.HTML(
            f'<div style="{_LINE_STYLE};font-weight:bold">{escape(question)}</div>'
        )
        super().__init__([Companion(), question_widget, self.choices, self.check, self.feedback])
        self.add_class("packviz-quiz").add_class("packviz")
        self.choices.observe(self._on_choice, names="value")
        self.check.on_click(self._show_feedback)

    @property
    def solved(self) -> bool:
        """True if the reader has chosen the right answer."""
        return bool(self.choices.value == self.answer)

    def to_text(self) -> str:
        """Returns the question and its choices, without the answer."""
        choices = [f"  ( ) {choice}" for choice in self._feedback_to]
        return "\n".join([*wrap(self.question, 100), *choices])

    def __repr__(self) -> str:
        return self.to_text()

    def _on_choice(self, change: traitlets.Bunch) -> None:
        self.check.disabled = change.new is None
        self.feedback.value = ""

    def _show_feedback(self, button: widgets.Button) -> None:
        verdict = "✗ Not this one."
        colour = LIVE.wrong
        if self.solved:
            verdict = "✓ Right."
            colour = LIVE.right
        feedback_text = escape(self._feedback_to[self.choices.value])
        style = f"{_LINE_STYLE};border-left:4px solid {colour};padding:2px 10px"
        self.feedback.value = (
            f'<div style="{style}"><b style="color:{colour}">{verdict}</b> {feedback_text}</div>'
        )

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        return drop_unusable_widget(
            {**super()._repr_mimebundle_(**kwargs), "text/plain": self.to_text()}
        )


def ask(name: str) -> Quiz:
    """Returns the quiz with the given name from `quizzes.toml`.

    Raises:
        ValueError: the name is unknown.
    """
    quizzes = tomllib.loads(Path(__file__).with_name("quizzes.toml").read_text(encoding="utf-8"))
    return Quiz(**quizzes[require_one_of("name", name, quizzes)])


_LINE_STYLE = f"color:{LIVE.text};line-height:1.4;max-width:760px;white-space:normal"
