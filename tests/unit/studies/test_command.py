"""`packviz bench`, called as a function and run as a program."""

import json
import re
from pathlib import Path

import pytest

from packviz import cli
from packviz.studies import benchmark

FAKE = Path(__file__).parent / "recordings" / "benchmark_fake_cuda.json"
TINY = ["bench", "--quick", "--rounds", "1", "--only", "32 "]


def said(arguments, capsys):
    return cli.main([*map(str, arguments)]), *capsys.readouterr()


def test_every_option_arrives(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    path = tmp_path / "result.json"
    options = [
        "--setup",
        "B",
        "--setup",
        "evenly",
        "A",
        "--threads",
        "2",
        "--methods",
        "packed, padded",
    ]
    assert said([*TINY, *options, "--out", path], capsys)[0] == 0
    result = benchmark.recorded(path)
    assert result.provenance["parameters"] == {
        "methods": ["packed", "padded"],
        "batch_size": 64,
        "rounds": 1,
    }
    assert result.provenance["threads"] == 2
    assert result.setups == ["A", "B", "evenly"]
    assert said([*TINY, *options, "--out", path], capsys)[::2] == (
        0,
        "",
    )  # nothing is left to measure


@pytest.mark.parametrize("quick", [False, True])
def test_defaults_are_the_forums_or_a_try(monkeypatch, quick):
    asked = []

    def steps(study, points, parameters, **options):
        asked.append((points, parameters))
        return iter([])

    monkeypatch.setattr(benchmark.Study, "steps", steps)
    assert cli.main(["bench", "--rounds", "3", *["--quick"] * quick]) == 0
    ((points, parameters),) = asked
    assert {point.setup for point in points} == {"A", "B"}
    assert {point.steps for point in points} == {*range(32, 129 if quick else 513, 32)}
    assert parameters == {
        "methods": ["padded", "packed"],
        "batch_size": 64 if quick else 512,
        "rounds": 3,
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--only", "Transformer"],
            "no point matches --only 'Transformer'; a point's name looks like 'setup",
        ),
        (["--threads", "9999"], "threads is 9999"),
        (["--methods", "padded,magic"], "methods is 'magic'; choose one of 'padded', 'packed'"),
        (
            ["--quick", "--out", "no where/a.json"],
            "cannot write no where/a.json: there is no folder no where",
        ),
        (
            ["--out", __file__],
            f"--out is {__file__!r}; its name must end in .json, which sets the format\n",
        ),
        (["plot", "no.json", "--out", "a.svg"], "there is no result file 'no.json'"),
        (
            ["plot", str(FAKE), "--out", "a.pdf"],
            "--out is 'a.pdf'; its name must end in .svg, .html or .png",
        ),
        (
            ["plot", str(FAKE), "--out", "no such folder/a.svg"],
            "cannot write no such folder/a.svg: there is no folder",
        ),
    ],
)
def test_what_cannot_be_done(capsys, options, message):
    status, out, error = said(["bench", *options], capsys)
    assert (status, out) == (2, "")
    assert error.startswith(f"packviz: {message}")
    assert error.count("\n") == 1


# Drawing.


def test_plot(capsys, tmp_path):
    folders = [tmp_path / "here", tmp_path / "there"]
    for folder in folders:
        folder.mkdir()
        (folder / "a.json").write_bytes(FAKE.read_bytes())
    out = tmp_path / "a.SVG"
    assert said(["bench", "plot", FAKE, "--out", out], capsys) == (0, "", "")
    assert out.read_text() == benchmark.recorded(FAKE).to_svg()
    assert said(["bench", "plot", FAKE, folders[0] / "a.json", "--out", out], capsys)[0] == 0
    assert all(
        said in out.read_text()
        for said in ("benchmark_fake_cuda: MADE UP", "a: MADE UP", "stroke-dasharray")
    )
    assert said(["bench", "plot", *(f / "a.json" for f in folders), "--out", out], capsys)[0] == 0
    assert f"{folders[0] / 'a.json'}: MADE UP" in out.read_text()
    benchmark.STUDY.save(
        tmp_path / "a.json", benchmark.Benchmark({"parameters": benchmark.STUDY.parameters}, {})
    )
    status, _, error = said(["bench", "plot", tmp_path / "a.json", "--out", out], capsys)
    assert (status, error) == (2, "packviz: these files contain no points to plot\n")


def test_plot_as_a_page_without_a_network(capsys, tmp_path):
    out = tmp_path / "a.html"
    assert said(["bench", "plot", FAKE, "--out", out], capsys) == (0, "", "")
    page = out.read_text(encoding="utf-8")
    assert not re.search(r"""<(script|link|img)[^>]*(src|href)\s*=\s*["']?(https?:)?//""", page)
    assert len(page) > 1e6  # plotly itself is in it
    assert "MADE UP" in page


# A bare machine.

BARE = """
import importlib.metadata, json, sys
{}
class Bare:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("plotly", "ipywidgets", "IPython", "anywidget", "traitlets", "kaleido", "PIL"):
            raise ModuleNotFoundError(name, name=name)
def gone(name):
    raise importlib.metadata.PackageNotFoundError(name)
importlib.metadata.version = gone
sys.meta_path.insert(0, Bare())
from packviz.cli import main
print([main(arguments) for arguments in json.loads(sys.argv[1])])
"""


def bare(fork, *commands, before=""):
    """Runs commands in a checkout that is not installed, where only torch, NumPy and Python's own can be imported."""
    arguments = json.dumps([[str(argument) for argument in command] for command in commands])
    return fork(BARE.format(before), arguments)


def test_it_needs_torch_and_numpy_only(fork, tmp_path):
    path, out = tmp_path / "a.json", tmp_path / "a.svg"
    done = bare(fork, [*TINY, "--out", path], ["bench", "plot", path, "--out", tmp_path / "a.html"])
    assert done.stdout.endswith("[0, 2]\n"), done.stderr
    assert done.stderr.count("done") == 2
    assert done.stderr.endswith("packviz: plotly is missing; run python -m pip install plotly\n")
    assert json.loads(path.read_text())["provenance"]["packviz"] is None
    done = bare(
        fork, ["bench", "plot", path, "--out", out], TINY, before="sys.modules['torch'] = None"
    )
    assert (done.stdout, done.stderr) == (
        "[0, 2]\n",
        "packviz: torch is missing; run python -m pip install torch\n",
    )
    assert out.read_text().startswith("<svg ")
