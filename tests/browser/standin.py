"""Notebook cells with a small panel, good and spoilt, on which the checks are tried."""

SETUP = '''
import sys
import anywidget
import ipywidgets as w
from IPython.display import HTML, Javascript, display


class Namer(anywidget.AnyWidget):
    _esm = """
    function name(root) {
      for (const label of root.querySelectorAll(".widget-slider > label")) {
        label.parentElement.querySelector("[role=slider]")?.setAttribute("aria-label", label.textContent);
      }
      for (const play of root.querySelectorAll(".widget-play")) {
        ["play", "stop", "repeat"].forEach((name, i) => play.children[i].setAttribute("aria-label", name));
      }
      for (const button of root.querySelectorAll(".no-tab")) button.tabIndex = -1;
    }
    export default { render({ el }) {
      new MutationObserver(() => name(document)).observe(document.body, { childList: true, subtree: true });
      name(document);
    } };
    """


class Panel(w.VBox):
    def __init__(self, rows=8, steps=10, ink="var(--jp-ui-font-color1, #222)"):
        self.ink = ink
        self.rows = w.IntSlider(rows // 2, 1, rows, description="rows")
        self.steps = w.IntSlider(steps // 2, 1, steps, description="steps", continuous_update=False)
        self.kind = w.Dropdown(options=["equal", "list"], description="kind")
        self.look = w.ToggleButtons(options=["plain", "bold"], description="look")
        self.hatch = w.Checkbox(description="hatch")
        self.typed = w.Textarea("5 3 2", description="lengths")
        self.play = w.Play(min=1, max=rows, value=1, interval=150)
        self.reset = w.Button(description="reset")
        self.picture = w.HTML().add_class("packviz-picture")
        self.error = w.HTML().add_class("packviz-error")
        w.jslink((self.play, "value"), (self.rows, "value"))
        controls = [self.rows, self.steps, self.kind, self.look, self.hatch, self.typed]
        super().__init__([self.play, self.reset, *controls, self.picture, self.error])
        self.add_class("packviz-panel")
        for control in controls:
            control.observe(self.draw, names="value")
        self.draw()

    def lengths(self):
        if self.kind.value == "equal":
            return [self.steps.value] * self.rows.value
        return [int(word) for word in self.typed.value.split()] + [self.steps.value]

    def draw(self, _=None):
        if self.kind.layout.display != "none":
            self.typed.layout.display = None if self.kind.value == "list" else "none"
        self.rows.disabled = self.kind.value == "list"
        try:
            lengths = self.lengths()
        except ValueError as error:
            self.error.value = str(error)
            return
        self.error.value = ""
        ground = "var(--jp-layout-color2, #eee)"
        rows = "".join(
            f'<rect x="0" y="{20 * i}" width="{10 * n}" height="18" style="fill:{ground}"/>'
            f'<text x="4" y="{20 * i + 14}" font-size="12" style="fill:{self.ink}">{n}</text>'
            for i, n in enumerate(lengths)
        )
        style = f"{self.look.value} {self.hatch.value}"
        self.picture.value = f'<svg width="600" height="{20 * len(lengths)}" class="{style}">{rows}</svg>'


def only(panel, *names):
    """Hides all controls of the panel except these."""
    for name in {"rows", "steps", "kind", "look", "hatch", "typed", "play", "reset"} - set(names):
        getattr(panel, name).layout.display = "none"
    return panel


class Quiz(w.VBox):
    def __init__(self, mute=False):
        self.answer = w.RadioButtons(options=["64", "45", "19"], index=None)
        self.button = w.Button(description="check")
        self.words = w.HTML()
        super().__init__([self.answer, self.button, self.words])
        self.add_class("packviz-quiz")
        if not mute:
            self.button.on_click(lambda _: setattr(self.words, "value", f"you said {self.answer.value}"))


Namer()
'''

GOOD = "panel = Panel(); panel"
GOOD_QUIZ = "Quiz()"

SPOILT = {
    "callback raises": """
e = Panel()
e.rows.observe(lambda change: 1 / 0, names="value")
only(e, "rows")
""",
    "dead slider": """
e = Panel()
e.rows.unobserve_all("value")
only(e, "rows")
""",
    "nameless slider": "e = Panel(); e.steps.description = ''; only(e, 'steps')",
    "careless field": """
class Careless(Panel):
    def lengths(self):
        return [len(word) for word in self.typed.value.split()] + [self.steps.value] * self.rows.value
e = Careless()
e.kind.value = "list"
only(e, "typed")
""",
    "loses its picture": """
class Loses(Panel):
    def draw(self, _=None):
        super().draw()
        if self.error.value:
            self.picture.value = ""
e = Loses()
e.kind.value = "list"
only(e, "typed")
""",
    "faint text": "Panel(ink='#888')",
    "no tab": "e = Panel(); e.reset.add_class('no-tab'); e",
    "mute quiz": "Quiz(mute=True)",
    "faint words": "HTML('<p style=\"color:#999;background:#fff\">faint</p>')",
    "outside image": "HTML('<img src=\"https://packviz.invalid/pixel.png\">')",
    "outside socket": "Javascript('new WebSocket(\"wss://packviz.invalid/socket\")')",
    "page error": "Javascript('setTimeout(() => { throw new Error(\"canary on the page\") })')",
    "console error": "Javascript('console.error(\"canary on the console\")')",
    "stderr": "print('canary on stderr', file=sys.stderr)",
    "cell raises": "raise RuntimeError('canary in a cell')",
    "cell is not run": "print('never')",
}
