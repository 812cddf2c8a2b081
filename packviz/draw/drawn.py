"""What every result that draws itself has in common: an image and its text in a notebook, the text elsewhere."""

from __future__ import annotations

import sys
from abc import abstractmethod
from typing import Any, cast

from packviz.core.worded import Worded
from packviz.draw.sheet import Sheet


class Drawn(Worded):
    """Something with a picture and a text twin."""

    @abstractmethod
    def sheet(self, theme: str) -> Sheet:
        """The picture as a sheet, to be placed on another one or made a string of."""

    def to_svg(self, theme: str = "light") -> str:
        """The picture as a complete `<svg>` element.

        Args:
            theme: `"light"`, `"dark"`, or `"live"`, whose colours follow the theme of the notebook around it.
        """
        return self.sheet(theme).svg()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return _live_view(self.to_svg("live")) | {"text/plain": self.to_text(), "image/svg+xml": self.to_svg()}


def _live_view(live_svg: str) -> dict[str, Any]:
    """The widget form of a picture where a notebook can show one, else nothing.

    A widget lives in the page and so follows its theme; an SVG output is an image with colours of its own.
    """
    shell = sys.modules.get("IPython")
    if shell is None or getattr(shell.get_ipython(), "kernel", None) is None:
        return {}
    try:
        from ipywidgets import HTML  # noqa: PLC0415 - only where it can be shown
    except ImportError:
        return {}
    return cast(dict[str, Any], HTML(live_svg)._repr_mimebundle_())
