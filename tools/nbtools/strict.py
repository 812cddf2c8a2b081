"""Runs the stored notebooks again and compares every output, with pytest and a strict nbval in a separate process."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from workers import workers

from nbtools.canonical import loads
from nbtools.check import exercises, stored_notebooks
from nbtools.execute import CELL_SECONDS, kernel_env
from nbtools.kernels import PEAK

MAX_MEMORY = 1.5e9  # bytes; Binder gives 2 GB

_INI = Path(__file__).with_name("nbval.ini")


@dataclass
class _Ran:
    """The result of nbval for one notebook."""

    cells: int = 0
    failed: list[str] = field(default_factory=list)
    seconds: float = 0.0
    peak: float = 0.0


def strict_failures(root: Path, paths: list[Path], max_memory: float = MAX_MEMORY) -> list[str]:
    """Runs notebooks under nbval, and lists the failures. nbval's own report goes to standard
    output.

    If a notebook has solutions, the reader's notebook runs as part of the solutions notebook,
    because only the exercises differ (see `kernels`, and `defects`, which compares the stored
    outputs of shared cells). The number of threads and the hash seed differ from those with which
    the notebooks were written, because no output may depend on them.

    Args:
        root: The folder that contains `notebooks/`.
        paths: The notebook files.
        max_memory: The largest amount of memory that a kernel may use, in bytes.
    """
    if not paths:
        return [f"there are no notebooks in {root / 'notebooks'}"]
    paths = [path for path in paths if path.parent / "solutions" / path.name not in paths]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command, env = _command(root, paths, report), _environment(folder)
        status = subprocess.run(command, cwd=root, env=env, check=False).returncode
        ran = _read(report)
    problems: list[str] = []
    for path in paths:
        name = path.relative_to(root).as_posix()
        problems += (
            f"{name}{problem}"
            for problem in _problems(ran.pop(name, _Ran()), path, name, max_memory)
        )
    if ran:
        problems.append(f"nbval ran notebooks that were not selected: {', '.join(sorted(ran))}")
    if status and not problems:
        problems.append(f"nbval ended with exit status {status}")
    return problems


def select(root: Path, names: list[str]) -> list[Path]:
    """Returns the stored notebooks with these names (stems or numbers), or all notebooks if there are no names."""
    return [
        p
        for p in stored_notebooks(root)
        if not names or {p.stem, p.stem[:2]} & {Path(n).stem for n in names}
    ]


def _command(root: Path, paths: list[Path], report: Path) -> list[str]:
    command = [sys.executable, "-m", "pytest", "--nbval", "--nbval-current-env", "-c", str(_INI)]
    command += [
        f"--rootdir={root}",
        "--noconftest",
        "-p",
        "nbtools.kernels",
        "-p",
        "no:cacheprovider",
    ]
    command += ["-q", "--color=no", f"--nbval-cell-timeout={CELL_SECONDS}"]
    command += [f"--nbval-kernel-startup-timeout={CELL_SECONDS}"]
    command += [f"--junitxml={report}", "-o", "junit_family=xunit1"]
    # Notebooks begin in the given order, not in xdist's own. Those with high numbers take longest,
    # so they begin first. If one of them began last, it would still run when all the others had
    # ended.
    command += [
        "-n",
        str(min(workers(), len(paths)) if len(paths) > 1 else 0),
        "--dist",
        "loadfile",
    ]
    command += ["--no-loadscope-reorder"]
    return command + [str(path) for path in sorted(paths, key=lambda path: path.name, reverse=True)]


def _environment(folder: str) -> dict[str, str]:
    env = kernel_env(strict=False, threads=1, hash_seed=1)
    env = {key: value for key, value in env.items() if not key.startswith("PYTEST_")}
    tools = str(Path(__file__).resolve().parents[1])  # where pytest finds the plugin
    env["IPYTHONDIR"] = (
        folder  # of this run alone, because all kernels of a user write to one file of history
    )
    return env | {"PYTHONPATH": os.pathsep.join(filter(None, [tools, env.get("PYTHONPATH")]))}


def _problems(ran: _Ran, path: Path, name: str, max_memory: float) -> Iterator[str]:
    print(
        f"{name}: {ran.cells} cells run and compared, {ran.seconds:.1f} s, {ran.peak / 1e6:.0f} MB",
        flush=True,
    )
    yield from (f", {cell}: failed" for cell in ran.failed)
    if ran.cells != (cells := _code_cells(path)):
        yield f": {ran.cells} of its {cells} code cells were run and compared"
    if ran.peak > max_memory:
        yield f": its kernel used {ran.peak / 1e6:.0f} MB of memory, over {max_memory / 1e6:.0f} MB"


def _read(report: Path) -> dict[str, _Ran]:
    """Reads pytest's report, and returns the results by name of the notebook."""
    found: dict[str, _Ran] = {}
    if not report.is_file():
        return found
    for case in ElementTree.parse(report).iter("testcase"):
        ran = found.setdefault(case.get("file", "?").replace("\\", "/"), _Ran())
        ran.cells += 1
        ran.seconds += float(case.get("time", 0))
        if any(child.tag in {"failure", "error"} for child in case):
            ran.failed.append(str(case.get("name")))
        ran.peak += sum(
            float(p.get("value", 0)) for p in case.iter("property") if p.get("name") == PEAK
        )
    return found


def _code_cells(path: Path) -> int:
    """Counts the code cells to run. For a solutions notebook, these include the reader's exercise cells."""
    notebook, readers = loads(path.read_text(encoding="utf-8")), path.parent.parent / path.name
    own: int = sum(cell.cell_type == "code" for cell in notebook.cells)
    if path.parent.name != "solutions" or not readers.is_file():
        return own
    return own + len(exercises(loads(readers.read_text(encoding="utf-8")), notebook))
