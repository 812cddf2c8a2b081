"""Where the browser is: charts are drawn with it, and the browser tests drive it."""

from __future__ import annotations

import os
import shutil

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_chromium() -> str | None:
    """The path of the program that PACKVIZ_CHROMIUM names or, without it, of the first known name on PATH."""
    named = os.environ.get("PACKVIZ_CHROMIUM")
    return next(filter(None, map(shutil.which, [named] if named else NAMES)), None)


def how_to_get_it() -> str:
    """What to tell someone for whom `find_chromium` found nothing."""
    named = os.environ.get("PACKVIZ_CHROMIUM")
    problem = f"PACKVIZ_CHROMIUM={named} is no program" if named else "no Chromium found"
    return f"{problem}: install it (Debian: the package chromium) or set PACKVIZ_CHROMIUM=/path/to/it"
