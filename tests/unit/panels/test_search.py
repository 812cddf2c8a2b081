"""Tests of the panel of the museum, which shows the entries that a search finds for any text."""

from xml.etree import ElementTree

import pytest
from controls import move, words
from hypothesis import given
from hypothesis import strategies as st

from packviz.check import museum
from packviz.panels import MuseumPanel

TEXTS = [said for entry in museum.ENTRIES for said in entry.texts]


def drawn(panel):
    return ElementTree.fromstring(panel.picture.value)


def test_it_starts_empty_handed():
    panel = MuseumPanel()
    assert not panel.matches
    assert words(panel.summary).startswith(f"{len(museum.ENTRIES)} entries. Paste an error text, ")
    assert panel.error.value == ""
    assert panel.to_text() == words(panel.summary)
    assert not list(drawn(panel))


@pytest.mark.parametrize("said", TEXTS[::6])
def test_it_shows_what_the_search_finds(said):
    panel = MuseumPanel()
    move(panel.pasted, said)
    matches = museum.explain(said)
    assert panel.matches == matches
    assert panel.error.value == ""
    assert panel.to_text().startswith(matches.summary)
    assert all(entry.to_text() in panel.to_text() for entry in matches)
    titles = [f"{entry.heading}: {museum.SECTIONS[entry.section]}" for entry in matches]
    assert [caption.text for caption in drawn(panel).iter("caption")] == titles


def test_what_is_not_there_is_said_and_no_picture_stays():
    panel = MuseumPanel(TEXTS[0])
    before = panel.picture.value
    move(panel.pasted, "3, two, -1; ☠")
    assert words(panel.summary).startswith("Nothing matches. Paste an error text, ")
    assert not list(drawn(panel))
    assert not panel.matches
    move(panel.pasted, TEXTS[-1])
    assert list(drawn(panel))
    assert panel.picture.value != before
    move(panel.pasted, "   ")
    assert not panel.matches


@given(st.text(max_size=300))
def test_any_text_may_be_pasted(text):
    panel = MuseumPanel(TEXTS[0])
    move(panel.pasted, text)
    assert panel.matches == museum.explain(text.strip())
    assert panel.error.value == ""


def test_its_stored_form():
    bundle = MuseumPanel(TEXTS[0])._repr_mimebundle_()
    assert bundle["text/plain"].startswith(
        "Not sure; perhaps entry 1 of notebook 15, “Batch and time swapped”"
    )
    assert museum.find_entry("Batch and time swapped").to_html() in bundle["text/html"]
    assert "var(" not in bundle["text/html"]  # a stored card has the colour of the page
    assert "image/svg+xml" not in bundle
