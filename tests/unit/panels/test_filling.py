"""Tests of the panel of documents in rows, whose controls are moved as a browser moves them."""

import pytest
from controls import move, words

from packviz.core import lengths as sources
from packviz.core.batches import CUT, FILLS, FIRST_FIT_DECREASING
from packviz.draw.documents import MASKS, NO_MASK, Scores
from packviz.panels import RowPanel
from packviz.panels.picker import OWN_LIST


def shows(panel, lengths, row_size=10, strategy=FIRST_FIT_DECREASING, mask=NO_MASK):
    """Asserts that picture, counts and words are those of these rows."""
    scores = Scores(lengths, row_size, strategy, mask)
    assert panel.error.value == ""
    assert repr(panel.shown) == repr(scores)
    assert panel.picture.value == scores.to_svg("live")
    assert words(panel.summary) == scores.summary()
    assert panel.to_text().endswith(scores.to_text())


def test_it_starts_with_one_row():
    shows(RowPanel(), [5, 3, 2])
    shows(
        RowPanel([3, 7, 4, 5, 4], row_size=8, strategy=CUT, mask="both"),
        [3, 7, 4, 5, 4],
        8,
        CUT,
        "both",
    )
    sentences = sources.sentences(512, 128)
    shows(RowPanel(kind="sentences", sequences=512, row_size=64), sentences, 64)


@pytest.mark.parametrize(("strategy", "mask"), [*zip(FILLS, 2 * MASKS, strict=False)])
def test_strategies_and_masks(strategy, mask):
    panel = RowPanel([3, 7, 4, 5, 4], row_size=8)
    move(panel.strategy, strategy)
    move(panel.mask, mask)
    for row_size in (panel.row_size.min, 9, panel.row_size.max):
        move(panel.row_size, row_size)
        shows(panel, [3, 7, 4, 5, 4], row_size, strategy, mask)


def test_a_row_has_room_for_the_longest_unless_it_is_cut():
    panel = RowPanel([5, 3, 2])
    assert (panel.row_size.min, panel.row_size.max) == (5, 20)
    move(panel.strategy, CUT)
    assert panel.row_size.min == 1
    move(panel.row_size, 2)
    shows(panel, [5, 3, 2], 2, CUT)
    move(panel.strategy, FIRST_FIT_DECREASING)
    assert words(panel.note) == "row size went from 2 to 5 to fit."
    shows(panel, [5, 3, 2], 5)
    move(panel.picker.kind, OWN_LIST)
    move(panel.picker.typed, "900, 3")
    assert (panel.row_size.min, panel.row_size.max) == (900, 3600)
    shows(panel, [900, 3], 900)
    move(panel.picker.typed, "2, 1")
    assert (panel.row_size.min, panel.row_size.max, panel.row_size.value) == (2, 16, 16)
