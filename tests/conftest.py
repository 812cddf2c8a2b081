"""Provides the quick profile of `make test`, the full one of `make test-full`, and the browser."""

import atexit
import gc
import os

import pytest
from hypothesis import HealthCheck, settings

PROFILE = os.environ.get("HYPOTHESIS_PROFILE") or "quick"

# There are no limits on time, because a slow machine is not a defect.
for name, examples in {"quick": 10, "full": 500}.items():
    settings.register_profile(
        name, max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
settings.load_profile(PROFILE)

if "PYTEST_XDIST_WORKER" in os.environ:
    # The last thing that a worker does when it exits: taking apart an interpreter with torch would
    # take a second.
    atexit.register(os._exit, 0)


def pytest_collection_modifyitems(items):
    """Leaves what is marked `slow` to the full profile."""
    if PROFILE != "full":
        for item in items:
            if item.get_closest_marker("slow"):
                item.add_marker(pytest.mark.skip(reason="slow: `make test-full` runs it"))


def pytest_collection_finish():
    """Excludes what is loaded by now from garbage collection, which would take half a second each
    time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(
        20_000, 20, 20
    )  # more rarely than usual, which takes a twelfth of the time of the tests


@pytest.fixture(scope="session")
def chromium():
    """Returns the browser's path. Without a browser, the test is skipped.

    It fails in CI, and if PACKVIZ_CHROMIUM is set, because its path is then wrong.
    """
    from browser.chromium import (
        find_chromium,
        how_to_get_it,
        in_ci,
    )  # in tools/, absent on a bare GPU machine

    if (found := find_chromium()) is None:
        is_wrong = in_ci() or "PACKVIZ_CHROMIUM" in os.environ
        (pytest.fail if is_wrong else pytest.skip)(how_to_get_it())
    return found


@pytest.fixture(scope="session")
def browser(chromium):
    """Starts this machine's browser."""
    from playwright.sync_api import sync_playwright  # absent on a bare GPU machine

    flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=chromium, args=flags)
