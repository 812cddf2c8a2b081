"""The command, called as a function and run as a program."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from packviz import cli
from packviz.draw.picture import show

PROGRAM = [sys.executable, "-m", "packviz"]


def test_show_prints_the_text_or_writes_a_file(tmp_path, capsys):
    (tmp_path / "a.csv").write_text("id,words\nx,5\ny,3\n")
    np.save(tmp_path / "a.npy", np.array([5, 3]))
    for lengths in (["5", "3"], [f"{tmp_path}/a.csv", "--column", "words"], [f"{tmp_path}/a.npy"]):
        assert cli.main(["show", *lengths]) == 0
        assert capsys.readouterr() == (f"{show([5, 3])}\n", "")
    path = tmp_path / "a picture.svg"
    assert cli.main(["show", "5", "3", "--out", str(path)]) == 0
    assert capsys.readouterr() == ("", "")
    show([5, 3]).save(tmp_path / "expected.svg")
    assert path.read_bytes() == (tmp_path / "expected.svg").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["show", "5", "x"], "entry 1 is 'x'"),
        (["show", "-1"], "lengths[0] is -1: a sequence has at least 0 time steps"),
        (["show", "100000000000"], "lengths[0] is 100000000000: a Layout has at most"),
        (["show", "no such.csv"], "cannot read no such.csv: No such file or directory"),
        (
            ["show", "5", "--out", "no/such/folder.svg"],
            "cannot write no/such/folder.svg: there is no folder no/such",
        ),
    ],
)
def test_input_that_cannot_be_used(capsys, arguments, said):
    assert cli.main(arguments) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert error.startswith(f"packviz: {said}")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [[], ["draw"], ["show"], ["show", "5", "--colour"], ["diagnose", "x.pt"], ["patched", "x.py"]],
)
def test_a_misspelt_command_gets_the_usage(capsys, arguments):
    with pytest.raises(SystemExit, match="2"):
        cli.main(arguments)
    assert capsys.readouterr().err.startswith("usage: packviz")


@pytest.mark.parametrize("begun", ["packviz.cli", "torch.nn.modules.rnn"])
def test_ctrl_c_while_it_starts_ends_it_quietly(tmp_path, begun):
    code = f"""
import signal, sys

class Press:
    def find_spec(name, *where):
        if name == {begun!r}:
            signal.raise_signal(signal.SIGINT)

# A shell starts what runs in its background deaf to Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Press)
from packviz.__main__ import main
sys.exit(main())
"""
    command = ["study", "savings", "--quick", "--out", tmp_path / "out.json"]
    done = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "packviz: stopped\n")


def test_a_program_that_is_to_be_deaf_to_ctrl_c_is():
    """As what a shell starts in its background, and what stands behind nohup."""
    ignore = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"
    code = f"{ignore}; from packviz.__main__ import main; main();"
    code += "print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"
    done = subprocess.run([sys.executable, "-c", code, "show", "2"], capture_output=True, text=True)
    assert done.stdout.endswith("True\n"), done.stderr


def test_a_reader_that_stops_reading_is_no_error():
    lengths = json.dumps([16] * 16)
    program = subprocess.Popen(
        [*PROGRAM, "show", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    program.stdout.close()
    _, error = program.communicate(lengths.encode())
    assert (program.returncode, error) == (0, b"")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no /dev/full")
def test_a_full_disk_is_no_traceback():
    with open("/dev/full", "w") as full:
        done = subprocess.run([*PROGRAM, "show", "5"], stdout=full, stderr=subprocess.PIPE)
    message = b"packviz: the output was not fully written: No space left on device\n"
    assert (done.returncode, done.stderr) == (2, message)


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_a_terminal_without_our_dashes_still_gets_the_numbers(encoding):
    done = subprocess.run(
        [*PROGRAM, "show", "5", "3"],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={"PYTHONIOENCODING": encoding},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{show([5, 3])}\n".encode(encoding, "replace").decode(encoding)
