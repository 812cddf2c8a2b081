"""Stores the theme of the reader's page, light or dark, and calls functions when it changes.

A widget on the page (`panels.panel.Companion`) announces the theme. Plotly charts need this,
because a style sheet cannot change their colours.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

_dark = False
# Only the latest functions are kept, because a cell that runs again registers new ones.
_callbacks: deque[Callable[[bool], None]] = deque(maxlen=64)


def is_dark() -> bool:
    """Returns whether the last announced theme is dark, or False if no theme has been announced."""
    return _dark


def set_dark(dark: bool) -> None:
    """Stores the theme and, if it has changed, calls the functions that have been registered."""
    global _dark
    if dark != _dark:
        _dark = dark
        for callback in tuple(_callbacks):
            callback(dark)


def register_callback(callback: Callable[[bool], None]) -> None:
    """Registers a function to call at every change of theme.

    The function gets True if the new theme is dark.

    Only the 64 functions that were registered last are called.
    """
    _callbacks.append(callback)
