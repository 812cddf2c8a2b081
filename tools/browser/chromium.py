"""Finds the browser that draws the charts and runs the browser tests."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from typing import Any

from playwright.sync_api import Page, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_chromium() -> str | None:
    """Returns the path of the browser, or None if there is none.

    This is the program that `PACKVIZ_CHROMIUM` names or, if that variable is not set, the first of
    `NAMES` on the PATH.
    """
    named = os.environ.get("PACKVIZ_CHROMIUM")
    return next(filter(None, map(shutil.which, [named] if named else NAMES)), None)


@contextlib.contextmanager
def new_page(**options: Any) -> Iterator[Page]:
    """Opens a page in the browser, with options such as the size of its viewport."""
    with sync_playwright() as playwright:
        flags = ["--no-sandbox"]
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=flags)
        yield browser.new_page(**options)


def in_ci() -> bool:
    """Returns whether this is a CI host, on which a missing browser is a failure."""
    return os.environ.get("CI", "").lower() not in ("", "0", "false")


def how_to_get_it() -> str:
    """Returns advice for a machine on which `find_chromium` found nothing."""
    named = os.environ.get("PACKVIZ_CHROMIUM")
    problem = f"PACKVIZ_CHROMIUM={named} is not a program" if named else "no Chromium was found"
    advice = "install it (on Debian, the chromium package), or set PACKVIZ_CHROMIUM=/path/to/it"
    return f"{problem}; {advice}"
