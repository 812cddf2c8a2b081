"""Finds defects in the stored notebooks without running anything."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from nbtools.alternative import HTML, as_html, has_own_html, is_picture, png_of
from nbtools.canonical import (
    LIVE_TIMING,
    PLOTLY,
    canonical,
    dumps,
    is_recorded,
    leaks,
    loads,
    tags,
    text_of,
)
from nbtools.source import CLAIMS, Edition, SourceError, editions, source_files

MAX_LINES = 15
MAX_BYTES = 1_500_000
IGNORE_OUTPUT = "nbval-ignore-output"
KNOWN_TAGS = {
    "parameters",
    "exercise",
    "raises-exception",
    CLAIMS,
    LIVE_TIMING,
    IGNORE_OUTPUT,
}
_REMEDY = "run `make notebooks`"

_ASSERTS = re.compile(r"(?m)^\s*assert\b")
_NBVAL_COMMENT = re.compile(r"(?m)^\s*#\s*((?:NBVAL_|PYTEST_VALIDATE_)\w+)\s*$")


def defects(root: Path, names: Sequence[str] = ()) -> list[str]:
    """Lists the defects of the stored notebooks, one per line.

    Args:
        root: The folder that contains `notebooks/`.
        names: The notebooks to check. Without names, all are checked, and notebooks without a
            source are defects, too.
    """
    problems: list[str] = []
    belonging: set[Path] = set()
    try:
        for source in source_files(root, names):
            paths = []
            for edition in editions(source):
                paths.append(edition.path)
                where = edition.path.relative_to(root)
                problems += [f"{where}: {problem}" for problem in edition_defects(edition, root)]
            problems += _apart(root, *paths)
            belonging.update(paths)
    except SourceError as error:
        return [*problems, str(error)]
    if not names:
        strays = [path for path in stored_notebooks(root) if path not in belonging]
        problems += [f"{path.relative_to(root)}: this notebook has no source" for path in strays]
    return problems


def stored_notebooks(root: Path) -> list[Path]:
    """Lists the notebook files under `root`, for the reader and with solutions."""
    folder = root / "notebooks"
    return sorted(folder.glob("*.ipynb")) + sorted(folder.glob("solutions/*.ipynb"))


def edition_defects(edition: Edition, root: Path) -> Iterator[str]:
    """Yields the defects of one stored notebook."""
    if not edition.path.is_file():
        yield f"missing; {_REMEDY}"
        return
    text = edition.path.read_text(encoding="utf-8")
    size = len(text.encode())
    if size > MAX_BYTES:
        yield f"has {size / 1e6:.1f} MB, over the limit of {MAX_BYTES / 1e6:.1f} MB"
    try:
        notebook = loads(text)
    except ValueError as error:
        yield str(error)
        return
    if dumps(canonical(notebook, edition.path.stem)) != text:
        yield f"not in canonical form; {_REMEDY}"
    if _content(notebook) != _content(edition.notebook):
        yield f"differs from its source; {_REMEDY}"
    yield from _order(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            problems = [*_too_long(cell), *_odd_tags(cell), *_claims(cell), *_pictures(cell)]
            for problem in problems + leaks(cell, root):
                yield f"cell {cell.id}: {problem}"


def exercises(reader: Any, solved: Any) -> dict[int, Any]:
    """Returns the reader's exercise cells, by the positions of their solutions."""
    pairs = _pairs(reader, solved)
    return {i: cell for i, cell in pairs if cell.source != solved.cells[i].source}


def _pairs(reader: Any, solved: Any) -> Iterator[tuple[int, Any]]:
    """Yields the reader's code cells, each after the position of its counterpart when solved."""
    cells = [cell for cell in reader.cells if cell.cell_type == "code"]
    for i, solution in enumerate(solved.cells):
        if cells and solution.cell_type == "code" and CLAIMS not in tags(solution):
            yield i, cells.pop(0)


def _apart(root: Path, *paths: Path) -> Iterator[str]:
    """Yields the cells whose outputs differ between editions, as the tests run them only once."""
    try:
        reader, solved = (loads(path.read_text(encoding="utf-8")) for path in paths)
    except (OSError, ValueError):
        return  # there is one edition, or one is missing or broken, which is reported elsewhere
    for i, cell in _pairs(reader, solved):
        other = solved.cells[i]
        if cell.source == other.source and _shown(cell) != _shown(other):
            cause = "an earlier solution or claim changed something, such as torch's random state"
            where = f"{paths[0].relative_to(root)}: cell {cell.id}"
            yield f"{where} has different outputs in the solutions ({other.id}), because {cause}"


def _shown(cell: Any) -> list[dict[str, Any]]:
    hidden = {"execution_count", "traceback"}
    return [{key: output[key] for key in output.keys() - hidden} for output in cell.outputs]


def _content(notebook: Any) -> list[tuple[Any, ...]]:
    return [(cell.cell_type, cell.metadata, cell.source) for cell in notebook.cells]


def _order(notebook: Any) -> Iterator[str]:
    counts = [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"]
    if not counts or counts != list(range(1, len(counts) + 1)):
        yield f"its code cells were not run once, from top to bottom (counts {counts})"


def _too_long(cell: Any) -> Iterator[str]:
    lines = sum(bool(line.strip()) for line in cell.source.splitlines())
    if lines > MAX_LINES and CLAIMS not in tags(cell):
        yield f"has {lines} lines of code, over the limit of {MAX_LINES}"


def _odd_tags(cell: Any) -> Iterator[str]:
    own = set(tags(cell))
    for unknown in own - KNOWN_TAGS:
        yield f"unknown tag {unknown}; the known tags are {', '.join(sorted(KNOWN_TAGS))}"
    if len(own & {IGNORE_OUTPUT, LIVE_TIMING}) == 1:
        yield f"the tags {IGNORE_OUTPUT!r} and {LIVE_TIMING!r} belong together"
    if LIVE_TIMING in own and not is_recorded(cell):
        yield f"does not store where its times were recorded; {_REMEDY}"
    for comment in _NBVAL_COMMENT.findall(cell.source):
        yield f"the comment {comment} hides it from the tests; use the tags of a live timing"


def _claims(cell: Any) -> Iterator[str]:
    if CLAIMS not in tags(cell):
        if _ASSERTS.search(cell.source) and "exercise" not in tags(cell):
            yield "contains an assertion; move it to a cell tagged 'claims' after this one"
        return
    if not _ASSERTS.search(cell.source):
        yield "is tagged 'claims' but asserts nothing"
    if cell.outputs:
        yield "is tagged 'claims' but has output; move the output to a cell that readers have, too"


def _pictures(cell: Any) -> Iterator[str]:
    for output in filter(is_picture, cell.outputs):
        data = output.data
        if PLOTLY in data and not png_of(output):
            yield "a chart has no image"
        if PLOTLY in data and not text_of(data):
            yield "a chart has no text"
        if not has_own_html(output) and data.get(HTML) != as_html(output):
            yield "a picture has no text/html output with its text"
