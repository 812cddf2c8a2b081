"""Tests of the panel of staircases, whose controls are moved as a browser moves them, and of its measurement."""

import threading
import time

import pytest
import torch
from controls import move, words
from hypothesis import given
from hypothesis import strategies as st

from packviz.core import lengths as sources
from packviz.core.cuts import Rates, best_cuts, predict
from packviz.core.layout import Layout
from packviz.core.spec import Spec
from packviz.draw import stairs
from packviz.draw.quantities import milliseconds
from packviz.draw.stairs import Stairs
from packviz.ops.costs import rates
from packviz.panels import StaircasePanel
from packviz.panels.job import Job
from packviz.panels.staircase import EACH, staircases

SIX = [9, 8, 6, 4, 3, 2]
SPEC = Spec("LSTM", 16, 32)


@pytest.fixture
def panel():
    return StaircasePanel(SIX)


def shows(panel, lengths, spec, calls):
    """Asserts that picture, counts and words show the best staircase with this number of rectangles."""
    n = [int(v) for v in lengths]
    cuts = best_cuts(n, Rates(0, 0, 0, 1), calls)
    it, price = panel.trade_off, rates(spec)["staircase"]
    assert panel.error.value == ""
    assert repr(panel.shown) == repr(Stairs(n, panel.shown.cuts))
    assert panel.shown.wasted == Stairs(n, cuts).wasted  # there may be several best ones
    assert panel.shown.calls == calls == it.at == panel.rectangles.value
    for k, wasted, seconds in zip(it.calls, it.wasted, it.seconds, strict=True):
        one = predict(n, staircases(tuple(n))[k], price)
        assert (one.calls, one.wasted, one.seconds) == (k, wasted, seconds)
    assert panel.picture.value == stairs.beside(panel.shown, it, "live").svg()
    assert words(panel.summary).startswith(panel.shown.summary())
    assert panel.to_text().endswith(
        f"{spec}, forward and backward\n{panel.shown.to_text()}\n\n{it.to_text()}"
    )


def test_the_slider_goes_from_padding_to_packing(panel):
    assert list(panel.rectangles.options) == [1, 2, 3, 4, 5, 6]
    pictures = set()
    for k in panel.rectangles.options:
        move(panel.rectangles, k)
        shows(panel, SIX, SPEC, k)
        pictures.add(panel.picture.value)
    assert len(pictures) == 6
    assert panel.shown.wasted == 0
    move(panel.rectangles, 1)
    assert panel.shown.cells == Layout(SIX).n_cells


@given(st.lists(st.integers(1, 80), min_size=1, max_size=80))
def test_the_staircases_on_offer_waste_as_little_as_any(lengths):
    found = staircases(tuple(lengths))
    distinct = len(set(lengths))
    assert list(found) == sorted(found)
    assert set(range(1, min(EACH, distinct) + 1)) | {distinct} <= set(found)
    for k, cuts in found.items():
        assert len(cuts) == k + 1
        assert (
            Stairs(lengths, cuts).wasted
            == Stairs(lengths, best_cuts(lengths, Rates(0, 0, 0, 1), k)).wasted
        )


@pytest.mark.parametrize("name", ["many", "longest", "seed", "input_size", "hidden_size"])
def test_each_slider_over_its_range(name):
    panel = StaircasePanel(kind="uniform", many=9, longest=12)
    control = vars(panel).get(name) or getattr(panel.picker, name)
    values = {"many": 9, "longest": 12, "seed": 0, "input_size": 16, "hidden_size": 32}
    for value in {control.min, control.max, (control.min + control.max) // 2}:
        move(control, value)
        now = values | {name: value}
        lengths = sources.uniform(now["many"], now["longest"], now["seed"])
        shows(
            panel,
            lengths,
            Spec("LSTM", now["input_size"], now["hidden_size"]),
            panel.rectangles.value,
        )


@given(st.lists(st.integers(1, 50), min_size=1, max_size=30))
def test_lengths_are_typed_and_the_slider_stays_near(lengths):
    panel = StaircasePanel(SIX)
    move(panel.picker.typed, ", ".join(map(str, lengths)))
    stops = list(panel.rectangles.options)
    assert stops == list(staircases(tuple(lengths)))
    shows(panel, lengths, SPEC, min(stops, key=lambda k: abs(k - 4)))


# Measuring.


def test_measured_points_come_into_the_chart(panel):
    said = panel.job.run()
    k, timing = panel.rectangles.value, panel.timing
    assert timing.rounds > 0
    assert set(timing.seconds) == {"1 rectangle", "4 rectangles"}
    ratio = timing.ratio("4 rectangles", "1 rectangle")
    assert panel.trade_off.measured == {1: (1, 1, 1), k: (ratio.value, ratio.low, ratio.high)}
    assert said.startswith(
        f"4 rectangles: {milliseconds(timing.median('4 rectangles'))} ms; {ratio}"
    )
    assert said == panel.job.message.value
    assert "measured here" in panel.picture.value
    move(panel.rectangles, 2)
    panel.job.run()
    assert set(panel.trade_off.measured) == {1, 2, 4}


def test_measured_points_belong_to_their_batch_and_their_rnn(panel, two_threads):
    state = torch.random.get_rng_state()
    panel.job.run()
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.get_num_threads() == two_threads
    move(panel.hidden_size, 8)
    assert not panel.trade_off.measured
    move(panel.hidden_size, 32)
    assert set(panel.trade_off.measured) == {1, 4}
    move(panel.picker.typed, "4, 2")
    move(panel.rectangles, 1)
    assert not panel.trade_off.measured
    assert panel.job.run().startswith("1 rectangle: ")
    assert panel.trade_off.measured == {1: (1, 1, 1)}


def test_a_stopped_measurement_adds_no_point(panel):
    assert panel.job._work(lambda done, of: None, lambda: True) == "stopped"
    assert not panel.trade_off.measured


# The job itself.


def resting(it):
    return not it.start.disabled and it.stop.disabled


def test_the_bar_follows_the_work_and_the_message_comes_last():
    bars = []

    def work(progress, stop):
        assert it.start.disabled
        assert not it.stop.disabled
        for i in range(3):
            progress(i + 1, 3)
            bars.append((it.bar.value, it.bar.max))
        return "done"

    it = Job("Do it", work)
    assert it.run() == it.message.value == "done"
    assert bars == [(1, 3), (2, 3), (3, 3)]
    assert resting(it)


@pytest.mark.parametrize("how", ["the button", "a new job", "another job that starts"])
def test_one_job_runs_at_a_time(how):
    began, running = threading.Event(), []

    def work(progress, stop):
        running.append(1)
        assert len(running) == 1
        began.set()
        for _ in range(30_000):
            if stop():
                break
            time.sleep(0.01)
        running.pop()
        return "stopped" if stop() else "never asked"

    other, it = (
        Job("Other", lambda progress, stop: f"{len(running)} others run"),
        Job("Do it", work),
    )
    it.start.click()
    assert began.wait(300)
    if how == "the button":
        it.stop.click()
    elif how == "a new job":
        Job("New", work)
    else:
        assert other.run() == "0 others run"
    it.thread.join(300)
    assert it.message.value == "stopped"
    assert resting(it)
    it._work = lambda progress, stop: str(stop())
    assert it.run() == "False"  # the request was for the run before


def test_what_goes_wrong_is_shown():
    def wrong(progress, stop):
        raise ValueError("too long")

    it = Job("Do it", wrong)
    it.start.click()
    it.thread.join(300)
    assert (it.message.value, it.complaint) == ("too long", "✗ Do it: too long")
    assert resting(it)
    with pytest.raises(ValueError, match="too long"):
        it.run()
    assert resting(it)
