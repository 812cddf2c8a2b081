"""Shows batching in a panel: choose which sequences share a batch, and see what that wastes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from packviz.core import batches as buckets
from packviz.core.batches import BUCKETED, ORDERS, SHUFFLED, SPLITS, WINDOW
from packviz.draw import bars
from packviz.draw.palette import THEMES
from packviz.draw.sheet import Sheet, stack
from packviz.draw.text import numbers, percent, with_noun
from packviz.panels.panel import Panel, View, dropdown, row, set_visible, slider
from packviz.panels.picker import OWN_LIST, LengthsPicker

_CELL_LABELS = ("real cells", "padding", "padding")
_TOKEN_LABELS = ("tokens", "waiting (not work), in tokens", "waiting")


class BatchingPanel(Panel):
    """An epoch of batches from your lengths, with their padding and the share of each process.

    Attributes:
        picker: the controls for choosing the lengths. Their seed also determines how batches are
            shuffled.
        batch_size: the slider for the number of sequences per batch.
        order: the drop-down list for the order in which sequences are put into batches.
        window: the slider for the number of batches that are sorted together to form buckets.
        processes: the slider for the number of processes that share a batch.
        strategy: the drop-down list for the way to divide a batch among processes.
        real: `(S,)` the number of real cells in each of the `S` batches in the picture.
        cells: `(S,)` the number of cells in each of these batches.
        padding: the number of padding cells in all of these batches.
        tokens: `(S, W)` the number of tokens that each of the `W` processes has in each batch.
    """

    def __init__(
        self,
        lengths: Sequence[int] | None = None,
        *,
        kind: str = "log-normal",
        sequences: int = 512,
        longest: int = 128,
        batch_size: int = 32,
        order: str = SHUFFLED,
        processes: int = 2,
    ) -> None:
        """Makes the panel with your lengths or, if you give none, with lengths from a distribution.

        Args:
            lengths: your lengths, at most 5,000.
            kind: the distribution to use if you give no lengths, one of `pv.lengths.DISTRIBUTIONS`.
            sequences: number of sequences to draw from the distribution, up to 2,000.
            longest: greatest length that may be drawn, up to 512 time steps.
            batch_size: number of sequences per batch, up to 128.
            order: the order in which sequences are put into batches, one of `pv.batches.ORDERS`.
            processes: number of processes, from 1 to 8.

        Raises:
            ValueError: a length is not valid, a number is out of its range, or `kind` or `order` is
                unknown.
        """
        kind = kind if lengths is None else OWN_LIST
        self.picker = LengthsPicker(lengths, kind, sequences=sequences, longest=longest)
        self.batch_size = slider("batch_size", batch_size, 1, 128, "batch size")
        self.order = dropdown("order", order, ORDERS, "batches")
        n_batches = math.ceil(self.picker.lengths().batch_size / batch_size)
        self.window = slider("window", min(WINDOW, n_batches), 1, WINDOW)
        self.processes = slider("processes", processes, 1, 8)
        self.strategy = dropdown("split", SPLITS[0], SPLITS)
        batches = row(self.order, self.batch_size, self.window)
        super().__init__(self.picker, batches, row(self.strategy, self.processes))

    def view(self) -> View:
        """Returns a view of the batches of an epoch and of the processes' shares."""
        n = self.picker.lengths().lengths
        order = self.order.value
        processes = self.processes.value
        strategy = self.strategy.value
        batch_size = self.batch_size.value
        n_batches = math.ceil(n.size / batch_size)
        order_matters = n_batches > 1 and n.min() < n.max()
        if order_matters:  # moves the slider back if it is beyond the range
            self.window.max = min(WINDOW, n_batches)
        is_shuffled = order in (SHUFFLED, BUCKETED) and order_matters
        set_visible(self.window, order == BUCKETED and order_matters)
        set_visible(self.picker.seed, is_shuffled or self.picker.is_random)
        set_visible(self.strategy, processes > 1)
        window = self.window.value
        seed = self.picker.seed.value
        groups = buckets.batches(n, batch_size, order, window=window, seed=seed)
        batches = [n[group] for group in groups]
        self.real = real = np.array([batch.sum() for batch in batches])
        self.cells = cells = np.array([batch.size * batch.max() for batch in batches])
        n_cells = int(cells.sum())
        self.padding = n_cells - int(real.sum())
        self.tokens = tokens = buckets.tokens(n, groups, processes, strategy)
        waste_percent = percent(self.padding, n_cells)
        sequences = with_noun(n.size, "sequence")
        epoch_text = f"{sequences} in {with_noun(n_batches, 'batch', 'batches')}"
        padding = f"{self.padding:,} padding ({waste_percent})"
        summary = f"{epoch_text} ({order}): {with_noun(n_cells, 'cell')}, {padding}."
        lines = [
            "",
            f"real cells of each batch  {numbers(real)}",
            f"all cells of each batch   {numbers(cells)}",
        ]
        tokens_per_process = tokens.sum(axis=0)
        # How many more tokens the slowest process of each step has.
        idle_tokens_per_process = tokens.max(axis=1).sum() - tokens_per_process
        shares = {}
        for i in range(processes):
            rank_tokens = int(tokens_per_process[i])
            rank_idle_tokens = int(idle_tokens_per_process[i])
            shares[f"rank {i}"] = (rank_tokens, rank_idle_tokens)
            lines.append(
                f"rank {i} has {rank_tokens:,} tokens, and waits as long as"
                f" {rank_idle_tokens:,} take"
            )
        waiting_text = f"{100 * buckets.idle(tokens):.3g} % of the time"
        waiting_text += ", if time is proportional to tokens"
        if processes > 1:
            summary += f" {processes} processes ({strategy}) wait {waiting_text}."

        def draw(theme: str) -> Sheet:
            padding_chart = bars.draw_step_bars(
                epoch_text, real, cells, theme, _CELL_LABELS, "batch"
            )
            drawings = [padding_chart]
            if processes > 1:
                idle_fill = THEMES[theme].padding
                waiting_chart = bars.draw_saving_bars(
                    f"Waiting takes {waiting_text}", shares, theme, _TOKEN_LABELS, idle_fill
                )
                drawings.append(waiting_chart)
            return stack(f"Padding takes {waste_percent} of the cells", drawings, theme)

        return View(draw, summary, lambda: "\n".join([summary, *lines]))
