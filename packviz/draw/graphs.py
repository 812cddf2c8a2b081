"""Draws autograd graphs, and describes them as text: what each node does in the backward pass, and
how much it writes.

The picture is designed for the chain of copies in the backward pass of `pad_packed_sequence`. The
nodes that the gradient passes through one after another are on the left. The branches of each node
are below it, indented. The nodes where gradients end are at the bottom.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from textwrap import wrap
from typing import cast

from packviz.draw import palette, text
from packviz.draw.cellgrid import clip
from packviz.draw.drawing import Drawing
from packviz.draw.sheet import HATCHED, Sheet, n

DOES = {
    "CopySlices": "copies the whole gradient, then takes one slice out of it",
    "SliceBackward": "fills a whole packed tensor with zeros, then puts its slice in",
    "ViewBackward": "changes the gradient's shape",
    "TransposeBackward": "swaps two axes",
    "IndexSelectBackward": "puts the sequences back in order",
    "PackPaddedSequenceBackward": "fills a padded tensor with zeros, then copies step by step",
}
"""The descriptions of nodes, by name. For nodes with other names, only the operators that they run are known."""

MOST = 7
"""If there are more columns than this, some are left out of the picture."""

# px: the right edge of the boxes, the indent of branches, the height of a box, from box to box, the
# longest bar
_WIDTH, _INDENT, _TALL, _PITCH, _LONGEST = 890.0, 34.0, 24.0, 36.0, 150.0
_BAR = palette.REAL


@dataclass(frozen=True)
class Node:
    """A node of an autograd graph.

    Attributes:
        name: the name that autograd gives to the node.
        operators: the operators that the node ran, each as `(name, bytes written)`.
        next: the indices of the nodes to which this node passes gradients, with `None` for each
            gradient that is not needed.
        useful: the size, in bytes, of the slice that the node takes out or puts in; `None` if it is
            not known.
    """

    name: str
    operators: tuple[tuple[str, int], ...]
    next: tuple[int | None, ...]
    useful: int | None = None

    @property
    def bytes(self) -> int:
        """The number of bytes that the node wrote."""
        return sum(written for _, written in self.operators)

    @property
    def leads_on(self) -> bool:
        """True if this node passes a gradient to another node."""
        return any(n is not None for n in self.next)


@dataclass(frozen=True, repr=False)
class Graph(Drawing):
    """The nodes that a backward pass goes through.

    Attributes:
        title: the title above the graph.
        nodes: the nodes, beginning with the one that receives the gradient of the output.
        gradient: the size of the gradient of the output in bytes.
    """

    title: str
    nodes: tuple[Node, ...]
    gradient: int

    @property
    def bytes(self) -> int:
        """The number of bytes that all nodes wrote."""
        return sum(node.bytes for node in self.nodes)

    @property
    def headline(self) -> str:
        """A line with the title, the number of nodes and the number of bytes that they wrote."""
        nodes, times = (
            text.count(len(self.nodes), "node"),
            f"{self.bytes / max(self.gradient, 1):.3g}",
        )
        return f"{self.title} writes {text.size(self.bytes)} in {nodes}, {times} times the incoming gradient"

    def to_text(self) -> str:
        """Returns a line for each node or, if the graph is large, a line for each kind of node."""
        if len(self.nodes) > 3 * MOST:
            named = _by_name((node.name, node.bytes) for node in self.nodes)
            rows = [
                [f"{times}", name, written, DOES.get(name, "")] for name, written, times in named
            ]
            return "\n".join([self.headline, *text.table(rows, "  >5 × <20>8  <")])
        rows = []
        for i, node in enumerate(self.nodes):
            after = ", ".join(str(n) for n in node.next if n is not None)
            after = f"→ {after}" if after else ""
            rows.append([f"{i}", node.name, text.size(node.bytes), after, self.does(i)])
            if node.operators:
                written = [
                    (f"{many} × " if many > 1 else "", *each)
                    for *each, many in _by_name(node.operators)
                ]
                rows.append(
                    [
                        "",
                        "",
                        "",
                        "",
                        ", ".join(f"{times}{name} {size}" for times, name, size in written),
                    ]
                )
        lines = text.table(rows, "  >2 <20>8  <8 <")
        return "\n".join([f"{self.headline} ({text.size(self.gradient)})", *lines])

    def sheet(self, theme: str) -> Sheet:
        """Draws a box for each node, with branches indented. In a long graph, columns in the middle are left out."""
        sheet, shown = Sheet(theme, self.to_text()), self.columns
        ends = [i for i in range(len(self.nodes)) if all(i not in column for column in shown)]
        left_out = len(shown) - MOST + 1
        if left_out > 1:
            shown = [*shown[: MOST - 3], [], *shown[-2:]]
        rows = [(i, k > 0) for column in shown for k, i in enumerate(column or [None])] + [
            (i, False) for i in ends
        ]
        largest = max((self.nodes[i].bytes for i, _ in rows if i is not None), default=0) or 1
        lines = wrap(self.headline, 112)
        for k, line in enumerate(lines):
            sheet.text(4, 16 + 18 * k, line, bold=True)
        top = 26.0 + 18 * len(lines)
        sheet.text(
            4,
            top - 10,
            f"the incoming gradient: {text.size(self.gradient)}",
            ink=sheet.colours.muted,
        )
        if any(node.useful is not None for node in self.nodes):
            sheet.key(360, top - 20, [(_BAR, "the needed slice"), (HATCHED, "written for nothing")])
            sheet.layer()
        chain, into = (
            0.0,
            [],
        )  # the foot of the last box in the chain, and the y of each arrow to the ends
        for k, (i, branch) in enumerate(rows):
            y = top + k * _PITCH
            if i is None:
                sheet.text(_INDENT, y + 14, f"… {left_out} more …")
                continue
            if branch:
                _down(sheet, _INDENT + 14, y + _TALL - _PITCH, y)
            elif i not in ends:
                _down(sheet, 14, chain or y, y)
                chain = y + _TALL
            if i not in ends and any(end in self.nodes[i].next for end in ends):
                into.append(y + _TALL / 2)
            self._box(sheet, i, _INDENT if branch else 4.0, y, largest)
        foot = top + len(rows) * _PITCH
        if into:
            x, y = _WIDTH + 14, foot - _PITCH * len(ends) + _TALL / 2
            d = (
                "".join(f"M{n(_WIDTH)} {n(out)}H{n(x)}" for out in into)
                + f"M{n(x)} {n(into[0])}V{n(y)}H{n(_WIDTH + 6)}"
            )
            sheet.path(d, stroke=sheet.colours.line, width=1.4)
            sheet.path(f"M{n(_WIDTH)} {n(y)}l6-3.5v7z", fill=sheet.colours.line)
        sheet.size(_WIDTH + 24, foot)
        return sheet

    def _box(self, sheet: Sheet, i: int, x: float, y: float, largest: int) -> None:
        """Draws a node: its name, what it does, and a bar for the bytes it writes, with wasted bytes hatched."""
        node, bar = self.nodes[i], _WIDTH - 70 - _LONGEST
        sheet.box(x, y, _WIDTH - x, _TALL, sheet.colours.padding, thick=1)
        sheet.text(x + 8, y + 16, clip(node.name, _INDENT + 180 - x), bold=True)
        sheet.text(_INDENT + 196, y + 16, self.does(i), size=11)
        if node.bytes:
            length = max(_LONGEST * node.bytes / largest, 1)
            solid = length if node.useful is None else length * node.useful / node.bytes
            sheet.box(bar, y + 7, solid, 10, _BAR)
            if solid < length:
                sheet.box(bar + solid, y + 7, length - solid, 10, HATCHED)
        sheet.text(_WIDTH - 8, y + 16, text.size(node.bytes), anchor="end")

    def does(self, i: int) -> str:
        """Returns a description of what a node does, or an empty string if none is known."""
        node = self.nodes[i]
        if node.leads_on:
            return DOES.get(node.name, "")
        arriving = sum(i in other.next for other in self.nodes)
        return (
            "takes the gradient of the input"
            if arriving < 2
            else f"adds up {arriving} gradients of the input"
        )

    @cached_property
    def columns(self) -> list[list[int]]:
        """The columns of the graph, as lists of node indices. A column contains a node of the
        chain, then its branches.

        The chain consists of the nodes that the gradient passes through one after another. Nodes
        that pass no gradient on are not in any column.
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


def _by_name(written: Iterable[tuple[str, int]]) -> Iterator[tuple[str, str, int]]:
    """Yields each name with the total number of bytes written under it, as text, and the number of times it occurs."""
    sizes: dict[str, list[int]] = {}
    for name, size in written:
        sizes.setdefault(name, []).append(size)
    return ((name, text.size(sum(each)), len(each)) for name, each in sizes.items())


def _down(sheet: Sheet, x: float, start: float, end: float) -> None:
    """Draws an arrow that points down."""
    sheet.line([(x, start), (x, end)], width=1.4)
    sheet.path(f"M{n(x)} {n(end)}l-3.5-6h7z", fill=sheet.colours.line)
