"""One sequence of a batch as a row: what the drawings share that have a row for each."""

from __future__ import annotations

from collections.abc import Callable

from packviz.core.layout import Layout, sequence_name
from packviz.draw import palette
from packviz.draw.sheet import CHAR, Point, Sheet, width_of


def real_cells(
    sheet: Sheet,
    layout: Layout,
    b: int,
    at: Point,
    cell: Point,
    label: Callable[[int, int], str] | None,
    size: int = 12,
    fill: str = "",
) -> None:
    """The real cells of sequence `b`, side by side.

    Args:
        sheet: what is drawn on.
        layout: the batch.
        b: which of its sequences.
        at: left side and top of the first cell.
        cell: width and height of each.
        label: what stands in the cell of a sequence and a time step; none to draw all cells as one stretch.
        size: of the letters, in px.
        fill: instead of the sequence's colour.
    """
    (x, y), (width, height), fill = at, cell, fill or palette.sequence_colour(b)
    length = int(layout.lengths[b])
    if label is None:
        sheet.cell(x, y, length * width, height, fill)
        return
    for t in range(length):
        sheet.cell(x + t * width, y, width, height, fill, label(b, t), size=size)


def row_name(sheet: Sheet, layout: Layout, b: int, right: float, y: float, name: str = "", size: int = 12) -> None:
    """The name of sequence `b`, or its letter, and its length, left of its row: in columns that end at `right`."""
    sheet.text(6, y, name or sequence_name(b), size=size, bold=True)
    sheet.text(right, y, str(layout.lengths[b]), anchor="end", ink=sheet.colours.muted)


def clip(said: str, width: float, size: int = 12) -> str:
    """Words that fit into so many px: cut, with dots, where they are longer."""
    char = CHAR * size / 12
    room = int(width / char) * char
    if width_of(said, size) <= room:
        return said
    while said and width_of(said, size) > room - char:
        said = said[:-1]
    return said + "…"


def stride(sequences: int, most: int) -> int:
    """One in how many is drawn, where there is room for so many rows at most."""
    return -(-sequences // most) | 1  # odd: a step through the colours that meets them all


def one_in(stride: int, many: int, what: str = "sequences") -> str:
    """Says so."""
    return f"One in {stride} of {many:,} {what} is drawn. Counts are of all."
