"""Shows in a panel what the backward pass of torch's pad writes for each distinct length."""

from __future__ import annotations

import torch
from torch import Tensor

from packviz.core.layout import Layout
from packviz.core.lengths import spread
from packviz.count import profile
from packviz.draw.copies import BackwardCopies
from packviz.ops.packing import pack_padded_sequence, pad_packed_sequence
from packviz.panels.panel import Panel, View, slider

_N_SEQUENCES = 6
_MAX_STEPS = 8


class BackwardPanel(Panel):
    """The cells that the backward pass of `pad_packed_sequence` writes, counted while torch runs.

    Attributes:
        distinct: the slider for the number of distinct lengths.
        shown: the `BackwardCopies` in the picture.
    """

    def __init__(self, distinct: int = 3) -> None:
        """Makes the panel with 6 sequences of up to 8 steps, which have `distinct` lengths.

        Raises:
            ValueError: `distinct` is not a whole number from 1 to 6.
        """
        self.distinct = slider("distinct", distinct, 1, _N_SEQUENCES, "distinct lengths")
        self.distinct.style.description_width = "initial"
        super().__init__(self.distinct)

    def view(self) -> View:
        """Returns a view of the tensors that are written."""
        layout = Layout(spread(self.distinct.value, _N_SEQUENCES, _MAX_STEPS))
        self.shown = shown = BackwardCopies(
            layout, cells_written_by_torch(layout), cells_written_by_packviz(layout)
        )
        return View(shown.sheet, shown.summary(), shown.to_text)


def cells_written_by_torch(layout: Layout) -> list[int]:
    """Returns the number of cells that torch's pad writes, backward, for each distinct length.

    If torch has a derivative formula for pad, the list has a single number.
    """
    pad = profile.count(layout, features=1, device="meta").pad
    cells: list[int] = []
    for operator in pad.backward.operators:
        starts = operator.name == "copy_" and operator.bytes == pad.gradient
        if starts or not cells:
            cells.append(0)
        cells[-1] += operator.bytes // 4
    return cells


def cells_written_by_packviz(layout: Layout) -> int:
    """Returns the number of cells that packviz's pad writes, backward."""
    x = torch.zeros(layout.max_len, layout.batch_size, 1)
    packed = pack_padded_sequence(x, layout.lengths.tolist())

    def pad(data: Tensor) -> Tensor:
        return pad_packed_sequence(packed._replace(data=data))[0]

    return profile.count_operation("pad", pad, packed.data).backward.bytes // 4
