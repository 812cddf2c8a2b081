"""Defines the base class of results that can be shown as text, and shortens messages to their first line."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any


class HasText(ABC):
    """A result that can be shown as text."""

    @abstractmethod
    def to_text(self) -> str:
        """Returns the result as text."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__repr__" not in vars(cls):
            cls.__repr__ = HasText.__repr__  # type: ignore[method-assign]  # otherwise a dataclass would add its own

    def __repr__(self) -> str:
        return self.to_text()


def first_line(error: BaseException) -> str:
    """Returns the first line of an exception's message, or the name of the exception's type if there is no message."""
    return str(error).strip().partition("\n")[0] or type(error).__name__
