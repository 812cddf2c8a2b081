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

import numpy as np

from packviz.core import sentences as real
from packviz.core.layout import IntArray, read_lengths
from packviz.core.util import PathLike, warn
from packviz.core.validation import kind_of, require_at_least


def read(source: PathLike, column: str | None = None) -> list[float]:
    """Reads lengths from a file, or from typed or pasted text.

    Args:
        source: the path of a text, CSV, JSON or NumPy (`.npy`) file; `"-"` for standard input; or
            the text itself (see `parse`). A string is a path if such a file exists, or if it looks
            like the name of a file. A NumPy file may also contain a mask.
        column: the column of a table, or the key of a JSON object, that contains the lengths.
            Defaults to the column named `length` or `lengths`, or to the only column. Ignored for a
            NumPy file.

    Returns:
        The numbers in their original order. Those of a NumPy file are valid lengths; `Layout`
        checks the others.

    Raises:
        ValueError: the file cannot be read, or `parse` rejects its text.
        TypeError: `source` is neither a path nor text.
    """
    if not isinstance(source, (str, os.PathLike)):
        raise TypeError(f"source is {kind_of(source)}; give a path, or text such as '5, 3, 2'")
    name = os.fspath(source)
    is_file = isinstance(source, os.PathLike) or name == "-" or os.path.exists(name[:255])
    looks_like_file = _FILE_NAME.fullmatch(name) is not None
    if _parse_number(name) is not None or not (is_file or looks_like_file):
        return parse(name, column)
    try:
        if name.endswith(".npy"):
            loaded_array = np.load(name, allow_pickle=False)
            values: list[float] = read_lengths(loaded_array).tolist()
            if loaded_array.ndim == 2 and loaded_array.shape[1] > max(values):
                warn(
                    f"{name} is a mask of {loaded_array.shape[1]} time steps, and only its lengths"
                    f" are kept, of which the greatest is {max(values)}"
                )
            return values
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8-sig")
        is_table = name == "-" or name.lower().endswith((".csv", ".tsv"))
        return parse(text, column, is_table)
    except OSError as error:
        raise ValueError(f"cannot read {name}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(
            f"cannot read {name} as text: give UTF-8 text or .npy, or read a table with pandas, and"
            " pass its column on"
        ) from None
    except (ValueError, EOFError) as error:
        reason = str(error)
        if "pickle" in reason:
            reason = "it is not a NumPy file of numbers"
        raise ValueError(f"{name}: {reason}") from None


_FILE_NAME = re.compile(r"[^\s,;\[{]*[a-z][^\s,;\[{]*|.+\.(csv|json|npy|txt)", re.IGNORECASE)


def parse(text: str, column: str | None = None, is_table: bool = False) -> list[float]:
    """Reads lengths from text.

    Args:
        text: a JSON list or object; numbers separated by commas, semicolons, spaces or line breaks;
            or a table (CSV, or pasted from a spreadsheet) whose first line names its columns.
        column: the column of a table, or the key of a JSON object, as in `read`.
        is_table: whether several columns need a first line that names them, as in a CSV file and
            on standard input.

    Returns:
        The numbers in their original order. `Layout` checks whether they are valid lengths.

    Raises:
        ValueError: the text is empty, an entry is not a number or has a leading zero, a row has
            more or fewer fields than the first line, or the column does not exist or occurs twice.
    """
    text = text.strip().removeprefix("\ufeff")  # a byte-order mark
    columns = _parse_columns(text, is_table or column is not None)
    names = [name for name, _ in columns]
    if column is None:
        default_names = [
            name for name in names if len(names) == 1 or name.lower() in ("length", "lengths")
        ]
        column = next(iter(default_names), "length")
    matching_columns = [entries for name, entries in columns if name == column]
    if not matching_columns:
        if names == [""]:
            raise ValueError(
                f"there is no column {column!r}, because no first line names the columns"
            )
        names_text = ", ".join(map(repr, names))
        raise ValueError(f"no column is named {column!r}; choose one of the columns {names_text}")
    if len(matching_columns) > 1:
        raise ValueError(f"several columns are named {column!r}; rename all but one of them")
    entries = matching_columns[0]
    if not isinstance(entries, list) or not entries:
        raise ValueError("no lengths found; give a list with at least one, as in [5, 3, 2]")
    numbers = []
    for i, entry in enumerate(map(str, entries)):
        number = _parse_number(entry)
        if number is None or _LEADING_ZERO.match(entry):  # as in 1,024
            raise ValueError(
                f"entry {i} is {entry!r}; lengths are whole numbers, as in 5, 3, 1024, without"
                " leading zeros or thousands separators"
            )
        numbers.append(number)
    return numbers


_LEADING_ZERO = re.compile(r"[+-]?0\d")


def _parse_columns(text: str, is_table: bool) -> Sequence[tuple[str, object]]:
    """Returns the names and entries of the columns. Numbers alone are a column without a name."""
    if not text:
        raise ValueError("no lengths found; give some, as in 5, 3, 2")
    if text[0] in "[{":
        try:
            value = json.loads(text, object_pairs_hook=tuple)
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"not valid JSON ({error}); give a list, as in [5, 3, 2], or numbers without"
                " brackets"
            ) from None
        return value if isinstance(value, tuple) else [("", value)]
    lines = re.split(r"\r\n?|\n", text)  # str.splitlines would split within fields, too
    entries = re.split(r"[\s,;]+", text.strip(",; \n"))
    is_single_line = len(lines) == 1 and not is_table
    if is_single_line or _parse_number(entries[0]) is not None:
        if is_table and len(lines) > 1 and re.search("[,;\t]", text):
            raise ValueError(
                "a table with several columns needs a first line that names them; write lengths"
                " alone one per line, and 1024 without a comma"
            )
        return [("", entries)]
    delimiter = max(",;\t", key=lines[0].count)
    try:
        names, *rows = filter(None, csv.reader(lines, delimiter=delimiter))
    except csv.Error as error:
        raise ValueError(
            f"not a valid table ({error}); close every quotation mark, or give only the column with"
            " the lengths"
        ) from None
    for i, row in enumerate(rows):
        if len(row) != len(names):
            raise ValueError(
                f"row {i} needs one value per column (columns: {len(names)}, values: {len(row)})"
            )
    return [(name.strip(), cells) for name, *cells in zip(names, *rows, strict=True)]


def _parse_number(entry: str) -> float | None:
    """Returns the number that a text contains, or `None` if it is not a number."""
    try:
        value = float(entry)
    except ValueError:
        return None
    return int(value) if value.is_integer() else value


def _require_sizes(batch_size: int, longest: int) -> None:
    """Checks the arguments that all distributions share.

    Raises:
        ValueError: one of them is not a whole number of at least 1.
    """
    require_at_least("batch_size", batch_size)
    require_at_least("longest", longest)


def triangle(batch_size: int, longest: int, seed: int = 0) -> IntArray:
    """Returns `(B,)` lengths that repeatedly count down from `longest` to 1.

    Setup B of the forum benchmark has these lengths.
    """
    _require_sizes(batch_size, longest)
    return longest - np.arange(batch_size) % longest


def uniform(batch_size: int, longest: int, seed: int = 0) -> IntArray:
    """Returns `(B,)` lengths drawn uniformly from 1 to `longest`."""
    _require_sizes(batch_size, longest)
    return np.random.default_rng(seed).integers(1, longest, size=batch_size, endpoint=True)


def log_normal(
    batch_size: int, longest: int, seed: int = 0, *, median: float | None = None
) -> IntArray:
    """Returns `(B,)` lengths like those of sentences: most are short, and a few are long.

    None exceeds `longest`. The median defaults to a quarter of `longest`.
    """
    _require_sizes(batch_size, longest)
    if median is None:
        median = max(longest / 4, 1)
    random = np.random.default_rng(seed)
    drawn_lengths = random.lognormal(math.log(median), 0.8, size=batch_size)
    return np.clip(np.rint(drawn_lengths), 1, longest).astype(np.int64)


def evenly(batch_size: int, longest: int, seed: int = 0) -> IntArray:
    """Returns `(B,)` lengths spread evenly from `longest` down to 1."""
    _require_sizes(batch_size, longest)
    return np.rint(np.linspace(longest, 1, batch_size)).astype(np.int64)


def equal(batch_size: int, longest: int, seed: int = 0) -> IntArray:
    """Returns `(B,)` lengths that all equal `longest`, so there is no padding."""
    _require_sizes(batch_size, longest)
    return np.full(batch_size, longest)


def nearly_equal(batch_size: int, longest: int, seed: int = 0) -> IntArray:
    """Returns `(B,)` lengths drawn uniformly from 95 % of `longest` up to `longest`."""
    _require_sizes(batch_size, longest)
    max_shortening = longest // 20
    return longest - max_shortening - 1 + uniform(batch_size, max_shortening + 1, seed)


def sentences(batch_size: int, longest: int, seed: int = 0) -> IntArray:
    """Returns `(B,)` lengths of real sentences, capped at `longest`, repeated if necessary."""
    _require_sizes(batch_size, longest)
    counts = [len(sentence) for sentence in real.sentences()]
    return np.resize(np.minimum(counts, longest), batch_size)


DISTRIBUTIONS: dict[str, Callable[[int, int, int], IntArray]] = {
    "uniform": uniform,
    "triangle": triangle,
    "log-normal": log_normal,
    "equal": equal,
    "nearly equal": nearly_equal,
    "evenly": evenly,
    "sentences": sentences,
}
"""The distributions by name. Each is a function of `(batch_size, longest, seed)`.

They raise a `ValueError` if `batch_size` or `longest` is not a whole number of at least 1.
"""

RANDOM = ("uniform", "log-normal", "nearly equal")
"""The distributions that depend on the seed."""


def spread(distinct: int, batch_size: int, longest: int) -> list[int]:
    """Returns `(B,)` lengths with `distinct` values, spread evenly from `longest` down to 1.

    The longest come first. Apart from rounding, the values are symmetric around `(longest + 1) /
    2`; a single value lies in the middle. So if `distinct` divides `batch_size`, and either
    `longest` is odd or `distinct` is even, the number of real cells, which is the sum of the
    lengths, does not depend on `distinct`.

    Raises:
        ValueError: `distinct` exceeds `longest` or `batch_size`, or is less than 1.
    """
    max_distinct = min(batch_size, longest)
    if not 1 <= distinct <= max_distinct:
        raise ValueError(
            f"distinct is {distinct}; give a whole number from 1 to {max_distinct}, the smaller of"
            " batch_size and longest"
        )
    n_gaps = max(distinct - 1, 1)
    upper_half = [longest - round(i * (longest - 1) / n_gaps) for i in range(distinct // 2)]
    middle_values = [(longest + 1) // 2] * (distinct % 2)
    lower_half = [longest + 1 - n for n in reversed(upper_half)]
    values = [*upper_half, *middle_values, *lower_half]
    return [values[i * distinct // batch_size] for i in range(batch_size)]


def even_steps(distinct: int, size: int) -> list[int]:
    """Returns `(size,)` lengths from `size` down to 1, with `distinct` evenly spread values.

    Each value occurs equally often. The number of real cells, which is the sum of the lengths, is
    `size · (size + 1) / 2` for every valid `distinct`.

    Raises:
        ValueError: `distinct` is less than 2 or does not divide `size`, or `distinct - 1` does not
            divide `size - 1`.
    """
    distinct_choices = [n for n in range(2, size + 1) if not size % n and not (size - 1) % (n - 1)]
    if distinct not in distinct_choices:
        raise ValueError(
            f"distinct is {distinct}; for size {size}, choose one of {distinct_choices}"
        )
    return spread(distinct, size, size)
