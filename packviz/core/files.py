"""Writes files in the format that their suffix indicates."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path


def require_suffix(name: str, path: str | os.PathLike[str], suffixes: Iterable[str]) -> str:
    """Returns the suffix of a path, in lower case.

    Raises:
        ValueError: the suffix is not among `suffixes`. The message begins with `name`.
    """
    *others, last = suffixes = [*suffixes]
    suffix = Path(path).suffix.lower()
    if suffix not in suffixes:
        allowed = f"{', '.join(others)} or {last}" if others else last
        raise ValueError(
            f"{name} is {os.fspath(path)!r}; its name must end in {allowed}, which sets the format"
        )
    return suffix


def write(path: str | os.PathLike[str], forms: Mapping[str, Callable[[], str | bytes]]) -> None:
    """Writes a file in the format that its suffix indicates.

    Args:
        path: the path of the file.
        forms: for each suffix, a function that returns the contents of the file.

    Raises:
        ValueError: the suffix is not among `forms`.
        OSError: the file cannot be written.
    """
    contents = forms[require_suffix("path", path, forms)]()
    Path(path).write_bytes(contents if isinstance(contents, bytes) else contents.encode())
