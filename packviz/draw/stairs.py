"""Draws a staircase of rectangles over the real cells of a batch, and plots its cost against the
number of rectangles.

`packviz.core.cuts` computes the best cuts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from packviz.core.cuts import rectangles
from packviz.core.layout import Layout, sequence_name
from packviz.draw import palette, text
from packviz.draw.cellgrid import CellGrid, one_in, real_cells, roomy, stride
from packviz.draw.curves import COLOURS, Curve, Plot, Sweep
from packviz.draw.drawing import Drawing
from packviz.draw.sheet import HATCHED, Sheet, n, row

_LEFT, _TOP, _WIDE, _TALL = (
    70.0,
    46.0,
    460.0,
    330.0,
)  # px: the margins of the grid, and its largest size


class Stairs(Drawing):
    """A staircase: the rectangles that cover the real cells of a padded batch.

    Attributes:
        layout: the batch.
        cuts: ascending time steps from 0 to `max(lengths)`. A rectangle begins at each cut except
            the last.
        rectangles: the `(first step, step after the last, number of sequences)` of each rectangle.
    """

    def __init__(self, lengths: Any, cuts: Sequence[int]) -> None:
        """Covers a batch with rectangles.

        Args:
            lengths: `(B,)` the lengths of the sequences, or a `Layout`.
            cuts: ascending time steps from 0 to `max(lengths)`.

        Raises:
            ValueError: a length is not valid, or the cuts do not rise from 0 to `max(lengths)`.
        """
        self.layout, self.cuts = Layout(lengths), tuple(map(int, cuts))
        self.rectangles = tuple(rectangles(self.layout.lengths.tolist(), cuts))

    @property
    def calls(self) -> int:
        """The number of rectangles. Each rectangle needs one call of the kernel."""
        return len(self.rectangles)

    @property
    def cells(self) -> int:
        """The number of cells that are computed, both real and wasted."""
        return sum((b - a) * n for a, b, n in self.rectangles)

    @property
    def wasted(self) -> int:
        """The number of padding cells that are computed."""
        return self.cells - self.layout.n_real

    def summary(self) -> str:
        """Returns a sentence with the numbers of rectangles and of computed, real and padding cells."""
        share = text.percent(self.wasted, self.cells)
        return (
            f"{text.count(self.calls, 'rectangle')}: {text.count(self.cells, 'cell')} computed,"
            f" {self.layout.n_real:,} real, {self.wasted:,} padding ({share} wasted)."
        )

    def to_text(self) -> str:
        """Returns the counts and the rectangles, or only some of the rectangles if there are many."""
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
        """Draws the batch, longest sequence first. Padding is hatched if it is computed, and empty if it is not."""
        sheet, layout, each = (
            Sheet(theme, self.to_text()),
            self.layout,
            stride(self.layout.batch_size, int(_TALL)),
        )
        order, muted = layout.sorted_indices[::each].tolist(), sheet.colours.muted
        wide, tall = min(30.0, _WIDE / layout.max_len), min(22.0, _TALL / len(order))
        grid = CellGrid(sheet, len(order), layout.max_len, wide, tall, _LEFT, _TOP, 11)
        what = (
            "one rectangle, the padded batch," if self.calls == 1 else f"{self.calls:,} rectangles"
        )
        sheet.title(f"{text.percent(self.wasted, self.cells)} of the cells in {what} are padding")
        sheet.box(
            _LEFT, _TOP, grid.right - _LEFT, grid.foot - _TOP, stroke=muted, thick=1, dash="2 3"
        )
        boxes = [
            (grid.x(a), _TOP, (b - a) * wide, -(-many // each) * tall)
            for a, b, many in self.rectangles
        ]
        for box in boxes:
            sheet.box(*box, HATCHED, stroke="")
        label = partial(text.cell_label, None) if text.is_few(layout) else None
        fill = (
            palette.REAL if grid.is_low else ""
        )  # a sequence has its own colour only if its name is shown
        grid.draw(real_cells(layout, b, label, fill) for b in order)
        spacing, accent = (grid.right - _LEFT) / self.calls, sheet.colours.accent
        if spacing < 6:  # too narrow to be outlined one by one
            steps = "".join(f"V{n(_TOP + height)}H{n(x + width)}" for x, _, width, height in boxes)
            sheet.path(f"M{n(_LEFT)} {n(_TOP)}{steps}V{n(_TOP)}z", stroke=accent, width=1.5)
        for box in boxes if spacing >= 6 else ():
            sheet.box(*box, stroke=accent, thick=2.5 if spacing >= 20 else 1.5)
        self._axis(grid)
        if not grid.is_low:
            grid.names([sequence_name(b) for b in order], layout.lengths[order].tolist(), 8)
        sheet.layer()
        y = grid.foot + 24
        x = sheet.key(
            4, y, [(fill or palette.sequence_colour(0), "real"), (HATCHED, "padding, computed")]
        )
        sheet.box(x, y, 14, 12, stroke=muted, thick=1, dash="2 3")
        sheet.text(x + 20, y + 10, "padding, left out")
        foot = sheet.paragraph(
            4, y + 19, [one_in(each, layout.batch_size)] if each > 1 else [], size=11, ink=muted
        )
        sheet.size(_LEFT + _WIDE + 24, foot + 3)
        return sheet

    def _axis(self, grid: CellGrid) -> None:
        """Writes the cuts above the grid, as many as fit, and the rectangles' sizes below it, if all of them fit."""
        sheet, muted = grid.sheet, grid.sheet.colours.muted
        sheet.text(_LEFT - 14, _TOP - 8, "cuts", anchor="end", size=11, ink=muted)
        for x, label in roomy([(grid.x(cut), str(cut)) for cut in self.cuts]):
            sheet.text(x, _TOP - 8, label, anchor="middle", size=11, ink=sheet.colours.accent)
        sizes = [(a, b, f"{many}×{b - a}") for a, b, many in self.rectangles]
        if all((b - a) * grid.wide >= 6.4 * len(label) for a, b, label in sizes):
            for a, b, label in sizes:
                sheet.text(
                    grid.x((a + b) / 2), grid.foot + 14, label, anchor="middle", size=10, ink=muted
                )


@dataclass(frozen=True, repr=False)
class TradeOff(Drawing):
    """The trade-off between wasted cells and calls, from padding (one rectangle) to packing (one
    per distinct length).

    Attributes:
        calls: `(S,)` the numbers of rectangles, in ascending order from 1.
        wasted: `(S,)` the number of padding cells computed with each number of rectangles.
        seconds: `(S,)` the predicted time with each number of rectangles, in seconds.
        at: the highlighted number of rectangles.
        measured: for each number of rectangles that was measured, the median and the quartiles of
            its times, as multiples of the time with one rectangle.
    """

    calls: Sequence[int]
    wasted: Sequence[int]
    seconds: Sequence[float]
    at: int
    measured: Mapping[int, tuple[float, float, float]] = field(default_factory=dict)

    @property
    def ratios(self) -> list[float]:
        """The predicted times as multiples of the time with one rectangle."""
        return [seconds / self.seconds[0] for seconds in self.seconds]

    @property
    def best(self) -> int:
        """The number of rectangles with the shortest predicted time."""
        return self.calls[self.seconds.index(min(self.seconds))]

    def to_text(self) -> str:
        """Returns a table with a row for each number of rectangles."""
        rows = [["rectangles", "wasted cells", "predicted time", "  (one rectangle = 1)"]]
        for k, wasted, ratio in zip(self.calls, self.wasted, self.ratios, strict=True):
            note = f"  measured {self.measured[k][0]:.3g}" if k in self.measured else ""
            note += "  ← here" * (k == self.at) + "  ← lowest" * (k == self.best)
            rows.append([f"{k}", f"{wasted:,}", f"{ratio:.2f}", note])
        return "\n".join(text.table(rows, ">10>14>16<"))

    def sheet(self, theme: str) -> Sheet:
        """Draws two plots against the number of rectangles: the time and, below it, the wasted cells."""
        at, calls, plots = self.calls.index(self.at), tuple(self.calls), list[list[Plot]]()
        none = len(COLOURS) - 1  # a colour that no method has
        found = [(k, *self.measured[k]) for k in sorted(self.measured)]
        for what, values, label in (
            ("time relative to one rectangle", self.ratios, f"{self.ratios[at]:.2f}"),
            ("wasted cells", self.wasted, text.short(self.wasted[at])),
        ):
            curves = [Curve("", none, 0, calls, values)]
            if found and not plots:
                x, middle, low, high = zip(*found, strict=True)
                curves.append(Curve("measured here", none, 1, x, middle, low, high, hollow=True))
            cursor = {"": ((self.at, 0.0), (self.at, values[at]))}
            plots.append([Plot(f"{what}: {label}", curves, [self.at], cursor, "", log_x=True)])
        title = f"The predicted time is lowest with {text.count(self.best, 'rectangle')}"
        axis = (
            f"rectangles (1: padded, {calls[-1]:,}: no padding)" if calls[-1] > 1 else "rectangles"
        )
        whole = Sweep(title, plots, (), (), "", axis, 230).sheet(theme)
        whole.description = self.to_text()
        return whole


def beside(stairs: Stairs, trade_off: TradeOff, theme: str) -> Sheet:
    """Draws a staircase and, to its right, its trade-off between wasted cells and calls."""
    return row([stairs.sheet(theme), trade_off.sheet(theme)], theme)
