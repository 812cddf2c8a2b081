"""Provides the base class of all panels: controls above a picture, with counts, error messages and a text version."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from threading import RLock
from typing import Any, cast

import anywidget
import ipywidgets as widgets
import traitlets

from packviz.core.validation import one_of
from packviz.draw import palette, theme
from packviz.draw.sheet import Sheet
from packviz.panels.job import Job


class Companion(anywidget.AnyWidget):
    """An invisible widget that names the controls for screen readers and detects a dark page. See
    companion.js.

    Attributes:
        dark: whether the page around the panel is dark; `None` until a page has reported it.
    """

    _esm = Path(__file__).with_name("companion.js")
    _css = palette.STYLE + Path(__file__).with_name("companion.css").read_text(encoding="utf-8")
    dark = traitlets.Bool(None, allow_none=True).tag(sync=True)

    @traitlets.observe("dark")
    def _announce(self, change: Any) -> None:
        theme.announce(bool(change["new"]))


@dataclass(frozen=True)
class View:
    """The picture and the texts for one state of a panel's controls."""

    draw: Callable[[str], Sheet | str]
    """Draws the picture in a theme."""
    summary: str
    """The counts in one or two sentences."""
    describe: Callable[[], str]
    """Describes the picture as text."""
    kind: str = "image/svg+xml"
    """The MIME type of the picture: `image/svg+xml` or `text/html`."""

    def svg(self, theme: str) -> str:
        """Returns the picture as a complete `<svg>` element, or as HTML."""
        drawn = self.draw(theme)
        return drawn if isinstance(drawn, str) else drawn.svg()


class Panel(widgets.VBox):
    """Controls, and a picture that changes with them.

    A subclass makes its controls, calls `super().__init__(…)`, and defines `view`, which returns a
    `View`. If `view` raises an error, the panel shows the message, and the last good picture stays.
    `view` may move a control or change its range. In that case, the panel shows a note until the
    control is back at the value that the reader chose. The text of the panel includes all messages.

    Attributes:
        picture: the widget that shows the picture.
        summary: the widget that shows the counts.
        error: the widget that shows an error message.
        note: the widget that names the controls that `view` has moved.
        as_text: the button that shows a description of the picture.
    """

    def __init__(self, *controls: widgets.Widget, quiet: Sequence[widgets.Widget] = ()) -> None:
        """Builds the panel.

        Args:
            *controls: the widgets above the picture, from top to bottom.
            quiet: the controls, or widgets inside a control, whose `value` does not change the
                picture.
        """
        self.picture, self.summary, self.error, self.note, self._words = (
            widgets.HTML() for _ in range(5)
        )
        for name in ("picture", "summary", "error", "note"):
            getattr(self, name).add_class(f"packviz-{name}")
        self.as_text = widgets.ToggleButton(
            value=False,
            description="Picture as text",
            layout=widgets.Layout(width="auto", align_self="flex-start"),
        )
        self._view: View | None = None
        self._complaint = self._moved = ""
        self._drawing, self._one_at_a_time = False, RLock()
        shown = [self.error, self.note, self.summary, self.picture, self.as_text, self._words]
        super().__init__([Companion(), *controls, *shown])
        self.add_class("packviz-panel").add_class("packviz")
        found = (part for part in _within(controls, quiet) if isinstance(part, widgets.ValueWidget))
        self._set = {control: control.value for control in found}
        for control in self._set:
            control.observe(self._refresh, names="value")
        self.as_text.observe(self._show_words, names="value")
        self._refresh()

    @abstractmethod
    def view(self) -> View:
        """Returns the view for the values of the controls.

        Raises:
            ValueError: a control has a value that cannot be shown. The panel shows the message.
        """

    def to_text(self) -> str:
        """Returns all messages, followed by a description of the picture."""
        failed = " ".join(
            child.complaint for child in _within(self.children) if isinstance(child, Job)
        )
        picture = self._view.describe() if self._view else ""
        return "\n\n".join(filter(None, (self._complaint, failed, self._moved, picture)))

    def _refresh(self, change: Any = None) -> None:
        with self._one_at_a_time:  # the thread of a job draws, too
            if (
                not self._drawing
            ):  # otherwise view has moved a control, and draws its new value itself
                if change:
                    self._set[change["owner"]] = change["new"]
                self._drawing = True
                try:
                    self._draw()
                finally:
                    self._drawing = False
                    self._report_moves()
                    self._show_words()

    def _draw(self) -> None:
        try:
            view = self.view()
            picture = view.svg("live")
        except ValueError as error:
            self._complain(str(error))
            return
        except Exception as error:
            self._complain(
                f"packviz failed, which is a bug in packviz: {type(error).__name__}: {error}"
            )
            raise
        self._view = view
        self._complain("")
        with self.hold_sync():
            self.picture.value, self.summary.value = picture, _line(view.summary)

    def _complain(self, message: str) -> None:
        shows = (
            "The picture shows the last good input." if self._view else "There is no picture yet."
        )
        self._complaint = f"✗ {message.rstrip('.')}. {shows}" if message else ""
        self.error.value = _line(self._complaint, f";font-weight:bold;color:{palette.LIVE.wrong}")

    def _report_moves(self) -> None:
        self._moved = " ".join(
            f"{control.description} went from {was} to {control.value} to fit."
            for control, was in self._set.items()
            if control.value != was and control.layout.display != "none"
        )
        self.note.value = _line(self._moved)

    def _show_words(self, change: Any = None) -> None:
        self._words.value = _line(self.to_text() * self.as_text.value, tag="pre")

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        bundle = cast(dict[str, Any], super()._repr_mimebundle_(**kwargs))
        picture = {self._view.kind: self._view.svg("light")} if self._view else {}
        return bundle | {"text/plain": self.to_text()} | picture


def _line(words: str, style: str = "", tag: str = "div") -> str:
    return (
        f'<{tag} style="color:{palette.LIVE.text};line-height:1.4{style}">{escape(words)}</{tag}>'
        if words
        else ""
    )


def _within(
    parts: Sequence[widgets.Widget], but: Sequence[widgets.Widget] = ()
) -> Iterator[widgets.Widget]:
    """Yields widgets and all their descendants, except those in `but`."""
    for part in parts:
        if part not in but:
            yield part
            yield from _within(getattr(part, "children", ()), but)


def row(*children: widgets.Widget) -> widgets.Box:
    """Returns a box with controls side by side, in several lines if the page is narrow."""
    return widgets.Box(
        children,
        layout=widgets.Layout(flex_flow="row wrap", align_items="center", grid_gap="0 16px"),
    )


def slider(
    description: str, value: int, low: int, high: int, narrow: bool = False
) -> widgets.IntSlider:
    """Returns a slider for a whole number. A narrow slider only has room for a one-letter label.

    Raises:
        ValueError: `value` is not a whole number from `low` to `high`.
    """
    if value not in range(low, high + 1):
        raise ValueError(
            f"{description} is {value!r}; give a whole number from {low:,} to {high:,}"
        )
    return widgets.IntSlider(
        value=value,
        min=low,
        max=high,
        description=description,
        layout=widgets.Layout(width="230px" if narrow else None),
        style={"description_width": "14px" if narrow else ""},
    )


def tick(description: str, value: bool = False) -> widgets.Checkbox:
    """Returns a checkbox that is as wide as its label."""
    return widgets.Checkbox(value=value, description=description, indent=False)


def dropdown(
    name: str, value: str, choices: Sequence[str], description: str = "", **layout: str
) -> widgets.Dropdown:
    """Returns a drop-down list. Its label is `description` or, if that is empty, `name`.

    Raises:
        ValueError: `value` is not among the choices.
    """
    value = one_of(name, value, choices)
    return widgets.Dropdown(
        options=choices, value=value, description=description or name, layout=layout
    )


def show(control: widgets.Widget, visible: bool) -> None:
    """Shows or hides a control."""
    control.layout.display = None if visible else "none"
