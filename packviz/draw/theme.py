"""Stores the theme of the reader's page, light or dark, and calls functions when it changes.

A panel on the page (`explorers.panel`) announces the theme. Plotly charts follow it in this way, because a style sheet
cannot change their colours.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

_dark = False
_followers: deque[Callable[[bool], None]] = deque(maxlen=64)  # only the latest: a cell that runs again shows new charts


def is_dark() -> bool:
    """Returns whether the last announced theme is dark. Before the first announcement, the theme is light."""
    return _dark


def announce(dark: bool) -> None:
    """Stores the theme, and calls every follower if it has changed."""
    global _dark
    if dark != _dark:
        _dark = dark
        for follow in tuple(_followers):
            follow(dark)


def follow(notify: Callable[[bool], None]) -> None:
    """Registers a function to call at every change from now on. Its argument is True if the new theme is dark."""
    _followers.append(notify)
