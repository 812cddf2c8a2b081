"""Computes how many test processes this machine can run at once."""

from __future__ import annotations

import os

import psutil

# The memory to allow for each process, with a reserve. A test process with torch takes 1 GB. A test
# process with JupyterLab, a kernel and a browser takes 2 GB. Two groups of tests run at a time,
# each with one process per core.
BYTES = 4e9


def workers() -> int:
    """Returns the number of processes: one for each core, or fewer if memory is short."""
    cores = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    in_memory = int(psutil.virtual_memory().available / BYTES)
    return max(1, min(cores, in_memory))
