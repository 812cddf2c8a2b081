"""Left and right alignment: move the data by their lengths, and see what a guess from zeros does instead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from packviz.core.layout import Layout
from packviz.draw import text
from packviz.draw.cells import Aligned, beside
from packviz.explorers.lengths import LengthsField
from packviz.explorers.panel import Panel, View, dropdown, row

SIDES = ("left", "right")
ZEROS = ("none", "at the start", "at the end")


class AlignExplorer(Panel):
    """A small batch, moved to a side by its lengths, and beside it by looking for zeros.

    Attributes:
        typed: the lengths.
        source: where the data lie.
        to: where they shall lie.
        zeros: whether the sequences themselves hold zeros (two of them, where there is room), and where.
        wrong_cells: how many cells the guess gets wrong in the picture.
    """

    wrong_cells: int

    def __init__(
        self, lengths: Sequence[int] = (4, 6, 3), *, source: str = "right", to: str = "left", zeros: str = ZEROS[1]
    ) -> None:
        """Starts with these lengths, sides and zeros.

        Raises:
            ValueError: a length is not valid, or a choice is not among those of the controls.
        """
        self.typed = LengthsField(lengths)
        self.source = dropdown("source", source, SIDES, "data lie", width="200px")
        self.to = dropdown("to", to, SIDES, "move to", width="200px")
        self.zeros = dropdown("zeros", zeros, ZEROS, "real zeros", width="200px")
        super().__init__(row(self.typed, self.zeros, self.source, self.to))

    def view(self) -> View:
        """The batch as it is, moved, and guessed."""
        from torch import tensor  # noqa: PLC0415 - a second or two, paid when the first panel opens

        from packviz.ops.masks import align  # noqa: PLC0415

        layout = self.typed.read()
        if not text.is_few(layout):
            raise ValueError(f"give at most {text.FEW} sequences of at most {text.FEW} time steps")
        source, to = self.source.value, self.to.value
        x = tensor(_batch(layout, source, self.zeros.value))
        right = align(x, layout.lengths.tolist(), to, source, batch_first=True)
        guess = guessed(x, to)
        self.wrong_cells = int((right != guess).sum())
        pictures = [
            Aligned.of(x, layout.lengths, source, f"x: data on the {source}", True),
            Aligned.of(right, layout.lengths, to, f"✓ to the {to}, by lengths", True),
            Aligned.of(
                guess, layout.lengths, to, f"{'✗' if self.wrong_cells else '✓'} guessed from zeros", True, like=right
            ),
        ]
        said = text.count(self.wrong_cells, "cell")
        said = f"Guessed from zeros, {said} of {layout.n_cells} are wrong." if self.wrong_cells else _ALL_RIGHT
        return View(
            draw=lambda theme: beside(pictures, theme),
            summary=said,
            describe=lambda: "\n\n".join([said, *(picture.to_text() for picture in pictures)]),
        )


_ALL_RIGHT = "Here the guess happens to be right in every cell."


def guessed(x: Any, to: str) -> Any:
    """Moves each row until a number that is not 0 stands at the side: what code without lengths does.

    Args:
        x: `(B, T)` a tensor of numbers, padded with zeros.
        to: `"left"` or `"right"`.
    """
    moved = x.clone()
    for b, values in enumerate(x):
        nonzero = values.nonzero().flatten()
        if len(nonzero):
            shift = -int(nonzero[0]) if to == "left" else len(values) - 1 - int(nonzero[-1])
            moved[b] = values.roll(shift)
    return moved


def _batch(layout: Layout, side: str, zeros: str) -> Any:
    """`(B, T)` every sequence counts from 1, with real zeros where asked for."""
    t, n = np.arange(layout.max_len), layout.lengths[:, np.newaxis]
    few = np.minimum(2, n - 1)
    is_zero = {ZEROS[1]: t < few, ZEROS[2]: t >= n - few}.get(zeros, False)
    x = np.zeros(layout.mask.shape, dtype=np.int64)
    x[layout.mask if side == "left" else layout.mask[:, ::-1]] = np.where(is_zero, 0, t + 1 + 0 * n)[layout.mask]
    return x
