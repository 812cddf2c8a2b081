"""Shows batching in a panel: choose which sequences share a batch, and see the padding and how long workers wait."""

from __future__ import annotations

from collections.abc import Sequence

from packviz.core import batches as buckets
from packviz.core.batches import BUCKETED, ORDERS, SPLITS, Load
from packviz.core.layout import IntArray
from packviz.draw import bars, text
from packviz.draw.sheet import Sheet, stack
from packviz.panels.lengths import MOST, TYPED, LengthsPicker
from packviz.panels.panel import Panel, View, dropdown, row, show, slider

_CELLS = ("real cells", "padding", "padding")
_TOKENS = ("tokens", "waiting, in tokens", "waiting")


class BatchingPanel(Panel):
    """An epoch of batches from your lengths, with the padding of each batch and the share of each
    worker.

    Attributes:
        picker: the controls for choosing the lengths. Their seed also determines how batches are
            shuffled.
        batch_size: the slider for the number of sequences per batch.
        order: the drop-down list for the order in which sequences are put into batches.
        window: the slider for the number of batches that are sorted together to form buckets.
        workers: the slider for the number of workers that share a batch.
        strategy: the drop-down list for the way to divide a batch among workers.
        load: the `Load` of the batches in the picture.
        tokens: `(S, W)` number of tokens in each of `S` batches for each of `W` workers.
    """

    load: Load
    tokens: IntArray

    def __init__(
        self,
        lengths: Sequence[int] | None = None,
        *,
        kind: str = "log-normal",
        many: int = 512,
        longest: int = 128,
        batch_size: int = 32,
        order: str = buckets.SHUFFLED,
        workers: int = 2,
    ) -> None:
        """Makes the panel with your lengths or, if you give none, with lengths from a distribution.

        Args:
            lengths: your lengths, at most 5,000.
            kind: the distribution to use if you give no lengths, one of `pv.lengths.DISTRIBUTIONS`.
            many: number of sequences to draw from the distribution, from 8 to 2,000.
            longest: greatest length that may be drawn, up to 512 time steps.
            batch_size: number of sequences per batch, up to 128.
            order: the order in which sequences are put into batches, one of `pv.batches.ORDERS`.
            workers: number of workers, from 1 to 8.

        Raises:
            ValueError: a length is not valid, a number is out of its range, or `kind` or `order` is
                unknown.
        """
        kind = kind if lengths is None else TYPED
        self.picker = LengthsPicker(
            lengths, kind, many=many, longest=longest, sizes=(8, 2000), most=MOST
        )
        self.batch_size = slider("batch size", batch_size, 1, 128)
        self.order = dropdown("order", order, ORDERS, "batches")
        several = -(-(many if lengths is None else len(lengths)) // batch_size)
        self.window = slider("window", max(min(buckets.WINDOW, several), 1), 1, buckets.WINDOW)
        self.workers = slider("workers", workers, 1, 8)
        self.strategy = dropdown("split", SPLITS[0], SPLITS)
        super().__init__(
            self.picker,
            row(self.order, self.batch_size, self.window),
            row(self.strategy, self.workers),
        )

    def view(self) -> View:
        """Returns a view of the batches of an epoch and of the workers' shares."""
        n = self.picker.lengths().lengths
        order, seed = self.order.value, self.picker.seed.value
        several = n.size > self.batch_size.value and bool(n.min() < n.max())
        if several:  # moves the slider back if it is beyond the range
            self.window.max = min(buckets.WINDOW, -(-n.size // self.batch_size.value))
        show(self.window, order == BUCKETED and several)
        show(
            self.picker.seed,
            (order in (buckets.SHUFFLED, BUCKETED) and several) or self.picker.is_random,
        )
        show(self.strategy, self.workers.value > 1)
        groups = buckets.batches(
            n, self.batch_size.value, order, window=self.window.value, seed=seed
        )
        self.load = load = Load.of(n, groups)
        self.tokens = tokens = buckets.tokens(n, groups, self.workers.value, self.strategy.value)
        own = tokens.sum(axis=0)
        idle = (
            tokens.max(axis=1).sum() - own
        )  # the tokens by which the slowest worker of each step exceeds the others
        shares = {
            f"worker {i}": pair
            for i, pair in enumerate(zip(own.tolist(), idle.tolist(), strict=True))
        }
        epoch = f"{text.count(n.size, 'sequence')} in {text.count(len(groups), 'batch', 'batches')}"
        cells = int(load.cells.sum())
        wasted = text.percent(load.padding, cells)
        summary = f"{epoch} ({order}): {cells:,} cells, {load.padding:,} padding ({wasted})."
        share = f"{100 * buckets.idle(tokens):.3g} % of the time, if time is proportional to tokens"
        if self.workers.value > 1:
            summary += f" {self.workers.value} workers ({self.strategy.value}) wait {share}."

        def draw(theme: str) -> Sheet:
            drawings = [
                bars.steps(
                    f"Padding takes {wasted} of the cells",
                    load.real,
                    load.cells,
                    theme,
                    _CELLS,
                    "batch",
                )
            ]
            if len(shares) > 1:
                drawings.append(bars.totals(f"Waiting takes {share}", shares, theme, _TOKENS))
            return stack(f"An epoch: {epoch}", drawings, theme)

        lines = [summary, "", f"real cells of each batch  {text.numbers(load.real)}"]
        lines.append(f"all cells of each batch   {text.numbers(load.cells)}")
        lines += [
            f"{name} has {own:,} tokens and waits for {idle:,}"
            for name, (own, idle) in shares.items()
        ]
        return View(draw, summary, lambda: "\n".join(lines))
