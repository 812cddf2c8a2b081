"""Vectors as strips of cells, one under the other, with their distance from the first: drawn and as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from packviz.draw import palette, text
from packviz.draw.cellgrid import Cell, CellGrid, array
from packviz.draw.drawing import Drawing
from packviz.draw.sheet import Sheet, width_of

_CELL, _BAR = 52.0, 130.0  # px: the width of a cell, the longest bar
_ROUNDING = 1e-5  # a distance up to this, as a share of the largest value, is none


class Strips(Drawing):
    """Vectors of one size, drawn as strips.

    Attributes:
        names: of the vectors; the first is the one that the others are compared with.
        values: `(R, H)` the vectors.
        title: stands above.
        axis: what the numbers of the cells count, or the name of each cell.
    """

    def __init__(self, vectors: Mapping[str, Any], title: str = "", axis: str | Sequence[str] = "unit") -> None:
        """Takes vectors.

        Args:
            vectors: by name, `(H,)` numbers each: tensors, arrays or lists, at most 16 numbers long.
            title: as above.
            axis: as above.

        Raises:
            ValueError: there is no vector, they are not of one such size, or not every cell has a name.
        """
        rows = [array(vector, float) for vector in vectors.values()]
        shapes = {row.shape for row in rows}
        if len(shapes) != 1 or not all(len(shape) == 1 and 0 < shape[0] <= text.FEW for shape in shapes):
            shown = ", ".join(str(shape) for shape in sorted(shapes)) or "none"
            raise ValueError(f"vectors must have one dimension, and one size of up to {text.FEW}; got shapes: {shown}")
        if not isinstance(axis, str) and len(axis) != rows[0].size:
            raise ValueError(f"axis has {len(axis)} names, the vectors have {rows[0].size} numbers; give one for each")
        self.names, self.values, self.title, self.axis = tuple(vectors), np.stack(rows), title, axis

    @property
    def _heads(self) -> Sequence[str]:
        """What stands above each cell."""
        return [str(i) for i in range(self.values.shape[1])] if isinstance(self.axis, str) else self.axis

    @property
    def distances(self) -> list[float]:
        """`(R,)` of each from the first: the length (2-norm) of the difference, 0 where there is but rounding."""
        found = np.linalg.norm(self.values - self.values[0], axis=1)
        return np.where(found <= _ROUNDING * np.abs(self.values).max(), 0.0, found).tolist()  # type: ignore[no-any-return]

    def to_text(self) -> str:
        """A line for each vector, two decimals of each number, and its distance."""
        rows = [["", *self._heads, f"  distance from {self.names[0]} (norm)"]]
        for name, row, distance in zip(self.names, self.values, self.distances, strict=True):
            rows.append([name, *map(_number, row), _distance(distance)])
        return "\n".join([*filter(None, [self.title]), *text.table(rows, "<  >7")])

    def sheet(self, theme: str) -> Sheet:
        """A row for each vector, its distance as a bar and a number."""
        sheet, left = Sheet(theme, self.to_text()), max(18 + max(map(width_of, self.names)), 60)
        rows, columns = self.values.shape
        grid = CellGrid(sheet, rows, columns, _CELL, left=left)
        sheet.title(self.title)
        grid.heads(self._heads, self.axis if isinstance(self.axis, str) else "")
        grid.names(self.names)
        scale = np.abs(self.values[np.isfinite(self.values)]).max(initial=1e-9)
        grid.draw([Cell(_shade(value / scale), _number(value)) for value in row] for row in self.values)
        right, longest = grid.right + 28, max(*self.distances, 0.0) or 1.0
        sheet.text(right, grid.top - 9, f"distance from {self.names[0]} (norm)", size=11, ink=sheet.colours.muted)
        for r, distance in enumerate(self.distances):
            wide = _BAR * distance / longest if np.isfinite(distance) else 0.0
            if wide:
                sheet.box(right, grid.y(r) + 4, wide, grid.tall - 8, palette.REAL)
            sheet.text(right + (wide + 8 if wide else 0), grid.line(r), _distance(distance), bold=distance > 0)
        sheet.reach(right + _BAR + 72, 0)
        return sheet


def _shade(share: float) -> str:
    """The fill of a number, as a share of the largest one: from -1 to 1."""
    if not np.isfinite(share):
        return palette.SIGNED[0]
    return palette.SIGNED[round((np.clip(share, -1, 1) + 1) / 2 * (len(palette.SIGNED) - 1))]


def _number(value: float) -> str:
    return f"{value:.2f}".replace("-0.00", "0.00").replace("nan", "NaN")


def _distance(distance: float) -> str:
    return "=" if distance == 0 else text.difference(distance)
