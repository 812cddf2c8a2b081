"""Inside a packed sequence: walk the time steps and see where every cell goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ipywidgets as widgets

from packviz.core.layout import Layout
from packviz.draw import cells, layouts, text
from packviz.draw.sheet import Sheet, stack
from packviz.explorers.lengths import LengthsField
from packviz.explorers.panel import Panel, View, row, show, slider, tick


class PackedExplorer(Panel):
    """A time cursor over a packed sequence: which cells step t takes, and where they land in `data`.

    The layout is read from a `PackedSequence` that torch itself has packed, so its order and complaints are torch's.

    Attributes:
        typed: the lengths.
        t: the time step pointed at.
        play: walks the cursor.
        enforce_sorted: torch's switch of that name: with it on, torch refuses lengths that are not sorted.
        mistaken: adds the order that many expect, one sequence after another.
        indices: adds `sorted_indices` and `unsorted_indices`, each entry at its row.
        states: adds the states of a small RNN after step `t`, padded and packed. Large batches are left out.
        shown: the `Layout` in the picture.
    """

    shown: Layout

    def __init__(self, lengths: Sequence[int] = (3, 5, 2, 4), *, t: int = 0, states: bool = False) -> None:
        """Starts with these lengths, the cursor at time step `t`, and with or without states."""
        start = Layout(lengths)
        last = start.max_len - 1
        self.typed = LengthsField(lengths)
        self.t = slider("time step t", t, 0, last)
        self.play = widgets.Play(value=t, min=0, max=last, interval=900, description="walk the steps")
        widgets.jslink((self.play, "value"), (self.t, "value"))
        self.enforce_sorted = tick("enforce_sorted")
        self.mistaken = tick("show the common mistake")
        self.indices = tick("show the index lists")
        self.states = tick("show the states", states)
        self.shown = _packed_by_torch(start, enforce_sorted=False)
        self._asked: Any = (self.typed.value, False)
        switches = row(self.typed, self.enforce_sorted, self.mistaken, self.indices, self.states)
        super().__init__(switches, row(self.play, self.t), quiet=(self.play,))

    def view(self) -> View:
        """The picture at the cursor."""
        asked, complaint = (self.typed.value, self.enforce_sorted.value), ""
        if asked != self._asked:
            try:
                self.shown = _packed_by_torch(self.typed.read(), self.enforce_sorted.value)
            except ValueError as error:  # the cursor still walks the last good lengths
                complaint = str(error)
            else:
                self._asked = asked
                last = self.shown.max_len - 1
                self.t.max = self.play.max = last  # moves the cursor if it stood beyond
        layout, t, mistaken = self.shown, self.t.value, self.mistaken.value
        shown: dict[str, Any] = {"step": t, "mistaken": mistaken, "indices": self.indices.value}
        texts = [text.at_step(layout, t), text.describe(layout)]
        if mistaken:
            texts.append(text.mistaken_order(layout, t))
        show(self.states, text.is_few(layout))
        states = _states(layout, t) if self.states.value and text.is_few(layout) else []
        texts += [one.to_text() for one in states]

        def draw(theme: str) -> Sheet:
            picture = layouts.draw(layout, theme=theme, **shown)
            return stack("", [picture, cells.beside(states, theme)], theme) if states else picture

        return View(draw, texts[0], lambda: "\n\n".join(texts), complaint)


def _states(layout: Layout, t: int) -> list[cells.Aligned]:
    """The states of a small RNN after step `t`, padded and packed."""
    import torch  # noqa: PLC0415 - as below

    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        rnn, x = torch.nn.RNN(3, 4).double(), torch.randn(layout.max_len, layout.batch_size, 3, dtype=torch.float64)
        outputs = rnn(x * torch.tensor(layout.mask.T)[..., None])[0]
    last = torch.tensor(layout.lengths - 1).clamp(max=t)  # up to its end, a padded row is right
    real = layout.mask[:, [t] * 4]
    runs = [
        (f"padded: h after step {t} (hatched: has read padding)", outputs[t], real),
        (f"packed: h after step {t} (kept after the end)", outputs[last, range(len(last))], real | True),
    ]
    return [
        cells.Aligned(title, [[f"{v:.2f}" for v in row] for row in h.tolist()], mask, columns=["unit 0", "1", "2", "3"])
        for title, h, mask in runs
    ]


def _packed_by_torch(layout: Layout, enforce_sorted: bool) -> Layout:
    """The layout as torch packs it.

    Raises:
        ValueError: torch refuses the lengths; the message is torch's.
    """
    import torch  # noqa: PLC0415 - a second or two, paid when the first panel opens

    from packviz.ops.original import pack_padded_sequence  # noqa: PLC0415

    try:
        x = torch.zeros(layout.max_len, layout.batch_size)
        packed = pack_padded_sequence(x, torch.tensor(layout.lengths), enforce_sorted=enforce_sorted)
    except RuntimeError as error:
        raise ValueError(f"torch: {str(error).splitlines()[0]}") from None
    return Layout.from_packed(packed)
