"""Reads result files and appends to them. Such a file has a line of JSON for each measured point.

The first line is the head: the kind of the file, the version of its format, and the provenance.
Every further line is a row, which has a point's fields and what was measured there:

    {"packviz": "methods", "version": 2, "provenance": {…}}
    {"mode": "GRU", …, "training": {…}, "forward": {…}}

A row is appended under a lock, so several processes can write to the same file, but not on Windows,
which has no such lock.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

from packviz.core.util import PathLike, require_suffix
from packviz.measure.machine import JsonDict

try:
    import fcntl
except ModuleNotFoundError:  # Windows has no such module
    fcntl = None  # type: ignore[assignment]


def find_file(name: PathLike) -> Path:
    """Returns the path of a result file. Inside a checkout, the name of a recorded file is enough.

    Raises:
        ValueError: there is no such file.
    """
    for folder in (Path(), *_recorded_folders()):
        if (folder / name).is_file():
            return folder / name
    raise ValueError(
        f"there is no result file {os.fspath(name)!r}; give its path, or the name of a file in"
        " recorded/ or notebooks/recorded/, in this folder or above it"
    )


def recorded_files(kind: str) -> list[Path]:
    """Returns the paths of an experiment's recorded files, which are named `KIND_….json`."""
    paths = {
        path.name: path for folder in _recorded_folders() for path in folder.glob(f"{kind}_*.json")
    }
    return [paths[name] for name in sorted(paths)]


def _recorded_folders() -> Iterator[Path]:
    """Yields the folders that may contain recorded files, here and in the folders above."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        yield folder / "recorded"
        yield folder / "notebooks" / "recorded"


def read(path: PathLike, kind: str, version: int) -> tuple[JsonDict, list[JsonDict]]:
    """Returns the provenance and the rows of a result file.

    Raises:
        ValueError: the file is damaged, or has a different kind or version.
    """
    name = os.fspath(path)
    try:
        content = Path(path).read_text(encoding="utf-8")
        # An interrupted process may have left half a line.
        complete_lines, _, _ = content.rpartition("\n")
        head, *rows = [json.loads(line) for line in complete_lines.splitlines()]
        actual_format = f"{head['packviz']!r}, version {head['version']!r}"
        place = head["provenance"]
    except (ValueError, KeyError, TypeError):
        raise ValueError(
            f"{name} is not a result file, or is damaged; choose another file"
        ) from None
    expected_format = f"{kind!r}, version {version!r}"
    if actual_format != expected_format:
        raise ValueError(
            f"{name} contains results of {actual_format}, not of {expected_format}; measure into"
            " another file"
        )
    return place, rows


def append_row(path: PathLike, head: JsonDict, row: JsonDict) -> None:
    """Appends a row to a result file, and first the head if the file is empty or does not exist.

    Raises:
        ValueError: the path does not end in `.json`, or the row contains NaN or an infinite number.
        OSError: the folder does not exist or is not writable.
    """
    require_suffix("path", path, [".json"])
    line = json.dumps(row, allow_nan=False)
    with open(path, "ab+") as file:
        if fcntl:
            fcntl.flock(file, fcntl.LOCK_EX)  # until the file is closed
        file.seek(0)
        content = file.read()
        complete_size = content.rfind(b"\n") + 1
        file.truncate(complete_size)  # drops a line that an interrupted process left incomplete
        if not complete_size:
            line = f"{json.dumps(head)}\n{line}"
        file.write(f"{line}\n".encode())
