"""Defines the base class of results that draw themselves.

Notebooks show the picture, and terminals show its text.
"""

from __future__ import annotations

from abc import abstractmethod
from base64 import b64encode
from html import escape
from zlib import crc32

from packviz.core import util
from packviz.core.util import HasText
from packviz.draw.palette import THEMES
from packviz.draw.sheet import Sheet

# The image is light where a notebook's HTML is sanitised, which removes the style. An `<svg>` would
# be removed, too, but its words would stay. The class is the picture's own.
_NOTEBOOK_HTML = """<style>\
body[data-jp-theme-light=false] .{name},body.vscode-dark .{name}{{content:url("{dark_url}")}}\
</style><img class="{name}" alt="{words}" src="{light_url}" style="max-width:100%;height:auto">"""

_PAGE_HTML = """<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>{title}</title></head>
<body>
{svg}
<details><summary>As text</summary><pre>{words}</pre></details>
</body>
</html>
"""


class Drawing(HasText):
    """A result with a picture, and with a text that has the same content."""

    @abstractmethod
    def sheet(self, theme: str) -> Sheet:
        """Returns the picture as a sheet, which can be placed on another sheet or become SVG."""

    def to_svg(self, theme: str = "light") -> str:
        """Returns the picture as a complete `<svg>` element. To write a file, call `save`.

        Args:
            theme: `"light"`, `"dark"`, or `"live"` for colours that follow the theme of the
                notebook.

        Raises:
            ValueError: the theme is unknown.
        """
        if theme not in THEMES:
            theme_names = ", ".join(map(repr, THEMES))
            fix = f"choose one of {theme_names}; to write a file, call .save(path)"
            raise ValueError(f"theme is {theme!r}; {fix}")
        return self.sheet(theme).svg()

    def _file_svg(self, theme: str) -> str:
        """Returns the picture for a file. In some converters, its height on a page would be 0."""
        return self.to_svg(theme).replace("height:auto", "", 1)

    def _png_bytes(self, theme: str) -> bytes:
        if theme == "live":
            raise ValueError(
                "theme is 'live', but a PNG cannot follow the theme of a page: choose 'light' or"
                " 'dark'"
            )
        try:
            import cairosvg  # noqa: PLC0415 - optional
        except (ImportError, OSError) as error:  # OSError: the library cairo is missing
            raise ValueError(
                "a PNG needs cairosvg (python -m pip install cairosvg) and the library cairo (on"
                " Debian, the package libcairo2); .svg, .html and .txt need neither"
            ) from error
        return bytes(cairosvg.svg2png(bytestring=self._file_svg(theme).encode(), scale=2))

    def save(self, path: util.PathLike, theme: str = "light") -> None:
        """Writes the picture, or its text, to a file.

        Args:
            path: the path of the file. Its suffix sets the format: `.svg`, `.png` (which needs
                cairosvg), `.html` for a page with the picture and its text, or `.txt` for the text
                alone.
            theme: the theme of the picture, as in `to_svg`. It does not affect the text.

        Raises:
            ValueError: the suffix or the theme is unknown, or a PNG cannot be made on this machine.
            OSError: the file cannot be written.
        """

        def page_html() -> str:
            words = escape(self.to_text())
            title = words.partition("\n")[0]
            return _PAGE_HTML.format(title=title, svg=self.to_svg(theme), words=words)

        util.write_file(
            path,
            {
                ".svg": lambda: self._file_svg(theme),
                ".png": lambda: self._png_bytes(theme),
                ".html": page_html,
                ".txt": lambda: f"{self.to_text()}\n",
            },
        )

    def _repr_mimebundle_(self, **kwargs: object) -> dict[str, str]:
        """Returns the picture for a notebook: an image that follows the theme of the page."""
        svg = self.to_svg()
        words = self.to_text()
        light_url = _data_url(svg)
        dark_url = _data_url(self.to_svg("dark"))
        name = f"packviz-{crc32(dark_url.encode()):x}"
        summary = escape(words.partition("\n\n")[0])
        html = _NOTEBOOK_HTML.format(
            name=name, words=summary, light_url=light_url, dark_url=dark_url
        )
        return {"text/html": html, "text/plain": words, "image/svg+xml": svg}


def _data_url(svg: str) -> str:
    return f"data:image/svg+xml;base64,{b64encode(svg.encode()).decode()}"
