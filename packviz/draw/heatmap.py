"""Attention weights of one sequence: what each query takes from each key, and how much of that from padding. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from packviz.core.layout import frozen
from packviz.draw import palette
from packviz.draw.cellgrid import WIDTH, Cell, CellGrid, array
from packviz.draw.drawing import Drawing
from packviz.draw.sheet import HATCHED, Sheet, row
from packviz.draw.text import FEW, count, table

_CELL = 32.0  # px: the width of a cell
_ENDS = (0.05, 0.1, 0.2, 0.4)  # where one shade ends and the next begins


class Attention(Drawing):
    """The attention weights of one padded sequence, computed by several methods, side by side.

    Attributes:
        length: its real time steps: what comes after is padding.
        maps: by the name of each method `(T, T)` weights: of query `q` (a row) on key `k` (a column).
        title: stands above.
    """

    def __init__(self, length: int, maps: Mapping[str, Any], title: str = "attention weights") -> None:
        """Takes the weights as torch gives them.

        Args:
            length: as above.
            maps: as above, tensors or arrays, up to 16 × 16.
            title: as above.

        Raises:
            ValueError: a map is not square, or its size does not fit the others or the length.
        """
        arrays = {name: frozen(array(weights, np.float64)) for name, weights in maps.items()}
        shapes = {array.shape for array in arrays.values()}
        square = len(shapes) == 1 and all(len(shape) == 2 and shape[0] == shape[1] for shape in shapes)
        if not square or not 1 <= length <= max(max(shapes)) <= FEW:
            found = ", ".join(map(str, sorted(shapes)))
            raise ValueError(
                f"give maps (T, T) of one sequence, all of one size up to {FEW}, and a length from 1 to T; got {found},"
                f" and length {length}"
            )
        self.length, self.maps, self.title = length, arrays, title

    def lost(self, name: str) -> list[float]:
        """The weight that each real query gives to padding."""
        lost: list[float] = self.maps[name][: self.length, self.length :].sum(axis=1).tolist()
        return lost

    def to_text(self) -> str:
        """The weights of each real query in percent, those on padding in brackets."""
        steps = len(next(iter(self.maps.values())))
        lines = [f"{self.title}: {count(self.length, 'real step')} of {steps}, a row per query, [ ] padding"]
        for name, weights in self.maps.items():
            rows = [["", *(f"k={k}" for k in range(steps)), "on padding"]]
            for q, lost in enumerate(self.lost(name)):
                cells = [f"[{_percent(w)}]" if k >= self.length else _percent(w) for k, w in enumerate(weights[q])]
                rows.append([f"q={q}", *cells, _percent(lost)])
            lines += ["", name, *table(rows, " <  >4")]
        return "\n".join(lines)

    def sheet(self, theme: str) -> Sheet:
        """Draws the maps side by side, shaded by weight, padding hatched and its weights added up in the margin."""
        sheet = Sheet(theme, self.to_text())
        sheet.place(row([self._map(name, theme) for name in self.maps], theme, 16, WIDTH), 0, sheet.title(self.title))
        return sheet

    def _map(self, name: str, theme: str) -> Sheet:
        sheet, weights, cells = Sheet(theme), self.maps[name], list[list[Cell]]()
        grid = CellGrid(sheet, self.length, len(weights), _CELL, size=11)
        sheet.title(name)
        grid.heads([str(k) for k in range(grid.columns)], "key")
        grid.names([f"q {q}" for q in range(grid.rows)])
        sheet.text(grid.right + 12, grid.top - 9, "on padding", size=11, ink=sheet.colours.muted)
        shades = [[palette.RAMP[i] for i in shades] for shades in np.digitize(weights, _ENDS).tolist()]
        for q, each in enumerate(weights[: self.length].tolist()):
            real = [Cell(*cell) for cell in zip(shades[q], map(_percent, each), strict=True)][: self.length]
            cells.append(real + [Cell(HATCHED, _percent(weight) if weight else "") for weight in each[self.length :]])
        grid.draw(cells)
        for q, lost in enumerate(self.lost(name)):
            ink = sheet.colours.wrong if lost else sheet.colours.muted
            sheet.text(grid.right + 12, grid.line(q), f"{_percent(lost):>3} %", bold=bool(lost), ink=ink)
        return sheet


def _percent(share: float) -> str:
    return f"{100 * share:.0f}"
