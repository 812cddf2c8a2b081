"""Runs every check and test in stages.

`python tools/run_tests.py` runs all stages, and `python tools/run_tests.py lint unit` runs only
those of the groups `lint` and `unit`. A failed stage does not stop the others. Two groups run at a
time, because stages with kernels and browsers spend much of their time waiting. The output of a
stage is printed when the stage ends.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from workers import LANES, workers

ROOT = Path(__file__).resolve().parent.parent

STAGES: dict[str, tuple[str, ...]] = {
    "unit": ("-m pytest tests/unit tests/device",),
    "notebooks": ("-m pytest tests/notebooks",),
    "browser": ("-m pytest tests/browser",),
    "site": ("docs/build.py build/site", "-m pytest tests/site"),
    "lint": ("-m ruff check .", "-m ruff format --check .", "-m mypy"),
}
"""The arguments of Python for each stage of a group. The longest group begins first."""


def run(group: str) -> list[str]:
    """Runs the stages of a group, one after another, and returns those that failed."""
    failed = []
    for stage in STAGES[group]:
        command = [sys.executable, *stage.split()]
        if "pytest" in stage:
            # xunit1, because the default form cannot hold the time and memory that a test records.
            command += [f"--junitxml=artefacts/junit/{group}.xml", "-o", "junit_family=xunit1"]
            if workers() > 1:
                # An idle process takes tests from another's queue, because some take a minute.
                command += ["-n", str(workers()), "--dist", "worksteal"]
        # More processes run than there are cores, so no thread must keep one busy while it waits.
        env = {"OMP_WAIT_POLICY": "PASSIVE"} | os.environ
        # Hundreds of processes would compile packviz again if they could not store its bytecode.
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        start = time.perf_counter()
        done = subprocess.run(
            command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        print(f"\n=== {time.perf_counter() - start:.0f} s for python {stage}")
        print(done.stdout.decode(errors="replace"), flush=True)
        if done.returncode:
            failed.append(stage)
    return failed


def main() -> int:
    """Runs groups of stages, by default all. Returns 1 if a stage failed, and otherwise 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("groups", nargs="*", choices=[*STAGES, []], metavar="GROUP")
    groups = parser.parse_args().groups or STAGES
    with ThreadPoolExecutor(LANES) as pool:
        failed = [stage for stages in pool.map(run, groups) for stage in stages]
    for stage in failed:
        print(f"failed: python {stage}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
