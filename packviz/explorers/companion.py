"""The part of a panel that runs in the page."""

from __future__ import annotations

from pathlib import Path

import anywidget
import traitlets


class Companion(anywidget.AnyWidget):
    """Unseen: names the controls for a screen reader, and tells whether the page is dark. See companion.js.

    Attributes:
        dark: whether the page around the panel is dark.
    """

    _esm = Path(__file__).with_name("companion.js")
    dark = traitlets.Bool(False).tag(sync=True)
