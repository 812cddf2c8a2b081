"""Papermill runs every notebook headless, with other parameters; time and peak memory are printed at the end."""

import ast
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from nbhelp import ROOT, TOOL, Tool, write
from nbtools.canonical import loads, tags
from nbtools.check import stored_notebooks

# Other values than the notebook's own, for every notebook that has parameters.
PARAMETERS: dict[str, dict[str, object]] = {
    "01_why_pack": {"lengths": [9, 2, 2]},
    "06_benchmark": {
        "device": "cpu:0",
        "quick": False,
        "setups": "B",
        "batch_size": 8,
        "shortest": 4,
        "longest": 8,
        "step": 4,
        "methods": "packed, padded",
    },
    "10_should_you_pack": {
        "my_lengths": [9, 2, 7, 5, 3, 8, 4, 6],
        "mode": "LSTM",
        "hidden_size": 8,
        "batch_size": 4,
    },
}
MAX_BYTES = 1.5e9  # Binder gives 2 GB
NOTEBOOKS = stored_notebooks(ROOT)


def read(path: Path):
    return loads(path.read_text(encoding="utf-8"))


def parameters_of(path: Path) -> dict[str, object]:
    """The names and values that a notebook's parameters cell assigns."""
    found: dict[str, object] = {}
    for cell in read(path).cells:
        if "parameters" in tags(cell):
            for line in ast.parse(cell.source).body:
                assert isinstance(line, ast.Assign), "a parameters cell holds plain assignments"
                assert isinstance(line.targets[0], ast.Name)
                found[line.targets[0].id] = ast.literal_eval(line.value)
    return found


def run_measured(command: list[str], folder: Path) -> tuple[int, str, float, float]:
    """Runs a command; gives its status, what it said, its seconds, and the bytes of its largest process."""
    start = time.monotonic()
    with (folder / "said.txt").open("w+", encoding="utf-8") as said:
        process = subprocess.Popen(command, cwd=folder, stdout=said, stderr=subprocess.STDOUT)
        if hasattr(os, "wait4"):
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        else:
            process.wait()
            peak = 0
        said.seek(0)
        return process.returncode, said.read(), time.monotonic() - start, peak


def test_the_table_names_every_notebook_with_parameters():
    assert NOTEBOOKS, "no notebooks"
    mine = {path.stem: parameters_of(path) for path in NOTEBOOKS if parameters_of(path)}
    assert {stem: set(values) for stem, values in mine.items()} == {
        stem: set(values) for stem, values in PARAMETERS.items()
    }
    for stem, values in PARAMETERS.items():
        for name, value in values.items():
            assert value != mine[stem][name], f"{stem}: {name} is the notebook's own value"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.relative_to(ROOT / "notebooks").as_posix())
def test_a_notebook_runs_headless(path: Path, tmp_path: Path, record_property):
    out = tmp_path / "out.ipynb"
    command = [sys.executable, str(TOOL), "run", path.stem, str(out)]
    command += ["--solutions"] if path.parent.name == "solutions" else []
    values = PARAMETERS.get(path.stem, {})
    for name, value in values.items():
        command += ["-p", f"{name}={value}"]
    before = path.read_bytes()
    status, said, seconds, peak = run_measured(command, tmp_path)
    record_property("notebook", path.relative_to(ROOT).as_posix())
    record_property("seconds", f"{seconds:.1f}")
    record_property("peak_mb", f"{peak / 1e6:.0f}")
    assert status == 0, said
    assert peak < MAX_BYTES
    assert path.read_bytes() == before
    assert "widgets" not in read(out).metadata
    injected = [cell.source for cell in read(out).cells if "injected-parameters" in tags(cell)]
    assert len(injected) == bool(values)
    for line in ast.parse(injected[0]).body if injected else ():
        assert isinstance(line, ast.Assign)
        assert isinstance(line.targets[0], ast.Name)
        assert ast.literal_eval(line.value) == values[line.targets[0].id]


SMALL = """\
# %% tags=["parameters"]
lengths = [5, 3, 2]
scale = 1

# %%
print(sum(lengths) / scale)

# %% tags=["raises-exception"]
print([][0])

# %%
print("to the end")
"""


@pytest.fixture(scope="module")
def small(tmp_path_factory, tool: Tool) -> Path:
    root = tmp_path_factory.mktemp("small")
    write(root, SMALL)
    assert tool("write", "--root", root).returncode == 0
    return root


def test_a_parameter_arrives_and_a_meant_error_is_no_failure(small: Path, tmp_path: Path, tool: Tool):
    done = tool("run", "01", tmp_path, "--root", small, "-p", "lengths=[9, 2, 2]")
    assert done.returncode == 0, done.stderr
    cells = read(tmp_path / "01_one.ipynb").cells
    assert [cell.outputs[0].text for cell in cells if cell.source.startswith("print(sum")] == ["13.0\n"]
    assert cells[-1].outputs[0].text == "to the end\n"
    assert not [cell for cell in cells if "An Exception was encountered" in cell.source]


def test_a_cell_that_raises_fails_the_run(small: Path, tmp_path: Path, tool: Tool):
    done = tool("run", "01", tmp_path / "out.ipynb", "--root", small, "-p", "scale=0")
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr
    assert "Traceback" not in done.stderr.split("Exception encountered")[0]


def test_a_misspelt_parameter_is_refused(small: Path, tmp_path: Path, tool: Tool):
    done = tool("run", "01", tmp_path / "out.ipynb", "--root", small, "-p", "lenghts=[9]")
    assert done.returncode == 2
    assert "01_one.ipynb has no parameter lenghts; it has lengths, scale" in done.stderr
    assert not (tmp_path / "out.ipynb").exists()


@pytest.mark.parametrize("stem", PARAMETERS)
def test_a_real_notebook_refuses_a_misspelt_parameter(stem: str, tmp_path: Path, tool: Tool):
    wrong = next(iter(PARAMETERS[stem])) + "_"
    done = tool("run", stem, tmp_path / "out.ipynb", "-p", f"{wrong}=1")
    assert done.returncode == 2
    assert f"has no parameter {wrong}" in done.stderr
    assert not (tmp_path / "out.ipynb").exists()


def test_the_result_may_not_overwrite_a_notebook(small: Path, tool: Tool):
    done = tool("run", "01", small / "notebooks" / "01_one.ipynb", "--root", small)
    assert done.returncode == 2
    assert "choose another place" in done.stderr
