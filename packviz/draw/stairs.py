"""A staircase of rectangles over a padded batch, and what each number of rectangles costs, drawn and as text.

Pure. Where to cut is for `packviz.core.cuts` to say.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from packviz.core.cuts import rectangles
from packviz.core.layout import Layout, sequence_name
from packviz.draw import palette, text
from packviz.draw.cellgrid import CellGrid, one_in, real_cells, roomy, stride
from packviz.draw.chart import Axes, line_key, mark, ticks
from packviz.draw.drawing import Drawing
from packviz.draw.sheet import HATCHED, Sheet, n, row, width_of

_LEFT, _TOP, _WIDE, _TALL = 70.0, 46.0, 460.0, 330.0  # px: the margins of the grid, and the most it takes
_CHART, _CHART_TALL, _AXIS, _END = 354.0, 340.0, 70.0, 24.0  # px: the chart, and what is left and right of its curves
_CURVE = _MEASURED = palette.REAL  # not a method's: the rows beside it have the colours of sequences
_WEDGE, _DIAMOND, _DOT = "m0-4l-5 8h10z", "m0-6l6 6l-6 6l-6-6z", "m-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0z"


@dataclass(frozen=True, init=False, repr=False)
class Stairs(Drawing):
    """The rectangles that a staircase covers a padded batch with.

    Attributes:
        layout: the batch.
        cuts: rising time steps, from 0 to `max(lengths)`: where one rectangle ends, the next one begins.
        rectangles: `(first step, step after the last, sequences)` of each.
    """

    layout: Layout
    cuts: tuple[int, ...]
    rectangles: tuple[tuple[int, int, int], ...]

    def __init__(self, lengths: Any, cuts: Sequence[int]) -> None:
        """Covers a batch.

        Args:
            lengths: as `Layout` takes them, or a `Layout`.
            cuts: as above.

        Raises:
            ValueError: a length is not valid, or the cuts do not rise from 0 to `max(lengths)`.
        """
        layout = Layout(lengths)
        found = tuple(rectangles(layout.lengths.tolist(), cuts))
        for name, value in (("layout", layout), ("cuts", tuple(map(int, cuts))), ("rectangles", found)):
            object.__setattr__(self, name, value)

    @property
    def calls(self) -> int:
        """How many rectangles: each is one call of the kernel."""
        return len(self.rectangles)

    @property
    def cells(self) -> int:
        """Cells computed."""
        return sum((b - a) * n for a, b, n in self.rectangles)

    @property
    def wasted(self) -> int:
        """Padding cells among them."""
        return self.cells - self.layout.n_valid

    def summary(self) -> str:
        """One sentence with the counts."""
        share = text.percent(self.wasted, self.cells)
        return (
            f"{text.count(self.calls, 'rectangle')}: {text.count(self.cells, 'cell')} computed,"
            f" {self.layout.n_valid:,} real, {self.wasted:,} padding ({share} wasted)."
        )

    def to_text(self) -> str:
        """The counts, and the rectangles, of which many are left out."""
        many = self.calls > text.FEW
        rows = []
        for a, b, size in self.rectangles[:8] + self.rectangles[-3:] if many else self.rectangles:
            steps = f"step {a}" if b == a + 1 else f"steps {a}–{b - 1}"
            padding = size * (b - a) - int(self.layout.batch_sizes[a:b].sum())
            sides = f"{text.count(size, 'sequence')} × {text.count(b - a, 'step')}"
            rows.append([steps, f"{sides}, {padding:,} padding"])
        if many:
            rows.insert(8, ["…"])
        return "\n".join([self.summary(), *text.table(rows, "  <14 <")])

    def sheet(self, theme: str) -> Sheet:
        """The grid, longest sequence first: padding that is computed is hatched, what is not computed is left empty."""
        return _Grid(self, theme).draw()


@dataclass(frozen=True, repr=False)
class TradeOff(Drawing):
    """Wasted cells against calls: from padding, one rectangle, to packing, one for every distinct length.

    Attributes:
        calls: `(S,)` numbers of rectangles, rising from 1.
        wasted: `(S,)` padding cells computed with so many.
        seconds: `(S,)` the time predicted.
        at: the number of rectangles pointed at.
        measured: by number of rectangles, the time measured as a multiple of that with one: median and quartiles.
    """

    calls: Sequence[int]
    wasted: Sequence[int]
    seconds: Sequence[float]
    at: int
    measured: Mapping[int, tuple[float, float, float]] = field(default_factory=dict)

    @property
    def ratios(self) -> list[float]:
        """The times predicted, as multiples of that with one rectangle."""
        return [seconds / self.seconds[0] for seconds in self.seconds]

    @property
    def best(self) -> int:
        """The number of rectangles of the shortest time predicted."""
        return self.calls[self.seconds.index(min(self.seconds))]

    def to_text(self) -> str:
        """A table of all, or of some where there are many."""
        rows = [["rectangles", "wasted cells", "predicted time", "  (one rectangle = 1)"]]
        every = max(1, math.ceil(len(self.calls) / text.FEW))
        for i, (k, wasted, ratio) in enumerate(zip(self.calls, self.wasted, self.ratios, strict=True)):
            if i % every == 0 or k in (self.at, self.best, self.calls[-1]) or k in self.measured:
                note = f"  measured {self.measured[k][0]:.3g}" if k in self.measured else ""
                note += "  ← here" if k == self.at else ""
                note += "  ← lowest" if k == self.best else ""
                rows.append([f"{k}", f"{wasted:,}", f"{ratio:.2f}", note])
        return "\n".join(text.table(rows, ">10>14>16<"))

    def sheet(self, theme: str) -> Sheet:
        """Two small charts over the number of rectangles: time above, wasted cells below."""
        return _Chart(self, theme).draw()


def beside(stairs: Stairs, trade_off: TradeOff, theme: str) -> Sheet:
    """The staircase, and to its right what it costs and what others would."""
    return row([stairs.sheet(theme), trade_off.sheet(theme)], theme)


class _Grid:
    """The drawing of a staircase: the sizes that its parts share, and the parts."""

    def __init__(self, stairs: Stairs, theme: str) -> None:
        layout = stairs.layout
        self.sheet = Sheet(theme, stairs.to_text())
        self.stairs, self.layout, self.colours = stairs, layout, self.sheet.colours
        self.stride = stride(layout.batch_size, int(_TALL))
        self.order = layout.sorted_indices[:: self.stride].tolist()
        tall = min(22.0, _TALL / len(self.order))
        wide = min(30.0, _WIDE / layout.max_len)
        self.grid = CellGrid(self.sheet, len(self.order), layout.max_len, wide, tall, _LEFT, _TOP, 11)
        # A sequence has its colour where its name stands.
        self.fill = palette.REAL if self.grid.is_low else ""
        self.each, self.right, self.foot = wide, self.grid.right, self.grid.foot

    def draw(self) -> Sheet:
        calls, share = self.stairs.calls, text.percent(self.stairs.wasted, self.stairs.cells)
        what = "one rectangle, the padded batch" if calls == 1 else f"{calls:,} rectangles"
        self.sheet.title(f"{what}: {share} of what is computed is padding")
        self._cells()
        self._frames()
        self._axis()
        if not self.grid.is_low:
            lengths = self.layout.lengths[self.order].tolist()
            self.grid.names([sequence_name(b) for b in self.order], lengths, 8)
        self._key()
        self.sheet.size(_LEFT + _WIDE + 24, self.foot + (64 if self.stride > 1 else 46))
        return self.sheet

    def _cells(self) -> None:
        """The padded batch, empty; in it the hatched rectangles, and over them the real cells."""
        sheet = self.sheet
        whole = _LEFT, _TOP, self.right - _LEFT, self.foot - _TOP
        sheet.box(*whole, stroke=self.colours.muted, thick=1, dash="2 3")
        for box in self._boxes():
            sheet.box(*box, HATCHED, stroke="")
        label = partial(text.cell_label, None) if text.is_few(self.layout) else None
        self.grid.draw(real_cells(self.layout, b, label, self.fill) for b in self.order)

    def _foot(self, sequences: int) -> float:
        """Where so many sequences end."""
        return self.grid.y(-(-sequences // self.stride))

    def _boxes(self) -> list[tuple[float, float, float, float]]:
        """All rectangles."""
        return [
            (_LEFT + a * self.each, _TOP, (b - a) * self.each, self._foot(sequences) - _TOP)
            for a, b, sequences in self.stairs.rectangles
        ]

    def _frames(self) -> None:
        """Each rectangle outlined; where they are too narrow for that, all of them together."""
        spacing = (self.right - _LEFT) / self.stairs.calls
        if spacing < 6:
            steps = "".join(f"V{n(y + tall)}H{n(x + wide)}" for x, y, wide, tall in self._boxes())
            self.sheet.path(f"M{n(_LEFT)} {n(_TOP)}{steps}V{n(_TOP)}z", stroke=self.colours.accent, width=1.5)
            return
        for box in self._boxes():
            self.sheet.box(*box, stroke=self.colours.accent, thick=2.5 if spacing >= 20 else 1.5)

    def _axis(self) -> None:
        """Above, the time steps of the cuts, as many as have room; below, the size of each rectangle, if all have."""
        sheet, y = self.sheet, _TOP - 8
        sheet.text(_LEFT - 14, y, "cuts", anchor="end", size=11, ink=self.colours.muted)
        for x, label in roomy([(_LEFT + cut * self.each, str(cut)) for cut in self.stairs.cuts]):
            sheet.text(x, y, label, anchor="middle", size=11, ink=self.colours.accent)
        sizes = [(a, b, f"{sequences}×{b - a}") for a, b, sequences in self.stairs.rectangles]
        if all((b - a) * self.each >= 6.4 * len(label) for a, b, label in sizes):
            for a, b, label in sizes:
                middle = _LEFT + (a + b) / 2 * self.each
                sheet.text(middle, self.foot + 14, label, anchor="middle", size=10, ink=self.colours.muted)

    def _key(self) -> None:
        sheet, y = self.sheet, self.foot + 24
        sheet.layer()
        x = sheet.key(4, y, [(self.fill or palette.sequence_colour(0), "real"), (HATCHED, "padding, computed")])
        sheet.box(x, y, 14, 12, stroke=self.colours.muted, thick=1, dash="2 3")
        sheet.text(x + 20, y + 10, "padding, left out")
        if self.stride > 1:
            sheet.text(4, y + 30, one_in(self.stride, self.layout.batch_size), size=11, ink=self.colours.muted)


class _Chart:
    """The drawing of a trade-off: two panels over one axis."""

    def __init__(self, it: TradeOff, theme: str) -> None:
        self.it, self.sheet = it, Sheet(theme, it.to_text())
        self.colours = self.sheet.colours
        slowest = max(*it.ratios, *(high for _, _, high in it.measured.values()), 1.0)
        wide = _CHART - _AXIS - _END
        # Evenly in the logarithm: from one rectangle to two is as far as from 16 to 32.
        most = math.log(max(it.calls[-1], 2))
        self.time = Axes(self.sheet, _AXIS, 34, wide, 124, ticks(0, slowest), lambda k: math.log(k) / most)
        self.wasted = Axes(self.sheet, _AXIS, 200, wide, 80, ticks(0, max(*it.wasted, 1)), self.time.across)

    def draw(self) -> Sheet:
        it, sheet = self.it, self.sheet
        for axes, title, values in (
            (self.time, "time, as a multiple of one rectangle", it.ratios),
            (self.wasted, "wasted cells", it.wasted),
        ):
            axes.rows(title)
            points = [(axes.x(k), axes.y(value)) for k, value in zip(it.calls, values, strict=True)]
            sheet.line(points, _CURVE, width=2.5, outlined=True)
        most = it.calls[-1]
        name = f"rectangles: 1 is padding, {most:,} packing" if most > 1 else "rectangles"
        self.wasted.columns(sorted({most, *(2**i for i in range(int(math.log2(most)) + 1))}), name)
        sheet.layer()
        lowest = self.time.x(it.best), self.time.y(min(it.ratios)) + 9
        mark(sheet, lowest, _WEDGE, self.colours.text)
        self.time.whiskers((k, low, high) for k, (_, low, high) in it.measured.items())
        for k, (middle, _, _) in it.measured.items():
            mark(sheet, (self.time.x(k), self.time.y(middle)), _DIAMOND, _MEASURED, self.colours.line)
        self._cursor()
        self._key()
        sheet.size(_CHART, _CHART_TALL)
        return sheet

    def _cursor(self) -> None:
        """Through both panels at the number of rectangles pointed at, with both values."""
        it, sheet, x = self.it, self.sheet, self.time.x(self.it.at)
        at, left = it.calls.index(it.at), x < (_AXIS + _CHART) / 2
        for axes, value, label in (
            (self.time, it.ratios[at], f"{it.ratios[at]:.2f}"),
            (self.wasted, it.wasted[at], text.short(it.wasted[at])),
        ):
            y = axes.y(value)
            sheet.line([(x, axes.top), (x, axes.foot)], self.colours.accent)
            mark(sheet, (x, y), _DOT, self.colours.accent)
            place = x + (8 if left else -8), max(y - 7, axes.top)
            sheet.text(*place, label, anchor="" if left else "end", bold=True, halo=self.colours.ground)

    def _key(self) -> None:
        sheet, y = self.sheet, self.wasted.foot + 50
        x = line_key(sheet, 8, y, "predicted", _CURVE, width=3)
        marks = [(_WEDGE, self.colours.text, "lowest"), (_DIAMOND, _MEASURED, "measured here")]
        for shape, fill, label in marks if self.it.measured else marks[:1]:
            mark(sheet, (x + 6, y - 4), shape, fill, self.colours.line if shape == _DIAMOND else "")
            sheet.text(x + 20, y, label)
            x += 40 + width_of(label)
