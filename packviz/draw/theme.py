"""Stores the theme of the reader's page, light or dark, and calls functions when it changes.

A panel in the page (`explorers.panel`) announces the theme. Plotly charts follow it, because no style sheet reaches
their colours.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

_dark = False
_followers: deque[Callable[[bool], None]] = deque(maxlen=64)  # the last charts: a cell that runs again shows new ones


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
    """Registers a function that is called at every change from now on, with whether the new theme is dark."""
    _followers.append(notify)
