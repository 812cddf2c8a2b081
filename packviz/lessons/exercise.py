"""Provides the parts that all checks of exercises share. A check returns a verdict, with drawings of the answer."""

from __future__ import annotations

import functools
import os
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ParamSpec

from packviz.core.frames import is_readers
from packviz.draw.drawing import Drawing
from packviz.draw.sheet import Sheet, stack

Asked = ParamSpec("Asked")

NOT_YET = "Not solved yet: your function returns nothing. Replace the … with your own code and run the cell again."


class NotSolvedError(AssertionError):
    """Raised in strict mode if an exercise is not solved."""


@dataclass(frozen=True, repr=False)
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
        """A mark and the message. The mark is ✓ for a solved exercise, ○ for a missing answer, and ✗ otherwise."""
        mark = "✓" if self.solved else "○" if self.message.startswith("Not solved yet") else "✗"
        return f"{mark} {self.message}"

    def to_text(self) -> str:
        """Returns the headline, followed by the drawings as text."""
        return "\n\n".join([self.headline, *(drawing.to_text() for drawing in self.drawings)])

    def sheet(self, theme: str) -> Sheet:
        """Draws the headline, with the drawings below it."""
        return stack(self.headline, [drawing.sheet(theme) for drawing in self.drawings], theme)


@dataclass(frozen=True, repr=False)
class Comparison(Drawing):
    """A row of the reader's entries above a row of the right ones, with a frame around each entry
    that differs.

    Attributes:
        title: a name for the entries that are compared.
        yours: the reader's entries (numbers, letters or tensors), which are converted to strings.
        target: the right entries, which are converted to strings.
    """

    title: str
    yours: Any
    target: Any

    def __post_init__(self) -> None:
        """Converts the entries to strings."""
        for name in ("yours", "target"):
            entries = [str(getattr(v, "item", lambda v=v: v)()) for v in getattr(self, name)]
            object.__setattr__(self, name, entries)

    def to_text(self) -> str:
        """Returns both rows as text, with a caret below every entry of the reader's that differs."""
        width = max(map(len, [*self.yours, *self.target]), default=1)
        rows = [" ".join(entry.rjust(width) for entry in row) for row in (self.yours, self.target)]
        carets = " ".join(
            ("^" if self._differs(i) else "").rjust(width) for i in range(len(self.yours))
        )
        lines = [self.title, f"  yours   {rows[0]}", f"          {carets}", f"  target  {rows[1]}"]
        return "\n".join(line.rstrip() for line in lines if line.strip())

    def sheet(self, theme: str) -> Sheet:
        """Draws both rows as cells."""
        sheet = Sheet(theme, self.to_text())
        sheet.title(self.title)
        width = 12 + 8 * max(map(len, [*self.yours, *self.target]), default=1)
        for y, name, entries in ((26, "yours", self.yours), (58, "target", self.target)):
            sheet.text(4, y + 17, name, ink=sheet.colours.muted)
            for i in range(max(len(entries), len(self.target))):  # a missing entry is framed, too
                x, entry = 70 + i * (width + 4), entries[i] if i < len(entries) else ""
                sheet.cell(x, y, width, 24, sheet.colours.padding, entry)
                if name == "yours" and self._differs(i):
                    sheet.box(x, y, width, 24, stroke=sheet.colours.wrong, thick=3)
        return sheet

    def _differs(self, i: int) -> bool:
        return bool(self.yours[i : i + 1] != self.target[i : i + 1])


def hint_for(answer: Any, mistakes: Iterable[tuple[Any, str]], otherwise: str) -> str:
    """Returns the hint for the mistake that leads to this answer, or `otherwise` if none of the mistakes does."""
    return next((hint for wrong, hint in mistakes if wrong == answer), otherwise)


def exercise(check: Callable[Asked, Verdict]) -> Callable[Asked, Verdict]:
    """Wraps a check so that it returns a verdict for every answer.

    If the answer is still a stub, returns nothing or raises an error, the verdict says so. In
    strict mode, which the environment variable `PACKVIZ_STRICT=1` switches on, an exercise that is
    not solved raises `NotSolvedError`.
    """
    judge: Callable[..., Verdict] = check

    @functools.wraps(check)
    def checked(*args: Asked.args, **kwargs: Asked.kwargs) -> Verdict:
        cause: Exception | None = None
        try:
            if _is_stub([*args, *kwargs.values()]):
                raise _UnsolvedError(
                    "Not solved yet: replace the … with your own answer and run the cell again."
                )
            verdict = judge(
                *map(answering, args), **{name: answering(value) for name, value in kwargs.items()}
            )
        except Exception as error:
            cause, verdict = error, Verdict(False, _describe(error))
        if not verdict.solved and os.environ.get("PACKVIZ_STRICT") == "1":
            raise NotSolvedError(verdict.to_text()) from cause
        return verdict

    return checked


class _UnsolvedError(Exception):
    """Raised if the answer still contains a `…`, or if the reader's function returns nothing."""


def answering(answer: Any) -> Any:
    """Wraps the reader's function or network so that a call that returns nothing raises an error.

    An answer that is not callable is returned unchanged.
    """
    if not callable(answer):
        return answer

    def answered(*args: Any, **kwargs: Any) -> Any:
        result = answer(*args, **kwargs)
        if result is None or result is ...:
            raise _UnsolvedError(NOT_YET)
        return result

    return answered


def _describe(error: Exception) -> str:
    """Returns a text that says what is missing or what went wrong, with the line if it is in the reader's own code."""
    if isinstance(error, _UnsolvedError):
        return str(error)
    theirs = next(
        (line for frame, line in traceback.walk_tb(error.__traceback__) if is_readers(frame)), None
    )
    if theirs is not None:
        return f"Your answer raised {type(error).__name__} in line {theirs}: {error}"
    return f"Your answer does not fit: {error}"


def _is_stub(answer: Any) -> bool:
    """Returns whether an answer still contains a `…`."""
    return answer is ... or (isinstance(answer, (list, tuple)) and any(map(_is_stub, answer)))
