"""Shared by the notebook tests: the tool as a command, small sources, and a table of what each notebook takes."""

import os

import pytest
from nbhelp import Tool, call_tool


@pytest.fixture(scope="session")
def tool() -> Tool:
    return call_tool


@pytest.fixture(scope="session")
def chromium() -> None:
    """Skips where no browser draws charts; in CI that is a failure."""
    from browser.chromium import find_chromium, how_to_get_it  # in tools/, which nbhelp put on the path

    if find_chromium() is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(how_to_get_it())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints what test_papermill.py measured, also when xdist ran it elsewhere."""
    rows = [
        dict(report.user_properties)
        for outcome in ("passed", "failed")
        for report in terminalreporter.stats.get(outcome, [])
        if report.when == "call" and "peak_mb" in dict(report.user_properties)
    ]
    if rows:
        terminalreporter.section("notebooks run by papermill")
        for row in sorted(rows, key=lambda row: str(row["notebook"])):
            terminalreporter.write_line(f"{row['notebook']:<60}{row['seconds']:>7} s{row['peak_mb']:>7} MB")
