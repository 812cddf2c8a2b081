"""Tests the moving batch on a plain page: its numbers against `pv.Layout`, and its controls."""

import json

import pytest
from browser_checks import illegible, mounted, played_and_paused
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import packviz as pv
from packviz.core.layout import sequence_name
from packviz.draw import palette
from packviz.panels import BatchPanel

LENGTHS = st.one_of(
    st.lists(st.integers(1, 12), min_size=1, max_size=12),
    st.lists(st.integers(1, 3), min_size=1, max_size=12),  # many ties
    st.lists(st.integers(1, 64), min_size=1, max_size=40),
)
few = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def page(browser):
    draws = {"uniform": [[9, 7, 6, 3, 4, 1, 1, 1]]}
    yield from mounted(browser, BatchPanel(), {"draws": draws}, 900)


def lengths_of(page):
    return page.evaluate("mounted.values.lengths")


@few
@given(LENGTHS)
def test_the_module_and_layout_agree(page, lengths):
    layout = pv.Layout(lengths)
    expected = {
        "sorted": layout.sorted_indices.tolist(),
        "unsorted": layout.unsorted_indices.tolist(),
        "batchSizes": layout.batch_sizes.tolist(),
        "offsets": layout.offsets.tolist(),
        "steps": layout.max_len,
        "real": layout.n_real,
        "cells": layout.n_cells,
    }
    assert page.evaluate("lengths => module.layoutOf(lengths)", lengths) == expected
    summary = page.evaluate("lengths => module.summary(lengths)", lengths)
    assert summary == pv.show(lengths).to_text().splitlines()[0]


@few
@given(st.lists(st.integers(1, 9), min_size=1, max_size=10))
def test_every_cell_lies_at_its_place_in_data(page, lengths):
    """The cells of the packed picture, read line by line, are the rows of `data` in order."""
    page.evaluate(
        "lengths => { mounted.panel.setLengths(lengths); mounted.panel.setProgress(3); }", lengths
    )
    drawn = page.evaluate(
        """() => mounted.panel.picture.columns.flatMap(({ cells }) => cells.map(({ text, box }) => {
             const { x, y } = box.getBoundingClientRect();
             return { name: text.textContent, x, y };
           }))"""
    )
    in_reading_order = sorted(drawn, key=lambda cell: (round(cell["y"]), cell["x"]))
    rows, steps = pv.Layout(lengths).source.T.tolist()
    expected = [f"{sequence_name(row)}{step}" for row, step in zip(rows, steps, strict=True)]
    assert [cell["name"] for cell in in_reading_order] == expected


@given(st.integers(0, 2_000))
@few
def test_names_are_those_of_python(page, index):
    assert page.evaluate("index => module.sequenceName(index)", index) == sequence_name(index)


def test_its_colours_are_those_of_the_palette():
    for colour in palette.SEQUENCE_FILLS:
        assert json.dumps(colour) in BatchPanel._esm


def test_a_row_is_pulled_by_mouse_and_keyboard(page):
    ends = page.locator(".row-end")
    ends.nth(0).focus()
    page.keyboard.press("ArrowRight")
    assert lengths_of(page) == [5, 6, 8, 5, 4, 3, 7, 8]
    box = ends.nth(2).bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 5)
    page.mouse.down()
    page.mouse.move(box["x"] - 500, box["y"] + 5)
    page.mouse.up()
    assert lengths_of(page) == [5, 6, 1, 5, 4, 3, 7, 8]


def test_lengths_are_typed_drawn_added_and_removed(page):
    page.fill(".typed", "3, x")
    assert "x is not a length" in page.inner_text(".wrong")
    page.fill(".typed", "[3 2 1]")
    assert page.inner_text(".wrong") == ""
    assert lengths_of(page) == [3, 2, 1]
    page.click(".more")
    assert lengths_of(page) == [3, 2, 1, 5]
    page.click(".fewer")
    page.select_option(".kind", "uniform")
    assert lengths_of(page) == [9, 7, 6]
    page.fill(".seed", "-3")
    assert "seed is -3; type a whole number from 0 to 0" in page.inner_text(".wrong")
    page.fill(".seed", "0")
    page.evaluate("mounted.panel.setLengths(Array(9).fill(1), true)")
    page.select_option(".kind", "uniform")
    assert "there are 9 sequences; remove 1" in page.inner_text(".wrong")


def test_packing_goes_from_stage_to_stage_and_back(page):
    """With reduced motion, each press shows the next stage."""
    sentences = []
    for _ in range(3):
        page.click(".play")
        sentences.append(page.inner_text(".says"))
    assert "longest sequence goes on top" in sentences[0]
    assert "the padding can go" in sentences[1]
    assert "batch_sizes = [8, 8, 8, 7, 5, 4, 3, 2]" in sentences[2]
    page.click(".back")
    assert page.evaluate("mounted.values.progress") == 2


def test_150_steps_are_neither_all_numbered_nor_all_listed(page):
    page.evaluate("mounted.panel.setLengths([150, 30]), mounted.panel.setProgress(3)")
    assert "2, 2, …, 1, 1, 1] (150 in all)" in page.inner_text(".says")
    assert page.locator("svg text:text-is('6')").count() == 1  # and not 4, which would be too near


def test_the_cursor_says_what_an_rnn_reads(page):
    page.locator(".step").fill("5")
    assert "a padded run reads 8 cells, 4 of them padding" in page.inner_text(".says")


def test_plain_keys_stay_in_the_panel(page):
    """JupyterLab would take a, b, x and d d for commands on the cell."""
    page.evaluate("() => { document.onkeydown = event => (window.heard = event.key); }")
    page.locator(".row-end").first.focus()
    for key in ("a", "x", "d"):
        page.keyboard.press(key)
    assert page.evaluate("window.heard ?? null") is None
    page.keyboard.press("Control+s")
    assert page.evaluate("window.heard") == "s"


@pytest.mark.parametrize("width", [320, 700])
@pytest.mark.parametrize("progress", [0, 3])
def test_nothing_is_cut_off_and_no_text_is_small(page, width, progress):
    assert illegible(page, width, progress) == []


def test_it_can_be_paused_and_scrubbed(page):
    paused = played_and_paused(page)
    assert page.evaluate("mounted.panel.progress") == paused < 3
    page.locator(".progress").fill("2.5")
    assert page.evaluate("mounted.panel.progress") == 2.5


# Python answers the reader's first pull with lengths of its own.
IN_LAB = """
from packviz.panels import BatchPanel
panel = BatchPanel([4, 2, 7])
def answer(change):
    if panel.lengths == (5, 2, 7):
        panel.lengths = [3, 6]
panel.observe(answer, "lengths")
panel
"""


def test_in_jupyterlab_python_and_the_browser_share_the_lengths(lab):
    with lab.open(lab.server.write_notebook("batch.ipynb", [IN_LAB, "1 + 1"])) as notebook:
        notebook.run_all()
        page = notebook.page
        ends = page.locator(".row-end")
        cells = page.locator(".jp-Notebook .jp-Cell").count()
        ends.first.focus()
        page.keyboard.press("ArrowRight")
        page.wait_for_function("document.querySelectorAll('.row-end').length === 2")
        assert [end.get_attribute("aria-valuenow") for end in ends.all()] == ["3", "6"]
        ends.first.focus()
        for key in "abxdd":
            page.keyboard.press(key)
        notebook.settle()
        assert page.locator(".jp-Notebook .jp-Cell").count() == cells
        page.fill(".typed", "3, 0")
        assert "✗" in page.inner_text(".wrong")
        notebook.settle()
        assert [end.get_attribute("aria-valuenow") for end in ends.all()] == ["3", "6"]
        assert notebook.problems() == []
