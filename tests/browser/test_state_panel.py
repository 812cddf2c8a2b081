"""Tests the panel of states on a plain page: its LSTM against torch's, and its controls."""

import pytest
import torch
from browser_checks import illegible, mounted, played_and_paused
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.nn.utils.rnn import pack_padded_sequence

import packviz as pv
from packviz.panels import StatePanel

NAMES = ("kind", "lengths", "longest", "weights", "x")


@pytest.fixture
def page(browser):
    panel = StatePanel([3, 5, 2, 4])
    yield from mounted(browser, panel, {name: getattr(panel, name) for name in NAMES}, 760)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(1, 8), min_size=1, max_size=6), st.integers(0, 1000))
def test_its_states_are_those_of_torch(page, lengths, seed):
    torch.manual_seed(seed)
    lstm = torch.nn.LSTM(2, 5, batch_first=True)
    x = torch.randn(len(lengths), max(lengths), 2) * pv.real_mask(lengths)[..., None]
    weights = {name: weight.tolist() for name, weight in lstm.named_parameters()}
    drawn = page.evaluate("given => module.paddedStates(...given)", [weights, x.tolist(), lengths])
    states = torch.tensor(drawn)
    assert not states[:, 0].any()
    assert torch.allclose(states[:, 1:], lstm(x)[0], atol=1e-5)
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    ends = states[torch.arange(len(lengths)), torch.tensor(lengths)]
    assert torch.allclose(ends, lstm(packed)[1][0][0], atol=1e-5)


def test_pulling_b_longer_moves_the_padded_state_of_c(page):
    for _ in range(5):  # with reduced motion, each press reads a step
        page.click(".play")
    assert "c from 0.16 to 0.20" in page.inner_text(".says")
    before = page.locator("svg .end-state").all_text_contents()
    page.locator(".row-end").nth(1).focus()
    page.keyboard.press("ArrowRight")
    after = page.locator("svg .end-state").all_text_contents()
    assert before[4] == after[4] == "packed 0.09"
    assert before[5] == "padded 0.20 ✗"
    assert after[5] not in (before[5], "packed 0.09")
    page.click(".play")
    assert "both runs read data" in page.inner_text(".says")


def test_a_run_ends_with_the_data(page):
    page.evaluate("mounted.panel.progress = 8, mounted.panel.draw()")
    assert "undefined" not in page.inner_text(".says")


def test_it_moves_until_it_is_paused(page):
    paused = played_and_paused(page)
    assert page.evaluate("mounted.panel.progress") == paused


@pytest.mark.parametrize("width", [320, 700])
def test_nothing_is_cut_off_and_no_text_is_small(page, width):
    assert illegible(page, width, 5) == []
    ends = page.evaluate(
        """() => [...document.querySelectorAll("svg .end-state")]
             .map(text => text.getBoundingClientRect().right)"""
    )
    assert max(ends) <= width
