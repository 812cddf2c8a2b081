"""Runs every check and test in stages, and adds up the tests.

`python tools/run_tests.py` runs all stages, and `python tools/run_tests.py lint unit` runs only
those of the groups `lint` and `unit`. A failed stage does not stop the others. Two groups run at a
time, because stages with kernels and browsers spend much of their time waiting. The output of a
stage is printed when it has ended.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from browser.chromium import find_chromium, how_to_get_it, in_ci
from workers import workers

ROOT = Path(__file__).resolve().parent.parent
JUNIT = ROOT / "artefacts" / "junit"

STAGES: dict[str, tuple[str, ...]] = {
    "browser": ("-m pytest tests/browser",),
    "lint": ("-m ruff check .", "-m ruff format --check .", "-m mypy"),
    "notebooks": ("-m pytest tests/notebooks",),
    "site": ("docs/build.py build/site", "-m pytest tests/site"),
    "unit": ("-m pytest tests/unit tests/device",),
}
"""The arguments of Python for each stage of a group. What waits begins first, and what keeps all
cores busy last."""


def summary(outcome: Counter[str]) -> str:
    """Returns the numbers of tests of an outcome in words."""
    return ", ".join(f"{outcome[kind]} {kind}" for kind in ("passed", "failed", "skipped"))


def count_tests(report: Path) -> Counter[str]:
    """Counts the tests in pytest's report. No test at all is a failure."""
    if not report.is_file():
        return Counter(failed=1)
    numbers = ElementTree.parse(report).getroot()[0].attrib
    outcome = Counter(skipped=int(numbers["skipped"]))
    outcome["failed"] = int(numbers["failures"]) + int(numbers["errors"])
    outcome["passed"] = int(numbers["tests"]) - outcome["failed"] - outcome["skipped"]
    if numbers["tests"] == "0":
        outcome["failed"] = 1
    return outcome


def run(group: str, stage: str) -> Counter[str]:
    """Runs one stage, and returns the numbers of its tests. A failed stage counts as a test."""
    if group == "browser" and find_chromium() is None:
        print(f"=== skipped {stage}: {how_to_get_it()}", flush=True)
        # If PACKVIZ_CHROMIUM is set, its path is wrong, which is always an error.
        return Counter(failed=int(in_ci() or "PACKVIZ_CHROMIUM" in os.environ))
    command = [sys.executable, *stage.split()]
    report = JUNIT / f"{group}.xml"
    if "pytest" in stage:
        report.unlink(missing_ok=True)
        # xunit1, because the default form cannot hold the time and memory that a test records.
        command += [f"--junitxml={report}", "-o", "junit_family=xunit1"]
        # An idle process takes tests from another's queue, because some tests take a minute.
        command += ["-n", str(workers()), "--dist", "worksteal"]
    start = time.perf_counter()
    done = subprocess.run(
        command,
        cwd=ROOT,
        # More processes run than there are cores, so no thread must keep one busy while it waits.
        env={"OMP_WAIT_POLICY": "PASSIVE"} | os.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    outcome = count_tests(report) if "pytest" in stage else Counter()
    if done.returncode:
        outcome["failed"] = max(outcome["failed"], 1)
    print(f"\n=== python {stage}\n{done.stdout.decode(errors='replace')}", flush=True)
    seconds = time.perf_counter() - start
    print(f"=== {seconds:.0f} s for python {stage}: {summary(outcome)}", flush=True)
    return outcome


def run_group(group: str) -> Counter[str]:
    """Runs the stages of a group, one after another."""
    return sum((run(group, stage) for stage in STAGES[group]), Counter())


def main(arguments: list[str] | None = None) -> int:
    """Runs the given groups of stages, by default all. Returns 1 if one failed, and otherwise 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("group", nargs="*", help=f"{', '.join(STAGES)} (default: all)")
    groups = parser.parse_args(arguments).group or [*STAGES]
    if not STAGES.keys() >= {*groups}:
        parser.error(f"choose groups from {', '.join(STAGES)}")
    JUNIT.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(2) as pool:
        outcome = sum(pool.map(run_group, sorted(groups)), Counter[str]())
    print(f"\n{summary(outcome)}", flush=True)
    return int(outcome["failed"] > 0)


if __name__ == "__main__":
    sys.exit(main())
