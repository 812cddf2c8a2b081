"""Provides the parts that all checks of exercises share.

A check returns a verdict, with pictures of the answer.
"""

from __future__ import annotations

import functools
import os
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, ParamSpec

from packviz.core.util import is_user_code
from packviz.draw.drawing import Drawing
from packviz.draw.grid import Cell, CellTable
from packviz.draw.palette import REAL
from packviz.draw.sheet import Sheet, stack

CheckParams = ParamSpec("CheckParams")

NO_RESULT_MESSAGE = (
    "Not solved yet: your function returns nothing. Replace the … with your own code,"
    " let it end with `return`, and run the cell again."
)
STUB_MESSAGE = "Not solved yet: replace the … with your own answer and run the cell again."


class NotSolvedError(AssertionError):
    """Raised if an answer is missing, or in strict mode if an exercise is not solved.

    A check catches it for a missing answer, and returns a verdict.
    """


@dataclass(frozen=True)
class Verdict(Drawing):
    """The result of a check: whether the exercise is solved, a message, and drawings of the answer.

    Attributes:
        solved: whether the answer is right in every case.
        message: the result as text, with a hint if the answer is not right yet.
        drawings: drawings of the reader's own result, and of the target if there is one.
    """

    solved: bool
    message: str
    drawings: Sequence[Drawing] = ()

    @property
    def headline(self) -> str:
        """A mark and the message.

        The mark is ✓ for a solved exercise, ○ for a missing answer, and ✗ otherwise.
        """
        mark = "✗"
        if self.message in (STUB_MESSAGE, NO_RESULT_MESSAGE):
            mark = "○"
        if self.solved:
            mark = "✓"
        return f"{mark} {self.message}"

    def to_text(self) -> str:
        """Returns the headline, followed by the drawings as text."""
        return "\n\n".join([self.headline, *(drawing.to_text() for drawing in self.drawings)])

    def sheet(self, theme: str) -> Sheet:
        """Draws the headline, with the pictures below it."""
        return stack(self.headline, [drawing.sheet(theme) for drawing in self.drawings], theme)


class Comparison(Drawing):
    """A row of the reader's entries above a row of the right ones.

    Each entry that differs has a frame.

    Attributes:
        title: a name for the entries that are compared.
        yours: the reader's entries (numbers, letters or tensors) as strings.
        target: the right entries as strings.
    """

    def __init__(self, title: str, yours: Iterable[object], target: Iterable[object]) -> None:
        """Converts the entries to strings."""
        self.title = title
        self.yours = [_entry_text(value) for value in yours]
        self.target = [_entry_text(value) for value in target]

    @property
    def agree(self) -> bool:
        """True if both rows are equal."""
        return self.yours == self.target

    @property
    def _table(self) -> CellTable:
        your_cells = []
        target_cells = []
        for answer, right in zip_longest(self.yours, self.target, fillvalue=""):
            your_cells.append(Cell(REAL, answer, is_framed=answer != right))
            target_cells.append(Cell(REAL, right))
        column_names = [str(i) for i in range(len(your_cells))] or [""]
        return CellTable(
            self.title, ["yours", "target"], column_names, [your_cells, target_cells], axis=""
        )

    def to_text(self) -> str:
        """Returns both rows as text, with a `!` before every entry that differs."""
        title = self.title
        if not self.agree:
            title += " (! marks what differs)"
        return "\n".join([title, *self._table.lines()])

    def sheet(self, theme: str) -> Sheet:
        """Draws both rows as cells."""
        return self._table.sheet(theme, self.to_text())


def _entry_text(value: object) -> str:
    to_list = getattr(value, "tolist", None)  # of a tensor, an array or a NumPy number
    if to_list:
        value = to_list()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value)


def hint_for(answer: object, mistakes: Mapping[str, object], default_hint: str) -> str:
    """Returns the hint for the mistake that leads to this answer.

    Args:
        answer: the reader's answer.
        mistakes: for each hint, the answer that the mistake leads to.
        default_hint: the hint for all other answers.
    """
    for hint, wrong in mistakes.items():
        if wrong == answer:
            return hint
    return default_hint


def exercise(check: Callable[CheckParams, Verdict]) -> Callable[CheckParams, Verdict]:
    """Wraps a check so that it returns a verdict for every answer.

    If the answer is still a stub, returns nothing or raises an error, the verdict reports that. In
    strict mode, which the environment variable `PACKVIZ_STRICT=1` switches on, an exercise that is
    not solved raises `NotSolvedError`.
    """
    untyped_check: Callable[..., Verdict] = check

    @functools.wraps(check)
    def guarded_check(*args: CheckParams.args, **kwargs: CheckParams.kwargs) -> Verdict:
        raised_error: Exception | None = None
        try:
            answers = [require_answer(value) for value in args]
            named_answers = {name: require_answer(value) for name, value in kwargs.items()}
            verdict = untyped_check(*answers, **named_answers)
        except Exception as error:
            raised_error = error
            verdict = Verdict(False, _describe_error(error))
        if not verdict.solved and os.environ.get("PACKVIZ_STRICT") == "1":
            raise NotSolvedError(verdict.to_text()) from raised_error
        return verdict

    return guarded_check


def require_answer(answer: Any) -> Any:
    """Returns the reader's answer, unless it is still a stub.

    A function or a model is wrapped, so that a call that returns nothing raises an error.
    """
    if _is_stub(answer):
        raise NotSolvedError(STUB_MESSAGE)
    if not callable(answer):
        return answer

    def call_answer(*args: Any, **kwargs: Any) -> Any:
        result = answer(*args, **kwargs)
        if result is None or result is ...:
            raise NotSolvedError(NO_RESULT_MESSAGE)
        return result

    return call_answer


def _describe_error(error: Exception) -> str:
    """Returns what is missing or what went wrong, with the line of the reader's own code."""
    if isinstance(error, NotSolvedError):
        return str(error)
    for frame, line in traceback.walk_tb(error.__traceback__):
        if is_user_code(frame):
            return f"Your answer raised {type(error).__name__} in line {line}: {error}"
    return f"Your answer does not fit: {error}"


def _is_stub(answer: object) -> bool:
    """Returns whether an answer still contains a `…`."""
    if isinstance(answer, dict):
        answer = list(answer.values())
    return answer is ... or (isinstance(answer, (list, tuple)) and any(map(_is_stub, answer)))
