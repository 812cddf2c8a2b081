"""Writes layouts, numbers and tables as text, for a screen reader, a terminal, a diff or a test."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from packviz.core.layout import IntArray, Layout, sequence_name

Labels = Sequence[Sequence[str]]
"""The labels of the cells, with a row for each sequence. Rows may extend into the padding. Missing
labels are blank."""

WHOLE_BATCH = "all"
PADDED = "padded"
PACKED = "packed"
PACKED_DATA = "data"
BATCH_PARTS = (WHOLE_BATCH, PADDED, PACKED, PACKED_DATA)
"""The parts of a batch to show: all, or only the padded grid, packed steps or packed data."""

MAX_LISTED = 16
"""The largest number of sequences, and of time steps, for which every cell is written out."""


@dataclass(frozen=True)
class LabelledBatch:
    """A batch with the words in its picture.

    Attributes:
        layout: the batch.
        labels: the labels of each sequence's cells in a small batch. By default, a cell's label is
            the name of its sequence and its time step, as in `a0`.
        names: the names of the sequences. Defaults to letters.
    """

    layout: Layout
    labels: Labels | None = None
    names: Sequence[str] | None = None

    def name(self, b: int) -> str:
        """Returns the name of sequence `b`."""
        return sequence_name(b) if self.names is None else format_value(self.names[b])

    def label(self, b: int, t: int) -> str:
        """Returns the label of the cell of sequence `b` at time step `t`."""
        if self.labels is None:
            return f"{self.name(b)}{t}"
        row = self.labels[b]
        return row[t] if t < len(row) else ""


def summary(layout: Layout) -> str:
    """Returns a sentence with the size of a batch and its numbers of cells of each kind."""
    sequences = with_noun(layout.batch_size, "sequence")
    steps = with_noun(layout.max_len, "time step")
    cells = with_noun(layout.n_cells, "cell")
    padding = padding_text(layout.n_padding, layout.n_cells)
    return f"{sequences} padded to {steps}: {cells}, {layout.n_real:,} real, {padding}."


def describe_batch(batch: LabelledBatch, part: str = WHOLE_BATCH) -> str:
    """Describes the padded batch and the packed data, or only one `part`.

    Small batches are described cell by cell.
    """
    layout = batch.layout
    if not is_small(layout):
        return "\n".join([summary(layout), "", *_large_batch_lines(layout, part)])
    sections = [[summary(layout)]]
    if part in (WHOLE_BATCH, PADDED):
        sections.append(_padded_lines(batch))
    if part in (WHOLE_BATCH, PACKED):
        sections.append(_packed_lines(batch))
    if part == PACKED_DATA:
        rows = [[t, row_range, cells] for t, _, _, row_range, cells in _step_rows(batch)]
        heading = f"data: {with_noun(layout.n_real, 'row')}, step by step"
        sections.append([heading, *table(rows, "  <4  <12 <")])
    return "\n\n".join(map("\n".join, sections))


def _large_batch_lines(layout: Layout, part: str) -> list[str]:
    """Returns the lines about a large batch, or about a part of it."""
    lengths = layout.lengths
    lines = []
    if part in (WHOLE_BATCH, PADDED):
        median = f"{np.median(lengths):g}"
        spread = f"shortest {lengths.min()}, median {median}, longest {lengths.max()}"
        lines.append(f"lengths          {spread}; {np.unique(lengths).size} distinct")
        lines.append(f"                 {numbers(lengths)}")
    if part != PADDED:
        rows = with_noun(layout.n_real, "row")
        steps = with_noun(layout.batch_sizes.size, "time step")
        lines.append(f"packed           {rows} of data in {steps}, longest sequence first")
        lines.append(f"batch_sizes      {numbers(layout.batch_sizes)}")
    return lines


def _packed_lines(batch: LabelledBatch) -> list[str]:
    """Returns the lines of the packed data."""
    layout = batch.layout
    lines = [
        f"packed: {with_noun(layout.n_real, 'row')} of data, time step by time step",
        *table(_step_rows(batch), "  <4  < = <2  <12 <"),
        f"batch_sizes      {numbers(layout.batch_sizes)}",
    ]
    if not layout.is_sorted:
        lines += index_lines(layout)
    return lines


def _padded_lines(batch: LabelledBatch) -> list[str]:
    """Returns the lines of the padded batch."""
    layout = batch.layout
    steps = range(layout.max_len)
    rows = [["padded (· marks padding)", *(f"t={t}" for t in steps)]]
    names = list(map(batch.name, range(layout.batch_size)))
    width = max(2, *map(len, names))
    for b, length in enumerate(layout.lengths):
        row = [f"{names[b]:>{width}}  length {length:>2} "]
        for t in steps:
            label = batch.label(b, t)
            if t >= length:
                label = "·" if batch.labels is None else f"·{label}"
            row.append(label)
        rows.append(row)
    return table(rows)


def _step_rows(batch: LabelledBatch) -> list[list[str]]:
    """Returns a row for each time step, with its batch size, its rows of data and its cells."""
    layout = batch.layout
    rows = []
    for t, size in enumerate(layout.batch_sizes):
        sequences = layout.sorted_indices[:size]
        cells = " ".join(batch.label(b, t) for b in sequences)
        row_range = _row_range(layout.offsets[t], size)
        rows.append([f"t={t}", f"batch_sizes[{t}]", f"{size}", row_range, cells])
    return rows


def _row_range(first_row: int, size: int) -> str:
    if size < 2:
        return f"row  {first_row}" if size else "no rows"
    return f"rows {first_row}–{first_row + size - 1}"


def index_lines(layout: Layout) -> list[str]:
    """Returns a line with `sorted_indices`, and another with `unsorted_indices`."""
    return [
        f"sorted_indices   {numbers(layout.sorted_indices)}",
        f"unsorted_indices {numbers(layout.unsorted_indices)}",
    ]


def flat_rows_title(layout: Layout) -> str:
    """Returns a line that describes the flat rows, in which the sequences follow one another."""
    return f"flat: {with_noun(layout.n_real, 'row')}, one sequence after another"


def describe_flat_rows(batch: LabelledBatch) -> str:
    """Describes the flat rows. A small batch is described cell by cell."""
    layout = batch.layout
    rows = []
    for b, length in enumerate(layout.lengths if is_small(layout) else ()):
        cells = " ".join(batch.label(b, t) for t in range(length))
        row_range = _row_range(layout.starts[b], length)
        rows.append([batch.name(b), row_range, cells])
    starts = f"starts           {numbers(layout.starts)} (cu_seqlens)"
    flat_rows = f"flat_rows        {numbers(layout.flat_rows)} (of the packed rows)"
    return "\n".join([flat_rows_title(layout), *table(rows, "  <  <12 <"), starts, flat_rows])


def is_small(layout: Layout) -> bool:
    """Returns whether a batch is small enough for each cell to be shown with its contents."""
    return max(layout.batch_size, layout.max_len) <= MAX_LISTED


def format_value(value: object) -> str:
    """Returns the contents of a cell as text.

    Integers and printable words stay as they are. Other numbers have at most two significant
    digits, except that whole numbers below a million keep all their digits. Lists and vectors
    become `…`.
    """
    if getattr(value, "ndim", 1) == 0:
        value = value.item()  # type: ignore[attr-defined]
    if isinstance(value, float):
        if value.is_integer() and abs(value) < 1e6:
            return str(int(value))
        return f"{value:.2g}"
    if isinstance(value, str) and not value.isprintable():
        return repr(value)[1:-1]  # a line break would split the text in two
    if isinstance(value, (list, tuple)) or getattr(value, "size", 1) != 1:
        return "…"
    return str(value)


# Numbers.


def with_noun(n: int, noun: str, plural: str = "") -> str:
    """Returns a number with its noun, such as `1 cell` or `1,024 cells`."""
    if n != 1:
        noun = plural or f"{noun}s"
    return f"{n:,} {noun}"


def percent(part: float, whole: float = 1) -> str:
    """Returns a share as a percentage with at most three significant digits, such as `29.7 %`.

    If both the part and the whole are 0, the share is `0 %`.
    """
    return f"{100 * part / max(whole, 1):.3g} %"


def padding_text(n_padding: int, n_cells: int) -> str:
    """Returns a number of padding cells with their share of all cells."""
    return f"{n_padding:,} padding ({percent(n_padding, n_cells)} wasted)"


def short_count(n: int) -> str:
    """Returns a count, rounded if it has more than seven digits.

    Examples are `7,654,321`, `76.5 M`, `1.2 G` and `3.02 T`.
    """
    return f"{n:,}" if abs(n) < 10**7 else _with_unit_prefix(n)


def size(n: float) -> str:
    """Returns a number of bytes with at most three significant digits.

    Examples are `96 B`, `1.23 kB` (1230 B) and `3 MB`.
    """
    return f"{_with_unit_prefix(n)}B"


def _with_unit_prefix(n: float) -> str:
    """Returns a number with at most three digits and the prefix of its unit, as in `1.23 k`."""
    for prefix in ("", "k", "M", "G", "T"):
        if abs(float(f"{n:.3g}")) < 1000:
            return f"{n:.3g} {prefix}"
        n /= 1000
    return f"{n:.3g} P"


def format_difference(value: float) -> str:
    """Returns a difference with at most two significant digits, such as `0.038`, `1.7` or `NaN`."""
    return f"{value:.2g}".replace("nan", "NaN")


def format_share(value: float) -> str:
    """Returns a share as a percentage, such as `0.038%`, `17%` or `NaN`.

    The percentage has at most two significant digits or, from 99.5 % upwards, at most three.
    """
    if math.isnan(value):
        return "NaN"
    percentage = 100 * value
    return f"{percentage:.2g}%" if percentage < 99.5 else f"{percentage:.3g}%"


def short_share(value: float) -> str:
    """Returns a share as a percentage in at most five characters.

    Examples are `0.43%`, `17%`, `<.1%` and `3e12%`.
    """
    if 100 * value < 0.095:
        return "<.1%"
    if value >= 9.995:
        return f"{100 * value:.0e}%".replace("+0", "").replace("+", "")
    return format_share(value)


def numbers(values: IntArray) -> str:
    """Returns a list of numbers as Python writes it.

    A list of more than 24 numbers is shortened in the middle.
    """
    number_list = values.tolist()
    if len(number_list) <= 24:
        return str(number_list)
    first_numbers = str(number_list[:20]).removesuffix("]")
    last_numbers = str(number_list[-3:]).removeprefix("[")
    return f"{first_numbers}, …, {last_numbers} ({len(number_list)} in all)"


# Tables.


def table(rows: Sequence[Sequence[str]], column_format: str = "<  >") -> list[str]:
    """Returns the lines of a table, without trailing blanks.

    Args:
        rows: the cells of each row, including the head. If a row ends early, its last cell spans
            the remaining columns.
        column_format: the alignment of each column: `<`, `>`, `^` or `.` (left, right, centred, at
            the decimal point), followed by a minimum width if there is one, as in `<24>9`. Any
            other characters are written between the cells. Columns beyond those in `column_format`
            are aligned like its last column.
    """
    columns = re.findall(r"([^<>^.]*)([<>^.])(\d*)", column_format)
    n_columns = max(map(len, rows), default=0)
    columns += columns[-1:] * (n_columns - len(columns))
    cells = [[*row] for row in rows]
    lines = [""] * len(rows)
    for i, (separator, alignment, min_width) in enumerate(columns[:n_columns]):
        if alignment == ".":
            _align_decimal_points(cells, i)
            alignment = ">"
        # The last cell of a row that ends early spans the remaining columns.
        aligned_rows = [row for row in cells if len(row) > min(i + 1, n_columns - 1)]
        widths = [len(row[i]) for row in aligned_rows]
        width = max([int(min_width or 0), *widths])
        for row in aligned_rows:
            row[i] = f"{row[i]:{alignment}{width}}"
        for r, row in enumerate(cells):
            if i < len(row):
                lines[r] += separator + row[i]
    return [line.rstrip() for line in lines]


_NUMBER = re.compile(r"([-−+]?\d[\d,]*)((?:\.\d+)?)(.*)", re.DOTALL)
"""A number: its whole part, its decimals, and what follows."""


def _align_decimal_points(rows: list[list[str]], column: int) -> None:
    """Pads the numbers of a column so that their decimal points are aligned.

    A cell that does not begin with a number, such as a head or a sign, stays as it is.
    """
    aligned_rows = [row for row in rows if len(row) > column]
    matches = [_NUMBER.fullmatch(row[column]) for row in aligned_rows]
    max_decimals = max((len(match[2]) for match in matches if match), default=0)
    for row, match in zip(aligned_rows, matches, strict=True):
        if match:
            row[column] = f"{match[1]}{match[2]:<{max_decimals}}{match[3]}"
