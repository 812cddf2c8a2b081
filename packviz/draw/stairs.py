"""A staircase of rectangles over a padded batch, and what each number of rectangles costs: as SVG strings and as text.

Pure: numbers in, strings out. Where to cut is for `packviz.core.cuts` to say.
"""

from __future__ import annotations

import math
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from packviz.core.cuts import rectangles
from packviz.core.layout import Layout, sequence_name
from packviz.draw import axes, palette, text
from packviz.draw import layouts as svg
from packviz.draw.drawn import Drawn
from packviz.draw.palette import Theme

_LEFT, _TOP, _WIDE, _TALL = 70.0, 46.0, 460.0, 330.0  # px: the margins of the grid, and the most it takes
_CHART, _CHART_TALL, _AXIS, _END = 350.0, 340.0, 66.0, 24.0  # px: the chart, and what is left and right of its curves
_CURVE, _MEASURED = palette.SEQUENCES[4], palette.SEQUENCES[5]
_WEDGE, _DIAMOND = "M0-4l-5 8h10z", "M0-6l6 6l-6 6l-6-6z"


@dataclass(frozen=True, init=False, repr=False)
class Stairs(Drawn):
    """The rectangles that a staircase covers a padded batch with.

    Attributes:
        layout: the batch.
        cuts: rising time steps, from 0 to `max(lengths)`: where one rectangle ends, the next one begins.
        rectangles: `(first step, step after the last, sequences)` of each.
    """

    layout: Layout
    cuts: tuple[int, ...]
    rectangles: tuple[tuple[int, int, int], ...]

    def __init__(self, lengths: Any, cuts: Sequence[int]) -> None:
        """Covers a batch.

        Args:
            lengths: as `Layout` takes them, or a `Layout`.
            cuts: as above.

        Raises:
            ValueError: a length is not valid, or the cuts do not rise from 0 to `max(lengths)`.
        """
        layout = lengths if isinstance(lengths, Layout) else Layout(lengths)
        found = tuple(rectangles(layout.lengths.tolist(), cuts))
        for name, value in (("layout", layout), ("cuts", tuple(map(int, cuts))), ("rectangles", found)):
            object.__setattr__(self, name, value)

    @property
    def calls(self) -> int:
        """How many rectangles: each is one call of the kernel."""
        return len(self.rectangles)

    @property
    def cells(self) -> int:
        """Cells computed."""
        return sum((b - a) * n for a, b, n in self.rectangles)

    @property
    def wasted(self) -> int:
        """Padding cells among them."""
        return self.cells - self.layout.n_valid

    def summary(self) -> str:
        """One sentence with the counts."""
        share = text.percent(self.wasted, self.cells)
        return (
            f"{text.count(self.calls, 'rectangle')}: {text.count(self.cells, 'cell')} computed,"
            f" {self.layout.n_valid:,} real, {self.wasted:,} padding ({share} wasted)."
        )

    def to_text(self) -> str:
        """The counts, and the rectangles, of which many are left out."""
        listed = self.rectangles if self.calls <= text.FEW else (*self.rectangles[:8], None, *self.rectangles[-3:])
        rows = []
        for one in listed:
            if one is None:
                rows.append(["…"])
                continue
            a, b, n = one
            steps = f"step {a}" if b == a + 1 else f"steps {a}–{b - 1}"
            padding = n * (b - a) - int(self.layout.batch_sizes[a:b].sum())
            size = f"{text.count(n, 'sequence')} × {text.count(b - a, 'step')}"
            rows.append([steps, f"{size}, {padding:,} padding"])
        return "\n".join([self.summary(), *text.table(rows, "  <14 <")])

    def to_svg(self, theme: str = "light") -> str:
        """The grid, longest sequence first: padding that is computed is hatched, what is not computed is left empty."""
        return _Grid(self, palette.THEMES[theme]).draw(theme)


@dataclass(frozen=True, repr=False)
class TradeOff(Drawn):
    """Wasted cells against calls: from padding, one rectangle, to packing, one for every distinct length.

    Attributes:
        calls: `(S,)` numbers of rectangles, rising from 1.
        wasted: `(S,)` padding cells computed with so many.
        seconds: `(S,)` the time predicted.
        at: the number of rectangles pointed at.
        measured: by number of rectangles, the time measured as a multiple of that with one: median and quartiles.
    """

    calls: Sequence[int]
    wasted: Sequence[int]
    seconds: Sequence[float]
    at: int
    measured: Mapping[int, tuple[float, float, float]] = field(default_factory=dict)

    @property
    def ratios(self) -> list[float]:
        """The times predicted, as multiples of that with one rectangle."""
        return [seconds / self.seconds[0] for seconds in self.seconds]

    @property
    def best(self) -> int:
        """The number of rectangles of the shortest time predicted."""
        return self.calls[self.seconds.index(min(self.seconds))]

    def to_text(self) -> str:
        """A table of all, or of some where there are many."""
        rows = [["rectangles", "wasted cells", "predicted time", "  (one rectangle = 1)"]]
        every = max(1, math.ceil(len(self.calls) / text.FEW))
        for i, (k, wasted, ratio) in enumerate(zip(self.calls, self.wasted, self.ratios, strict=True)):
            if i % every == 0 or k in (self.at, self.best, self.calls[-1]) or k in self.measured:
                said = f"  measured {self.measured[k][0]:.3g}" if k in self.measured else ""
                said += "  ← here" * (k == self.at) + "  ← lowest" * (k == self.best)
                rows.append([f"{k}", f"{wasted:,}", f"{ratio:.2f}", said])
        return "\n".join(text.table(rows, ">10>14>16<"))

    def to_svg(self, theme: str = "light") -> str:
        """Two small charts over the number of rectangles: time above, wasted cells below."""
        return _Chart(self, palette.THEMES[theme]).draw(theme)


def beside(stairs: Stairs, trade_off: TradeOff, theme: str) -> str:
    """The staircase, and to its right what it costs and what others would, as a complete `<svg>` element."""
    grid, chart = _Grid(stairs, palette.THEMES[theme]), trade_off.to_svg(theme)
    moved = chart.replace("<svg ", f'<svg x="{_n(grid.width)}" ', 1)
    height = max(grid.height, _CHART_TALL)
    return svg.element(stairs.to_svg(theme) + moved, grid.width + _CHART, height, stairs.summary(), theme)


class _Grid:
    """The drawing of a staircase: the sizes that its parts share, and the parts."""

    width = _LEFT + _WIDE + 24

    def __init__(self, stairs: Stairs, theme: Theme) -> None:
        layout = stairs.layout
        self.stairs, self.layout, self.theme = stairs, layout, theme
        self.few = text.is_few(layout)
        self.stride = -(-layout.batch_size // int(_TALL)) | 1  # odd: a step through the colours that meets them all
        self.order = layout.sorted_indices[:: self.stride].tolist()
        self.each = min(30.0, _WIDE / layout.max_len)  # the width of a time step
        self.tall = min(22.0, _TALL / len(self.order))  # the height of a row
        self.right, self.foot = _LEFT + self.each * layout.max_len, _TOP + self.tall * len(self.order)
        self.height = self.foot + 46 + 18 * (self.stride > 1)

    def draw(self, theme: str) -> str:
        said = self.stairs.to_text()
        hatch = f"packviz-s{zlib.crc32((said + theme + str(self.order)).encode()):08x}"
        calls = self.stairs.calls
        title = "one rectangle: the padded batch" if calls == 1 else f"{calls:,} rectangles, longest sequence first"
        parts = [*self._cells(hatch), *self._frames(), *self._axis(), *self._names(), *self._key(hatch)]
        body = f'{svg.hatch(hatch, self.theme)}<text x="4" y="15" font-weight="bold">{title}</text>{"".join(parts)}'
        return svg.element(body, self.width, self.height, said, theme)

    def _cells(self, hatch: str) -> Iterator[str]:
        """The padded batch, empty; in it the hatched rectangles, and over them the real cells."""
        whole = _box(_LEFT, _TOP, self.right - _LEFT, self.foot - _TOP)
        yield f'<path d="{whole}" fill="none" stroke="{self.theme.muted}" stroke-dasharray="2 3"/>'
        yield f'<path d="{self._boxes()}" fill="url(#{hatch})"/>'
        fills: dict[str, list[str]] = defaultdict(list)
        inks: dict[str, list[str]] = defaultdict(list)
        for i, b in enumerate(self.order):
            y, fill = _TOP + i * self.tall, palette.sequence_colour(b)
            runs = int(self.layout.lengths[b]) if self.few else 1
            wide = self.each if self.few else self.each * int(self.layout.lengths[b])
            fills[fill] += [_box(_LEFT + t * wide, y, wide, self.tall) for t in range(runs)]
            if self.few:
                inks[palette.ink_on(fill)] += [
                    f'<text x="{_n(_LEFT + (t + 0.5) * wide)}" y="{_n(y + self.tall / 2 + 4)}">'
                    f"{text.cell_label(None, b, t)}</text>"
                    for t in range(runs)
                ]
        line = f' stroke="{self.theme.line}" stroke-width=".5"' if self.tall >= 4 else ""
        for fill, boxes in fills.items():
            yield f'<path d="{"".join(boxes)}" fill="{fill}"{line}/>'
        for ink, texts in inks.items():
            yield f'<g fill="{ink}" text-anchor="middle" font-size="11">{"".join(texts)}</g>'

    def _foot(self, sequences: int) -> float:
        """Where so many sequences end."""
        return _TOP + -(-sequences // self.stride) * self.tall

    def _boxes(self) -> str:
        """The path of all rectangles."""
        return "".join(
            _box(_LEFT + a * self.each, _TOP, (b - a) * self.each, self._foot(n) - _TOP)
            for a, b, n in self.stairs.rectangles
        )

    def _frames(self) -> Iterator[str]:
        """Each rectangle outlined; where they are too narrow for that, all of them together."""
        apart = (self.right - _LEFT) / self.stairs.calls
        path = self._boxes()
        if apart < 6:
            steps = "".join(f"V{_n(self._foot(n))}H{_n(_LEFT + b * self.each)}" for _, b, n in self.stairs.rectangles)
            path = f"M{_n(_LEFT)} {_n(_TOP)}{steps}V{_n(_TOP)}z"
        width = 2.5 if apart >= 20 else 1.5
        yield f'<path d="{path}" fill="none" stroke="{self.theme.accent}" stroke-width="{width}"/>'

    def _axis(self) -> Iterator[str]:
        """Above, the time steps of the cuts, as many as have room; below, the size of each rectangle, if all have."""
        y = _TOP - 8
        yield _text(_LEFT - 14, y, "cuts", anchor="end", size=11, fill=self.theme.muted)
        places = [(_LEFT + cut * self.each, str(cut)) for cut in self.stairs.cuts]
        taken = -math.inf
        for x, said in places:
            room = svg.CHAR * (len(said) + 1)
            if x == places[-1][0] or taken + room <= x <= places[-1][0] - room:
                taken = x
                yield _text(x, y, said, anchor="middle", size=11, fill=self.theme.accent)
        sizes = [(a, b, f"{n}×{b - a}") for a, b, n in self.stairs.rectangles]
        if all((b - a) * self.each >= 6.4 * len(said) for a, b, said in sizes):
            for a, b, said in sizes:
                middle = _LEFT + (a + b) / 2 * self.each
                yield _text(middle, self.foot + 14, said, anchor="middle", size=10, fill=self.theme.muted)

    def _names(self) -> Iterator[str]:
        """Letter and length of each sequence, where the rows are high enough."""
        if self.tall < 11:
            return
        for i, b in enumerate(self.order):
            y = _TOP + (i + 0.5) * self.tall + 4
            yield f'<text x="6" y="{_n(y)}" font-weight="bold">{sequence_name(b)}</text>'
            yield _text(_LEFT - 8, y, str(self.layout.lengths[b]), anchor="end", fill=self.theme.muted)

    def _key(self, hatch: str) -> Iterator[str]:
        y, x = self.foot + 24, 4.0
        for look, said in (
            (f'fill="{palette.sequence_colour(0)}" stroke="{self.theme.line}"', "real"),
            (f'fill="url(#{hatch})" stroke="{self.theme.line}"', "padding, computed"),
            (f'fill="none" stroke="{self.theme.muted}" stroke-dasharray="2 3"', "padding, left out"),
        ):
            yield f'<path d="{_box(x, y, 14, 12)}" {look}/>{_text(x + 20, y + 10, said)}'
            x += 20 + svg.CHAR * len(said) + 16
        if self.stride > 1:
            note = f"One in {self.stride} of {self.layout.batch_size:,} sequences is drawn. Counts are of all."
            yield _text(4, y + 30, note, size=11, fill=self.theme.muted)


class _Chart:
    """The drawing of a trade-off: two panels over one axis."""

    def __init__(self, it: TradeOff, theme: Theme) -> None:
        self.it, self.theme = it, theme
        slowest = max(*it.ratios, *(high for _, _, high in it.measured.values()), 1.0)
        self.time = _Scale(34, 124, axes.ticks(0, slowest))
        self.wasted = _Scale(200, 80, axes.ticks(0, max(*it.wasted, 1)))

    def draw(self, theme: str) -> str:
        it = self.it
        parts = [
            *self._panel("time, as a multiple of one rectangle", self.time, it.ratios),
            *self._panel("wasted cells", self.wasted, it.wasted),
            *self._best(),
            *self._measured(),
            *self._cursor(),
            *self._below(self.wasted.foot),
        ]
        return svg.element("".join(parts), _CHART, _CHART_TALL, it.to_text(), theme)

    def _x(self, calls: int) -> float:
        """Evenly in the logarithm: from one rectangle to two is as far as from 16 to 32."""
        share = math.log(calls) / math.log(max(self.it.calls[-1], 2))
        return _AXIS + share * (_CHART - _AXIS - _END)

    def _panel(self, title: str, scale: _Scale, values: Sequence[float]) -> Iterator[str]:
        yield f'<text x="4" y="{_n(scale.top - 16)}" font-weight="bold">{title}</text>'
        for value in scale.ticks:
            y = scale.y(value)
            yield f'<path d="M{_n(_AXIS)} {_n(y)}H{_n(_CHART - _END)}" stroke="{self.theme.hatch}" stroke-width=".5"/>'
            said = f"{value:g}" if value < 1 else text.short(int(value)) if value == int(value) else f"{value:g}"
            yield _text(_AXIS - 6, y + 4, said, anchor="end", size=11, fill=self.theme.muted)
        points = [f"{_n(self._x(k))} {_n(scale.y(value))}" for k, value in zip(self.it.calls, values, strict=True)]
        path = f'd="M{"L".join(points)}" fill="none" stroke-linejoin="round"'
        yield f'<path {path} stroke="{self.theme.line}" stroke-width="4"/>'  # its outline
        yield f'<path {path} stroke="{_CURVE}" stroke-width="2.5"/>'

    def _best(self) -> Iterator[str]:
        """A mark under the lowest time predicted."""
        it = self.it
        yield _at(self._x(it.best), self.time.y(min(it.ratios)) + 9, f'<path d="{_WEDGE}" fill="{self.theme.text}"/>')

    def _measured(self) -> Iterator[str]:
        """A diamond at each median, on a line from quartile to quartile."""
        for k, (middle, low, high) in self.it.measured.items():
            x, y = self._x(k), self.time.y(middle)
            yield f'<path d="M{_n(x)} {_n(self.time.y(low))}V{_n(self.time.y(high))}" stroke="{self.theme.text}"/>'
            yield _at(x, y, f'<path d="{_DIAMOND}" fill="{_MEASURED}" stroke="{self.theme.line}"/>')

    def _cursor(self) -> Iterator[str]:
        """Through both panels at the number of rectangles pointed at, with both values."""
        it, x = self.it, self._x(self.it.at)
        at = it.calls.index(it.at)
        lines = "".join(f"M{_n(x)} {_n(scale.top)}V{_n(scale.foot)}" for scale in (self.time, self.wasted))
        yield f'<path d="{lines}" stroke="{self.theme.accent}"/>'
        left = x < (_AXIS + _CHART) / 2
        halo = f'stroke="{self.theme.ground}" stroke-width="4" paint-order="stroke" font-weight="bold"'
        for scale, value, said in (
            (self.time, it.ratios[at], f"{it.ratios[at]:.2f}"),
            (self.wasted, it.wasted[at], text.short(it.wasted[at])),
        ):
            y = scale.y(value)
            yield f'<circle cx="{_n(x)}" cy="{_n(y)}" r="4.5" fill="{self.theme.accent}"/>'
            anchor = "" if left else "end"
            yield _text(x + (8 if left else -8), max(y - 7, scale.top), said, anchor=anchor, extra=halo)

    def _below(self, foot: float) -> Iterator[str]:
        most, taken = self.it.calls[-1], -math.inf
        ticks = sorted({most, *(2**i for i in range(int(math.log2(most)) + 1))})
        for k in ticks:
            x, room = self._x(k), svg.CHAR * len(str(k)) + 4
            if k == most or (x >= taken + room and x <= self._x(most) - room):
                taken = x
                yield _text(x, foot + 15, str(k), anchor="middle", size=11, fill=self.theme.muted)
        ends = f"rectangles: 1 is padding, {most:,} packing" if most > 1 else "rectangles"
        yield _text((_AXIS + _CHART - _END) / 2, foot + 31, ends, anchor="middle", size=11)
        y, x, line = foot + 50, 8.0, f'stroke="{self.theme.line}"'
        keys = [
            (f'<path d="M-9 0h18" stroke="{_CURVE}" stroke-width="3"/>', "predicted"),
            (f'<path d="{_WEDGE}" fill="{self.theme.text}"/>', "lowest"),
            (f'<path d="{_DIAMOND}" fill="{_MEASURED}" {line}/>', "measured here"),
        ]
        if not self.it.measured:
            del keys[-1]
        for mark, said in keys:
            yield _at(x + 6, y - 4, mark) + _text(x + 20, y, said, size=11)
            x += 20 + 6.7 * len(said) + 14


@dataclass(frozen=True)
class _Scale:
    """The place of a panel: from `top` down, `tall` px for values from 0 up."""

    top: float
    tall: float
    ticks: Sequence[float]

    @property
    def foot(self) -> float:
        return self.top + self.tall

    def y(self, value: float) -> float:
        return self.foot - value / self.ticks[-1] * self.tall


def _text(x: float, y: float, said: str, *, anchor: str = "", size: int = 12, fill: str = "", extra: str = "") -> str:
    parts = [f'<text x="{_n(x)}" y="{_n(y)}"']
    parts += [f'text-anchor="{anchor}"'] * bool(anchor) + [f'font-size="{size}"'] * (size != 12)
    parts += [f'fill="{fill}"'] * bool(fill) + [extra] * bool(extra)
    return f"{' '.join(parts)}>{said}</text>"


def _at(x: float, y: float, shape: str) -> str:
    return f'<g transform="translate({_n(x)} {_n(y)})">{shape}</g>'


def _box(x: float, y: float, width: float, height: float) -> str:
    return f"M{_n(x)} {_n(y)}h{_n(width)}v{_n(height)}h-{_n(width)}z"


def _n(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
