"""Where lengths come from: typed text, a file, or a distribution."""

from __future__ import annotations

import csv
import json
import math
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from packviz.core import sentences as real
from packviz.core.layout import IntArray


def parse(text: str) -> list[float]:
    """Reads lengths from text as a person types or pastes them.

    Args:
        text: a JSON list; or numbers separated by commas, semicolons, blanks or line ends; or a table, as CSV or pasted
            from a spreadsheet, with a column headed `length` or `lengths` (or with one column under any heading).

    Returns:
        The numbers in their order, not yet checked to be lengths: `Layout` does that, and names the entry at fault.

    Raises:
        ValueError: the text is empty, or an entry is not a number.
    """
    text = text.strip()
    if not text:
        raise ValueError("no lengths given; type some, as in 5, 3, 2")
    if text[0] in "[{":
        return _from_json(text)
    lines, entries = text.splitlines(), re.split(r"[\s,;]+", text.strip(",; \n"))
    if len(lines) > 1 and re.search(r"[A-Za-z]", lines[0]) and not _is_number(entries[0]):
        return _from_table(lines)
    return [_number(entry, i) for i, entry in enumerate(entries)]


def read(path: str) -> list[float]:
    """Reads lengths from a file of text, CSV, JSON or numpy (.npy), or from standard input if `path` is `-`.

    Raises:
        ValueError: there is no such file, or it does not hold lengths (see `parse`).
    """
    try:
        if path.endswith(".npy"):
            return _from_array(path)
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read {path}: {getattr(error, 'strerror', None) or 'not a text file'}") from None
    return parse_file("standard input" if path == "-" else path, text)


def typed(words: Sequence[str], file: str | None = None) -> list[float]:
    """Reads the lengths that a command was given: numbers, or the name of a file, in their place or as an option.

    Raises:
        ValueError: there are neither, or both; or they are not lengths (see `parse`).
    """
    if bool(words) == bool(file):
        raise ValueError("give the lengths, as in 5 3 2, or a file with --file, not both")
    if not file and len(words) == 1 and (Path(words[0]).suffix in _SUFFIXES or Path(words[0]).is_file()):
        file = words[0]
    return read(file) if file else parse(" ".join(words))


_SUFFIXES = (".csv", ".json", ".npy", ".txt")


def parse_file(name: str, text: str) -> list[float]:
    """Reads lengths from the text of a file of this name, which stands in a complaint.

    Raises:
        ValueError: it does not hold lengths (see `parse`).
    """
    try:
        if name.endswith(".csv"):
            _refuse_headless_table(text)
        return parse(text)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


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


def _from_array(path: str) -> list[float]:
    try:
        array = np.load(path, allow_pickle=False)
    except (ValueError, EOFError):
        raise ValueError(f"{path} is not a numpy file of numbers") from None
    if array.ndim != 1 or array.dtype.kind not in "iuf":
        raise ValueError(f"{path} holds {array.dtype} of shape {array.shape}; lengths are one row of numbers")
    return [_number(str(entry), i) for i, entry in enumerate(array.tolist())]


def _from_json(text: str) -> list[float]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"not valid JSON: {error}") from None
    except RecursionError:
        raise ValueError("not valid JSON: lists in lists, too many") from None
    if isinstance(value, dict):
        value = value.get("lengths")
    if not isinstance(value, list):
        raise ValueError('JSON must be a list of numbers, or an object with one under "lengths"')
    return [_number(str(entry), i) for i, entry in enumerate(value)]


def _refuse_headless_table(text: str) -> None:
    """Rows of several numbers in a CSV file are a table; without a heading nobody knows which column to take."""
    columns = {len(re.split("[,;\t]", line)) for line in text.split("\n") if line.strip()}
    if len(text.strip().splitlines()) > 1 and len(columns) == 1 and columns != {1} and not re.search("[A-Za-z]", text):
        raise ValueError(f"a table of {columns.pop()} columns needs a first line that names them, one of them 'length'")


def _from_table(lines: list[str]) -> list[float]:
    delimiter = next((mark for mark in "\t;" if mark in lines[0]), ",")
    try:
        rows = [row for row in csv.reader(lines, delimiter=delimiter) if row]
    except csv.Error as error:
        raise ValueError(f"not a valid table: {error}") from None
    names = [name.strip().lower() for name in rows[0]]
    column = next((i for i, name in enumerate(names) if name in ("length", "lengths")), None)
    if column is None:
        if len(names) > 1:
            raise ValueError(f"no column is headed 'length'; there are {', '.join(names)}")
        column = 0
    return [_number(row[column] if column < len(row) else "", i) for i, row in enumerate(rows[1:])]


def _number(entry: str, index: int) -> float:
    try:
        value = float(entry)
    except ValueError:
        raise ValueError(f"entry {index} is {entry!r}; lengths are whole numbers, as in 5, 3, 2") from None
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def _is_number(entry: str) -> bool:
    try:
        float(entry)
    except ValueError:
        return False
    return True
