"""A pytest plugin that extends nbval for the strict run.

A test of a solutions notebook also tests the reader's notebook, because the two differ only in the
exercises. Before each solution, the reader's cell, which contains the stub, runs in the same
kernel. Only solutions run in strict mode. The plugin also records the peak memory of each
notebook's kernel.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import psutil
import pytest

from nbtools.alternative import HTML, has_own_html, is_picture
from nbtools.canonical import loads
from nbtools.check import exercises

PEAK = "peak_bytes"
READERS = "reader's "  # the prefix in the names of cells that only the reader's notebook contains


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Adds the reader's exercise cells, each before its solution."""
    found = [one for item in items for one in (_readers_cell(item), item) if one is not None]
    items[:] = found


def _readers_cell(item: Any) -> Any | None:
    readers = item.path.parent.parent / item.path.name
    if item.path.parent.name != "solutions" or not readers.is_file():
        return None
    solution = item.parent.nb.cells.index(item.cell)
    cell = exercises(loads(readers.read_text(encoding="utf-8")), item.parent.nb).get(solution)
    name = READERS + item.name
    return cell and type(item).from_parent(
        item.parent, name=name, cell_num=item.cell_num, cell=cell, options=item.options
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: Any) -> None:
    """Excludes HTML that was added to a picture, because a running notebook has none (see `alternative`)."""
    for output in filter(is_picture, item.cell.get("outputs", [])):
        if not has_own_html(output):
            output.data.pop(HTML, None)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: Any) -> None:
    """Tells the kernel whether the cell that it runs next is a solution."""
    strict = item.path.parent.name == "solutions" and not item.name.startswith(READERS)
    change = "['PACKVIZ_STRICT'] = '1'" if strict else ".pop('PACKVIZ_STRICT', None)"
    item.parent.kernel.kc.execute(f"__import__('os').environ{change}", silent=True)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: Any, nextitem: Any) -> None:
    """Records the peak memory after a notebook's last cell, before nbval ends the kernel."""
    kernel = item.parent.kernel
    if (nextitem is None or nextitem.parent is not item.parent) and kernel and kernel.is_alive():
        item.user_properties.append((PEAK, peak(kernel.km.provisioner.pid)))


def peak(pid: int) -> int:
    """Returns the peak memory of a process in bytes or, if the system does not record it, its current memory."""
    status = Path(f"/proc/{pid}/status")
    found = re.search(r"VmHWM:\s*(\d+) kB", status.read_text()) if status.exists() else None
    return int(found[1]) * 1024 if found else int(psutil.Process(pid).memory_info().rss)
