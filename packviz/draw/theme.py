"""Whether the reader's page is dark, as far as the kernel knows; and callbacks for when that changes.

A panel in the page (`explorers.panel`) announces it. Charts, whose colours no style sheet reaches, follow it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

_dark = False
_followers: deque[Callable[[bool], None]] = deque(maxlen=64)  # the last charts shown; a re-run cell shows new ones


def is_dark() -> bool:
    """What was announced last; light if nothing was."""
    return _dark


def announce(dark: bool) -> None:
    """Tells every follower, if it is news."""
    global _dark
    if dark != _dark:
        _dark = dark
        for follow in tuple(_followers):
            follow(dark)


def follow(notify: Callable[[bool], None]) -> None:
    """Calls `notify` with every change from now on."""
    _followers.append(notify)
