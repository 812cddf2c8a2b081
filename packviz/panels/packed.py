"""Shows a packed sequence in a panel: step through time, and see where every cell goes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import ipywidgets as widgets
import numpy as np

from packviz.core.layout import BoolArray, Layout
from packviz.core.util import first_line
from packviz.draw import aligned, batch_picture, text
from packviz.draw.sheet import Sheet, stack
from packviz.panels.panel import Panel, View, row, show, slider, tick
from packviz.panels.picker import lengths_field, read

if TYPE_CHECKING:
    from torch import Tensor


class PackedPanel(Panel):
    """A packed sequence, with the cells of one time step and their places in `data`.

    The layout is read from a `PackedSequence` that torch has packed, so the order and the error
    messages are torch's.

    Attributes:
        typed: the text field for the lengths.
        t: the slider for the time step.
        play: the button that steps through time.
        enforce_sorted: the checkbox for torch's option of that name. If it is ticked, torch rejects
            lengths that are not sorted.
        mistaken: the checkbox that shows the order that many people expect, one sequence after
            another.
        indices: the checkbox that shows `sorted_indices` and `unsorted_indices`, each entry next to
            its row.
        states: the checkbox that shows, for a small batch, the padded and the packed states of a
            small RNN after step `t`.
        shown: the `Layout` in the picture.
    """

    shown: Layout

    def __init__(
        self, lengths: Sequence[int] = (3, 5, 2, 4), *, t: int = 0, states: bool = False
    ) -> None:
        """Makes the panel.

        Args:
            lengths: your lengths.
            t: the time step to start at.
            states: whether the states are shown when the panel opens.

        Raises:
            ValueError: a length is not valid, or `t` is out of its range.
        """
        last = Layout(lengths).max_len - 1
        self.typed = lengths_field(lengths)
        self.t = slider("t", t, 0, last, "time step t")
        self.play = widgets.Play(
            value=t, min=0, max=last, interval=900, description="play the steps"
        )
        widgets.jslink((self.play, "value"), (self.t, "value"))
        self.enforce_sorted = tick("enforce_sorted")
        self.mistaken = tick("show the common mistake")
        self.indices = tick("show the index lists")
        self.states = tick("states", states, "show the states")
        switches = row(self.typed, self.enforce_sorted, self.mistaken, self.indices, self.states)
        super().__init__(switches, row(self.play, self.t), quiet=(self.play,))

    def view(self) -> View:
        """Returns a view of the chosen time step."""
        layout = _packed_by_torch(read(self.typed.value), self.enforce_sorted.value)
        self.shown = layout
        # Moves the sliders back if they are beyond the range.
        self.t.max = self.play.max = layout.max_len - 1
        t = self.t.value
        mistaken = self.mistaken.value
        indices = self.indices.value
        parts = batch_picture.Shown(layout, step=t, mistaken=mistaken, indices=indices)
        is_few = text.is_few(layout)
        show(self.states, is_few)
        states = _states(layout, t) if self.states.value and is_few else []
        texts = [text.at_step(layout, t), text.describe(layout)]
        if mistaken:
            texts.append(text.mistaken_order(layout, t))
        texts += [picture.to_text() for picture in states]

        def draw(theme: str) -> Sheet:
            picture = batch_picture.draw(parts, theme)
            if not states:
                return picture
            return stack("", [picture, aligned.beside(states, theme)], theme)

        return View(draw, texts[0], lambda: "\n\n".join(texts))


def _states(layout: Layout, t: int) -> list[aligned.Aligned]:
    """Returns the states of a small RNN after step `t`, padded and packed."""
    import torch  # noqa: PLC0415 - torch loads slowly

    shape = (layout.max_len, layout.batch_size, 3)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        rnn = torch.nn.RNN(3, 4).double()
        x = torch.randn(shape, dtype=torch.float64)
        real_steps = torch.tensor(layout.mask.T)
        outputs, _ = rnn(x * real_steps[..., None])
    # Before its sequence ends, a padded row is right.
    last = torch.tensor(layout.lengths - 1).clamp(max=t)
    padded = outputs[t]
    packed = outputs[last, range(layout.batch_size)]
    real = layout.mask[:, [t] * 4]
    read_padding = f"padded: h after step {t} (hatched if it has read padding)"
    kept = f"packed: h after step {t} (kept after the end)"
    return [_picture(read_padding, padded, real), _picture(kept, packed, np.ones_like(real))]


def _picture(title: str, states: Tensor, mask: BoolArray) -> aligned.Aligned:
    values = [[f"{value:.2f}" for value in row] for row in states.tolist()]
    return aligned.Aligned(title, values, mask, columns=["unit 0", "1", "2", "3"])


@lru_cache(8)
def _packed_by_torch(layout: Layout, enforce_sorted: bool) -> Layout:
    """Packs a batch of this layout with torch, and returns the resulting layout.

    Raises:
        ValueError: torch rejects the lengths. The message is the one that torch gives.
    """
    import torch  # noqa: PLC0415 - torch loads slowly

    from packviz.ops.original import pack_padded_sequence  # noqa: PLC0415 - torch loads slowly

    x = torch.zeros(layout.max_len, layout.batch_size)
    n = torch.tensor(layout.lengths)
    try:
        packed = pack_padded_sequence(x, n, enforce_sorted=enforce_sorted)
    except RuntimeError as error:
        raise ValueError(f"torch: {first_line(error)}") from None
    return Layout.from_packed(packed)
