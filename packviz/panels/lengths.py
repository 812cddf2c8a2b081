"""Provides the controls for a panel's lengths, which you type, set with sliders, draw from a distribution or upload."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, TextIO

import ipywidgets as widgets

from packviz.core import lengths as sources
from packviz.core.layout import Layout, require_steps, sequence_name
from packviz.core.sentences import sentences
from packviz.panels.panel import dropdown, row, show, slider

ONE_BY_ONE, TYPED, FILE = "a slider each", "your own list", "your own file"
KINDS = (*sources.DISTRIBUTIONS, ONE_BY_ONE, TYPED, FILE)
MOST_SLIDERS = 8
LONGEST_SLIDER = 12
LONGEST = 512
"""The upper end of the slider *longest*. For sentences, the slider ends at the longest sentence."""
MOST = 5000
"""The largest number of sequences in a panel that puts each of them into a batch or a row."""
MOST_CELLS = 2048
"""The largest number of cells in a panel that runs an RNN at every change."""


def lengths_field(lengths: Sequence[int], **options: Any) -> widgets.Text:
    """Returns a text field with these lengths. The `options` are passed to `ipywidgets.Text`."""
    return widgets.Text(
        value=_listed(require_steps(Layout(lengths))), description="lengths", **options
    )


def read(source: str | TextIO, most_cells: int | None = None) -> Layout:
    """Reads lengths from a string or an open file.

    Raises:
        ValueError: the text is not a list of lengths, or their padded batch has more than
            `most_cells` cells.
    """
    layout = require_steps(
        Layout(sources.read(io.StringIO(source) if isinstance(source, str) else source))
    )
    if most_cells and layout.n_cells > most_cells:
        raise ValueError(
            f"these lengths make {layout.n_cells:,} cells; the panel runs an RNN at every change, so give at most"
            f" {most_cells:,}"
        )
    return layout


class LengthsPicker(widgets.VBox):
    """The controls for choosing lengths. Controls without an effect are hidden.

    Attributes:
        kind: the drop-down list for the source of the lengths. Its choices are `KINDS`.
        few: the slider for the number of sequences, if each has a slider of its own.
        sliders: one slider for the length of each of these sequences.
        many: the slider for the number of sequences in a distribution.
        longest: the slider for the greatest length in a distribution, in time steps.
        seed: the slider for the seed of random lengths.
        typed: the field for your own list: numbers, JSON, or a pasted CSV column.
        upload: the button to choose your own CSV, JSON or text file.
    """

    def __init__(
        self,
        lengths: Sequence[int] | None,
        kind: str | None = None,
        *,
        many: int = 64,
        longest: int = 128,
        seed: int = 0,
        sizes: tuple[int, int] = (1, 512),
        most: int | None = None,
    ) -> None:
        """Makes the controls.

        Args:
            lengths: your lengths, or `None` for an example. Up to 8 sequences of up to 12 steps
                have a slider each.
            kind: the source of the lengths, one of `KINDS`. Defaults to sliders if your lengths fit
                on them, and otherwise to a list.
            many: the number of sequences to draw from a distribution.
            longest: the greatest length that may be drawn, up to 512 time steps.
            seed: the seed of random lengths, up to 99.
            sizes: the smallest and the largest value that `many` may have.
            most: the largest number of lengths that a list or a file may contain; `None` for no
                limit.

        Raises:
            ValueError: a length is not valid, a number is out of its range, or `kind` is unknown.
        """
        self._most, example = most, [4, 6, 8, 5, 4, 3, 7, 8]
        start = require_steps(Layout(example if lengths is None else lengths))
        few = start.batch_size <= MOST_SLIDERS and start.max_len <= LONGEST_SLIDER
        first = start.lengths.tolist() if few else example
        self.kind = dropdown("kind", kind or (ONE_BY_ONE if few else TYPED), KINDS, "lengths")
        self.few = slider("sequences", len(first), 1, MOST_SLIDERS)
        each = enumerate((first + [6] * MOST_SLIDERS)[:MOST_SLIDERS])
        self.sliders = [
            slider(sequence_name(i), n, 1, LONGEST_SLIDER, narrow=True) for i, n in each
        ]
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
        rows = (
            [self.kind, self.upload, self.few, self.many],
            [self.longest, self.seed],
            self.sliders,
        )
        super().__init__([*(row(*controls) for controls in rows), self.typed])

    @property
    def is_random(self) -> bool:
        """True if the lengths depend on the seed."""
        return self.kind.value in sources.RANDOM

    def lengths(self) -> Layout:
        """Returns the lengths that the controls describe.

        Raises:
            ValueError: the list or the file contains too many lengths or something other than
                lengths, or no file has been chosen yet.
        """
        kind = self.kind.value
        self._fit_longest()
        if kind == ONE_BY_ONE:
            return Layout([control.value for control in self.sliders[: self.few.value]])
        if kind not in (TYPED, FILE):
            return Layout(
                sources.DISTRIBUTIONS[kind](self.many.value, self.longest.value, self.seed.value)
            )
        layout = read(self.typed.value if kind == TYPED else _uploaded(self.upload.value))
        if self._most and layout.batch_size > self._most:
            many = (
                f"there are {layout.batch_size:,} lengths; the panel takes at most {self._most:,}"
            )
            raise ValueError(f"{many}. For more, call packviz.batches")
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
        """Limits the slider `longest` to the greatest value that makes a difference."""
        self.longest.max = max(map(len, sentences())) if self.kind.value == "sentences" else LONGEST


def _listed(layout: Layout) -> str:
    return ", ".join(map(str, layout.lengths.tolist()))


def _uploaded(files: Sequence[Any]) -> io.TextIOWrapper:
    """Returns the last file that was uploaded, opened as text."""
    if not files:
        raise ValueError("no file has been chosen yet; choose one with the button")
    content = io.BytesIO(files[-1]["content"])
    content.name = files[-1]["name"]
    return io.TextIOWrapper(content, encoding="utf-8-sig")
