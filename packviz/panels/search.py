"""Shows the error museum in a panel: paste an error message, and see what explains it."""

from __future__ import annotations

import ipywidgets as widgets

from packviz.check import museum
from packviz.draw.palette import LIVE
from packviz.panels.panel import Panel, View


class MuseumPanel(Panel):
    """A search for entries by an error message, with or without its traceback, or by a few words.

    Attributes:
        pasted: the field for the text to search for.
        matches: the entries in the picture, the best match first.
    """

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
        """Returns a view of the entries that match the text."""
        text = self.pasted.value.strip()
        self.matches = museum.explain(text)
        summary = self.matches.summary if text else f"{len(museum.ENTRIES)} entries."
        if not self.matches:
            summary += " Paste an error text, or describe in a few words what you see."
        cards = "".join(entry.to_html() for entry in self.matches)
        description = "\n\n".join([summary, *(entry.to_text() for entry in self.matches)])

        def draw(theme: str) -> str:
            colour = LIVE.text if theme == "live" else "inherit"
            return f'<div style="color:{colour};line-height:1.4">{cards}</div>'

        return View(draw, summary, lambda: description, kind="text/html")
