"""Tests of the panel of FLOPs, whose controls are moved as a browser moves them."""

from dataclasses import replace

import pytest
from panels import move, visible, words

from packviz.core.spec import Spec
from packviz.count.flops import flops
from packviz.draw import layouts as pictures
from packviz.draw import text
from packviz.explorers import CostExplorer


def shows(explorer, spec, lengths, input_grad=False):
    """Asserts that picture, counts and words are those of this count."""
    count = flops(spec, lengths, input_grad=input_grad)
    assert explorer.shown == count
    assert explorer.error.value == ""
    assert count.headline() in " ".join(explorer.picture.value.split("aria-label=")[1].split('"')[1:2])
    assert f"{count.padded:,} GEMM FLOPs padded and {count.packed:,} packed" in words(explorer.summary)
    body = pictures.draw(count.layout, theme="live").svg().split("</style>")[1].split("/>", 1)[1]
    assert body.removesuffix("</svg>") in explorer.picture.value
    assert explorer.to_text().endswith(f"{count.to_text()}\n\n{text.describe(count.layout)}")


SIX = [9, 8, 6, 4, 3, 2]


def test_it_starts_with_the_worked_example():
    explorer = CostExplorer()
    shows(explorer, Spec("LSTM", 3, 7), SIX)
    assert "17,920 of 30,240: 40.7 % saved" in explorer.picture.value
    shows(CostExplorer([2, 1], "GRU", 500, 200), Spec("GRU", 500, 200), [2, 1])


@pytest.mark.parametrize("name", ["input_size", "hidden_size", "num_layers", "proj_size"])
def test_each_slider_sets_its_size(name):
    explorer = CostExplorer()
    control = getattr(explorer, name)
    sizes = {"input_size": 3, "hidden_size": 7, "num_layers": 1, "proj_size": 0}
    for value in {control.min, control.max, (control.min + control.max) // 2}:
        move(control, value)
        shows(explorer, Spec("LSTM", **(sizes | {name: value})), SIX)


@pytest.mark.parametrize("mode", ["LSTM", "GRU", "RNN"])
def test_the_kind_of_rnn(mode):
    explorer = CostExplorer()
    move(explorer.proj_size, 2)
    move(explorer.mode, mode)
    spec = Spec(mode, 3, 7, proj_size=2 if mode == "LSTM" else 0)
    shows(explorer, spec, SIX)
    assert visible(explorer.proj_size) == (mode == "LSTM")
    move(explorer.bidirectional, True)
    move(explorer.input_grad, True)
    shows(explorer, replace(spec, bidirectional=True), SIX, input_grad=True)


def test_a_projection_follows_the_hidden_size():
    explorer = CostExplorer()
    move(explorer.proj_size, 6)
    move(explorer.hidden_size, 4)
    shows(explorer, Spec("LSTM", 3, 4, proj_size=3), SIX)
    assert explorer.proj_size.max == 3
    move(explorer.hidden_size, 1)
    shows(explorer, Spec("LSTM", 3, 1), SIX)
    assert not visible(explorer.proj_size)
    move(explorer.hidden_size, 128)
    assert explorer.proj_size.max == 127
