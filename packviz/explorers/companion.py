"""The part of a panel that runs in the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anywidget
import traitlets

from packviz.draw import palette, theme


class Companion(anywidget.AnyWidget):
    """Unseen: names the controls for a screen reader, and tells whether the page is dark. See companion.js.

    Attributes:
        dark: whether the page around the panel is dark; none as long as no page has said.
    """

    _esm = Path(__file__).with_name("companion.js")
    _css = palette.STYLE
    dark = traitlets.Bool(None, allow_none=True).tag(sync=True)

    @traitlets.observe("dark")
    def _announce(self, change: Any) -> None:
        theme.announce(bool(change["new"]))
