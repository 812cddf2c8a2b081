"""Provides small helpers that several subpackages need, for results as text, files and warnings."""

from __future__ import annotations

import os
import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

PathLike = str | os.PathLike[str]
"""The path of a file."""


class HasText(ABC):
    """A result that can be shown as text."""

    @abstractmethod
    def to_text(self) -> str:
        """Returns the result as text."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__repr__" not in vars(cls):
            # A dataclass without a method of its own would add one.
            setattr(cls, "__repr__", HasText.__repr__)  # noqa: B010

    def __repr__(self) -> str:
        return self.to_text()


def first_line(error: BaseException) -> str:
    """Returns the first line of an exception's message, or the name of its type if it has none."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


def require_suffix(name: str, path: PathLike, allowed_suffixes: Sequence[str]) -> str:
    """Returns the suffix of a path, in lower case.

    Raises:
        ValueError: the suffix is not among `allowed_suffixes`. The message begins with `name`.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in allowed_suffixes:
        suffixes_text = " or ".join(allowed_suffixes)
        advice = f"its name must end in {suffixes_text}, which sets the format"
        raise ValueError(f"{name} is {os.fspath(path)!r}; {advice}")
    return suffix


def write_file(path: PathLike, content_makers: Mapping[str, Callable[[], str | bytes]]) -> None:
    """Writes a file in the format that its suffix indicates.

    Args:
        path: the path of the file.
        content_makers: for each suffix, a function that returns the contents of the file.

    Raises:
        ValueError: the suffix is not among `content_makers`.
        OSError: the file cannot be written.
    """
    suffix = require_suffix("path", path, [*content_makers])
    contents = content_makers[suffix]()
    if isinstance(contents, str):
        contents = contents.encode()
    Path(path).write_bytes(contents)


def is_user_code(frame: FrameType) -> bool:
    """Returns whether a frame's code belongs neither to packviz nor to a library that it uses.

    The name of the module decides, not the path of the file, because a file in a linked folder has
    several paths.
    """
    return package_name(frame) not in {"packviz", "torch", "numpy", *sys.stdlib_module_names}


def package_name(frame: FrameType) -> str:
    """Returns the first part of the name of a frame's module, such as `torch`, or `""`."""
    name = str(frame.f_globals.get("__name__", ""))
    return name.partition(".")[0]


def warn(message: str) -> None:
    """Issues a warning for the line that called packviz, once for each such line."""
    frame: FrameType | None = sys._getframe(1)
    level = 2
    while frame is not None and package_name(frame) == "packviz":
        frame = frame.f_back
        level += 1
    warnings.warn(message, stacklevel=level)
