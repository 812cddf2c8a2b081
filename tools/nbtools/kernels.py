"""A pytest plugin that extends nbval for the strict run.

A test of a solutions notebook also tests the reader's notebook, because the two differ only in the
exercises. Before each solution, the reader's cell, which contains the stub, runs in the same
kernel. Only solutions run in strict mode.
"""

from __future__ import annotations

from typing import Any

import pytest

from nbtools.alternative import HTML, has_own_html, is_picture
from nbtools.canonical import loads
from nbtools.check import exercises

READERS = "reader's "  # the prefix in the names of cells that only the reader's notebook contains


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Adds the reader's exercise cells, each before its solution."""
    result = []
    for item in items:
        reader = item.path.parent.parent / item.path.name
        if item.path.parent.name == "solutions" and reader.is_file():
            notebook = item.parent.nb
            stubs = exercises(loads(reader.read_text(encoding="utf-8")), notebook)
            stub = stubs.get(notebook.cells.index(item.cell))
            if stub is not None:
                options = {"cell_num": item.cell_num, "cell": stub, "options": item.options}
                name = READERS + item.name
                result.append(type(item).from_parent(item.parent, name=name, **options))
        result.append(item)
    items[:] = result


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: Any) -> None:
    """Excludes HTML that was added to a picture, because a running notebook has none."""
    for output in filter(is_picture, item.cell.get("outputs", [])):
        if not has_own_html(output):
            output.data.pop(HTML, None)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: Any) -> None:
    """Tells the kernel whether the cell that it runs next is a solution."""
    strict = item.path.parent.name == "solutions" and not item.name.startswith(READERS)
    change = "['PACKVIZ_STRICT'] = '1'" if strict else ".pop('PACKVIZ_STRICT', None)"
    item.parent.kernel.kc.execute(f"__import__('os').environ{change}", silent=True)
