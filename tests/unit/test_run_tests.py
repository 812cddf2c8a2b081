"""Runs `tools/run_tests.py` on small trees, because a runner that hides a failure could hide them all."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"


class Tree:
    def __init__(self, path):
        self.path = path
        for name in ("run_tests.py", "browser/__init__.py", "browser/chromium.py"):
            self.write(f"tools/{name}", (TOOLS / name).read_text())
        self.write(
            "tools/workers.py", "def workers(): return 1\n"
        )  # more of them take longer, and do the same
        self.write("pyproject.toml", '[tool.pytest.ini_options]\nfilterwarnings = ["error"]\n')
        self.write("tests/device/test_none.py", "")  # the unit tests are in two folders

    def write(self, name, text):
        (self.path / name).parent.mkdir(parents=True, exist_ok=True)
        (self.path / name).write_text(text)

    def browser(self):
        """Returns an environment that names an existing browser."""
        self.write("browser", "#!/bin/sh\n")
        (self.path / "browser").chmod(0o755)
        return {"PACKVIZ_CHROMIUM": str(self.path / "browser")}

    def start(self, *groups, **environment):
        keep = {k: v for k, v in os.environ.items() if k not in ("CI", "PACKVIZ_CHROMIUM")}
        keep = {k: v for k, v in keep.items() if not k.startswith(("PYTEST_", "COV_"))}
        # Of pytest's plugins only xdist is needed here, and loading them is most of the time.
        keep |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "xdist.plugin"}

        def hear():
            signal.signal(
                signal.SIGINT, signal.SIG_DFL
            )  # a shell starts what runs in its background deaf to Ctrl-C

        command = [sys.executable, "tools/run_tests.py", *groups]
        return subprocess.Popen(
            command, cwd=self.path, env=keep | environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True, preexec_fn=hear,
        )  # fmt: skip

    def run(self, *groups, **environment):
        program = self.start(*groups, **environment)
        said, error = program.communicate(timeout=600)
        return program.returncode, said + error, said.rstrip().splitlines()[-1:]


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path)


GOOD = "def test_good(record_property): record_property('peak', 1)\n"  # as a test that records its memory does
BAD = "def test_bad(): assert False\n"
SKIPPED = "import pytest\n@pytest.mark.skip\ndef test_skipped(): pass\n"


def test_the_last_line_sums_all_stages_up_and_a_failure_stops_none(tree):
    tree.write("docs/build.py", "raise SystemExit(1)\n")
    tree.write("tests/site/test_a.py", GOOD)
    tree.write("tests/notebooks/test_a.py", GOOD + BAD)
    tree.write("tests/notebooks/test_b.py", "import no_such_module\n")
    tree.write("tests/browser/test_c.py", GOOD + SKIPPED)
    status, said, last = tree.run("site", "notebooks", "browser", **tree.browser())
    assert status == 1
    assert last == ["3 passed, 3 failed, 1 skipped"], said
    assert "site build               failed" in said
    assert "notebook tests           failed" in said
    assert "browser tests            ok" in said


MEETS = """
import pathlib, sys, time
def test_{mine}():
    pathlib.Path("{mine}").touch()
    while not pathlib.Path("{other}").exists():
        time.sleep(0.05)
    assert False, "met"
"""


def test_the_browser_tests_run_beside_the_others_and_each_stage_speaks_in_one_piece(tree):
    tree.write("tests/unit/test_a.py", MEETS.format(mine="one", other="two"))
    tree.write("tests/browser/test_b.py", MEETS.format(mine="two", other="one"))
    _, said, last = tree.run("unit", "browser", **tree.browser())
    assert last == ["0 passed, 2 failed"], said
    _, *pieces = said.split("=== output of ")
    assert sorted(piece.splitlines()[0] for piece in pieces) == ["browser tests", "unit tests"]
    for piece in pieces:
        mine, other = ("one", "two") if piece.startswith("unit") else ("two", "one")
        told = piece.partition("=== where the time went")[0]
        assert f"test_{mine} - AssertionError: met" in told
        assert f"test_{other}" not in told


WAITS = """
import os, pathlib, time
def test_it():
    try:
        pathlib.Path(f"pid-{os.getpid()}").touch()
        time.sleep(1000)
    finally:
        time.sleep(LINGERS)
"""


def test_ctrl_c_ends_all(tree):
    tree.write("tests/browser/test_a.py", WAITS.replace("LINGERS", "0"))
    tree.write(
        "tests/notebooks/test_b.py", WAITS.replace("LINGERS", "3")
    )  # as a server takes time to close
    program = tree.start("unit", "notebooks", "browser", **tree.browser())
    try:
        while len(at_work := list(tree.path.glob("pid-*"))) < 2:
            assert program.poll() is None
            time.sleep(0.05)
        os.killpg(program.pid, signal.SIGINT)  # as a terminal does
        said, error = program.communicate(timeout=300)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
    assert program.returncode == 130
    assert "interrupted" in error
    assert "Traceback" not in error
    assert "=== unit tests" not in said  # which were to come after one of the two
    assert not [pid for pid in at_work if psutil.pid_exists(int(pid.name.removeprefix("pid-")))]


def test_a_stage_without_a_test_fails_and_no_earlier_report_covers_a_crash(tree):
    tree.write("tests/notebooks/test_a.py", SKIPPED)
    status, said, last = tree.run("notebooks")
    assert (status, last) == (1, ["0 passed, 1 failed, 1 skipped"])
    assert "[no test ran]" in said
    tree.write("tests/notebooks/conftest.py", "import os\nos._exit(3)\n")
    status, said, last = tree.run("notebooks")
    assert (status, last) == (1, ["0 passed, 1 failed"])
    assert "[exit status 3]  [pytest wrote no report]" in said


def test_without_a_browser_it_says_how_to_get_one_and_fails_in_ci(tree):
    tree.write("tests/browser/test_b.py", GOOD)
    for environment, status in (({}, 0), ({"CI": "true"}, 1)):
        found, said, last = tree.run("browser", PATH=str(tree.path), **environment)
        assert (found, last) == (status, [f"0 passed, {status} failed"])
        assert "install it (on Debian, the chromium package), or set PACKVIZ_CHROMIUM=" in said
    status, said, _ = tree.run("browser", PACKVIZ_CHROMIUM="/no/such/browser")
    assert status == 1
    assert "PACKVIZ_CHROMIUM=/no/such/browser is not a program" in said
