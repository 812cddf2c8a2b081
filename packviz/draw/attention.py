"""Draws attention weights, and the weight that each query gives to padding."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from packviz.core.layout import make_read_only, to_numpy
from packviz.draw.drawing import Drawing
from packviz.draw.grid import Cell, CellTable
from packviz.draw.palette import RAMP
from packviz.draw.sheet import HATCHED, WIDTH, Sheet, row
from packviz.draw.text import MAX_LISTED, with_noun

_SHADE_BOUNDS = (0.05, 0.1, 0.2, 0.4)  # the weights at which one shade ends and the next begins


class Attention(Drawing):
    """The attention weights of several methods for one padded sequence, drawn side by side.

    Attributes:
        length: the number of real time steps of the sequence. The other time steps are padding.
        maps: the `(T, T)` weights of each method, by the name of the method. Row `q` contains the
            weights that query `q` gives to the keys.
        title: the title above the maps.
    """

    def __init__(
        self, length: int, maps: Mapping[str, object], title: str = "attention weights"
    ) -> None:
        """Takes the weights as torch returns them.

        Args:
            length: the number of real time steps of the sequence.
            maps: the `(T, T)` weights of each method, by the name of the method: tensors or arrays
                of at most 16 × 16.
            title: the title above the maps.

        Raises:
            ValueError: `maps` is empty; a map is not square, or is larger than 16 × 16; the maps
                differ in size; or `length` is not from 1 to `T`.
        """
        self.length = length
        self.title = title
        self.maps = {}
        for name, weights in maps.items():
            self.maps[name] = make_read_only(np.asarray(to_numpy(weights), float))
        shapes = sorted({weights.shape for weights in self.maps.values()})
        n_steps = shapes[0][0] if maps else 0
        if shapes != [(n_steps, n_steps)] or not 1 <= length <= n_steps <= MAX_LISTED:
            shapes_text = "no maps"
            if shapes:
                shapes_text = f"shapes {', '.join(map(str, shapes))}"
            raise ValueError(
                "maps must be one or more (T, T) arrays of the same size, with T at most"
                f" {MAX_LISTED} and length from 1 to T; got {shapes_text} and length {length}"
            )

    def lost(self, name: str) -> list[float]:
        """Returns the total weight that each real query of the named method gives to padding."""
        real_query_weights = self.maps[name][: self.length]
        padding_weights = real_query_weights[:, self.length :]
        lost_weights: list[float] = padding_weights.sum(axis=1).tolist()
        return lost_weights

    def to_text(self) -> str:
        """Returns the weights that each real query gives to the keys, in percent."""
        n_steps = len(next(iter(self.maps.values())))
        real_steps_text = with_noun(self.length, "real step")
        lines = [f"{self.title}: {real_steps_text} of {n_steps}, a row per query, · marks padding"]
        for name in self.maps:
            lines += ["", name, *self._cell_table(name).lines()]
        return "\n".join(lines)

    def sheet(self, theme: str) -> Sheet:
        """Draws each map with padding hatched, and each row's weight on padding beside it."""
        sheet = Sheet(theme, self.to_text())
        map_sheets = [self._cell_table(name).sheet(theme) for name in self.maps]
        y = sheet.title(self.title)
        sheet.place(row(map_sheets, theme, 16, WIDTH), 0, y)
        return sheet

    def _cell_table(self, name: str) -> CellTable:
        weights = self.maps[name][: self.length]
        shade_indices = np.digitize(weights, _SHADE_BOUNDS)
        rows = []
        for q in range(self.length):
            cells = []
            for k, weight in enumerate(weights[q].tolist()):
                fill = RAMP[shade_indices[q, k]]
                label = f"{100 * weight:.0f}"
                if k >= self.length:
                    fill = HATCHED
                    label = label if weight else ""
                cells.append(Cell(fill, label))
            rows.append(cells)
        numbers = [(lost, f"{100 * lost:3.0f} %") for lost in self.lost(name)]
        query_names = [f"q {q}" for q in range(self.length)]
        key_names = [str(k) for k in range(weights.shape[1])]
        # The maps share one scale.
        max_lost_weight = max(max(self.lost(other)) for other in self.maps)
        return CellTable(
            name, query_names, key_names, rows, "key", "on padding", numbers, max_lost_weight
        )
