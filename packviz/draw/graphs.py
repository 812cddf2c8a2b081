"""An autograd graph, drawn and as text: what every node does in the backward pass, and how much it writes.

Pure. Drawn is what the chain of copies behind `pad_packed_sequence` needs: the nodes that the gradient passes one after
the other stand side by side, what branches off from each stands below it, and where gradients end is at the foot.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from textwrap import wrap
from typing import cast

from packviz.draw import palette, text
from packviz.draw.drawing import Drawing
from packviz.draw.sheet import CHAR, HATCHED, Sheet, n

DOES = {
    "CopySlices": "copies the whole gradient, then takes one slice out of it",
    "SliceBackward": "fills a whole packed tensor with zeros, then puts its slice in",
    "ViewBackward": "gives it another shape",
    "TransposeBackward": "swaps two axes",
    "IndexSelectBackward": "puts the sequences back in order",
    "PackPaddedSequenceBackward": "fills the padded gradient with zeros, then copies time step after time step",
}
"""What these nodes do, in words; for others, only the name of their operators is known."""

MOST = 7
"""More columns than this are not drawn one by one."""

_WIDTH, _LEFT, _GAP, _LINE, _CHAR = 900.0, 4.0, 22.0, 15.0, 6.7  # px; a character of the 11 px monospace face
_BAR = palette.REAL


@dataclass(frozen=True)
class Node:
    """One autograd node.

    Attributes:
        name: as autograd calls it.
        operators: name and bytes written of everything that it did.
        next: where in the graph the nodes are that it hands gradients to; none where nobody needs one.
        useful: the bytes of the slice that it is there for; none where it is not known.
    """

    name: str
    operators: tuple[tuple[str, int], ...]
    next: tuple[int | None, ...]
    useful: int | None = None

    @property
    def bytes(self) -> int:
        """How much it wrote."""
        return sum(written for _, written in self.operators)

    @property
    def leads_on(self) -> bool:
        """Whether this node passes a gradient on to another."""
        return any(n is not None for n in self.next)

    def written(self) -> list[str]:
        """Returns its operators and the bytes they wrote: a few one by one, more of them added up by name."""
        if len(self.operators) <= 4:
            return [f"{name} {text.size(written)}" for name, written in self.operators]
        return [
            f"{times} × {name}, {written}" if times > 1 else f"{name} {written}"
            for name, times, written in _by_name(self.operators)
        ]


@dataclass(frozen=True, repr=False)
class Graph(Drawing):
    """The nodes that a backward pass goes through.

    Attributes:
        title: what it is the graph of.
        nodes: first the one that the gradient comes in at.
        gradient: the bytes of that gradient.
    """

    title: str
    nodes: tuple[Node, ...]
    gradient: int

    @property
    def bytes(self) -> int:
        """How much all nodes wrote."""
        return sum(node.bytes for node in self.nodes)

    @property
    def headline(self) -> str:
        """The counts in one line."""
        times = f"{self.bytes / max(self.gradient, 1):.3g} times the gradient that comes in"
        return f"{self.title}: {text.count(len(self.nodes), 'node')}, {text.size(self.bytes)} written, {times}"

    def to_text(self) -> str:
        """Every node of a small graph; of a large one how many there are of each name."""
        if len(self.nodes) > 3 * MOST:
            named = _by_name((node.name, node.bytes) for node in self.nodes)
            rows = [[f"{times}", name, written, DOES.get(name, "")] for name, times, written in named]
            return "\n".join([self.headline, *text.table(rows, "  >5 × <20>8  <")])
        rows = []
        for i, node in enumerate(self.nodes):
            after = ", ".join(str(n) for n in node.next if n is not None)
            after = f"→ {after}" if after else ""
            rows.append([f"{i}", node.name, text.size(node.bytes), after, self.does(i)])
            if node.operators:
                rows.append(["", "", "", "", ", ".join(node.written())])
        lines = text.table(rows, "  >2 <20>8  <8 <")
        return "\n".join([f"{self.headline} ({text.size(self.gradient)})", *lines])

    def sheet(self, theme: str) -> Sheet:
        """Boxes and arrows."""
        return _Picture(self, theme).draw()

    def does(self, i: int) -> str:
        """What a node does, in words."""
        node = self.nodes[i]
        if node.leads_on:
            return DOES.get(node.name, "")
        arriving = sum(i in other.next for other in self.nodes)
        return "takes the gradient of the input" if arriving < 2 else f"adds up {arriving} gradients of the input"

    @cached_property
    def columns(self) -> list[list[int]]:
        """The nodes side by side: each that the gradient passes on its way, and under it what branches off.

        Nodes that hand nothing on are in no column.
        """
        seen = {i for i, node in enumerate(self.nodes) if not node.leads_on}
        columns, here = [], cast(int | None, 0)
        while here is not None and here not in seen:
            column, below = [here], [n for n in self.nodes[here].next[1:] if n is not None]
            seen.add(here)
            while below:
                if (i := below.pop(0)) not in seen:
                    seen.add(i)
                    column.append(i)
                    below += [n for n in self.nodes[i].next if n is not None]
            columns.append(column)
            here = self.nodes[here].next[0]
        return columns


def _by_name(written: Iterable[tuple[str, int]]) -> Iterator[tuple[str, int, str]]:
    """Each name, how many times it comes, and the bytes it wrote in all."""
    sizes: dict[str, list[int]] = {}
    for name, size in written:
        sizes.setdefault(name, []).append(size)
    return ((name, len(each), text.size(sum(each))) for name, each in sizes.items())


class _Picture:
    """One drawing in the making."""

    def __init__(self, graph: Graph, theme: str) -> None:
        self.graph, self.sheet = graph, Sheet(theme, graph.to_text())
        columns = graph.columns
        # Of many columns the first ones, and the last two.
        self.left_out = columns[MOST - 3 : -2] if len(columns) > MOST else []
        self.columns: list[list[int]] = [*columns[: MOST - 3], [], *columns[-2:]] if self.left_out else columns
        shown = [i for column in columns for i in column]
        self.ends = [i for i in range(len(graph.nodes)) if i not in shown]
        self.width = min((_WIDTH - 2 * _LEFT + _GAP) / max(len(self.columns), 1) - _GAP, 330.0)
        self.largest = max((graph.nodes[i].bytes for i in shown), default=0) or 1

    def draw(self) -> Sheet:
        sheet, muted = self.sheet, self.sheet.colours.muted
        lines = wrap(self.graph.headline, 112)
        for i, line in enumerate(lines):
            sheet.text(4, 17 + 17 * i, line, bold=True)
        y = 34.0 + 17 * len(lines)
        sheet.text(4, y + 2, f"the gradient comes in: {text.size(self.graph.gradient)}", ink=muted)
        if any(node.useful is not None for node in self.graph.nodes):
            sheet.key(360, y - 8, [(_BAR, "the slice it is about"), (HATCHED, "written for nothing")])
            sheet.layer()
        y += 10
        depth = max(map(len, self.columns), default=0)
        bottoms = [y] * len(self.columns)
        for row in range(depth):
            boxes = [(c, column[row]) for c, column in enumerate(self.columns) if row < len(column)]
            height = max(self._height(i) for _, i in boxes)
            for c, i in boxes:
                x = self._x(c)
                if row:
                    self._arrow(x + self.width / 2, bottoms[c], x + self.width / 2, y)
                self._box(i, x, y, self.width, height)
                bottoms[c] = y + height
            if row == 0:
                for c in range(len(self.columns) - 1):
                    self._arrow(self._x(c) + self.width, y + height / 2, self._x(c + 1), y + height / 2)
                if self.left_out:
                    middle = self._x(self.columns.index([])) + self.width / 2
                    sheet.text(middle, y + height / 2 + 4, f"… {len(self.left_out)} more …", anchor="middle")
            y += height + _GAP
        y += 6
        for i in self.ends:
            x, wide = self._x(0), self._x(len(self.columns) - 1) + self.width - self._x(0)
            for c, column in enumerate(self.columns):
                if column and i in self.graph.nodes[column[-1]].next:
                    self._arrow(self._x(c) + self.width / 2, bottoms[c], self._x(c) + self.width / 2, y)
            height = self._height(i, wide)
            self._box(i, x, y, wide, height)
            y += height + 10
        sheet.size(_WIDTH, y + 4)
        return sheet

    def _x(self, column: int) -> float:
        return _LEFT + column * (self.width + _GAP)

    def _lines(self, i: int, width: float) -> list[str]:
        node, chars = self.graph.nodes[i], int((width - 14) / _CHAR)
        if width <= 160:
            return []
        written = []
        for one in node.written():
            what, unit = one.rsplit(" ", 1)  # a number and its unit stay in a line
            written += wrap(f"· {what}\u00a0{unit}", chars, subsequent_indent="  ")
        return [*wrap(self.graph.does(i), chars), *(line.replace("\u00a0", " ") for line in written)]

    def _height(self, i: int, width: float = 0) -> float:
        return 44 + _LINE * len(self._lines(i, width or self.width)) + 6

    def _box(self, i: int, x: float, y: float, width: float, height: float) -> None:
        node, sheet = self.graph.nodes[i], self.sheet
        sheet.box(x, y, width, height, sheet.colours.padding, thick=1)
        chars = int((width - 12) / CHAR)
        sheet.text(x + 6, y + 16, node.name if len(node.name) <= chars else node.name[: chars - 1] + "…", bold=True)
        for k, line in enumerate(self._lines(i, width)):
            sheet.text(x + 6, y + 32 + _LINE * k, line, size=11)
        # A bar as long as what the node writes; of all columns the largest fills its box. Hatched: for nothing.
        foot = y + height - 18
        if node.bytes:
            length = min(max((self.width - 82) * node.bytes / self.largest, 1), width - 82)
            solid = length if node.useful is None else length * node.useful / node.bytes
            sheet.box(x + 6, foot + 1, solid, 10, _BAR)
            if solid < length:
                sheet.box(x + 6 + solid, foot + 1, length - solid, 10, HATCHED)
        sheet.text(x + width - 6, foot + 10, text.size(node.bytes), anchor="end")

    def _arrow(self, x0: float, y0: float, x1: float, y1: float) -> None:
        self.sheet.line([(x0, y0), (x1, y1)], width=1.4)
        head = "l-6-3.5v7z" if y0 == y1 else "l-3.5-6h7z"
        self.sheet.path(f"M{n(x1)} {n(y1)}{head}", fill=self.sheet.colours.line)
