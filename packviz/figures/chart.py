"""A plotly figure that can also say what it shows, and that follows a notebook's theme."""

from __future__ import annotations

import json
import sys
from typing import Any

import plotly.graph_objects as go

from packviz.figures.template import CONFIG, TEMPLATES


class Chart(go.Figure):
    """A `plotly.graph_objects.Figure` with a text twin.

    A live notebook shows it as a widget in the colours of its theme; elsewhere its stored output holds the plotly JSON
    and the text (and, in packviz's own notebooks, an image).
    """

    def __init__(self, *args: Any, text: str = "", **kwargs: Any) -> None:
        """Takes what `go.Figure` takes, and the `text` that says what the chart shows."""
        super().__init__(*args, **kwargs)
        self._text = text
        self.update_layout(template=TEMPLATES[False])

    def to_text(self) -> str:
        """The chart in words and numbers."""
        return self._text

    def __repr__(self) -> str:
        return self.to_text()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None, **kwargs: Any) -> dict[str, Any]:
        figure = json.loads(self.to_json()) | {"config": CONFIG}
        return self._live_view() | {"application/vnd.plotly.v1+json": figure, "text/plain": self.to_text()}

    def _ipython_display_(self) -> None:
        raise NotImplementedError  # plotly's own way of showing; IPython then asks for the mime bundle

    def _live_view(self) -> dict[str, Any]:
        """A widget that changes colours with the page, where there is a kernel to run it."""
        shell = sys.modules.get("IPython")
        if shell is None or getattr(shell.get_ipython(), "kernel", None) is None:
            return {}
        import ipywidgets  # noqa: PLC0415 - only where it can be shown

        from packviz.explorers.companion import Companion  # noqa: PLC0415

        live, companion = go.FigureWidget(self), Companion()
        live._config = CONFIG
        companion.observe(lambda change: live.update_layout(template=TEMPLATES[change["new"]]), names="dark")
        panel = ipywidgets.VBox([companion, live])
        panel.add_class("packviz-explorer")
        return dict(panel._repr_mimebundle_())
