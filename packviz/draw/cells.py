"""Draws small grids whose cells contain text or numbers: padded batches, attention weights, and vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from packviz.core.layout import Layout, frozen, sequence_name
from packviz.core.padded import batch_is_first, order
from packviz.core.validation import SENSE_REVERSED, one_of, renamed
from packviz.draw import palette, text
from packviz.draw.cellgrid import LEFT, NARROWEST, WIDTH, Cell, CellGrid, array
from packviz.draw.drawing import Drawing
from packviz.draw.sheet import HATCHED, Sheet, row, width_of
from packviz.draw.text import FEW

_BAR = 80.0  # px: the length of the longest bar in the margin
_ENDS = (0.05, 0.1, 0.2, 0.4)  # the weights at which one shade ends and the next begins
_ROUNDING = 1e-5  # a distance of up to this share of the largest value counts as 0


class _Grid(NamedTuple):
    """A grid of cells with row and column names, and its text twin.

    Attributes:
        title: the title above the grid.
        names: the names of the rows.
        heads: the names of the columns.
        cells: the cells of each row. Hatched cells are padding, and bold cells are framed.
        axis: the title of the columns, written before their names.
        margin: the heading of the numbers on the right; empty if there are no numbers.
        numbers: a pair `(number, words)` for each row: a number to draw as a bar on the right, and
            its label.
    """

    title: str
    names: Sequence[str]
    heads: Sequence[str]
    cells: Sequence[Sequence[Cell]]
    axis: str = "t ="
    margin: str = ""
    numbers: Sequence[tuple[float, str]] = ()

    def lines(self) -> list[str]:
        """Returns the grid as lines of text. A `·` marks padding, and a `!` marks a framed cell."""
        rows = [] if self.axis == "t =" else [["", *self.heads, *filter(None, [self.margin])]]
        for r, (name, cells) in enumerate(zip(self.names, self.cells, strict=True)):
            marked = ("!" * cell.bold + "·" * (cell.fill == HATCHED) + cell.label for cell in cells)
            rows.append([name, *marked, *(words for _, words in self.numbers[r : r + 1])])
        return text.table(rows, " <  > ")

    def sheet(self, theme: str, description: str = "") -> Sheet:
        """Draws the grid."""
        sheet, left = Sheet(theme, description), max(18 + max(map(width_of, self.names)), LEFT)
        labels = [*self.heads, *(cell.label for cells in self.cells for cell in cells)]
        wide = max([NARROWEST, *(8 + width_of(label) for label in labels)])
        grid = CellGrid(sheet, len(self.names), len(self.heads), wide, left=left)
        sheet.title(self.title)
        grid.heads(self.heads, self.axis)
        grid.names(self.names)
        grid.draw([cell._replace(bold=False) for cell in cells] for cells in self.cells)
        for stroke, thick in (
            (sheet.colours.ground, 6),
            (sheet.colours.wrong, 3),
        ):  # the frame is visible on any fill
            sheet.layer()
            for r, cells in enumerate(self.cells):
                for c in (c for c, cell in enumerate(cells) if cell.bold):
                    grid.frame(r, c, stroke=stroke, thick=thick)
        right, longest = grid.right + 16, max([0.0, *(number for number, _ in self.numbers)]) or 1.0
        sheet.text(right, grid.top - 9, self.margin, size=11, ink=sheet.colours.muted)
        for r, (number, words) in enumerate(self.numbers):
            bar = _BAR * number / longest if np.isfinite(number) else 0.0
            if bar:
                sheet.box(right, grid.y(r) + 4, bar, grid.tall - 8, palette.REAL)
            sheet.text(right + (bar + 8 if bar else 0), grid.line(r), words, bold=number > 0)
        return sheet


@dataclass(frozen=True, eq=False, repr=False)
class Aligned(Drawing):
    """A drawing of a padded batch.

    Attributes:
        title: the title above the batch.
        labels: `(B, T)` the contents of the cells.
        real: `(B, T)` booleans, True at real cells. The other cells are hatched.
        wrong: `(B, T)` booleans, True at wrong cells, which are framed; `None` to frame no cells.
        columns: `(T,)` the names of the columns. Defaults to the numbers of the time steps.
    """

    title: str
    labels: Sequence[Sequence[str]]
    real: npt.NDArray[np.bool_]
    wrong: npt.NDArray[np.bool_] | None = None
    columns: Sequence[str] = ()

    @classmethod
    @renamed(SENSE_REVERSED, side="padding_side")
    def of(
        cls,
        x: Any,
        lengths: Any,
        *,
        padding_side: str = "right",
        title: str = "",
        batch_first: bool | None = None,
        like: Any = None,
    ) -> Aligned:
        """Draws a padded batch of numbers or booleans.

        Args:
            x: a tensor or an array of at most 16 × 16 cells: `(T, B)`, or `(B, T)` if `batch_first`
                is true.
            lengths: `(B,)` the number of real time steps of each sequence; or a mask, a tensor or
                array of `(B, T)` booleans, True at real cells.
            padding_side: the side of the padding, `"right"` (data first) or `"left"`. Don't pass it
                with a mask.
            title: the title above the batch.
            batch_first: whether the batch is the first dimension of `x`. Defaults to False, as in
                torch, with a warning if `B` equals `T`.
            like: the correct values, with the same shape as `x`. Cells with a different value are
                framed.

        Raises:
            ValueError: `x` or `like` is not a padded batch of at most 16 × 16 cells; the lengths or
                the mask do not fit `x`; or `padding_side` is unknown, or is `"left"` although a
                mask is given.
        """
        one_of("padding_side", padding_side, ("right", "left"))
        first = bool(batch_first)
        values = _grid(x, "x", first)
        real = _mask(lengths, values.shape, first, padding_side)
        batch_is_first(batch_first, values.shape)
        labels = [[text.value(v) for v in row] for row in values.tolist()]
        right = values if like is None else _grid(like, "like", first)
        if right.shape != values.shape:
            raise ValueError(
                f"like must have the shape of x, {array(x).shape}, got {array(like).shape}"
            )
        return cls(
            title, labels, real, (values != right) & ((values == values) | (right == right))
        )  # NaN equals NaN

    @property
    def _grid(self) -> _Grid:
        wrong = np.zeros_like(self.real) if self.wrong is None else self.wrong
        cells = [
            [
                Cell(palette.sequence_colour(b) if real else HATCHED, label, bold=bool(framed))
                for label, real, framed in zip(*row, strict=True)
            ]
            for b, row in enumerate(zip(self.labels, self.real, wrong, strict=True))
        ]
        names = [sequence_name(b) for b in range(len(cells))]
        heads = self.columns or [str(t) for t in range(self.real.shape[1])]
        return _Grid(self.title, names, heads, cells, "" if self.columns else "t =")

    def to_text(self) -> str:
        """Returns a line of text for each sequence. A `·` marks padding, and a `!` marks a framed cell."""
        wrong = self.wrong is not None and self.wrong.any()
        legend = ["· marks padding"] * (not self.real.all()) + ["! marks a wrong cell"] * bool(
            wrong
        )
        head = f"{self.title or 'padded batch'} ({', '.join(legend)})".removesuffix(" ()")
        return "\n".join([head, *self._grid.lines()])

    def sheet(self, theme: str) -> Sheet:
        """Draws a row for each sequence."""
        return self._grid.sheet(theme, self.to_text())


class Attention(Drawing):
    """The attention weights that several methods compute for one padded sequence, drawn side by
    side.

    Attributes:
        length: the number of real time steps of the sequence. The other time steps are padding.
        maps: the `(T, T)` weights of each method, by the name of the method. Row `q` contains the
            weights that query `q` gives to the keys.
        title: the title above the maps.
    """

    def __init__(
        self, length: int, maps: Mapping[str, Any], title: str = "attention weights"
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
        arrays = {name: frozen(array(weights, np.float64)) for name, weights in maps.items()}
        shapes = {array.shape for array in arrays.values()}
        square = len(shapes) == 1 and all(
            len(shape) == 2 and shape[0] == shape[1] for shape in shapes
        )
        if not square or not 1 <= length <= max(max(shapes)) <= FEW:
            found = ", ".join(map(str, sorted(shapes)))
            raise ValueError(
                f"maps must be (T, T) weights of one size up to {FEW}, with a length from 1 to T; got shapes {found}"
                f" and length {length}"
            )
        self.length, self.maps, self.title = length, arrays, title

    def lost(self, name: str) -> list[float]:
        """Returns the total weight that each real query of the named method gives to padding."""
        lost: list[float] = self.maps[name][: self.length, self.length :].sum(axis=1).tolist()
        return lost

    def to_text(self) -> str:
        """Returns the weights that each real query gives to the keys, in percent."""
        steps = len(next(iter(self.maps.values())))
        lines = [
            f"{self.title}: {text.count(self.length, 'real step')} of {steps}, a row per query, · marks padding"
        ]
        return "\n".join(
            [
                *lines,
                *(line for name in self.maps for line in ("", name, *self._grid(name).lines())),
            ]
        )

    def sheet(self, theme: str) -> Sheet:
        """Draws the maps, shaded by weight, with padding hatched and the total weight on padding in the margin."""
        sheet = Sheet(theme, self.to_text())
        maps = row([self._grid(name).sheet(theme) for name in self.maps], theme, 16, WIDTH)
        sheet.place(maps, 0, sheet.title(self.title))
        return sheet

    def _grid(self, name: str) -> _Grid:
        cells, weights = [], self.maps[name][: self.length]
        for each, shades in zip(
            weights.tolist(), np.digitize(weights, _ENDS).tolist(), strict=True
        ):
            fills = [palette.RAMP[i] for i in shades[: self.length]] + [HATCHED] * (
                len(each) - self.length
            )
            labels = [
                f"{100 * w:.0f}" if w or fill != HATCHED else ""
                for w, fill in zip(each, fills, strict=True)
            ]
            cells.append([Cell(*cell) for cell in zip(fills, labels, strict=True)])
        numbers = [(lost, f"{100 * lost:3.0f} %") for lost in self.lost(name)]
        heads = [str(k) for k in range(weights.shape[1])]
        return _Grid(
            name, [f"q {q}" for q in range(self.length)], heads, cells, "key", "on padding", numbers
        )


class Strips(Drawing):
    """Vectors of the same size, drawn as strips one below the other, each with its distance from
    the first vector.

    Attributes:
        names: the names of the vectors.
        values: `(R, H)` the vectors, one in each row.
        title: the title above the strips.
        axis: one title for all columns, or a name for each column.
    """

    def __init__(
        self, vectors: Mapping[str, Any], title: str = "", axis: str | Sequence[str] = "unit"
    ) -> None:
        """Takes the vectors to draw.

        Args:
            vectors: the vectors by name. Each is a tensor, an array or a list of `(H,)` numbers,
                with `H` up to 16.
            title: the title above the strips.
            axis: one title for all columns, or a name for each column.

        Raises:
            ValueError: `vectors` is empty; a vector is not one-dimensional, is empty, or has more
                than 16 numbers; the vectors differ in size; or `axis` is a list without exactly one
                name for each column.
        """
        rows = [array(vector, float) for vector in vectors.values()]
        shapes = {row.shape for row in rows}
        if len(shapes) != 1 or not all(len(shape) == 1 and 0 < shape[0] <= FEW for shape in shapes):
            shown = ", ".join(str(shape) for shape in sorted(shapes)) or "none"
            raise ValueError(
                f"vectors must be one-dimensional, with one size of up to {FEW}; got shapes: {shown}"
            )
        if not isinstance(axis, str) and len(axis) != rows[0].size:
            raise ValueError(
                f"axis has {len(axis)} names; give {rows[0].size}, one for each number of a vector"
            )
        self.names, self.values, self.title, self.axis = tuple(vectors), np.stack(rows), title, axis

    @property
    def distances(self) -> list[float]:
        """`(R,)` Each vector's distance from the first: the 2-norm of the difference, or 0 if that is only rounding."""
        found = np.linalg.norm(self.values - self.values[0], axis=1)
        return np.where(found <= _ROUNDING * np.abs(self.values).max(), 0.0, found).tolist()  # type: ignore[no-any-return]

    @property
    def _grid(self) -> _Grid:
        counted = isinstance(self.axis, str)
        heads = [str(i) for i in range(self.values.shape[1])] if counted else self.axis
        scale = np.abs(self.values[np.isfinite(self.values)]).max(initial=1e-9)
        most = len(palette.SIGNED) - 1  # NaN has the first fill
        shades = np.nan_to_num(
            np.rint((np.clip(self.values / scale, -1, 1) + 1) / 2 * most)
        ).astype(int)
        cells = [
            [
                Cell(
                    palette.SIGNED[shade],
                    f"{value:.2f}".replace("-0.00", "0.00").replace("nan", "NaN"),
                )
                for value, shade in zip(*row, strict=True)
            ]
            for row in zip(self.values.tolist(), shades.tolist(), strict=True)
        ]
        numbers = [
            (distance, text.difference(distance) if distance else "=")
            for distance in self.distances
        ]
        axis, margin = self.axis if counted else "", f"distance from {self.names[0]} (norm)"
        return _Grid(self.title, self.names, heads, cells, str(axis), margin, numbers)

    def to_text(self) -> str:
        """Returns a line for each vector: its numbers with two decimals, and its distance from the first vector."""
        return "\n".join([*filter(None, [self.title]), *self._grid.lines()])

    def sheet(self, theme: str) -> Sheet:
        """Draws a row for each vector, with its distance as a bar."""
        return self._grid.sheet(theme, self.to_text())


def beside(batches: Sequence[Aligned], theme: str) -> Sheet:
    """Draws batches side by side, or one below the other if there is not enough room."""
    return row([batch.sheet(theme) for batch in batches], theme, 16, WIDTH)


def _grid(values: Any, name: str, batch_first: bool) -> npt.NDArray[Any]:
    grid: npt.NDArray[Any] = array(values)
    if grid.ndim != 2:
        raise ValueError(
            f"{name} must be {order(batch_first, '')}, one number per cell, got shape {grid.shape}"
        )
    if max(grid.shape) > FEW:
        raise ValueError(
            f"{name} has shape {grid.shape}; give at most {FEW} sequences of {FEW} time steps"
        )
    return grid if batch_first else grid.T


def _mask(
    lengths: Any, shape: tuple[int, ...], batch_first: bool, padding_side: str
) -> npt.NDArray[np.bool_]:
    if getattr(lengths, "ndim", 1) == 2:
        mask: npt.NDArray[np.bool_] = array(lengths)
        if mask.shape != shape or mask.dtype != np.bool_:
            raise ValueError(
                f"a mask must contain booleans of shape {shape}, got {mask.dtype} of shape {mask.shape}"
            )
        if padding_side != "right":
            raise ValueError(
                f"padding_side is {padding_side!r}, but a mask shows where the padding is: leave it out"
            )
        return mask
    real = Layout.from_padded(shape if batch_first else shape[::-1], lengths, batch_first).mask
    return real if padding_side == "right" else real[:, ::-1]
