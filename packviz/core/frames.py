"""Distinguishes the user's code from library code in a stack, so that warnings name the line that
called packviz.

The decision depends on the name of a frame's module, not on the path of its file, because a file in
a linked folder has several paths.
"""

from __future__ import annotations

import sys
import warnings
from types import FrameType

_LIBRARIES = {"packviz", "torch", "numpy", *sys.stdlib_module_names}


def package(frame: FrameType) -> str:
    """Returns the first part of the name of a frame's module, such as `torch`, or an empty string if it has no name."""
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def is_readers(frame: FrameType) -> bool:
    """Returns whether the code of a frame belongs neither to packviz nor to a library that packviz uses."""
    return package(frame) not in _LIBRARIES


def warn(message: str) -> None:
    """Issues a warning for the line that called packviz, so that Python shows the warning once for each such line."""
    frame: FrameType | None = sys._getframe(1)
    level = 2
    while frame is not None and package(frame) == "packviz":
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)
