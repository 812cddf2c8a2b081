"""Shared by the notebook tests: the tool, and a browser."""

import os

import pytest
from nbhelp import Tool, call_tool


@pytest.fixture(scope="session")
def tool() -> Tool:
    return call_tool


@pytest.fixture(scope="session")
def chromium() -> None:
    """Skips where no browser draws charts; in CI that is a failure."""
    from browser.chromium import find_chromium, how_to_get_it  # in tools/, which nbhelp put on the path

    if find_chromium() is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(how_to_get_it())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The run of all notebooks first: it takes longer than all the others, which another worker does meanwhile."""
    items.sort(key=lambda item: item.path.stem != "test_nbval")
