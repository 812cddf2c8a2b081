"""Builds the web site: `python docs/build.py OUT [OWNER/NAME]`.

The optional argument is the name of a GitHub repository to link to.

The script turns the stored notebooks and the documents into pages, and runs no notebook.
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
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from html import escape
from os.path import normpath
from pathlib import Path
from typing import Any

import plotly
import reference
from figures import box, figure
from frames import Frames
from jinja2 import Environment, FileSystemLoader, Template
from markup import MARKDOWN, anchor, raw
from markupsafe import Markup
from pygments.formatters import HtmlFormatter

from packviz import lessons, panels
from packviz.check import museum
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
CAPTIONS = {
    "BatchPanel": "Packing sorts the rows, drops the padding, and stores column after column.",
    "StatePanel": "After its last real step, a packed state stays, and a padded one moves on.",
}
"""The captions of the panels that the page draws."""
REFERENCE = {
    "core": "1-lengths",
    "draw": "2-pictures",
    "ops": "3-packing-and-running",
    "count": "4-counts",
    "check": "5-checks",
    "measure": "6-times",
    "panels": "7-panels",
}
"""The names of the pages of the API reference, by subpackage."""

TEMPLATES = Environment(autoescape=True, loader=FileSystemLoader(DOCS / "templates"))
TEMPLATES.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "default": vars}
TEMPLATES.filters["markdown"] = lambda text: Markup(MARKDOWN.render(text))
TEMPLATES.globals |= {
    "functions": reference.FUNCTIONS,
    "package": reference.PACKAGE,
    "pages": REFERENCE,
    "pictures": reference.pictures,
    "public": reference.PUBLIC,
}
PARTS: Any = TEMPLATES.get_template("parts.html").module
"""The macros of templates/parts.html."""
_ALIGNED = re.compile(r"\S {3,}# ")  # comments in a column, which a narrow box would break
_PLUMBING = re.compile(
    r"\A((import|from) [^(\n]*(\([^)]*\)[^\n]*)?\n*)+\Z|recordings\(|STUDY\.|benchmarks?\."
)
LONG = 8  # a cell without output is folded if it has more lines
LOST = """# This page does not exist

Try the [front page](index.html), or search above.
"""
SEARCH = """# Search

``````{raw} html
<link rel="stylesheet" href="pagefind/pagefind-ui.css">
<script src="pagefind/pagefind-ui.js"></script>
<div class="pv-search">The search needs scripts and a server, such as
<code>python -m http.server -d build/site</code>.</div>
``````
"""
PLOTLY = "application/vnd.plotly.v1+json"
_ASK = re.compile(r'^ask\("([^"]+)"\)\n*', re.M)
# Comments, which would end a paragraph, and links to the next page: the site has its own.
_LEFT_OUT = re.compile(r"<!--.*?--> *|\n(Next|Back): \[[^]]*\].*?(?=\n\n|\Z)", re.S)
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)#:]*)(#[^)]*)?\)")
_COLUMNS = re.compile(r"^ *\S.*  .*\S", re.M)
_IMAGE = re.compile(r'<img alt="([^"]*)"([^>]*) src="data:image/png;base64,([^"]*)">')


def read(path: str) -> str:
    """Returns the text of a file of the repository."""
    return (REPO / path).read_text(encoding="utf-8")


def _is_exercise(cell: dict[str, Any]) -> bool:
    return "exercise" in cell["metadata"].get("tags", ())


class Site:
    """The folder of the web site.

    Attributes:
        out: the folder.
        repository: the `owner/name` on GitHub, or an empty string.
        texts: the pages in Markdown, by their paths without a suffix.
    """

    def __init__(self, out: Path, repository: str = "") -> None:
        self.out = out
        self.static = out / "_static"
        self.repository = repository
        self.texts = {"404": LOST, "search": SEARCH}
        self.quizzes = tomllib.loads(read("packviz/lessons/quizzes.toml"))
        files = [*REPO.glob("*.md"), *DOCS.glob("*.md"), *REPO.glob("notebooks/*.ipynb")]
        self.pages = {path.relative_to(REPO).as_posix() for path in files}

    def write(self) -> None:
        """Writes all files of the folder."""
        shutil.rmtree(self.out, ignore_errors=True)
        for folder in ("notebooks", "api", "docs", "_static/frames", "_static/charts"):
            (self.out / folder).mkdir(parents=True)
        script = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
        favicon = DOCS / "favicon.svg"
        preview = DOCS / "preview.png"
        for path in (*DOCS.glob("site*"), favicon, preview, PANELS / "batch.css", script):
            shutil.copy(path, self.static)
        shutil.copy(DOCS / "palette.svg", self.out / "docs")
        dark = dict(zip(vars(palette.LIGHT).values(), vars(palette.DARK).values(), strict=True))
        (self.static / "colours.js").write_text(
            f"const packvizDark = {json.dumps(dark)}, packvizFrames = {{}};\n"
        )
        colours = Template(read("docs/colours.css")).render(
            light=HtmlFormatter(style="xcode"),
            dark=HtmlFormatter(style="github-dark"),
            pictures=palette.DARK_PAGE_STYLE,
        )
        (self.static / "colours.css").write_text(colours)
        (self.out / ".nojekyll").touch()  # GitHub Pages drops folders whose names begin with _
        self.read_pages()
        for name, text in self.texts.items():
            (self.out / f"{name}.html").write_text(self.page(name, text), encoding="utf-8")

    def read_pages(self) -> None:
        """Reads the notebooks, the documents and the reference as Markdown."""
        for page in sorted(self.pages):
            text = read(page)
            if page.endswith(".ipynb"):
                text = "\n\n".join(self.notebook(Path(page), json.loads(text)["cells"]))
            elif page == "README.md":  # the front page already has the title and the picture
                text = text.replace("# packviz", "# Install and use", 1)
                text = re.sub(r"(?s)<picture>.*?</picture>\n\n", "", text)
            self.texts[page.rpartition(".")[0]] = self.linked(text, Path(page).parent)
        self.texts["index"] = TEMPLATES.get_template("front.md").render(
            repository=self.repository, panel=raw(moving_batch(panels.BatchPanel()))
        )
        template = TEMPLATES.get_template("reference.html")
        for subpackage, page in REFERENCE.items():
            self.texts[f"api/{page}"] = template.render(subpackage=subpackage, page=page)

    def page(self, name: str, text: str) -> str:
        """Returns a page as HTML."""
        tokens = MARKDOWN.parse(text)
        body = MARKDOWN.renderer.render(tokens, MARKDOWN.options, {})
        titles = {page: text.partition("\n")[0][2:] for page, text in self.texts.items()}
        template = TEMPLATES.get_template("page.html")
        return template.render(
            repository=self.repository, name=name, tokens=tokens, body=body, titles=titles
        )

    def linked(self, text: str, folder: Path) -> str:
        """Makes links lead to pages of the site or to files in the repository.

        If the repository's name is unknown, only the text remains of links to its files.
        """

        def to(match: re.Match[str]) -> str:
            words, relative, fragment = match.groups("")
            target = normpath(folder / relative)
            if not relative or target in self.pages:
                place = re.sub(r"\.\w+$", ".html", relative)
                return f"[{words}]({place}{fragment and '#'}{anchor(fragment)})"
            if not (REPO / target).exists():
                return match[0]
            address = f"https://github.com/{self.repository}/blob/HEAD/{target}"
            return f"[{words}]({address})" if self.repository else words

        return _LINK.sub(to, text)

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
                    yield raw(PARTS.opened(path.name, self.repository))
                    source = section + rest
                yield _LEFT_OUT.sub("", source)
                continue
            asked = _ASK.findall(source)
            code = _ASK.sub("", source).strip("\n")
            if code:
                listing = f"```python\n{code}\n```"
                if _ALIGNED.search(code):
                    listing = f"{raw('<div class=pv-aligned>')}\n\n{listing}\n\n{raw('</div>')}"
                folds = is_plumbing(code, cell) and not _is_exercise(cell)
                yield folded(code, listing) if folds else listing
            for name in asked:
                yield raw(PARTS.quiz(name, **self.quizzes[name]))
            if _is_exercise(cell):
                yield from self.solution(next(solutions))
            elif not asked and cell["outputs"]:
                html = "".join(self.output(output, cell["id"]) for output in cell["outputs"])
                yield raw(self.moving(code, cell["id"], html))

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
        # Columns stay in line.
        kind = "pv-output pv-columns" if len(_COLUMNS.findall(text)) > 2 else "pv-output"
        return f'<pre class="{kind}" tabindex="0">{escape(text.rstrip())}</pre>'

    def chart(self, data: dict[str, Any], key: str) -> str:
        """Returns the stored image of a chart, and the data from which plotly draws it."""
        words, size, image = _IMAGE.findall("".join(data["text/html"]))[0]
        title = data[PLOTLY]["layout"]["title"]["text"]
        (self.static / "charts" / f"{key}.png").write_bytes(base64.b64decode(image))
        image = f'<img alt="{words}" loading="lazy"{size} src="../_static/charts/{key}.png">'
        return box("chart", PARTS.chart(title, image, data[PLOTLY]))

    def moving(self, code: str, key: str, html: str) -> str:
        """Returns a cell's output. A panel gets controls that need no Python."""
        if "Panel(" not in code:
            return html
        # Page 12 uses the name `sizes` for the lengths of the sentences.
        sizes = [len(sentence) for sentence in lessons.sentences()]
        for node in ast.walk(ast.parse(code)):
            if not isinstance(node, ast.Call) or ast.unparse(node.func) not in panels.__all__:
                continue
            panel = eval(ast.unparse(node), {**vars(panels), "sizes": sizes})
            if isinstance(panel, panels.MuseumPanel):
                return museum_search(panel)
            if isinstance(panel, panels.BatchPanel):
                return moving_batch(panel)
            return self.panel(Frames(panel), key)
        return html

    def panel(self, frames: Frames, key: str) -> str:
        """Returns a panel at its first frame, with HTML controls."""
        (self.static / "frames" / f"{key}.js").write_text(frames.script(key), encoding="utf-8")
        picture = frames.frames[0][0]
        kind = "picture" if "<svg" in picture else "table"
        return str(PARTS.panel(key, frames, box(kind, picture)))


def is_plumbing(code: str, cell: dict[str, Any]) -> bool:
    """Returns whether a reader needs only the result of a cell, and not its code.

    This is so for imports, timings and recorded results, for long cells that only prepare later
    ones or train a model, and for cells whose code is hidden in JupyterLab, too.
    """
    if "jupyter" in cell["metadata"]:
        return True
    if "live-timing" in cell["metadata"].get("tags", ()) or _PLUMBING.search(code):
        return True
    return code.count("\n") >= LONG and (not cell["outputs"] or "train(" in code)


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
    still = box("picture", figure(panel.still.to_svg()))
    return str(PARTS.moving(state, still, CAPTIONS[type(panel).__name__], MOVING))


def museum_search(panel: panels.MuseumPanel) -> str:
    """Returns the search of the error museum, which needs no Python."""
    entries = []
    for entry in museum.ENTRIES:
        card = entry.to_html().replace(".ipynb", ".html")
        entries.append(vars(entry) | {"place": entry.place, "card": card, "texts": entry.texts})
    data = {
        "entries": entries,
        "packing": museum.PACKING_PATTERN,
        "error": museum.ERROR_PATTERN.pattern,
        "idle": museum.STOP_WORDS,
        "doubts": [museum.SHARED_TEXT_DOUBT, museum.WORDS_DOUBT],
    }
    cards = "".join(entry.to_html() for entry in panel.matches).replace(".ipynb", ".html")
    return str(PARTS.museum(panel, box("table", cards), data, read("docs/museum.js")))


def main(out: str, repository: str = "") -> int:
    """Writes the site, and the index of its search."""
    Site(Path(out), repository).write()
    command = [sys.executable, "-m", "pagefind", "--site", out, "--quiet"]
    command += ["--exclude-selectors", ".packviz, .pv-output, .pv-open, .header-anchor"]
    return subprocess.run(command).returncode


if __name__ == "__main__":
    gc.disable()  # it takes a seventh of the time, and frees little before the end
    sys.exit(main(*sys.argv[1:]))
