"""Tests of the panel of FLOPs, whose controls are moved as a browser moves them."""

from dataclasses import replace

import pytest
from controls import move, visible, words

from packviz.core.spec import Spec
from packviz.count.flops import flops
from packviz.draw import batch_picture, text
from packviz.panels import CostPanel


def shows(panel, spec, lengths, input_grad=False):
    """Asserts that picture, counts and words are those of this count."""
    count = flops(spec, lengths, input_grad=input_grad)
    assert panel.shown == count
    assert panel.error.value == ""
    assert count.headline().partition(". ")[0] in " ".join(
        panel.picture.value.split("aria-label=")[1].split('"')[1:2]
    )
    assert f"{count.padded:,} GEMM FLOPs padded and {count.packed:,} packed" in words(panel.summary)
    body = (
        batch_picture.draw(batch_picture.BatchView(count.layout), "live")
        .svg()
        .split("</style>")[1]
        .split("/>", 1)[1]
    )
    assert body.removesuffix("</svg>") in panel.picture.value
    assert panel.to_text().endswith(
        f"{count.to_text()}\n\n{text.describe_batch(text.LabelledBatch(count.layout))}"
    )


SIX = [9, 8, 6, 4, 3, 2]


def test_it_starts_with_the_worked_example():
    panel = CostPanel()
    shows(panel, Spec("LSTM", 3, 7), SIX)
    assert "17,920 of 30,240: 40.7 % saved" in panel.picture.value
    shows(CostPanel([2, 1], "GRU", 500, 200), Spec("GRU", 500, 200), [2, 1])


@pytest.mark.parametrize("name", ["input_size", "hidden_size", "num_layers", "proj_size"])
def test_each_slider_sets_its_size(name):
    panel = CostPanel()
    control = getattr(panel, name)
    sizes = {"input_size": 3, "hidden_size": 7, "num_layers": 1, "proj_size": 0}
    for value in {control.min, control.max, (control.min + control.max) // 2}:
        move(control, value)
        shows(panel, Spec("LSTM", **(sizes | {name: value})), SIX)


@pytest.mark.parametrize("mode", ["LSTM", "GRU", "RNN"])
def test_the_kind_of_rnn(mode):
    panel = CostPanel()
    move(panel.proj_size, 2)
    move(panel.mode, mode)
    spec = Spec(mode, 3, 7, proj_size=2 if mode == "LSTM" else 0)
    shows(panel, spec, SIX)
    assert visible(panel.proj_size) == (mode == "LSTM")
    move(panel.bidirectional, True)
    move(panel.input_grad, True)
    shows(panel, replace(spec, bidirectional=True), SIX, input_grad=True)


def test_a_projection_follows_the_hidden_size():
    panel = CostPanel()
    move(panel.proj_size, 6)
    move(panel.hidden_size, 4)
    shows(panel, Spec("LSTM", 3, 4, proj_size=3), SIX)
    assert panel.proj_size.max == 3
    move(panel.hidden_size, 1)
    shows(panel, Spec("LSTM", 3, 1), SIX)
    assert not visible(panel.proj_size)
    move(panel.hidden_size, 128)
    assert panel.proj_size.max == 127
