"""What every result has: itself in words; and an exception in one line."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any


class HasText(ABC):
    """Something that is shown by its text."""

    @abstractmethod
    def to_text(self) -> str:
        """What it is, in words."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__repr__" not in vars(cls):
            cls.__repr__ = HasText.__repr__  # type: ignore[method-assign]  # its own, or a dataclass would write another

    def __repr__(self) -> str:
        return self.to_text()


def first_line(error: BaseException) -> str:
    """What an exception says in its first line; its type where it says nothing."""
    return str(error).strip().partition("\n")[0] or type(error).__name__
