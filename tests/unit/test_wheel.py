"""Builds the wheel, and runs packviz from it, with nothing of the checkout on the path."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = "import setuptools.build_meta as backend; backend.build_wheel('dist')"
USE = """
import torch
import packviz as pv

print(pv.__file__)
svg = pv.show([5, 3, 2]).to_svg()
output, _ = pv.run(torch.nn.LSTM(3, 4), torch.randn(5, 2, 3), [5, 3])
print(svg[:4], tuple(output.shape), pv.explain("is h_n in my order?")[0].name)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Returns the folder into which the wheel was installed, and an environment that uses it."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    shutil.copytree(
        ROOT / "packviz", source / "packviz", ignore=shutil.ignore_patterns("__pycache__")
    )
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    run([sys.executable, "-c", BUILD], source)
    (wheel,) = (source / "dist").glob("*.whl")
    target = folder / "installed"
    pip = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--quiet"]
    run([*pip, "--target", str(target), str(wheel)], folder)
    shutil.rmtree(source)
    return target, os.environ | {"PYTHONPATH": str(target), "PYTHONSAFEPATH": "1"}


def run(command, folder, environment=None):
    """Runs a command in a folder, and returns what it prints."""
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_library_works_from_the_wheel(installed, tmp_path):
    target, environment = installed
    origin, rest = run([sys.executable, "-c", USE], tmp_path, environment).splitlines()
    assert Path(origin).is_relative_to(target)
    assert rest == "<svg (5, 2, 4) Outputs and h_n are in your order"


def test_the_wheel_holds_every_file_that_is_read(installed):
    target, _ = installed
    kinds = ("*.py", "*.pyi", "*.toml", "*.json", "*.js", "*.css", "py.typed")
    for kind in kinds:
        for path in (ROOT / "packviz").rglob(kind):
            assert (target / path.relative_to(ROOT)).is_file(), path


def test_the_command_works_from_the_wheel(installed, tmp_path):
    target, environment = installed
    command = [sys.executable, str(target / "bin" / "packviz"), "show", "5", "3", "2"]
    assert "batch_sizes[3] = 1" in run(command, tmp_path, environment)
