"""Every notebook runs again and gives what it stores; and proof that this can fail."""

import hashlib
import re
from pathlib import Path

import pytest
from nbhelp import ROOT, Tool, write
from nbtools.canonical import dumps, loads
from nbtools.strict import strict_failures

CANARY = """\
# %%
x = 1

# %%
print("x is", x)
"""


def contents(folder: Path) -> dict[str, str]:
    """A digest of every file under a folder, Python's own caches left out."""
    files = (p for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_every_notebook_gives_what_it_stores(tool: Tool):
    on_disk = {p.relative_to(ROOT).as_posix() for p in (ROOT / "notebooks").rglob("*.ipynb")}
    on_disk = {name for name in on_disk if ".ipynb_checkpoints" not in name}
    assert on_disk, "no notebooks"
    before = contents(ROOT / "notebooks")
    done = tool("test")
    print(done.stdout, done.stderr)
    assert done.returncode == 0, "see above"
    compared = set(re.findall(r"(?m)^(\S+\.ipynb): \d+ cells run and compared$", done.stdout))
    assert compared == on_disk
    assert contents(ROOT / "notebooks") == before


@pytest.fixture(scope="module")
def canaries(tmp_path_factory, tool: Tool) -> Path:
    """Four notebooks that are in order, by the same command as the real ones."""
    root = tmp_path_factory.mktemp("canaries")
    for name in ("01_healthy", "02_raises", "03_wrong", "04_unrun"):
        write(root, CANARY, name)
    assert tool("write", "--root", root).returncode == 0
    return root


def spoil(root: Path, name: str, change) -> None:
    path = root / "notebooks" / f"{name}.ipynb"
    notebook = loads(path.read_text(encoding="utf-8"))
    change(notebook.cells)
    path.write_text(dumps(notebook), encoding="utf-8")


def test_canaries(canaries: Path, tool: Tool):
    assert tool("test", "04", "--root", canaries).returncode == 0

    # One that raises, its source as well: only running it can tell.
    raising = "x = 1 / 0"
    write(canaries, CANARY.replace("x = 1", raising), "02_raises")
    spoil(canaries, "02_raises", lambda cells: cells[0].update(source=raising))

    # One with a wrong stored output.
    spoil(canaries, "03_wrong", lambda cells: cells[1].outputs[0].update(text="x is 2\n"))
    done = tool("test", "--root", canaries)
    assert done.returncode == 1
    assert "notebooks: in order" in done.stderr
    assert "notebooks/02_raises.ipynb, Cell 0: failed" in done.stderr
    assert "notebooks/03_wrong.ipynb, Cell 1: failed" in done.stderr
    assert "ZeroDivisionError" in done.stdout
    assert "x is 2" in done.stdout
    assert "01_healthy.ipynb, " not in done.stderr
    assert "04_unrun.ipynb, " not in done.stderr

    # One with no run cell: nbval alone is content with it, so the same command looks at its form first.
    spoil(canaries, "04_unrun", lambda cells: [c.update(execution_count=None, outputs=[]) for c in cells])
    assert strict_failures(canaries, [canaries / "notebooks" / "04_unrun.ipynb"]) == []
    done = tool("test", "04", "--root", canaries)
    assert done.returncode == 1
    assert "notebooks/04_unrun.ipynb: unrun code cell 04-00, 04-01" in done.stdout


def test_no_notebook_to_compare_is_a_failure(tmp_path: Path):
    assert strict_failures(tmp_path, []) == [f"no notebooks under {tmp_path / 'notebooks'}"]
