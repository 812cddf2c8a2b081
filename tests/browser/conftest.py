"""One JupyterLab and one Chromium for all browser tests of a session, or of each of its workers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser.chromium import find_chromium, how_to_get_it
from browser.lab import Lab

ROOT = Path(__file__).resolve().parents[2]


def notebooks_folder() -> Path:
    """Where the notebooks are: a variable points the same tests at others."""
    return Path(os.environ.get("PACKVIZ_BROWSER_NOTEBOOKS", ROOT / "notebooks")).resolve()


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.browser)
            # With several workers each has a JupyterLab and a browser, and a page stays with one of them.
            given = getattr(item, "callspec", None)
            name = given.params.get("notebook_name") if given else None
            item.add_marker(pytest.mark.xdist_group(name or item.path.stem))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "notebook_name" in metafunc.fixturenames:
        names = sorted(path.name for path in notebooks_folder().glob("*.ipynb"))
        metafunc.parametrize("notebook_name", names, ids=[Path(n).stem for n in names], scope="module")


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """JupyterLab on a copy of the notebooks, and a browser."""
    if find_chromium() is None:
        in_ci = os.environ.get("CI", "").lower() not in ("", "0", "false")
        (pytest.fail if in_ci else pytest.skip)(how_to_get_it())
    with Lab(notebooks_folder()) as running:
        yield running
