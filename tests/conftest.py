"""The two profiles, and the browser: `make test` runs the quick profile, `make test-full` the other."""

import gc
import os

import pytest
from hypothesis import HealthCheck, settings

PROFILE = os.environ.get("HYPOTHESIS_PROFILE") or "quick"

# No deadline, and no complaint about slow drawing: a busy two-core machine is not a wrong answer.
for name, examples in {"quick": 15, "full": 500}.items():
    settings.register_profile(name, max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(PROFILE)


def pytest_collection_modifyitems(items):
    """Leaves what is marked `slow` to the full profile."""
    if PROFILE != "full":
        for item in items:
            if item.get_closest_marker("slow"):
                item.add_marker(pytest.mark.skip(reason="slow: `make test-full` runs it"))


def pytest_collection_finish():
    """What is loaded by now stays: nobody need look through torch for garbage again, half a second each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def chromium():
    """The browser's path. Skips a test if there is no browser; in CI that is a failure."""
    from browser.chromium import find_chromium, how_to_get_it, in_ci  # in tools/, which a bare machine has not

    if (found := find_chromium()) is None:
        (pytest.fail if in_ci() else pytest.skip)(how_to_get_it())
    return found
