"""Tests of the panel of hidden states, whose controls are moved as a browser moves them."""

import pytest
import torch
from panels import move, move_each_and_back, visible, words

import packviz as pv
from packviz.explorers import StatesExplorer
from packviz.explorers.states import CELLS, HIDDEN, INPUT, NAN, NOISE, WHOLE, ZEROS


@pytest.fixture
def explorer():
    return StatesExplorer([6, 4, 2])


def test_every_control_changes_the_picture_over_its_whole_range(explorer):
    move(explorer.bidirectional, True)
    move_each_and_back(
        explorer,
        (
            (explorer.padding, [NOISE, NAN, ZEROS]),
            (explorer.cell, [*CELLS[1:], CELLS[0]]),
            (explorer.layers, [2, 3, 1]),
            (explorer.seed, [50, 99, 0]),
            (explorer.direction, ["reverse", "forward"]),
            (explorer.number, [f"unit {HIDDEN - 1}", WHOLE]),
            (explorer.bidirectional, [False, True]),
            (explorer.typed, ["3, 3", "1", "9, 1, 1", "6, 4, 2"]),
        ),
    )


def test_it_shows_what_compare_says(explorer):
    move(explorer.padding, NOISE)
    move(explorer.bidirectional, True)
    result = explorer.result
    assert words(explorer.summary) == result.verdict
    assert explorer.to_text().startswith(result.to_text())
    assert result.layout == pv.Layout([6, 4, 2])
    assert result.rnn == f"LSTM({INPUT}, {HIDDEN}, batch_first=True, bidirectional=True)"
    assert result.agrees.outputs_forward
    assert not result.agrees.outputs_reverse
    assert "last layer, forward" in words(explorer.picture)
    move(explorer.direction, "reverse")
    assert "last layer, reverse" in words(explorer.picture)
    move(explorer.number, "unit 2")
    assert "unit 2 of the hidden state, last layer, reverse" in words(explorer.picture)
    move(explorer.padding, NAN)
    assert words(explorer.summary).endswith("NaN reaches all of these.")


def test_controls_without_a_say_are_hidden(explorer):
    assert visible(explorer.padding)
    assert not visible(explorer.direction)
    move(explorer.bidirectional, True)
    assert visible(explorer.direction)
    move(explorer.direction, "reverse")
    move(explorer.bidirectional, False)
    assert not visible(explorer.direction)
    assert "last layer, forward" in words(explorer.picture)
    move(explorer.typed, "4, 4")
    assert not visible(explorer.padding)


def test_it_starts_as_told():
    state = torch.random.get_rng_state()
    explorer = StatesExplorer([5, 2], padding=NAN, cell="GRU", layers=2, bidirectional=True, seed=7)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert explorer.result.rnn.startswith("GRU(3, 4, num_layers=2,")
    assert explorer.result.c_n is None
    assert not explorer.result.agrees.outputs_forward
    assert explorer.seed.value == 7
    for wrong, said in (({"padding": "ones"}, "padding is 'ones'"), ({"cell": "lstm"}, "cell is 'lstm'")):
        with pytest.raises(ValueError, match=said):
            StatesExplorer([5, 2], **wrong)
