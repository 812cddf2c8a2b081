"""Finds defects in the stored notebooks without running anything."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from nbtools.alternative import as_html, has_own_html, is_picture, png_of
from nbtools.canonical import (
    LIVE_TIMING,
    PLOTLY,
    WIDGET_VIEW,
    canonical,
    dumps,
    leaks,
    loads,
    tags,
    text_of,
)
from nbtools.source import CLAIMS, Edition, SourceError, editions, source_files

MAX_LINES = 15
MAX_BYTES = 1_500_000
IGNORE_TAGS = {"nbval-ignore-output", "nbval-skip"}
KNOWN_TAGS = {
    "parameters",
    "exercise",
    "quiz",
    "raises-exception",
    CLAIMS,
    LIVE_TIMING,
} | IGNORE_TAGS

_ASSERTS = re.compile(r"(?m)^\s*assert\b")
_NBVAL_COMMENT = re.compile(r"(?m)^\s*#\s*((?:NBVAL_|PYTEST_VALIDATE_)\w+)\s*$")
_BARE_WIDGET = re.compile(
    r"(?:\w*(?:Slider|Text|Textarea|Button|Buttons|Checkbox|Picker|Progress|Widget|Valid|Play|Output|Select|SelectMultiple)"
    r"|VBox|HBox|Box|GridBox|Accordion|Tab|Stack|HTML|HTMLMath|Label|Image|Dropdown|Combobox|Figure)\((?:\)|\{|\w+=)"
)
_FETCHES = re.compile(
    r"""\bsrc\s*=\s*["']?(?:https?:)?//|<link\b[^>]*\bhref\s*=\s*["']?(?:https?:)?//|url\(\s*["']?https?:"""
)


def defects(root: Path, names: Iterable[str] = ()) -> list[str]:
    """Lists the defects of the stored notebooks, one per line. If a source has changed, the
    difference is shown.

    Args:
        root: The folder that contains `notebooks/`.
        names: The notebooks to check. Without names, all are checked, and notebooks without a
            source are defects, too.
    """
    names = list(names)
    problems: list[str] = []
    belonging: set[Path] = set()
    try:
        sources = source_files(root, names)
    except SourceError as error:
        problems.append(str(error))
        sources = []
    for source in sources:
        for folder in (root / "notebooks", root / "notebooks" / "solutions"):
            belonging.add(folder / f"{source.stem}.ipynb")
        try:
            expected = editions(source)
        except SourceError as error:
            problems.append(str(error))
            continue
        if len(expected) == 1:
            belonging.discard(root / "notebooks" / "solutions" / f"{source.stem}.ipynb")
        for edition in expected:
            where = edition.path.relative_to(root)
            problems += [f"{where}: {problem}" for problem in edition_defects(edition, root)]
        problems += _apart(root, *(edition.path for edition in expected))
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
    if len(text.encode()) > MAX_BYTES:
        yield f"has {len(text.encode()) / 1e6:.1f} MB, over the limit of {MAX_BYTES / 1e6:.1f} MB"
    try:
        notebook = loads(text)
    except ValueError as error:
        yield str(error)
        return
    if dumps(canonical(notebook, edition.path.stem)) != text:
        yield f"not in canonical form; {_REMEDY}"
    if notebook.metadata.get("widgets"):
        yield "stores widget state"
    yield from _drift(notebook, edition)
    yield from _order(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            yield from (
                f"cell {cell.get('id', '?')}: {problem}" for problem in _cell_defects(cell, root)
            )


def exercises(reader: Any, solved: Any) -> dict[int, Any]:
    """Returns the reader's exercise cells, by the positions of their solutions in the solutions notebook."""
    pairs = _pairs(reader, solved)
    return {i: cell for i, cell in pairs if cell.source != solved.cells[i].source}


def _pairs(reader: Any, solved: Any) -> list[tuple[int, Any]]:
    """Returns the code cells of the reader's notebook, each after the position of its counterpart in the solutions."""
    cells = [cell for cell in reader.cells if cell.cell_type == "code"]
    numbered = enumerate(solved.cells)
    places = [i for i, c in numbered if c.cell_type == "code" and CLAIMS not in tags(c)]
    return list(zip(places, cells, strict=False))


def _apart(root: Path, *paths: Path) -> Iterator[str]:
    """Yields a defect for each cell whose outputs differ between the editions, because the tests run it only once."""
    try:
        reader, solved = (loads(path.read_text(encoding="utf-8")) for path in paths)
    except (OSError, ValueError):
        return  # there is only one edition, or one is missing or broken, which is reported elsewhere
    for i, cell in _pairs(reader, solved):
        other = solved.cells[i]
        if cell.source == other.source and _shown(cell) != _shown(other):
            yield (
                f"{paths[0].relative_to(root)}: cell {cell.id} has different outputs in the solutions ({other.id}),"
                " because an earlier solution or cell tagged 'claims' changed something, such as torch's random state"
            )


def _shown(cell: Any) -> list[dict[str, Any]]:
    kept = []
    for output in cell.outputs:
        kept.append({k: v for k, v in output.items() if k not in ("execution_count", "traceback")})
    return kept


_REMEDY = "run `make notebooks`"


def _drift(stored: Any, edition: Edition) -> Iterator[str]:
    """Yields a defect if the stored cells differ from the cells made from the source."""
    cells = []
    for notebook in (stored, edition.notebook):
        cells.append([(cell.cell_type, cell.metadata, cell.source) for cell in notebook.cells])
    if cells[0] != cells[1]:
        yield f"differs from its source; {_REMEDY}"


def _order(notebook: Any) -> Iterator[str]:
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    counts = [cell.execution_count for cell in code]
    if None in counts:
        unrun = [str(cell.get("id", "?")) for cell in code if cell.execution_count is None]
        yield f"code cell {', '.join(unrun)} was not run, so a test could not compare its outputs"
    elif counts != list(range(1, len(counts) + 1)):
        yield f"its cells were not run once, from top to bottom (counts {counts})"
    if not code:
        yield "has no code cell"


def _cell_defects(cell: Any, root: Path) -> Iterator[str]:
    for judge in (_too_long, _odd_tags, _claims, _errors, _pictures):
        yield from judge(cell)
    yield from leaks(cell, root)


def _too_long(cell: Any) -> Iterator[str]:
    lines = sum(bool(line.strip()) for line in cell.source.splitlines())
    if lines > MAX_LINES and CLAIMS not in tags(cell):
        yield f"has {lines} lines of code, over the limit of {MAX_LINES}"


def _odd_tags(cell: Any) -> Iterator[str]:
    own = set(tags(cell))
    if unknown := own - KNOWN_TAGS:
        yield f"unknown tag {', '.join(sorted(unknown))}; the known tags are {', '.join(sorted(KNOWN_TAGS))}"
    if own & IGNORE_TAGS and LIVE_TIMING not in own:
        yield f"is tagged {', '.join(sorted(own & IGNORE_TAGS))} but not {LIVE_TIMING!r}"
    if LIVE_TIMING in own and not own & IGNORE_TAGS:
        yield f"is tagged {LIVE_TIMING!r} but not 'nbval-ignore-output'"
    for comment in _NBVAL_COMMENT.findall(cell.source):
        yield f"the comment {comment} hides it from the tests; only a tag of a live timing may do that"


def _claims(cell: Any) -> Iterator[str]:
    if CLAIMS not in tags(cell):
        if _ASSERTS.search(cell.source) and "exercise" not in tags(cell):
            yield "contains an assertion; move it to a cell tagged 'claims' after this one"
        return
    if not _ASSERTS.search(cell.source):
        yield "is tagged 'claims' but asserts nothing"
    if cell.outputs:
        yield "is tagged 'claims' but has output; move the output to a cell that readers have, too"


def _errors(cell: Any) -> Iterator[str]:
    raised = [output.ename for output in cell.outputs if output.output_type == "error"]
    if raised and "raises-exception" not in tags(cell):
        yield f"stores an error ({raised[0]}) but is not tagged 'raises-exception'"
    if "raises-exception" in tags(cell) and cell.execution_count is not None and not raised:
        yield "is tagged 'raises-exception' but raises no error"


def _pictures(cell: Any) -> Iterator[str]:
    for output in (output for output in cell.outputs if "data" in output):
        data = output.data
        bare = _BARE_WIDGET.match(text_of(data))
        if PLOTLY in data and not png_of(output):
            yield "a chart has no image"
        if PLOTLY in data and not text_of(data):
            yield "a chart has no text"
        described = has_own_html(output) or data.get("text/html") == as_html(output)
        if is_picture(output) and not described:
            yield "a picture has no text/html output with its text"
        if bare:
            yield f"an output's text is only {bare[0]}…); give it a text that says what it shows"
        if WIDGET_VIEW in data:
            yield "stores a widget view"
            if bare or "text/plain" not in data or not {"image/svg+xml", "text/html"} & set(data):
                yield "a widget view needs a picture (image/svg+xml) or a table (text/html), and a text"
        if any(_FETCHES.search(str(data.get(kind, ""))) for kind in ("text/html", "image/svg+xml")):
            yield "an output fetches from the network"
