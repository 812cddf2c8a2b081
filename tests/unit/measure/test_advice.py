"""pv.advise: its recommendation from given times, what it measures and for how long, on a clock of the test."""

import pickle
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from clocks import Clock
from drawings import ParsedSvg
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import packviz as pv
from packviz.core.batches import BUCKETED, SHUFFLED, Load, batches
from packviz.core.spec import Spec
from packviz.draw import palette
from packviz.measure import advice, comparison, timing
from packviz.measure.advice import SAMPLE, Advice, bucketed
from packviz.measure.comparison import PACKED, PADDED
from packviz.measure.timing import Timing

AUTO, STAIRCASE = "pv.run, auto", "pv.run, staircase"


def given_times(seconds, lengths=(5, 3, 8, 2) * 50, spread=0.01, **options):
    """Advice from these medians, each with this spread."""
    n = np.array(lengths)
    loads = {order: Load.of(n, batches(n, 64, order)) for order in (SHUFFLED, BUCKETED)}
    wobble = np.random.default_rng(0)
    rounds = {
        name: tuple(middle * (1 + spread * wobble.standard_normal(9)))
        for name, middle in seconds.items()
    }
    place = {"device": "cpu", "device_name": "an abacus", "threads": 1}
    spec, spent = Spec("GRU", 32, 64), {"looking": 1.0, "measuring": 8.0}
    given = Advice(spec, True, n, 64, 50, loads, 4, Timing(rounds, 1, False, place), {}, {}, spent)
    return replace(given, **options)


# What is recommended.


def test_the_fastest_with_the_right_results():
    found = given_times({PADDED: 1.0, PACKED: 4.0, AUTO: 3.0, STAIRCASE: 2.0})
    assert found.best == found.recommended == STAIRCASE
    assert found.speedup == pytest.approx(2, rel=0.05)
    assert 1.8 < found.speedup.low < found.speedup < found.speedup.high < 2.2
    assert found.seconds_per_epoch == pytest.approx(2.0, rel=0.05)
    assert found.seconds_per_epoch.low < found.seconds_per_epoch < found.seconds_per_epoch.high
    assert found.epoch(PACKED) == pytest.approx(4.0, rel=0.05)
    assert re.search(r", about (1\.9|2)\S* s per epoch\.", found.verdict)
    assert found.verdict.startswith("Use pv.run, staircase.\nIt saves ")


def test_padding_is_never_recommended_where_it_changes_results():
    assert given_times({PADDED: 0.1, PACKED: 4.0}).best == PACKED
    assert given_times({PADDED: 0.1, PACKED: 4.0}, [7, 7, 7, 7]).best == PADDED
    assert given_times({PADDED: 0.1, PACKED: 4.0}, [7, 7, 7, 6]).best == PACKED


def test_of_what_is_not_told_apart_the_simplest():
    found = given_times({PADDED: 1.0, PACKED: 2.05, AUTO: 2.0, STAIRCASE: 2.02}, spread=0.1)
    assert found.best == PACKED
    assert "Cannot tell which is fastest; take the simplest, torch, packed." in found.verdict
    found = given_times({PADDED: 1.0, PACKED: 2.05, AUTO: 2.04, STAIRCASE: 2.05}, spread=0.02)
    assert "Nothing with the same results is clearly faster." in found.verdict
    assert "Nothing else was measured." in given_times({PADDED: 1.0, PACKED: 2.0}).verdict
    found = given_times({PADDED: 1.0, PACKED: 9.0, AUTO: 2.02, STAIRCASE: 2.0}, spread=0.1)
    assert found.best == AUTO


@given(st.lists(st.floats(0.5, 2.0), min_size=3, max_size=3), st.floats(0, 0.3))
def test_the_recommendation_is_never_clearly_slower_than_another_right_one(middles, spread):
    found = given_times(
        dict(zip((PACKED, AUTO, STAIRCASE), middles, strict=True)) | {PADDED: 0.01}, spread=spread
    )
    assert found.best != PADDED
    for other in (PACKED, AUTO, STAIRCASE):
        ratio = found.timing.ratio(found.best, other)
        fastest = min((PACKED, AUTO, STAIRCASE), key=found.timing.median)
        assert other != fastest or ratio.value <= 1 or not ratio.is_clear


# Bucketing.


def test_what_bucketing_adds():
    shuffled = {PADDED: 1.0, PACKED: 4.0, AUTO: 3.0}
    found = given_times(
        shuffled | {bucketed(name): seconds / 2 for name, seconds in shuffled.items()}
    )
    assert (found.best, found.recommended) == (AUTO, bucketed(AUTO))
    assert found.speedup == pytest.approx(4 / 1.5, rel=0.05)
    assert found.seconds_per_epoch == found.epoch(bucketed(AUTO)) == pytest.approx(1.5, rel=0.05)
    assert found.bucketing.value == pytest.approx(0.5, rel=0.05)
    assert (
        f"from 43.8 % to 13.5 %, and takes {100 * (1 - found.bucketing.value):.0f} % less"
        in found.verdict
    )
    assert found.verdict.startswith(
        "Use pv.run, auto, on buckets of similar lengths.\nOn shuffled batches"
    )
    slower = given_times(
        shuffled | {bucketed(name): 2 * seconds for name, seconds in shuffled.items()}
    )
    assert "more time per epoch" in slower.verdict
    assert (slower.recommended, slower.bucketing.value > 1) == (AUTO, True)
    assert "BucketSampler" not in slower.code
    measured = given_times(shuffled).timing.seconds
    wobble = np.random.default_rng(1)
    other = {
        bucketed(name): tuple(wobble.permutation(seconds)) for name, seconds in measured.items()
    }
    assert (
        "cannot tell whether this changes the time"
        in replace(found, timing=Timing(measured | other)).verdict
    )
    assert given_times(shuffled).bucketing is None
    assert "its effect on the time was not measured" in given_times(shuffled).verdict


# In words and as a picture.


TIMES = {
    PADDED: 1.0,
    PACKED: 4.0,
    AUTO: 3.0,
    STAIRCASE: 2.0,
    bucketed(PACKED): 2.0,
    bucketed(STAIRCASE): 1.5,
}


def test_the_table():
    why = "does not give the h_n of packing"
    found = given_times(
        TIMES, spread=0, once={"pv.run, split": 1.5}, failed={"pv.run, packed": why}
    )
    table = found.to_text().partition("results of packing\n")[2].splitlines()
    rows = [re.split("  +", line) for line in table]
    assert [row[:3] for row in rows[:8]] == [
        *([name, f"{seconds:g}", f"{seconds / 4:g}"] for name, seconds in TIMES.items()),
        ["pv.run, split", "~ 6", "(from one batch)"],
        ["pv.run, packed", why],
    ]
    assert [row[-1] for row in rows[:6]] == ["no, it reads padding", *["yes"] * 5]
    assert table[-1] == "Measured on an abacus (CPU), torch None, 1 thread, 9 rounds."


def test_the_picture_has_a_bar_for_each_ratio():
    found = given_times(TIMES)
    drawing = ParsedSvg(found.to_svg())
    texts = [text.said for text in sorted(drawing.texts, key=lambda text: text.y)]
    assert [name for name in texts if name in TIMES] == [*TIMES]
    hatched = [box for box in drawing.boxes if box.fill == palette.THEMES["light"].padding]
    assert len(hatched) == 2  # torch's padded run, and the key
    assert all(found.timing.ratio(name, PACKED).number in texts for name in TIMES)
    assert not drawing.outside()


# Code to paste.


@pytest.mark.parametrize("best", [PADDED, PACKED, AUTO, STAIRCASE])
@pytest.mark.parametrize("mode", ["GRU", "LSTM"])
def test_the_code_does_what_it_says(best, mode):
    lengths = [3, 3] if best == PADDED else [3, 2]
    found = given_times(
        {name: 2.0 - (name == best) for name in (PADDED, PACKED, AUTO, STAIRCASE)}, lengths
    )
    found = replace(found, spec=Spec(mode, 2, 4))
    assert found.best == best
    rnn, x = getattr(nn, mode)(2, 4, batch_first=True), torch.randn(2, 3, 2)
    scope = {"rnn": rnn, "x": x, "lengths": lengths}
    exec(found.code, scope)
    packed, state = rnn(pack_padded_sequence(x, lengths, batch_first=True))
    h_n = state[0] if mode == "LSTM" else state
    assert ("c_n" in scope) == (mode == "LSTM")
    assert torch.allclose(
        scope["output"], pad_packed_sequence(packed, batch_first=True)[0], atol=1e-6
    )
    assert torch.allclose(scope["h_n"], h_n, atol=1e-6)


def test_the_code_for_buckets():
    times = {PADDED: 1.0, PACKED: 4.0, bucketed(PACKED): 2.0}
    found = given_times(times, batch_size=2)
    data = [torch.zeros(n, 1) for n in (3, 1, 2)]
    scope = {"dataset": data, "all_lengths": [3, 1, 2], "collate": torch.nn.utils.rnn.pad_sequence}
    exec(
        found.code,
        scope | {"rnn": nn.GRU(1, 2), "x": torch.zeros(3, 2, 1), "lengths": [3, 2]},
        scope,
    )
    assert sorted(batch.shape[1] for batch in scope["loader"]) == [1, 2]
    assert scope["sampler"].window == found.window


# The measurement, on a clock that the methods advance.


class Race(Clock):
    """Methods that take a given time for each cell that they compute."""

    def __init__(self, monkeypatch, costs):
        super().__init__(monkeypatch, comparison)
        self.costs, self.calls = costs, []
        monkeypatch.setattr(
            advice, "every_method", lambda: {name: self.method(name) for name in costs}
        )

    def method(self, name):
        def run(rnn, x, lengths):
            self.calls.append((name, tuple(lengths.tolist())))
            self.now += self.costs[name] * x.shape[0] * x.shape[1]
            packed, state = rnn(
                pack_padded_sequence(x, lengths, rnn.batch_first, enforce_sorted=False)
            )
            return pad_packed_sequence(packed, rnn.batch_first)[0], state

        return run


LENGTHS = np.random.default_rng(0).integers(1, 9, 40).tolist()
COSTS = {
    PADDED: 1e-3,
    PACKED: 4e-3,
    AUTO: 2e-3,
    STAIRCASE: 2.2e-3,
    "pv.run, split": 3.2e-3,
    "pv.run, packed": 7e-3,
}


def test_it_finds_the_costs(monkeypatch):
    race = Race(monkeypatch, COSTS)
    found = advice.advise(nn.GRU(1, 2), LENGTHS, batch_size=8, budget=1000.0)
    assert found.best == AUTO
    assert found.speedup == pytest.approx(found.bucketing.value and 2 / found.bucketing.value)
    assert found.once == {"pv.run, packed": pytest.approx(7e-3 * 8 * 8, rel=0.4)}
    assert found.sample == found.batches == 5  # all of them
    for order in (SHUFFLED, BUCKETED):
        cells = found.loads[order].cells.sum()
        for name in (PADDED, PACKED, AUTO, STAIRCASE, "pv.run, split"):
            measured = found.epoch(name if order == SHUFFLED else bucketed(name))
            assert measured == pytest.approx(COSTS[name] * cells)
    assert found.bucketing.value == pytest.approx(
        found.loads[BUCKETED].cells.sum() / found.loads[SHUFFLED].cells.sum()
    )
    assert sum(found.spent.values()) == pytest.approx(race.now - 100.0)
    # Else a method that remembers what it has made of the lengths would be timed without making it.
    of_one = [lengths for name, lengths in race.calls if name == AUTO][3:]
    assert len(set(of_one)) > 0.8 * len(of_one)  # buckets have the same length more than once
    assert len({tuple(sorted(lengths)) for lengths in of_one}) <= 10
    assert pickle.loads(pickle.dumps(found)).to_text() == found.to_text()
    speedup = pickle.loads(pickle.dumps(found.speedup))
    assert (speedup, speedup.low, speedup.high) == (
        found.speedup,
        found.speedup.low,
        found.speedup.high,
    )


@given(
    st.floats(0.01, 30),
    st.lists(st.floats(1e-4, 2e-2), min_size=len(COSTS), max_size=len(COSTS)),
    st.sampled_from([LENGTHS, LENGTHS[:8], [4] * 40]),
)
def test_the_budget_is_kept(budget, costs, lengths):
    with pytest.MonkeyPatch.context() as patch:
        race = Race(patch, dict(zip(COSTS, costs, strict=True)))
        found = advice.advise(nn.GRU(1, 2), lengths, batch_size=8, budget=budget)
        spent = race.now - 100.0
    cells = 8 * max(lengths)  # of a batch, at most
    assert spent <= max(budget, costs[1] * cells) + found.sample * max(costs) * cells + 1e-9
    if sum(costs) * cells <= budget:
        assert spent <= 1.5 * budget
        assert found.failed == {}
    for name, why in found.failed.items():
        assert name != PACKED
        assert why == "left out: the budget was used up"
    assert 1 <= found.timing.rounds <= 7
    assert 1 <= found.sample <= min(SAMPLE, found.batches)
    if budget > 20 * (2 + 12 * 12) * sum(costs) * cells:
        assert found.timing.rounds == 6  # which are all alike
        assert found.sample == min(SAMPLE, found.batches)
        assert (found.bucketing is None) == (lengths is not LENGTHS)


def test_a_look_that_is_all_there_is_time_for(monkeypatch):
    race = Race(monkeypatch, COSTS)
    budget = 1.2 * 64 * sum(COSTS.values())
    found = advice.advise(nn.GRU(1, 2), [8] * 39 + [7], batch_size=8, budget=budget)
    assert {name for name, _ in race.calls} == {*COSTS}
    assert (found.timing.rounds, found.timing.warmup, found.sample) == (1, 0, 1)
    assert found.epoch(AUTO) == pytest.approx(COSTS[AUTO] * 64 * 5)
    assert found.best == PACKED  # one round tells nothing
    assert "1 round cannot tell the methods apart; the fastest was pv.run, auto." in found.verdict
    assert "quartiles" not in found.verdict


def test_a_method_with_other_results_is_out(monkeypatch):
    race = Race(monkeypatch, COSTS)
    right = race.method

    def method(name):
        def wrong(*given):
            output, state = right(name)(*given)
            return output, state * 1.001

        def unable(*given):
            raise NotImplementedError("not for a GRU\nreally")

        return {AUTO: wrong, STAIRCASE: unable}.get(name, right(name))

    race.method = method
    found = advice.advise(nn.GRU(1, 2), LENGTHS, batch_size=8, budget=100.0)
    assert found.best == "pv.run, split"
    assert found.failed == {
        AUTO: "does not give the h_n of packing",
        STAIRCASE: "cannot run this: not for a GRU",
    }


# For real, and small: few rounds end it, long before the budget, which even a busy machine keeps.


@pytest.fixture
def few_rounds(monkeypatch):
    monkeypatch.setattr(timing, "NARROW", float("inf"))


@pytest.mark.usefixtures("few_rounds")
@pytest.mark.parametrize(
    "rnn",
    [
        nn.GRU(2, 3),
        nn.LSTM(2, 3, num_layers=2, dropout=0.5, batch_first=True),
        nn.RNN(2, 3, bidirectional=True).double(),
        nn.GRU(2, 3).requires_grad_(False),
        nn.LSTM(2, 3, proj_size=2).eval(),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
def test_a_real_run_leaves_no_trace(rnn):
    training = rnn.training
    for weight in rnn.parameters():
        weight.grad = torch.full_like(weight, 7)
    weights = [weight.detach().clone() for weight in rnn.parameters()]
    torch.manual_seed(3)
    before = torch.get_rng_state()
    found = pv.advise(rnn, LENGTHS, batch_size=20, budget=60.0)
    assert torch.equal(torch.get_rng_state(), before)
    assert rnn.training == found.training == training
    for weight, old in zip(rnn.parameters(), weights, strict=True):
        assert torch.equal(weight, old)
        assert weight.grad.eq(7).all()
    assert found.failed == {}
    assert found.is_exact(found.best)
    assert ("forward and backward" if training else "forward alone") in found.to_text()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu():
    found = pv.advise(nn.LSTM(4, 8).cuda(), LENGTHS, batch_size=8, budget=2.0)
    assert found.failed == {}
    assert found.timing.provenance["device"].startswith("cuda")


# Where lengths come from.


@given(st.lists(st.integers(1, 50), min_size=1, max_size=60), st.integers(1, 9))
def test_the_batches_that_stand_for_all(lengths, batch_size):
    n = np.array(lengths)
    groups = batches(n, batch_size)
    load = Load.of(n, groups)
    for sample in range(1, min(SAMPLE, len(groups)) + 1):
        chosen = advice._middle(groups, load, sample)
        assert len(chosen) == sample
        cells = [group.size * n[group].max() for group in chosen]
        assert cells == sorted(cells)
        if sample == len(groups):
            assert sorted(cells) == sorted(load.cells)
    (middle,) = advice._middle(groups, load, 1)
    below = sum(load.cells < middle.size * n[middle].max())
    assert below <= len(groups) // 2


@pytest.mark.parametrize(
    ("rnn", "lengths", "options", "error", "message"),
    [
        (nn.Linear(1, 1), [1], {}, TypeError, "rnn is a Linear; give an nn.RNN, nn.GRU or nn.LSTM"),
        (nn.GRU(1, 1), [1, 0], {}, ValueError, r"lengths\[1\] is 0"),
        (nn.GRU(1, 1), "nothing.csv", {}, ValueError, r"cannot read nothing\.csv"),
        (
            nn.GRU(1, 1),
            [1],
            {"budget": 0},
            ValueError,
            "budget is 0; give a number of seconds greater than 0",
        ),
        (
            nn.GRU(1, 1),
            [1],
            {"seed": -1},
            ValueError,
            "seed is -1; give a whole number of at least 0",
        ),
        (nn.GRU(1, 1, device="meta"), [1], {}, ValueError, "rnn is on the meta device"),
        (nn.GRU(1, 1), None, {}, ValueError, "lengths is None; give a list"),
        (nn.GRU(1, 1), [1], {"batch_size": 0}, ValueError, "batch_size is 0"),
    ],
)
def test_bad_input(rnn, lengths, options, error, message):
    with pytest.raises(error, match=message):
        pv.advise(rnn, lengths, **options)
