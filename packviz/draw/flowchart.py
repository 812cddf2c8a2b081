"""The data flow of a network as boxes and arrows, top down: as SVG and as text. Pure: names in, strings out."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from packviz.draw.drawn import Drawn
from packviz.draw.layouts import CHAR, element, escape, stack
from packviz.draw.palette import THEMES, Theme

KINDS = ("input", "operator", "pack", "rnn", "pad", "output")
_HEIGHT, _BETWEEN, _GAP = 38.0, 32.0, 28.0  # px: of a box; between two layers of boxes; between two boxes of a layer
_KEY = "thick: a PackedSequence · thin: a tensor"


@dataclass(frozen=True)
class Box:
    """One call of the network, or an end of it.

    Attributes:
        name: what is called, as `LSTM`.
        kind: one of `KINDS`.
        detail: where it stands, and what it is called there. May be empty.
    """

    name: str
    kind: str = "operator"
    detail: str = ""

    def __str__(self) -> str:
        bare = not self.detail or self.detail.startswith("(")
        return f"{self.name} {self.detail}".rstrip() if bare else f"{self.name} ({self.detail})"


@dataclass(frozen=True)
class Arrow:
    """What one box hands to another.

    Attributes:
        source: index of the box that it comes from.
        target: index of the box that takes it; a later one.
        packed: whether a PackedSequence is handed over, or a tensor of one.
        wrong: why that is not allowed: the operator that takes it. Empty if it is.
    """

    source: int
    target: int
    packed: bool = False
    wrong: str = ""


@dataclass(frozen=True, repr=False)
class Flow(Drawn):
    """The data flow of a network.

    Attributes:
        title: what is drawn.
        boxes: in the order in which they were run.
        arrows: between them.
    """

    title: str
    boxes: Sequence[Box]
    arrows: Sequence[Arrow]

    def to_text(self) -> str:
        """A line per box, with the boxes that it takes something from."""
        lines = [f"{self.title} (⇐ takes a PackedSequence, ← a tensor)"]
        for i, box in enumerate(self.boxes):
            taken = []
            for arrow in (a for a in self.arrows if a.target == i):
                wrong = f" ✗ {arrow.wrong}" if arrow.wrong else ""
                taken.append(f"{'⇐' if arrow.packed else '←'} {self.boxes[arrow.source].name}{wrong}")
            said = f"{box} {', '.join(taken)}" if taken else f"{box}, an input" if box.kind == "input" else str(box)
            lines.append(f"  {said}")
        return "\n".join(lines)

    def to_svg(self, theme: str = "light") -> str:
        """Boxes in layers, top down; thick arrows carry a PackedSequence, the forbidden ones are dashed and marked."""
        colours, placed = THEMES[theme], _place(self)
        body = [_arrow(self, arrow, placed, colours) for arrow in self.arrows]
        body += [_box(self, i, placed.boxes[i], colours) for i in range(len(self.boxes))]
        body += [_mark(self, arrow, placed, colours) for arrow in self.arrows if arrow.wrong]
        key = f"{_KEY} · dashed, ✗: not allowed" if any(a.wrong for a in self.arrows) else _KEY
        width = max(placed.width, 16 + CHAR * len(key))
        body.append(f'<text x="8" y="{placed.height + 12:g}" font-size="11" fill="{colours.muted}">{key}</text>')
        drawing = element("".join(body), width, placed.height + 20, self.to_text(), theme)
        return stack(self.title, [drawing], theme)


def beside(flows: Sequence[Flow], theme: str) -> str:
    """Several data flows side by side."""
    x, height, body = 0.0, 0.0, []
    for flow in flows:
        drawing = flow.to_svg(theme)
        width, tall = map(float, re.findall(r'(?:width|height)="([\d.]+)"', drawing)[:2])
        body.append(drawing.replace("<svg ", f'<svg x="{_n(x)}" ', 1))
        x, height = x + width + 24, max(height, tall)
    return element("".join(body), x, height, "\n\n".join(flow.to_text() for flow in flows), theme)


class _Spot(NamedTuple):
    """Where a box is: its middle, its top and its width."""

    x: float
    y: float
    width: float


class _Placed(NamedTuple):
    """Where everything is. An arrow that passes layers bends in each; at `ports` arrows leave and arrive."""

    boxes: list[_Spot]
    bends: dict[Arrow, list[_Spot]]
    ports: dict[tuple[Arrow, str], float]
    width: float
    height: float


def _place(flow: Flow) -> _Placed:
    layers = _layers(flow)
    # A row holds boxes (their index) and the bends of arrows that pass by (the arrow).
    rows: list[list[int | Arrow]] = [[] for _ in range(max(layers, default=0) + 1)]
    for i, layer in enumerate(layers):
        rows[layer].append(i)
    above: dict[int | Arrow, list[int | Arrow]] = defaultdict(list)
    for arrow in flow.arrows:
        first, last = layers[arrow.source], layers[arrow.target]
        for layer in range(first + 1, last):
            rows[layer].append(arrow)
        above[arrow].append(arrow.source)
        above[arrow.target].append(arrow if last > first + 1 else arrow.source)
    middle: dict[int | Arrow, float] = {}
    places: dict[tuple[int | Arrow, int], _Spot] = {}
    for layer, row in enumerate(rows):
        wanted = {}
        for k, one in enumerate(row):
            over = [middle[a] for a in above[one] if a in middle]
            wanted[one] = sum(over) / len(over) if over else (middle.get(one, 200.0 * k))
        row.sort(key=lambda one: wanted[one])
        edge, xs = -1e9, []
        for one in row:
            half = _slot(flow, one) / 2
            xs.append(max(wanted[one], edge + half))
            edge = xs[-1] + half + _GAP
        shift = sum(wanted[one] - x for one, x in zip(row, xs, strict=True)) / max(len(row), 1)
        for one, x in zip(row, xs, strict=True):
            middle[one] = x + shift
            places[one, layer] = _Spot(x + shift, layer * (_HEIGHT + _BETWEEN) + 6, _width(flow, one))
    left = min((spot.x - _slot(flow, one) / 2 for (one, _), spot in places.items()), default=0.0) - 8
    places = {key: spot._replace(x=spot.x - left) for key, spot in places.items()}
    right = max((spot.x + _slot(flow, one) / 2 for (one, _), spot in places.items()), default=0.0) + 8
    boxes = [places[i, layer] for i, layer in enumerate(layers)]
    bends = {a: [places[a, k] for k in range(layers[a.source] + 1, layers[a.target])] for a in flow.arrows}
    height = len(rows) * (_HEIGHT + _BETWEEN) - _BETWEEN + 14
    return _Placed(boxes, bends, _ports(flow, boxes, bends), right, height)


def _layers(flow: Flow) -> list[int]:
    """The layer of each box: below all that it takes from; an input right above what takes it."""
    layers = [0] * len(flow.boxes)
    for arrow in sorted(flow.arrows, key=lambda a: a.target):
        layers[arrow.target] = max(layers[arrow.target], layers[arrow.source] + 1)
    for i, box in enumerate(flow.boxes):
        targets = [layers[a.target] for a in flow.arrows if a.source == i]
        if box.kind == "input" and targets:
            layers[i] = min(targets) - 1
        if box.kind == "output":
            layers[i] = max(layers[i], *(layer + 1 for k, layer in enumerate(layers) if k != i), 0)
    return layers


def _ports(flow: Flow, boxes: list[_Spot], bends: dict[Arrow, list[_Spot]]) -> dict[tuple[Arrow, str], float]:
    """Where arrows leave and arrive, spread over the side of the box in the order of where they come from or go to."""
    ports = {}
    for i, box in enumerate(boxes):
        for end, mine, other in (("source", "source", "target"), ("target", "target", "source")):
            arrows = [a for a in flow.arrows if getattr(a, mine) == i]
            nearest = 0 if end == "source" else -1
            arrows.sort(key=lambda a: (bends[a][nearest] if bends[a] else boxes[getattr(a, other)]).x)
            for k, arrow in enumerate(arrows):
                ports[arrow, end] = box.x + (k - (len(arrows) - 1) / 2) * min(24.0, box.width / (len(arrows) + 1))
    return ports


def _arrow(flow: Flow, arrow: Arrow, placed: _Placed, colours: Theme) -> str:
    source, target = placed.boxes[arrow.source], placed.boxes[arrow.target]
    start, end = (placed.ports[arrow, "source"], source.y + _HEIGHT), (placed.ports[arrow, "target"], target.y - 7)
    points = [start]
    for bend in placed.bends[arrow]:
        points += [(bend.x, bend.y), (bend.x, bend.y + _HEIGHT)]
    points.append(end)
    path = f"M{_n(points[0][0])} {_n(points[0][1])}"
    for (x, y), (to_x, to_y) in pairwise(points):
        half = (to_y - y) / 2
        path += f"C{_n(x)} {_n(y + half)} {_n(to_x)} {_n(to_y - half)} {_n(to_x)} {_n(to_y)}"
    colour = colours.wrong if arrow.wrong else colours.line
    look = f'stroke="{colour}" stroke-width="{3.5 if arrow.packed else 1.2}"'
    look += ' stroke-dasharray="7 4"' if arrow.wrong else ""
    x, y = end
    return f'<path d="{path}" fill="none" {look}/><path d="M{_n(x - 5)} {_n(y)}h10l-5 7z" fill="{colour}"/>'


def _mark(flow: Flow, arrow: Arrow, placed: _Placed, colours: Theme) -> str:
    """What is wrong with an arrow, beside its head, on the side that it does not come from."""
    x, y = placed.ports[arrow, "target"], placed.boxes[arrow.target].y - 12
    from_right = (placed.bends[arrow] or [placed.boxes[arrow.source]])[-1].x > x + 1
    side = f'x="{_n(x - 10)}" text-anchor="end"' if from_right else f'x="{_n(x + 10)}"'
    halo = f'stroke="{colours.ground}" stroke-width="4" paint-order="stroke"'
    said = f'font-weight="bold" fill="{colours.wrong}" {halo}>{escape(f"✗ {arrow.wrong}")}'
    return f'<text {side} y="{_n(y)}" {said}</text>'


def _box(flow: Flow, i: int, spot: _Spot, colours: Theme) -> str:
    box, x, y = flow.boxes[i], spot.x - spot.width / 2, spot.y
    end = box.kind in ("input", "output")
    stroke, thick = (colours.wrong, 3) if any(a.wrong for a in flow.arrows if a.target == i) else (colours.line, 1)
    fill = colours.ground if end else colours.padding
    corners = f'rx="{_HEIGHT / 2 if end else 4:g}"'
    drawn = (
        f'<rect x="{_n(x)}" y="{_n(y)}" width="{_n(spot.width)}" height="{_HEIGHT:g}" {corners}'
        f' fill="{fill}" stroke="{stroke}" stroke-width="{thick}"/>'
    )
    centre = f'x="{_n(spot.x)}" text-anchor="middle"'
    drawn += f'<text {centre} y="{_n(y + (17 if box.detail else 24))}" font-weight="bold">{escape(box.name)}</text>'
    if box.detail:
        drawn += f'<text {centre} y="{_n(y + 32)}" font-size="11" fill="{colours.muted}">{escape(box.detail)}</text>'
    return drawn


def _slot(flow: Flow, one: int | Arrow) -> float:
    """What a box or a passing arrow takes of its layer: beside an arrow that is wrong, its mark needs room."""
    marks = [20 + CHAR * (2 + len(a.wrong)) for a in flow.arrows if a.wrong and a.target == one]
    return max([_width(flow, one), *(2 * mark for mark in marks)])


def _width(flow: Flow, one: int | Arrow) -> float:
    """How wide it is drawn."""
    if isinstance(one, Arrow):
        return 10.0
    box = flow.boxes[one]
    return max(70.0, 20 + CHAR * max(len(box.name), len(box.detail)))


def _n(value: float) -> str:
    return f"{round(value, 1):g}"
