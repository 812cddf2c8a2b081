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
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
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


@dataclass
class Outcome:
    """The result of a stage: what it ran, its tests, and why it failed if it did."""

    stage: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    problem: str = ""

    def __str__(self) -> str:
        counts = f"{self.passed} passed, {self.failed} failed" if "pytest" in self.stage else ""
        status = f"failed: {self.problem}" if self.problem else "ok"
        return f"{self.stage:<36}{counts:<24}{status}"


def count_tests(outcome: Outcome, report: Path) -> None:
    """Adds the numbers in pytest's report. A stage without a test fails, as it checked nothing."""
    if not report.is_file():
        outcome.problem = "no test ran"
        return
    suite = ElementTree.parse(report).getroot()[0]
    outcome.failed = int(suite.attrib["failures"]) + int(suite.attrib["errors"])
    outcome.skipped = int(suite.attrib["skipped"])
    outcome.passed = int(suite.attrib["tests"]) - outcome.failed - outcome.skipped
    if suite.attrib["tests"] == "0":
        outcome.problem = "no test ran"


def run(group: str, stage: str) -> Outcome:
    """Runs one stage."""
    outcome = Outcome(stage)
    # More processes run than there are cores, so a thread must not keep a core busy while it waits.
    environment = {"OMP_WAIT_POLICY": "PASSIVE"} | os.environ
    command = [sys.executable, *stage.split()]
    report = JUNIT / f"{group}.xml"
    if "pytest" in stage:
        report.unlink(missing_ok=True)
        # xunit1, because the default form cannot hold the time and memory that a test records.
        command += [f"--junitxml={report}", "-o", "junit_family=xunit1"]
        # An idle process takes tests from another's queue, because some tests take a minute.
        command += ["-n", str(workers()), "--dist", "worksteal"]
    if group == "browser" and find_chromium() is None:
        # If PACKVIZ_CHROMIUM is set, its path is wrong, which is always an error.
        if in_ci() or os.environ.get("PACKVIZ_CHROMIUM"):
            outcome.problem = how_to_get_it()
        print(f"=== skipped {stage}: {how_to_get_it()}", flush=True)
        return outcome
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    print(f"\n=== python {stage}\n{done.stdout.decode(errors='replace')}", flush=True)
    if "pytest" in stage:
        count_tests(outcome, report)
    if done.returncode and not outcome.problem:
        outcome.problem = f"exit status {done.returncode}"
    return outcome


def run_group(group: str) -> list[Outcome]:
    """Runs the stages of a group, one after another."""
    return [run(group, stage) for stage in STAGES[group]]


def main(arguments: list[str] | None = None) -> int:
    """Runs the given groups of stages, by default all. Returns 1 if one failed, and otherwise 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    offer = ", ".join(STAGES)
    parser.add_argument("group", nargs="*", help=f"groups to run: {offer} (default: all)")
    asked = parser.parse_args(arguments).group or [*STAGES]
    if not STAGES.keys() >= {*asked}:
        parser.error(f"choose the groups from {offer}")
    JUNIT.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    with ThreadPoolExecutor(2) as pool:
        groups = [group for group in STAGES if group in asked]
        outcomes = [*chain.from_iterable(pool.map(run_group, groups))]
    print("", *outcomes, f"all: {time.perf_counter() - start:.1f} s", sep="\n")
    passed = sum(outcome.passed for outcome in outcomes)
    skipped = sum(outcome.skipped for outcome in outcomes)
    # A stage that failed without a failed test counts as one.
    failed = sum(max(outcome.failed, bool(outcome.problem)) for outcome in outcomes)
    skips = f", {skipped} skipped" if skipped else ""
    print(f"\n{passed} passed, {failed} failed{skips}", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
