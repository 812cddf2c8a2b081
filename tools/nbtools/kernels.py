"""A plugin of pytest for the strict run: what it adds to nbval.

A solutions notebook is held to its checks, and the memory of each notebook's kernel is noted.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import psutil
import pytest

from nbtools.alternative import HTML, is_picture

PEAK = "peak_bytes"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: Any) -> None:
    """Says whether the notebook is a solution, before nbval starts its kernel in this environment.

    A picture's HTML is left out of the comparison: it is made when a notebook is stored, and of what is compared.
    """
    for output in filter(is_picture, item.cell.get("outputs", [])):
        output.data.pop(HTML, None)
    os.environ.pop("PACKVIZ_STRICT", None)
    if item.path.parent.name == "solutions":
        os.environ["PACKVIZ_STRICT"] = "1"


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
