"""Runs every notebook that has parameters with other ones, by papermill."""

import ast
import re
import shutil
from pathlib import Path

import papermill
import pytest
from nbhelp import ROOT
from nbtools.canonical import dumps, loads, tags
from nbtools.check import stored_notebooks
from nbtools.source import editions

# Other values than the notebook's own, for every notebook that has parameters.
PARAMETERS: dict[str, dict[str, object]] = {
    "08_benchmark": {
        "device": "cpu:0",
        "quick": "true",
        "setups": "B",
        "methods": "packed, padded",
    },
    "11_should_you_pack": {
        "my_lengths": [9, 2, 7, 5, 3, 8, 4, 6],
        "mode": "LSTM",
        "hidden_size": 8,
        "batch_size": 4,
        "budget": 0.3,
    },
}


def read(path: Path):
    return loads(path.read_text(encoding="utf-8"))


def assigned(code: str) -> dict[str, object]:
    """Returns the names and values that a parameters cell assigns."""
    return {line.targets[0].id: ast.literal_eval(line.value) for line in ast.parse(code).body}


def test_the_table_names_every_notebook_with_parameters():
    names = {}
    for path in stored_notebooks(ROOT):
        for cell in read(path).cells:
            if "parameters" in tags(cell):
                names[path.stem] = {*assigned(cell.source)}
    assert names == {stem: {*values} for stem, values in PARAMETERS.items()}


@pytest.mark.parametrize("stem", PARAMETERS)
def test_a_notebook_runs_with_other_parameters(stem: str, tmp_path: Path, monkeypatch):
    """It runs up to the last cell that names a parameter; test_nbval.py runs the others."""
    values = PARAMETERS[stem]
    reader, *_ = editions(ROOT / "notebooks" / "source" / f"{stem}.py")
    notebook = reader.notebook
    named = re.compile(rf"\b({'|'.join(values)})\b")
    code = [i for i, cell in enumerate(notebook.cells) if cell.cell_type == "code"]
    last = max(i for i in code if named.search(notebook.cells[i].source))
    notebook.cells = notebook.cells[: last + 1]
    (tmp_path / "short.ipynb").write_text(dumps(notebook), encoding="utf-8")
    shutil.copytree(ROOT / "notebooks" / "recorded", tmp_path / "recorded")
    monkeypatch.chdir(tmp_path)
    papermill.execute_notebook("short.ipynb", "out.ipynb", values, progress_bar=False)
    cells = read(tmp_path / "out.ipynb").cells
    (injected,) = [cell.source for cell in cells if "injected-parameters" in tags(cell)]
    assert assigned(injected) == values
