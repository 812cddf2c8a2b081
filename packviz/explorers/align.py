"""Left and right alignment: move the data by their lengths, and see what a guess from zeros does instead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ipywidgets as widgets
import numpy as np

from packviz.core.layout import Layout
from packviz.draw import text
from packviz.draw.cells import Aligned, beside
from packviz.explorers.lengths import LengthsField
from packviz.explorers.panel import Panel, View, row

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
        """Starts with these lengths, sides and zeros."""
        self.typed = LengthsField(lengths)
        self.source = widgets.Dropdown(options=SIDES, value=source, description="data lie")
        self.to = widgets.Dropdown(options=SIDES, value=to, description="move to")
        self.zeros = widgets.Dropdown(options=ZEROS, value=zeros, description="real zeros")
        choices = (self.zeros, self.source, self.to)
        for control in choices:
            control.layout.width = "200px"
        super().__init__(row(self.typed, *choices))

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
    x = np.zeros((layout.batch_size, layout.max_len), dtype=np.int64)
    for b, n in enumerate(layout.lengths.tolist()):
        values = np.arange(1, n + 1)
        few = min(2, n - 1)
        if zeros == ZEROS[1]:
            values[:few] = 0
        elif zeros == ZEROS[2]:
            values[n - few :] = 0
        start = 0 if side == "left" else layout.max_len - n
        x[b, start : start + n] = values
    return x
