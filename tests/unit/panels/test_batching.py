"""Tests of the panel of batches and processes, whose controls are moved as a browser moves them."""

import pytest
from controls import move, visible, words

from packviz.core import batches as buckets
from packviz.core import lengths as sources
from packviz.core.batches import BUCKETED, ORDERS, SHUFFLED, SPLITS
from packviz.core.layout import Layout
from packviz.panels import BatchingPanel
from packviz.panels.picker import OWN_LIST

OWN = [4, 6, 8, 5, 4, 3, 7, 8]  # the example of the picker


def shows(
    panel, n, batch_size=32, order=SHUFFLED, window=None, processes=2, strategy="contiguous", seed=0
):
    """Asserts that picture, counts and words are those of these batches and shares."""
    groups = buckets.batches(n, batch_size, order, window=window or panel.window.value, seed=seed)
    layouts = [Layout([n[i] for i in group]) for group in groups]
    tokens = buckets.tokens(n, groups, processes, strategy)
    assert panel.error.value == ""
    assert panel.real.tolist() == [layout.n_real for layout in layouts]
    assert panel.cells.tolist() == [layout.n_cells for layout in layouts]
    assert panel.padding == sum(layout.n_padding for layout in layouts)
    assert panel.tokens.tolist() == tokens.tolist()
    summary = words(panel.summary)
    assert f"{panel.cells.sum():,} cells, {panel.padding:,} padding" in summary
    assert (
        f"{processes} processes ({strategy}) wait"
        f" {100 * buckets.idle(tokens):.3g} % of the time, if" in summary
    ) == (processes > 1)
    for rank in range(processes) if processes > 1 else ():
        own = tokens[:, rank].sum()
        waits = tokens.max(axis=1).sum() - own
        assert (
            f"rank {rank} has {own:,} tokens, and waits as long as {waits:,} take"
            in panel.to_text()
        )
    assert visible(panel.strategy) == ("rank 0" in panel.picture.value) == (processes > 1)


def drawn(kind="log-normal", sequences=512, longest=128, seed=0):
    return sources.DISTRIBUTIONS[kind](sequences, longest, seed)


def test_it_starts_with_sentences_like_lengths():
    shows(BatchingPanel(), drawn())
    shows(BatchingPanel(OWN, batch_size=4), OWN, 4)
    assert "1 cell, 0 padding" in repr(BatchingPanel([1]))
    other = BatchingPanel(kind="uniform", sequences=64, longest=9, order=BUCKETED, processes=1)
    shows(other, drawn("uniform", 64, 9), 32, BUCKETED, processes=1)


@pytest.mark.parametrize(
    "name", ["sequences", "longest", "seed", "batch_size", "window", "processes"]
)
def test_sliders(name):
    panel = BatchingPanel(order=BUCKETED)
    control = vars(panel).get(name) or getattr(panel.picker, name)
    for value in {control.min, control.max, (control.min + control.max) // 2}:
        move(control, value)
        lengths = drawn(**({name: value} if name in ("sequences", "longest", "seed") else {}))
        other = {name: value} if name in ("batch_size", "window", "processes", "seed") else {}
        shows(panel, lengths, **({"order": BUCKETED} | other))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("strategy", SPLITS)
def test_orders_and_splits(order, strategy):
    panel = BatchingPanel(OWN, batch_size=3)
    move(panel.order, order)
    move(panel.strategy, strategy)
    shows(panel, OWN, 3, order, window=3, strategy=strategy)
    assert visible(panel.window) == (order == BUCKETED)
    assert visible(panel.picker.seed) == (order in (BUCKETED, SHUFFLED))


def test_no_slider_is_shown_that_does_nothing():
    panel = BatchingPanel(order=BUCKETED)
    assert (panel.window.value, panel.window.max) == (16, 16)  # there are only 16 batches
    move(panel.batch_size, 128)
    assert (panel.window.value, panel.window.max) == (4, 4)
    move(panel.picker.kind, "equal")
    assert not visible(panel.window)
    assert not visible(panel.picker.seed)
    move(panel.picker.kind, OWN_LIST)  # one batch
    assert not visible(panel.window)
    assert not visible(panel.picker.seed)
    move(panel.batch_size, 3)
    assert visible(panel.picker.seed)
    assert (panel.window.value, panel.window.max) == (3, 3)
    shows(panel, OWN, 3, BUCKETED, window=3)


def test_waiting_is_not_hatched():
    panel = BatchingPanel([4] * 8, batch_size=8, processes=1)  # only the key of padding is hatched
    hatched = panel.picture.value.count("--packviz-hatch")
    move(panel.processes, 3)
    assert "waiting" in panel.picture.value
    assert panel.picture.value.count("--packviz-hatch") == hatched
