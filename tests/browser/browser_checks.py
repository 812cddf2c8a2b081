"""Does with a panel what a reader does. Each check returns a list of complaints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from browser.lab import Control, Notebook, Panel
from playwright.sync_api import Browser, Page

from packviz.panels import BatchPanel

GARBAGE = "3, two, -1; ☠"
MODES = ("dropdown", "choice", "radio", "toggle", "checkbox")
CONTRAST = 4.5
# Our own parts of the page. JupyterLab's own parts are left out:
AUDITED = {
    "include": [[".jp-Notebook .jp-OutputArea-output"], [".jp-Notebook .jp-RenderedMarkdown"]],
    "exclude": [
        ["svg > *"],  # `faint_texts` looks at pictures
        [".jp-InternalAnchorLink"],  # the sign behind a heading that shows when the mouse is there
        [
            ".jp-RenderedMarkdown a"
        ],  # in the dark told from words by nothing but its colour; ours are underlined
        [
            ".jp-RenderedText a"
        ],  # the same: JupyterLab makes links of the addresses in a printed text
        ["[class^=ansi-]"],  # the colours of a traceback
    ],
}
GRAVE = ("serious", "critical")
PLAYS_WITHIN = 5.0  # seconds in which a page that plays moves

Key = tuple[str, str, int]


def keyed(controls: Iterable[Control]) -> dict[Key, Control]:
    """Returns controls by (kind, name, number), which stays the same when a view is redrawn."""
    result: dict[Key, Control] = {}
    for control in controls:
        key = (control.kind, control.name, 0)
        while key in result:
            key = (*key[:2], key[2] + 1)
        result[key] = control
    return result


def moves(notebook: Notebook, panel: Panel, slider: Control) -> bool:
    """Returns whether one step up, or else down, changes the picture; moves the slider back."""
    keys = ["ArrowRight", "ArrowLeft"]
    if slider.at_maximum:
        keys.reverse()
    for there, back in (keys, keys[::-1]):
        before = notebook.call("signature", panel.id)
        notebook.locate(slider).press(there)
        changed = notebook.changed(panel, before)
        notebook.locate(slider).press(back)
        notebook.settle()
        if changed:
            return True
    return False


class Walk:
    """Tries every control of a panel in its current state and in every mode of its choices."""

    def __init__(self, notebook: Notebook, panel: Panel) -> None:
        self.notebook, self.panel = notebook, panel
        self.done: set[Key] = set()
        self.complaints: list[str] = []

    def run(self) -> list[str]:
        """Tries all controls, and returns the complaints."""
        self._walk()
        return self.complaints

    def _complain(self, control: Control, text: str) -> None:
        self.complaints.append(f"cell {self.panel.cell}: {control.kind} {control.name!r} {text}")

    def _of_panel(self, function: str) -> Any:
        return self.notebook.call(function, self.panel.id)

    def _usable(self, *kinds: str) -> dict[Key, Control]:
        found = keyed(self.notebook.controls(self.panel, *kinds))
        return {key: control for key, control in found.items() if control.usable}

    def _next(self, *kinds: str) -> tuple[Key, Control] | None:
        """Returns the first usable control that has not been tried, and marks it as tried."""
        for key, control in self._usable(*kinds).items():
            if key not in self.done:
                self.done.add(key)
                return key, control
        return None

    def _walk(self) -> None:
        leaves = {"slider": self._slider, "text": self._text, "button": self._button}
        for kind, act in leaves.items():
            while found := self._next(kind):
                act(found[1])
        self._plays()
        while found := self._next(*MODES):
            self._mode(*found)

    def _slider(self, slider: Control) -> None:
        moved = moves(self.notebook, self.panel, slider)
        if not moved and not self._of_panel("errorText"):
            self._complain(slider, "leaves the picture as it is")

    def _text(self, field: Control) -> None:
        if self.panel.kind != "panel":
            return
        before = self._of_panel("signature")
        self._type(field, GARBAGE)
        if field.name == "error text":  # a search takes any text, and says where nothing is like it
            if not self.notebook.locate(field).page.get_by_text("Nothing matches").count():
                self._complain(field, f"finds something for {GARBAGE!r}")
        elif not self._of_panel("errorText"):
            self._complain(field, f"takes {GARBAGE!r} without a word")
        elif self._of_panel("signature") != before:
            self._complain(field, "loses its picture over wrong input")
        self._type(field, field.value)
        if error := self._of_panel("errorText"):
            self._complain(field, f"still shows its error after right input: {error}")
        if self._of_panel("signature") != before:
            self._complain(field, "does not come back to its picture after right input")

    def _type(self, field: Control, text: str) -> None:
        where = self.notebook.locate(field)
        where.fill(text)
        where.blur()
        self.notebook.settle()

    def _button(self, button: Control) -> None:
        self.notebook.locate(button).click()
        self.notebook.settle()

    def _plays(self) -> None:
        """Presses play, waits until the picture moves, and stops.

        There are three buttons: play, stop and repeat.
        """
        buttons = self.notebook.controls(self.panel, "play")
        for i in range(0, len(buttons), 3):
            play, stop = buttons[i : i + 2]
            if ("play", play.name, i) in self.done or not play.usable:
                continue
            self.done.add(("play", play.name, i))
            before = self._of_panel("signature")
            self.notebook.locate(play).click()
            if not self.notebook.changed(self.panel, before, quiet=PLAYS_WITHIN):
                self._complain(play, "plays, and the picture stays")
            self.notebook.locate(stop).click()
            self.notebook.settle(quiet=0.4)

    def _mode(self, key: Key, control: Control) -> None:
        if control.kind == "dropdown":
            for option in control.options:
                self._set(key, option)
                self._walk()
            self._set(key, control.value)
        elif control.kind in ("toggle", "checkbox"):
            self._set(key, "")
            self._walk()
            self._set(key, "")
        elif control.value == "off":
            on = [k for k, other in self._usable(control.kind).items() if other.value == "on"]
            self._set(key, "")
            self._walk()
            for other in on:
                self._set(other, "")

    def _set(self, key: Key, option: str) -> None:
        control = self._usable().get(key)
        if control is None:  # the panel may have hidden it
            return
        where = self.notebook.locate(control)
        where.select_option(label=option) if key[0] == "dropdown" else where.click()
        self.notebook.settle()


def unreached_by_tab(notebook: Notebook, panel: Panel) -> list[str]:
    """Lists the controls of a panel that Tab does not reach from its first one."""
    controls = [control for control in notebook.controls(panel) if control.usable]
    left = {
        control.id: control for control in controls if control.kind != "radio"
    }  # radios are one stop together
    if not controls:
        return []
    notebook.locate(controls[0]).focus()
    for _ in range(3 * len(controls) + 10):
        left.pop(notebook.call("focused") or "", None)
        if not left:
            break
        notebook.page.keyboard.press("Tab")
    return [f"cell {panel.cell}: Tab does not reach {c.kind} {c.name!r}" for c in left.values()]


def unanswering_quiz(notebook: Notebook, panel: Panel) -> list[str]:
    """Gives the last answer of a quiz, and complains if this changes no text."""
    before = notebook.call("panelText", panel.id)
    notebook.locate(notebook.controls(panel, "radio")[-1]).click()
    notebook.settle()
    for button in notebook.controls(panel, "button"):
        if button.usable:
            notebook.locate(button).click()
            notebook.settle()
    if notebook.call("panelText", panel.id) != before:
        return []
    return [f"cell {panel.cell}: the quiz does not answer"]


def faint_texts(notebook: Notebook, cell: int, sample: int = 30) -> list[str]:
    """Lists the texts in a cell's SVG pictures with a contrast below 4.5:1."""
    return [
        f"cell {cell}: {text['text']!r} has contrast {text['ratio']:.1f}:1 "
        f"({text['ink']} on {text['ground']})"
        for text in notebook.call("contrasts", cell, sample)
        if text["ratio"] < CONTRAST
    ]


def barriers(notebook: Notebook, *rules: str) -> list[str]:
    """Returns what axe-core finds serious or critical, by all or some of its rules."""
    notebook.call("unclip")
    options = {"resultTypes": ["violations"]} | ({"runOnly": list(rules)} if rules else {})
    found = Axe().run(notebook.page, AUDITED, options).response["violations"]
    return [
        f"cell {notebook.call('cellOf', node['target'][-1])}: "
        f"{barrier['id']} ({barrier['impact']}): {node['html']}"
        for barrier in found
        if barrier["impact"] in GRAVE
        for node in barrier["nodes"]
    ]


OPEN = """
async ([source, state]) => {
  const blob = new Blob([source], { type: "text/javascript" });
  window.module = await import(URL.createObjectURL(blob));
  window.mounted = module.mount(document.querySelector("main"), state);
}
"""


def mounted(browser: Browser, panel: BatchPanel, state: object, width: int) -> Iterator[Page]:
    """Mounts a panel on a plain page, and closes the page. No error may occur on the page."""
    page = browser.new_page(viewport={"width": width, "height": 700}, reduced_motion="reduce")
    errors: list[Exception] = []
    page.on("pageerror", lambda error: errors.append(error))
    page.set_content(f"<html lang=en><style>{panel._css}</style><main></main>")
    page.evaluate(OPEN, [panel._esm, state])
    yield page
    page.close()
    assert not errors


def illegible(page: Page, width: int, progress: float) -> list[str]:
    """Lists the small texts of a panel on a plain page that is as wide, and whether it is cut."""
    page.set_viewport_size({"width": width, "height": 700})
    page.wait_for_function("width => mounted.panel.width <= width", arg=width)
    page.evaluate("progress => mounted.panel.setProgress(progress)", progress)
    return page.evaluate(
        """width => [...document.querySelectorAll("html, svg text")]
             .filter(part => {
               const { visibility, fontSize } = getComputedStyle(part);
               const isSmall = visibility === "visible" && parseFloat(fontSize) < 11;
               return isSmall || (part.localName === "html" && part.scrollWidth > width);
             })
             .map(part => part.textContent)""",
        width,
    )


def played_and_paused(page: Page) -> float:
    """Plays a panel that was mounted on a plain page, and returns where it was stopped."""
    page.emulate_media(reduced_motion="no-preference")
    page.click(".play")
    page.wait_for_function("mounted.panel.progress > 0.05")
    page.click(".play")
    paused: float = page.evaluate("mounted.panel.progress")
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return paused
