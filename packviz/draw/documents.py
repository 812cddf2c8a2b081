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
from packviz.core.validation import require_one_of
from packviz.draw.drawing import Drawing
from packviz.draw.grid import ROW_HEIGHT, Cell, Grid, choose_row_stride, stride_notes
from packviz.draw.palette import REAL, sequence_colour
from packviz.draw.sheet import HATCHED, WIDTH, Sheet, text_width
from packviz.draw.text import MAX_LISTED, padding_text, table, with_noun

NO_MASK = "none"
CAUSAL_MASK = "causal"
DOCUMENT_MASK = "document"
CAUSAL_DOCUMENT_MASK = "both"
MASKS = (NO_MASK, CAUSAL_MASK, DOCUMENT_MASK, CAUSAL_DOCUMENT_MASK)
"""The masks. In this order, they hide nothing, the future, other documents, or both of these."""

# All in px, but the first.
_MAX_GRIDS = 4  # the most grids of scores
_LEFT_MARGIN = 64.0  # the space to the left of the rows
_MAX_ROWS_HEIGHT = 260  # the largest height of all rows
_MAX_GRID_WIDTH = 194.0  # the largest width, and height, of a grid of scores
_STRIP_SPACE = 18.0  # for the strips of documents at the top and at the left of a grid
_GRID_GAP = 14.0  # the space between two grids
_MIN_SEPARATE_SCORE_SIZE = 4.0  # scores that are smaller are drawn in runs


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
        mask: str = NO_MASK,
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
        require_one_of("strategy", strategy, FILLS)
        require_one_of("mask", mask, MASKS)
        if row_size is None and strategy == PADDED:
            row_size = layout.max_len
        elif row_size is None:
            row_size = layout.n_real
            strategy = NEXT_FIT
        self.layout = layout
        self.row_size = row_size
        self.strategy = strategy
        self.mask = mask
        self.rows = tuple(_fill_rows(layout, row_size, strategy))

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
        return len(self.rows) * self._n_scores(self.row_size)

    @cached_property
    def needed(self) -> int:
        """The number of scores whose query and key are in the same document.

        If the document is cut, they must be in the same piece of it.
        """
        return sum(map(self._n_needed_scores, self.rows))

    @cached_property
    def cross_document(self) -> int:
        """The number of scores between different documents that the mask does not hide."""
        if self._hides_other_documents:
            return 0
        n_real_per_row = map(_n_real_steps, self.rows)
        return sum(map(self._n_scores, n_real_per_row)) - self.needed

    @property
    def wasted(self) -> int:
        """The number of scores that the mask hides or that involve padding, but are computed."""
        return self.computed - self.needed - self.cross_document

    @property
    def is_causal(self) -> bool:
        """True if the mask hides the future."""
        return self.mask in (CAUSAL_MASK, CAUSAL_DOCUMENT_MASK)

    @property
    def _hides_other_documents(self) -> bool:
        return self.mask in (DOCUMENT_MASK, CAUSAL_DOCUMENT_MASK)

    def summary(self) -> str:
        """Returns sentences with the numbers of rows, cells and scores."""
        n_documents = self.layout.batch_size
        rows = with_noun(len(self.rows), "row")
        steps = with_noun(self.row_size, "time step")
        n_cells = len(self.rows) * self.row_size
        cells = with_noun(n_cells, "cell")
        padding = padding_text(self.padding, n_cells)
        summary = f"{rows} of {steps}: {cells}, {self.layout.n_real:,} real, {padding}."
        if self.strategy == CUT:
            summary += f" Cut documents: {self.cut:,} of {n_documents:,}."
        scores_text = with_noun(self.computed, "score")
        n_scores_if_padded = n_documents * self._n_scores(self.layout.max_len)
        summary += f" Attention computes {scores_text}: {self.needed:,} needed,"
        summary += f" {self.cross_document:,} across documents, {self.wasted:,} wasted."
        return f"{summary} In a padded batch, it computes {n_scores_if_padded:,}."

    def to_text(self) -> str:
        """Returns the counts, some of the rows and, if the rows are short, grids of scores."""
        rows = []
        for i, row in enumerate(self.rows):
            n_real = _n_real_steps(row)
            padding = f"{self.row_size - n_real} padding,"
            needed_text = f"{self._n_needed_scores(row):,} needed:"
            pieces = [f"{sequence_name(b)}[{first}:{first + size}]" for b, first, size in row]
            rows.append([f"row {i}", f"{n_real} real,", padding, needed_text, " ".join(pieces)])
        if len(rows) > MAX_LISTED:
            rows[8:-3] = [["…"]]
        lines = [self.summary(), "", *table(rows, "<  > > >  <")]
        legend_texts = ["# needed"]
        if self.cross_document:
            legend_texts.append("x another document's")
        if self.wasted:
            legend_texts.append("· wasted")
        legend_text = ", ".join(legend_texts)
        if self.row_size > MAX_LISTED:
            return "\n".join(lines)
        for i, row in enumerate(self.rows[:_MAX_GRIDS]):
            lines += [
                "",
                f"row {i}: each line is a query, and each column is a key ({legend_text})",
            ]
            step_names = []
            for b, first, size in row:
                step_names += [f"{sequence_name(b)}{t}" for t in range(first, first + size)]
            step_names += ["·"] * (self.row_size - len(step_names))
            score_kinds = self._score_kinds(row, np.arange(self.row_size))
            score_lines = [" ".join(line) for line in score_kinds]
            lines += table([*zip(step_names, score_lines, strict=True)], "  >  <")
        return "\n".join(lines)

    def sheet(self, theme: str) -> Sheet:
        """Draws the rows, with a colour for each document, and grids of scores below them."""
        sheet = Sheet(theme, self.to_text())
        n_rows = len(self.rows)
        size_text = f"{with_noun(n_rows, 'row')} of {self.row_size:,}"
        scores_text = f"{with_noun(self.computed, 'score')} and needs {self.needed:,}"
        y = sheet.title(f"In {size_text}, attention computes {scores_text}")
        y = self._draw_rows(sheet, y + 10) + 56 + _STRIP_SPACE
        n_grids = min(n_rows, _MAX_GRIDS)
        grid_width = min(_MAX_GRID_WIDTH, (WIDTH - 4) / n_grids - _STRIP_SPACE - _GRID_GAP)
        x = _STRIP_SPACE + 4
        if n_rows == 1:
            grid_width *= 1.5
            x = _LEFT_MARGIN
        for i, row in enumerate(self.rows[:_MAX_GRIDS]):
            sheet.text(x, y - _STRIP_SPACE - 20, f"row {i}", bold=True)
            self._draw_scores(sheet, row, x, y, grid_width)
            x += grid_width + _STRIP_SPACE + _GRID_GAP
        sheet.legend(y + grid_width + 12, self._legend_entries(sheet))
        note = "In a grid, each line is a query, and each column is a key."
        if n_rows > _MAX_GRIDS:
            note += f" The grids show the first {_MAX_GRIDS} of {n_rows:,} rows."
        drawn_row_stride = choose_row_stride(n_rows, _MAX_ROWS_HEIGHT)
        notes = [note, *stride_notes(drawn_row_stride, n_rows, "rows")]
        y += grid_width + 30
        y = sheet.paragraph(y, notes)
        sheet.set_size(WIDTH, y + 4)
        return sheet

    def _draw_rows(self, sheet: Sheet, y: float) -> float:
        """Draws the contents of each row, and returns the y-coordinate below the rows."""
        drawn_row_stride = choose_row_stride(len(self.rows), _MAX_ROWS_HEIGHT)
        rows = self.rows[::drawn_row_stride]
        cell_width = min(36.0, (WIDTH - _LEFT_MARGIN - 8) / self.row_size)
        row_height = min(ROW_HEIGHT, _MAX_ROWS_HEIGHT / len(rows))
        grid = Grid(sheet, len(rows), self.row_size, cell_width, row_height, _LEFT_MARGIN, y)
        row_names = []
        cell_rows = []
        for i, row in enumerate(rows):
            row_names.append(f"row {i * drawn_row_stride}")
            cells = []
            for piece in row:
                cells += _piece_cells(piece, grid)
            padding = self.row_size - _n_real_steps(row)
            cells.append(Cell(HATCHED, span=padding))
            cell_rows.append(cells)
        grid.write_row_names(row_names)
        grid.draw(cell_rows)
        return grid.bottom

    def _draw_scores(self, sheet: Sheet, row: _Row, x: float, y: float, grid_width: float) -> None:
        """Draws the scores of a row: a line for each query, and a column for each key."""
        n_steps = self.row_size
        colours = sheet.colours
        strip_width = _STRIP_SPACE - 4
        score_width = grid_width / n_steps
        n_needed = self._n_needed_scores(row)
        scores_text = f"{n_needed:,} of {self._n_scores(n_steps):,}"
        sheet.note(x, y - _STRIP_SPACE - 6, f"{scores_text} needed")
        # The lines are at least 2 px high.
        queries = np.arange(0, n_steps, ceil(2 * n_steps / grid_width))
        line_height = grid_width / queries.size
        grid = Grid(sheet, queries.size, n_steps, score_width, line_height, x, y)
        fill_by_kind = {"#": REAL, "x": colours.wrong, "·": HATCHED}
        cell_rows = []
        for score_kinds in self._score_kinds(row, queries):
            run_starts = np.arange(1, n_steps)
            if score_width < _MIN_SEPARATE_SCORE_SIZE:
                run_starts = 1 + np.flatnonzero(score_kinds[1:] != score_kinds[:-1])
            cells = []
            for first, end in pairwise([0, *run_starts.tolist(), n_steps]):
                if score_kinds[first] in fill_by_kind:
                    cells.append(Cell(fill_by_kind[score_kinds[first]], span=end - first))
            cell_rows.append(cells)
        grid.draw(cell_rows)
        start = 0.0
        piece_middles = []
        for b, _, size in row:
            strip_length = size * score_width
            fill = sequence_colour(b)
            name = sequence_name(b)
            top_strip = (x + start, y - _STRIP_SPACE, strip_length, strip_width)
            left_strip = (x - _STRIP_SPACE, y + start, strip_width, strip_length)
            for left, top, width, height in (top_strip, left_strip):
                label_fits = width > text_width(name, 11, mono=True) and height > 11
                label = name if label_fits else ""
                sheet.cell(left, top, width, height, fill, label, size=11)
            if strip_length >= 12 and self.cross_document:
                piece_middles.append(start + strip_length / 2)
            start += strip_length
        for key_middle, query_middle in permutations(piece_middles, 2):
            if query_middle > key_middle or not self.is_causal:
                label_x = x + key_middle
                label_y = y + query_middle + 4
                background = colours.ground
                sheet.text(
                    label_x, label_y, "✗", anchor="middle", bold=True, text_colour=background
                )

    def _legend_entries(self, sheet: Sheet) -> list[tuple[str, str]]:
        """Returns the fills of scores, each with its meaning."""
        reasons = []
        entries = [(REAL, "needed")]
        if self.padding:
            reasons.append("padding")
        if self._hides_other_documents and any(len(row) > 1 for row in self.rows):
            reasons.append("hidden by the mask")
        if self.cross_document:
            entries.append((sheet.colours.wrong, "✗ another document's"))
        if self.wasted:
            entries.append((HATCHED, f"wasted: {' or '.join(reasons)}"))
        if self.is_causal:
            entries.append((sheet.colours.ground, "the future, not computed"))
        return entries

    def _n_scores(self, size: int) -> int:
        """Returns the number of scores among `size` time steps."""
        return size * (size + 1) // 2 if self.is_causal else size * size

    def _n_needed_scores(self, row: _Row) -> int:
        """Returns the number of scores needed in a row."""
        return sum(self._n_scores(piece.size) for piece in row)

    def _score_kinds(self, row: _Row, queries: IntArray) -> npt.NDArray[np.str_]:
        """Returns the kind of each score of these queries, `(Q, C)`.

        A score is needed (`#`), of another document (`x`), wasted (`·`), or not computed (a blank).
        """
        piece_of_step = np.full(self.row_size, -1)
        start = 0
        for i, piece in enumerate(row):
            piece_of_step[start : start + piece.size] = i
            start += piece.size
        query_pieces = piece_of_step[queries, None]
        cross_document_kind = "·" if self._hides_other_documents else "x"
        score_kinds = np.where(query_pieces == piece_of_step, "#", cross_document_kind)
        score_kinds[(query_pieces < 0) | (piece_of_step < 0)] = "·"
        if self.is_causal:
            is_future = np.arange(self.row_size) > queries[:, None]
            score_kinds[is_future] = " "
        return score_kinds


def _n_real_steps(row: _Row) -> int:
    """Returns the number of time steps in a row that belong to documents."""
    return sum(piece.size for piece in row)


def _fill_rows(layout: Layout, row_size: int, strategy: str) -> Iterator[_Row]:
    """Yields the pieces of each row. A document that is cut continues in the next row."""
    n_placed_by_document = np.zeros(layout.batch_size, dtype=int)
    for row in fill(layout.lengths, row_size, strategy):
        pieces = []
        n_free_steps = row_size
        for b in row.tolist():
            first = int(n_placed_by_document[b])
            n_remaining_steps = int(layout.lengths[b]) - first
            size = min(n_remaining_steps, n_free_steps)
            pieces.append(_Piece(b, first, size))
            n_placed_by_document[b] += size
            n_free_steps -= size
        yield tuple(pieces)


def _piece_cells(piece: _Piece, grid: Grid) -> list[Cell]:
    """Returns a named cell for each time step of a piece, or one cell for all if they are small."""
    b, first, size = piece
    fill = sequence_colour(b)
    name = sequence_name(b)
    if grid.has_low_rows or size * grid.cell_width < 4 + text_width(name, mono=True):
        return [Cell(fill, span=size)]
    labels = [f"{name}{t}" for t in range(first, first + size)]
    if grid.cell_width < 8 + text_width(labels[-1], mono=True):
        return [Cell(fill, name, size)]
    return [Cell(fill, label) for label in labels]
