"""The two profiles: `make test` runs the quick one, `make test-full` the other."""

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
