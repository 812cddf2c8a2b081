"""Run every check and test stage by stage, say where the time went, and sum the tests up.

`python tools/run_tests.py` runs all stages; `… lint unit` only those named. A failed stage does not stop the
rest: one run shows everything that is wrong. Each stage is its own process, so there is no pipe to lose an
exit status in.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from pathlib import Path

from browser.chromium import find_chromium, how_to_get_it

ROOT = Path(__file__).resolve().parent.parent
JUNIT = ROOT / "artefacts" / "junit"


@dataclass(frozen=True)
class Stage:
    """One command, run as `python -m …` or `python tools/….py`."""

    group: str
    name: str
    command: tuple[str, ...]

    @property
    def is_pytest(self) -> bool:
        return self.command[:2] == ("-m", "pytest")


@dataclass
class Outcome:
    """What came of a stage."""

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
    Stage("lint", "ruff check", ("-m", "ruff", "check", ".")),
    Stage("lint", "ruff format", ("-m", "ruff", "format", "--check", ".")),
    Stage("lint", "mypy", ("-m", "mypy")),
    Stage("form", "notebooks are canonical", ("tools/notebooks.py", "check")),
    Stage("unit", "unit tests", ("-m", "pytest", "tests/unit", "-n", "2")),
    Stage("notebooks", "notebook tests", ("-m", "pytest", "tests/notebooks", "-n", "2")),
    Stage("browser", "browser tests", ("-m", "pytest", "tests/browser", "-n", "2", "--dist", "loadgroup")),
)


def in_ci() -> bool:
    """Whether a missing browser is a failure: CI hosts set `CI` to something."""
    return os.environ.get("CI", "").lower() not in ("", "0", "false")


def without_browser(outcome: Outcome) -> Outcome:
    """The outcome of the browser stage where nothing can be driven: skipped at a desk, failed in CI."""
    # A path that someone gave and that is wrong is an error anywhere.
    if in_ci() or os.environ.get("PACKVIZ_CHROMIUM"):
        outcome.fail(how_to_get_it())
    else:
        outcome.status = "skipped"
        outcome.notes.append(how_to_get_it())
    return outcome


def count_tests(outcome: Outcome, report: Path) -> None:
    """Add up pytest's own report. A stage that ran no test has shown nothing, so it fails."""
    try:
        suites = list(ElementTree.parse(report).getroot().iter("testsuite"))
    except (OSError, ElementTree.ParseError):
        outcome.fail("pytest wrote no report")
        return

    def total(*attributes: str) -> int:
        return sum(int(suite.get(attribute, "0")) for suite in suites for attribute in attributes)

    outcome.failed = total("failures", "errors")
    outcome.skipped = total("skipped")
    # A test that fails and whose teardown fails too stands there twice: hence the floor.
    outcome.passed = max(0, total("tests") - outcome.failed - outcome.skipped)
    if outcome.passed + outcome.failed == 0:
        outcome.fail("no test ran")


def run(stage: Stage) -> Outcome:
    """Run one stage, its output straight to the terminal."""
    outcome = Outcome(stage)
    command = [sys.executable, *stage.command]
    environment = dict(os.environ)
    print(f"\n=== {stage.name}: python {' '.join(stage.command)}", flush=True)
    if stage.group == "browser":
        chromium = find_chromium()
        if chromium is None:
            return without_browser(outcome)
        environment["PACKVIZ_CHROMIUM"] = chromium
    report = JUNIT / f"{stage.group}.xml"
    if stage.is_pytest:
        # Yesterday's report must not be counted when today's pytest dies before it writes one.
        report.unlink(missing_ok=True)
        # xunit1, because the default form has no place for what a test records of its time and memory.
        command += [f"--junitxml={report}", "-o", "junit_family=xunit1"]
    start = time.perf_counter()
    status = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
    outcome.seconds = time.perf_counter() - start
    if status != 0:
        outcome.fail(f"exit status {status}")
    if stage.is_pytest:
        count_tests(outcome, report)
    return outcome


def summary(outcomes: list[Outcome]) -> str:
    """A line per stage with its time, then the total of the tests, alone on the last line."""
    lines = ["", "=== where the time went"]
    for outcome in outcomes:
        counts = f"{outcome.passed} passed, {outcome.failed} failed" if outcome.stage.is_pytest else ""
        line = f"{outcome.stage.name:<24} {outcome.status:<8}{outcome.seconds:>8.1f} s  {counts}"
        lines.append("  ".join([line.rstrip(), *(f"[{note}]" for note in outcome.notes)]))
    lines.append(f"{'all':<33}{sum(outcome.seconds for outcome in outcomes):>8.1f} s")
    passed = sum(outcome.passed for outcome in outcomes)
    # A stage that failed without a failed test counts as one: "0 failed" must never end a red run.
    failed = sum(max(outcome.failed, outcome.status == "failed") for outcome in outcomes)
    skipped = sum(outcome.skipped for outcome in outcomes)
    if any(outcome.stage.is_pytest for outcome in outcomes):
        lines += ["", f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else "")]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Run the stages asked for, all by default; 1 if any failed."""
    groups = list(dict.fromkeys(stage.group for stage in STAGES))
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("group", nargs="*", help=f"which to run, of: {', '.join(groups)} (default: all)")
    asked = parser.parse_args(arguments).group or groups
    if unknown := [group for group in asked if group not in groups]:
        parser.error(f"no such group: {', '.join(unknown)}; there are {', '.join(groups)}")
    JUNIT.mkdir(parents=True, exist_ok=True)
    outcomes = [run(stage) for stage in STAGES if stage.group in asked]
    print(summary(outcomes), flush=True)
    return int(any(outcome.status == "failed" for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
