"""Computes how many test processes this machine can run at once."""

from __future__ import annotations

import os

import psutil

# A worker with torch takes 1 GB. One and a half per core, with JupyterLab, a kernel and a browser, take 2 GB each.
BYTES = 4e9


def workers() -> int:
    """Returns the number of processes: one per core, or fewer if memory is short, but at least one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, int(psutil.virtual_memory().available / BYTES)))
