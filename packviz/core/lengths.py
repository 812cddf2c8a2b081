"""Where lengths come from: typed text, a file, or a distribution.

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
    """Reads lengths from a file, or from text as a person types or pastes it.

    Args:
        source: the path of a text, CSV, JSON or NumPy (`.npy`) file; `"-"` for standard input; an open text file; or
            the text itself. A string counts as a path if such a file exists or if it ends in `.csv`, `.json`, `.npy` or
            `.txt`. The text is a JSON list; or numbers separated by commas, semicolons, blanks or line ends; or a
            table, as CSV or pasted from a spreadsheet, whose first line names its columns.
        column: the column of a table, or the key of a JSON object, that holds the lengths. By default it is the one
            named `length` or `lengths`, or the only one.

    Returns:
        The numbers in their order. They are not checked to be lengths yet: `Layout` does that, and names a wrong entry.

    Raises:
        ValueError: the file cannot be read, the text is empty, an entry is not a number, or there is no such column.
    """
    name = _name_of(source)
    try:
        if name.endswith(".npy") and not hasattr(source, "read"):
            return _from_array(name, column)
        if hasattr(source, "read"):
            text = source.read()
        elif name == "-":
            name, text = "standard input", sys.stdin.read()
        else:
            text = Path(name).read_text(encoding="utf-8-sig") if name else str(source)
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read {name}: {getattr(error, 'strerror', None) or 'not a text file'}") from None
    try:
        if name.endswith(".csv"):
            _require_heading(text)
        return _parse(text.strip(), column)
    except ValueError as error:
        raise ValueError(f"{name}: {error}" if name else str(error)) from None


_SUFFIXES = (".csv", ".json", ".npy", ".txt")
_NUMBER = re.compile(r"[-+]?(nan|inf|infinity|[\d_.]+(e[-+]?\d+)?)", re.IGNORECASE)


def _name_of(source: str | os.PathLike[str] | TextIO) -> str:
    """The path of a file, the name of an open one, or nothing for text."""
    if not isinstance(source, str):
        return str(getattr(source, "name", "")) if hasattr(source, "read") else os.fspath(source)
    try:
        is_path = source == "-" or Path(source).suffix in _SUFFIXES or Path(source).exists()
    except (OSError, ValueError):  # too long for a path, or not one
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
        raise ValueError(f"column is {column!r}, but there is no table whose first line names its columns")
    return [_number(entry, i) for i, entry in enumerate(entries)]


def triangle(batch_size: int, longest: int, seed: int = 0) -> IntArray:
    """`(B,)` lengths counting down by one from `longest`, over and over: setup B of the forum benchmark."""
    return longest - np.arange(batch_size) % longest


def uniform(batch_size: int, longest: int, seed: int = 0) -> IntArray:
    """`(B,)` lengths drawn evenly from 1 … `longest`."""
    return np.random.default_rng(seed).integers(1, longest, size=batch_size, endpoint=True)


def log_normal(batch_size: int, longest: int, seed: int = 0, *, median: float | None = None) -> IntArray:
    """`(B,)` lengths as sentences have them: most short, a few long, none over `longest`.

    The median is a quarter of `longest` if not given.
    """
    middle = max(longest / 4, 1) if median is None else median
    drawn = np.random.default_rng(seed).lognormal(math.log(middle), 0.8, size=batch_size)
    return np.clip(np.rint(drawn), 1, longest).astype(np.int64)


def evenly(batch_size: int, longest: int, seed: int = 0) -> IntArray:
    """`(B,)` lengths spread evenly from `longest` down to 1."""
    return np.rint(np.linspace(longest, 1, batch_size)).astype(np.int64)


def equal(batch_size: int, longest: int, seed: int = 0) -> IntArray:
    """`(B,)` lengths that are all `longest`: no padding at all."""
    return np.full(batch_size, longest)


def nearly_equal(batch_size: int, longest: int, seed: int = 0) -> IntArray:
    """`(B,)` lengths drawn evenly from the last twentieth up to `longest`: they vary by at most 5 %."""
    low = longest - longest // 20
    return np.random.default_rng(seed).integers(low, longest, size=batch_size, endpoint=True)


def sentences(batch_size: int, longest: int, seed: int = 0) -> IntArray:
    """`(B,)` lengths of real sentences, over and over, cut at `longest`."""
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
"""Functions of `(batch_size, longest, seed)`."""

RANDOM = ("uniform", "log-normal", "nearly equal")
"""The distributions that use their seed."""


def spread(distinct: int, batch_size: int, longest: int) -> list[int]:
    """`batch_size` lengths with so many distinct values, longest first, spread evenly from `longest` down to 1.

    They lie symmetrically around `(longest + 1) / 2`. So where `longest` is odd and `distinct` divides `batch_size`,
    their sum is the same for every even `distinct` and for 1: the same number of real cells.

    Raises:
        ValueError: there are not so many lengths, or not so many sequences.
    """
    if not 1 <= distinct <= min(batch_size, longest):
        raise ValueError(
            f"distinct is {distinct}; {batch_size} sequences of at most {longest} time steps have"
            f" 1 … {min(batch_size, longest)} distinct lengths"
        )
    gaps = max(distinct - 1, 1)
    upper = [longest - (2 * i * (longest - 1) + gaps) // (2 * gaps) for i in range(distinct // 2)]
    middle = [(longest + 1) // 2] * (distinct % 2)
    values = [*upper, *middle, *(longest + 1 - n for n in reversed(upper))]
    return [values[i * distinct // batch_size] for i in range(batch_size)]


def even_steps(distinct: int, size: int) -> list[int]:
    """`size` lengths from `size` down to 1 in `distinct` even steps, each length equally often.

    Their sum is `size · (size + 1) / 2` whatever `distinct` is: the same number of real cells.

    Raises:
        ValueError: `distinct` is under 2, does not divide `size`, or one less does not divide `size - 1`.
    """
    if distinct < 2 or size % distinct or (size - 1) % (distinct - 1):
        fits = [d for d in range(2, size + 1) if size % d == 0 and (size - 1) % (d - 1) == 0]
        raise ValueError(f"distinct is {distinct}; for {size} sequences choose one of {fits}")
    return spread(distinct, size, size)


def _from_array(path: str, column: str | None) -> list[float]:
    if column is not None:
        raise ValueError(f"column is {column!r}, but {path} holds an array, whose columns have no names")
    try:
        array = np.load(path, allow_pickle=False)
    except (ValueError, EOFError):
        raise ValueError(f"{path} is not a numpy file of numbers") from None
    if array.ndim != 1 or array.dtype.kind not in "iuf":
        raise ValueError(f"{path} holds {array.dtype} of shape {array.shape}; lengths are one row of numbers")
    return [_number(str(entry), i) for i, entry in enumerate(array.tolist())]


def _from_json(text: str, column: str | None) -> list[float]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        why = error if isinstance(error, ValueError) else "its lists are nested too deeply"
        raise ValueError(f"not valid JSON: {why}") from None
    if isinstance(value, dict):
        value = value[_column([*value], column)]
    elif column is not None:
        raise ValueError(f"column is {column!r}, but the JSON is a list; a column is a key of an object")
    if not isinstance(value, list):
        raise ValueError('JSON must be a list of numbers, or an object with one under "lengths"')
    return [_number(str(entry), i) for i, entry in enumerate(value)]


def _require_heading(text: str) -> None:
    """Refuses a CSV file of several columns without names, because nobody knows which of them holds the lengths."""
    columns = {len(re.split("[,;\t]", line)) for line in text.split("\n") if line.strip()}
    if len(text.strip().splitlines()) > 1 and len(columns) == 1 and columns != {1} and not re.search("[A-Za-z]", text):
        raise ValueError(f"a table with {columns.pop()} columns needs a first line that names them")


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
    """The column that holds the lengths.

    Raises:
        ValueError: there is no such column.
    """
    found = [name for name in names if (name == column if column else name.lower() in ("length", "lengths"))]
    if not found and (column is not None or len(names) != 1):
        problem = f"{column!r}" if column else "'length', so name one with column="
        raise ValueError(f"no column is named {problem}; there are {', '.join(names)}")
    return found[0] if found else names[0]


def _number(entry: str, index: int) -> float:
    try:
        value = float(entry)
    except ValueError:
        raise ValueError(f"entry {index} is {entry!r}; lengths are whole numbers, as in 5, 3, 2") from None
    return int(value) if value.is_integer() and abs(value) < 2**53 else value
