"""The data flow of a network as a column of boxes with arrows: drawn and as text. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from packviz.draw.drawing import Drawing
from packviz.draw.sheet import Sheet, n, stack, width_of

KINDS = ("input", "operator", "pack", "rnn", "pad", "output")
_LEFT, _HEIGHT, _GAP, _LANE = 8.0, 38.0, 32.0, 16.0  # px: a box, what is between two, and what is beside them
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
        """Boxes in a column; arrows that pass boxes run beside it, and have their sizes where they leave.

        Thick arrows carry a PackedSequence; the forbidden ones are dashed and marked.
        """
        sheet, rows = Sheet(theme, self.to_text()), self._rows()
        wide = max((44 + max(width_of(box.name), width_of(box.detail, 11)) for box in self.boxes), default=0.0)
        wrong = {arrow.target for arrow in self.arrows if arrow.wrong}
        for i, box in enumerate(self.boxes):
            _box(sheet, box, _top(rows[i]), wide, i in wrong)
        x = _LEFT + wide / 2
        for lane in self._lanes(rows):
            for arrow in lane:
                _arrow(sheet, arrow, _top(rows[arrow.source]), _top(rows[arrow.target]), wide, x)
            words = [max(width_of(arrow.size), width_of(f"✗ {arrow.wrong}")) for arrow in lane]
            x = max(x + max(words, default=0), _LEFT + wide) + _LANE
        key = (_KEY[0], _KEY[1] + _NOT_ALLOWED * bool(wrong))
        sheet.paragraph(_LEFT, max(_top(len(rows)) - _GAP + 10, 14), key, size=11, ink=sheet.colours.muted)
        return stack(self.title, [sheet], theme)

    def _rows(self) -> list[int]:
        """The row of each box: in the order in which they were run, but an input right above what first takes it."""
        first = {arrow.source: arrow.target for arrow in sorted(self.arrows, key=lambda arrow: -arrow.target)}
        places = [(first.get(i, i), 0) if box.kind == "input" else (i, 1) for i, box in enumerate(self.boxes)]
        order = sorted(range(len(places)), key=places.__getitem__)
        return [order.index(i) for i in range(len(order))]

    def _lanes(self, rows: Sequence[int]) -> list[list[Arrow]]:
        """The arrows that go from row to row in the first lane, then the others, so that none covers another."""
        lanes: list[list[Arrow]] = [[]]
        for arrow in sorted(self.arrows, key=lambda arrow: rows[arrow.target] - rows[arrow.source]):
            start, end = rows[arrow.source], rows[arrow.target]
            free = [lane for lane in lanes[1:] if all(rows[a.target] <= start or end <= rows[a.source] for a in lane)]
            if end - start > 1 and not free:
                lanes.append([])
            (lanes[0] if end - start == 1 else free[0] if free else lanes[-1]).append(arrow)
        return lanes


def _top(row: int) -> float:
    """Where a row begins, in px."""
    return 6 + row * (_HEIGHT + _GAP)


def _arrow(sheet: Sheet, arrow: Arrow, source: float, target: float, wide: float, lane: float) -> None:
    """An arrow from the box that begins at `source` to the one at `target`: straight down, or along a lane."""
    right, colours = _LEFT + wide, sheet.colours
    out, end = source + _HEIGHT, target - 7
    path, head = f"M{n(lane)} {n(out)}V{n(end)}", f"M{n(lane - 5)} {n(end)}h10l-5 7z"
    words = lane + 10, out + 12, end + 2
    if target - source > _HEIGHT + _GAP:
        out, end = source + 0.75 * _HEIGHT, target + 0.25 * _HEIGHT
        path, head = f"M{n(right)} {n(out)}H{n(lane)}V{n(end)}H{n(right + 7)}", f"M{n(right + 7)} {n(end - 5)}v10l-7-5z"
        words = lane + 5, out + 14, end - 4
    colour = colours.wrong if arrow.wrong else colours.line
    sheet.path(path, stroke=colour, width=3.5 if arrow.packed else 1.2, dash="7 4" if arrow.wrong else "")
    sheet.path(head, fill=colour)
    if arrow.size:
        sheet.text(words[0], words[1], arrow.size, size=11, ink=colours.muted, halo=colours.ground)
    if arrow.wrong:
        sheet.text(words[0], words[2], f"✗ {arrow.wrong}", bold=True, ink=colours.wrong, halo=colours.ground)


def _box(sheet: Sheet, box: Box, top: float, wide: float, wrong: bool) -> None:
    colours, end = sheet.colours, box.kind in ("input", "output")
    stroke, thick = (colours.wrong, 3.0) if wrong else (colours.line, 1.0)
    middle, r = _LEFT + wide / 2, _HEIGHT / 2
    if end:
        arc = f"a{n(r)} {n(r)} 0 0 1 0 "
        d = f"M{n(_LEFT + r)} {n(top)}h{n(wide - 2 * r)}{arc}{n(2 * r)}h{n(2 * r - wide)}{arc}{n(-2 * r)}z"
        sheet.path(d, fill=colours.ground, stroke=stroke, width=thick)
    else:
        sheet.box(_LEFT, top, wide, _HEIGHT, colours.padding, stroke=stroke, thick=thick)
    sheet.text(middle, top + (17 if box.detail else 24), box.name, anchor="middle", bold=True)
    if box.detail:
        sheet.text(middle, top + 32, box.detail, anchor="middle", size=11, ink=colours.muted)
    if box.mark:
        sheet.text(_LEFT + wide - 10, top + 15, box.mark, anchor="middle", size=14, bold=True)
