"""A layout as an SVG string: the padded grid, the packed steps beside it, and the packed data underneath.

Pure and deterministic: the same layout gives the same string. Few cells are drawn one by one with what is in them; many
as runs, one stretch per sequence and one path per colour, so that 512 × 512 cells stay a few shapes and kilobytes.
"""

from __future__ import annotations

import html
import re
import unicodedata
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from textwrap import wrap

import numpy as np

from packviz.core.layout import IntArray, Layout, sequence_name
from packviz.draw import palette
from packviz.draw.palette import Theme
from packviz.draw.text import Labels, cell_label, is_few, summary

CHAR = 7.3
"""An upper bound for the width of one character of the 12 px monospace face, in px."""

_PANEL = 460  # px: two panels of this width stand side by side in a JupyterLab cell
_TALL = 400  # px: the tallest panel of runs
_MARGIN = 70  # px: left of a panel, for the names of its rows
_MOST_ROWS = 512  # more sequences than this would share pixels: some are left out, and the picture says so
_TOP = 46  # px: a panel's title and its time axis
_STEPS_TITLE = "packed: longest first, no padding"
_SLOPE = 110  # px: between the panels, where lines show the sort
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class _Scale:
    """How large one cell is, and which sequences are drawn."""

    width: float
    height: float
    few: bool
    stride: int

    @property
    def letters(self) -> bool:
        """Whether a row is high enough for a letter."""
        return self.height >= 11


def draw(
    layout: Layout,
    labels: Labels | None = None,
    *,
    theme: str = "light",
    step: int | None = None,
    mistaken: bool = False,
) -> str:
    """Draws the padded batch, the packed steps and the packed data.

    Args:
        layout: what to draw.
        labels: what stands in the cells, sequence by sequence, used when there are few; letter and time step if not
            given.
        theme: `"light"`, `"dark"`, or `"live"` for colours that follow the page around the picture.
        step: a time step to point at: its cells are framed, and the data shows what has been packed up to it.
        mistaken: adds the order that `data` is often taken to have, one sequence after another.

    Returns:
        A complete `<svg>` element.

    Raises:
        ValueError: there is no such theme, or no such time step.
    """
    if theme not in palette.THEMES:
        raise ValueError(f"theme is {theme!r}; choose one of {', '.join(map(repr, palette.THEMES))}")
    last = layout.batch_sizes.size - 1
    if step is not None and not 0 <= step <= last:
        raise ValueError(f"step is {step}; the longest sequence has time steps 0 … {last}")
    body, width, height = _Picture(layout, labels, palette.THEMES[theme], step, mistaken).render()
    return element(body, width, height, summary(layout), theme)


def escape(text: str) -> str:
    """Text for an element or an attribute. What XML cannot hold becomes the replacement character."""
    return html.escape(_NOT_XML.sub("\ufffd", text))


def element(body: str, width: float, height: float, said: str, theme: str) -> str:
    """A complete `<svg>` on the theme's ground, with `said` for a screen reader."""
    colours, size = palette.THEMES[theme], f'width="{_n(width)}" height="{_n(height)}"'
    style = f"<style>{palette.STYLE}</style>" if theme == "live" else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="packviz" role="img" {size}'
        f' viewBox="0 0 {_n(width)} {_n(height)}" style="max-width:100%;height:auto"'
        f' font-family="ui-monospace,Menlo,Consolas,monospace" font-size="12" fill="{colours.text}"'
        f' aria-label="{escape(said)}">{style}<path d="{_box(0, 0, width, height)}" fill="{colours.ground}"/>{body}'
        "</svg>"
    )


def hatch(name: str, colours: Theme) -> str:
    """The pattern of padding, to fill with as `url(#name)`.

    The name must be the picture's own: many pictures may share a page, and where one is hidden the others must not look
    for their hatch in it.
    """
    return (
        f'<pattern id="{name}" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        f'<path d="M0 0h6v6H0z" fill="{colours.padding}"/><path d="M0 0v6" stroke="{colours.hatch}" stroke-width="2"/>'
        "</pattern>"
    )


def stack(title: str, drawings: Sequence[str], theme: str) -> str:
    """Puts whole drawings under each other, beneath a line of text."""
    lines = wrap(title, 96)
    y = 10.0 + 18 * len(lines)
    body = [f'<text x="4" y="{16 + 18 * i}" font-size="13">{escape(line)}</text>' for i, line in enumerate(lines)]
    width = 16.0 + 8 * max(map(len, lines))
    for drawing in drawings:
        size = re.search(r'width="([\d.]+)" height="([\d.]+)"', drawing)
        if size is None:
            raise ValueError("drawings must be <svg> elements with a width and a height")
        body.append(drawing.replace("<svg ", f'<svg y="{_n(y)}" ', 1))
        width, y = max(width, float(size[1])), y + float(size[2]) + 8
    return element("".join(body), width, y, title, theme)


class _Picture:
    """One drawing in the making: the choices every part shares, and the parts."""

    def __init__(self, layout: Layout, labels: Labels | None, theme: Theme, step: int | None, mistaken: bool) -> None:
        self.layout, self.labels, self.theme, self.step, self.mistaken = layout, labels, theme, step, mistaken
        self.scale = _scale(layout, labels)
        arrays = layout.lengths.tobytes() + layout.sorted_indices.tobytes()
        other = repr((layout.max_len, labels, theme, step, mistaken)).encode()
        self.hatch = f"packviz-{zlib.crc32(arrays + other):08x}"
        self.grid_width = layout.max_len * self.scale.width
        self.rows = range(0, layout.batch_size, self.scale.stride)
        self.rows_height = len(self.rows) * self.scale.height
        self.stacked = _MARGIN + 2 * self.grid_width + _SLOPE > 2 * _PANEL + 2 * _SLOPE
        # Stacked, the label "batch_sizes" stands in the margin too; side by side, there is the slope for it.
        self.left = _MARGIN + 40 if self.stacked else _MARGIN
        self.steps_left = self.left if self.stacked else self.left + max(self.grid_width, _MARGIN) + _SLOPE
        self.width = max(560, self.steps_left + max(self.grid_width, len(_STEPS_TITLE) * CHAR) + 20)

    def render(self) -> tuple[str, float, float]:
        """The picture's parts, its width and its height."""
        body = [*self.padded(0)]
        y = _TOP + self.rows_height + 14
        body += self.steps(y if self.stacked else 0)
        y += _TOP + self.rows_height + 26 if self.stacked else 22
        strip, y = self.strip(y, self._true_order())
        body += strip
        if self.mistaken:
            strip, y = self.strip(y + 8, self._mistaken_order())
            body += strip
        body += self.notes(y)
        y += 16 * len(self._notes)

        return hatch(self.hatch, self.theme) + "".join(body), self.width, y + 6

    def padded(self, top: float) -> Iterator[str]:
        """The grid as the caller's tensor holds it, padding hatched."""
        layout, left, y = self.layout, self.left, top + _TOP
        yield self._text(left, top + 14, f"padded: {layout.n_cells:,} cells", weight="bold")
        yield from self._axis(left, y, layout.max_len)
        yield f'<path d="{_box(left, y, self.grid_width, self.rows_height)}"'
        yield f' fill="url(#{self.hatch})" stroke="{self.theme.line}" stroke-width=".5"/>'
        yield from self._runs(left, y, ((i, b) for i, b in enumerate(self.rows)))
        yield from self._row_names(left, y, self.rows)
        yield from self._padding_labels(left, y)
        yield from self._frame(left, y, self.layout.batch_size)

    def steps(self, top: float) -> Iterator[str]:
        """The sequences longest first, without padding: a column is what the RNN reads at one time step."""
        layout, scale = self.layout, self.scale
        left, y = self.steps_left, top + _TOP
        order = [int(layout.sorted_indices[rank]) for rank in self.rows]
        yield self._text(left, top + 14, _STEPS_TITLE, weight="bold")
        yield from self._axis(left, y, layout.batch_sizes.size)
        yield from self._runs(left, y, enumerate(order))
        yield from self._frame(left, y, None)
        if self.stacked:
            yield from self._row_names(left, y, order)
        elif scale.letters:
            yield from self._sort_lines(left, y, order)
        below = y + self.rows_height + 15
        yield self._text(left - 22, below, "batch_sizes", anchor="end", colour=self.theme.muted)
        for t in self._ticks(layout.batch_sizes.size):
            weight = "bold" if t == self.step else "normal"
            middle = left + (t + 0.5) * scale.width
            yield self._text(middle, below, str(layout.batch_sizes[t]), anchor="middle", weight=weight)

    def strip(self, top: float, order: _Order) -> tuple[list[str], float]:
        """The rows of data in one line (or several), group by group; returns it and where it ends."""
        colour = self.theme.wrong if order.wrong else self.theme.text
        out = [self._text(4, top + 12, order.title, weight="bold", colour=colour)]
        if not self.scale.few:
            return [*out, *self._bands(top + 22, order)], top + 22 + 18 + 8
        width, height = self.scale.width, 22.0
        x, y, shapes = 4.0, top + 34, _Shapes(self.theme)
        for name, cells in order.groups():
            if x > 4 and x + len(cells) * width > self.width - 4:
                x, y = 4.0, y + height + 22
            out.append(self._text(x + 1, y - 4, name, size=10, colour=self.theme.muted))
            for b, t in cells:
                if x + width > self.width - 4:  # a group wider than the picture goes on below
                    x, y = 4.0, y + height + 22
                ghost = self.step is not None and not order.wrong and t > self.step
                shapes.cell(x, y, width, height, b, self._label(b, t), ghost=ghost)
                if t == self.step:
                    shapes.frame(x, y, width, height)
                x += width
            x += 5
        return [*out, *shapes.draw()], y + height + 8

    def notes(self, top: float) -> Iterator[str]:
        """What the drawing itself cannot show."""
        for i, note in enumerate(self._notes):
            yield self._text(4, top + 10 + 16 * i, note, size=11, colour=self.theme.muted)

    def _true_order(self) -> _Order:
        layout, offsets = self.layout, self.layout.offsets
        title, marks = f"data: {layout.n_valid:,} rows, time step by time step", []
        if self.step is not None:
            start, end = int(offsets[self.step]), int(offsets[self.step + 1])
            title, marks = f"{title}; step {self.step} fills data[{start}:{end}]", [(start, end)]
        return _Order(title, "t={}".format, layout.batch_sizes.tolist(), lambda: layout.source, marks)

    def _mistaken_order(self) -> _Order:
        layout = self.layout
        title, marks = "✗ not so: one sequence after another", []
        if self.step is not None:
            if layout.batch_sizes[self.step] > 1:
                title += f" (the rows of step {self.step} would lie apart)"
            starts = np.cumsum(layout.lengths) - layout.lengths + self.step
            marks = [(int(row), int(row) + 1) for row in starts[layout.lengths > self.step]]
        return _Order(
            title, sequence_name, layout.lengths.tolist(), lambda: np.argwhere(layout.mask), marks, wrong=True
        )

    @property
    def _notes(self) -> list[str]:
        layout, scale = self.layout, self.scale
        notes = []
        if scale.few and not layout.is_sorted:
            notes.append(f"sorted_indices {layout.sorted_indices.tolist()}")
            notes.append(f"unsorted_indices {layout.unsorted_indices.tolist()}")
        if len(self._ticks(layout.batch_sizes.size)) < layout.batch_sizes.size:
            notes.append("Not every step has room for its number: some of the batch_sizes are left out.")
        if not scale.few and layout.batch_sizes.min() * self._per_row < 1:
            notes.append("Where the bar of data is plain, its steps are too thin to be told apart.")
        if scale.stride > 1:
            notes.append(f"One in {scale.stride} of {layout.batch_size:,} sequences is drawn. Counts are of all.")
        return notes

    @property
    def _per_row(self) -> float:
        """The width of one row of data in the bar, in px."""
        return (self.width - 8) / self.layout.n_valid

    def _label(self, b: int, t: int) -> str:
        return _clip(cell_label(self.labels, b, t), self.scale.width)

    def _runs(self, left: float, top: float, rows: Iterable[tuple[int, int]]) -> Iterator[str]:
        """The real stretch of each sequence `b` in picture row `i`."""
        scale = self.scale
        shapes = _Shapes(self.theme, outlined=scale.height >= 4)  # on lower rows the outlines would hide the colours
        for i, b in rows:
            y, length = top + i * scale.height, int(self.layout.lengths[b])
            if scale.few:
                for t in range(length):
                    shapes.cell(left + t * scale.width, y, scale.width, scale.height, b, self._label(b, t))
            else:
                shapes.cell(left, y, length * scale.width, scale.height, b)
        yield from shapes.draw()

    def _padding_labels(self, left: float, top: float) -> Iterator[str]:
        """What the padding holds, where the caller gave it."""
        if not self.scale.few or self.labels is None:
            return
        for b, length in enumerate(self.layout.lengths):
            for t in range(length, self.layout.max_len):
                if label := self._label(b, t):
                    x, y = left + (t + 0.5) * self.scale.width, top + (b + 0.5) * self.scale.height + 4
                    halo = f'stroke="{self.theme.padding}" stroke-width="4" paint-order="stroke"'
                    yield self._text(x, y, label, anchor="middle", colour=self.theme.muted, extra=halo)

    def _row_names(self, left: float, top: float, rows: Sequence[int]) -> Iterator[str]:
        """Letter and length beside each row; beside the low rows of a large batch only some indices."""
        scale = self.scale
        if scale.letters:
            yield self._text(left - 8, top - 6, "length", anchor="end", size=10, colour=self.theme.muted)
            for i, b in enumerate(rows):
                y = top + (i + 0.5) * scale.height + 4
                yield self._text(6, y, sequence_name(b), weight="bold")
                yield self._text(left - 8, y, str(self.layout.lengths[b]), anchor="end", colour=self.theme.muted)
        else:
            yield self._text(left - 8, top - 6, "b =", anchor="end", size=10, colour=self.theme.muted)
            every = _nice(24 / scale.height)
            for i in range(0, len(rows), every):
                y = top + i * scale.height + 9
                yield self._text(left - 8, y, str(rows[i]), anchor="end", size=10, colour=self.theme.muted)

    def _sort_lines(self, left: float, top: float, order: Sequence[int]) -> Iterator[str]:
        """From each sequence's row in the grid to its row by length: the sort permutation, drawn."""
        longest_name = sequence_name(self.layout.batch_size - 1)
        start, end = self.left + self.grid_width + 6, left - 20 - CHAR * (len(longest_name) - 1)
        middle = _n((start + end) / 2)
        for rank, b in enumerate(order):
            y0, y1 = (_n(top + (i + 0.5) * self.scale.height) for i in (b, rank))
            curve = f'd="M{_n(start)} {y0}C{middle} {y0} {middle} {y1} {_n(end)} {y1}" fill="none"'
            yield f'<path {curve} stroke="{self.theme.line}" stroke-width="3.5"/>'  # its outline
            yield f'<path {curve} stroke="{palette.sequence_colour(b)}" stroke-width="2.5"/>'
            yield self._text(left - 6, float(y1) + 4, sequence_name(b), anchor="end", weight="bold")

    def _axis(self, left: float, top: float, steps: int) -> Iterator[str]:
        yield self._text(left - 8, top - 18, "t =", anchor="end", size=11, colour=self.theme.muted)
        for t in self._ticks(steps):
            middle = left + (t + 0.5) * self.scale.width
            colour, weight = (self.theme.accent, "bold") if t == self.step else (self.theme.muted, "normal")
            yield self._text(middle, top - 18, str(t), anchor="middle", size=11, colour=colour, weight=weight)

    def _ticks(self, steps: int) -> list[int]:
        """Time steps that get a number: all of few, some of many, and always the one pointed at."""
        if self.scale.few:
            return list(range(steps))
        # Both a step's number and the batch size under it need room.
        room = 6 + CHAR * max(len(str(steps)), len(str(self.layout.batch_size)))
        ticks = list(range(0, steps, _nice(room / self.scale.width)))
        if self.step is not None:
            ticks = [t for t in ticks if abs(t - self.step) * self.scale.width >= room] + [self.step]
        return ticks

    def _frame(self, left: float, top: float, rows: int | None) -> Iterator[str]:
        """A frame around the column of the step pointed at: the whole of it, or the sequences still running."""
        if self.step is None:
            return
        running = int(self.layout.batch_sizes[self.step]) if rows is None else rows
        height = -(-running // self.scale.stride) * self.scale.height
        shapes = _Shapes(self.theme)
        width = max(self.scale.width, 2)
        shapes.frame(left + self.step * self.scale.width, top, width, height)
        yield from shapes.draw()

    def _bands(self, top: float, order: _Order) -> Iterator[str]:
        """The data of a large batch as one bar: every other group shaded, as long as they can be told apart."""
        height, per_row = 18, self._per_row
        ends = np.cumsum(order.sizes)
        shaded = [
            (end - size, end) for end, size in zip(ends[1::2], order.sizes[1::2], strict=True) if size * per_row >= 1
        ]

        def path(stretches: Iterable[tuple[float, float]]) -> str:
            return "".join(_box(4 + a * per_row, top, max((b - a) * per_row, 1), height) for a, b in stretches)

        yield f'<path d="{path([(0, self.layout.n_valid)])}" fill="{self.theme.padding}" stroke="{self.theme.line}"/>'
        yield f'<path d="{path(shaded)}" fill="{self.theme.hatch}"/>'
        yield f'<path d="{path(order.marks)}" fill="{self.theme.accent}"/>'

    def _text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        anchor: str = "",
        size: int = 12,
        weight: str = "",
        colour: str = "",
        extra: str = "",
    ) -> str:
        attributes = [f'x="{_n(x)}" y="{_n(y)}"']
        if anchor:
            attributes.append(f'text-anchor="{anchor}"')
        if size != 12:
            attributes.append(f'font-size="{size}"')
        if weight not in ("", "normal"):
            attributes.append(f'font-weight="{weight}"')
        if colour not in ("", self.theme.text):
            attributes.append(f'fill="{colour}"')
        if extra:
            attributes.append(extra)
        return f"<text {' '.join(attributes)}>{escape(text)}</text>"


class _Shapes:
    """Rectangles gathered by colour: one path each, whatever their number."""

    def __init__(self, theme: Theme, outlined: bool = True) -> None:
        self.theme, self.outlined = theme, outlined
        self.fills: dict[str, list[str]] = defaultdict(list)
        self.inks: dict[str, list[str]] = defaultdict(list)
        self.ghosts: list[str] = []
        self.frames: list[str] = []

    def cell(
        self, x: float, y: float, width: float, height: float, b: int, label: str = "", ghost: bool = False
    ) -> None:
        fill = palette.sequence_colour(b)
        (self.ghosts if ghost else self.fills[fill]).append(_box(x, y, width, height))
        if label:
            ink = self.theme.muted if ghost else palette.ink_on(fill)
            self.inks[ink].append(f'<text x="{_n(x + width / 2)}" y="{_n(y + height / 2 + 4)}">{escape(label)}</text>')

    def frame(self, x: float, y: float, width: float, height: float) -> None:
        self.frames.append(_box(x, y, width, height))

    def draw(self) -> Iterator[str]:
        outline = f' stroke="{self.theme.line}" stroke-width=".5"' if self.outlined else ""
        for fill, paths in self.fills.items():
            yield f'<path d="{"".join(paths)}" fill="{fill}"{outline}/>'
        if self.ghosts:
            dashed = f'fill="none" stroke="{self.theme.muted}" stroke-dasharray="2 2"'
            yield f'<path d="{"".join(self.ghosts)}" {dashed}/>'
        for ink, texts in self.inks.items():
            yield f'<g fill="{ink}" text-anchor="middle">{"".join(texts)}</g>'
        if self.frames:
            yield f'<path d="{"".join(self.frames)}" fill="none" stroke="{self.theme.accent}" stroke-width="3"/>'


@dataclass(frozen=True)
class _Order:
    """An order of the real cells in one line: the true one, or a mistaken one.

    `name` and `sizes` tell its groups, `cells` gives the cell `(b, t)` of each row, `marks` the stretches of rows that
    belong to the time step pointed at.
    """

    title: str
    name: Callable[[int], str]
    sizes: list[int]
    cells: Callable[[], IntArray]
    marks: list[tuple[int, int]]
    wrong: bool = False

    def groups(self) -> Iterator[tuple[str, list[list[int]]]]:
        """The name and the cells of each group."""
        cells = iter(self.cells().tolist())
        for i, size in enumerate(self.sizes):
            yield self.name(i), list(islice(cells, size))


def _scale(layout: Layout, labels: Labels | None) -> _Scale:
    B, T = layout.batch_size, layout.max_len
    if is_few(layout):
        longest = max(_columns(cell_label(labels, b, t)) for b in range(B) for t in range(T))
        width = min(max(26.0, 8 + CHAR * longest), 100.0, max(26.0, 2 * _PANEL / T))
        return _Scale(width, 24.0, True, 1)
    stride = -(-B // _MOST_ROWS) | 1  # odd: a step through the colours that meets them all
    rows = -(-B // stride)
    return _Scale(min(24.0, _PANEL / T), min(22.0, max(1.0, _TALL / rows)), False, stride)


def _clip(label: str, width: float) -> str:
    room = int((width - 4) / CHAR)
    if _columns(label) <= room:
        return label
    while label and _columns(label) > room - 1:
        label = label[:-1]
    return label + "…"


def _columns(label: str) -> int:
    """The width of a label in characters of the monospace face; Chinese ones, say, are two wide."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in label)


def _nice(at_least: float) -> int:
    """The smallest of 1, 2, 5, 10, 20, 50, … that is at least this."""
    power = 1
    while True:
        for step in (power, 2 * power, 5 * power):
            if step >= at_least:
                return step
        power *= 10


def _box(x: float, y: float, width: float, height: float) -> str:
    return f"M{_n(x)} {_n(y)}h{_n(width)}v{_n(height)}h-{_n(width)}z"


def _n(value: float) -> str:
    """A coordinate with at most two decimals and no trailing zeros."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
