"""Runs every notebook that has parameters with other ones, by papermill."""

import ast
import re
from pathlib import Path

import pytest
from nbhelp import ROOT, Tool, write
from nbtools.canonical import dumps, loads, tags
from nbtools.check import stored_notebooks

# Other values than the notebook's own, for every notebook that has parameters.
PARAMETERS: dict[str, dict[str, object]] = {
    "01_why_pack": {"lengths": [9, 2, 2]},
    "08_benchmark": {
        "device": "cpu:0",
        "quick": False,
        "setups": "B",
        "batch_size": 8,
        "shortest": 4,
        "longest": 8,
        "step": 4,
        "methods": "packed, padded",
    },
    "11_should_you_pack": {
        "my_lengths": [9, 2, 7, 5, 3, 8, 4, 6],
        "mode": "LSTM",
        "hidden_size": 8,
        "batch_size": 4,
    },
}


def read(path: Path):
    return loads(path.read_text(encoding="utf-8"))


def assigned(code: str) -> dict[str, object]:
    """Returns the names and values that a parameters cell assigns."""
    return {line.targets[0].id: ast.literal_eval(line.value) for line in ast.parse(code).body}


def test_the_table_names_every_notebook_with_parameters():
    notebooks = {path.stem: read(path) for path in stored_notebooks(ROOT)}
    own = {
        stem: assigned(c.source)
        for stem, one in notebooks.items()
        for c in one.cells
        if "parameters" in tags(c)
    }
    assert {stem: {*values} for stem, values in own.items()} == {
        stem: {*some} for stem, some in PARAMETERS.items()
    }
    assert not [
        (stem, k) for stem, some in PARAMETERS.items() for k, v in some.items() if v == own[stem][k]
    ]


@pytest.mark.parametrize("stem", PARAMETERS)
def test_a_notebook_runs_headless_with_other_parameters(stem: str, tmp_path: Path, tool: Tool):
    """It runs up to the last cell that names a parameter; test_nbval.py runs the others."""
    notebooks, values = ROOT / "notebooks", PARAMETERS[stem]
    write(tmp_path, (notebooks / "source" / f"{stem}.py").read_text(encoding="utf-8"), stem)
    (tmp_path / "notebooks" / "recorded").symlink_to(notebooks / "recorded")
    notebook = read(notebooks / f"{stem}.ipynb")
    named = re.compile(rf"\b({'|'.join(values)})\b")
    last = max(
        i
        for i, cell in enumerate(notebook.cells)
        if cell.cell_type == "code" and named.search(cell.source)
    )
    notebook.cells = notebook.cells[: last + 1]
    path, out = tmp_path / "notebooks" / f"{stem}.ipynb", tmp_path / "out.ipynb"
    path.write_text(before := dumps(notebook), encoding="utf-8")

    def run(pairs):
        return tool(
            "run",
            stem,
            out,
            "--root",
            tmp_path,
            *(word for k, v in pairs for word in ("-p", f"{k}={v}")),
        )

    misspelt = next(iter(values)) + "_"
    refused = run([(misspelt, 1)])
    assert refused.returncode == 2
    assert f"has no parameter {misspelt}" in refused.stderr
    assert not out.exists()
    done = run(values.items())
    assert done.returncode == 0, done.stderr
    assert path.read_text(encoding="utf-8") == before
    assert "widgets" not in read(out).metadata
    (injected,) = [cell.source for cell in read(out).cells if "injected-parameters" in tags(cell)]
    assert assigned(injected) == values


SMALL = """\
# %% tags=["parameters"]
scale = 1

# %%
print(13 / scale)

# %% tags=["raises-exception"]
print([][0])

# %%
print("to the end")
"""


def test_errors_that_are_meant_and_others(tmp_path: Path, tool: Tool):
    write(tmp_path, SMALL)
    assert tool("write", "--root", tmp_path).returncode == 0
    done = tool("run", "01", tmp_path, "--root", tmp_path, "-p", "scale=2")
    assert done.returncode == 0, done.stderr
    cells = read(tmp_path / "01_one.ipynb").cells
    printed = [
        out.text for cell in cells for out in cell.get("outputs", ()) if out.output_type == "stream"
    ]
    assert printed == ["6.5\n", "to the end\n"]
    assert not [cell for cell in cells if "An Exception was encountered" in cell.source]

    done = tool("run", "01", tmp_path / "out.ipynb", "--root", tmp_path, "-p", "scale=0")
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr
    assert "Traceback" not in done.stderr.split("Exception encountered")[0]

    done = tool("run", "01", tmp_path / "notebooks" / "01_one.ipynb", "--root", tmp_path)
    assert done.returncode == 2
    assert "choose another place" in done.stderr
