"""The command, called as a function and run as a program."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from packviz import cli
from packviz.draw.picture import show

PROGRAM = [sys.executable, "-m", "packviz"]


def run(*arguments, **kwargs):
    return subprocess.run([*PROGRAM, *arguments], capture_output=True, text=True, encoding="utf-8", **kwargs)


def test_show_prints_the_text_twin(capsys):
    assert cli.main(["show", "5", "3", "2"]) == 0
    assert capsys.readouterr() == (f"{show([5, 3, 2])}\n", "")


def test_separators_do_not_matter(capsys):
    assert cli.main(["show", "5,", "3;2"]) == 0
    assert capsys.readouterr().out == f"{show([5, 3, 2])}\n"


@pytest.mark.parametrize(("name", "text"), [("a.csv", "id,length\nx,5\ny,3\n"), ("a.json", "[5, 3]"), ("a", "5\n3\n")])
def test_show_reads_files(tmp_path, capsys, name, text):
    path = tmp_path / name
    path.write_text(text)
    assert cli.main(["show", "--file", str(path)]) == 0
    assert capsys.readouterr().out == f"{show([5, 3])}\n"


def test_show_writes_an_svg(tmp_path, capsys):
    path = tmp_path / "a picture.svg"
    assert cli.main(["show", "5", "3", "--svg", str(path)]) == 0
    assert capsys.readouterr() == ("", "")
    assert path.read_text(encoding="utf-8") == show([5, 3]).to_svg()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["show"], "give the lengths, as in `packviz show 5 3 2`, or a file with --file, not both"),
        (["show", "5", "--file", "-"], "give the lengths"),
        (["show", "5", "x"], "entry 1 is 'x'"),
        (["show", "5", "-3"], "lengths[1] is -3: every sequence needs at least one time step"),
        (["show", "5", "2.5"], "lengths[1] is 2.5: not a whole number"),
        (["show", "1e30"], "lengths[0] is 1e+30"),
        (["show", "100000000000"], "lengths[0] is 100000000000: a Layout has at most"),
        (["show", "--file", "no such.csv"], "cannot read no such.csv: No such file or directory"),
        (["show", "5", "--svg", "no/such/folder.svg"], "cannot write no/such/folder.svg: No such file or directory"),
    ],
)
def test_input_that_cannot_be_used(capsys, arguments, said):
    assert cli.main(arguments) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert error.startswith(f"packviz: {said}")
    assert error.count("\n") == 1


@pytest.mark.parametrize("arguments", [[], ["draw"], ["show", "--file"], ["show", "5", "--colour"]])
def test_a_misspelt_command_gets_the_usage(capsys, arguments):
    with pytest.raises(SystemExit, match="2"):
        cli.main(arguments)
    assert capsys.readouterr().err.startswith("usage: packviz")


def test_help_names_what_there_is(capsys):
    with pytest.raises(SystemExit, match="0"):
        cli.main(["show", "--help"])
    out = capsys.readouterr().out
    assert all(option in out for option in ("lengths", "--file", "--svg"))


def test_the_program():
    done = run("show", "5", "3", "2")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{show([5, 3, 2])}\n", "")
    failed = run("show", "0")
    assert (failed.returncode, failed.stdout) == (2, "")
    assert (
        failed.stderr == "packviz: lengths[0] is 0: every sequence needs at least one time step; drop the empty ones\n"
    )


def test_the_installed_program():
    program = Path(sys.executable).with_name("packviz")
    done = subprocess.run([program, "show", "--file", "-"], input="[5, 3]", capture_output=True, text=True, check=True)
    assert done.stdout == f"{show([5, 3])}\n"


def test_a_reader_that_stops_reading_is_no_error():
    lengths = json.dumps([16] * 16)
    program = subprocess.Popen(
        [*PROGRAM, "show", "--file", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    program.stdout.close()
    _, error = program.communicate(lengths.encode())
    assert (program.returncode, error) == (0, b"")


def test_a_terminal_without_our_dashes_still_gets_the_numbers():
    done = run("show", "5", "3", env={"PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, "")
    assert (
        done.stdout.encode("ascii").decode().replace("?", "")
        == str(show([5, 3])).replace("·", "").replace("–", "") + "\n"
    )
