"""A layout in words: the text twin of its picture, for a screen reader, a terminal, a diff and a test."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from packviz.core.layout import IntArray, Layout, sequence_name

Labels = Sequence[Sequence[str]]
"""What stands in each cell, sequence by sequence. A row may go on into the padding; a missing cell is left blank."""

FEW = 16
"""Up to this many sequences and time steps every cell is written out."""


def summary(layout: Layout) -> str:
    """One sentence with the counts."""
    sequences = count(layout.batch_size, "sequence")
    return (
        f"{sequences} padded to {count(layout.max_len, 'time step')}: {count(layout.n_cells, 'cell')},"
        f" {layout.n_valid:,} real, {layout.n_padding:,} padding ({percent(layout.n_padding, layout.n_cells)} wasted)."
    )


def describe(layout: Layout, labels: Labels | None = None) -> str:
    """The padded batch and the packed data in words, cell by cell when there are few."""
    if is_few(layout):
        return "\n".join([summary(layout), "", *_padded(layout, labels), "", *_packed(layout, labels)])
    return "\n".join([summary(layout), "", *_outline(layout)])


def at_step(layout: Layout, t: int) -> str:
    """What the RNN reads at time step `t`, and where it lies."""
    size, start = layout.batch_sizes[t], layout.offsets[t]
    said = f"t = {t}: {size} of {count(layout.batch_size, 'sequence')} still running, so batch_sizes[{t}] = {size}."
    where = f"data[{start}:{start + size}]"
    if not is_few(layout):
        return f"{said} They fill {where}."
    cells = " ".join(cell_label(None, b, t) for b in layout.sorted_indices[:size])
    return f"{said} Packed here: {cells}, as {where}."


def mistaken_order(layout: Layout, t: int) -> str:
    """The order that `data` is often taken to have, and where the rows of time step `t` would lie in it."""
    starts = np.cumsum(layout.lengths) - layout.lengths
    rows = numbers(starts[layout.lengths > t] + t)
    said = f"Not so: one sequence after another. The rows of step {t} would be {rows}."
    if not is_few(layout):
        return said
    return f"{said}\n  {' '.join(cell_label(None, b, s) for b, s in np.argwhere(layout.mask).tolist())}"


def is_few(layout: Layout) -> bool:
    """Whether every cell can be shown with what is in it."""
    return layout.batch_size <= FEW and layout.max_len <= FEW


def count(n: int, noun: str, plural: str = "") -> str:
    """So many of something: `1 cell`, `1,024 cells`."""
    return f"{n:,} {noun if n == 1 else plural or noun + 's'}"


def percent(part: int, whole: int) -> str:
    """A share with no more digits than mean something: `29.7 %`, `0 %` (also of nothing)."""
    return f"{100 * part / max(whole, 1):.3g} %"


def cell_label(labels: Labels | None, b: int, t: int) -> str:
    """What to write into the cell of sequence `b` at time step `t`."""
    if labels is None:
        return f"{sequence_name(b)}{t}"
    return labels[b][t] if t < len(labels[b]) else ""


def numbers(values: IntArray, limit: int = 24) -> str:
    """A list of numbers as Python writes it, cut in the middle when it is long."""
    if values.size <= limit:
        return str(values.tolist())
    head, tail = values[: limit - 4].tolist(), values[-3:].tolist()
    return f"{str(head)[:-1]}, …, {str(tail)[1:]} ({values.size} in all)"


def _padded(layout: Layout, labels: Labels | None) -> list[str]:
    steps = range(layout.max_len)
    cells = [[f"t={t}" for t in steps]]
    for b, length in enumerate(layout.lengths):
        cells.append([_padded_cell(labels, b, t, length) for t in steps])
    widths = [max(len(row[t]) for row in cells) for t in steps]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
    heads = [f"{sequence_name(b):>2}  length {length:>2} " for b, length in enumerate(layout.lengths)]
    head = "padded (· marks padding)"
    margin = max(len(head), *map(len, heads))
    return [f"{side.ljust(margin)}  {line}".rstrip() for side, line in zip([head, *heads], lines, strict=True)]


def _padded_cell(labels: Labels | None, b: int, t: int, length: int) -> str:
    if t < length:
        return cell_label(labels, b, t)
    return "·" if labels is None else "·" + cell_label(labels, b, t)


def _packed(layout: Layout, labels: Labels | None) -> list[str]:
    lines = [f"packed: {count(layout.n_valid, 'row')} of data, time step by time step"]
    widest = len(f"batch_sizes[{layout.batch_sizes.size - 1}]")
    for t, size in enumerate(layout.batch_sizes):
        first = layout.offsets[t]
        rows = f"row  {first}" if size == 1 else f"rows {first}–{first + size - 1}"
        cells = " ".join(cell_label(labels, b, t) for b in layout.sorted_indices[:size])
        name = f"batch_sizes[{t}]".ljust(widest)
        lines.append(f"  t={t:<2}  {name} = {size:<2}  {rows:<12} {cells}")
    lines.append(f"batch_sizes      {numbers(layout.batch_sizes)}")
    if not layout.is_sorted:
        lines.append(f"sorted_indices   {numbers(layout.sorted_indices)}")
        lines.append(f"unsorted_indices {numbers(layout.unsorted_indices)}")
    return lines


def _outline(layout: Layout) -> list[str]:
    n, steps = layout.lengths, count(layout.batch_sizes.size, "time step")
    spread = f"shortest {n.min()}, median {np.median(n):g}, longest {n.max()}; {np.unique(n).size} distinct"
    return [
        f"lengths          {spread}",
        f"                 {numbers(n)}",
        f"packed           {count(layout.n_valid, 'row')} of data in {steps}, longest sequence first",
        f"batch_sizes      {numbers(layout.batch_sizes)}",
    ]
