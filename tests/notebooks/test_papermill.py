"""Papermill runs every notebook that has parameters headless, with others than its own."""

import ast
from pathlib import Path

import pytest
from nbhelp import ROOT, Tool, write
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
    "10_should_you_pack": {"my_lengths": [9, 2, 7, 5, 3, 8, 4, 6], "mode": "LSTM", "hidden_size": 8, "batch_size": 4},
}
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


def test_the_table_names_every_notebook_with_parameters():
    assert NOTEBOOKS, "no notebooks"
    mine = {path.stem: parameters_of(path) for path in NOTEBOOKS if parameters_of(path)}
    assert {stem: set(values) for stem, values in mine.items()} == {
        stem: set(values) for stem, values in PARAMETERS.items()
    }
    for stem, values in PARAMETERS.items():
        for name, value in values.items():
            assert value != mine[stem][name], f"{stem}: {name} is the notebook's own value"


@pytest.mark.parametrize("stem", PARAMETERS)
def test_a_notebook_runs_headless_with_other_parameters(stem: str, tmp_path: Path, tool: Tool):
    """Without any, test_nbval.py runs every notebook."""
    path = ROOT / "notebooks" / f"{stem}.ipynb"
    out, values = tmp_path / "out.ipynb", PARAMETERS[stem]
    before = path.read_bytes()
    done = tool("run", stem, out, *(word for name, value in values.items() for word in ("-p", f"{name}={value}")))
    assert done.returncode == 0, done.stderr
    assert path.read_bytes() == before
    assert "widgets" not in read(out).metadata
    (injected,) = [cell.source for cell in read(out).cells if "injected-parameters" in tags(cell)]
    found = {line.targets[0].id: ast.literal_eval(line.value) for line in ast.parse(injected).body}
    assert found == values


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
