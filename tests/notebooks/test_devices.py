"""Runs pages 08 and 11 with recorded files of invented devices, and without a GPU's."""

import ast
import json
import shutil

import IPython.display
import pytest
from nbhelp import ROOT
from nbtools.source import editions

RECORDED = ROOT / "notebooks" / "recorded"
PAGES = {
    "08_benchmark": "benchmark",
    "11_should_you_pack": "heuristics",
}


def invent(kind, path, speed=20.0, packed=0.1, points=None, **place):
    """Writes a file of an invented device that is `speed` times as fast as the recorded CPU, and
    faster at packing.

    Every picture says that it is made up. The file has all points, or the first few of them.
    """

    def timing(measured):
        for name, values in measured["seconds"].items():
            factor = packed if "packed" in name else 1
            measured["seconds"][name] = [value / speed * factor for value in values]

    head, *rows = map(json.loads, (RECORDED / f"{kind}_cpu.json").read_text().splitlines())
    head["provenance"] |= {
        "device": "cuda",
        "cuda": "0.0",
        "device_name": "no such GPU",
        "fake": "a test",
    } | place
    rows = rows[:points]
    for part in [row[which] for row in rows for which in ("training", "forward")]:
        if kind == "benchmark":
            timing(part)
        else:
            part["ratio"] = [packed * ratio for ratio in part["ratio"]]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in (head, *rows)))


@pytest.fixture
def page(tmp_path, monkeypatch):
    """Runs the cells of a page that show recorded results, and returns what it drew."""
    (folder := tmp_path / "recorded").mkdir()
    monkeypatch.chdir(tmp_path)
    shown = []
    monkeypatch.setattr(IPython.display, "display", lambda *drawn: shown.extend(drawn))

    def run(name, *kinds, claims=True):
        for kind in kinds:
            shutil.copy(RECORDED / f"{kind}_cpu.json", folder)
        shutil.copy(RECORDED / "untuned_cpu.json", folder)
        names = {}
        for cell in editions(ROOT / "notebooks" / "source" / f"{name}.py")[1].notebook.cells:
            tags = cell.metadata.get("tags", [])
            if "parameters" in tags:
                break
            skipped = "live-timing" in tags or (not claims and "claims" in tags)
            if cell.cell_type == "code" and not skipped:
                shown.append(execute(cell.source, names))
        return [str(drawn) for drawn in shown if drawn is not None]

    run.folder = folder
    return run


def execute(code, names):
    """Runs a cell, and returns the value of its last line."""
    *body, last = ast.parse(code).body
    if not isinstance(last, ast.Expr):
        body.append(last)
    exec(compile(ast.Module(body, []), "<cell>", "exec"), names)
    return (
        eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)
        if isinstance(last, ast.Expr)
        else None
    )


def of(shown, *words):
    """Returns the drawings that contain all these words."""
    return [drawn for drawn in shown if all(word in drawn for word in words)]


@pytest.mark.parametrize(("name", "kind"), PAGES.items())
def test_a_gpu_stands_beside_the_cpu_and_the_claims_hold(page, capsys, name, kind):
    invent(kind, page.folder / f"{kind}_cuda.json")
    shown = page(name, kind, "benchmark")
    assert "no GPU results have been recorded" not in capsys.readouterr().out
    if kind == "benchmark":
        assert of(shown, "\nCPU: ", "\nGPU: MADE UP, no machine was timed")
    else:
        both = of(shown, "CPU: ", "GPU: MADE UP, no machine was timed")
        assert of(both, "CPU: rule of thumb", "GPU: always pack")
        assert of(shown, "GRU, CPU: packing is faster")
        assert of(shown, "GRU, GPU: packing is faster", "MADE UP")


@pytest.mark.parametrize(("name", "kind"), PAGES.items())
@pytest.mark.parametrize("points", [1, pytest.param(60, marks=pytest.mark.slow)])
def test_a_gpu_that_was_measured_in_part(page, name, kind, points):
    """Points that were not measured are left out."""
    invent(kind, page.folder / f"{kind}_cuda.json", points=points)
    shown = page(name, kind, "benchmark")
    assert of(shown, "GPU", "MADE UP")


def test_more_threads_and_a_second_gpu_stand_there_too(page):
    place = {"device": "cpu", "device_name": "an abacus", "threads": 4}
    invent("benchmark", page.folder / "benchmark_cpu_4.json", 2.0, 1.0, **place)
    invent("benchmark", page.folder / "benchmark_cuda.json")
    shown = page("08_benchmark", "benchmark")
    assert of(shown, "an abacus", "no such GPU", "4 threads")
    invent("benchmark", page.folder / "benchmark_other.json", device_name="another GPU")
    shown = page("08_benchmark")
    assert of(shown, "an abacus", "no such GPU", "another GPU")


@pytest.mark.parametrize(("name", "kind"), [*PAGES.items()][1:])  # nbval runs both
def test_a_page_without_a_gpu_says_so_on_its_first_screen(page, capsys, name, kind):
    shown = page(name, kind, "benchmark", claims=False)
    assert capsys.readouterr().out.startswith(
        "All times on this page were measured on a CPU, because no GPU results have been recorded "
        "yet."
    )
    assert not of(shown, "GPU: ")
