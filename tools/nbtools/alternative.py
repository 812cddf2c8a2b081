"""Adds an alternative text to every stored picture, for readers who cannot see the picture.

nbconvert gives an SVG or PNG output no alternative text in its HTML, but it prefers an HTML output
if there is one. So every picture also has an HTML output: the same picture as an `<img>`, whose
`alt` is the first paragraph of the picture's text. Its data is in base64, because code hosts remove
`<svg>` from HTML. A chart's PNG is large, so it is stored only in the HTML.
"""

from __future__ import annotations

import base64
from html import escape
from typing import Any

from nbtools.canonical import PLOTLY, text_of

SVG = "image/svg+xml"
PNG = "image/png"
HTML = "text/html"


def is_picture(output: Any) -> bool:
    """Returns whether an output is shown as a picture."""
    return bool({SVG, PLOTLY} & set(output.get("data", {})))


def png_of(output: Any) -> str:
    """Returns an output's PNG in base64, which may be part of its HTML, or an empty string."""
    if PNG in output.data:
        return str(output.data[PNG])
    _, _, rest = output.data.get(HTML, "").partition("data:image/png;base64,")
    return str(rest.partition('"')[0])


def chart_size(chart: Any) -> tuple[int, int]:
    """Returns a chart's width and height in pixels."""
    layout = chart.data[PLOTLY]["layout"]
    return int(layout["width"]), int(layout["height"])


def has_own_html(output: Any) -> bool:
    """Returns whether a picture made its HTML itself, as packviz's drawings do."""
    return '<img class="packviz-' in output.get("data", {}).get(HTML, "")


def describe_pictures(notebook: Any) -> None:
    """Adds an HTML output to every picture of a notebook that has none, in place."""
    for cell in notebook.cells:
        for output in filter(is_picture, cell.get("outputs", [])):
            if not has_own_html(output):
                output.data[HTML] = as_html(output)
            if PLOTLY in output.data:
                output.data.pop(PNG, None)


def as_html(output: Any) -> str:
    """Returns a picture as an `<img>` element with an alternative text."""
    words = " ".join(text_of(output.data).split("\n\n")[0].split())
    if SVG in output.data:
        kind = SVG
        size = ""
        data = base64.b64encode(output.data[SVG].encode()).decode("ascii")
    else:
        kind = PNG
        width, height = chart_size(output)
        size = f' height="{height}" width="{width}"'
        data = png_of(output)
    style = 'style="max-width:100%;height:auto"'
    return f'<img alt="{escape(words)}"{size} {style} src="data:{kind};base64,{data}">'
