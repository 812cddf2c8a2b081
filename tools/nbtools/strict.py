"""Runs the stored notebooks again and compares every output: pytest with nbval, strict, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

from nbtools.canonical import loads
from nbtools.check import stored_notebooks
from nbtools.execute import CELL_SECONDS, kernel_env

_INI = Path(__file__).with_name("nbval.ini")


def strict_failures(root: Path, paths: list[Path]) -> list[str]:
    """Runs notebooks under nbval and lists what failed; nbval's own report goes to standard output.

    Threads and hash seed differ on purpose from those the notebooks were written with: nothing stored may depend
    on them.

    Args:
        root: The folder that holds `notebooks/`.
        paths: The notebook files.
    """
    if not paths:
        return [f"no notebooks under {root / 'notebooks'}"]
    found: list[str] = []
    for strict in (False, True):
        some = [path for path in paths if (path.parent.name == "solutions") == strict]
        if some:
            found += _run(root, some, strict)
    return found


def select(root: Path, names: list[str]) -> list[Path]:
    """Gives the stored notebooks with these names (stems or numbers), or all."""
    return [p for p in stored_notebooks(root) if not names or {p.stem, p.stem[:2]} & {Path(n).stem for n in names}]


def _run(root: Path, paths: list[Path], strict: bool) -> list[str]:
    env = kernel_env(strict, threads=1, hash_seed=1)
    env = {key: value for key, value in env.items() if not key.startswith("PYTEST_")}
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "--nbval", "--nbval-current-env", "-c", str(_INI)]
        command += [f"--rootdir={root}", "--noconftest", "-p", "no:cacheprovider", "-q", "--color=no"]
        command += [
            f"--nbval-cell-timeout={CELL_SECONDS}",
            f"--junitxml={report}",
            "-o",
            "junit_family=xunit1",
        ]
        command += ["-n", str(min(2, len(paths)) if len(paths) > 1 else 0), "--dist", "loadfile"]
        done = subprocess.run([*command, *map(str, paths)], cwd=root, env=env, check=False)
        ran, failed = _read(report)
    problems = [f"{name}: failed" for name in failed]
    for path in paths:
        name = path.relative_to(root).as_posix()
        print(f"{name}: {ran[name]} cells run and compared", flush=True)
        if ran[name] != (cells := _code_cells(path)):
            problems.append(f"{name}: {ran[name]} of its {cells} code cells were run and compared")
    if stray := set(ran) - {path.relative_to(root).as_posix() for path in paths}:
        problems.append(f"collected what was not asked for: {', '.join(sorted(stray))}")
    if done.returncode and not problems:
        problems.append(f"nbval ended with {done.returncode}")
    return problems


def _read(report: Path) -> tuple[Counter[str], list[str]]:
    """Reads pytest's report: how many cells of each notebook were run, and which cells failed."""
    ran: Counter[str] = Counter()
    failed: list[str] = []
    if not report.is_file():
        return ran, failed
    for case in ElementTree.parse(report).iter("testcase"):
        name = case.get("file", "?").replace("\\", "/")
        ran[name] += 1
        if any(child.tag in {"failure", "error"} for child in case):
            failed.append(f"{name}, {case.get('name')}")
    return ran, failed


def _code_cells(path: Path) -> int:
    return sum(cell.cell_type == "code" for cell in loads(path.read_text(encoding="utf-8")).cells)
