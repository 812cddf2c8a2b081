"""Checks that the site in build/site is complete, small and accessible, and needs no server."""

import functools
import gzip
import json
import os
import re
import tomllib
from html import escape
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from bs4 import BeautifulSoup

import packviz as pv

ROOT = Path(__file__).resolve().parents[2]
FULL = os.environ.get("HYPOTHESIS_PROFILE") == "full"
SITE = ROOT / "build/site"
PAGES = sorted(path.relative_to(SITE).as_posix() for path in SITE.rglob("*.html"))
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
FRAMES = sorted((SITE / "_static/frames").glob("*.js"))
_ASK = re.compile(r'^ask\("([^"]+)"\)', re.M)
QUIZZES = tomllib.loads((ROOT / "packviz/lessons/quizzes.toml").read_text(encoding="utf-8"))
# What a panel shows, in words.
SHOWN = """key => [...document.querySelectorAll(
    `[data-key="${key}"] :is(.summary, .error, .pv-picture, .pv-table)`
  )].map(part => part.textContent).join()"""
MOST = 6_600_000  # bytes of the site without plotly
# What is cut at the right edge: code, outputs, tables, pictures and words of pictures.
CUT = """() => [
  ...[...document.querySelectorAll("article pre, .pv-table, .pv-picture")]
    .filter(e => e.scrollWidth > e.clientWidth + 1),
  ...[...document.querySelectorAll(".pv-picture > svg text")].filter(e => {
    const [box, all] = [e.getBoundingClientRect(), e.ownerSVGElement.getBoundingClientRect()];
    return box.width && (box.right > all.right + 1 || box.left < all.left - 1);
  }),
].map(e => e.outerHTML.slice(0, 200))"""
# Leaves a few of each kind of entry, row and link, one token of each colour in code, and no content
# of pictures, whose colours are tested with the palette. All others would be judged alike, and take
# minutes.
FEW_OF_A_KIND = """() => {
  const seen = {};
  document.querySelectorAll("svg[role=img]").forEach(svg => svg.replaceChildren());
  const entries = "dl.py, tbody tr, li, p, .highlight span, .sig span";
  for (const node of document.querySelectorAll(entries)) {
    const parent = node.parentElement?.className;
    const full = node.children.length > 0;
    const kind = `${node.localName} ${node.className} ${parent} ${full}`;
    seen[kind] = (seen[kind] ?? 0) + 1;
    const span = node.localName === "span";
    if (span ? seen[kind] > 1 && !full : seen[kind] > 3) node.remove();
  }
}"""


@functools.cache
def html(page):
    return (SITE / page).read_text(encoding="utf-8")


@functools.cache
def soup(page):
    return BeautifulSoup(html(page), "html.parser")


@functools.cache
def anchors(page):
    return set(re.findall(r'\bid="([^"]*)"', html(page)))


def cells(path):
    return [
        cell
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]
        if cell["cell_type"] == "code"
    ]


def is_exercise(cell):
    return "exercise" in cell["metadata"].get("tags", ())


def words(text):
    return " ".join(BeautifulSoup(text, "html.parser").get_text(" ").split())


def test_it_is_built_from_these_notebooks():
    assert [f"notebooks/{path.stem}.html" for path in NOTEBOOKS] == [
        p for p in PAGES if p.startswith("notebooks/")
    ]
    entries = [
        entry
        for entry in soup("index.html").select(".sidebar-tree a")
        if "notebooks/" in entry["href"]
    ]
    assert [entry.text[:5] for entry in entries] == [f"{path.stem[:2]} · " for path in NOTEBOOKS]


@pytest.mark.parametrize("page", PAGES)
def test_no_link_is_broken(page):
    for tag in soup(page).find_all(["a", "img", "script", "link"]):
        link = urlsplit(tag.get("href") or tag.get("src") or "")
        if link.scheme or link.netloc:
            assert link.scheme == "data" or tag.name == "a", f"{tag} asks another host"
            continue
        target = (
            (SITE / page).parent.joinpath(unquote(link.path)).resolve()
            if link.path
            else SITE / page
        )
        assert target.is_file(), tag
        if link.fragment and target.suffix == ".html":
            assert escape(unquote(link.fragment)) in anchors(target.relative_to(SITE).as_posix()), (
                tag
            )


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_all_there(path):
    page, stored, solved = (
        BeautifulSoup(html(f"notebooks/{path.stem}.html"), "html.parser"),
        cells(path),
        cells(path.parent / "solutions" / path.name),
    )
    asked = _ASK.findall("\n".join("".join(cell["source"]) for cell in stored))
    assert [legend.text for legend in page.select(".pv-quiz legend")] == [
        QUIZZES[name]["question"] for name in asked
    ]
    solutions = [cell for cell in solved if is_exercise(cell)]
    following = iter(solutions)
    shown = [next(following) if is_exercise(cell) else cell for cell in stored]
    outputs = [
        output
        for cell in shown
        for output in cell["outputs"]
        if not _ASK.search("".join(cell["source"]))
    ]
    bundles = [
        {kind: "".join(value) for kind, value in output.get("data", {}).items()}
        for output in outputs
    ]
    pictures = [
        re.search('aria-label="([^"]*)"', one["image/svg+xml"])[1]
        for one in bundles
        if "image/svg+xml" in one
    ]
    assert [words(svg["aria-label"]) for svg in page.select(".pv-picture > svg")] == [
        *map(words, pictures)
    ]
    charts = [one["text/html"] for one in bundles if "application/vnd.plotly.v1+json" in one]
    assert [img["alt"] for img in page.select(".pv-chart img")] == [
        BeautifulSoup(c, "html.parser").img["alt"] for c in charts
    ]
    tables = [words(one["text/html"]) for one in bundles if {*one} == {"text/html", "text/plain"}]
    searches = [box.extract() for box in page.select(".pv-museum")]
    shown_tables = [words(str(table)) for table in page.select(".pv-table")]
    assert [t for t in tables if "packviz-panel" not in t][len(searches) :] == shown_tables
    lines = [
        "".join(o["text"]) if "text" in o else d["text/plain"]
        for o, d in zip(outputs, bundles, strict=True)
        if len(d) < 2
    ]
    assert [pre.text for pre in page.select("pre.pv-output")] == [line.rstrip() for line in lines]
    code = ["".join(cell["source"]).strip() for cell in solutions]
    assert [solution.pre.text.strip() for solution in page.select(".pv-solution")] == code


def test_it_is_small():
    sizes = {page: len(gzip.compress(html(page).encode())) for page in PAGES}
    assert max(sizes.values()) <= 100_000, sizes
    assert sum(len(gzip.compress(path.read_bytes())) for path in FRAMES) <= 400_000
    site = [path for path in SITE.rglob("*") if path.is_file() and path.name != "plotly.min.js"]
    assert sum(path.stat().st_size for path in site) <= MOST


SHOWN_AT = 700  # px
FONT_SIZE = re.compile(r'font-size="([\d.]+)"')


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_no_text_of_a_picture_is_smaller_than_11_px(path):
    small = []
    for cell in cells(path):
        for output in cell["outputs"]:
            data = output.get("data", {})
            svg = "".join(data.get("image/svg+xml", ""))
            if svg:
                width = float(re.search(r' width="([\d.]+)"', svg)[1])
                least = min(map(float, FONT_SIZE.findall(svg))) * min(1, SHOWN_AT / width)
                if least < 10.99:
                    small.append((cell["id"], width, round(least, 1)))
            chart = data.get("application/vnd.plotly.v1+json")
            if chart and chart["layout"]["width"] > SHOWN_AT:
                small.append((cell["id"], chart["layout"]["width"]))
    assert small == []


@pytest.mark.parametrize("path", FRAMES, ids=lambda path: path.stem)
def test_a_panel_starts_with_its_stored_picture(path):
    data = json.loads(path.read_text(encoding="utf-8").partition("=")[2].rstrip(";"))
    picture, *_ = ("".join(data["pieces"][i] for i in part) for part in data["frames"][0])
    (page,) = [page for page in PAGES if f'data-key="{path.stem}"' in html(page)]
    if "<svg" in picture:  # a table is stored in the colours of its surroundings
        assert picture in html(page)


@pytest.fixture(scope="module")
def tab(browser):
    """Opens one tab for all tests, which notes errors in scripts and requests to other hosts."""
    tab = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme="light")
    tab.problems = []
    tab.set_default_timeout(300_000)  # a busy machine is not a defect
    tab.on("pageerror", lambda error: tab.problems.append(str(error)))

    def note(request):
        if not request.url.startswith(("file:", "data:", "blob:")):
            tab.problems.append(request.url)

    tab.on("request", note)
    return tab


@pytest.fixture
def open_page(tab):
    def open_it(page):
        tab.emulate_media(color_scheme="light")
        tab.goto(f"{SITE.as_uri()}/{page}")
        return tab

    tab.problems.clear()
    yield open_it
    assert not tab.problems


@pytest.mark.parametrize("page", PAGES)
def test_a_page_moves_answers_and_is_accessible(open_page, page):
    tab = open_page(page)
    for panel in tab.locator(".pv-panel").all():
        key, control = (
            panel.get_attribute("data-key"),
            panel.locator("input:visible, select:visible").first,
        )
        before = tab.evaluate(SHOWN, key)
        at_end = control.evaluate("e => e.value === e.max || e.selectedIndex === e.length - 1")
        is_list = control.evaluate("e => e.localName === 'select'")
        control.press(
            ("ArrowUp" if at_end else "ArrowDown")
            if is_list
            else ("ArrowLeft" if at_end else "ArrowRight")
        )
        tab.wait_for_function(f"([key, before]) => ({SHOWN})(key) !== before", arg=[key, before])
    for i, quiz in enumerate(tab.locator(".pv-quiz").all()):
        for part in (quiz.locator("label[data-right]"), quiz.locator("button")):
            part.dispatch_event(
                "click"
            ) if i else part.click()  # a real click waits until nothing moves
        assert quiz.locator("[role=status]").inner_text().startswith("✓")
    tab.evaluate("document.querySelectorAll('details').forEach(fold => fold.open = true)")
    assert tab.evaluate(CUT) == []
    for width in (390, 320):
        tab.set_viewport_size({"width": width, "height": 800})
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
    tab.set_viewport_size({"width": 1280, "height": 900})
    if not FULL:
        tab.evaluate(FEW_OF_A_KIND)
    for scheme in ("light", "dark"):
        tab.emulate_media(color_scheme=scheme)
        # The page learns of the scheme with the next frame.
        followed = "light => document.body.dataset.jpThemeLight === light"
        tab.wait_for_function(followed, arg=str(scheme == "light").lower())
        found = Axe().run(tab, {"exclude": [["svg > *"]]}, {"resultTypes": ["violations"]}).response
        grave = [one for one in found["violations"] if one["impact"] in ("serious", "critical")]
        assert [(one["id"], one["nodes"][0]["html"][:200]) for one in grave] == []


@pytest.mark.parametrize("word", ["batch_sizes", "enforce_sorted"])
def test_search_finds(open_page, word):
    tab = open_page(f"search.html?q={word}")
    tab.wait_for_selector(
        '#search-results li a[href*="notebooks/02"]'
    )  # results appear one after another


def test_a_chart_loads_plotly_only_on_request(open_page):
    tab = open_page(next(page for page in PAGES if '"pv-chart' in html(page)))
    tab.emulate_media(color_scheme="dark")
    chart = tab.locator(".pv-chart").first
    chart.hover()
    assert not tab.evaluate("'Plotly' in window")
    chart.locator("button").click()
    chart.locator(".main-svg").first.wait_for()


def test_the_search_of_the_museum_finds_what_explain_finds(open_page):
    tab = open_page("notebooks/15_error_museum.html")
    stored = tomllib.loads((ROOT / "tests/unit/check/messages.toml").read_text(encoding="utf-8"))
    texts = [message["text"] for message in stored["message"]]
    texts += ["h_n order", "slower after packing", "KeyError: 'foo'", "output shorter than input"]
    found = tab.evaluate("texts => texts.map(packvizExplain)", texts)
    assert found == [[entry.name for entry in pv.explain(text)] for text in texts]
    field = tab.locator(".pv-museum textarea")
    field.fill(texts[0])
    assert found[0][0] in tab.locator(".pv-museum [role=status]").inner_text()
    entry = tab.locator(".pv-entry").nth(2)
    assert not entry.evaluate("e => e.open")
    name = entry.locator("h3").evaluate("e => e.closest('section').id")
    tab.evaluate("name => { location.hash = name; }", name)
    tab.wait_for_function("() => document.querySelectorAll('.pv-entry')[2].open")


def test_one_click_unfolds_all_code(open_page):
    tab = open_page("notebooks/11_should_you_pack.html")
    folds = tab.locator(".pv-code")
    assert folds.count() > 2
    tab.locator(".pv-unfold").click()
    assert folds.evaluate_all("folds => folds.every(fold => fold.open)")


def test_a_sheet_of_paper_holds_whole_pictures(open_page):
    tab = open_page("notebooks/02_inside_a_packed_sequence.html")
    tab.emulate_media(media="print")
    tab.set_viewport_size({"width": 718, "height": 1000})  # A4 without its margins
    wide = "boxes => boxes.filter(e => e.getBoundingClientRect().right > innerWidth).length"
    assert tab.locator(".pv-picture svg").evaluate_all(wide) == 0
    tab.emulate_media(media="screen")
    tab.set_viewport_size({"width": 1280, "height": 900})


BROKEN = """() => [...document.querySelectorAll("td code .pre")].flatMap((code) => {
  const place = document.createRange(), broken = [];
  let before = null;
  for (const text of code.childNodes)
    for (let i = 0; i < text.length; i++) {
      place.setStart(text, i);
      place.setEnd(text, i + 1);
      const { top } = place.getBoundingClientRect();
      const lower = before && top > before.top + 4;
      if (lower && /\\w/.test(before.letter)) broken.push(code.textContent);
      before = { top, letter: text.data[i] === "_" ? "" : text.data[i] };
    }
  return broken;
})"""


def test_on_a_phone_captions_are_whole_and_names_break_between_words(open_page):
    tab = open_page("notebooks/00_start_here.html")
    tab.set_viewport_size({"width": 390, "height": 844})
    assert tab.locator("td code .pre").count() > 16
    assert tab.evaluate(BROKEN) == []
    tab = open_page("notebooks/01_why_pack.html")
    title = "Half of the sequences have up to 11 steps, and the longest has 51"
    caption = tab.locator("figcaption", has_text=title)
    assert caption.evaluate("e => e.getBoundingClientRect().right <= innerWidth")
    tab.set_viewport_size({"width": 1280, "height": 900})
