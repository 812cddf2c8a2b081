"""Checks that the site in build/site is complete, small and accessible, and needs no server."""

import functools
import gzip
import importlib
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
from contrast import contrast
from pygments.styles import get_style_by_name
from pygments.token import Comment, Name

import packviz as pv
from packviz.draw import palette

ROOT = Path(__file__).resolve().parents[2]
FULL = os.environ.get("HYPOTHESIS_PROFILE") == "full"
SITE = ROOT / "build/site"
BUILD = (ROOT / "docs/build.py").read_text(encoding="utf-8")
PAGES = sorted(path.relative_to(SITE).as_posix() for path in SITE.rglob("*.html"))
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
FRAMES = sorted((SITE / "_static/frames").glob("*.js"))
_ASK = re.compile(r'^ask\("([^"]+)"\)', re.M)
QUIZZES = tomllib.loads((ROOT / "packviz/lessons/quizzes.toml").read_text(encoding="utf-8"))
# What a panel shows, in words.
SHOWN = """key => [...document.querySelectorAll(
    `[data-key="${key}"] :is(.summary, .error, .pv-picture, .pv-table)`
  )].map(part => part.textContent).join()"""
# Bytes of the site without plotly. Before pictures moved, its static files alone took more, and the
# compressed frames of its panels took 369,000.
MOST = 6_900_000
MOST_FRAMES = 360_000
# What is cut at the right edge: code, outputs, tables, pictures and words of pictures.
CUT = """() => [
  ...[...document.querySelectorAll("article pre, .pv-table, .pv-picture")]
    .filter(e => e.scrollWidth > e.clientWidth + 1),
  ...[...document.querySelectorAll(".pv-picture > svg text")].filter(e => {
    const [box, all] = [e.getBoundingClientRect(), e.ownerSVGElement.getBoundingClientRect()];
    return box.width && (box.right > all.right + 1 || box.left < all.left - 1);
  }),
].map(e => e.outerHTML.slice(0, 200))"""
# Words of pictures that are shown with less than 11 px, and charts that are smaller than drawn.
SMALL = """() => [
  ...[...document.querySelectorAll(":is(.pv-picture, .pv-batch) svg text")].filter(text => {
    const svg = text.ownerSVGElement;
    const shown = svg.getBoundingClientRect().width;
    const scale = shown / (svg.viewBox.baseVal?.width || shown);
    return shown && parseFloat(getComputedStyle(text).fontSize) * scale < 10.99;
  }),
  ...[...document.querySelectorAll(".pv-chart img")]
    .filter(image => image.clientWidth < Number(image.getAttribute("width"))),
].map(e => e.outerHTML.slice(0, 200))"""
# Leaves a few of each kind of entry, row and link, one token of each colour in code, and no content
# of pictures, whose colours are tested with the palette. All others would be judged alike, and take
# minutes.
FEW_OF_A_KIND = """() => {
  const seen = {};
  document.querySelectorAll("svg[role=img]").forEach(svg => svg.replaceChildren());
  const entries = ".pv-name, tbody tr, li, p, .highlight span";
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
        entry for entry in soup("index.html").select("#menu a") if "notebooks/" in entry["href"]
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
    page = BeautifulSoup(html(f"notebooks/{path.stem}.html"), "html.parser")
    solutions = [*filter(is_exercise, cells(path.parent / "solutions" / path.name))]
    following = iter(solutions)
    asked, pictures, charts, tables, texts = [], [], [], [], []
    for cell in cells(path):
        names = _ASK.findall("".join(cell["source"]))
        asked += [QUIZZES[name]["question"] for name in names]
        shown = next(following) if is_exercise(cell) else cell
        for output in [] if names else shown["outputs"]:
            data = {kind: "".join(value) for kind, value in output.get("data", {}).items()}
            if "image/svg+xml" in data:
                pictures.append(words(re.search('aria-label="([^"]*)"', data["image/svg+xml"])[1]))
            elif "application/vnd.plotly.v1+json" in data:
                charts.append(BeautifulSoup(data["text/html"], "html.parser").img["alt"])
            elif "text/html" not in data:
                texts.append("".join(output.get("text") or data["text/plain"]).rstrip())
            elif "MuseumPanel" not in "".join(cell["source"]):
                tables.append(words(data["text/html"]))
    for search in page.select(".pv-museum"):
        search.extract()
    assert [legend.text for legend in page.select(".pv-quiz legend")] == asked
    assert [words(svg["aria-label"]) for svg in page.select(".pv-picture > svg")] == pictures
    assert [img["alt"] for img in page.select(".pv-chart img")] == charts
    assert [words(str(table)) for table in page.select(".pv-table")] == tables
    assert [pre.text for pre in page.select("pre.pv-output")] == texts
    code = ["".join(cell["source"]).strip() for cell in solutions]
    assert [solution.pre.text.strip() for solution in page.select(".pv-solution")] == code


@pytest.mark.parametrize("page", [f"notebooks/{path.stem}.html" for path in NOTEBOOKS])
def test_captions_are_short_and_all_text_is_in_paragraphs(page):
    captions = [caption.text for caption in soup(page).select("figcaption")]
    assert max(map(len, captions), default=0) <= 180
    article = BeautifulSoup(html(page), "html.parser").article
    assert not "".join(article.find_all(string=True, recursive=False)).strip()
    assert not article.find("p", string=re.compile("^(Next|Back):"))
    for text in article.select("p, li, td"):  # no Markdown is left
        for code in text.select("code, pre, .packviz"):
            code.extract()
        assert not re.search(r"`|\*\*|\]\(|^[-*] |^\d\. ", text.text, re.M), text


def test_it_is_small():
    sizes = {page: len(gzip.compress(html(page).encode())) for page in PAGES}
    assert max(sizes.values()) <= 100_000, sizes
    assert sum(len(gzip.compress(path.read_bytes())) for path in FRAMES) <= MOST_FRAMES
    site = [path for path in SITE.rglob("*") if path.is_file() and path.name != "plotly.min.js"]
    assert sum(path.stat().st_size for path in site) <= MOST


@pytest.mark.parametrize("path", FRAMES, ids=lambda path: path.stem)
def test_a_panel_starts_with_its_stored_picture(path):
    data = json.loads(path.read_text(encoding="utf-8").partition("=")[2].rstrip(";"))
    for frame in data["frames"]:
        svg = "".join(data["pieces"][i] for i in frame[0])
        widths = [float(width) for width in re.findall(r'<svg[^>]* width="([\d.]+)"', svg)]
        assert max(widths, default=0) <= 700  # wider ones would be shown with smaller letters
    picture = "".join(data["pieces"][i] for i in data["frames"][0][0])
    (page,) = [page for page in PAGES if f'data-key="{path.stem}"' in html(page)]
    if "<svg" in picture:  # a table is stored in the colours of its surroundings
        assert picture in html(page)


@pytest.fixture(scope="module")
def tab(browser):
    """Opens one tab for all tests, which notes errors in scripts and requests to other hosts."""
    tab = browser.new_page(
        viewport={"width": 1280, "height": 900}, color_scheme="light", reduced_motion="reduce"
    )
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
        tab.emulate_media(color_scheme="light", media="screen")
        tab.set_viewport_size({"width": 1280, "height": 900})
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
    for batch in tab.locator(".pv-batch").all():
        batch.locator(".row-end").first.press("ArrowRight")
        batch.locator(".play").click()
    for i, quiz in enumerate(tab.locator(".pv-quiz").all()):
        for part in (quiz.locator("label[data-right]"), quiz.locator("button")):
            part.dispatch_event(
                "click"
            ) if i else part.click()  # a real click waits until nothing moves
        assert quiz.locator("[role=status]").inner_text().startswith("✓")
        assert "✓" in quiz.locator("label.right").evaluate(
            "e => getComputedStyle(e, '::after').content"
        )
    tab.evaluate("document.querySelectorAll('details').forEach(fold => fold.open = true)")
    assert tab.evaluate(CUT) == []
    assert tab.evaluate(SMALL) == []
    for width in (390, 320):
        tab.set_viewport_size({"width": width, "height": 800})
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
    tab.set_viewport_size({"width": 1280, "height": 900})
    if not FULL:
        tab.evaluate(FEW_OF_A_KIND)
    schemes = ["light", "dark"]
    for scheme in schemes if FULL else [schemes[len(page) % 2]]:
        tab.emulate_media(color_scheme=scheme)
        ground = tab.locator("body").evaluate("e => getComputedStyle(e).backgroundColor")
        assert ground == {"light": "rgb(255, 255, 255)", "dark": "rgb(17, 17, 17)"}[scheme]
        found = Axe().run(tab, {"exclude": [["svg[role=img] > *"]]}).response
        grave = [one for one in found["violations"] if one["impact"] in ("serious", "critical")]
        assert [(one["id"], one["nodes"][0]["html"][:200]) for one in grave] == []


@pytest.fixture
def open_search(browser):
    """Opens the search as if a server sent it: a page that is opened as a file cannot search."""
    tab = browser.new_page()
    tab.route("**", lambda route: route.fulfill(path=SITE / urlsplit(route.request.url).path[1:]))

    def open_it(words):
        tab.goto(f"http://packviz.invalid/search.html?q={words}")
        return tab

    yield open_it
    tab.close()


def test_search_finds(open_search):
    tab = open_search("batch_sizes")
    tab.locator('.pagefind-ui a[href*="notebooks/02"]').first.wait_for(timeout=60_000)


def test_search_shows_summaries(open_search):
    tab = open_search("enforce_sorted")
    found = tab.locator(".pagefind-ui__result", has_text="Inside a packed").first
    excerpt = found.locator(".pagefind-ui__result-excerpt").first
    assert "enforce_sorted" in excerpt.inner_text(timeout=60_000)


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("from_offsets", "1-lengths.html#packviz.Layout.from_offsets"),
        ("BucketSampler", "3-packing-and-running.html#pv-bucketsampler"),
        ("check_static", "5-checks.html#pv-check-static"),
    ],
)
def test_search_finds_a_name_in_the_reference(open_search, name, place):
    tab = open_search(name)
    tab.locator(f'.pagefind-ui a[href*="api/{place}"]').first.wait_for(timeout=60_000)


def test_a_page_that_is_opened_as_a_file_says_how_to_search(open_page):
    assert "http.server" in open_page("search.html?q=mask").locator(".pv-search").inner_text()


def test_a_reader_chooses_the_theme_and_the_page_remembers(open_page):
    tab = open_page("index.html")
    ground = "() => getComputedStyle(document.body).backgroundColor"
    tab.locator(".pv-theme").click()
    assert tab.evaluate(ground) == "rgb(17, 17, 17)"
    tab.reload()
    assert tab.evaluate(ground) == "rgb(17, 17, 17)"
    tab.locator(".pv-theme").click()
    assert tab.evaluate(ground) == "rgb(255, 255, 255)"
    tab.emulate_media(color_scheme="dark")  # back to what the system says
    assert tab.evaluate(ground) == "rgb(17, 17, 17)"


def test_without_scripts_a_page_is_dark_if_the_system_is(browser):
    context = browser.new_context(java_script_enabled=False, color_scheme="dark")
    tab = context.new_page()
    tab.goto(f"{SITE.as_uri()}/notebooks/11_should_you_pack.html")
    ground = tab.locator("body").evaluate("e => getComputedStyle(e).backgroundColor")
    assert ground == "rgb(17, 17, 17)"
    image = tab.locator(".pv-chart img").first
    assert "pv-dark" in image.evaluate("e => getComputedStyle(e).filter")
    context.close()


def test_a_button_copies_an_example_without_prompts_and_results(open_page):
    tab = open_page("api/1-lengths.html")
    tab.evaluate("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
    tab.locator(".highlight button").first.click(force=True)
    assert tab.evaluate("copied.split('\\n')[0]") == "import packviz as pv"
    assert ">>>" not in tab.evaluate("copied")


def test_on_a_phone_buttons_open_the_menu_and_the_contents(open_page):
    tab = open_page("notebooks/01_why_pack.html")
    tab.set_viewport_size({"width": 390, "height": 844})
    for name in ("menu", "contents"):
        place = tab.locator(f"#{name}")
        assert not place.is_visible()
        tab.locator(f"[popovertarget={name}]").click()
        assert place.locator("a").first.is_visible()
        tab.keyboard.press("Escape")
        assert not place.is_visible()


def test_the_numbers_of_the_front_page_are_those_of_the_pages():
    for link in soup("index.html").select(".pv-numbers a"):
        assert words(str(link.b)) in words(html(link["href"])), link


def test_a_lost_page_finds_its_style_from_every_folder(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    build = importlib.import_module("build")
    page = build.Site(tmp_path, "Me/Mine").page("404", "# Lost\n\nWords.\n")
    page = BeautifulSoup(page, "html.parser")
    base = "https://me.github.io/Mine/"
    assert page.select_one("head [href]")["href"] == page.base["href"] == f"{base}404.html"
    image = page.find("meta", property="og:image")
    assert image["content"] == f"{base}_static/preview.png"


def test_a_chart_loads_plotly_only_on_request(open_page):
    tab = open_page(next(page for page in PAGES if '"pv-chart' in html(page)))
    tab.emulate_media(color_scheme="dark")
    chart = tab.locator(".pv-chart").first
    chart.hover()
    assert chart.locator("img").evaluate("e => getComputedStyle(e).filter") == 'url("#pv-dark")'
    assert tab.locator("#pv-dark").count() == 1
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
    name = entry.locator("h3").get_attribute("id")
    tab.evaluate("name => { location.hash = name; }", name)
    tab.wait_for_function("() => document.querySelectorAll('.pv-entry')[2].open")


def test_one_click_unfolds_all_code(open_page):
    tab = open_page("notebooks/06_a_model_of_your_own.html")
    folds = tab.locator(".pv-code")
    assert folds.filter(has_text="train(models[name], known)").count() == 1
    tab.locator(".pv-unfold").click()
    assert folds.evaluate_all("folds => folds.every(fold => fold.open)")


@pytest.mark.parametrize(
    "page", ["01_why_pack", "02_inside_a_packed_sequence", "07_counting_flops"]
)
def test_a_sheet_of_paper_holds_whole_pictures_and_nothing_to_click(open_page, page):
    tab = open_page(f"notebooks/{page}.html")
    tab.emulate_media(color_scheme="dark", media="print")
    tab.set_viewport_size({"width": 718, "height": 1000})  # A4 without its margins
    wide = "boxes => boxes.filter(e => e.getBoundingClientRect().right > innerWidth).length"
    assert tab.locator(".pv-picture svg, .pv-chart img, .pv-batch svg").evaluate_all(wide) == 0
    clicks = ":is(.pv-skip, header, nav, article :is(button, summary, select)):visible"
    assert tab.locator(clicks).count() == 0
    white = "e => getComputedStyle(e).fill"
    assert tab.locator(".pv-picture svg > path").first.evaluate(white) == "rgb(255, 255, 255)"
    ground = tab.locator("body").evaluate("e => getComputedStyle(e).backgroundColor")
    assert ground in ("rgb(255, 255, 255)", "rgba(0, 0, 0, 0)")
    for batch in tab.locator(".pv-batch").all():
        assert "batch_sizes = " in batch.locator(".says").inner_text()


def test_a_sheet_of_paper_shows_what_a_table_folds(open_page):
    tab = open_page("notebooks/03_hidden_states.html")
    tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert tab.locator(".pv-table td").first.is_visible()


BROKEN = """() => [...document.querySelectorAll("td :is(code, a)")].flatMap((code) => {
  const place = document.createRange(), broken = [];
  let before = null;
  for (const text of code.childNodes)
    for (let i = 0; i < text.length; i++) {
      place.setStart(text, i);
      place.setEnd(text, i + 1);
      const { top } = place.getBoundingClientRect();
      const lower = i && top > before.top + 4; // a new text begins after a <wbr>
      if (lower && /\\w/.test(before.letter)) broken.push(code.textContent);
      before = { top, letter: text.data[i] };
    }
  return broken;
})"""


def test_on_a_phone_captions_are_whole_and_names_break_between_words(open_page):
    tab = open_page("notebooks/00_start_here.html")
    tab.set_viewport_size({"width": 390, "height": 844})
    assert tab.locator("td code").count() > 16
    assert tab.evaluate(BROKEN) == []
    tab = open_page("notebooks/15_error_museum.html")
    for width in (320, 360, 390):
        tab.set_viewport_size({"width": width, "height": 844})
        assert tab.locator("td a").count() > 26
        assert tab.evaluate(BROKEN) == []
    tab = open_page("notebooks/01_why_pack.html")
    title = "Half of the sequences have up to 11 steps, and the longest has 51"
    caption = tab.locator("figcaption", has_text=title)
    assert caption.evaluate("e => e.getBoundingClientRect().right <= innerWidth")


def test_on_a_phone_a_chart_is_whole_and_says_that_it_scrolls(open_page):
    tab = open_page("notebooks/11_should_you_pack.html")
    tab.set_viewport_size({"width": 390, "height": 844})
    chart = tab.locator(".pv-chart").first
    image = chart.locator("img")
    assert image.evaluate("e => e.clientWidth") == int(image.get_attribute("width"))
    assert chart.locator(".pv-drawn").evaluate("e => e.scrollWidth <= e.clientWidth")
    tab.wait_for_function("() => document.querySelector('.pv-chart').hasAttribute('data-scrolls')")
    assert "scroll" in chart.evaluate("e => getComputedStyle(e, '::before').content")
    chart.evaluate("e => { e.scrollLeft = e.scrollWidth; }")
    assert image.evaluate("e => e.getBoundingClientRect().right <= innerWidth")
    tab.set_viewport_size({"width": 1280, "height": 900})
    tab.wait_for_function("() => !document.querySelector('[data-scrolls]')")


def test_on_a_phone_the_columns_of_a_printed_table_stay_in_line(open_page):
    tab = open_page("notebooks/09_why_training_is_slow.html")
    tab.set_viewport_size({"width": 390, "height": 844})
    table = tab.locator(".pv-columns", has_text="a tensor of zeros")
    lines = "e => e.clientHeight / parseFloat(getComputedStyle(e).lineHeight)"
    assert table.evaluate(lines) < 8  # four lines, a sign that it scrolls, and the edges


# The mean number of characters in a line of the paragraphs with at least four lines.
MEASURE = """paragraphs => {
  const long = paragraphs
    .map(p => [p.textContent.length, p.clientHeight / parseFloat(getComputedStyle(p).lineHeight)])
    .filter(([, lines]) => lines > 3.5);
  const sum = i => long.reduce((total, parts) => total + parts[i], 0);
  return sum(0) / (sum(1) - long.length / 2);  // the last line is half full
}"""


def test_a_line_has_68_to_75_characters(open_page):
    tab = open_page("notebooks/01_why_pack.html")
    assert 68 <= tab.locator("article > p").evaluate_all(MEASURE) <= 75


def test_in_the_dark_comments_are_quieter_than_code():
    style = get_style_by_name(re.search(r'dark=HtmlFormatter\(style="(.*?)"', BUILD)[1])
    inks = [f"#{style.style_for_token(kind)['color']}" for kind in (Comment.Single, Name)]
    comment, code = (contrast(ink, palette.DARK.ground) for ink in inks)
    assert comment < code


@pytest.mark.parametrize(
    ("page", "choice"),
    [("07_counting_flops", "20, 1, 1, 1, 1, 1"), ("14_beyond_rnns", "sentences")],
)
def test_a_panel_has_the_lengths_that_its_page_asks_for(open_page, page, choice):
    tab = open_page(f"notebooks/{page}.html")
    options = tab.locator("label", has=tab.get_by_text("lengths", exact=True)).locator("option")
    assert choice in options.all_text_contents()
