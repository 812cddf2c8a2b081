"""How many test processes this machine carries at once."""

from __future__ import annotations

import os

import psutil

# What a worker of each lane takes together: one with a JupyterLab, a kernel and a browser, and one with torch.
BYTES = 3e9


def workers() -> int:
    """One per core, or as many as there is memory for; at least one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, int(psutil.virtual_memory().available / BYTES)))
