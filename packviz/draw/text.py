"""Writes layouts, numbers and tables as text, for a screen reader, a terminal, a diff or a test."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from packviz.core.layout import IntArray, Layout, sequence_name

Labels = Sequence[Sequence[str]]
"""The labels of the cells, with a row for each sequence. Rows may extend into the padding. Missing labels are blank."""

EXPLAINED = {
    "padding": "hatched: padding",
    "order": "packed: the longest sequence comes first",
    "batch_sizes": "batch_sizes: how many sequences reach each step",
    "stretch": "each column is one stretch of data",
    "data": "data and batch_sizes together make a PackedSequence",
}
"""A line about each part of a picture."""

WHOLE, PADDED, PACKED, DATA = "all", "padded", "packed", "data"
PARTS = (WHOLE, PADDED, PACKED, DATA)
"""The parts of a batch to show: all, or only the padded grid, the packed steps or the packed data."""

FEW = 16
"""The largest number of sequences, and of time steps, for which every cell is written out."""


def summary(layout: Layout) -> str:
    """Returns a sentence with the size of a batch and its numbers of cells, real cells and padding cells."""
    sequences = count(layout.batch_size, "sequence")
    return (
        f"{sequences} padded to {count(layout.max_len, 'time step')}: {count(layout.n_cells, 'cell')},"
        f" {layout.n_real:,} real, {layout.n_padding:,} padding ({percent(layout.n_padding, layout.n_cells)} wasted)."
    )


def describe(
    layout: Layout,
    labels: Labels | None = None,
    names: Sequence[str] | None = None,
    part: str = WHOLE,
) -> str:
    """Describes the padded batch and the packed data, or only one `part`. Small batches are described cell by cell."""
    if not is_few(layout):
        return "\n".join([summary(layout), "", *_outline(layout, part)])
    lines = [summary(layout)]
    if part in (WHOLE, PADDED):
        lines += ["", *_padded(layout, labels, names)]
    if part in (WHOLE, PACKED):
        lines += ["", *_packed(layout, labels, names)]
    if part == DATA:
        lines += ["", f"data: {count(layout.n_real, 'row')}, step by step"]
        lines += table([[row[0], *row[3:]] for row in _steps(layout, labels, names)], "  <4  <12 <")
    return "\n".join(lines)


def at_step(layout: Layout, t: int) -> str:
    """Describes the rows that the RNN reads at time step `t`, and their place in `data`."""
    size, start = layout.batch_sizes[t], layout.offsets[t]
    line = f"At step {t}, the RNN reads {size} of {count(layout.batch_size, 'sequence')}, so batch_sizes[{t}] = {size}."
    where = f"data[{start}:{start + size}]"
    if not is_few(layout):
        return f"{line} The step fills {where}."
    cells = " ".join(cell_label(None, b, t) for b in layout.sorted_indices[:size])
    return f"{line} {where} contains {cells}."


def mistaken_order(layout: Layout, t: int) -> str:
    """Describes the order that people often expect in `data`, and where the rows of time step `t` would be in it."""
    rows = numbers(layout.starts[:-1][layout.lengths > t] + t)
    message = f"data does not hold one sequence after another. If it did, step {t} would have rows {rows}."
    if not is_few(layout):
        return message
    return f"{message}\n  {' '.join(cell_label(None, b, s) for b, s in np.argwhere(layout.mask).tolist())}"


def flat(layout: Layout) -> str:
    """Returns a line that describes the flat rows, in which the sequences follow one another."""
    return f"flat: {count(layout.n_real, 'row')}, one sequence after another"


def describe_flat(
    layout: Layout, labels: Labels | None = None, names: Sequence[str] | None = None
) -> str:
    """Describes the flat rows. A small batch is described cell by cell."""
    rows = []
    for b, (start, length) in enumerate(
        zip(layout.starts, layout.lengths, strict=False) if is_few(layout) else ()
    ):
        cells = " ".join(cell_label(labels, b, t, names) for t in range(length))
        rows.append([name(names, b), _rows(start, length), cells])
    lists = [
        f"starts           {numbers(layout.starts)}",
        f"flat_rows        {numbers(layout.flat_rows)}",
    ]
    return "\n".join([flat(layout), *table(rows, "  <  <12 <"), *lists])


def is_few(layout: Layout) -> bool:
    """Returns whether a batch is small enough for each cell to be shown with its contents."""
    return layout.batch_size <= FEW and layout.max_len <= FEW


def count(n: int, noun: str, plural: str = "") -> str:
    """Returns a number with its noun, such as `1 cell` or `1,024 cells`."""
    return f"{n:,} {noun if n == 1 else plural or noun + 's'}"


def percent(part: float, whole: float = 1) -> str:
    """Returns a share as a percentage with at most three significant digits, such as `29.7 %`.

    If both the part and the whole are 0, the share is `0 %`.
    """
    return f"{100 * part / max(whole, 1):.3g} %"


def short(n: int) -> str:
    """Returns a count, rounded if it has more than seven digits, such as `7,654,321`, `76.5 M`, `1.2 G` or `3.02 T`."""
    return f"{n:,}" if abs(n) < 10**7 else _scaled(n)


def size(n: float) -> str:
    """Returns a number of bytes with at most three significant digits, such as `96 B`, `1.23 kB` (1230 B) or `3 MB`."""
    return f"{_scaled(n)}B"


def difference(value: float) -> str:
    """Returns a difference with at most two significant digits, such as `0.038`, `1.7` or `NaN`."""
    return "NaN" if math.isnan(value) else f"{value:.2g}"


def share(value: float) -> str:
    """Returns a share as a percentage, such as `0.038%`, `17%` or `NaN`.

    The percentage has at most two significant digits or, from 99.5 % upwards, at most three.
    """
    return (
        "NaN"
        if math.isnan(value)
        else f"{100 * value:.2g}%"
        if 100 * value < 99.5
        else f"{100 * value:.3g}%"
    )


def short_share(value: float) -> str:
    """Returns a share as a percentage in at most five characters, such as `0.43%`, `17%`, `<.1%` or `3e12%`."""
    if 100 * value < 0.095:
        return "<.1%"
    return (
        f"{100 * value:.0e}%".replace("+0", "").replace("+", "") if value >= 9.995 else share(value)
    )


def table(rows: Sequence[Sequence[str]], form: str = "<  >") -> list[str]:
    """Returns the lines of a table, without trailing blanks.

    Args:
        rows: the cells of each row, including the head. If a row ends early, its last cell spans
            the remaining columns.
        form: the alignment of each column: `<`, `>`, `^` or `.` (left, right, centred, at the
            decimal point), followed by a minimum width if there is one, as in `<24>9`. Any other
            characters are written between the cells. Columns beyond those in `form` are aligned
            like its last column.
    """
    columns = re.findall(r"([^<>^.]*)([<>^.])(\d*)", form)
    many = max(map(len, rows), default=0)
    columns += columns[-1:] * (many - len(columns))
    rows = _decimals(rows, [side for _, side, _ in columns])
    widths = [int(least or 0) for _, _, least in columns]
    for row in rows:
        for i, cell in enumerate(row if len(row) == many else row[:-1]):
            widths[i] = max(widths[i], len(cell))
    lines = []
    for row in rows:
        parts = [
            f"{before}{cell:{side.replace('.', '>')}{widths[i]}}"
            for i, (cell, (before, side, _)) in enumerate(zip(row, columns, strict=False))
        ]
        if 0 < len(row) < many:
            parts[-1] = columns[len(row) - 1][0] + row[-1]
        lines.append("".join(parts).rstrip())
    return lines


def _decimals(rows: Sequence[Sequence[str]], sides: Sequence[str]) -> list[list[str]]:
    """Returns the cells, padded so that decimal points are aligned in columns whose alignment is
    `.`.

    A cell that does not begin with a number, such as a head or a sign, stays as it is.
    """
    aligned = [[*row] for row in rows]
    for i, side in enumerate(sides):
        found = {
            r: _NUMBER.fullmatch(row[i])
            for r, row in enumerate(rows)
            if side == "." and i < len(row)
        }
        most = max((len(match[2]) for match in found.values() if match), default=0)
        for r, match in found.items():
            if match:
                aligned[r][i] = match[1] + match[2].ljust(most) + match[3]
    return aligned


_NUMBER = re.compile(
    r"([-−+]?\d[\d,]*)((?:\.\d+)?)(.*)", re.DOTALL
)  # whole part, decimals, and what follows


def name(names: Sequence[str] | None, b: int) -> str:
    """Returns the name of sequence `b`, or its letter if it has no name."""
    return sequence_name(b) if names is None else names[b]


def cell_label(labels: Labels | None, b: int, t: int, names: Sequence[str] | None = None) -> str:
    """Returns the label of the cell of sequence `b` at time step `t`."""
    if labels is None:
        return f"{name(names, b)}{t}"
    return labels[b][t] if t < len(labels[b]) else ""


def value(value: Any) -> str:
    """Returns the contents of a cell as text.

    Integers and printable words stay as they are. Other numbers have at most two significant
    digits, except that whole numbers below a million keep all their digits. Lists and vectors
    become `…`.
    """
    if isinstance(value, (float, np.floating)):
        number = float(value)
        return str(int(number)) if number.is_integer() and abs(number) < 1e6 else f"{number:.2g}"
    if isinstance(value, str) and not value.isprintable():
        return repr(value)[1:-1]  # a line break would split the text in two
    if getattr(value, "size", 1) != 1 or isinstance(value, (list, tuple)):
        return "…"
    return str(value)


def numbers(values: IntArray, limit: int = 24) -> str:
    """Returns a list of numbers as Python writes it. A list of more than `limit` numbers is shortened in the middle."""
    if values.size <= limit:
        return str(values.tolist())
    head, tail = values[: limit - 4].tolist(), values[-3:].tolist()
    return f"{str(head)[:-1]}, …, {str(tail)[1:]} ({values.size} in all)"


def _scaled(n: float) -> str:
    """Returns a number with at most three significant digits, and the prefix for a power of 1000, such as `1.23 k`."""
    value, signs = float(n), ["", "k", "M", "G", "T", "P"]
    while abs(float(f"{value:.3g}")) >= 1000 and len(signs) > 1:
        value, signs = value / 1000, signs[1:]
    return f"{value:.3g} {signs[0]}"


def _padded(layout: Layout, labels: Labels | None, names: Sequence[str] | None) -> list[str]:
    steps = range(layout.max_len)
    rows = [["padded (· marks padding)", *(f"t={t}" for t in steps)]]
    wide = max(2, *(len(name(names, b)) for b in range(layout.batch_size)))
    for b, length in enumerate(layout.lengths):
        real = [cell_label(labels, b, t, names) for t in range(length)]
        padding = [
            "·" + ("" if labels is None else cell_label(labels, b, t))
            for t in range(length, layout.max_len)
        ]
        rows.append([f"{name(names, b):>{wide}}  length {length:>2} ", *real, *padding])
    return table(rows)


def _packed(layout: Layout, labels: Labels | None, names: Sequence[str] | None) -> list[str]:
    lines = [f"packed: {count(layout.n_real, 'row')} of data, time step by time step"]
    lines += table(_steps(layout, labels, names), "  <4  < = <2  <12 <")
    return [
        *lines,
        f"batch_sizes      {numbers(layout.batch_sizes)}",
        *([] if layout.is_sorted else indices(layout)),
    ]


def indices(layout: Layout) -> list[str]:
    """Returns a line with `sorted_indices`, and another with `unsorted_indices`."""
    names = "sorted_indices", "unsorted_indices"
    return [f"{name:<16} {numbers(getattr(layout, name))}" for name in names]


def _steps(layout: Layout, labels: Labels | None, names: Sequence[str] | None) -> list[list[str]]:
    """Returns a row for each time step, with its batch size, its rows of data and its cells."""
    rows = []
    for t, size in enumerate(layout.batch_sizes):
        cells = " ".join(cell_label(labels, b, t, names) for b in layout.sorted_indices[:size])
        rows.append(
            [f"t={t}", f"batch_sizes[{t}]", f"{size}", _rows(layout.offsets[t], size), cells]
        )
    return rows


def _rows(first: int, size: int) -> str:
    return f"row  {first}" if size == 1 else f"rows {first}–{first + size - 1}"


def _outline(layout: Layout, part: str) -> list[str]:
    n, steps = layout.lengths, count(layout.batch_sizes.size, "time step")
    spread = f"shortest {n.min()}, median {np.median(n):g}, longest {n.max()}; {np.unique(n).size} distinct"
    padded = [f"lengths          {spread}", f"                 {numbers(n)}"]
    packed = [
        f"packed           {count(layout.n_real, 'row')} of data in {steps}, longest sequence first",
        f"batch_sizes      {numbers(layout.batch_sizes)}",
    ]
    return {WHOLE: padded + packed, PADDED: padded, PACKED: packed, DATA: packed}[part]
