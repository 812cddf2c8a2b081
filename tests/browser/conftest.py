"""Provides one JupyterLab and one Chromium for all browser tests of a worker."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser.lab import Lab

ROOT = Path(__file__).resolve().parents[2]


def notebooks_folder() -> Path:
    """Returns the folder of the notebooks, which an environment variable can change."""
    return Path(os.environ.get("PACKVIZ_BROWSER_NOTEBOOKS", ROOT / "notebooks")).resolve()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "notebook_name" in metafunc.fixturenames:
        # The later notebooks are the longer ones; begun last, one of them would keep the others
        # waiting.
        paths = sorted(notebooks_folder().glob("*.ipynb"), reverse=True)
        # What a page without a panel has, the others have as well.
        marks = [
            () if "packviz.panels" in path.read_text(encoding="utf-8") else pytest.mark.slow
            for path in paths
        ]
        cases = [
            pytest.param(path.name, marks=mark) for path, mark in zip(paths, marks, strict=True)
        ]
        metafunc.parametrize("notebook_name", cases, ids=[path.stem for path in paths])


SHORTER = [
    ("08_benchmark", "batch_size = None", "batch_size = 8"),
    ("08_benchmark", "shortest = None", "shortest = 8"),
    ("08_benchmark", "longest = None", "longest = 32"),
    ("08_benchmark", "step = None", "step = 8"),
    ("12_several_workers", "compare()", "compare(workers=1, rounds=1)"),
    ("13_static_graphs", "survey()", "survey(compilers.STUDY.quick)"),
]
"""What is replaced in the cells that compute longest. The notebook tests run these cells as they are."""


def shorten(folder: Path) -> None:
    for name, long, short in SHORTER:
        if (path := folder / f"{name}.ipynb").is_file():
            text = path.read_text(encoding="utf-8")
            assert long in text, f"{name} has no {long}"
            path.write_text(text.replace(long, short), encoding="utf-8")


@pytest.fixture(scope="session")
def lab(chromium: str) -> Iterator[Lab]:
    """Starts JupyterLab on a copy of the notebooks, and a browser."""
    with Lab(notebooks_folder()) as running:
        shorten(running.server.root)
        yield running
