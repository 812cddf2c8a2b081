"""Words for a reader who does not see a stored picture.

nbconvert's HTML has none for an SVG or PNG output, but takes an HTML output first where there is one. So there is one
beside every stored picture: the same picture as an `<img>`, whose `alt` is how the picture's text begins. It is data in
base64, because code hosts take `<svg>` out of HTML.
"""

from __future__ import annotations

import base64
from html import escape
from typing import Any

from nbtools.canonical import text_of

SVG, PNG, HTML = "image/svg+xml", "image/png", "text/html"


def is_picture(output: Any) -> bool:
    """Tells whether an output is shown as a picture."""
    return bool({SVG, PNG} & set(output.get("data", {})))


def describe_pictures(notebook: Any) -> None:
    """Puts its HTML beside every picture; the notebook is changed in place."""
    for cell in notebook.cells:
        for output in filter(is_picture, cell.get("outputs", [])):
            output.data[HTML] = as_html(output)


def as_html(output: Any) -> str:
    """Gives a picture as an `<img>` with words."""
    said = " ".join(text_of(output.data).split("\n\n")[0].split())
    if SVG in output.data:
        kind, data, size = SVG, base64.b64encode(output.data[SVG].encode()).decode("ascii"), ""
    else:
        kind, data = PNG, output.data[PNG].replace("\n", "")
        size = "".join(f' {side}="{value}"' for side, value in sorted(output.metadata.get(PNG, {}).items()))
    return f'<img alt="{escape(said)}"{size} style="max-width:100%;height:auto" src="data:{kind};base64,{data}">'
