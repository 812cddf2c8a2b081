"""Reads and writes result files, which are JSON with a kind and a version, so that readers can
reject other formats.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from packviz.core.util import require_suffix

_RECORDED = ("recorded", "notebooks/recorded")


def save(path: str | os.PathLike[str], kind: str, version: int, data: Mapping[str, Any]) -> None:
    """Writes a result file, either completely or not at all.

    Args:
        path: the path of the file, which must end in `.json`.
        kind: the name of the experiment.
        version: the format version of `data`. A reader that expects a different version rejects the
            file.
        data: the results, which JSON must be able to represent.

    Raises:
        ValueError: the path has a different suffix, or the data contains NaN or an infinite number.
    """
    require_suffix("path", path, [".json"])
    contents = {"packviz": kind, "version": version, **data}
    text = json.dumps(contents, indent=1, allow_nan=False)
    draft = Path(f"{os.fspath(path)}.part")
    draft.write_text(f"{text}\n", encoding="utf-8")
    os.replace(draft, path)


def load(name: str | os.PathLike[str], kind: str, version: int) -> dict[str, Any]:
    """Reads a result file.

    Args:
        name: the path of the file. Inside a checkout, the name of a file in `notebooks/recorded/`
            is enough.
        kind: the expected name of the experiment.
        version: the expected version of the format.

    Raises:
        ValueError: the file does not exist, is not JSON, or has a different kind or version.
    """
    paths = (folder / name for folder in _folders("", *_RECORDED))
    path = next(filter(Path.is_file, paths), None)
    if path is None:
        places = "here or in a folder recorded/ above"
        raise ValueError(f"there is no result file {os.fspath(name)!r}, {places}")
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise ValueError(f"{name} is not a JSON file") from None
    header = data if isinstance(data, dict) else {}
    actual = f"{header.get('packviz')!r}, version {header.get('version')!r}"
    expected = f"{kind!r}, version {version}"
    if actual != expected:
        raise ValueError(f"{name} contains {actual}; expected {expected}")
    return header


def available(kind: str) -> list[str]:
    """Returns the names of an experiment's recorded files, all of the form `KIND_….json`. `load`
    accepts them.
    """
    folders = _folders(*_RECORDED)
    return sorted({path.name for folder in folders for path in folder.glob(f"{kind}_*.json")})


def _folders(*names: str) -> Iterator[Path]:
    """Yields the folders with these names, in the current folder and in every folder above it."""
    here = Path.cwd()
    return (folder / name for folder in (here, *here.parents) for name in names)
