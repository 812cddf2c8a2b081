"""Chooses the number of test processes that run at once."""

from __future__ import annotations

import os

import psutil

# For each core: a worker with torch takes 1 GB, and one and a half with JupyterLab, kernel and browser take 2 GB each.
BYTES = 4e9


def workers() -> int:
    """Returns one per core, or as many as fit into memory; at least one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, int(psutil.virtual_memory().available / BYTES)))
