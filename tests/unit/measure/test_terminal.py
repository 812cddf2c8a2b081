"""Stopping and resuming, and the progress bar, as `packviz study` shows them. The toy stands in for a study."""

import io
import os
import re
import signal
import subprocess
import sys

import pytest
import toys

from packviz import cli
from packviz.studies import heuristics, savings

# Stopping.


@pytest.mark.parametrize("measured", [0, 1])
def test_ctrl_c_keeps_what_was_measured(monkeypatch, capsys, tmp_path, measured):
    pressed = []

    def calls(point, device):
        if point.size == 2 + measured and not pressed:
            pressed.append(True)
            raise KeyboardInterrupt
        return toys.calls(point, device)

    path = tmp_path / "result.json"
    study = toys.study(calls)
    monkeypatch.setattr(savings, "STUDY", study)
    assert cli.main(["study", "savings", "--out", str(path)]) == 130
    out, error = capsys.readouterr()
    assert out == ""
    assert error.endswith("packviz: stopped. Run the same command again to resume.\n")
    assert len(study.load(path).values) == measured
    assert cli.main(["study", "savings", "--out", str(path)]) == 0
    assert len(study.load(path).values) == 2


@pytest.mark.skipif(os.name != "posix", reason="signals are POSIX's")
def test_ctrl_c_for_real(tmp_path):
    path = tmp_path / "result.json"
    # All points together take minutes, so on a busy machine, too, the signal arrives while some are
    # left.
    command = [sys.executable, "-m", "packviz", "study", "heuristics", "--out", str(path)]

    def hear():
        signal.signal(
            signal.SIGINT, signal.SIG_DFL
        )  # a shell starts what runs in its background deaf to Ctrl-C

    program = subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=hear
    )
    try:
        assert program.stderr.readline().endswith(": done\n")
        program.send_signal(signal.SIGINT)
        _, error = program.communicate(timeout=300)
    finally:
        program.kill()
        program.communicate()
    assert program.returncode == 130
    assert "Traceback" not in error
    assert heuristics.recorded(path).values


# The progress bar.


def test_the_bar_on_a_terminal(monkeypatch, tmp_path):
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(savings, "STUDY", toys.study())
    assert cli.main(["study", "savings", "--out", str(tmp_path / "a.json")]) == 0
    *drawn, end = terminal.getvalue().split("\n")
    assert [line.rpartition("\r")[2] for line in drawn] == ["size 2: done", "size 3: done"]
    bars = [line.strip() for line in "\r".join(drawn).split("\r") if "[" in line]
    assert all(
        re.fullmatch(r"\[(?=.{20}\])#*\.*\] +\d+%  point \d of 2 \(size [23]\)", bar)
        for bar in bars
    )
    shares = [bar.count("#") for bar in bars]
    assert shares == sorted(shares)
    assert (shares[0], shares[-1], end.strip()) == (0, 20, "")
