"""Which sequences share a batch, and which worker takes them: see the padding of each batch, and who waits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ipywidgets as widgets

from packviz.core import batches as buckets
from packviz.core import lengths as sources
from packviz.core.batches import BUCKETED, ORDERS, SPLITS, Load
from packviz.core.layout import IntArray, Layout
from packviz.draw import bars, text
from packviz.draw.sheet import Sheet, stack
from packviz.explorers.panel import Panel, View, row, slider

TYPED, FILE = "your own list", "your own file"
MOST = 5000
"""More sequences than this are for `packviz.core.batches` and a script."""

_RANGES = {"many": (8, 2000), "longest": (1, 512), "batch_size": (1, 128), "workers": (1, 8)}
_CELLS = ("real cells", "padding", "padding")
_TOKENS = ("works on", "waits, in tokens", "waiting")


class BatchingExplorer(Panel):
    """An epoch of batches from your lengths: the padding of each, and the shares of several workers.

    Attributes:
        kind: where the lengths come from: a distribution, your own list, or your own file.
        many: the number of sequences of a distribution.
        longest: its upper end, in time steps.
        seed: chooses among random lengths, and among shuffled batches.
        typed: your own list: numbers, JSON, or a pasted CSV column.
        upload: takes your own file, CSV or JSON.
        batch_size: sequences per batch.
        order: how they are put into batches.
        window: for buckets, how many batches are sorted together.
        workers: how many share a batch.
        way: how it is dealt out to them.
        load: the `Load` of the batches in the picture.
        tokens: `(S, W)` the tokens of each batch and worker.
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
        """Starts with these lengths, or with a distribution.

        Args:
            lengths: your own; at most 5,000.
            kind: of the distribution, if there are none.
            many: its sequences, 8 to 2,000.
            longest: its upper end in time steps, up to 512.
            batch_size: sequences per batch, up to 128.
            order: one of `packviz.core.batches.ORDERS`.
            workers: 1 to 8.

        Raises:
            ValueError: a length is not valid, a number is out of range, or there is no such kind or order.
        """
        for name, value in {"many": many, "longest": longest, "batch_size": batch_size, "workers": workers}.items():
            low, high = _RANGES[name]
            if value not in range(low, high + 1):
                raise ValueError(f"{name} is {value!r}; give a whole number from {low:,} to {high:,}")
        own = "12, 3, 7, 4, 9, 2, 8, 5" if lengths is None else ", ".join(map(str, Layout(lengths).lengths.tolist()))
        kinds = (*sources.DISTRIBUTIONS, TYPED, FILE)
        for name, choice, choices in (("kind", kind, kinds), ("order", order, ORDERS)):
            if choice not in choices:
                raise ValueError(f"{name} is {choice!r}; choose one of {', '.join(map(repr, choices))}")
        start = TYPED if lengths is not None else kind
        self.kind = widgets.Dropdown(options=kinds, value=start, description="lengths")
        self.many = slider("sequences", many, *_RANGES["many"])
        self.longest = slider("longest", longest, *_RANGES["longest"])
        self.seed = slider("seed", 0, 0, 99)
        self.typed = widgets.Textarea(
            value=own, description="list", layout=widgets.Layout(width="680px", height="64px")
        )
        self.upload = widgets.FileUpload(accept=".csv,.json,.txt", description="choose a file")
        self.batch_size = slider("batch size", batch_size, *_RANGES["batch_size"])
        self.order = widgets.Dropdown(options=ORDERS, value=order, description="batches")
        self.window = slider("window", 4, 1, buckets.WINDOW)
        self.workers = slider("workers", workers, *_RANGES["workers"])
        self.way = widgets.Dropdown(options=SPLITS, value=SPLITS[0], description="split")
        for control in (self.kind, self.workers):
            control.observe(self._show_controls, names="value")
        self._show_controls()
        super().__init__(
            [
                row(self.kind, self.upload, self.many),
                row(self.longest, self.seed),
                self.typed,
                row(self.order, self.batch_size, self.window),
                row(self.way, self.workers),
            ],
            [
                *(self.kind, self.many, self.longest, self.seed, self.typed, self.upload),
                *(self.batch_size, self.order, self.window, self.workers, self.way),
            ],
        )

    def lengths(self) -> Any:
        """The lengths that the controls say now."""
        kind = self.kind.value
        if kind == TYPED:
            return sources.parse(self.typed.value)
        if kind == FILE:
            return _read(self.upload.value)
        return sources.DISTRIBUTIONS[kind](self.many.value, self.longest.value, self.seed.value)

    def view(self) -> View:
        """The batches of an epoch, and the workers' shares."""
        n = Layout(self.lengths()).lengths
        if n.size > MOST:
            raise ValueError(f"there are {n.size:,} lengths; the panel takes at most {MOST:,}: see packviz.batches")
        order, seed = self.order.value, self.seed.value
        several = n.size > self.batch_size.value and bool(n.min() < n.max())
        if several:  # moves the slider if it stood beyond, which draws again
            self.window.max = min(buckets.WINDOW, -(-n.size // self.batch_size.value))
        self._show(self.window, order == BUCKETED and several)
        shuffles = order in (buckets.SHUFFLED, BUCKETED) and several
        self._show(self.seed, shuffles or self.kind.value in sources.RANDOM)
        groups = buckets.batches(n, self.batch_size.value, order, window=self.window.value, seed=seed)
        self.load = load = Load.of(n, groups)
        self.tokens = tokens = buckets.tokens(n, groups, self.workers.value, self.way.value)
        epoch = f"{text.count(n.size, 'sequence')} in {text.count(len(groups), 'batch', 'batches')}"
        cells = int(load.cells.sum())
        wasted = text.percent(load.padding, cells)
        said = f"{epoch} ({order}): {cells:,} cells, {load.padding:,} padding ({wasted})."
        waits = ""
        if self.workers.value > 1:
            share = f"{100 * buckets.idle(tokens):.3g} % of the time"
            waits = f" {self.workers.value} workers ({self.way.value}) wait {share}."

        def draw(theme: str) -> Sheet:
            drawings = [bars.steps("Cells of each batch", load.real, load.cells, theme, _CELLS, "batch")]
            if waits:
                title = "Tokens of each worker, and tokens it waits for the slowest"
                drawings.append(bars.totals(title, self._shares(tokens), theme, _TOKENS))
            return stack(f"An epoch: {epoch}", drawings, theme)

        def describe() -> str:
            lines = [said + waits, "", f"real cells of each batch  {text.numbers(load.real)}"]
            lines.append(f"all cells of each batch   {text.numbers(load.cells)}")
            for name, (own, idle) in self._shares(tokens).items():
                lines.append(f"{name}: {own:,} tokens, waits for {idle:,}")
            return "\n".join(lines)

        return View(draw, said + waits, describe)

    @staticmethod
    def _shares(tokens: IntArray) -> dict[str, tuple[int, int]]:
        """For each worker its tokens, and those of the slowest in each step beyond its own."""
        own = tokens.sum(axis=0)
        slowest = tokens.max(axis=1).sum()
        return {f"worker {i}": (int(mine), int(slowest - mine)) for i, mine in enumerate(own)}

    def _show_controls(self, change: Any = None) -> None:
        """Shows only the controls that have a say; `view` shows those of shuffling."""
        kind = self.kind.value
        self._show(self.many, kind in sources.DISTRIBUTIONS)
        self._show(self.longest, kind in sources.DISTRIBUTIONS)
        self._show(self.typed, kind == TYPED)
        self._show(self.upload, kind == FILE)
        self._show(self.way, self.workers.value > 1)

    @staticmethod
    def _show(control: widgets.Widget, visible: bool) -> None:
        control.layout.display = None if visible else "none"


def _read(uploaded: Sequence[Any]) -> list[float]:
    """The lengths in the last file that was given."""
    if not uploaded:
        raise ValueError("no file yet; choose one with the button")
    file = uploaded[-1]
    try:
        content = bytes(file["content"]).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"{file['name']}: not a text file") from None
    return sources.parse_file(file["name"], content)
