"""Tests of the panel of staircases, whose controls are moved as a browser moves them."""

import pytest
from controls import move, words
from hypothesis import given
from hypothesis import strategies as st

from packviz.core.cuts import best_cuts, count_work
from packviz.core.layout import Layout
from packviz.draw.stairs import Stairs
from packviz.panels import StaircasePanel
from packviz.panels.panel import draw_side_by_side
from packviz.panels.staircase import ALL_COUNTS_UP_TO, CALL_COSTS, best_staircases

SIX = [9, 8, 6, 4, 3, 2]


def shows(panel, lengths, call, rectangles):
    """Asserts that picture, counts and words show the best staircase with this number of
    rectangles."""
    n = list(lengths)
    assert panel.error.value == ""
    assert repr(panel.shown) == repr(Stairs(n, panel.shown.cuts))
    least = Stairs(n, best_cuts(n, 0, rectangles)).wasted
    assert panel.shown.wasted == least  # there may be several best staircases
    assert panel.shown.calls == rectangles == panel.rectangles.value
    costs, wasted = [], []
    for k, cuts in best_staircases(tuple(n)).items():
        work = count_work(n, cuts)
        assert work.calls == k
        costs.append(work.cells + call * k)
        wasted.append(work.wasted)
    assert list(panel.costs) == list(panel.rectangles.options)
    assert list(panel.costs.values()) == [cost / costs[0] for cost in costs]
    left, right = panel.trade_off.plots
    assert (left.curves[0].y, right.curves[0].y) == (list(panel.costs.values()), wasted)
    assert panel.picture.value == draw_side_by_side([panel.shown, panel.trade_off], "live").svg()
    assert words(panel.summary).startswith(panel.shown.summary())
    assert panel.to_text().endswith(f"{panel.shown.to_text()}\n\n{panel.trade_off.to_text()}")


def test_the_slider_goes_from_padding_to_packing():
    panel = StaircasePanel(SIX)
    assert list(panel.rectangles.options) == [1, 2, 3, 4, 5, 6]
    pictures = set()
    for k in panel.rectangles.options:
        move(panel.rectangles, k)
        shows(panel, SIX, 200, k)
        pictures.add(panel.picture.value)
    assert len(pictures) == 6
    assert panel.shown.wasted == 0
    move(panel.rectangles, 1)
    assert panel.shown.cells == Layout(SIX).n_cells


def test_the_dearer_a_call_the_fewer_rectangles_are_best():
    panel = StaircasePanel(sequences=32, longest=64)
    best = []
    for call in CALL_COSTS:
        move(panel.call, call)
        n = panel.picker.lengths().lengths.tolist()
        shows(panel, n, call, panel.rectangles.value)
        work = count_work(n, best_cuts(n, call))
        one = Layout(n).n_cells + call
        assert min(panel.costs.values()) <= (work.cells + call * work.calls) / one
        best.append(min(panel.costs, key=panel.costs.get))
    assert best == sorted(best, reverse=True)
    assert best[0] > 1 == best[-1]
    with pytest.raises(ValueError, match="call is 3; choose one of 1, 10"):
        StaircasePanel(call=3)


@given(st.lists(st.integers(1, 80), min_size=1, max_size=80))
def test_the_staircases_on_offer_waste_as_little_as_any(lengths):
    stops = best_staircases(tuple(lengths))
    distinct = len(set(lengths))
    assert list(stops) == sorted(stops)
    assert set(range(1, min(ALL_COUNTS_UP_TO, distinct) + 1)) | {distinct} <= set(stops)
    for k, cuts in stops.items():
        assert len(cuts) == k + 1
        assert Stairs(lengths, cuts).wasted == Stairs(lengths, best_cuts(lengths, 0, k)).wasted


@given(st.lists(st.integers(1, 50), min_size=1, max_size=30))
def test_lengths_are_typed_and_the_slider_stays_near(lengths):
    panel = StaircasePanel(SIX)
    move(panel.picker.typed, ", ".join(map(str, lengths)))
    stops = list(panel.rectangles.options)
    assert stops == list(best_staircases(tuple(lengths)))
    shows(panel, lengths, 200, min(stops, key=lambda k: abs(k - 4)))
