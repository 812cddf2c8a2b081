"""Reads an SVG of ours back into rectangles and texts, so that a test can measure what is drawn."""

import re
import unicodedata
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from itertools import combinations

CLOSED = re.compile(r"M([\d.]+) ([\d.]+)([hva][-\d. hva,]*)z")
SIDE = re.compile(r"([hva])([-\d. ,]+)")
MOVED = re.compile(r"translate\(([-\d.]+) ([-\d.]+)\)")
SVG = "{http://www.w3.org/2000/svg}"


@dataclass(frozen=True, order=True)
class Box:
    """A rectangle with its colours."""

    x: float
    y: float
    width: float
    height: float
    fill: str = ""
    stroke: str = ""

    @property
    def right(self):
        return self.x + self.width

    @property
    def bottom(self):
        return self.y + self.height


@dataclass(frozen=True)
class Text:
    """A line of text and its width.

    A monospace glyph is 0.55 to 0.602 of its size wide, and in Helvetica, the mean letter of words
    is at most 0.556. A browser measures the stored pictures (tests/site).
    """

    said: str
    x: float
    y: float
    size: float
    anchor: str
    fill: str
    family: str

    @property
    def box(self):
        wide = sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in self.said)
        width = wide * self.size * (0.602 if "mono" in self.family else 0.556)
        left = self.x - {"": 0, "middle": width / 2, "end": width}[self.anchor]
        return Box(left, self.y - 0.73 * self.size, width, 0.9 * self.size)


def bounds(start, sides, fill, stroke):
    """Returns the box around a rectangle, whose corners may be rounded."""
    corners = [start]
    for kind, numbers in SIDE.findall(sides):
        x, y = corners[-1]
        values = [float(value) for value in re.findall(r"-?[\d.]+", numbers)]
        right, down = {"h": (values[0], 0), "v": (0, values[0]), "a": values[-2:]}[kind]
        corners.append((x + right, y + down))
    xs, ys = ([round(value, 4) for value in values] for values in zip(*corners, strict=True))
    left, top = min(xs), min(ys)
    width, height = round(max(xs) - left, 4), round(max(ys) - top, 4)
    return Box(left, top, width, height, fill, stroke)


class ParsedSvg:
    """The shapes of a parsed SVG, in the order in which they are painted."""

    def __init__(self, svg):
        self.root = ElementTree.fromstring(svg)
        self.width, self.height = (float(self.root.get(name)) for name in ("width", "height"))
        self.elements = list(self.root.iter())
        self.texts, self.boxes = [], []
        self._read(self.root, {}, (0.0, 0.0))

    def _read(self, element, inherited, corner):
        here = inherited | element.attrib
        if moved := MOVED.fullmatch(element.get("transform", "")):
            corner = (corner[0] + float(moved[1]), corner[1] + float(moved[2]))
        if element.tag == f"{SVG}text":
            x, y = corner[0] + float(here["x"]), corner[1] + float(here["y"])
            size, anchor = float(here.get("font-size", 12)), here.get("text-anchor", "")
            look = size, anchor, here["fill"], here["font-family"]
            self.texts.append(Text(element.text or "", x, y, *look))
        for left, top, sides in CLOSED.findall(element.get("d", "")):
            look = element.get("fill", ""), element.get("stroke", "")
            start = corner[0] + float(left), corner[1] + float(top)
            self.boxes.append(bounds(start, sides, *look))
        for child in element:
            self._read(child, here, corner)

    def text(self, start):
        """The one text that starts like this."""
        (found,) = [text for text in self.texts if text.said.startswith(start)]
        return found

    def outside(self):
        """The rectangles and texts that the picture cuts off."""
        shapes = [*self.boxes, *(text.box for text in self.texts if text.said)]
        right, bottom = self.width + 0.01, self.height + 0.01
        return [s for s in shapes if s.x < 0 or s.y < 0 or s.right > right or s.bottom > bottom]

    def covered(self):
        """The pairs of texts that lie over each other."""
        pairs = combinations(
            sorted((text.box.y, text.box, text.said) for text in self.texts if text.said.strip()), 2
        )
        beside = ((one, other) for (_, one, _), (_, other, _) in pairs if other.y < one.bottom)
        return [
            (one, other)
            for one, other in beside
            if one.right > other.x + 0.1 and other.right > one.x + 0.1
        ]

    def said(self):
        return [text.said for text in self.texts]
