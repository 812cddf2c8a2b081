"""Where a panel's lengths come from: a line to type them in, or a choice of sliders, distribution, list and file."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import ipywidgets as widgets

from packviz.core import lengths as sources
from packviz.core.layout import Layout, require_steps, sequence_name
from packviz.core.sentences import sentences
from packviz.explorers.panel import dropdown, row, show, slider

ONE_BY_ONE, TYPED, FILE = "a slider each", "your own list", "your own file"
KINDS = (*sources.DISTRIBUTIONS, ONE_BY_ONE, TYPED, FILE)
MOST_SLIDERS = 8
LONGEST_SLIDER = 12
LONGEST = 512
"""The upper end of the slider of `longest`; that of sentences ends where no sentence is longer."""
MOST = 5000
"""More sequences than this are for `packviz.core.batches` and a script, where each has to find its place."""


class LengthsField(widgets.Text):
    """A line to type a few lengths in."""

    def __init__(self, lengths: Sequence[int], **options: Any) -> None:
        """Starts with these lengths; `options` are those of `ipywidgets.Text`."""
        super().__init__(value=_listed(require_steps(Layout(lengths))), description="lengths", **options)

    def read(self) -> Layout:
        """The lengths that stand there now.

        Raises:
            ValueError: what stands there is no list of lengths.
        """
        return require_steps(Layout(sources.read(io.StringIO(self.value))))


class LengthsPicker(widgets.VBox):
    """The controls that choose lengths, of which only those are shown that have a say.

    Attributes:
        kind: where the lengths come from: one of `KINDS`.
        few: the number of sequences with a slider each.
        sliders: one per sequence.
        many: the number of sequences of a distribution.
        longest: its upper end, in time steps.
        seed: chooses among random lengths.
        typed: your own list: numbers, JSON, or a pasted CSV column.
        upload: takes your own file, CSV or JSON.
    """

    def __init__(
        self,
        lengths: Sequence[int],
        kind: str | None = None,
        *,
        many: int = 64,
        longest: int = 128,
        seed: int = 0,
        sizes: tuple[int, int] = (1, 512),
        most: int | None = None,
    ) -> None:
        """Starts with these lengths, or with a distribution.

        Args:
            lengths: your own. Up to 8 sequences of up to 12 steps get a slider each.
            kind: start from this instead: one of `KINDS`.
            many: sequences of a distribution.
            longest: its upper end in time steps, up to 512.
            seed: of a random distribution, up to 99.
            sizes: the range of `many`.
            most: how many lengths a list or a file may have.

        Raises:
            ValueError: a length is not valid, a number is out of range, or there is no such kind.
        """
        self._most = most
        start = require_steps(Layout(lengths))
        few = start.batch_size <= MOST_SLIDERS and start.max_len <= LONGEST_SLIDER
        first = start.lengths.tolist() if few else [4, 6, 8, 5, 4, 3, 7, 8]
        self.kind = dropdown("kind", kind or (ONE_BY_ONE if few else TYPED), KINDS, "lengths")
        self.few = slider("sequences", len(first), 1, MOST_SLIDERS)
        each = enumerate((first + [6] * MOST_SLIDERS)[:MOST_SLIDERS])
        self.sliders = [slider(sequence_name(i), n, 1, LONGEST_SLIDER, narrow=True) for i, n in each]
        self.many = slider("sequences", many, *sizes)
        self.longest = slider("longest", longest, 1, LONGEST)
        self.seed = slider("seed", seed, 0, 99)
        look = widgets.Layout(width="680px", height="64px")
        self.typed = widgets.Textarea(value=_listed(start), description="list", layout=look)
        self.upload = widgets.FileUpload(accept=".csv,.json,.txt", description="choose a file")
        for control in (self.kind, self.few):
            control.observe(self._show_controls, names="value")
        self._show_controls()
        self._fit_longest()
        rows = [self.kind, self.upload, self.few, self.many], [self.longest, self.seed], self.sliders
        super().__init__([*(row(*controls) for controls in rows), self.typed])

    @property
    def is_random(self) -> bool:
        """Whether the seed chooses the lengths."""
        return self.kind.value in sources.RANDOM

    def lengths(self) -> Layout:
        """The lengths that the controls say now.

        Raises:
            ValueError: a list or a file does not hold lengths, or too many, or there is no file yet.
        """
        kind = self.kind.value
        self._fit_longest()
        if kind == ONE_BY_ONE:
            return Layout([control.value for control in self.sliders[: self.few.value]])
        if kind not in (TYPED, FILE):
            return Layout(sources.DISTRIBUTIONS[kind](self.many.value, self.longest.value, self.seed.value))
        file = io.StringIO(self.typed.value) if kind == TYPED else _uploaded(self.upload.value)
        layout = require_steps(Layout(sources.read(file)))
        if self._most and layout.batch_size > self._most:
            many = f"there are {layout.batch_size:,} lengths; the panel takes at most {self._most:,}"
            raise ValueError(f"{many}: see packviz.batches")
        return layout

    def _show_controls(self, change: Any = None) -> None:
        kind = self.kind.value
        for control in (self.many, self.longest):
            show(control, kind in sources.DISTRIBUTIONS)
        show(self.seed, self.is_random)
        show(self.few, kind == ONE_BY_ONE)
        for i, control in enumerate(self.sliders):
            show(control, kind == ONE_BY_ONE and i < self.few.value)
        show(self.typed, kind == TYPED)
        show(self.upload, kind == FILE)

    def _fit_longest(self) -> None:
        """Ends the slider of `longest` where more would change nothing."""
        self.longest.max = max(map(len, sentences())) if self.kind.value == "sentences" else LONGEST


def _listed(layout: Layout) -> str:
    return ", ".join(map(str, layout.lengths.tolist()))


def _uploaded(files: Sequence[Any]) -> io.TextIOWrapper:
    """The last file that was given, opened as text."""
    if not files:
        raise ValueError("no file yet; choose one with the button")
    content = io.BytesIO(files[-1]["content"])
    content.name = files[-1]["name"]
    return io.TextIOWrapper(content, encoding="utf-8-sig")
