"""Provides one JupyterLab for all browser tests of a process."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from browser.lab import Lab, Server
from playwright.sync_api import Browser

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = Path(os.environ.get("PACKVIZ_BROWSER_NOTEBOOKS", ROOT / "notebooks")).resolve()
SHORTER = [
    ("08_benchmark", "forum.grid(", "forum.grid(steps=(8, 16), batch_size=8) or ("),
    ("08_benchmark", ", progress=True", ""),
    ("12_several_workers", "found = processes.compare()", "found = processes.LOSSES"),
    ("12_several_workers", "found.chart()", "found"),
    ("12_several_workers", "found.times()", "found"),
    ("14_beyond_rnns", "torch.randn(1, 4, 2048, 32)", "torch.randn(1, 4, 64, 32)"),
    ("14_beyond_rnns", "torch.ones(2048, 2048,", "torch.ones(64, 64,"),
]
"""What is replaced in the slowest cells, and a progress bar, which writes to stderr.

The notebook tests run these cells as they are."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "notebook_name" not in metafunc.fixturenames:
        return
    cases = []
    tested: set[str] = set()
    # The later notebooks take longest, so they begin first.
    for path in sorted(NOTEBOOKS.glob("*.ipynb"), reverse=True):
        # The notebooks with panels have everything that the others have, and a panel of the library
        # works on every page if it works on one.
        text = path.read_text(encoding="utf-8")
        panels = {*re.findall(r"from packviz\.panels import (\w+)", text)}
        marks = [] if panels - tested else [pytest.mark.slow]
        tested |= panels
        cases.append(pytest.param(path.name, marks=marks, id=path.stem))
    metafunc.parametrize("notebook_name", cases)


@pytest.fixture(scope="session")
def lab(browser: Browser) -> Iterator[Lab]:
    """Starts JupyterLab on a copy of the notebooks."""
    with closing(Server(NOTEBOOKS)) as server:
        for name, long, short in SHORTER:
            path = server.root / f"{name}.ipynb"
            if path.is_file():
                text = path.read_text(encoding="utf-8")
                assert long in text, f"{name} has no {long}"
                path.write_text(text.replace(long, short), encoding="utf-8")
        yield Lab(server, browser)
