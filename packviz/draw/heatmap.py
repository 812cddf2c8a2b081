"""Attention weights of one sequence: what each query takes from each key, and how much of that from padding. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from packviz.core.layout import frozen
from packviz.draw import palette
from packviz.draw.drawn import Drawn
from packviz.draw.sheet import HATCHED, Sheet, width_of
from packviz.draw.text import FEW, count, table

_CELL, _TALL, _LEFT, _TOP = 32.0, 22.0, 38.0, 44.0  # px: a cell, and what is left of and above the first
_MARGIN, _GAP, _WIDTH = 84.0, 16.0, 900.0  # px: the column of what is lost, between two maps, of the picture
_ENDS = (0.05, 0.1, 0.2, 0.4)  # where one shade ends and the next begins


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Attention(Drawn):
    """The attention weights of one padded sequence, computed in several ways, side by side.

    Attributes:
        length: its real time steps: what comes after is padding.
        maps: by the name of each way `(T, T)` weights: of query `q` (a row) on key `k` (a column).
        title: stands above.
    """

    length: int
    maps: Mapping[str, npt.NDArray[np.float64]]
    title: str

    def __init__(self, length: int, maps: Mapping[str, Any], title: str = "attention weights") -> None:
        """Takes the weights as torch gives them.

        Args:
            length: as above.
            maps: as above, tensors or arrays, up to 16 × 16.
            title: as above.

        Raises:
            ValueError: a map is not square, or its size does not fit the others or the length.
        """
        arrays = {
            name: np.asarray(w.detach().cpu() if hasattr(w, "detach") else w, np.float64) for name, w in maps.items()
        }
        shapes = {array.shape for array in arrays.values()}
        square = len(shapes) == 1 and all(len(shape) == 2 and shape[0] == shape[1] for shape in shapes)
        if not square or not 1 <= length <= max(max(shapes)) <= FEW:
            said = ", ".join(map(str, sorted(shapes)))
            raise ValueError(
                f"give maps (T, T) of one sequence, all of one size up to {FEW}, and a length from 1 to T; got {said},"
                f" and length {length}"
            )
        for name, value in (("length", length), ("maps", {k: frozen(a) for k, a in arrays.items()}), ("title", title)):
            object.__setattr__(self, name, value)

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
        """A map beside the other, shaded by weight; padding hatched, its weights added up in the margin."""
        sheet = Sheet(theme, self.to_text())
        sheet.title(self.title)
        x, y, below = 4.0, 22.0, 0.0
        for name, weights in self.maps.items():
            wide = max(_LEFT + _CELL * len(weights) + _MARGIN, width_of(name))
            if x > 4 and x + wide > _WIDTH:
                x, y = 4.0, y + below
            sheet.layer()
            below = self._map(sheet, name, x, y)
            x += wide + _GAP
        return sheet

    def _map(self, sheet: Sheet, name: str, x: float, y: float) -> float:
        weights, muted, steps = self.maps[name], sheet.colours.muted, len(self.maps[name])
        left, top = x + _LEFT, y + _TOP
        sheet.text(x, y + 18, name, bold=True)
        sheet.text(left - 6, top - 7, "key", anchor="end", size=11, ink=muted)
        margin = left + _CELL * steps + 12
        sheet.text(margin, top - 7, "on padding", size=11, ink=muted)
        for k in range(steps):
            sheet.text(left + (k + 0.5) * _CELL, top - 7, str(k), anchor="middle", size=11, ink=muted)
        for q, lost in enumerate(self.lost(name)):
            row = top + q * _TALL
            sheet.text(left - 6, row + 15, f"q {q}", anchor="end", size=11, ink=muted)
            for k, weight in enumerate(weights[q].tolist()):
                place = left + k * _CELL, row, _CELL, _TALL
                if k < self.length:
                    shade = palette.RAMP[int(np.digitize(weight, _ENDS))]
                    sheet.cell(*place, shade, _percent(weight), size=11, ink=palette.ink_on(shade))
                else:
                    sheet.cell(*place, HATCHED, _percent(weight) if weight else "", size=11, ink=sheet.colours.text)
            ink = sheet.colours.wrong if lost else muted
            sheet.text(margin, row + 15, f"{_percent(lost):>3} %", bold=bool(lost), ink=ink)
        return _TOP + _TALL * self.length + 12


def _percent(share: float) -> str:
    return f"{100 * share:.0f}"
