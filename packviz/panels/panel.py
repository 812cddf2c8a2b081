"""Provides the base class of all panels: controls above a picture, with counts and messages."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import anywidget
import ipywidgets as widgets
import traitlets
from IPython import get_ipython

from packviz.core.validation import require_one_of
from packviz.draw import theme
from packviz.draw.drawing import Drawing
from packviz.draw.palette import DARK_PAGE_STYLE, LIVE
from packviz.draw.sheet import WIDTH, Sheet
from packviz.draw.sheet import row as sheets_in_rows

MimeBundle = dict[str, Any]
"""What a notebook may show for a result, by MIME type."""


def read_source(name: str) -> str:
    """Returns the text of a file beside this one: a script or a style sheet."""
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


class Companion(anywidget.AnyWidget):
    """An invisible widget that names the controls for screen readers and detects a dark page.

    See companion.js.

    Attributes:
        dark: whether the page around the panel is dark; `None` until a page has reported it.
    """

    _esm = read_source("companion.js")
    _css = DARK_PAGE_STYLE + read_source("companion.css")
    dark = traitlets.Bool(None, allow_none=True).tag(sync=True)

    @traitlets.observe("dark")
    def _store_page_theme(self, change: traitlets.Bunch) -> None:
        theme.set_dark(bool(change.new))


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
        picture = self.draw(theme)
        return picture if isinstance(picture, str) else picture.svg()


class Panel(widgets.VBox):
    """Controls, and a picture that changes with them.

    A subclass makes its controls, calls `super().__init__(…)`, and defines `view`, which returns a
    `View`. If `view` later raises an error, the panel shows it, and the last good picture stays.
    `view` may move a control or change its range. In that case, the panel shows a note until the
    control is back at the value that the reader chose. The text of the panel includes all messages.

    Attributes:
        picture: the widget that shows the picture.
        summary: the widget that shows the counts.
        error: the widget that shows an error message.
        note: the widget that names the controls that `view` has moved.
        as_text: the button that shows a description of the picture.
    """

    def __init__(self, *controls: widgets.Widget) -> None:
        """Builds the panel, with its controls above the picture, from top to bottom.

        Raises:
            ValueError: the first values of the controls cannot be shown.
        """
        self.picture = widgets.HTML().add_class("packviz-picture")
        self.summary = widgets.HTML().add_class("packviz-summary")
        self.error = widgets.HTML().add_class("packviz-error")
        self.note = widgets.HTML().add_class("packviz-note")
        self.as_text = widgets.ToggleButton(
            value=False,
            description="Picture as text",
            layout=widgets.Layout(width="auto", align_self="flex-start"),
        )
        self._words = widgets.HTML()
        self._error_text = ""
        self._moved_text = ""
        self._is_drawing = True
        shown = [self.error, self.note, self.summary, self.picture, self.as_text, self._words]
        super().__init__([Companion(), *controls, *shown])
        self.add_class("packviz-panel").add_class("packviz")
        self._chosen: dict[widgets.Widget, object] = {}  # the values that the reader chose
        for control in _walk_widgets(controls):
            if isinstance(control, widgets.ValueWidget):
                self._chosen[control] = control.value
                control.observe(self._on_control_change, names="value")
        self.as_text.observe(lambda _: self._show_description(), names="value")
        self._draw()
        self._is_drawing = False
        self._report_moved_controls()

    @abstractmethod
    def view(self) -> View:
        """Returns the view for the values of the controls.

        Raises:
            ValueError: a control has a value that cannot be shown. The panel shows the message.
        """

    def to_text(self) -> str:
        """Returns all messages, followed by a description of the picture."""
        parts = [self._error_text, self._moved_text, self._view.describe()]
        return "\n\n".join(filter(None, parts))

    def __setattr__(self, name: str, value: object) -> None:
        if name == "lengths" and not isinstance(value, widgets.Widget):
            kind = type(self).__name__
            raise AttributeError(f"{kind}.lengths cannot be set; make a new panel: {kind}(…)")
        super().__setattr__(name, value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}: {self._view.summary}"

    def _on_control_change(self, change: traitlets.Bunch) -> None:
        if (
            not self._is_drawing
        ):  # otherwise view has moved a control, and draws its new value itself
            self._chosen[change.owner] = change.new
            self._refresh()

    def _refresh(self) -> None:
        self._is_drawing = True
        try:
            self._draw()
        except ValueError as error:
            self._show_error(str(error))
        except Exception as error:
            bug_text = f"{type(error).__name__}: {error}"
            self._show_error(f"packviz failed, which is a bug in packviz: {bug_text}")
            raise
        finally:
            self._is_drawing = False
            self._report_moved_controls()
            self._show_description()

    def _draw(self) -> None:
        view = self.view()
        picture = view.svg("live")
        self._view = view
        self._error_text = ""
        self.error.value = ""
        self.picture.value = picture
        self.summary.value = _line_html(view.summary)

    def _show_error(self, message: str) -> None:
        self._error_text = f"✗ {message.rstrip('.')}. The picture shows the last good input."
        self.error.value = _line_html(self._error_text, f";font-weight:bold;color:{LIVE.wrong}")

    def _report_moved_controls(self) -> None:
        move_notes = []
        for control, chosen_value in self._chosen.items():
            if control.value != chosen_value and control.layout.display != "none":
                move_note = f"went from {chosen_value} to {control.value} to fit."
                move_notes.append(f"{control.description} {move_note}")
        self._moved_text = " ".join(move_notes)
        self.note.value = _line_html(self._moved_text)

    def _show_description(self) -> None:
        self._words.value = _line_html(self.to_text(), tag="pre") if self.as_text.value else ""

    def _repr_mimebundle_(self, **kwargs: Any) -> MimeBundle:
        mime_bundle = {**super()._repr_mimebundle_(**kwargs), "text/plain": self.to_text()}
        mime_bundle[self._view.kind] = self._view.svg("light")
        return drop_unusable_widget(mime_bundle)


def drop_unusable_widget(mime_bundle: MimeBundle) -> MimeBundle:
    """Returns a widget's output, without the widget itself if nobody can use it.

    Programs that run a whole notebook, such as nbconvert and papermill, take no input. A page made
    from what they store would show the widget, which needs scripts from the Internet, instead of
    its picture. Voilà takes no input either, but serves the widgets to readers.
    """
    kernel = getattr(get_ipython(), "kernel", None)
    get_parent: Callable[[], dict[str, Any]] = getattr(kernel, "get_parent", dict)
    request = get_parent().get("content", {})
    takes_input = request.get("allow_stdin", True) or "SERVER_SOFTWARE" in os.environ  # Voilà's
    if not takes_input:
        mime_bundle.pop("application/vnd.jupyter.widget-view+json", None)
    return mime_bundle


def _line_html(words: str, style: str = "", tag: str = "div") -> str:
    if not words:
        return ""
    css = f"color:{LIVE.text};line-height:1.4{style}"
    return f'<{tag} style="{css}">{escape(words)}</{tag}>'


def _walk_widgets(root_widgets: Sequence[widgets.Widget]) -> Iterator[widgets.Widget]:
    """Yields widgets and all their descendants."""
    for widget in root_widgets:
        yield widget
        yield from _walk_widgets(getattr(widget, "children", ()))


def draw_side_by_side(drawings: Sequence[Drawing], theme: str) -> Sheet:
    """Draws pictures side by side, or one below the other if the page is too narrow."""
    return sheets_in_rows([drawing.sheet(theme) for drawing in drawings], theme, 16, WIDTH)


def row(*children: widgets.Widget) -> widgets.Box:
    """Returns a box with controls side by side, in several lines if the page is narrow."""
    layout = widgets.Layout(flex_flow="row wrap", align_items="center", grid_gap="0 16px")
    return widgets.Box(children, layout=layout)


def slider(name: str, value: int, low: int, high: int, description: str = "") -> widgets.IntSlider:
    """Returns a slider for a whole number. Its label is `description` or, if that is empty, `name`.

    Raises:
        ValueError: `value` is not a whole number from `low` to `high`.
    """
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{name} is {value!r}; give a whole number from {low:,} to {high:,}")
    return widgets.IntSlider(value=value, min=low, max=high, description=description or name)


def checkbox(name: str) -> widgets.Checkbox:
    """Returns a checkbox with its name as the label."""
    return widgets.Checkbox(value=False, description=name, indent=False)


def dropdown(
    name: str, value: str, choices: Sequence[str], description: str = "", **layout: str
) -> widgets.Dropdown:
    """Returns a drop-down list. Its label is `description` or, if that is empty, `name`.

    Raises:
        ValueError: `value` is not among the choices.
    """
    return widgets.Dropdown(
        options=choices,
        value=require_one_of(name, value, choices),
        description=description or name,
        layout=layout,
    )


def set_visible(control: widgets.Widget, is_visible: bool) -> None:
    """Shows or hides a control."""
    control.layout.display = None if is_visible else "none"
