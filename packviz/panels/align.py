"""Shows alignment in a panel: move the padding, and see what guessing from zeros gets wrong."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from torch import Tensor, tensor

from packviz.core.layout import IntArray, Layout
from packviz.draw.aligned import Aligned
from packviz.draw.text import MAX_LISTED, is_small, numbers, with_noun
from packviz.ops.masks import align
from packviz.panels.panel import Panel, View, draw_side_by_side, dropdown, row
from packviz.panels.picker import lengths_field, read

SIDES = ("right", "left")
ZERO_PLACES = ("none", "at the start", "at the end")


class AlignPanel(Panel):
    """A small batch whose padding is moved by its lengths and, for comparison, by guessing.

    The guess is that every zero at the ends of a row is padding.

    Attributes:
        typed: the text field for the lengths.
        source_side: the drop-down list for the side of the padding in the batch.
        padding_side: the drop-down list for the side of the padding in the result.
        zeros: the drop-down list that puts two zeros at the start or at the end of each sequence,
            or none. Short sequences have fewer zeros.
        wrong_cells: the number of cells in the picture that the guess gets wrong.
    """

    def __init__(
        self,
        lengths: Sequence[int] = (4, 6, 3),
        *,
        source_side: str = "left",
        padding_side: str = "right",
        zeros: str = ZERO_PLACES[1],
    ) -> None:
        """Makes the panel.

        Args:
            lengths: your lengths, at most 16 sequences of at most 16 steps.
            source_side: the side of the padding in the batch, `"left"` or `"right"`.
            padding_side: the side of the padding in the result, `"left"` or `"right"`.
            zeros: where to put zeros among the data: `"none"`, `"at the start"` or `"at the end"`
                of each sequence.

        Raises:
            ValueError: a length is not valid, there are too many, or a choice is unknown.
        """
        self.typed = lengths_field(lengths)
        self.source_side = dropdown("source_side", source_side, SIDES, "padding on", width="200px")
        self.padding_side = dropdown(
            "padding_side", padding_side, SIDES, "move it to", width="200px"
        )
        self.zeros = dropdown("zeros", zeros, ZERO_PLACES, "real zeros", width="200px")
        super().__init__(row(self.typed, self.zeros, self.source_side, self.padding_side))

    def view(self) -> View:
        """Returns a view of the batch and of the results of both methods."""
        layout = read(self.typed.value)
        if not is_small(layout):
            size_limit = f"{MAX_LISTED} sequences of at most {MAX_LISTED} time steps"
            raise ValueError(f"lengths is {numbers(layout.lengths)}; give at most {size_limit}")
        n = layout.lengths.tolist()
        before = self.source_side.value
        after = self.padding_side.value
        batch = tensor(_make_batch(layout, self.zeros.value))
        align_batch = partial(align, batch, n, source_side="right", batch_first=True)
        x = align_batch(padding_side=before)
        aligned_batch = align_batch(padding_side=after)
        guessed_batch = guess_alignment(x, after)
        self.wrong_cells = int((aligned_batch != guessed_batch).sum())
        mark = "✗" if self.wrong_cells else "✓"
        draw_batch = partial(Aligned.of, lengths=layout.lengths, batch_first=True)
        batch_drawing = draw_batch(x, padding_side=before, title=f"x: padding on the {before}")
        aligned_drawing = draw_batch(
            aligned_batch, padding_side=after, title=f"✓ padding on the {after}, by lengths"
        )
        guessed_drawing = draw_batch(
            guessed_batch,
            padding_side=after,
            title=f"{mark} guessed from zeros",
            like=aligned_batch,
        )
        pictures = [batch_drawing, aligned_drawing, guessed_drawing]
        summary = "Here the guess happens to be right in every cell."
        if self.wrong_cells:
            share = f"{self.wrong_cells:,} of {with_noun(layout.n_cells, 'cell')}"
            summary = f"Guessing from zeros gets {share} wrong."
        texts = [summary, *(picture.to_text() for picture in pictures)]
        return View(partial(draw_side_by_side, pictures), summary, lambda: "\n\n".join(texts))


def guess_alignment(x: Tensor, padding_side: str) -> Tensor:
    """Rotates each row until all zeros at its ends are on one side.

    That is what code does that ignores the lengths.

    Args:
        x: a tensor `(B, T)` of numbers, padded with zeros.
        padding_side: `"right"` or `"left"`.
    """
    rotated_rows = x.clone()
    for b, values in enumerate(x):
        nonzero_steps = values.nonzero().flatten().tolist()
        if nonzero_steps:
            shift = len(values) - 1 - nonzero_steps[-1]
            if padding_side == "right":
                shift = -nonzero_steps[0]
            rotated_rows[b] = values.roll(shift)
    return rotated_rows


def _make_batch(layout: Layout, zeros: str) -> IntArray:
    """Returns a batch `(B, T)` whose sequences count up from 1, except for the real zeros."""
    steps = np.arange(layout.max_len)
    lengths = layout.lengths[:, None]
    zero_counts = np.minimum(2, lengths - 1)
    is_nonzero = layout.mask
    if zeros == ZERO_PLACES[1]:
        is_nonzero = is_nonzero & (steps >= zero_counts)
    elif zeros == ZERO_PLACES[2]:
        is_nonzero = is_nonzero & (steps < lengths - zero_counts)
    return is_nonzero * (steps + 1)
