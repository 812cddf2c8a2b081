"""The data flow of a network as boxes and arrows, top down: drawn and as text. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from packviz.draw.drawing import Drawing
from packviz.draw.sheet import Sheet, n, stack, width_of

KINDS = ("input", "operator", "pack", "rnn", "pad", "output")
_HEIGHT, _BETWEEN, _GAP = 38.0, 46.0, 28.0  # px: of a box; between two layers of boxes; between two boxes of a layer
_PORT = 24.0  # px: between two arrows at one side of a box, where it is wide enough
_STEM = 14  # px that an arrow goes straight down beside its size
_KEY = ("thick: a PackedSequence, as many rows as the lengths add up to", "thin: a tensor")
_NOT_ALLOWED = " · dashed, ✗: not allowed"


@dataclass(frozen=True)
class Box:
    """One call of the network, or an end of it.

    Attributes:
        name: what is called, as `LSTM`.
        kind: one of `KINDS`.
        detail: where it stands, and what it is called there. May be empty.
        mark: what warns of it, as `!`. May be empty.
    """

    name: str
    kind: str = "operator"
    detail: str = ""
    mark: str = ""

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
        size: the shape of what is handed over, as `(8, 7)`. May be empty.
    """

    source: int
    target: int
    packed: bool = False
    wrong: str = ""
    size: str = ""


@dataclass(frozen=True, repr=False)
class Flow(Drawing):
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
                wrong, size = (f" ✗ {arrow.wrong}" if arrow.wrong else ""), (f" {arrow.size}" if arrow.size else "")
                taken.append(f"{'⇐' if arrow.packed else '←'} {self.boxes[arrow.source].name}{size}{wrong}")
            label = f"{box} {', '.join(taken)}" if taken else f"{box}, an input" if box.kind == "input" else str(box)
            lines.append(f"{box.mark or ' '} {label}")
        return "\n".join(lines)

    def sheet(self, theme: str) -> Sheet:
        """Boxes in layers, top down, sizes at the arrows.

        Thick arrows carry a PackedSequence; the forbidden ones are dashed and marked.
        """
        sheet, placed = Sheet(theme, self.to_text()), _place(self)
        for arrow in self.arrows:
            _arrow(sheet, arrow, placed)
        for i in range(len(self.boxes)):
            _box(sheet, self, i, placed.boxes[i])
        for arrow in self.arrows:
            if arrow.wrong:
                _mark(sheet, arrow, placed)
            if arrow.size:
                _size(sheet, self, arrow, placed)
        thick, thin = _KEY
        key = thick, thin + (_NOT_ALLOWED if any(a.wrong for a in self.arrows) else "")
        for i, line in enumerate(key):
            sheet.text(8, placed.height + 12 + 15 * i, line, size=11, ink=sheet.colours.muted)
        sheet.size(max(placed.width, 16 + width_of(thick, 11)), placed.height + 35)
        return stack(self.title, [sheet], theme)


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
    for layer, here in enumerate(rows):
        ideal = {}
        for k, one in enumerate(here):
            over = [middle[a] for a in above[one] if a in middle]
            ideal[one] = sum(over) / len(over) if over else (middle.get(one, 200.0 * k))
        here.sort(key=lambda one: ideal[one])
        edge, xs = -1e9, []
        for one in here:
            half = _slot(flow, one) / 2
            xs.append(max(ideal[one], edge + half))
            edge = xs[-1] + half + _GAP
        shift = sum(ideal[one] - x for one, x in zip(here, xs, strict=True)) / max(len(here), 1)
        for one, x in zip(here, xs, strict=True):
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
        for end, other, nearest in (("source", "target", 0), ("target", "source", -1)):
            arrows = [a for a in flow.arrows if getattr(a, end) == i]
            arrows.sort(key=lambda a: (bends[a][nearest] if bends[a] else boxes[getattr(a, other)]).x)
            for k, arrow in enumerate(arrows):
                ports[arrow, end] = box.x + (k - (len(arrows) - 1) / 2) * min(_PORT, box.width / (len(arrows) + 1))
    return ports


def _arrow(sheet: Sheet, arrow: Arrow, placed: _Placed) -> None:
    source, target = placed.boxes[arrow.source], placed.boxes[arrow.target]
    start, end = (placed.ports[arrow, "source"], source.y + _HEIGHT), (placed.ports[arrow, "target"], target.y - 7)
    stem = _STEM if arrow.size else 0.0
    points = [(start[0], start[1] + stem)]
    for bend in placed.bends[arrow]:
        points += [(bend.x, bend.y), (bend.x, bend.y + _HEIGHT)]
    points.append(end)
    path = f"M{n(start[0])} {n(start[1])}v{stem}"
    for (x, y), (to_x, to_y) in pairwise(points):
        half = (to_y - y) / 2
        path += f"C{n(x)} {n(y + half)} {n(to_x)} {n(to_y - half)} {n(to_x)} {n(to_y)}"
    colour = sheet.colours.wrong if arrow.wrong else sheet.colours.line
    sheet.path(path, stroke=colour, width=3.5 if arrow.packed else 1.2, dash="7 4" if arrow.wrong else "")
    sheet.path(f"M{n(end[0] - 5)} {n(end[1])}h10l-5 7z", fill=colour)


def _mark(sheet: Sheet, arrow: Arrow, placed: _Placed) -> None:
    """What is wrong with an arrow, beside its head, on the side that it does not come from."""
    x, y = placed.ports[arrow, "target"], placed.boxes[arrow.target].y - 12
    from_right = (placed.bends[arrow] or [placed.boxes[arrow.source]])[-1].x > x + 1
    x, anchor = (x - 10, "end") if from_right else (x + 10, "")
    colours = sheet.colours
    sheet.text(x, y, f"✗ {arrow.wrong}", anchor=anchor, bold=True, ink=colours.wrong, halo=colours.ground)


def _size(sheet: Sheet, flow: Flow, arrow: Arrow, placed: _Placed) -> None:
    """The shape of what an arrow carries, where it leaves its box, on the side that it does not turn to.

    Of several arrows from one box, the first has it on its left, the others on their right.
    """
    x, y = placed.ports[arrow, "source"], placed.boxes[arrow.source].y + _HEIGHT + 11
    ports = [placed.ports[one, "source"] for one in flow.arrows if one.source == arrow.source]
    to = (placed.bends[arrow] or [placed.boxes[arrow.target]])[0].x
    left = x == min(ports) if len(ports) > 1 else to > x + 1
    colours = sheet.colours
    sheet.text(x - 10 if left else x + 10, y, arrow.size, anchor="end" if left else "", size=11, ink=colours.muted)


def _box(sheet: Sheet, flow: Flow, i: int, spot: _Spot) -> None:
    box, colours, end = flow.boxes[i], sheet.colours, flow.boxes[i].kind in ("input", "output")
    stroke, thick = (colours.wrong, 3) if any(a.wrong for a in flow.arrows if a.target == i) else (colours.line, 1)
    r = _HEIGHT / 2 if end else 4
    across, down, round_ = spot.width - 2 * r, _HEIGHT - 2 * r, f"a{n(r)} {n(r)} 0 0 1 "
    sheet.path(
        f"M{n(spot.x - across / 2)} {n(spot.y)}h{n(across)}{round_}{n(r)} {n(r)}v{n(down)}{round_}{n(-r)} {n(r)}"
        f"h{n(-across)}{round_}{n(-r)} {n(-r)}v{n(-down)}{round_}{n(r)} {n(-r)}z",
        fill=colours.ground if end else colours.padding,
        stroke=stroke,
        width=thick,
    )
    sheet.text(spot.x, spot.y + (17 if box.detail else 24), box.name, anchor="middle", bold=True)
    if box.detail:
        sheet.text(spot.x, spot.y + 32, box.detail, anchor="middle", size=11, ink=colours.muted)
    if box.mark:
        sheet.text(spot.x + spot.width / 2 - 10, spot.y + 15, box.mark, anchor="middle", size=14, bold=True)


def _slot(flow: Flow, one: int | Arrow) -> float:
    """What a box or a passing arrow takes of its layer: the mark of a wrong arrow and the sizes need room beside it."""
    to, of = ([a for a in flow.arrows if getattr(a, end) == one] for end in ("target", "source"))
    beside = [_PORT / 2 * len(to) + width_of(f"✗ {a.wrong}") for a in to if a.wrong]
    beside += [_PORT / 2 * len(of) + width_of(a.size, 11) for a in of if a.size]
    return max([_width(flow, one), *(2 * (8 + space) for space in beside)])


def _width(flow: Flow, one: int | Arrow) -> float:
    """How wide it is drawn."""
    if isinstance(one, Arrow):
        return 10.0
    box = flow.boxes[one]
    return max(70.0, (44 if box.mark else 20) + max(width_of(box.name), width_of(box.detail)))
