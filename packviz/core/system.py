"""Finds the name of this machine's CPU and the installed version of packviz."""

from __future__ import annotations

import functools
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


@functools.cache
def cpu_name() -> str:
    """Returns the model name of the CPU, as the system reports it."""
    cpu_info_path = Path("/proc/cpuinfo")
    for line in (
        cpu_info_path.read_text(encoding="utf-8").splitlines() if cpu_info_path.exists() else ()
    ):
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    name = None
    if sys.platform == "darwin":
        name = first_output_line("sysctl", "-n", "machdep.cpu.brand_string")
    return name or platform.processor() or platform.machine()


def first_output_line(*command: str) -> str | None:
    """Returns the first line that a command prints, or `None` if it fails or prints nothing."""
    try:
        completed = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return completed.stdout.strip().partition("\n")[0] or None


def packviz_version() -> str | None:
    """Returns the version of packviz, or `None` if packviz is not installed."""
    try:
        return version("packviz")
    except PackageNotFoundError:  # packviz runs from a checkout that is not installed
        return None
