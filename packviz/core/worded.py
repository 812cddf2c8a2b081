"""What every result has: itself in words."""

from __future__ import annotations

from abc import ABC, abstractmethod


class Worded(ABC):
    """Something that is shown by its text."""

    @abstractmethod
    def to_text(self) -> str:
        """What it is, in words."""

    def __repr__(self) -> str:
        return self.to_text()
