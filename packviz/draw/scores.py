"""Documents in rows of one size, and the scores that attention computes in each row: counted, drawn and as text. Pure.

A row of `C` time steps (tokens) has a score for every query (a row of the grid) and every key (a column): `C · C`
cells, or with a causal mask `C · (C + 1) / 2`, because kernels leave the future out. What a document mask hides is
computed all the same, and wasted, but by a kernel that knows the documents: it computes what is needed and no more.
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
"""What attention may not see: nothing; the future; other documents; neither of the two."""

_WIDTH, _LEFT, _TALL = 900.0, 64.0, 260  # px: a JupyterLab cell, left of the rows, the most they take
_GRIDS, _SIDE, _STRIP, _GAP = 4, 194.0, 18.0, 14.0  # grids side by side; px: of each, of its strips, between them


class _Piece(NamedTuple):
    """A stretch of a row: so many time steps of a document, from one on. All of them, where none is cut."""

    document: int
    first: int
    size: int


_Row = tuple[_Piece, ...]


class Scores(Drawing):
    """Documents in rows, and what attention computes there.

    Attributes:
        layout: the documents.
        row_size: `C`, the time steps of a row.
        strategy: how the rows are filled: one of `pv.batches.FILLS`.
        mask: one of `MASKS`.
        rows: of each row its pieces.
    """

    @renamed(way="strategy", room="row_size")
    def __init__(
        self, lengths: Any, row_size: int | None = None, strategy: str = FIRST_FIT_DECREASING, mask: str = NONE
    ) -> None:
        """Fills rows.

        Args:
            lengths: `(B,)` of the documents, or a `Layout`.
            row_size: as above. If not given, all documents lie in one row, one after another; with the strategy
                `"padded"` each lies in a row as long as the longest: a padded batch.
            strategy: as above.
            mask: as above.

        Raises:
            ValueError: a length is not valid or over `row_size`, or there is no such strategy or mask.
        """
        layout = Layout(lengths)
        one_of("strategy", strategy, FILLS)
        one_of("mask", mask, MASKS)
        if row_size is None:
            row_size, strategy = (layout.max_len, strategy) if strategy == PADDED else (layout.n_valid, NEXT_FIT)
        self.layout, self.row_size, self.strategy, self.mask = layout, row_size, strategy, mask
        self.rows = tuple(_pieces(layout, row_size, strategy))

    @property
    def padding(self) -> int:
        """Time steps of all rows that hold no document."""
        return len(self.rows) * self.row_size - self.layout.n_valid

    @property
    def cut(self) -> int:
        """How many documents are cut: each lies in several rows."""
        return len({piece.document for row in self.rows for piece in row if piece.first})

    @property
    def computed(self) -> int:
        """Scores computed in all rows."""
        return len(self.rows) * self._square(self.row_size)

    @cached_property
    def needed(self) -> int:
        """Scores of a document's own queries and keys: those that it has when it runs alone, unless it is cut."""
        return sum(map(self._needed, self.rows))

    @cached_property
    def cross_document(self) -> int:
        """Scores of one document's queries and another one's keys that no mask hides."""
        if self.mask in (DOCUMENT, BOTH):
            return 0
        return sum(self._square(_real(row)) for row in self.rows) - self.needed

    @property
    def wasted(self) -> int:
        """Scores computed for nothing: of padding, or hidden by the mask."""
        return self.computed - self.needed - self.cross_document

    @property
    def is_causal(self) -> bool:
        """Whether the mask hides the future."""
        return self.mask in (CAUSAL, BOTH)

    def summary(self) -> str:
        """The counts in two sentences, and those of a padded batch."""
        many, cells = len(self.rows), len(self.rows) * self.row_size
        cut = f" {self.cut:,} of {text.count(self.layout.batch_size, 'document')} cut." if self.strategy == CUT else ""
        padded = self.layout.batch_size * self._square(self.layout.max_len)
        return (
            f"{text.count(many, 'row')} of {text.count(self.row_size, 'time step')}: {text.count(cells, 'cell')},"
            f" {self.layout.n_valid:,} real,"
            f" {self.padding:,} padding ({text.percent(self.padding, cells)} wasted).{cut}"
            f" Attention computes {text.count(self.computed, 'score')}: {self.needed:,} needed,"
            f" {self.cross_document:,} of other documents, {self.wasted:,} wasted. A padded batch computes {padded:,}."
        )

    def to_text(self) -> str:
        """The counts, the rows, of which many are left out, and the grids of few."""
        table = []
        for i, row in enumerate(self.rows):
            real, needed = _real(row), f"{self._needed(row):,}"
            pieces = " ".join(f"{sequence_name(b)}[{t}:{t + size}]" for b, t, size in row)
            table.append([f"row {i}", f"{real} real,", f"{self.row_size - real} padding,", f"{needed} needed:", pieces])
        if len(table) > text.FEW:
            table[8:-3] = [["…"]]
        lines = [self.summary(), "", *text.table(table, "<  > > >  <")]
        if self.row_size <= text.FEW:
            for i in range(min(len(self.rows), _GRIDS)):
                marks = {"# needed": True, "x another document's": self.cross_document, "· wasted": self.wasted}
                names = ", ".join(mark for mark, there in marks.items() if there)
                lines += ["", f"row {i}, a line for each query, a column for each key ({names})", *self._marks(i)]
        return "\n".join(lines)

    def sheet(self, theme: str) -> Sheet:
        """The rows, a colour for each document; below, the scores of the first ones, as grids."""
        return _Picture(self, theme).draw()

    def _square(self, size: int) -> int:
        """The scores among so many time steps."""
        return size * (size + 1) // 2 if self.is_causal else size * size

    def _needed(self, row: _Row) -> int:
        """The scores needed in a row."""
        return sum(self._square(piece.size) for piece in row)

    def _marks(self, i: int) -> list[str]:
        """The grid of a row in words."""
        owners = [f"{sequence_name(b)}{t}" for b, first, size in self.rows[i] for t in range(first, first + size)]
        which = [j for j, (_, _, size) in enumerate(self.rows[i]) for _ in range(size)]
        which += [-1] * (self.row_size - len(which))
        hidden = "·" if self.mask in (DOCUMENT, BOTH) else "x"
        table = []
        for q, own in enumerate(which):
            keys = which[: q + 1] if self.is_causal else which
            cells = ["·" if -1 in (own, other) else "#" if other == own else hidden for other in keys]
            table.append([owners[q] if q < len(owners) else "·", " ".join(cells)])
        return text.table(table, "  >  <")


def _real(row: _Row) -> int:
    """The time steps of a row that are no padding."""
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
    """The time steps of a piece, each with its name; if these have no room, one stretch with the document's."""
    (b, first, size), high = piece, not grid.is_low
    fill, name = palette.sequence_colour(b), sequence_name(b)
    if high and grid.wide >= 8 + width_of(f"{name}{first + size - 1}"):
        return [Cell(fill, f"{name}{first + t}") for t in range(size)]
    return [Cell(fill, name if high and size * grid.wide >= 4 + width_of(name) else "", size)]


class _Picture:
    """The drawing in the making."""

    def __init__(self, it: Scores, theme: str) -> None:
        self.it, self.sheet = it, Sheet(theme, it.to_text())
        self.colours = self.sheet.colours

    def draw(self) -> Sheet:
        it, sheet, many = self.it, self.sheet, len(self.it.rows)
        computed = f"attention computes {text.count(it.computed, 'score')}, {it.needed:,} of them needed"
        y = self._rows(sheet.title(f"{text.count(many, 'row')} of {it.row_size:,}: {computed}") + 10) + 56 + _STRIP
        side, left = (_SIDE, _STRIP + 4) if many > 1 else (1.5 * _SIDE, _LEFT)
        lefts = [left + i * (side + _STRIP + _GAP) for i in range(min(many, _GRIDS))]
        for i, x in enumerate(lefts):
            self._fills(i, x, y, side)
        sheet.layer()
        for x in lefts:
            self._lines(x, y, side)
        sheet.layer()
        self._key(y + side + 12)
        notes = ["A line of a grid is a query, a column a key."]
        if many > _GRIDS:
            notes[0] += f" Drawn are those of the first {_GRIDS} of {many:,} rows."
        if (each := stride(many, _TALL)) > 1:
            notes.append(one_in(each, many, "rows"))
        y = sheet.paragraph(4, y + side + 30, notes, size=11, ink=self.colours.muted)
        sheet.size(_WIDTH, y + 4)
        return sheet

    def _rows(self, y: float) -> float:
        """Draws what lies in each row, and returns the y below."""
        it, each = self.it, stride(len(self.it.rows), _TALL)
        rows, wide = it.rows[::each], min(36.0, (_WIDTH - _LEFT - 8) / it.row_size)
        grid = CellGrid(self.sheet, len(rows), it.row_size, wide, min(TALL, _TALL / len(rows)), _LEFT, y)
        grid.names([f"row {i * each}" for i in range(len(rows))])
        grid.draw(
            [*chain.from_iterable(_cells(piece, grid) for piece in row), Cell(HATCHED, span=it.row_size - _real(row))]
            for row in rows
        )
        return grid.foot

    def _fills(self, i: int, x: float, y: float, side: float) -> None:
        """A grid as squares: all of it, in it the documents, in these each one's own."""
        it, sheet, each, row = self.it, self.sheet, side / self.it.row_size, self.it.rows[i]
        sheet.text(x, y - _STRIP - 20, f"row {i}", bold=True)
        label = f"{it._needed(row):,} of {it._square(it.row_size):,} needed"
        sheet.text(x, y - _STRIP - 6, label, size=11, ink=self.colours.muted)
        sheet.box(x, y, side, side, HATCHED)
        if it.cross_document:
            sheet.box(x, y, each * _real(row), each * _real(row), self.colours.wrong)
        at, middles, thick = 0.0, [], _STRIP - 4
        for b, _, size in row:
            own, name = size * each, sequence_name(b)
            for place in ((x + at, y - _STRIP, own, thick), (x - _STRIP, y + at, thick, own)):
                fits = place[2] > width_of(name, 11) and place[3] > 11
                sheet.cell(*place, palette.sequence_colour(b), name if fits else "", size=11)
            sheet.cell(x + at, y + at, own, own, palette.REAL)
            middles += [at + own / 2] if own >= 12 else []
            at += own
        for query, key in permutations(middles if it.cross_document else [], 2):
            sheet.text(x + key, y + query + 4, "✗", anchor="middle", bold=True, ink=self.colours.ground)

    def _lines(self, x: float, y: float, side: float) -> None:
        """Over it a raster where cells are large, and nothing where the future is."""
        sheet, steps = self.sheet, self.it.row_size
        each = side / steps
        if each >= 6:
            ends = [i * each for i in range(1, steps)]
            d = "".join(f"M{n(x)} {n(y + end)}h{n(side)}M{n(x + end)} {n(y)}v{n(side)}" for end in ends)
            sheet.path(d, stroke=self.colours.line, width=0.5)
        if self.it.is_causal and steps > 1:
            some = ceil(2 / each)  # steps of the stairs that are 2 px high, or one of them
            stairs = "".join(f"V{n(y + i * each)}H{n(x + (i + 1) * each)}" for i in range(some, steps, some))
            d = f"M{n(x + side)} {n(y)}H{n(x + each)}{stairs}V{n(y + side - each)}H{n(x + side)}z"
            sheet.path(d, fill=self.colours.ground, stroke=self.colours.ground, width=2)
            sheet.path(d, stroke=self.colours.muted, dash="2 3")

    def _key(self, y: float) -> None:
        it, sheet = self.it, self.sheet
        hides = it.mask in (DOCUMENT, BOTH) and any(len(row) > 1 for row in it.rows)
        why = " or ".join(["padding"] * bool(it.padding) + ["hidden by the mask"] * hides)
        parts = [(palette.REAL, "needed"), (self.colours.wrong, "✗ another document's"), (HATCHED, f"wasted: {why}")]
        x = sheet.key(4, y, compress(parts, (True, it.cross_document, it.wasted)))
        if it.is_causal:
            sheet.box(x, y, 14, 12, stroke=self.colours.muted, thick=1, dash="2 3")
            sheet.text(x + 20, y + 10, "the future: not computed")
