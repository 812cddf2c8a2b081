"""`packviz bench` and `packviz study`, called as functions and run as a program."""

import os
import signal
import subprocess
import sys
from functools import partial

import pytest
import toys

from packviz import cli
from packviz.studies import command, forum, rules, savings

TINY = ["bench", "--quick", "--rounds", "1", "--only", "× 32"]


def outcome(arguments, capsys):
    return cli.main([*map(str, arguments)]), *capsys.readouterr()


def test_every_option_arrives(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    path, picture = tmp_path / "results.json", tmp_path / "picture.svg"
    options = ["--setup", "evenly", "A", "--threads", "2", "--methods", "packed, padded"]
    options += ["--out", path, "--plot", picture]
    assert outcome([*TINY, *options], capsys)[0] == 0
    results = forum.STUDY.load(path)
    expected = {"methods": ["packed", "padded"], "rounds": 1, "fewest": 3}
    expected["processes"] = "one for each call"
    assert results.provenance["parameters"] == expected
    assert results.provenance["threads"] == 2
    assert results.points == forum.grid(["evenly", "A"], [32], 64)
    assert "times as long as packed" in picture.read_text()
    content = path.read_text()
    assert outcome([*TINY, *options], capsys)[0] == 0  # nothing is left to measure
    assert path.read_text() == content


@pytest.mark.parametrize("quick", [False, True])
def test_the_sizes_are_the_forums_or_small_ones(monkeypatch, quick):
    asked = []
    monkeypatch.setattr(
        command, "_record_points", lambda study, points, *given, **options: asked.extend(points)
    )
    assert cli.main(["bench", *["--quick"] * quick]) == 0
    assert asked == (forum.grid(steps=range(32, 129, 32), batch_size=64) if quick else forum.grid())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--methods", "padded,split"], "--methods is 'split'; choose one of 'padded', 'packed'"),
        (["--only", "nothing"], "no point matches --only 'nothing'; a point's name looks like"),
        (["--device", "tpu"], "device is 'tpu'; choose cpu, cuda"),
        (["--out", "nowhere/a.json"], "cannot write nowhere/a.json: there is no folder nowhere"),
        (["--out", "a.csv"], "--out is 'a.csv'; its name must end in .json"),
        (["--plot", "nowhere/a.svg"], "cannot write nowhere/a.svg: there is no folder nowhere"),
        (["--plot", "a.svg", "--methods", "run,run"], "--methods is 'run,run', but --plot draws"),
        (["--plot", "a.pdf"], "--plot is 'a.pdf'; its name must end in .svg or .png"),
        (["--plot", "a.png"], "a PNG needs cairosvg"),
    ],
)
def test_bad_options(options, message, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "cairosvg", None)
    status, out, error = outcome([*TINY, *options], capsys)
    assert (status, out) == (2, "")
    assert message in error


@pytest.mark.parametrize(
    "option", ["--rounds=0", "--budget=-1", "--wait=-1", "--threads=x", "--setup=C"]
)
def test_numbers_out_of_range_are_refused(option, capsys):
    with pytest.raises(SystemExit):
        cli.main(["bench", option])
    assert option.partition("=")[0] in capsys.readouterr().err


def test_a_study_writes_its_file_and_resumes(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(savings, "STUDY", toys.study())
    path = tmp_path / "toy.json"
    study = ["study", "savings", "--out", path]
    assert outcome([*study, "--only", "size 3"], capsys)[0] == 0
    status, out, _ = outcome(study, capsys)
    assert status == 0
    assert out.index("size 3, training") < out.index("size 2, training")
    status, _, error = outcome([*study, "--rounds", "7"], capsys)
    assert status == 2
    assert f"packviz: cannot resume {path}, which was measured under different" in error
    assert outcome([*study[:3], tmp_path / "more.json", "--points", "more"], capsys)[0] == 0
    assert toys.study().load(tmp_path / "more.json").points == [toys.Point(9)]
    monkeypatch.undo()
    status, _, error = outcome([*study, "--points", "more"], capsys)
    assert status == 2
    assert "--points is 'more', but savings has one set of points" in error


def test_a_picture_that_cannot_be_written_is_no_traceback(capsys, tmp_path):
    (tmp_path / "a.svg").mkdir()
    status, out, error = outcome([*TINY, "--wait", "0", "--plot", tmp_path / "a.svg"], capsys)
    assert status == 2
    assert "× 32" in out  # the times are shown all the same
    assert f"packviz: cannot write {tmp_path / 'a.svg'}: " in error


def interrupted_once(pressed, point, device):
    if point.size == 3 and not pressed.exists():
        pressed.touch()
        raise KeyboardInterrupt
    return toys.calls(point, device)


def test_ctrl_c_keeps_what_was_measured(monkeypatch, capsys, tmp_path):
    calls = partial(interrupted_once, tmp_path / "pressed")
    monkeypatch.setattr(savings, "STUDY", toys.study(calls))
    path = tmp_path / "toy.json"
    status, out, error = outcome(["study", "savings", "--out", path], capsys)
    assert (status, out) == (130, "")
    assert "Run the same command again to resume.\n" in error
    assert len(toys.study().load(path).points) == 1
    assert outcome(["study", "savings", "--out", path], capsys)[0] == 0
    assert len(toys.study().load(path).points) == 2


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals are POSIX's")
def test_ctrl_c_for_real(tmp_path):
    path = tmp_path / "results.json"
    program = [sys.executable, "-m", "packviz", "study", "heuristics", "--out", str(path)]

    def hear():
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's background process ignores Ctrl-C

    with subprocess.Popen(program, stderr=subprocess.PIPE, text=True, preexec_fn=hear) as process:
        while not (path.exists() and path.read_bytes()):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "Traceback" not in error
    assert "Run the same command again to resume." in error
    assert rules.STUDY.load(path).points


def test_the_list_of_studies(capsys):
    status, out, _ = outcome(["study"], capsys)
    assert status == 0
    assert [line.split()[0] for line in out.splitlines()] == [*command.STUDY_DESCRIPTIONS]


@pytest.mark.parametrize("name", command.STUDY_DESCRIPTIONS)
def test_every_study_has_points_and_a_name_for_each(name):
    study = command.load_study(name)
    assert study.name == name
    for points in (study.full_points, study.quick_points):
        assert points
        assert len({str(point) for point in points}) == len(points)
