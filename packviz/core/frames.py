"""Whose code a frame of the stack runs: the reader's, or a library's. Warnings name the line that called packviz.

It goes by the module, never by the file's path. The same file has several paths where a folder is a link.
"""

from __future__ import annotations

import sys
import warnings
from types import FrameType

_LIBRARIES = {"packviz", "torch", "numpy", *sys.stdlib_module_names}


def package(frame: FrameType) -> str:
    """The package that its code belongs to; empty where it is in no module."""
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def is_readers(frame: FrameType) -> bool:
    """Whether it is neither packviz's, nor of what packviz stands on."""
    return package(frame) not in _LIBRARIES


def warn(message: str) -> None:
    """Warns at the line that called packviz, so that Python's filter shows the warning once for each such line."""
    frame: FrameType | None = sys._getframe(1)
    level = 2
    while frame is not None and package(frame) == "packviz":
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)
