"""Tests of the panel of documents in rows, whose controls are moved as a browser moves them."""

import pytest
from panels import move, words

from packviz.core import lengths as sources
from packviz.core.batches import CUT, FILLS, FIRST_FIT_DECREASING
from packviz.draw.scores import MASKS, NONE, Scores
from packviz.explorers import RowExplorer
from packviz.explorers.lengths import TYPED


def shows(explorer, lengths, row_size=10, strategy=FIRST_FIT_DECREASING, mask=NONE):
    """Asserts that picture, counts and words are those of these rows."""
    scores = Scores(lengths, row_size, strategy, mask)
    assert explorer.error.value == ""
    assert repr(explorer.shown) == repr(scores)
    assert explorer.picture.value == scores.to_svg("live")
    assert words(explorer.summary) == scores.summary()
    assert explorer.to_text().endswith(scores.to_text())


def test_it_starts_with_one_row():
    shows(RowExplorer(), [5, 3, 2])
    shows(RowExplorer([3, 7, 4, 5, 4], row_size=8, strategy=CUT, mask="both"), [3, 7, 4, 5, 4], 8, CUT, "both")
    sentences = sources.sentences(512, 128)
    shows(RowExplorer(kind="sentences", many=512, row_size=64), sentences, 64)


@pytest.mark.parametrize("strategy", FILLS)
@pytest.mark.parametrize("mask", MASKS)
def test_strategies_and_masks(strategy, mask):
    explorer = RowExplorer([3, 7, 4, 5, 4], row_size=8)
    move(explorer.strategy, strategy)
    move(explorer.mask, mask)
    for row_size in (explorer.row_size.min, 9, explorer.row_size.max):
        move(explorer.row_size, row_size)
        shows(explorer, [3, 7, 4, 5, 4], row_size, strategy, mask)


def test_a_row_has_room_for_the_longest_unless_it_is_cut():
    explorer = RowExplorer([5, 3, 2], row_size=10)
    assert (explorer.row_size.min, explorer.row_size.max) == (5, 20)
    move(explorer.strategy, CUT)
    assert explorer.row_size.min == 1
    move(explorer.row_size, 2)
    shows(explorer, [5, 3, 2], 2, CUT)
    move(explorer.strategy, FIRST_FIT_DECREASING)
    assert words(explorer.note) == "row size went from 2 to 5 to fit."
    shows(explorer, [5, 3, 2], 5)
    move(explorer.picker.kind, TYPED)
    move(explorer.picker.typed, "900, 3")
    assert (explorer.row_size.min, explorer.row_size.max) == (900, 3600)
    shows(explorer, [900, 3], 900)
    move(explorer.picker.typed, "2, 1")
    assert (explorer.row_size.min, explorer.row_size.max, explorer.row_size.value) == (2, 16, 16)
