"""The theme of the reader's page, light or dark, and callbacks for when it changes.

A panel in the page (`explorers.panel`) announces the theme. Plotly charts follow it, because no style sheet reaches
their colours.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

_dark = False
_followers: deque[Callable[[bool], None]] = deque(maxlen=64)  # the last charts: a cell that runs again shows new ones


def is_dark() -> bool:
    """Returns whether the last announced theme is dark. At first it is light."""
    return _dark


def announce(dark: bool) -> None:
    """Calls every follower if the theme has changed."""
    global _dark
    if dark != _dark:
        _dark = dark
        for follow in tuple(_followers):
            follow(dark)


def follow(notify: Callable[[bool], None]) -> None:
    """Registers `notify` to be called with every change from now on."""
    _followers.append(notify)
