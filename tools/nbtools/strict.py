"""Runs the stored notebooks again with pytest and a strict nbval, and compares every output."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from workers import workers

from nbtools.execute import CELL_SECONDS, kernel_env
from nbtools.warm import warm_kernels

_INI = Path(__file__).with_name("nbval.ini")
_TOOLS = Path(__file__).resolve().parents[1]  # where pytest finds the plugin


def run_strictly(root: Path, paths: list[Path]) -> int:
    """Runs notebooks under nbval, which prints its report, and returns the exit status.

    A solutions notebook also covers the reader's notebook, because only the exercises differ (see
    `kernels`, and `defects`, which compares the stored outputs of shared cells). The number of
    threads and the hash seed differ from those with which the notebooks were written, because no
    output may depend on them.

    Args:
        root: The folder that contains `notebooks/`.
        paths: The notebook files.
    """
    # The notebooks with high numbers take longest, so they begin first.
    ordered = sorted(paths, key=lambda path: path.name, reverse=True)
    options = (
        "-m pytest --nbval --noconftest -p nbtools.kernels -q --color=no"
        " -p no:cacheprovider --dist loadfile --no-loadscope-reorder"
        f" --nbval-cell-timeout={CELL_SECONDS} --nbval-kernel-startup-timeout={CELL_SECONDS}"
        f" -n {min(workers(), len(paths) - 1)}"
    )
    command = [sys.executable, *options.split(), "-c", str(_INI), f"--rootdir={root}"]
    env = kernel_env(strict=False, threads=1, hash_seed=1)
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(_TOOLS), env.get("PYTHONPATH")]))
    # All kernels of a user write to one file of history, so this run gets its own.
    with tempfile.TemporaryDirectory() as env["IPYTHONDIR"], warm_kernels(env):
        return subprocess.run([*command, *map(str, ordered)], cwd=root, env=env).returncode
