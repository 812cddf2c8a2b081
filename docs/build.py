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
import contextlib
import gc
import io
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
import torch
from frames import WALKS, Frames
from sphinx.cmd.build import build_main as sphinx

import packviz as pv
from packviz import lessons, panels
from packviz.check import museum
from packviz.count import profile
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
TIMED = (
    "These times were recorded when this page was made, on one CPU thread unless the text says "
    "otherwise. The cell measures anew on your machine."
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
SVG = "{http://www.w3.org/2000/svg}"
WORDS = (f"{SVG}text", f"{SVG}tspan", f"{SVG}g")
ElementTree.register_namespace("", "http://www.w3.org/2000/svg")
LARGE = "13"  # px: the font size of the title of a stack
LINE = 18  # px: the height of a further line of this title
TITLE = 20  # px: the height of a picture's title
_ALIGNED = re.compile(r"\S {3,}# ")  # comments in a column, which a narrow box would break
_PLUMBING = re.compile(
    r"\A((import|from) [^(\n]*(\([^)]*\)[^\n]*)?\n*)+\Z|recordings\(|STUDY\.|benchmarks?\."
)
LONG = 8  # a cell without output is folded if it has more lines
LOST = """# This page does not exist

Try the [front page](index.md), or search on the left.
"""
PLOTLY = "application/vnd.plotly.v1+json"
_ASK = re.compile(r'^ask\("([^"]+)"\)\n*', re.M)
_NEIGHBOURS = re.compile(r"\n(Next|Back): \[[^]]*\].*", re.S)
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)#:]+)(#[^)]*)?\)")
_IMAGE = re.compile(r'<img alt="([^"]*)"([^>]*) src="data:image/png;base64,([^"]*)">')


def recolour(root: ElementTree.Element) -> None:
    """Gives a stored picture colours that follow the page.

    White text stays white, because it is on a fill that stays the same. Only a ✗ follows the page,
    as its fill does.
    """
    for element in root.iter():
        for name in ("fill", "stroke"):
            colour = element.get(name, "")
            is_white_text = (
                name == "fill" and element.tag in WORDS and colour == palette.LIGHT.ground
            )
            stays = is_white_text and {*element.itertext()} != {"✗"}
            if colour in _LIVE and not stays:
                element.set(name, _LIVE[colour])


def figure(svg: str) -> str:
    """Returns a stored picture in colours that follow the page.

    Its title becomes a caption that wraps and that readers can select. A picture without a title
    gets the first line of its words as its caption, below it.
    """
    root = ElementTree.fromstring(svg)
    recolour(root)
    groups = [root, *(part for part in root if not part.get("transform"))]
    words = [text for group in groups for text in group if text.tag == f"{SVG}text"]
    first = [text for text in words if text.get("y") == "16"]
    titles = [text for text in first if text.get("x") == "4"]
    if not titles:
        line = root.get("aria-label", "").partition("\n")[0]
        drawn = ElementTree.tostring(root, "unicode")
        return f'{drawn}<figcaption class="pv-below">{escape(line)}</figcaption>'
    (group,) = (group for group in groups if titles[0] in group)
    if group.get("font-size") == LARGE:  # the title of a stack may have several lines
        titles = [*group]
    for title in titles:
        group.remove(title)
    if len(first) == 1:
        top = TITLE + LINE * (len(titles) - 1)
        height = float(root.get("height", "")) - top
        root.set("viewBox", f"0 {top} {root.get('width')} {height:g}")
        root.set("height", f"{height:g}")
    caption = " ".join("".join(title.itertext()) for title in titles)
    drawn = ElementTree.tostring(root, "unicode")
    return f"<figcaption>{escape(caption)}</figcaption>{drawn}"


def read(path: str) -> str:
    """Returns the text of a file of the repository."""
    return (REPO / path).read_text(encoding="utf-8")


def raw(html: str) -> str:
    """Returns HTML in a form that Markdown leaves unchanged."""
    return f"``````{{raw}} html\n{html}\n``````"


def box(kind: str, html: str) -> str:
    """Returns HTML in a box, which scrolls sideways if its content is wider than the page."""
    tag = "div" if kind == "table" else "figure"
    return f'<{tag} class="pv-{kind} packviz" tabindex="0">{html}</{tag}>'


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
        for path in (*DOCS.glob("site.*"), DOCS / "preview.png", PANELS / "batch.css", script):
            shutil.copy(path, self.static)
        shutil.copy(DOCS / "palette.svg", self.out / "docs")
        shutil.copy(DOCS / "favicon.svg", self.static)
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
            text = self.linked(text, Path(page).parent)
            target.write_text(f"{text}\n", encoding="utf-8")
        binder = ""
        if self.repository:
            address = self.binder("00_start_here.ipynb")
            binder = f"[on Binder]({address}), with nothing installed, or "
        link = f"https://github.com/{self.repository}"
        parts = {
            "BINDER": binder,
            "REPOSITORY": f"[The repository]({link}) · " if self.repository else "",
            **numbers(),
            "PANEL": raw(moving_batch(panels.BatchPanel())),
        }
        index = read("docs/front.md")
        for name, part in parts.items():
            index = index.replace(name, part)
        (self.out / "index.md").write_text(index, encoding="utf-8")
        (self.out / "404.md").write_text(LOST)
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
                if i == len(cells) - 1:  # the site has links of its own to the next page
                    source = _NEIGHBOURS.sub("", source)
                yield source
                continue
            asked = _ASK.findall(source)
            code = _ASK.sub("", source).strip("\n")
            if code:
                listing = f"```python\n{code}\n```"
                if _ALIGNED.search(code):
                    listing = f"{raw('<div class=pv-aligned>')}\n\n{listing}\n\n{raw('</div>')}"
                folds = is_plumbing(code, cell) and not _is_exercise(cell)
                yield folded(code, listing) if folds else listing
            yield from (raw(self.quiz(name)) for name in asked)
            if _is_exercise(cell):
                yield from self.solution(next(solutions))
            elif not asked and cell["outputs"]:
                html = "".join(self.output(output, cell["id"]) for output in cell["outputs"])
                yield raw(self.moving(code, cell["id"], html))
                if "live-timing" in cell["metadata"].get("tags", ()):
                    yield raw(f'<p class="pv-rest">{TIMED}</p>')

    def opened(self, name: str) -> str:
        """Returns a line that explains how to run this page."""
        how = (
            f"To run and change this page, type <code>make lab</code> and open <code>{name}</code>"
        )
        if self.repository:
            how += f' or <a href="{self.binder(name)}">open it on Binder</a>'
        show = '<button type="button" class="pv-unfold" hidden>Show all code</button>'
        return f'<p class="pv-open">{how}. {show}</p>'

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
            return box("picture", figure("".join(data["image/svg+xml"])))
        if PLOTLY in data:
            return self.chart(data, key)
        if "text/html" in data:
            return box("table", "".join(data["text/html"]).replace(".ipynb", ".html"))
        text = "".join(output.get("text") or data["text/plain"])
        return f'<pre class="pv-output" tabindex="0">{escape(text.rstrip())}</pre>'

    def chart(self, data: dict[str, Any], key: str) -> str:
        """Returns the stored image of a chart, and the data from which plotly draws it."""
        words, size, image = _IMAGE.findall("".join(data["text/html"]))[0]
        title = data[PLOTLY]["layout"]["title"]["text"]
        (self.static / "charts" / f"{key}.png").write_bytes(base64.b64decode(image))
        values = json.dumps(data[PLOTLY], ensure_ascii=False)
        values = values.replace("<", "\\u003c")
        image = f'<img alt="{words}" loading="lazy"{size} src="../_static/charts/{key}.png">'
        parts = [
            f"<figcaption>{escape(title)}</figcaption>",
            f'<div class="pv-drawn">{image}</div>',
            '<button type="button">Show the values when I point at them</button>',
            f'<script type="application/json">{values}</script>',
        ]
        return box("chart", "".join(parts))

    def moving(self, code: str, key: str, html: str) -> str:
        """Returns a cell's output. A panel gets controls, or a line that says why it has none."""
        if "Panel(" not in code:
            return html
        for node in ast.walk(ast.parse(code)):
            if not isinstance(node, ast.Call) or ast.unparse(node.func) not in panels.__all__:
                continue
            call = ast.unparse(node)
            if call.startswith(tuple(WALKS)):
                return self.panel(Frames(call), key)
            for start, draw in (
                ("BatchPanel", moving_batch),
                ("StatePanel", moving_batch),
                ("MuseumPanel", museum_search),
            ):
                if call.startswith(start):
                    return draw(eval(call, vars(panels)))
            return f'{html}<p class="pv-rest">{RECORDED}</p>'
        return html

    def panel(self, frames: Frames, key: str) -> str:
        """Returns a panel at its first frame, with HTML controls."""
        (self.static / "frames" / f"{key}.js").write_text(frames.script(key), encoding="utf-8")
        controls = "".join(control(widget, frames) for widget in frames.controls)
        picture, summary, error, words = frames.frames[0]
        kind = "picture" if "<svg" in picture else "table"
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


def is_plumbing(code: str, cell: dict[str, Any]) -> bool:
    """Returns whether a reader needs only the result of a cell, and not its code.

    This is so for imports, timings and recorded results, and for long cells that only prepare
    later ones.
    """
    if "live-timing" in cell["metadata"].get("tags", ()) or _PLUMBING.search(code):
        return True
    return not cell["outputs"] and code.count("\n") >= LONG


def folded(code: str, listing: str) -> str:
    """Returns a cell's code, folded."""
    lines = code.count("\n") + 1
    summary = f"Code ({lines} line{'s' * (lines > 1)})"
    opened = raw(f'<details class="pv-code"><summary>{summary}</summary>')
    return f"{opened}\n\n{listing}\n\n{raw('</details>')}"


def moving_batch(panel: panels.BatchPanel) -> str:
    """Returns a batch that the page draws, and its picture for a page without scripts."""
    names = {"kind", "lengths", "longest", "draws", "weights", "x"} & {*panel.trait_names()}
    state = {name: getattr(panel, name) for name in sorted(names)}
    still = figure(panel.still.to_svg())
    data = escape(json.dumps(state))
    here = f'<div class="packviz" data-batch="{data}">{box("picture", still)}</div>'
    return f'{here}<script type="module">{MOVING}</script>'


def museum_search(panel: panels.MuseumPanel) -> str:
    """Returns the search of the error museum, which needs no Python."""
    entries = []
    for entry in museum.ENTRIES:
        card = entry.to_html().replace(".ipynb", ".html")
        entries.append(vars(entry) | {"place": entry.place, "card": card, "texts": entry.texts})
    data = {
        "entries": entries,
        "packing": museum.PACKING,
        "error": museum.IS_ERROR.pattern,
        "idle": museum.IDLE,
        "doubts": [museum.SHARED, museum.SOME_WORDS],
    }
    text = json.dumps(data, ensure_ascii=False, default=vars).replace("<", "\\u003c")
    cards = "".join(entry.to_html() for entry in panel.matches).replace(".ipynb", ".html")
    parts = [
        "<label>Your error message, with its traceback, or a few words:",
        f"<textarea>{escape(panel.pasted.value)}</textarea></label>",
        f'<p role="status">{escape(panel.matches.summary)}</p>',
        box("table", cards),
        f'<script type="application/json">{text}</script>',
    ]
    script = (DOCS / "museum.js").read_text(encoding="utf-8")
    parts.append(f'</div><script type="module">{script}</script>')
    return f'<div class="pv-museum packviz">{"".join(parts)}'


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


def numbers() -> dict[str, str]:
    """Returns the three numbers of the front page, which are computed here."""
    printed = io.StringIO()
    code = re.findall(r"```python\n(.*?)```", read("README.md"), re.S)[0]
    with contextlib.redirect_stdout(printed):
        exec(code, {})
    sizes = [len(sentence) for sentence in lessons.sentences()]
    batches = [pv.Layout(sizes[i : i + 32]) for i in range(0, len(sizes), 32)]
    padding = sum(batch.n_padding for batch in batches) / sum(batch.n_cells for batch in batches)
    lstm = torch.nn.LSTM(16, 32)
    equal = profile.count_rnn(lstm, [65] * 64).backward.bytes
    ragged = profile.count_rnn(lstm, [65] * 63 + [64]).backward.bytes
    return {
        "MOVED": printed.getvalue().strip(),
        "PADDING": f"{100 * padding:.0f}\u00a0%",
        "BYTES": f"{ragged / equal:,.0f}\u00a0×",
    }


def api(subpackage: str, title: str) -> str:
    """Returns a page of the API reference in reStructuredText: a subpackage's public names."""
    lines = [title, "=" * len(title)]
    paths = vars(pv)["_MODULES"] | vars(pv)["_SUBMODULES"]
    for name, path in sorted(paths.items()):
        if path.partition(".")[0] != subpackage:
            continue
        value = getattr(pv, name)
        kind = "class" if isinstance(value, type) else "function"
        entry = f"auto{kind}:: packviz.{name}"
        if isinstance(value, ModuleType):
            entry = f"automodule:: packviz.{path}"
        lines += ["", f"pv.{name}", "-" * (len(name) + 3), "", f".. {entry}"]
    return "\n".join(lines)


def main(out: str, repository: str = "") -> int:
    """Writes the pages, and runs Sphinx with warnings as errors."""
    source = Path(f"{out}-source").resolve()
    Site(source, repository).write()
    static = f"html_static_path={source / '_static'}"
    trees = f"{source}/.doctrees"  # outside the site, which nobody reads them from
    options = ["-q", "-E", "-W", "--keep-going", "-d", trees, "-c", str(DOCS), "-D", static]
    options += ["-A", f"repository={repository}"]
    shutil.rmtree(out, ignore_errors=True)
    status: int = sphinx([*options, str(source), out])
    return status


if __name__ == "__main__":
    gc.disable()  # it takes a seventh of the time, and frees little before the end
    sys.exit(main(*sys.argv[1:]))
