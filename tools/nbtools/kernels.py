"""A plugin of pytest for the strict run: what it adds to nbval.

A solutions notebook is run for the reader's notebook as well, because they share every cell but the exercises: in front
of each solution, the reader's cell runs in the same kernel, with the stub. The checks are strict for solutions alone.
The memory of each notebook's kernel is noted.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import psutil
import pytest

from nbtools.alternative import HTML, is_picture
from nbtools.canonical import loads
from nbtools.check import exercises

PEAK = "peak_bytes"
READERS = "reader's "  # begins the name of a cell that stands in the reader's notebook alone


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Puts the reader's exercises in front of their solutions."""
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
    """Leaves a picture's HTML out of the comparison: it is made when a notebook is stored, and of what is compared."""
    for output in filter(is_picture, item.cell.get("outputs", [])):
        output.data.pop(HTML, None)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: Any) -> None:
    """Tells the kernel whether what it runs next is a solution."""
    strict = item.path.parent.name == "solutions" and not item.name.startswith(READERS)
    change = "['PACKVIZ_STRICT'] = '1'" if strict else ".pop('PACKVIZ_STRICT', None)"
    item.parent.kernel.kc.execute(f"__import__('os').environ{change}", silent=True)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: Any, nextitem: Any) -> None:
    """Notes the peak memory with a notebook's last cell, before nbval ends the kernel."""
    kernel = item.parent.kernel
    if (nextitem is None or nextitem.parent is not item.parent) and kernel and kernel.is_alive():
        item.user_properties.append((PEAK, peak(kernel.km.provisioner.pid)))


def peak(pid: int) -> int:
    """Gives the most bytes that a process has held; where the system does not note that, what it holds now."""
    status = Path(f"/proc/{pid}/status")
    found = re.search(r"VmHWM:\s*(\d+) kB", status.read_text()) if status.exists() else None
    return int(found[1]) * 1024 if found else int(psutil.Process(pid).memory_info().rss)
