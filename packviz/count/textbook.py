"""The count that explains packing in textbooks: multiplications and additions of one product with a padded batch.

A batch of `B` sequences of single numbers, padded to `(B, T)`, is multiplied by a weight of shape `(T, columns)`. A row
with `n` real entries takes `n` multiplications and `n - 1` additions for each column of the result.

It is a picture of the idea and not what an RNN does: an RNN multiplies one *time step* at a time, by the same weights
(see `packviz.count.flops`). And the well-known figures, 54/48 against 32/26, are those of a single output column.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any, NamedTuple

from packviz.core.layout import Layout, sequence_name
from packviz.draw import layouts as svg
from packviz.draw import palette, text
from packviz.draw.drawn import Drawn


class Operations(NamedTuple):
    """Multiplications and additions."""

    mult: int
    add: int

    def __str__(self) -> str:
        return f"{self.mult:,} mult, {self.add:,} add"


@dataclass(frozen=True, repr=False)
class Textbook(Drawn):
    """The count, row by row.

    Attributes:
        layout: the batch.
        columns: how many output columns are counted.
    """

    layout: Layout
    columns: int = 1

    @property
    def rows(self) -> tuple[Operations, ...]:
        """What each sequence takes without its padding, in the caller's order."""
        return tuple(Operations(self.columns * n, self.columns * (n - 1)) for n in self.layout.lengths.tolist())

    @property
    def padded(self) -> Operations:
        """What the padded batch takes."""
        n, t = self.columns * self.layout.batch_size, self.layout.max_len
        return Operations(n * t, n * (t - 1))

    @property
    def packed(self) -> Operations:
        """What the real entries take."""
        return Operations(*map(sum, zip(*self.rows, strict=True)))

    @property
    def saved(self) -> Operations:
        """The difference."""
        return Operations(self.padded.mult - self.packed.mult, self.padded.add - self.packed.add)

    def to_text(self) -> str:
        """The rows and their sums."""
        lines = [self._title()]
        lines += [f"  {sequence_name(b):>2}  {row.mult}-mult {row.add}-add" for b, row in enumerate(self.rows)]
        return "\n".join([*lines, *self._sums()])

    def to_svg(self, theme: str = "light") -> str:
        """Each row's entries, padding hatched, with what they take beside them."""
        colours, layout = palette.THEMES[theme], self.layout
        each = min(26.0, 460 / layout.max_len)
        left, top = 60.0, 48.0
        hatch = (
            f"packviz-{zlib.crc32(repr((layout.lengths.tolist(), layout.max_len, self.columns, theme)).encode()):08x}"
        )
        body = [
            svg.hatch(hatch, colours),
            f'<text x="4" y="16" font-weight="bold">{svg.escape(self._title())}</text>',
        ]
        wide = each * layout.max_len
        for b, row in enumerate(self.rows):
            y, n = top + 26 * b, int(layout.lengths[b])
            cells = "".join(f"M{left + each * t:g} {y:g}h{each:g}v22h-{each:g}z" for t in range(n))
            rest = each * (layout.max_len - n)
            body.append(f'<path d="{cells}" fill="{palette.sequence_colour(b)}" stroke="{colours.line}"/>')
            if rest:
                box = f"M{left + each * n:g} {y:g}h{rest:g}v22h-{rest:g}z"
                body.append(f'<path d="{box}" fill="url(#{hatch})" stroke="{colours.line}"/>')
            body.append(f'<text x="{left - 12:g}" y="{y + 16:g}" text-anchor="end">{sequence_name(b)}</text>')
            body.append(f'<text x="{left + wide + 16:g}" y="{y + 16:g}">{row.mult}-mult {row.add}-add</text>')
        y = top + 26 * layout.batch_size + 16
        for i, line in enumerate(self._sums()):
            body.append(f'<text x="{left:g}" y="{y + 18 * i:g}">{svg.escape(line)}</text>')
        width = max(left + wide + 190, 20 + 7.5 * len(self._title()), left + 20 + 7.5 * max(map(len, self._sums())))
        return svg.element("".join(body), width, y + 18 * len(self._sums()), self.to_text(), theme)

    def _title(self) -> str:
        shape = f"({self.layout.batch_size}, {self.layout.max_len})"
        return f"{shape} batch times a weight: {text.count(self.columns, 'output column')}"

    def _sums(self) -> list[str]:
        return [f"{name}: {getattr(self, name)}" for name in ("padded", "packed", "saved")]


def count(lengths: Any, columns: int = 1) -> Textbook:
    """Counts multiplications and additions of a padded batch times a weight, and of its real entries alone.

    Args:
        lengths: `(B,)` the real entries of each sequence, or a `Layout`.
        columns: output columns to count; 1 gives the well-known figures.

    Raises:
        ValueError: the lengths are not valid, or `columns` is under 1.
    """
    if isinstance(columns, bool) or not isinstance(columns, int) or columns < 1:
        raise ValueError(f"columns is {columns!r}; give a whole number of at least 1")
    return Textbook(lengths if isinstance(lengths, Layout) else Layout(lengths), columns)
