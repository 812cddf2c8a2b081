#!/usr/bin/env python3
"""Records the times that the notebooks show.

    python tools/record.py --device cuda --minutes 9 --out DIR

This command runs `packviz study` for one study after another until the time is up. Each study
writes to its own file in DIR. To resume, run the same command again. When a study is complete, its
file is copied to `notebooks/recorded/`. On a GPU, the tests in `tests/device` come first, because
times of wrong results are worthless.

The script needs only torch and NumPy, and these tests need pytest.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STUDIES: dict[str, tuple[str, ...]] = {
    "benchmark": ("benchmark",),
    "parts": ("parts",),
    "savings": ("savings",),
    "compiled": ("compiled",),
    "methods": ("methods",),
    "untuned": ("methods", "--points", "untuned", "--budget", "1"),
    "heuristics": ("heuristics",),
    "allocator_default": ("benchmark", "--points", "allocator", "--only", "64 × 128"),
    "allocator_tuned": ("benchmark", "--points", "allocator"),
    "allocator_thp": ("benchmark", "--points", "allocator", "--only", "512 × 512"),
}
"""The arguments of `packviz study`, by name of the result file.

A GPU may be lent for only ten minutes, so the answer to the forum's question comes first: the times
of setup B at 512 steps, with which `benchmark` begins, and then their parts. `benchmark` also
measures the larger point of `allocator_tuned` with the default allocator."""

EXACT = ("-m", "pytest", "--confcutdir", "tests/device", "-m", "not slow", "-k", "cuda")
"""The arguments of Python for the tests on a GPU."""

VARIABLES = {
    "allocator_tuned": {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**31 - 1)},
    "allocator_thp": {"THP_MEM_ALLOC_ENABLE": "1"},
}
"""The environment variables that change the allocator, by study. The other studies get none, so
they measure the allocator that users have."""

WAIT = "60"
"""The longest wait for an idle machine before each measurement, in seconds."""


def record(command: list[str], variables: dict[str, str], seconds: float) -> int | None:
    """Runs a study with additional environment variables.

    Returns its exit status, or None if the time ran out first.
    """
    process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, **variables})
    try:
        return process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        process.wait(60)
        return None
    finally:
        process.kill()


def main() -> int:
    """Records until the time is up. Returns 1 if a study failed, and otherwise 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True, type=Path, help="folder for results")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:1 (default: cpu)")
    parser.add_argument("--threads", default="1", help="torch's CPU threads")
    parser.add_argument("--minutes", type=float, default=1e6, help="time limit")
    parser.add_argument("--studies", nargs="+", choices=STUDIES)
    options = parser.parse_args()
    # A shell's script lets its background processes ignore this signal, which ends each study.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    end = time.monotonic() + 60 * options.minutes
    place = options.device.partition(":")[0]
    if place == "cpu" and options.threads != "1":
        place += f"_{options.threads}"
    options.out.mkdir(parents=True, exist_ok=True)
    statuses = []
    names = options.studies or STUDIES
    if place == "cuda":  # torch has its own allocator there
        names = [name for name in names if name not in {"allocator_default", *VARIABLES}]
        tests = [sys.executable, *EXACT, "tests/device"]
        statuses.append(record(tests, {}, 60 * options.minutes))
    for name in names:
        path = options.out.resolve() / f"{name}_{place}.json"
        command = [sys.executable, "-m", "packviz", "study", *STUDIES[name], "--out", str(path)]
        command += ["--device", options.device, "--threads", options.threads, "--wait", WAIT]
        status = record(command, VARIABLES.get(name, {}), end - time.monotonic())
        statuses.append(status)
        if status == 0:
            shutil.copy(path, ROOT / "notebooks/recorded")
        outcome = {0: "complete, and copied", None: "not complete"}.get(status, "failed")
        print(f"{path.name}: {outcome}", flush=True)
    return int(any(statuses))


if __name__ == "__main__":
    sys.exit(main())
