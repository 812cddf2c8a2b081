"""Runs every notebook again, compares it with its stored outputs, and proves that this can fail."""

import hashlib
import re
from pathlib import Path

import pytest
from nbhelp import ROOT, Tool, write
from nbtools.canonical import dumps, loads
from nbtools.strict import run_strictly

CANARY = """\
# %%
x = 1

# %%
print("x is", x)
"""
STRICT = """\
# %% [markdown]
# # One

# %%
import os

# solution
x = 1
# end solution
print("strict:", os.environ.get("PACKVIZ_STRICT"))

# %%
print("shared")
"""


def contents(folder: Path) -> dict[str, str]:
    """Returns a digest of every file in a folder, without Python's caches."""
    files = (p for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_every_notebook_gives_what_it_stores(tool: Tool):
    on_disk = {p.relative_to(ROOT).as_posix() for p in (ROOT / "notebooks").rglob("*.ipynb")}
    on_disk = {name for name in on_disk if ".ipynb_checkpoints" not in name}
    assert on_disk, "no notebooks"
    before = contents(ROOT / "notebooks")
    done = tool("test")
    print(done.stdout, done.stderr)
    ran = {*re.findall(r"(?m)^(\S+\.ipynb): run and compared$", done.stdout)}
    assert done.returncode == 0, "see above"
    readers = {name.replace("solutions/", "") for name in ran}  # they run with their solutions
    assert readers | ran == on_disk
    assert contents(ROOT / "notebooks") == before


def spoil(root: Path, name: str, change) -> None:
    path = root / "notebooks" / f"{name}.ipynb"
    notebook = loads(path.read_text(encoding="utf-8"))
    change(notebook.cells)
    path.write_text(dumps(notebook), encoding="utf-8")


@pytest.mark.slow
def test_canaries(tmp_path: Path, tool: Tool, capfd):
    """Notebooks are written by the same command as the real ones, and then spoilt."""
    for name in ("02_raises", "03_wrong"):
        write(tmp_path, CANARY, name)
    for name in ("04_strict", "05_exercise"):
        write(tmp_path, STRICT, name)
    assert tool("write", "--root", tmp_path).returncode == 0

    # One that raises, its source as well: only running it can tell.
    raising = "x = 1; 1 / 0"
    write(tmp_path, CANARY.replace("x = 1", raising), "02_raises")
    spoil(tmp_path, "02_raises", lambda cells: cells[0].update(source=raising))

    # One with a wrong stored output.
    spoil(tmp_path, "03_wrong", lambda cells: cells[1].outputs[0].update(text="x is 2\n"))

    # One whose exercise shows something else to the reader, and is as it was in the solutions.
    spoil(tmp_path, "05_exercise", lambda cells: cells[1].outputs[0].update(text="strict: 1\n"))

    done = tool("test", "--root", tmp_path)
    said = capfd.readouterr().out
    assert done.returncode == 1
    assert "no defects in the notebooks" in done.stderr
    failed = {*re.findall(r"^FAILED (.*?Cell \d)", said, re.MULTILINE)}
    assert failed == {
        "notebooks/02_raises.ipynb::Cell 0",
        "notebooks/03_wrong.ipynb::Cell 1",
        "notebooks/solutions/05_exercise.ipynb::reader's Cell 0",
    }
    assert "ZeroDivisionError" in said
    assert "x is 2" in said
    assert "notebooks/solutions/04_strict.ipynb: run and compared" in done.stdout

    path = tmp_path / "notebooks" / "03_wrong.ipynb"

    # One that was not run. With no run cell nbval alone is content, so the command looks at the
    # form first.
    spoil(
        tmp_path,
        "03_wrong",
        lambda cells: [c.update(execution_count=None, outputs=[]) for c in cells],
    )
    assert run_strictly(tmp_path, [path]) == 0
    done = tool("test", "03", "--root", tmp_path)
    assert done.returncode == 1
    assert "notebooks/03_wrong.ipynb: its code cells were not run once" in done.stdout

    # One whose shared cell shows something else in the solutions: the two editions run together.
    spoil(tmp_path, "04_strict", lambda cells: cells[2].outputs[0].update(text="other\n"))
    (found,) = tool("check", "04", "--root", tmp_path).stdout.splitlines()
    assert found.startswith(
        "notebooks/04_strict.ipynb: cell 04-02 has different outputs in the solutions (04-02)"
    )
