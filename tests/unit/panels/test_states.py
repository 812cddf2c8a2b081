"""Tests of the panel of hidden states, whose controls are moved as a browser moves them."""

import pytest
import torch
from controls import move, move_each_and_back, visible, words

import packviz as pv
from packviz.panels import StatesPanel
from packviz.panels.states import CELLS, HIDDEN, INPUT, NAN, NOISE, WHOLE, ZEROS


@pytest.fixture
def panel():
    return StatesPanel([6, 4, 2])


def test_every_control_changes_the_picture_over_its_whole_range(panel):
    move(panel.bidirectional, True)
    move_each_and_back(
        panel,
        (
            (panel.padding, [NOISE, NAN, ZEROS]),
            (panel.cell, [*CELLS[1:], CELLS[0]]),
            (panel.layers, [2, 3, 1]),
            (panel.seed, [50, 99, 0]),
            (panel.direction, ["reverse", "forward"]),
            (panel.number, [f"unit {HIDDEN - 1}", WHOLE]),
            (panel.bidirectional, [False, True]),
            (panel.typed, ["3, 3", "1", "9, 1, 1", "6, 4, 2"]),
        ),
    )


def test_it_shows_what_compare_says(panel):
    move(panel.padding, NOISE)
    move(panel.bidirectional, True)
    result = panel.result
    assert words(panel.summary) == result.verdict
    assert panel.to_text().startswith(result.to_text())
    assert result.layout == pv.Layout([6, 4, 2])
    assert result.rnn == f"LSTM({INPUT}, {HIDDEN}, batch_first=True, bidirectional=True)"
    assert result.agrees.outputs_forward
    assert not result.agrees.outputs_reverse
    assert "last layer, forward" in words(panel.picture)
    move(panel.direction, "reverse")
    assert "last layer, reverse" in words(panel.picture)
    move(panel.number, "unit 2")
    assert "unit 2 of the hidden state, last layer, reverse" in words(panel.picture)
    move(panel.padding, NAN)
    assert words(panel.summary).endswith("NaN reaches all of these.")


def test_controls_without_a_say_are_hidden(panel):
    assert visible(panel.padding)
    assert not visible(panel.direction)
    move(panel.bidirectional, True)
    assert visible(panel.direction)
    move(panel.direction, "reverse")
    move(panel.bidirectional, False)
    assert not visible(panel.direction)
    assert "last layer, forward" in words(panel.picture)
    move(panel.typed, "4, 4")
    assert not visible(panel.padding)


def test_it_starts_as_told():
    state = torch.random.get_rng_state()
    panel = StatesPanel([5, 2], padding=NAN, cell="GRU", layers=2, bidirectional=True, seed=7)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert panel.result.rnn.startswith("GRU(3, 4, num_layers=2,")
    assert panel.result.c_n is None
    assert not panel.result.agrees.outputs_forward
    assert panel.seed.value == 7
    for wrong, said in (
        ({"padding": "ones"}, "padding is 'ones'"),
        ({"cell": "lstm"}, "cell is 'lstm'"),
    ):
        with pytest.raises(ValueError, match=said):
            StatesPanel([5, 2], **wrong)
