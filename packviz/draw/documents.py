"""Counts and draws the scores that attention computes for documents in rows of a fixed size.

A row of `C` time steps (tokens) has a score for each pair of a query and a key. That makes `C · C`
scores, or `C · (C + 1) / 2` with a causal mask, because kernels leave the future out. The scores
that a document mask hides are computed anyway, so they are wasted. Only a kernel that knows where
each document begins computes no more than is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import chain, pairwise, permutations
from math import ceil
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from packviz.core.batches import CUT, FILLS, FIRST_FIT_DECREASING, NEXT_FIT, PADDED, fill
from packviz.core.layout import IntArray, Layout, sequence_name
from packviz.core.validation import one_of
from packviz.draw.drawing import Drawing
from packviz.draw.grid import TALL, Cell, Grid, one_in, stride
from packviz.draw.palette import REAL, sequence_colour
from packviz.draw.sheet import HATCHED, WIDTH, Sheet, width_of
from packviz.draw.text import FEW, count, percent, table

NONE = "none"
CAUSAL = "causal"
DOCUMENT = "document"
BOTH = "both"
MASKS = (NONE, CAUSAL, DOCUMENT, BOTH)
"""The masks. In this order, they hide nothing, the future, other documents, or both of these."""

# All in px, but the first.
_GRIDS = 4  # the most grids of scores
_LEFT = 64.0  # the space to the left of the rows
_TALL = 260  # the largest height of all rows
_SIDE = 194.0  # the largest side of a grid of scores
_STRIP = 18.0  # the strips of documents at the top and at the left of a grid
_GAP = 14.0  # the space between two grids
_THIN = 4.0  # scores that are smaller are drawn in runs


class _Piece(NamedTuple):
    """A piece of a document in a row: `size` time steps from time step `first` of the document."""

    document: int
    first: int
    size: int


_Row = tuple[_Piece, ...]


class Scores(Drawing):
    """Documents placed in rows, and the scores that attention computes for each row.

    Attributes:
        layout: the layout of the documents.
        row_size: `C`, the number of time steps in a row.
        strategy: the strategy for filling the rows, one of `pv.batches.FILLS`.
        mask: the mask, one of `MASKS`.
        rows: the pieces of documents in each row.
    """

    def __init__(
        self,
        lengths: object,
        row_size: int | None = None,
        strategy: str = FIRST_FIT_DECREASING,
        mask: str = NONE,
    ) -> None:
        """Fills rows with documents.

        Args:
            lengths: `(B,)` the lengths of the documents, or a `Layout`.
            row_size: the number of time steps in a row. By default, all documents are in one row,
                one after another. With the strategy `"padded"`, each document instead has a row of
                its own, as in a padded batch, and all rows are as long as the longest document.
            strategy: the strategy for filling the rows, one of `pv.batches.FILLS`.
            mask: the mask, one of `MASKS`.

        Raises:
            ValueError: a length is not valid; a length exceeds `row_size` and the strategy never
                cuts documents; `row_size` is less than 1; or the strategy or the mask is unknown.
        """
        layout = Layout(lengths)
        one_of("strategy", strategy, FILLS)
        one_of("mask", mask, MASKS)
        if row_size is None and strategy == PADDED:
            row_size = layout.max_len
        elif row_size is None:
            row_size = layout.n_real
            strategy = NEXT_FIT
        self.layout = layout
        self.row_size = row_size
        self.strategy = strategy
        self.mask = mask
        self.rows = tuple(_pieces(layout, row_size, strategy))

    @property
    def padding(self) -> int:
        """The number of time steps, over all rows, that do not belong to any document."""
        return len(self.rows) * self.row_size - self.layout.n_real

    @property
    def cut(self) -> int:
        """The number of documents that are cut into pieces and spread over several rows."""
        # Each piece of a document, except the first, starts after time step 0.
        pieces = chain(*self.rows)
        return len({piece.document for piece in pieces if piece.first})

    @property
    def computed(self) -> int:
        """The number of scores computed in all rows."""
        return len(self.rows) * self._square(self.row_size)

    @cached_property
    def needed(self) -> int:
        """The number of scores whose query and key are in the same document.

        If the document is cut, they must be in the same piece of it.
        """
        return sum(map(self._needed_scores, self.rows))

    @cached_property
    def cross_document(self) -> int:
        """The number of scores between different documents that the mask does not hide."""
        if self._hides_documents:
            return 0
        real = [_real(row) for row in self.rows]
        return sum(map(self._square, real)) - self.needed

    @property
    def wasted(self) -> int:
        """The number of scores that the mask hides or that involve padding, but are computed."""
        return self.computed - self.needed - self.cross_document

    @property
    def is_causal(self) -> bool:
        """True if the mask hides the future."""
        return self.mask in (CAUSAL, BOTH)

    @property
    def _hides_documents(self) -> bool:
        return self.mask in (DOCUMENT, BOTH)

    def summary(self) -> str:
        """Returns sentences with the numbers of rows, cells and scores."""
        documents = self.layout.batch_size
        rows = count(len(self.rows), "row")
        steps = count(self.row_size, "time step")
        n_cells = len(self.rows) * self.row_size
        cells = count(n_cells, "cell")
        wasted = percent(self.padding, n_cells)
        summary = f"{rows} of {steps}: {cells}, {self.layout.n_real:,} real,"
        summary += f" {self.padding:,} padding ({wasted} wasted)."
        if self.strategy == CUT:
            summary += f" Cut documents: {self.cut:,} of {documents:,}."
        scores = count(self.computed, "score")
        padded = documents * self._square(self.layout.max_len)
        summary += f" Attention computes {scores}: {self.needed:,} needed,"
        summary += f" {self.cross_document:,} across documents, {self.wasted:,} wasted."
        return f"{summary} In a padded batch, it computes {padded:,}."

    def to_text(self) -> str:
        """Returns the counts, some of the rows and, if the rows are short, grids of scores."""
        rows = []
        for i, row in enumerate(self.rows):
            real = _real(row)
            padding = f"{self.row_size - real} padding,"
            needed = f"{self._needed_scores(row):,} needed:"
            pieces = [f"{sequence_name(b)}[{first}:{first + size}]" for b, first, size in row]
            rows.append([f"row {i}", f"{real} real,", padding, needed, " ".join(pieces)])
        if len(rows) > FEW:
            rows[8:-3] = [["…"]]
        lines = [self.summary(), "", *table(rows, "<  > > >  <")]
        marks = ["# needed"]
        if self.cross_document:
            marks.append("x another document's")
        if self.wasted:
            marks.append("· wasted")
        names = ", ".join(marks)
        if self.row_size > FEW:
            return "\n".join(lines)
        for i, row in enumerate(self.rows[:_GRIDS]):
            lines += ["", f"row {i}: each line is a query, and each column is a key ({names})"]
            owners = []
            for b, first, size in row:
                owners += [f"{sequence_name(b)}{t}" for t in range(first, first + size)]
            owners += ["·"] * (self.row_size - len(owners))
            kinds = self._kinds(row, np.arange(self.row_size))
            scores = [" ".join(line) for line in kinds]
            lines += table([*zip(owners, scores, strict=True)], "  >  <")
        return "\n".join(lines)

    def sheet(self, theme: str) -> Sheet:
        """Draws the rows, with a colour for each document, and grids of scores below them."""
        sheet = Sheet(theme, self.to_text())
        rows = len(self.rows)
        size = f"{count(rows, 'row')} of {self.row_size:,}"
        scores = f"{count(self.computed, 'score')} and needs {self.needed:,}"
        y = sheet.title(f"In {size}, attention computes {scores}")
        y = self._draw_rows(sheet, y + 10) + 56 + _STRIP
        grids = min(rows, _GRIDS)
        side = min(_SIDE, (WIDTH - 4) / grids - _STRIP - _GAP)
        x = _STRIP + 4
        if rows == 1:
            side *= 1.5
            x = _LEFT
        for i, row in enumerate(self.rows[:_GRIDS]):
            sheet.text(x, y - _STRIP - 20, f"row {i}", bold=True)
            self._draw_scores(sheet, row, x, y, side)
            x += side + _STRIP + _GAP
        sheet.key(y + side + 12, self._key(sheet))
        note = "In a grid, each line is a query, and each column is a key."
        if rows > _GRIDS:
            note += f" The grids show the first {_GRIDS} of {rows:,} rows."
        notes = [note]
        step = stride(rows, _TALL)
        if step > 1:
            notes.append(one_in(step, rows, "rows"))
        y += side + 30
        y = sheet.paragraph(y, notes)
        sheet.size(WIDTH, y + 4)
        return sheet

    def _draw_rows(self, sheet: Sheet, y: float) -> float:
        """Draws the contents of each row, and returns the y-coordinate below the rows."""
        step = stride(len(self.rows), _TALL)
        rows = self.rows[::step]
        wide = min(36.0, (WIDTH - _LEFT - 8) / self.row_size)
        tall = min(TALL, _TALL / len(rows))
        grid = Grid(sheet, len(rows), self.row_size, wide, tall, _LEFT, y)
        names = []
        lines = []
        for i, row in enumerate(rows):
            names.append(f"row {i * step}")
            cells = []
            for piece in row:
                cells += _cells(piece, grid)
            padding = self.row_size - _real(row)
            cells.append(Cell(HATCHED, span=padding))
            lines.append(cells)
        grid.names(names)
        grid.draw(lines)
        return grid.foot

    def _draw_scores(self, sheet: Sheet, row: _Row, x: float, y: float, side: float) -> None:
        """Draws the scores of a row: a line for each query, and a column for each key."""
        steps = self.row_size
        colours = sheet.colours
        thick = _STRIP - 4
        each = side / steps
        needed = self._needed_scores(row)
        scores = f"{needed:,} of {self._square(steps):,}"
        sheet.note(x, y - _STRIP - 6, f"{scores} needed")
        queries = np.arange(0, steps, ceil(2 * steps / side))  # lines are at least 2 px high
        tall = side / queries.size
        grid = Grid(sheet, queries.size, steps, each, tall, x, y)
        fills = {"#": REAL, "x": colours.wrong, "·": HATCHED}
        lines = []
        for kinds in self._kinds(row, queries):
            edges = np.arange(1, steps)
            if each < _THIN:
                edges = 1 + np.flatnonzero(kinds[1:] != kinds[:-1])
            cells = []
            for first, end in pairwise([0, *edges.tolist(), steps]):
                if kinds[first] in fills:
                    cells.append(Cell(fills[kinds[first]], span=end - first))
            lines.append(cells)
        grid.draw(lines)
        start = 0.0
        middles = []
        for b, _, size in row:
            own = size * each
            fill = sequence_colour(b)
            name = sequence_name(b)
            above = (x + start, y - _STRIP, own, thick)
            beside = (x - _STRIP, y + start, thick, own)
            for left, top, wide, tall in (above, beside):
                fits = wide > width_of(name, 11, mono=True) and tall > 11
                label = name if fits else ""
                sheet.cell(left, top, wide, tall, fill, label, size=11)
            if own >= 12 and self.cross_document:
                middles.append(start + own / 2)
            start += own
        for key, query in permutations(middles, 2):
            if query > key or not self.is_causal:
                middle = x + key
                line = y + query + 4
                ground = colours.ground
                sheet.text(middle, line, "✗", anchor="middle", bold=True, ink=ground)

    def _key(self, sheet: Sheet) -> list[tuple[str, str]]:
        """Returns the fills of scores, each with its meaning."""
        reasons = []
        parts = [(REAL, "needed")]
        if self.padding:
            reasons.append("padding")
        if self._hides_documents and any(len(row) > 1 for row in self.rows):
            reasons.append("hidden by the mask")
        if self.cross_document:
            parts.append((sheet.colours.wrong, "✗ another document's"))
        if self.wasted:
            parts.append((HATCHED, f"wasted: {' or '.join(reasons)}"))
        if self.is_causal:
            parts.append((sheet.colours.ground, "the future, not computed"))
        return parts

    def _square(self, size: int) -> int:
        """Returns the number of scores among `size` time steps."""
        return size * (size + 1) // 2 if self.is_causal else size * size

    def _needed_scores(self, row: _Row) -> int:
        """Returns the number of scores needed in a row."""
        return sum(self._square(piece.size) for piece in row)

    def _kinds(self, row: _Row, queries: IntArray) -> npt.NDArray[np.str_]:
        """Returns the kind of each score of these queries, `(Q, C)`.

        A score is needed (`#`), of another document (`x`), wasted (`·`), or not computed (a blank).
        """
        owner = np.full(self.row_size, -1)
        start = 0
        for i, piece in enumerate(row):
            owner[start : start + piece.size] = i
            start += piece.size
        own = owner[queries, None]
        other = "·" if self._hides_documents else "x"
        kinds = np.where(own == owner, "#", other)
        kinds[(own < 0) | (owner < 0)] = "·"
        if self.is_causal:
            future = np.arange(self.row_size) > queries[:, None]
            kinds[future] = " "
        return kinds


def _real(row: _Row) -> int:
    """Returns the number of time steps in a row that belong to documents."""
    return sum(piece.size for piece in row)


def _pieces(layout: Layout, row_size: int, strategy: str) -> Iterator[_Row]:
    """Yields the pieces of each row. A document that is cut continues in the next row."""
    done = np.zeros(layout.batch_size, dtype=int)
    for row in fill(layout.lengths, row_size, strategy):
        pieces = []
        free = row_size
        for b in row.tolist():
            first = int(done[b])
            rest = int(layout.lengths[b]) - first
            size = min(rest, free)
            pieces.append(_Piece(b, first, size))
            done[b] += size
            free -= size
        yield tuple(pieces)


def _cells(piece: _Piece, grid: Grid) -> list[Cell]:
    """Returns a named cell for each time step of a piece, or one cell for all if they are small."""
    b, first, size = piece
    fill = sequence_colour(b)
    name = sequence_name(b)
    if grid.is_low or size * grid.wide < 4 + width_of(name, mono=True):
        return [Cell(fill, span=size)]
    labels = [f"{name}{t}" for t in range(first, first + size)]
    if grid.wide < 8 + width_of(labels[-1], mono=True):
        return [Cell(fill, name, size)]
    return [Cell(fill, label) for label in labels]
