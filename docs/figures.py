"""Turns the pictures that packviz draws into figures of the web site."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from html import escape

from packviz.draw import palette

_LIVE = {colour: getattr(palette.LIVE, name) for name, colour in vars(palette.LIGHT).items()}
_SVG = "{http://www.w3.org/2000/svg}"
_WORDS = (f"{_SVG}text", f"{_SVG}tspan", f"{_SVG}g")
_TITLE = 20  # px: the height of a picture's title
_LINE = 18  # px: the height of a further line of this title
ElementTree.register_namespace("", "http://www.w3.org/2000/svg")


def box(kind: str, html: str) -> str:
    """Returns HTML in a box, which scrolls sideways if its content is wider than the page."""
    tag = "div" if kind == "table" else "figure"
    return f'<{tag} class="pv-{kind} packviz" tabindex="0">{html}</{tag}>'


def figure(svg: str) -> str:
    """Returns a picture in colours that follow the page.

    Its title becomes a caption that wraps and that readers can select. A picture without a title
    gets the first line of its words as its caption, below it.
    """
    # A number and its % sign stay together, and so do the lines of the words, which a parser would
    # join.
    root = ElementTree.fromstring(svg.replace(" %", "\u00a0%").replace("\n", "&#10;"))
    _recolour(root)
    title = root.find("*[@class='title']")
    if title is None:
        caption = root.get("aria-label", "").partition("\n")[0]
        drawn = ElementTree.tostring(root, "unicode")
        return f'{drawn}<figcaption class="pv-below">{escape(caption)}</figcaption>'
    root.remove(title)
    lines = [*title] or [title]
    caption = " ".join("".join(line.itertext()) for line in lines)
    top = _TITLE + _LINE * (len(lines) - 1)
    height = float(root.get("height", "")) - top
    root.set("viewBox", f"0 {top} {root.get('width')} {height:g}")
    root.set("height", f"{height:g}")
    drawn = ElementTree.tostring(root, "unicode")
    return f"<figcaption>{escape(caption)}</figcaption>{drawn}"


def _recolour(root: ElementTree.Element) -> None:
    """Gives a stored picture colours that follow the page.

    White text stays white, because it is on a fill that stays the same. Only a ✗ follows the page,
    as its fill does.
    """
    for element in root.iter():
        is_sign = {*element.itertext()} == {"✗"}
        stays = palette.LIGHT.ground if element.tag in _WORDS and not is_sign else ""
        for name in ("fill", "stroke"):
            colour = element.get(name, "")
            if colour in _LIVE and (name == "stroke" or colour != stays):
                element.set(name, _LIVE[colour])
