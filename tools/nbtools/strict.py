"""Runs the stored notebooks again with pytest and a strict nbval, and compares every output."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

from workers import workers

from nbtools.execute import CELL_SECONDS, kernel_env

_INI = Path(__file__).with_name("nbval.ini")


def strict_failures(root: Path, paths: list[Path]) -> list[str]:
    """Runs notebooks under nbval, and lists the failures. nbval prints its own report.

    A solutions notebook stands for the reader's notebook, too, which runs as a part of it,
    because only the exercises differ (see `kernels`, and `defects`, which compares the stored
    outputs of shared cells). The number of threads and the hash seed differ from those with which
    the notebooks were written, because no output may depend on them.

    Args:
        root: The folder that contains `notebooks/`.
        paths: The notebook files.
    """
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = _command(root, paths, report)
        env = _environment(folder)
        status = subprocess.run(command, cwd=root, env=env, check=False).returncode
        cases = [*ElementTree.parse(report).iter("testcase")] if report.is_file() else []
    cells: Counter[str] = Counter()
    problems = []
    for case in cases:
        name = case.get("file", "?").replace("\\", "/")
        cells[name] += 1
        if any(child.tag in {"failure", "error"} for child in case):
            problems.append(f"{name}, {case.get('name')}: failed")
    for path in paths:
        name = path.relative_to(root).as_posix()
        print(f"{name}: {cells[name]} cells run and compared", flush=True)
        if not cells[name]:
            problems.append(f"{name}: none of its cells was run")
    if status and not problems:
        problems.append(f"nbval ended with exit status {status}")
    return problems


def _command(root: Path, paths: list[Path], report: Path) -> list[str]:
    # The notebooks with high numbers take longest, so they begin first.
    ordered = sorted(paths, key=lambda path: path.name, reverse=True)
    processes = min(workers(), len(paths)) if len(paths) > 1 else 0
    options = [
        "-m pytest --nbval --nbval-current-env --noconftest -p nbtools.kernels -q --color=no",
        "-p no:cacheprovider -o junit_family=xunit1 --dist loadfile --no-loadscope-reorder",
        f"--nbval-cell-timeout={CELL_SECONDS} --nbval-kernel-startup-timeout={CELL_SECONDS}",
        f"-n {processes}",
    ]
    files = ["-c", str(_INI), f"--rootdir={root}", f"--junitxml={report}"]
    return [sys.executable, *" ".join(options).split(), *files, *map(str, ordered)]


def _environment(folder: str) -> dict[str, str]:
    env = kernel_env(strict=False, threads=1, hash_seed=1)
    env.pop("PYTEST_ADDOPTS", None)
    # All kernels of a user write to one file of history, so this run gets its own.
    env["IPYTHONDIR"] = folder
    tools = str(Path(__file__).resolve().parents[1])  # where pytest finds the plugin
    env["PYTHONPATH"] = os.pathsep.join([tools, env.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    return env
