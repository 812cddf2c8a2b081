"""Tables in HTML and in text: their cells, and what a screen reader knows of them."""

import re
from xml.etree import ElementTree

from contrast import contrast
from hypothesis import given
from hypothesis import strategies as st

from packviz.draw import text
from packviz.draw.table import Table

words = st.text("ab<>&\"'✗–1 .", max_size=6)


def read(table):
    return ElementTree.fromstring(table.to_html())


def words_of(element):
    return "".join(element.itertext())


rows_of_words = st.lists(st.lists(words, min_size=3, max_size=3), min_size=1, max_size=4)


@given(rows_of_words, st.booleans(), st.booleans())
def test_every_cell_is_in_both_forms(rows, headed, titled):
    head = ["", "<n>", "& two"] if headed else []
    table = Table(rows, head, "a > b" if titled else "", ["note < 1"])
    html = read(table)
    listed = [list(map(words_of, row)) for row in html.iter("tr")]
    assert listed == [head] * headed + rows
    assert list(map(words_of, html.iter("caption"))) == ["a > b"] * titled
    assert words_of(html).endswith("note < 1")
    *lines, blank, note = table.to_text().split("\n")
    assert (blank, note) == ("", "note < 1")
    assert lines[:titled] == ["a > b"] * titled
    written = [" ".join(row).split() for row in listed]
    assert [line.split() for line in lines[titled:]] == written


def test_a_screen_reader_knows_rows_from_columns():
    html = read(Table([["x", "1"], ["y", "2"]], ["", "n"]))
    heads = [(words_of(cell), cell.get("scope")) for cell in html.iter("th")]
    assert heads == [("n", "col"), ("x", "row"), ("y", "row")]
    # A header without words is none: an empty corner is a cell.
    tags = [[cell.tag for cell in row] for row in html.iter("tr")]
    assert tags == [["td", "th"], ["th", "td"], ["th", "td"]]


numbers = st.from_regex(r"-?\d{1,5}(\.\d{1,3})?", fullmatch=True)


@given(st.lists(numbers, min_size=1, max_size=6))
def test_decimal_points_are_below_each_other(values):
    lines = text.table([["", value] for value in [*values, "NaN"]], "<  .")
    width = max(map(len, lines))
    *cells, other = [line.ljust(width) for line in lines]
    assert len({cell.index(".") if "." in cell else len(cell.rstrip()) for cell in cells}) == 1, (
        cells
    )
    assert [cell.strip() for cell in cells] == values
    assert other.endswith("NaN")


def test_what_is_wrong_is_told_without_colour_too():
    html = read(Table([["x", "✗ wrong", "– none", "✓ right"]]))
    wrong, none = (words.get("style") for words in html.iter("span"))
    assert "font-weight:bold" in wrong
    ground, ink = re.search(r"background-color:(#\w+);color:(#\w+)", wrong).groups()
    assert contrast(ground, ink) >= 4.5
    assert not re.search("color|weight", none)  # those of the page


def test_addresses_are_links_that_leave_the_notebook_open():
    links = list(read(Table([["asked", "https://a.b/c?d=1&e  https://f.g"]])).iter("a"))
    assert [link.get("href") for link in links] == ["https://a.b/c?d=1&e", "https://f.g"]
    assert all(link.get("target") == "_blank" for link in links)
    assert not list(read(Table([["javascript:x", "ftp://y"]])).iter("a"))
