"""Builds the web site: `python docs/build.py OUT [OWNER/NAME]`.

The optional argument is the name of a GitHub repository to link to.

The script writes the stored notebooks as Markdown to OUT-source, and runs Sphinx on that folder. It
runs no notebook.
The stored outputs become HTML: pictures whose colours follow the page, charts that plotly draws on
demand, quizzes that check the answer, solutions that unfold, and panels that move through frames
(see frames.py).
"""

from __future__ import annotations

import ast
import base64
import gc
import json
import re
import shutil
import sys
import tomllib
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from html import escape
from os.path import normpath
from pathlib import Path
from types import ModuleType
from typing import Any

import plotly
from frames import WALKS, Frames
from sphinx.cmd.build import build_main as sphinx

import packviz as pv
from packviz import panels
from packviz.draw import palette

DOCS = Path(__file__).resolve().parent
REPO = DOCS.parent
PANELS = REPO / "packviz" / "panels"
# A page that is opened as a file cannot load a module, so the module is a part of the page.
MOVING = (
    panels.StatePanel._esm
    + """
for (const place of document.querySelectorAll("[data-batch]")) {
  place.replaceChildren();
  mount(place, JSON.parse(place.dataset.batch));
}
"""
)
RECORDED = (
    "This panel measures on your machine. Here you see a recorded result; "
    "JupyterLab has the controls."
)
TITLES = {
    "core": "Lengths",
    "draw": "Pictures",
    "ops": "Packing and running",
    "count": "Counts",
    "check": "Checks",
    "measure": "Times",
    "panels": "Panels",
}
"""The titles of the pages of the API reference, by subpackage."""

_LIVE = {colour: getattr(palette.LIVE, name) for name, colour in vars(palette.LIGHT).items()}
PLOTLY = "application/vnd.plotly.v1+json"
_ASK = re.compile(r'^ask\("([^"]+)"\)\n*', re.M)
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)#:]+)(#[^)]*)?\)")
_IMAGE = re.compile(r'<img alt="([^"]*)"([^>]*) src="data:image/png;base64,([^"]*)">')


def live(svg: str) -> str:
    """Returns a stored picture in colours that follow the page.

    White text stays white, because it is on a fill that stays the same. Only a ✗ follows the page,
    as its fill does.
    """
    ElementTree.register_namespace("", "http://www.w3.org/2000/svg")
    root = ElementTree.fromstring(svg)
    for element in root.iter():
        is_text = element.tag.rpartition("}")[2] in ("text", "tspan", "g")
        fill = element.get("fill", "")
        stays = is_text and fill == palette.LIGHT.ground and {*element.itertext()} != {"✗"}
        if fill in _LIVE and not stays:
            element.set("fill", _LIVE[fill])
        if element.get("stroke") in _LIVE:
            element.set("stroke", _LIVE[element.get("stroke", "")])
    return ElementTree.tostring(root, encoding="unicode")


def read(path: str) -> str:
    """Returns the text of a file of the repository."""
    return (REPO / path).read_text(encoding="utf-8")


def raw(html: str) -> str:
    """Returns HTML in a form that Markdown leaves unchanged."""
    return f"``````{{raw}} html\n{html}\n``````"


def box(kind: str, html: str) -> str:
    """Returns HTML in a box, which scrolls sideways if its content is wider than the page."""
    return f'<div class="pv-{kind} packviz" tabindex="0">{html}</div>'


def _is_exercise(cell: dict[str, Any]) -> bool:
    return "exercise" in cell["metadata"].get("tags", ())


class Site:
    """The folder of source files for Sphinx.

    Attributes:
        out: the folder.
        repository: the `owner/name` on GitHub, or an empty string.
    """

    def __init__(self, out: Path, repository: str = "") -> None:
        self.out = out
        self.static = out / "_static"
        self.repository = repository
        self.quizzes = tomllib.loads(read("packviz/lessons/quizzes.toml"))
        self.pages = {"README.md", "CHANGELOG.md", "CONTRIBUTING.md"}
        for path in [*REPO.glob("notebooks/*.ipynb"), *DOCS.glob("*.md")]:
            self.pages.add(path.relative_to(REPO).as_posix())
        self.pages.remove("docs/front.md")

    def write(self) -> None:
        """Writes all files of the folder."""
        shutil.rmtree(self.out, ignore_errors=True)
        for folder in ("notebooks", "api", "docs", "_static/frames", "_static/charts"):
            (self.out / folder).mkdir(parents=True)
        script = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
        for path in (*DOCS.glob("site.*"), DOCS / "picture.svg", PANELS / "batch.css", script):
            shutil.copy(path, self.static)
        shutil.copy(DOCS / "palette.svg", self.out / "docs")
        dark = dict(zip(vars(palette.LIGHT).values(), vars(palette.DARK).values(), strict=True))
        (self.static / "colours.js").write_text(
            f"const packvizDark = {json.dumps(dark)}, packvizFrames = {{}};\n"
        )
        (self.static / "palette.css").write_text(palette.STYLE + "\n")
        for page in sorted(self.pages):
            text = read(page)
            if page.endswith(".ipynb"):
                text = "\n\n".join(self.notebook(Path(page), json.loads(text)["cells"]))
            elif page == "README.md":  # the front page already has the title and the picture
                text = text.replace("# packviz", "# Install and use", 1)
                text = re.sub(r"<picture>.*?</picture>\n\n.*?\n\n", "", text, flags=re.DOTALL)
            target = (self.out / page).with_suffix(".md")
            target.write_text(self.linked(text, Path(page).parent) + "\n", encoding="utf-8")
        binder = ""
        if self.repository:
            address = self.binder("00_start_here.ipynb")
            binder = f"[on Binder]({address}), with nothing installed, or "
        index = read("docs/front.md").replace("BINDER", binder)
        index = index.replace("PANEL", raw(moving_batch(panels.BatchPanel())))
        (self.out / "index.md").write_text(index, encoding="utf-8")
        for i, (subpackage, title) in enumerate(TITLES.items(), 1):
            page = f"{i}-{title.lower().replace(' ', '-')}.rst"
            (self.out / "api" / page).write_text(api(subpackage, title))

    def linked(self, text: str, folder: Path) -> str:
        """Makes links lead to pages of the site or to files in the repository.

        If the repository's name is unknown, only the text remains of links to its files.
        """

        def to(match: re.Match[str]) -> str:
            words, relative, fragment = match.groups("")
            target = normpath(folder / relative)
            if target in self.pages:
                return f"[{words}]({relative.rpartition('.')[0]}.md{fragment})"
            if not (REPO / target).exists():
                return match[0]
            address = f"https://github.com/{self.repository}/blob/HEAD/{target}"
            return f"[{words}]({address})" if self.repository else words

        return _LINK.sub(to, text)

    def binder(self, name: str) -> str:
        """Returns the address at which Binder opens a notebook."""
        return (
            f"https://mybinder.org/v2/gh/{self.repository}/HEAD?urlpath=lab/tree/notebooks/{name}"
        )

    def notebook(self, path: Path, cells: list[dict[str, Any]]) -> Iterator[str]:
        """Yields a stored notebook as Markdown, in parts."""
        solved = read(f"{path.parent}/solutions/{path.name}")
        solutions = filter(_is_exercise, json.loads(solved)["cells"])
        for i, cell in enumerate(cells):
            source = "".join(cell["source"])
            if cell["cell_type"] == "markdown":
                # A number and its unit stay on one line.
                source = re.sub(r"(?<=\d) (?=%|min )", "\u00a0", source)
                if i == 0:
                    opening, section, rest = source.partition("\n## ")
                    yield opening.replace("# ", f"# {path.stem[:2]} · ", 1)
                    yield raw(self.opened(path.name))
                    source = section + rest
                yield source
                continue
            asked = _ASK.findall(source)
            code = _ASK.sub("", source).strip("\n")
            if code:
                yield f"```python\n{code}\n```"
            yield from (raw(self.quiz(name)) for name in asked)
            if _is_exercise(cell):
                yield from self.solution(next(solutions))
            elif not asked and cell["outputs"]:
                html = "".join(self.output(output, cell["id"]) for output in cell["outputs"])
                yield raw(self.moving(code, cell["id"], html))

    def opened(self, name: str) -> str:
        """Returns a line that explains how to run this page."""
        how = (
            f"To run and change this page, type <code>make lab</code> and open <code>{name}</code>"
        )
        if self.repository:
            how += f' or <a href="{self.binder(name)}">open it on Binder</a>'
        return f'<p class="pv-open">{how}.</p>'

    def quiz(self, name: str) -> str:
        """Returns a question as a form, whose feedback is hidden until the button is pressed."""
        quiz = self.quizzes[name]
        group = re.sub(r"\W+", "-", name)
        parts = [f"<legend>{escape(quiz['question'])}</legend>"]
        for choice, why in quiz["choices"].items():
            right = " data-right" if choice == quiz["answer"] else ""
            field = f'<input type="radio" name="{group}"> {escape(choice)}'
            parts.append(f'<label data-why="{escape(why)}"{right}>{field}</label>')
        check = '<button type="button" disabled>Check my answer</button><p role="status"></p>'
        fields = f"<fieldset>{''.join(parts)}</fieldset>"
        return f'<form class="pv-quiz packviz">{fields}{check}</form>'

    def solution(self, cell: dict[str, Any]) -> Iterator[str]:
        """Yields a solved exercise, which is folded at first."""
        yield raw('<details class="pv-solution"><summary>A solution</summary>')
        yield f"```python\n{''.join(cell['source'])}\n```"
        html = [self.output(output, f"{cell['id']}-solved") for output in cell["outputs"]]
        yield raw(f"{''.join(html)}</details>")

    def output(self, output: dict[str, Any], key: str) -> str:
        """Returns a stored output as HTML."""
        data = output.get("data", {})
        if "image/svg+xml" in data:
            return box("picture", live("".join(data["image/svg+xml"])))
        if PLOTLY in data:
            return self.chart(data, key)
        if "text/html" in data:
            return box("table", "".join(data["text/html"]).replace(".ipynb", ".html"))
        text = "".join(output.get("text") or data["text/plain"])
        return f'<pre class="pv-output" tabindex="0">{escape(text.rstrip())}</pre>'

    def chart(self, data: dict[str, Any], key: str) -> str:
        """Returns the stored image of a chart, and the data from which plotly draws it."""
        words, size, image = _IMAGE.findall("".join(data["text/html"]))[0]
        (self.static / "charts" / f"{key}.png").write_bytes(base64.b64decode(image))
        figure = json.dumps(data[PLOTLY], ensure_ascii=False)
        figure = figure.replace("<", "\\u003c")
        image = f'<img alt="{words}" loading="lazy"{size} src="../_static/charts/{key}.png">'
        return box("chart", f'{image}<script type="application/json">{figure}</script>')

    def moving(self, code: str, key: str, html: str) -> str:
        """Returns a cell's output. A panel gets controls, or a line that says why it has none."""
        if "Panel(" not in code:
            return html
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in panels.__all__:
                call = ast.unparse(node)
                if call.startswith(("BatchPanel(", "StatePanel(")):
                    return moving_batch(eval(call, vars(panels)))
                if call.startswith(tuple(WALKS)):
                    return self.panel(Frames(call), key)
                return f'{html}<p class="pv-rest">{RECORDED}</p>'
        return html

    def panel(self, frames: Frames, key: str) -> str:
        """Returns a panel at its first frame, with HTML controls."""
        (self.static / "frames" / f"{key}.js").write_text(frames.script(key), encoding="utf-8")
        controls = "".join(control(widget, frames) for widget in frames.controls)
        picture, summary, error, words = frames.frames[0]
        kind = "picture" if picture.startswith("<svg") else "table"
        parts = [
            f'<div class="pv-controls">{controls}</div>',
            f'<div class="error" role="alert">{error}</div>',
            f'<div class="summary" role="status">{summary}</div>',
            box(kind, picture),
            "<details><summary>Picture as text</summary>",
            f"<pre tabindex='0'>{words}</pre></details>",
            f'<p class="pv-rest">{frames.rest()}</p>',
        ]
        return f'<div class="pv-panel packviz" data-key="{key}">{"".join(parts)}</div>'


def moving_batch(panel: panels.BatchPanel) -> str:
    """Returns a batch that the page draws, and its picture for a page without scripts."""
    names = {"kind", "lengths", "longest", "draws", "weights", "x"} & {*panel.trait_names()}
    state = {name: getattr(panel, name) for name in sorted(names)}
    still = live(panel.still.to_svg())
    data = escape(json.dumps(state))
    here = f'<div class="packviz" data-batch="{data}">{box("picture", still)}</div>'
    return f'{here}<script type="module">{MOVING}</script>'


def control(widget: Any, frames: Frames) -> str:
    """Returns the HTML control that replaces a widget."""
    values = frames.controls[widget]
    at = values.index(frames.start[widget])
    if type(values[0]) is int:
        last = len(values) - 1
        data = f'data-values="{" ".join(map(str, values))}" aria-valuetext="{values[at]}"'
        inner = f'<input type="range" min="0" max="{last}" value="{at}" {data}>'
        inner += f"<output>{values[at]}</output>"
    elif values == [False, True]:
        inner = f'<input type="checkbox"{" checked" * at}>'
    else:
        options = [f"<option>{escape(value)}</option>" for value in values]
        options[at] = options[at].replace("<option", "<option selected")
        inner = f"<select>{''.join(options)}</select>"
    hidden = "" if widget in frames.offered else " hidden"
    return f"<label{hidden}><span>{escape(widget.description)}</span> {inner}</label>"


def api(subpackage: str, title: str) -> str:
    """Returns a page of the API reference in reStructuredText: a subpackage's public names."""
    lines = [title, "=" * len(title)]
    paths = vars(pv)["_MODULES"] | vars(pv)["_SUBMODULES"]
    for name, path in sorted(paths.items()):
        if path.partition(".")[0] != subpackage:
            continue
        lines += ["", f"pv.{name}", "-" * (len(name) + 3), ""]
        value = getattr(pv, name)
        entries = {f"packviz.{name}": value}
        if isinstance(value, ModuleType):
            lines += [f".. automodule:: packviz.{path}", "   :no-members:", ""]
            entries = {f"packviz.{path}.{inner}": part for inner, part in vars(value).items()}
        for entry, part in entries.items():
            own = getattr(part, "__module__", "").startswith(f"packviz.{path}")
            if own and "._" not in entry:
                kind = "class" if isinstance(part, type) else "function"
                lines += [f".. auto{kind}:: {entry}", ""]
    return "\n".join(lines)


def main(out: str, repository: str = "") -> int:
    """Writes the pages, and runs Sphinx with warnings as errors."""
    source = Path(f"{out}-source").resolve()
    Site(source, repository).write()
    static = f"html_static_path={source / '_static'}"
    options = ["-q", "-E", "-W", "--keep-going", "-c", str(DOCS), "-D", static]
    shutil.rmtree(out, ignore_errors=True)
    status: int = sphinx([*options, str(source), out])
    return status


if __name__ == "__main__":
    gc.disable()  # it takes a seventh of the time, and frees little before the end
    sys.exit(main(*sys.argv[1:]))
