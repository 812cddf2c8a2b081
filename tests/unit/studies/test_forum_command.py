"""`packviz bench`, called as a function and run as a program."""

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from packviz import cli
from packviz.bench.study import Progress
from packviz.bench.terminal import Bar
from packviz.studies import helpers, workers
from packviz.studies.forum import network as forum
from packviz.studies.forum import results
from packviz.studies.forum import sweep as experiment
from packviz.studies.forum.points import Parameters

ROOT = Path(__file__).parents[3]
FAKE = Path(__file__).parent / "recordings" / "benchmark_fake_cuda.json"
TINY = ["bench", "--batch-size", "4", "--min", "2", "--max", "3", "--step", "1", "--rounds", "2", "--warmup", "0"]


def said(arguments, capsys):
    status = cli.main([str(argument) for argument in arguments])
    out, error = capsys.readouterr()
    return status, out, error


def test_it_measures_and_prints(capsys):
    status, out, error = said(TINY, capsys)
    assert status == 0
    assert out.startswith("Embedding(10, 16) → LSTM(16, 32) → Linear(32, 2), batch size 4, float32.\n")
    assert error.splitlines() == [
        f"setup {setup}, {steps} time steps: done" for steps in (2, 3) for setup in ("A", "B")
    ]


def test_every_option_arrives(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    path = tmp_path / "result.json"
    options = ["--setup", "B", "--setup", "evenly", "A", "--dtype", "float64", "--threads", "2", "--seed", "7"]
    status, _, _ = said([*TINY, *options, "--methods", "packed, padded", "--out", path], capsys)
    assert status == 0
    result = experiment.recorded(path)
    assert result.parameters == Parameters(
        methods=("packed", "padded"), batch_size=4, rounds=2, warmup=0, dtype="float64", threads=2, seed=7
    )
    assert result.setups == ["A", "B", "evenly"]
    assert result.steps("evenly") == [2, 3]


@pytest.mark.parametrize("quick", [False, True])
def test_defaults_are_the_forums_or_a_try(monkeypatch, quick):
    asked = []
    monkeypatch.setattr(experiment, "sweep", lambda *given, **options: asked.append(given) or iter([]))
    assert cli.main(["bench", "--rounds", "3", *["--quick"] * quick]) == 0
    ((parameters, setups, sizes),) = asked
    assert list(setups) == ["A", "B"]
    assert parameters.rounds == 3
    assert (parameters.batch_size, sizes) == ((64, (32, 64, 96, 128)) if quick else (512, tuple(range(32, 513, 32))))


def test_a_second_run_goes_on(capsys, tmp_path):
    path = tmp_path / "result.json"
    assert said([*TINY, "--setup", "A", "--out", path], capsys)[0] == 0
    first = experiment.recorded(path)
    status, out, error = said([*TINY, "--out", path], capsys)
    assert status == 0
    going_on = f"{path} holds 2 points, which stay; 2 left to measure"
    assert error.splitlines() == [going_on, "setup B, 2 time steps: done", "setup B, 3 time steps: done"]
    second = experiment.recorded(path)
    assert second.points[:2] == first.points
    assert out == f"{second}\n"
    status, out, error = said([*TINY, "--out", path], capsys)
    assert (status, out) == (0, f"{second}\n")
    assert error == f"{path} holds 4 points, which stay; nothing left to measure\n"
    assert experiment.recorded(path) == second


def test_results_do_not_mix(capsys, tmp_path):
    path = tmp_path / "result.json"
    assert said([*TINY, "--setup", "A", "--out", path], capsys)[0] == 0
    before = path.read_bytes()
    status, out, error = said([*TINY, "--seed", "1", "--out", path], capsys)
    assert (status, out) == (2, "")
    assert error.startswith(f"packviz: {path}: the results there were measured otherwise: seed 0, not 1. Take the same")
    assert path.read_bytes() == before
    assert "otherwise: --batch-size 4, not 5." in said([*TINY, "--batch-size", "5", "--out", path], capsys)[2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--device", "mps"], "device is 'mps'; choose cpu, cuda, or one of several GPUs as in cuda:1"),
        (["--min", "9", "--max", "8"], "--min is 9 and --max 8: there is nothing between them"),
        (["--batch-size", "0"], "--batch-size is 0; give a whole number of at least 1"),
        (["--threads", "9999"], "threads is 9999, more than the cores here: "),
        (
            ["--dtype", "float16", "--autocast", "bfloat16"],
            "autocast is 'bfloat16' and dtype 'float16'; autocast needs",
        ),
        (["--methods", "padded,magic"], "there is no method 'magic'; there are padded, packed"),
        (["--out", "no such folder/a.json"], "cannot write no such folder/a.json: there is no folder no such folder"),
        (["--out", __file__], f"--out is {__file__!r}; its name must end in .json"),
        (["--out", str(ROOT)], f"--out is {str(ROOT)!r}; its name must end in .json"),
        (["plot", "no.json", "--out", "a.svg"], "there is no result file 'no.json'"),
        (["plot", str(FAKE), "--out", "a.pdf"], "--out is 'a.pdf'; its name must end in .svg, .html or .png"),
        (["plot", str(FAKE), "--out", "no such folder/a.svg"], "cannot write no such folder/a.svg: there is no folder"),
    ],
)
def test_what_cannot_be_done(capsys, options, message):
    status, out, error = said(["bench", *options], capsys)
    assert (status, out) == (2, "")
    assert error.startswith(f"packviz: {message}")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    "options",
    [["--setup", "C"], ["--dtype", "int8"], ["--autocast", "float32"], ["--rounds", "many"], ["plot"], ["draw"]],
)
def test_a_misspelt_option_gets_the_usage(capsys, options):
    with pytest.raises(SystemExit, match="2"):
        cli.main(["bench", *options])
    assert capsys.readouterr().err.startswith("usage: packviz bench")


def test_the_help_names_all_methods(capsys):
    with pytest.raises(SystemExit, match="0"):
        cli.main(["bench", "--help"])
    assert f"some of {', '.join(forum.METHODS)} (default:" in " ".join(capsys.readouterr().out.split())


# Stopping.


def stop_after(monkeypatch, points):
    """Has Ctrl-C pressed in the middle of the next point."""
    real = experiment.sweep

    def sweep(*given, **options):
        for result in real(*given, **options):
            yield result
            if len(result.points) == points:
                raise KeyboardInterrupt

    monkeypatch.setattr(experiment, "sweep", sweep)


@pytest.mark.parametrize(
    ("points", "said_then"),
    [
        (0, "nothing was measured yet"),
        (1, "{path} holds 1 point. The same command again goes on from there."),
        (3, "{path} holds 3 points. The same command again goes on from there."),
    ],
)
def test_ctrl_c_keeps_what_was_measured(monkeypatch, capsys, tmp_path, points, said_then):
    path = tmp_path / "result.json"
    with monkeypatch.context() as patched:
        stop_after(patched, points)
        status, out, error = said([*TINY, "--out", path], capsys)
    assert (status, out) == (130, "")
    assert error.endswith(f"packviz: stopped; {said_then.format(path=path)}\n")
    assert len(experiment.recorded(path).points) == points
    assert said([*TINY, "--out", path], capsys)[0] == 0
    assert len(experiment.recorded(path).points) == 4


def test_ctrl_c_without_a_file_prints_what_there_is(monkeypatch, capsys):
    stop_after(monkeypatch, 1)
    status, out, error = said(TINY, capsys)
    assert status == 130
    assert "Setup A (no padding), forward pass:" in out
    assert error.endswith("packviz: stopped\n")


def test_ctrl_c_elsewhere(monkeypatch, capsys):
    def press(name):
        raise KeyboardInterrupt

    monkeypatch.setattr(experiment, "recorded", press)
    assert said(["bench", "plot", FAKE, "--out", "a.svg"], capsys) == (130, "", "packviz: stopped\n")


@pytest.mark.skipif(os.name != "posix", reason="signals are POSIX's")
def test_ctrl_c_for_real(tmp_path):
    path = tmp_path / "result.json"
    command = [sys.executable, "-m", "packviz", "bench", "--setup", "A", "--min", "1", "--max", "400", "--step", "1"]
    command += ["--batch-size", "1", "--rounds", "1", "--warmup", "0", "--out", str(path)]

    def hear():
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell starts what runs in its background deaf to Ctrl-C

    program = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=hear)
    try:
        for _ in range(3):
            assert program.stderr.readline().endswith("time steps: done\n")
        program.send_signal(signal.SIGINT)
        _, error = program.communicate(timeout=60)
    finally:
        program.kill()
        program.communicate()
    assert program.returncode == 130
    assert "Traceback" not in error
    there = int(re.search(r"holds (\d+) point", error)[1])
    assert len(experiment.recorded(path).points) == there >= 3


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_ctrl_c_within_a_finalizer_is_not_lost(monkeypatch, tmp_path):
    """Python drops what is raised there."""
    padded, sizes = forum.METHODS["padded"], []

    class Press:
        def __del__(self):
            signal.raise_signal(signal.SIGINT)

    def pressing(*given):
        sizes.append(len(given[1]))
        Press()
        return padded(*given)

    monkeypatch.setitem(forum.METHODS, "padded", pressing)
    before = signal.getsignal(signal.SIGINT)
    some = ["--setup", "A", "--min", "2", "--max", "9", "--step", "1", "--batch-size", "2", "--rounds", "3"]
    assert cli.main(["bench", *some, "--out", str(tmp_path / "a.json")]) == 130
    assert len(sizes) == 1
    assert signal.getsignal(signal.SIGINT) is before


# The progress bar.


class Terminal:
    """A terminal that keeps what it is told."""

    def __init__(self):
        self.got = []

    def isatty(self):
        return True

    def write(self, text):
        self.got.append(text)

    def flush(self):
        pass


def test_the_bar_on_a_terminal(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    assert cli.main(TINY) == 0
    bars = [text for text in terminal.got if "[" in text]
    assert all(re.fullmatch(r"\r\[#*\.*\] +\d+%  point \d of 4 \(setup [AB], \d.*", bar.rstrip()) for bar in bars)
    assert any("left" in bar for bar in bars)
    assert max(map(len, bars)) <= 80
    shares = [bar.count("#") for bar in bars]
    assert shares == sorted(shares)
    assert shares[0] < 5
    assert shares[-1] == 20
    assert all(len(bar[1 : bar.index("]")]) == 21 for bar in bars)
    screen = "".join(terminal.got)
    lines = [line.rpartition("\r")[2] for line in screen.split("\n")]
    assert lines == [f"setup {setup}, {steps} time steps: done" for steps in (2, 3) for setup in "AB"] + [""]


def test_the_bar_does_not_go_back():
    terminal = Terminal()
    bar = Bar(terminal)
    for fraction in (0.61, 0.35, 0.8):
        bar.show(Progress("setup A, 8 time steps", 0, 2, fraction, 1.0))
    assert [re.search(r"\d+%", text)[0] for text in terminal.got] == ["61%", "61%", "80%"]


# Drawing.


@pytest.mark.parametrize("name", ["a.svg", "a.SVG"])
def test_plot_as_svg(capsys, tmp_path, name):
    out = tmp_path / name
    assert said(["bench", "plot", FAKE, "--out", out], capsys) == (0, "", "")
    assert out.read_text() == experiment.recorded(FAKE).to_svg() + "\n"


def test_plot_of_two_machines(capsys, tmp_path):
    folders = [tmp_path / "here", tmp_path / "there"]
    for folder in folders:
        folder.mkdir()
        (folder / "a.json").write_bytes(FAKE.read_bytes())
    out = tmp_path / "a.svg"
    assert said(["bench", "plot", FAKE, folders[0] / "a.json", "--out", out], capsys)[0] == 0
    drawn = out.read_text()
    assert "benchmark_fake_cuda: MADE UP" in drawn
    assert "a: MADE UP" in drawn
    assert "stroke-dasharray" in drawn
    assert said(["bench", "plot", *(f / "a.json" for f in folders), "--out", out], capsys)[0] == 0
    assert f"{folders[0] / 'a.json'}: MADE UP" in out.read_text()


def test_nothing_to_draw(capsys, tmp_path):
    path = tmp_path / "empty.json"
    empty = results.Benchmark({"parameters": asdict(Parameters())}, {})
    experiment.STUDY.save(path, empty)
    status, _, error = said(["bench", "plot", path, "--out", tmp_path / "a.svg"], capsys)
    assert (status, error) == (2, "packviz: there is no point in these files to draw\n")


def test_plot_as_a_page_without_a_network(capsys, tmp_path):
    out = tmp_path / "a.html"
    assert said(["bench", "plot", FAKE, "--out", out], capsys) == (0, "", "")
    page = out.read_text(encoding="utf-8")
    assert not re.search(r"""<(script|link|img)[^>]*(src|href)\s*=\s*["']?(https?:)?//""", page)
    assert len(page) > 1e6  # plotly itself is in it
    assert "MADE UP" in page
    assert '"displayModeBar": false' in page


def test_plot_as_png(monkeypatch, capsys, tmp_path):
    """The image is kaleido's and a browser's, which need not be here."""
    kaleido = pytest.importorskip("kaleido")
    asked = []
    monkeypatch.setattr(kaleido, "calc_fig_sync", lambda figure, **given: asked.append((figure, given)) or b"\x89PNG")
    out = tmp_path / "a.png"
    assert said(["bench", "plot", FAKE, "--out", out], capsys) == (0, "", "")
    assert out.read_bytes() == b"\x89PNG"
    assert asked[0][1]["kopts"] == {"mathjax": False}  # which would come from a network
    assert sum(bool(trace.name) for trace in asked[0][0].data) == 20  # the others are outlines

    def fail(*given, **options):
        raise RuntimeError("Kaleido requires Google Chrome\nand so on")

    monkeypatch.setattr(kaleido, "calc_fig_sync", fail)
    status, _, error = said(["bench", "plot", FAKE, "--out", out], capsys)
    assert status == 2
    assert (
        "a PNG needs Chrome or Chromium, found on PATH or named by BROWSER_PATH; it failed: Kaleido requires" in error
    )
    monkeypatch.setitem(sys.modules, "kaleido", None)
    status, _, error = said(["bench", "plot", FAKE, "--out", out], capsys)
    assert (status, error[:49]) == (2, "packviz: a PNG needs kaleido: python -m pip insta")


# A bare machine.

BARE = """
import sys
class Bare:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"plotly", "ipywidgets", "IPython", "anywidget", "traitlets", "kaleido", "PIL"}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Bare())
from packviz.cli import main
sys.exit(main(sys.argv[1:]))
"""


def bare(*arguments, **options):
    """The command where nothing but torch, numpy and the standard library can be imported."""
    command = [sys.executable, "-c", BARE, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", **options)


def test_it_needs_torch_and_numpy_only(tmp_path):
    path, out = tmp_path / "a.json", tmp_path / "a.svg"
    done = bare(*TINY, "--out", path)
    assert (done.returncode, done.stderr.count("done")) == (0, 4), done.stderr
    assert bare("bench", "plot", path, "--out", out).returncode == 0
    assert out.read_text().startswith("<svg ")
    refused = bare("bench", "plot", path, "--out", tmp_path / "a.html")
    assert refused.returncode == 2
    assert refused.stderr == "packviz: .html needs plotly: python -m pip install plotly; .svg does without\n"
    done = bare("study", "helpers", "--quick", "--rounds", "1", "--only", "align", "--out", tmp_path / "b.json")
    assert done.returncode == 0, done.stderr
    assert len(helpers.recorded(tmp_path / "b.json").values) == 1


def test_without_torch_it_says_what_to_install():
    code = "import sys; sys.modules['torch'] = None" + BARE
    done = subprocess.run([sys.executable, "-c", code, *TINY], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, "packviz: this needs torch: python -m pip install torch\n")


def test_a_checkout_that_is_not_installed_will_do(tmp_path):
    code = "import importlib.metadata as m\ndef gone(name): raise m.PackageNotFoundError(name)\nm.version = gone\n"
    command = [sys.executable, "-c", code + BARE, *TINY, "--out", str(tmp_path / "a.json")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "a.json").read_text())["provenance"]["packviz"] is None
    command = [sys.executable, "-c", code + BARE, "--version"]
    assert subprocess.run(command, capture_output=True, text=True).stdout == "packviz (not installed)\n"


def test_plotting_does_not_wait_for_torch(tmp_path):
    code = f"from packviz.cli import main; main(['bench', 'plot', {str(FAKE)!r}, '--out', {str(tmp_path / 'a.svg')!r}])"
    code += "\nimport sys; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


# The program beside it.


def test_workers_without_their_file(monkeypatch, capsys):
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(SystemExit, match="2"):
        workers.main(["--lengths", "no such.csv"])
    assert "packviz.studies.workers: error: cannot read no such.csv" in capsys.readouterr().err
