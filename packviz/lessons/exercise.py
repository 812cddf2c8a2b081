"""Exercises, and what their checks say: in words, and in a drawing of the reader's own result."""

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
    """Raised for an unsolved exercise in strict mode, where a solution must hold."""


@dataclass(frozen=True, repr=False)
class Verdict(Drawing):
    """Whether an exercise is solved, why not, and a drawing of the result.

    Attributes:
        solved: whether every case is right.
        message: what was found, and a hint if it is not right yet.
        drawings: the reader's own result, beside the target where there is one.
    """

    solved: bool
    message: str
    drawings: Sequence[Drawing] = ()

    @property
    def headline(self) -> str:
        """The message behind its mark; an exercise nobody has tried is not wrong."""
        mark = "✓" if self.solved else "○" if self.message.startswith("Not solved yet") else "✗"
        return f"{mark} {self.message}"

    def to_text(self) -> str:
        """The verdict in words."""
        return "\n\n".join([self.headline, *(drawing.to_text() for drawing in self.drawings)])

    def sheet(self, theme: str) -> Sheet:
        """The verdict over its drawings."""
        return stack(self.headline, [drawing.sheet(theme) for drawing in self.drawings], theme)


@dataclass(frozen=True, repr=False)
class Comparison(Drawing):
    """A row of the reader's entries over the row that is right; those that differ are framed."""

    title: str
    yours: Sequence[str]
    target: Sequence[str]

    def to_text(self) -> str:
        """Both rows, with a caret under every entry that differs."""
        width = max(map(len, [*self.yours, *self.target]), default=1)
        rows = [" ".join(entry.rjust(width) for entry in row) for row in (self.yours, self.target)]
        carets = " ".join(("^" if self._differs(i) else "").rjust(width) for i in range(len(self.yours)))
        lines = [self.title, f"  yours   {rows[0]}", f"          {carets}", f"  target  {rows[1]}"]
        return "\n".join(line.rstrip() for line in lines if line.strip())

    def sheet(self, theme: str) -> Sheet:
        """Both rows as cells."""
        sheet = Sheet(theme, self.to_text())
        sheet.title(self.title)
        width = 12 + 8 * max(map(len, [*self.yours, *self.target]), default=1)
        for y, name, entries in ((26, "yours", self.yours), (58, "target", self.target)):
            sheet.text(4, y + 17, name, ink=sheet.colours.muted)
            for i in range(max(len(entries), len(self.target))):  # an entry that is missing is framed, too
                x, entry = 70 + i * (width + 4), entries[i] if i < len(entries) else ""
                sheet.cell(x, y, width, 24, sheet.colours.padding, entry)
                if name == "yours" and self._differs(i):
                    sheet.box(x, y, width, 24, stroke=sheet.colours.wrong, thick=3)
        return sheet

    def _differs(self, i: int) -> bool:
        return self.yours[i : i + 1] != self.target[i : i + 1]


def entries(yours: Iterable[Any], target: Iterable[Any]) -> tuple[list[str], list[str]]:
    """Both rows of a `Comparison` of numbers or letters, tensors or not."""
    return [str(getattr(v, "item", lambda v=v: v)()) for v in yours], [str(v) for v in target]


def exercise(check: Callable[Asked, Verdict]) -> Callable[Asked, Verdict]:
    """Makes a function that judges an answer patient with a reader, and strict with a solution.

    An answer that is still a stub, a function that returns nothing, and an answer that raises an error become a verdict
    that says so. With `PACKVIZ_STRICT=1` in the environment, anything but a solved exercise raises `NotSolvedError`.
    """
    judge: Callable[..., Verdict] = check

    @functools.wraps(check)
    def checked(*args: Asked.args, **kwargs: Asked.kwargs) -> Verdict:
        cause: Exception | None = None
        try:
            if _is_stub([*args, *kwargs.values()]):
                raise _UnsolvedError("Not solved yet: replace the … with your own answer and run the cell again.")
            verdict = judge(*map(answering, args), **{name: answering(value) for name, value in kwargs.items()})
        except Exception as error:
            cause, verdict = error, Verdict(False, _what_failed(error))
        if not verdict.solved and os.environ.get("PACKVIZ_STRICT") == "1":
            raise NotSolvedError(verdict.to_text()) from cause
        return verdict

    return checked


class _UnsolvedError(Exception):
    """There is still a … in the answer, or a function of the reader's returned nothing."""


def answering(answer: Any) -> Any:
    """A function or network of the reader's, which now has to return something; any other answer as it is."""
    if not callable(answer):
        return answer

    def answered(*args: Any, **kwargs: Any) -> Any:
        result = answer(*args, **kwargs)
        if result is None or result is ...:
            raise _UnsolvedError(NOT_YET)
        return result

    return answered


def _what_failed(error: Exception) -> str:
    """Says what is missing or went wrong and, if it was in the reader's own code, in which line of the cell."""
    if isinstance(error, _UnsolvedError):
        return str(error)
    theirs = next((line for frame, line in traceback.walk_tb(error.__traceback__) if is_readers(frame)), None)
    if theirs is not None:
        return f"Your answer raised {type(error).__name__} in line {theirs}: {error}"
    return f"Your answer does not fit: {error}"


def _is_stub(answer: Any) -> bool:
    """Whether there is still a `…` in an answer."""
    return answer is ... or (isinstance(answer, (list, tuple)) and any(map(_is_stub, answer)))
