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
from packviz.draw.chart import COLOURS
from packviz.draw.drawing import Drawing
from packviz.draw.sheet import HATCHED, Sheet, n, row
from packviz.draw.sweep import Curve, Plot, Sweep

_LEFT, _TOP, _WIDE, _TALL = 70.0, 46.0, 460.0, 330.0  # px: the margins of the grid, and the most it takes


class Stairs(Drawing):
    """The rectangles that a staircase covers a padded batch with.

    Attributes:
        layout: the batch.
        cuts: rising time steps, from 0 to `max(lengths)`: where one rectangle ends, the next one begins.
        rectangles: `(first step, step after the last, sequences)` of each.
    """

    def __init__(self, lengths: Any, cuts: Sequence[int]) -> None:
        """Covers a batch.

        Args:
            lengths: as `Layout` takes them, or a `Layout`.
            cuts: as above.

        Raises:
            ValueError: a length is not valid, or the cuts do not rise from 0 to `max(lengths)`.
        """
        self.layout, self.cuts = Layout(lengths), tuple(map(int, cuts))
        self.rectangles = tuple(rectangles(self.layout.lengths.tolist(), cuts))

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
        at, calls, plots = self.calls.index(self.at), tuple(self.calls), list[list[Plot]]()
        none = len(COLOURS) - 1  # the colour of no method: the rows beside it have those of sequences
        found = [(k, *self.measured[k]) for k in sorted(self.measured)]
        for what, values, label in (
            ("time, as a multiple of one rectangle", self.ratios, f"{self.ratios[at]:.2f}"),
            ("wasted cells", self.wasted, text.short(self.wasted[at])),
        ):
            curves = [Curve("", none, 0, calls, values, values, values)]
            if found and not plots:
                x, middle, low, high = zip(*found, strict=True)
                curves.append(Curve("measured here", none, 1, x, middle, low, high, hollow=True))
            cursor = {label: ((self.at, 0.0), (self.at, values[at]))}
            plots.append([Plot(what, curves, [self.at], cursor, "", log_x=True)])
        title = f"Predicted to be fastest: {text.count(self.best, 'rectangle')}"
        axis = f"rectangles: 1 is padding, {calls[-1]:,} have none" if calls[-1] > 1 else "rectangles"
        whole = Sweep(title, plots, (), (), "", axis, 230).sheet(theme)
        whole.description = self.to_text()
        return whole


def beside(stairs: Stairs, trade_off: TradeOff, theme: str) -> Sheet:
    """The staircase, and to its right what it costs and what others would."""
    return row([stairs.sheet(theme), trade_off.sheet(theme)], theme)


class _Grid:
    """The drawing of a staircase: the sizes that its parts share, and the parts."""

    def __init__(self, stairs: Stairs, theme: str) -> None:
        layout = stairs.layout
        self.sheet, self.stairs = Sheet(theme, stairs.to_text()), stairs
        self.stride = stride(layout.batch_size, int(_TALL))
        self.order = layout.sorted_indices[:: self.stride].tolist()
        tall, wide = min(22.0, _TALL / len(self.order)), min(30.0, _WIDE / layout.max_len)
        self.grid = CellGrid(self.sheet, len(self.order), layout.max_len, wide, tall, _LEFT, _TOP, 11)
        feet = [self.grid.y(-(-sequences // self.stride)) - _TOP for _, _, sequences in stairs.rectangles]
        self.boxes = [
            (self.grid.x(a), _TOP, (b - a) * wide, foot)
            for (a, b, _), foot in zip(stairs.rectangles, feet, strict=True)
        ]

    def draw(self) -> Sheet:
        """The padded batch, empty; in it the hatched rectangles, over them the real cells, and their outlines."""
        sheet, grid, stairs, muted = self.sheet, self.grid, self.stairs, self.sheet.colours.muted
        layout, share = stairs.layout, text.percent(stairs.wasted, stairs.cells)
        what = "one rectangle, the padded batch" if stairs.calls == 1 else f"{stairs.calls:,} rectangles"
        sheet.title(f"{what}: {share} of what is computed is padding")
        sheet.box(_LEFT, _TOP, grid.right - _LEFT, grid.foot - _TOP, stroke=muted, thick=1, dash="2 3")
        for box in self.boxes:
            sheet.box(*box, HATCHED, stroke="")
        label = partial(text.cell_label, None) if text.is_few(layout) else None
        fill = palette.REAL if grid.is_low else ""  # a sequence has its colour where its name stands
        grid.draw(real_cells(layout, b, label, fill) for b in self.order)
        self._frames()
        self._axis()
        if not grid.is_low:
            grid.names([sequence_name(b) for b in self.order], layout.lengths[self.order].tolist(), 8)
        sheet.layer()
        y = grid.foot + 24
        x = sheet.key(4, y, [(fill or palette.sequence_colour(0), "real"), (HATCHED, "padding, computed")])
        sheet.box(x, y, 14, 12, stroke=muted, thick=1, dash="2 3")
        sheet.text(x + 20, y + 10, "padding, left out")
        if self.stride > 1:
            sheet.text(4, y + 30, one_in(self.stride, layout.batch_size), size=11, ink=muted)
        sheet.size(_LEFT + _WIDE + 24, grid.foot + (64 if self.stride > 1 else 46))
        return sheet

    def _frames(self) -> None:
        """Each rectangle outlined; where they are too narrow for that, all of them together."""
        spacing, accent = (self.grid.right - _LEFT) / self.stairs.calls, self.sheet.colours.accent
        if spacing < 6:
            steps = "".join(f"V{n(y + tall)}H{n(x + wide)}" for x, y, wide, tall in self.boxes)
            self.sheet.path(f"M{n(_LEFT)} {n(_TOP)}{steps}V{n(_TOP)}z", stroke=accent, width=1.5)
            return
        for box in self.boxes:
            self.sheet.box(*box, stroke=accent, thick=2.5 if spacing >= 20 else 1.5)

    def _axis(self) -> None:
        """Above, the time steps of the cuts, as many as have room; below, the size of each rectangle, if all have."""
        sheet, grid, muted = self.sheet, self.grid, self.sheet.colours.muted
        sheet.text(_LEFT - 14, _TOP - 8, "cuts", anchor="end", size=11, ink=muted)
        for x, label in roomy([(grid.x(cut), str(cut)) for cut in self.stairs.cuts]):
            sheet.text(x, _TOP - 8, label, anchor="middle", size=11, ink=sheet.colours.accent)
        sizes = [(a, b, f"{sequences}×{b - a}") for a, b, sequences in self.stairs.rectangles]
        if all((b - a) * grid.wide >= 6.4 * len(label) for a, b, label in sizes):
            for a, b, label in sizes:
                sheet.text(grid.x((a + b) / 2), grid.foot + 14, label, anchor="middle", size=10, ink=muted)
