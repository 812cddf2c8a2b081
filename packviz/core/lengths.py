"""Reads lengths from typed text or a file, and generates lengths with various distributions.

Examples:
    >>> import packviz as pv
    >>> pv.lengths.triangle(4, 8).tolist()
    [8, 7, 6, 5]
"""

from __future__ import annotations

import csv
import json
import math
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO

import numpy as np

from packviz.core import sentences as real
from packviz.core.layout import IntArray


def read(source: str | os.PathLike[str] | TextIO, column: str | None = None) -> list[float]:
    """Reads lengths from a file, or from typed or pasted text.

    Args:
        source: the path of a text, CSV, JSON or NumPy (`.npy`) file; `"-"` for standard input; an
            open text file; or the text itself. A string is a path if such a file exists, or if the
            string ends in `.csv`, `.json`, `.npy` or `.txt`. The text may be a JSON list or object;
            numbers separated by commas, semicolons, spaces or line breaks; or a table (CSV, or
            pasted from a spreadsheet) whose first line names its columns.
        column: the column of a table, or the key of a JSON object, that contains the lengths.
            Defaults to the column named `length` or `lengths`, or to the only column.

    Returns:
        The numbers in their original order. They may be invalid as lengths; `Layout` checks that.

    Raises:
        ValueError: the file cannot be read, the text is empty, an entry is not a number, or the
            column does not exist.
    """
    name = _name_of(source)
    try:
        if hasattr(source, "read"):
            text = source.read()
        elif name == "-":
            name, text = "standard input", sys.stdin.read()
        elif name.endswith(".npy"):
            text = str(np.load(name, allow_pickle=False).tolist())
        else:
            text = Path(name).read_text(encoding="utf-8-sig") if name else str(source)
    except (OSError, EOFError, ValueError) as error:  # includes Unicode errors and NumPy's errors
        reason = (
            getattr(error, "strerror", None) or "neither a text file nor a NumPy file of numbers"
        )
        raise ValueError(f"cannot read {name}: {reason}") from None
    try:
        if name.endswith(".csv"):
            _require_heading(text)
        return _parse(text.strip(), column)
    except ValueError as error:
        raise ValueError(f"{name}: {error}" if name else str(error)) from None


_SUFFIXES = (".csv", ".json", ".npy", ".txt")
_NUMBER = re.compile(r"[-+]?(nan|inf|infinity|[\d_.]+(e[-+]?\d+)?)", re.IGNORECASE)


def _name_of(source: str | os.PathLike[str] | TextIO) -> str:
    """Returns the path of a file, the name of an open file, or an empty string for text."""
    if not isinstance(source, str):
        return str(getattr(source, "name", "")) if hasattr(source, "read") else os.fspath(source)
    try:
        is_path = source == "-" or Path(source).suffix in _SUFFIXES or Path(source).exists()
    except (OSError, ValueError):  # the text is too long for a path, or is not a path
        return ""
    return source if is_path and "\n" not in source else ""


def _parse(text: str, column: str | None) -> list[float]:
    if not text:
        raise ValueError("no lengths given; type some, as in 5, 3, 2")
    if text[0] in "[{":
        return _from_json(text, column)
    lines, entries = text.splitlines(), re.split(r"[\s,;]+", text.strip(",; \n"))
    if len(lines) > 1 and re.search(r"[A-Za-z]", lines[0]) and not _NUMBER.fullmatch(entries[0]):
        return _from_table(lines, column)
    if column is not None:
        raise ValueError(
            f"column is {column!r}, but no first line names columns; add one, or leave column out"
        )
    return [_number(entry, i) for i, entry in enumerate(entries)]


def triangle(batch_size: int, longest: int, seed: int = 0) -> IntArray:
    """Returns `(B,)` lengths that repeatedly count down from `longest` to 1, as in setup B of the forum benchmark."""
    return longest - np.arange(batch_size) % longest


def uniform(batch_size: int, longest: int, seed: int = 0) -> IntArray:
    """Returns `(B,)` lengths drawn uniformly from 1 to `longest`."""
    return np.random.default_rng(seed).integers(1, longest, size=batch_size, endpoint=True)


def log_normal(
    batch_size: int, longest: int, seed: int = 0, *, median: float | None = None
) -> IntArray:
    """Returns `(B,)` lengths like those of sentences: most are short, a few are long, and none
    exceeds `longest`.

    The median defaults to a quarter of `longest`.
    """
    middle = max(longest / 4, 1) if median is None else median
    drawn = np.random.default_rng(seed).lognormal(math.log(middle), 0.8, size=batch_size)
    return np.clip(np.rint(drawn), 1, longest).astype(np.int64)


def evenly(batch_size: int, longest: int, seed: int = 0) -> IntArray:
    """Returns `(B,)` lengths spread evenly from `longest` down to 1."""
    return np.rint(np.linspace(longest, 1, batch_size)).astype(np.int64)


def equal(batch_size: int, longest: int, seed: int = 0) -> IntArray:
    """Returns `(B,)` lengths that all equal `longest`, so there is no padding."""
    return np.full(batch_size, longest)


def nearly_equal(batch_size: int, longest: int, seed: int = 0) -> IntArray:
    """Returns `(B,)` lengths drawn uniformly from 95 % of `longest` up to `longest`."""
    low = longest - longest // 20
    return np.random.default_rng(seed).integers(low, longest, size=batch_size, endpoint=True)


def sentences(batch_size: int, longest: int, seed: int = 0) -> IntArray:
    """Returns `(B,)` lengths of real sentences, capped at `longest`. If there are too few sentences, they repeat."""
    return np.resize([min(len(sentence), longest) for sentence in real.sentences()], batch_size)


DISTRIBUTIONS: dict[str, Callable[[int, int, int], IntArray]] = {
    "uniform": uniform,
    "triangle": triangle,
    "log-normal": log_normal,
    "equal": equal,
    "nearly equal": nearly_equal,
    "evenly": evenly,
    "sentences": sentences,
}
"""The distributions by name. Each is a function of `(batch_size, longest, seed)`."""

RANDOM = ("uniform", "log-normal", "nearly equal")
"""The distributions that depend on the seed."""


def spread(distinct: int, batch_size: int, longest: int) -> list[int]:
    """Returns `(B,)` lengths with `distinct` different values, longest first, spread evenly from
    `longest` down to 1.

    Apart from rounding, the values are symmetric around `(longest + 1) / 2`; a single value lies in
    the middle. So if `distinct` divides `batch_size`, and either `longest` is odd or `distinct` is
    even, the number of real cells, which is the sum of the lengths, does not depend on `distinct`.

    Raises:
        ValueError: `distinct` exceeds `longest` or `batch_size`, or is less than 1.
    """
    if not 1 <= distinct <= min(batch_size, longest):
        raise ValueError(
            f"distinct is {distinct}; {batch_size} sequences of at most {longest} time steps can have"
            f" 1 … {min(batch_size, longest)} distinct lengths"
        )
    gaps = max(distinct - 1, 1)
    upper = [longest - (2 * i * (longest - 1) + gaps) // (2 * gaps) for i in range(distinct // 2)]
    middle = [(longest + 1) // 2] * (distinct % 2)
    values = [*upper, *middle, *(longest + 1 - n for n in reversed(upper))]
    return [values[i * distinct // batch_size] for i in range(batch_size)]


def even_steps(distinct: int, size: int) -> list[int]:
    """Returns `(size,)` lengths from `size` down to 1, with `distinct` evenly spread values that
    occur equally often.

    The number of real cells, which is the sum of the lengths, is `size · (size + 1) / 2` for every
    valid `distinct`.

    Raises:
        ValueError: `distinct` is less than 2 or does not divide `size`, or `distinct - 1` does not
            divide `size - 1`.
    """
    if distinct < 2 or size % distinct or (size - 1) % (distinct - 1):
        fits = [d for d in range(2, size + 1) if size % d == 0 and (size - 1) % (d - 1) == 0]
        raise ValueError(f"distinct is {distinct}; for {size} sequences choose one of {fits}")
    return spread(distinct, size, size)


def _from_json(text: str, column: str | None) -> list[float]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        why = error if isinstance(error, ValueError) else "its lists are nested too deeply"
        raise ValueError(f"not valid JSON: {why}") from None
    if isinstance(value, dict):
        value = value[_column([*value], column)]
    elif column is not None:
        raise ValueError(f"column is {column!r}, but a list has no columns; leave column out")
    if not isinstance(value, list):
        raise ValueError('JSON must be a list of numbers, or an object with one under "lengths"')
    return [_number(str(entry), i) for i, entry in enumerate(value)]


def _require_heading(text: str) -> None:
    """Rejects a CSV file with several columns but no column names, because any column could contain the lengths."""
    columns = {len(re.split("[,;\t]", line)) for line in text.split("\n") if line.strip()}
    if (
        len(text.strip().splitlines()) > 1
        and len(columns) == 1
        and columns != {1}
        and not re.search("[A-Za-z]", text)
    ):
        raise ValueError(
            f"a table with {columns.pop()} columns needs a header line that names them"
        )


def _from_table(lines: list[str], column: str | None) -> list[float]:
    delimiter = next((mark for mark in "\t;" if mark in lines[0]), ",")
    try:
        rows = [row for row in csv.reader(lines, delimiter=delimiter) if row]
    except csv.Error as error:
        raise ValueError(f"not a valid table: {error}") from None
    names = [name.strip() for name in rows[0]]
    i = names.index(_column(names, column))
    return [_number(row[i] if i < len(row) else "", b) for b, row in enumerate(rows[1:])]


def _column(names: Sequence[str], column: str | None) -> str:
    """Returns the name of the column that contains the lengths.

    Raises:
        ValueError: the column does not exist.
    """
    found = [
        name
        for name in names
        if (name == column if column else name.lower() in ("length", "lengths"))
    ]
    if not found and (column is not None or len(names) != 1):
        problem = f"{column!r}" if column else "'length', so name one with column="
        raise ValueError(f"no column is named {problem}; the columns are {', '.join(names)}")
    return found[0] if found else names[0]


def _number(entry: str, index: int) -> float:
    try:
        value = float(entry)
    except ValueError:
        raise ValueError(
            f"entry {index} is {entry!r}; lengths are whole numbers, as in 5, 3, 2"
        ) from None
    return int(value) if value.is_integer() and abs(value) < 2**53 else value
