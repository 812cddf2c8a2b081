"""Computes how many test processes this machine can run at once for each group of tests."""

from __future__ import annotations

import os

import psutil

# The memory to allow for each process, with a reserve. A test process with torch takes 1 GB. A test
# process with JupyterLab, a kernel and a browser takes 2 GB. This is doubled, because two groups
# run at a time.
BYTES = 4e9

LANES = 2
"""How many groups of tests run at a time. They share the cores: if each group had all of them, the
processes would take turns, and the tests would need a sixth more time of the processors."""


def workers() -> int:
    """Returns the number of processes for a group: its cores, or fewer if memory is short."""
    cores = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    in_memory = int(psutil.virtual_memory().available / BYTES)
    return max(1, min(cores // LANES, in_memory))
