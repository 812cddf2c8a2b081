"""Provides the tool to the notebook tests, and starts the longest of them first."""

import pytest
from nbhelp import Tool, call_tool


@pytest.fixture(scope="session")
def tool() -> Tool:
    return call_tool


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the run of all notebooks first, because it takes longest."""
    items.sort(key=lambda item: item.path.stem != "test_nbval")
