"""A plotly figure that can also say what it shows, and that follows a notebook's theme."""

from __future__ import annotations

import json
from typing import Any, cast

import plotly.graph_objects as go

from packviz.draw import theme
from packviz.figures.template import CONFIG, TEMPLATES


class Chart(go.Figure):
    """A `plotly.graph_objects.Figure` with a text twin.

    A notebook shows it in the colours of its theme, and again in others when the theme changes. (It hears of the theme
    through packviz's panels: in a notebook without any, it stays light.) The stored output holds plotly's JSON and the
    text, and in packviz's own notebooks an image.
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

    def _repr_mimebundle_(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        dressed = go.Figure(self).update_layout(template=TEMPLATES[theme.is_dark()])
        figure = json.loads(dressed.to_json()) | {"config": CONFIG}
        return {"application/vnd.plotly.v1+json": figure, "text/plain": self.to_text()}

    _repr_html_ = None  # plotly's would fetch a script from a network

    def _ipython_display_(self) -> None:
        # Not a FigureWidget: each would bring megabytes of script, and stays empty where loading it takes two seconds.
        from IPython.display import display  # noqa: PLC0415 - only a notebook calls this

        shown = cast(Any, display)(self._repr_mimebundle_(), raw=True, display_id=True)

        def redraw(dark: bool) -> None:
            # JupyterLab's plotly renderer draws once and ignores news: show the text for a moment, and it starts anew.
            shown.update({"text/plain": self.to_text()}, raw=True)
            shown.update(self._repr_mimebundle_(), raw=True)

        if shown is not None:  # there is a front end to show it
            theme.follow(redraw)
