"""Checks that relative links of pages work, and that 00 names every notebook."""

import re
from pathlib import Path
from urllib.parse import unquote

import pytest
from nbhelp import ROOT
from nbtools.canonical import loads
from nbtools.check import stored_notebooks
from nbtools.source import is_relative, links

NOTEBOOKS = stored_notebooks(ROOT)


def texts(path: Path) -> list[str]:
    """Returns the Markdown of a notebook and its stored tables, or the text of a Markdown file."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return [text]
    cells = loads(text).cells
    stored = (
        output.get("data", {}).get("text/html", "")
        for cell in cells
        for output in cell.get("outputs", ())
    )
    tables = [
        f"[table]({link})"
        for html in stored
        for link in re.findall('href="([^"]+)"', "".join(html))
    ]
    return [cell.source for cell in cells if cell.cell_type == "markdown"] + tables


def targets(path: Path) -> list[Path]:
    """Returns the targets of a text's relative links."""
    found = [link for text in texts(path) for link in links(text) if is_relative(link)]
    return [path.parent / unquote(link.partition("#")[0]) for link in found]


PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
]


@pytest.mark.parametrize(
    "path", [*PAGES, *NOTEBOOKS], ids=lambda path: path.relative_to(ROOT).as_posix()
)
def test_links_lead_somewhere(path: Path):
    assert [target for target in targets(path) if not target.exists()] == []


def test_the_indexes_name_every_notebook():
    start = ROOT / "notebooks" / "00_start_here.ipynb"
    readers = {path for path in NOTEBOOKS if path.parent.name == "notebooks"}
    assert start in readers
    assert not readers - {target.resolve() for target in targets(start)} - {start}
    assert not readers - {target.resolve() for target in targets(ROOT / "README.md")}
