"""Shared by the notebook tests: the tool."""

import pytest
from nbhelp import Tool, call_tool


@pytest.fixture(scope="session")
def tool() -> Tool:
    return call_tool


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The run of all notebooks first: it takes longer than all the others, which another worker does meanwhile."""
    items.sort(key=lambda item: item.path.stem != "test_nbval")
