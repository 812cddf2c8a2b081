"""Counts, draws and describes the scores that attention computes for documents in rows of a fixed
size.

A row of `C` time steps (tokens) has a score for each pair of a query and a key. That makes `C · C`
scores, or `C · (C + 1) / 2` with a causal mask, because kernels leave the future out. The scores
that a document mask hides are computed anyway, so they are wasted. Only a kernel that knows where
each document begins computes no more than is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import chain, compress, permutations
from math import ceil
from typing import Any, NamedTuple

from packviz.core.batches import CUT, FILLS, FIRST_FIT_DECREASING, NEXT_FIT, PADDED, fill
from packviz.core.layout import Layout, sequence_name
from packviz.core.validation import one_of, renamed
from packviz.draw import palette, text
from packviz.draw.cellgrid import TALL, Cell, CellGrid, one_in, stride
from packviz.draw.drawing import Drawing
from packviz.draw.sheet import HATCHED, Sheet, n, width_of

NONE, CAUSAL, DOCUMENT, BOTH = "none", "causal", "document", "both"
MASKS = (NONE, CAUSAL, DOCUMENT, BOTH)
"""The masks. In this order, they hide nothing, the future, other documents, or both the future and other documents."""

_WIDTH, _LEFT, _TALL = (
    900.0,
    64.0,
    260,
)  # px: the picture, the space to the left of rows, the height of all rows
_GRIDS, _SIDE, _STRIP, _GAP = (
    4,
    194.0,
    18.0,
    14.0,
)  # the most grids; px: a grid, its strips, the gap


class _Piece(NamedTuple):
    """A piece of a document in a row: `size` time steps, beginning with time step `first` of the document."""

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

    @renamed(way="strategy", room="row_size")
    def __init__(
        self,
        lengths: Any,
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
        if row_size is None:
            row_size, strategy = (
                (layout.max_len, strategy) if strategy == PADDED else (layout.n_real, NEXT_FIT)
            )
        self.layout, self.row_size, self.strategy, self.mask = layout, row_size, strategy, mask
        self.rows = tuple(_pieces(layout, row_size, strategy))

    @property
    def padding(self) -> int:
        """The number of time steps, over all rows, that do not belong to any document."""
        return len(self.rows) * self.row_size - self.layout.n_real

    @property
    def cut(self) -> int:
        """The number of documents that are cut into pieces and spread over several rows."""
        return len({piece.document for row in self.rows for piece in row if piece.first})

    @property
    def computed(self) -> int:
        """The number of scores computed in all rows."""
        return len(self.rows) * self._square(self.row_size)

    @cached_property
    def needed(self) -> int:
        """The number of scores whose query and key are in the same document or, if it is cut, in the same piece."""
        return sum(map(self._needed, self.rows))

    @cached_property
    def cross_document(self) -> int:
        """The number of scores that the mask does not hide although their query and key are in different documents."""
        if self.mask in (DOCUMENT, BOTH):
            return 0
        return sum(self._square(_real(row)) for row in self.rows) - self.needed

    @property
    def wasted(self) -> int:
        """The number of scores that are computed for nothing, because they involve padding or the mask hides them."""
        return self.computed - self.needed - self.cross_document

    @property
    def is_causal(self) -> bool:
        """True if the mask hides the future."""
        return self.mask in (CAUSAL, BOTH)

    def summary(self) -> str:
        """Returns sentences with the numbers of rows, cells and scores, and the number of scores of a padded batch."""
        many, cells = len(self.rows), len(self.rows) * self.row_size
        cut = (
            f" Cut documents: {self.cut:,} of {self.layout.batch_size:,}."
            if self.strategy == CUT
            else ""
        )
        padded = self.layout.batch_size * self._square(self.layout.max_len)
        return (
            f"{text.count(many, 'row')} of {text.count(self.row_size, 'time step')}: {text.count(cells, 'cell')},"
            f" {self.layout.n_real:,} real,"
            f" {self.padding:,} padding ({text.percent(self.padding, cells)} wasted).{cut}"
            f" Attention computes {text.count(self.computed, 'score')}: {self.needed:,} needed,"
            f" {self.cross_document:,} across documents, {self.wasted:,} wasted. A padded batch takes {padded:,}."
        )

    def to_text(self) -> str:
        """Returns the counts, the rows (only some if there are many) and, if the rows are short, grids of scores."""
        table = []
        for i, row in enumerate(self.rows):
            real, needed = _real(row), f"{self._needed(row):,}"
            pieces = " ".join(f"{sequence_name(b)}[{t}:{t + size}]" for b, t, size in row)
            table.append(
                [
                    f"row {i}",
                    f"{real} real,",
                    f"{self.row_size - real} padding,",
                    f"{needed} needed:",
                    pieces,
                ]
            )
        if len(table) > text.FEW:
            table[8:-3] = [["…"]]
        lines = [self.summary(), "", *text.table(table, "<  > > >  <")]
        if self.row_size <= text.FEW:
            for i in range(min(len(self.rows), _GRIDS)):
                marks = {
                    "# needed": True,
                    "x another document's": self.cross_document,
                    "· wasted": self.wasted,
                }
                names = ", ".join(mark for mark, there in marks.items() if there)
                lines += [
                    "",
                    f"row {i}: each line is a query, and each column is a key ({names})",
                    *self._marks(i),
                ]
        return "\n".join(lines)

    def sheet(self, theme: str) -> Sheet:
        """Draws the rows, with a colour for each document. Grids below them show the scores of the first rows."""
        sheet, many = Sheet(theme, self.to_text()), len(self.rows)
        computed = (
            f"attention computes {text.count(self.computed, 'score')} and needs {self.needed:,}"
        )
        y = sheet.title(f"In {text.count(many, 'row')} of {self.row_size:,}, {computed}") + 10
        y = self._draw_rows(sheet, y) + 56 + _STRIP
        side, left = (_SIDE, _STRIP + 4) if many > 1 else (1.5 * _SIDE, _LEFT)
        lefts = [left + i * (side + _STRIP + _GAP) for i in range(min(many, _GRIDS))]
        for i, x in enumerate(lefts):
            self._fills(sheet, i, x, y, side)
        sheet.layer()
        for x in lefts:
            self._lines(sheet, x, y, side)
        sheet.layer()
        self._key(sheet, y + side + 12)
        notes = ["In a grid, each line is a query, and each column is a key."]
        if many > _GRIDS:
            notes[0] += f" The grids show the first {_GRIDS} of {many:,} rows."
        if (each := stride(many, _TALL)) > 1:
            notes.append(one_in(each, many, "rows"))
        y = sheet.paragraph(4, y + side + 30, notes, size=11, ink=sheet.colours.muted)
        sheet.size(_WIDTH, y + 4)
        return sheet

    def _draw_rows(self, sheet: Sheet, y: float) -> float:
        """Draws the contents of each row, and returns the y-coordinate below the rows."""
        each = stride(len(self.rows), _TALL)
        rows, wide = self.rows[::each], min(36.0, (_WIDTH - _LEFT - 8) / self.row_size)
        grid = CellGrid(
            sheet, len(rows), self.row_size, wide, min(TALL, _TALL / len(rows)), _LEFT, y
        )
        grid.names([f"row {i * each}" for i in range(len(rows))])
        grid.draw(
            [
                *chain.from_iterable(_cells(piece, grid) for piece in row),
                Cell(HATCHED, span=self.row_size - _real(row)),
            ]
            for row in rows
        )
        return grid.foot

    def _fills(self, sheet: Sheet, i: int, x: float, y: float, side: float) -> None:
        """Draws the scores of a row as squares: one for all steps, one for real steps, and one for each document."""
        each, row = side / self.row_size, self.rows[i]
        sheet.text(x, y - _STRIP - 20, f"row {i}", bold=True)
        label = f"{self._needed(row):,} of {self._square(self.row_size):,} needed"
        sheet.text(x, y - _STRIP - 6, label, size=11, ink=sheet.colours.muted)
        sheet.box(x, y, side, side, HATCHED)
        if self.cross_document:
            sheet.box(x, y, each * _real(row), each * _real(row), sheet.colours.wrong)
        at, middles, thick = 0.0, [], _STRIP - 4
        for b, _, size in row:
            own, name = size * each, sequence_name(b)
            for place in ((x + at, y - _STRIP, own, thick), (x - _STRIP, y + at, thick, own)):
                fits = place[2] > width_of(name, 11) and place[3] > 11
                sheet.cell(*place, palette.sequence_colour(b), name if fits else "", size=11)
            sheet.cell(x + at, y + at, own, own, palette.REAL)
            middles += [at + own / 2] if own >= 12 else []
            at += own
        for query, key in permutations(middles if self.cross_document else [], 2):
            sheet.text(
                x + key, y + query + 4, "✗", anchor="middle", bold=True, ink=sheet.colours.ground
            )

    def _lines(self, sheet: Sheet, x: float, y: float, side: float) -> None:
        """Draws lines between cells if the cells are large enough, and blanks out the future if the mask is causal."""
        steps = self.row_size
        each = side / steps
        if each >= 6:
            ends = [i * each for i in range(1, steps)]
            d = "".join(
                f"M{n(x)} {n(y + end)}h{n(side)}M{n(x + end)} {n(y)}v{n(side)}" for end in ends
            )
            sheet.path(d, stroke=sheet.colours.line, width=0.5)
        if self.is_causal and steps > 1:
            some = ceil(2 / each)  # time steps per stair, which is at least 2 px wide
            stairs = "".join(
                f"V{n(y + i * each)}H{n(x + (i + 1) * each)}" for i in range(some, steps, some)
            )
            d = f"M{n(x + side)} {n(y)}H{n(x + each)}{stairs}V{n(y + side - each)}H{n(x + side)}z"
            sheet.path(d, fill=sheet.colours.ground, stroke=sheet.colours.ground, width=2)
            sheet.path(d, stroke=sheet.colours.muted, dash="2 3")

    def _key(self, sheet: Sheet, y: float) -> None:
        hides = self.mask in (DOCUMENT, BOTH) and any(len(row) > 1 for row in self.rows)
        why = " or ".join(["padding"] * bool(self.padding) + ["hidden by the mask"] * hides)
        parts = [
            (palette.REAL, "needed"),
            (sheet.colours.wrong, "✗ another document's"),
            (HATCHED, f"wasted: {why}"),
        ]
        x = sheet.key(4, y, compress(parts, (True, self.cross_document, self.wasted)))
        if self.is_causal:
            sheet.box(x, y, 14, 12, stroke=sheet.colours.muted, thick=1, dash="2 3")
            sheet.text(x + 20, y + 10, "the future, not computed")

    def _square(self, size: int) -> int:
        """Returns the number of scores among `size` time steps."""
        return size * (size + 1) // 2 if self.is_causal else size * size

    def _needed(self, row: _Row) -> int:
        """Returns the number of scores needed in a row."""
        return sum(self._square(piece.size) for piece in row)

    def _marks(self, i: int) -> list[str]:
        """Returns the grid of a row's scores as lines of text."""
        owners = [
            f"{sequence_name(b)}{t}"
            for b, first, size in self.rows[i]
            for t in range(first, first + size)
        ]
        which = [j for j, (_, _, size) in enumerate(self.rows[i]) for _ in range(size)]
        which += [-1] * (self.row_size - len(which))
        hidden = "·" if self.mask in (DOCUMENT, BOTH) else "x"
        table = []
        for q, own in enumerate(which):
            keys = which[: q + 1] if self.is_causal else which
            cells = [
                "·" if -1 in (own, other) else "#" if other == own else hidden for other in keys
            ]
            table.append([owners[q] if q < len(owners) else "·", " ".join(cells)])
        return text.table(table, "  >  <")


def _real(row: _Row) -> int:
    """Returns the number of time steps in a row that belong to documents."""
    return sum(piece.size for piece in row)


def _pieces(layout: Layout, row_size: int, strategy: str) -> Iterator[_Row]:
    """Yields the pieces of each row. A document that is cut continues in the next row."""
    done = [0] * layout.batch_size
    lengths = layout.lengths.tolist()
    for row in fill(layout.lengths, row_size, strategy):
        pieces, free = [], row_size
        for b in row.tolist():
            size = min(lengths[b] - done[b], free)
            pieces.append(_Piece(b, done[b], size))
            done[b], free = done[b] + size, free - size
        yield tuple(pieces)


def _cells(piece: _Piece, grid: CellGrid) -> list[Cell]:
    """Returns a named cell for each time step of a piece, or one cell for all of them if there is not enough room."""
    (b, first, size), high = piece, not grid.is_low
    fill, name = palette.sequence_colour(b), sequence_name(b)
    if high and grid.wide >= 8 + width_of(f"{name}{first + size - 1}"):
        return [Cell(fill, f"{name}{first + t}") for t in range(size)]
    return [Cell(fill, name if high and size * grid.wide >= 4 + width_of(name) else "", size)]
