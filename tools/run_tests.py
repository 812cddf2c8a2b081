"""Runs every check and test in stages, reports the time of each stage, and adds up the tests.

`python tools/run_tests.py` runs all stages, and `python tools/run_tests.py lint unit` runs only
those of the groups `lint` and `unit`. A failed stage does not stop the others, so one run shows
everything that is wrong. Each stage is a process of its own, so no pipe can hide its exit status.
Stages with kernels and browsers spend much of their time waiting, so two groups run at a time. Each
stage then writes to a file in artefacts/logs, which is printed when the stage has ended.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ElementTree
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from browser.chromium import find_chromium, how_to_get_it, in_ci
from workers import workers

ROOT = Path(__file__).resolve().parent.parent
JUNIT = ROOT / "artefacts" / "junit"
LOGS = ROOT / "artefacts" / "logs"


@dataclass(frozen=True)
class Stage:
    """A command that runs as `python -m …` or as `python FILE.py`."""

    group: str
    name: str
    command: tuple[str, ...]

    @property
    def is_pytest(self) -> bool:
        return self.command[:2] == ("-m", "pytest")

    @property
    def report(self) -> Path:
        """The file to which pytest writes the results of its tests."""
        return JUNIT / f"{self.group}.xml"

    def arguments(self, workers: int) -> list[str]:
        """Returns the arguments with which Python runs the stage."""
        if not self.is_pytest:
            return [*self.command]
        # An idle worker takes tests from another's queue, because some tests take no time and
        # others a minute.
        spread = ["-n", str(workers), "--dist", "worksteal"]
        # xunit1, because the default form cannot hold the time and memory that a test records.
        return [*self.command, *spread, f"--junitxml={self.report}", "-o", "junit_family=xunit1"]


@dataclass
class Outcome:
    """The result of a stage."""

    stage: Stage
    status: str = "ok"  # or "failed", "skipped"
    seconds: float = 0.0
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    notes: list[str] = field(default_factory=list)

    def fail(self, note: str) -> None:
        self.status = "failed"
        self.notes.append(note)


STAGES = (
    Stage("browser", "browser tests", ("-m", "pytest", "tests/browser")),
    Stage("lint", "ruff check", ("-m", "ruff", "check", ".")),
    Stage("lint", "ruff format", ("-m", "ruff", "format", "--check", ".")),
    Stage("lint", "mypy", ("-m", "mypy")),
    Stage("notebooks", "notebook tests", ("-m", "pytest", "tests/notebooks")),
    Stage("site", "site build", ("docs/build.py", "build/site")),
    Stage("site", "site tests", ("-m", "pytest", "tests/site")),
    Stage("unit", "unit tests", ("-m", "pytest", "tests/unit", "tests/device")),
)
"""The stages in the order in which their groups begin: what waits begins first, and what keeps all cores busy last."""

LANES = 2
"""The number of groups that run at a time. A group begins when another one has ended."""


def without_browser(outcome: Outcome) -> Outcome:
    """Marks the browser stage as skipped because there is no browser. In CI, the stage fails instead."""
    # If PACKVIZ_CHROMIUM is set, its path is wrong, which is always an error.
    if in_ci() or os.environ.get("PACKVIZ_CHROMIUM"):
        outcome.fail(how_to_get_it())
    else:
        outcome.status = "skipped"
        outcome.notes.append(how_to_get_it())
    return outcome


def count_tests(outcome: Outcome) -> None:
    """Adds the numbers in pytest's report to the outcome. A stage without a test has checked nothing, so it fails."""
    try:
        suites = list(ElementTree.parse(outcome.stage.report).getroot().iter("testsuite"))
    except (OSError, ElementTree.ParseError):
        outcome.fail("pytest wrote no report")
        return

    def total(*attributes: str) -> int:
        return sum(int(suite.get(attribute, "0")) for suite in suites for attribute in attributes)

    outcome.failed = total("failures", "errors")
    outcome.skipped = total("skipped")
    # If a test and its teardown both fail, both count as failures of one test, so the difference
    # may be below 0.
    outcome.passed = max(0, total("tests") - outcome.failed - outcome.skipped)
    if outcome.passed + outcome.failed == 0:
        outcome.fail("no test ran")


def run(stage: Stage, *, alone: bool) -> Outcome:
    """Runs one stage. Its output appears at once if it runs `alone`, and otherwise when it has ended."""
    outcome = Outcome(stage)
    arguments = stage.arguments(workers())
    # There are more processes than cores, so a thread must not keep a core busy while it waits for
    # another thread.
    environment = {"OMP_WAIT_POLICY": "PASSIVE"} | os.environ
    # An old report must not be counted if pytest dies before it writes a new one.
    stage.report.unlink(missing_ok=True)
    print(f"\n=== {stage.name}: python {' '.join(arguments)}", flush=True)
    if stage.group == "browser":
        chromium = find_chromium()
        if chromium is None:
            return without_browser(outcome)
        environment["PACKVIZ_CHROMIUM"] = chromium
    start = time.perf_counter()
    path = LOGS / f"{stage.name.replace(' ', '-')}.txt"
    with contextlib.nullcontext() if alone else path.open("wb") as said:
        command = [sys.executable, *arguments]
        errors = None if alone else subprocess.STDOUT
        status = subprocess.run(
            command, cwd=ROOT, env=environment, stdout=said, stderr=errors, check=False
        ).returncode
    if not alone:
        print(
            f"\n=== output of {stage.name}\n{path.read_text(encoding='utf-8', errors='replace')}",
            flush=True,
        )
    outcome.seconds = time.perf_counter() - start
    if status != 0:
        outcome.fail(f"exit status {status}")
    if stage.is_pytest:
        count_tests(outcome)
    return outcome


def run_groups(groups: list[str]) -> list[Outcome]:
    """Runs some groups, `LANES` of them at a time, and the stages of each group one after another.

    The terminal sends Ctrl-C to every running stage. These stages then end, and no other stage
    begins.
    """
    interrupted = threading.Event()

    def run_group(group: str) -> list[Outcome]:
        stages = [stage for stage in STAGES if stage.group == group]
        return [run(stage, alone=len(groups) == 1) for stage in stages if not interrupted.is_set()]

    with ThreadPoolExecutor(LANES) as pool:
        tasks = [pool.submit(run_group, group) for group in groups]
        try:
            return [outcome for task in tasks for outcome in task.result()]
        except KeyboardInterrupt:
            interrupted.set()
            raise


def summary(outcomes: list[Outcome], seconds: float) -> str:
    """Returns a table with the time of each stage, followed by a line with the total numbers of
    tests.

    Args:
        outcomes: the outcomes of all stages.
        seconds: the time from the start of the first stage to the end of the last one.
    """
    lines = ["", "=== where the time went"]
    for outcome in outcomes:
        counts = (
            f"{outcome.passed} passed, {outcome.failed} failed" if outcome.stage.is_pytest else ""
        )
        line = f"{outcome.stage.name:<24} {outcome.status:<8}{outcome.seconds:>8.1f} s  {counts}"
        lines.append("  ".join([line.rstrip(), *(f"[{note}]" for note in outcome.notes)]))
    times = os.times()
    worked = times.children_user + times.children_system
    lines.append(f"{'all':<33}{seconds:>8.1f} s  {worked:.0f} s of processor time")
    passed = sum(outcome.passed for outcome in outcomes)
    # A stage that failed without a failed test counts as one, so a failed run never ends with "0
    # failed".
    failed = sum(max(outcome.failed, outcome.status == "failed") for outcome in outcomes)
    skipped = sum(outcome.skipped for outcome in outcomes)
    if any(outcome.stage.is_pytest for outcome in outcomes):
        lines += [
            "",
            f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""),
        ]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Runs the given groups of stages, by default all. Returns 1 if one failed, 130 after Ctrl-C, and otherwise 0."""
    groups = list(dict.fromkeys(stage.group for stage in STAGES))
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "group", nargs="*", help=f"groups to run: {', '.join(groups)} (default: all)"
    )
    asked = parser.parse_args(arguments).group or groups
    if unknown := [group for group in asked if group not in groups]:
        parser.error(f"no such group: {', '.join(unknown)}; choose from {', '.join(groups)}")
    for folder in (JUNIT, LOGS):
        folder.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    try:
        outcomes = run_groups([group for group in groups if group in asked])
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130
    print(summary(outcomes, time.perf_counter() - start), flush=True)
    return int(any(outcome.status == "failed" for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
