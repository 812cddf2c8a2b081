"""Defines the base class of results that draw themselves. Notebooks show the picture, and terminals show its text."""

from __future__ import annotations

import os
import sys
from abc import abstractmethod
from html import escape
from typing import Any, cast

from packviz.core import files
from packviz.core.has_text import HasText
from packviz.draw import palette
from packviz.draw.sheet import Sheet


class Drawing(HasText):
    """A result with a picture and a *text twin*, which is a text with the same content."""

    @abstractmethod
    def sheet(self, theme: str) -> Sheet:
        """Returns the picture as a sheet, which can be placed on another sheet or turned into SVG."""

    def to_svg(self, theme: str = "light") -> str:
        """Returns the picture as a complete `<svg>` element. To write a file, call `save`.

        Args:
            theme: `"light"`, `"dark"`, or `"live"` for colours that follow the theme of the
                notebook.

        Raises:
            ValueError: the theme is unknown.
        """
        if theme not in palette.THEMES:
            themes = ", ".join(map(repr, palette.THEMES))
            raise ValueError(
                f"theme is {theme!r}; choose one of {themes}. To write a file, call .save({theme!r})"
            )
        return self.sheet(theme).svg()

    def save(self, path: str | os.PathLike[str], theme: str = "light") -> None:
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
        files.write(
            path,
            {
                ".svg": lambda: self.to_svg(theme),
                ".png": lambda: _png(self.to_svg(theme)),
                ".html": lambda: _page(self.to_svg(theme), self.to_text()),
                ".txt": lambda: f"{self.to_text()}\n",
            },
        )

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return _live_view(self.to_svg("live")) | {
            "text/plain": self.to_text(),
            "image/svg+xml": self.to_svg(),
        }


def _png(svg: str) -> bytes:
    try:
        import cairosvg
    except (ImportError, OSError) as error:  # OSError: the library cairo is missing
        install = "python -m pip install cairosvg, and the library cairo (on Debian, the libcairo2 package)"
        raise ValueError(
            f"a PNG needs cairosvg ({install}); .svg, .html and .txt do not need it"
        ) from error
    fixed = svg.replace("height:auto", "", 1)  # cairosvg would read it as a height of 0
    return bytes(cairosvg.svg2png(bytestring=fixed.encode(), scale=2))


def _page(svg: str, text: str) -> str:
    title = escape(text.partition("\n")[0])
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head><meta charset="utf-8"><title>{title}</title></head>\n<body>\n{svg}\n'
        f"<details><summary>As text</summary><pre>{escape(text)}</pre></details>\n</body>\n</html>\n"
    )


def _live_view(live_svg: str) -> dict[str, Any]:
    """Returns a picture as a MIME bundle with a widget, or an empty bundle if the widget cannot be
    shown.

    A widget is part of the page, so its colours follow the page's theme. An SVG output is an image
    with fixed colours.
    """
    shell = sys.modules.get("IPython")
    if shell is None or getattr(shell.get_ipython(), "kernel", None) is None:
        return {}
    try:
        from ipywidgets import HTML
    except ImportError:
        return {}
    return cast(dict[str, Any], HTML(live_svg)._repr_mimebundle_())
