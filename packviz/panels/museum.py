"""Shows the error museum in a panel: paste an error message, and see the exhibits that explain it."""

from __future__ import annotations

import ipywidgets as widgets

from packviz.check import museum
from packviz.draw import palette
from packviz.panels.panel import Panel, View

_ASK = "Paste an error text, or describe in a few words what you see"
_CARDS = '<div style="color:{};line-height:1.4">{}</div>'


class MuseumPanel(Panel):
    """A search for exhibits by an error message, with or without its traceback, or by a few words.

    Attributes:
        pasted: the field for the text to search for.
        found: the exhibits in the picture, the best match first.
    """

    found: museum.Matches

    def __init__(self, pasted: str = "") -> None:
        """Makes the panel, with this text in the field."""
        self.pasted = widgets.Textarea(
            value=pasted,
            description="error text",
            placeholder="paste it here, traceback and all",
            layout=widgets.Layout(width="780px", height="92px"),
        )
        super().__init__(self.pasted)

    def view(self) -> View:
        """Returns a view of the exhibits that match the text."""
        asked = self.pasted.value.strip()
        self.found = found = museum.explain(asked)
        summary = found.summary if asked else f"{len(museum.EXHIBITS)} exhibits."
        if not found:
            summary += f" {_ASK}."
        return View(
            draw=lambda theme: _CARDS.format(
                palette.LIVE.text if theme == "live" else "inherit",
                "".join(one.to_html() for one in found),
            ),
            summary=summary,
            describe=lambda: "\n\n".join([summary, *(one.to_text() for one in found)]),
            kind="text/html",
        )
