"""Draws vectors as strips of numbers, each with its distance from the first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from packviz.core.layout import to_numpy
from packviz.core.validation import kind_of
from packviz.draw.drawing import Drawing
from packviz.draw.grid import Cell, CellTable
from packviz.draw.palette import SIGNED_FILLS
from packviz.draw.sheet import Sheet
from packviz.draw.text import MAX_LISTED, format_difference

_TOLERANCE = 1e-5  # a distance of up to this share of the largest value counts as 0


class Strips(Drawing):
    """Vectors of the same size, drawn as strips, each with its distance from the first vector.

    Attributes:
        names: the names of the vectors.
        values: `(R, H)` the vectors, one in each row.
        title: the title above the strips.
        axis: one title for all columns, or a name for each column.
    """

    def __init__(
        self, vectors: Mapping[str, object], title: str = "", axis: str | Sequence[str] = "unit"
    ) -> None:
        """Takes the vectors to draw.

        Args:
            vectors: the vectors by name. Each is a tensor, an array or a list of `(H,)` numbers,
                with `H` up to 16.
            title: the title above the strips.
            axis: one title for all columns, or a name for each column.

        Raises:
            TypeError: `vectors` is not a mapping.
            ValueError: `vectors` is empty; a vector is not one-dimensional, is empty, or has more
                than 16 numbers; the vectors differ in size; or `axis` is a list without exactly one
                name for each column.
        """
        if not isinstance(vectors, Mapping):
            advice = "give each vector with its name, as in {'h_n': [0.1, 0.2]}"
            raise TypeError(f"vectors is {kind_of(vectors)}; {advice}")
        rows = [np.asarray(to_numpy(vector), float) for vector in vectors.values()]
        vector_size = rows[0].size if rows else 0
        shape_texts = sorted({str(row.shape) for row in rows})
        if not 0 < vector_size <= MAX_LISTED or shape_texts != [f"({vector_size},)"]:
            shapes = ", ".join(shape_texts) or "none"
            raise ValueError(
                f"the vectors have the shapes: {shapes}; give one or more one-dimensional vectors"
                f" of the same size, from 1 to {MAX_LISTED}"
            )
        if not isinstance(axis, str) and len(axis) != vector_size:
            axis_advice = f"give a name for each number of a vector, {vector_size} in all"
            raise ValueError(f"axis is {[*axis]}; {axis_advice}")
        self.names = tuple(vectors)
        self.values = np.stack(rows)
        self.title = title
        self.axis = axis

    @property
    def distances(self) -> list[float]:
        """`(R,)` The 2-norm of each vector's difference from the first; 0 if that is rounding."""
        differences = self.values - self.values[0]
        norms = np.linalg.norm(differences, axis=1)
        largest = np.abs(self.values).max()
        norms[norms <= _TOLERANCE * largest] = 0.0
        distances: list[float] = norms.tolist()
        return distances

    def to_text(self) -> str:
        """Returns a line for each vector: its numbers and its distance from the first vector."""
        title = [self.title] if self.title else []
        return "\n".join([*title, *self._cell_table.lines()])

    def sheet(self, theme: str) -> Sheet:
        """Draws a row for each vector, with its distance as a bar."""
        return self._cell_table.sheet(theme, self.to_text())

    @property
    def _cell_table(self) -> CellTable:
        finite = self.values[np.isfinite(self.values)]
        scale = np.abs(finite).max(initial=1e-9)
        scaled = np.clip(self.values / scale, -1, 1)
        ramp_positions = np.nan_to_num((scaled + 1) / 2)  # from 0 to 1
        last_shade_index = len(SIGNED_FILLS) - 1
        shade_indices = np.rint(ramp_positions * last_shade_index).astype(int)
        rows = []
        for r, vector in enumerate(self.values.tolist()):
            cells = []
            for value, shade_index in zip(vector, shade_indices[r], strict=True):
                label = f"{value:.2f}".replace("-0.00", "0.00").replace("nan", "NaN")
                cells.append(Cell(SIGNED_FILLS[shade_index], label))
            rows.append(cells)
        numbers = []
        for distance in self.distances:
            number_text = format_difference(distance) if distance else "="
            numbers.append((distance, number_text))
        column_names = self.axis
        axis = ""
        if isinstance(self.axis, str):
            column_names = [str(i) for i in range(self.values.shape[1])]
            axis = self.axis
        numbers_heading = f"distance from {self.names[0]}"
        return CellTable(self.title, self.names, column_names, rows, axis, numbers_heading, numbers)
