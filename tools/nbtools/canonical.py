"""Converts a notebook to its stored form, and finds content that depends on the machine."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat

PLOTLY = "application/vnd.plotly.v1+json"
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
LIVE_TIMING = "live-timing"
RECORDED = "Recorded on "
"""How the stored output of a live timing begins, before the date and the machine."""
CELL_OPTIONS = {"tags", "jupyter"}
"""The metadata that a cell keeps, and the only options of a cell in a source."""
METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}

_BINARY = {"image/png", "image/jpeg", "bdata"}
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_BASE64 = re.compile(r";base64,[A-Za-z0-9+/=]+")
_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
_LEAKS = {
    "somebody's path": re.compile(
        r"(?<![\w.])(?:/home/|/Users/|/root/|/tmp/|/var/folders/|[A-Za-z]:\\+Users\\)\S*"
    ),
    "the memory address": re.compile(r"\bat 0x[0-9a-fA-F]{6,}"),
    "the random id": re.compile(rf"\b(?:{_UUID}|[0-9a-f]{{32}})\b"),
}


def canonical(notebook: Any, stem: str) -> Any:
    """Returns a copy of a notebook in its stored form. A second call on the copy changes nothing.

    Widget state and views, timings and versions are dropped. Cell ids consist of the notebook's
    number and the cell's position. Consecutive streams are joined. A traceback keeps only the
    cell's own lines, not those of libraries. A live timing has no stderr, where its progress goes.

    Args:
        notebook: An nbformat 4 notebook.
        stem: The file's name without its suffix, `NN_name`.
    """
    own = copy.deepcopy(notebook.cells)
    cells = [_cell(cell, f"{stem[:2]}-{i:02d}") for i, cell in enumerate(own)]
    return nbformat.from_dict(
        {"cells": cells, "metadata": METADATA, "nbformat": 4, "nbformat_minor": 5}
    )


def dumps(notebook: Any) -> str:
    """Returns a notebook as JSON with sorted keys and an indentation of one space."""
    return f"{nbformat.writes(notebook)}\n"


def loads(text: str) -> Any:
    """Reads a notebook from JSON.

    Raises:
        ValueError: The text is not a valid notebook.
    """
    try:
        notebook = nbformat.reads(text, as_version=4)
        nbformat.validate(notebook)
    except Exception as error:
        raise ValueError(f"not a valid notebook: {str(error).splitlines()[0]}") from error
    return notebook


def tags(cell: Any) -> list[str]:
    """Returns a cell's tags."""
    return list(cell.metadata.get("tags", []))


def text_of(data: Any) -> str:
    """Returns an output's `text/plain`, or an empty string."""
    return str(data.get("text/plain", ""))


def plain(text: str) -> str:
    """Removes the colours from a terminal text."""
    return _ANSI.sub("", text)


def leaks(cell: Any, root: Path) -> list[str]:
    """Lists everything in a cell's outputs that depends on the run or the machine.

    Args:
        cell: A code cell.
        root: The repository's folder.
    """
    text = "\n".join(_strings(cell.get("outputs", [])))
    text = _BASE64.sub("", plain(text))
    own = re.compile(rf"(?<![\w.]){re.escape(str(root))}(?![\w.-])")
    hits = {}
    for kind, pattern in {"this machine's path": own, **_LEAKS}.items():
        for match in pattern.finditer(text):
            hits[f"an output contains {kind} {match[0]}"] = True
    return [*hits]


def _strings(value: Any) -> Iterator[str]:
    """Yields every text in a JSON value, except pictures and packed numbers."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key not in _BINARY:
                yield from _strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)


def is_recorded(cell: Any) -> bool:
    """Returns whether a cell is a live timing with a stored result and its conditions."""
    if LIVE_TIMING not in tags(cell) or not cell.outputs:
        return False
    return str(cell.outputs[0].get("text", "")).startswith(RECORDED)


def _cell(cell: Any, identity: str) -> dict[str, Any]:
    options = cell.metadata.items()
    kept = {key: value for key, value in options if value and key in CELL_OPTIONS}
    result = {"cell_type": cell.cell_type, "id": identity, "metadata": kept, "source": cell.source}
    if cell.cell_type == "code":
        result["execution_count"] = cell.get("execution_count")
        result["outputs"] = _outputs(cell)
    return result


def _outputs(cell: Any) -> list[dict[str, Any]]:
    result: list[dict[str, Any]] = []
    for output in cell.outputs:
        if LIVE_TIMING in tags(cell) and output.get("name") == "stderr":
            continue
        if output.output_type == "error":
            # The frames of libraries differ between installations.
            frames = output.traceback
            output.traceback = [line for line in frames if not plain(line).startswith("File ")]
        output.get("data", {}).pop(WIDGET_VIEW, None)
        if output.output_type == "stream" and result and result[-1].get("name") == output.name:
            result[-1]["text"] += output.text
        elif output.get("data") != {}:  # which is left of a widget's view
            result.append(output)
    return result
