"""pv.advise: what it recommends from given times, and what it measures, on a clock of the test."""

import json
import pickle

import numpy as np
import pytest
import torch
from clocks import Clock
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import packviz as pv
from packviz.core.batches import batches
from packviz.measure import advise, timing
from packviz.measure.advise import MAX_BATCHES, PACKED, PADDED, Advice
from packviz.measure.timing import Timing

AUTO, SPLIT, STAIRCASE = "pv.run, auto", "pv.run, split", "pv.run, staircase"


def given_times(medians, spread=0.01, rounds=9, inexact=(PADDED,), is_lstm=False):
    """Returns advice from these medians, each with this spread."""
    noise = np.random.default_rng(0)
    seconds = {
        name: tuple(median * (1 + spread * noise.standard_normal(rounds)))
        for name, median in medians.items()
    }
    place = {"device": "cpu", "device_name": "an abacus", "threads": 1}
    return Advice(Timing(seconds, 1, place), 4, inexact, "GRU(2, 4)", is_lstm)


# What is recommended.


@given(st.lists(st.floats(0.5, 2.0), min_size=3, max_size=3), st.floats(0, 0.3))
def test_the_fastest_exact_method_is_recommended(medians, spread):
    exact = dict(zip((PACKED, AUTO, STAIRCASE), medians, strict=True))
    advice = given_times({PADDED: 0.01, **exact}, spread)
    assert advice.recommended == min(exact, key=advice.timing.median)
    for name in {*exact} - {advice.recommended}:
        clear = advice.timing.ratio(name, advice.recommended).is_clear
        assert (name in advice.unclear) != clear
    assert advice.recommended in advice.verdict


def test_the_padded_run_is_recommended_only_if_it_is_exact():
    assert given_times({PADDED: 0.1, PACKED: 4.0}).recommended == PACKED
    assert given_times({PADDED: 0.1, PACKED: 4.0}, inexact=()).recommended == PADDED


def test_the_text_says_what_it_could_not_tell():
    clear = given_times({PADDED: 1.0, PACKED: 4.0, AUTO: 3.0, STAIRCASE: 2.0})
    assert clear.verdict.startswith(f"Use {STAIRCASE}. It takes 0.50")
    assert "No clear difference" not in clear.verdict
    assert "its results differ from those of packing" in clear.to_text()
    numbers = clear.to_dict()
    assert json.loads(json.dumps(numbers)) == numbers
    assert [row["exact"] for row in numbers["rows"]] == [False, True, True, True]
    assert f"| {PADDED} | " in clear.to_markdown()
    unclear = given_times({PACKED: 2.05, AUTO: 2.0, STAIRCASE: 2.02}, spread=0.1)
    assert "No clear difference from it: " in unclear.verdict
    once = given_times({PACKED: 4.0, AUTO: 2.0}, rounds=1)
    assert once.verdict.startswith(f"{AUTO} is the fastest exact method here, but 1 round cannot")


@pytest.mark.parametrize("best", [PADDED, PACKED, AUTO, STAIRCASE])
@pytest.mark.parametrize("mode", ["GRU", "LSTM"])
def test_the_code_does_what_it_says(best, mode):
    medians = {name: 2.0 - (name == best) for name in (PADDED, PACKED, AUTO, STAIRCASE)}
    advice = given_times(medians, inexact=(), is_lstm=mode == "LSTM")
    rnn, x = getattr(nn, mode)(2, 4, batch_first=True), torch.randn(2, 3, 2)
    lengths = [3, 3] if best == PADDED else [3, 2]
    scope = {"rnn": rnn, "x": x, "lengths": lengths}
    exec(advice.code, scope)
    packed, state = rnn(pack_padded_sequence(x, lengths, batch_first=True))
    output, _ = pad_packed_sequence(packed, batch_first=True)
    h_n = state[0] if mode == "LSTM" else state
    assert ("c_n" in scope) == (mode == "LSTM")
    assert torch.allclose(scope["output"], output, atol=1e-6)
    assert torch.allclose(scope["h_n"], h_n, atol=1e-6)
    if advice.method:
        again, _ = pv.run(rnn, x, lengths, method=advice.method)
        assert torch.allclose(again, output, atol=1e-6)


# The measurement, on a clock that the methods advance.


class Race(Clock):
    """Methods that take a given time for each cell that they compute."""

    def __init__(self, monkeypatch, costs):
        super().__init__(monkeypatch, advise)
        self.costs, self.calls = costs, []
        monkeypatch.setattr(advise, "ALL_METHODS", {name: self.method(name) for name in costs})

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
COSTS = {PADDED: 1e-3, PACKED: 4e-3, AUTO: 2e-3, STAIRCASE: 2.2e-3, SPLIT: 3.2e-3}
COSTS |= {"pv.run, packed": 7e-3}


def test_it_finds_the_costs(monkeypatch):
    race = Race(monkeypatch, COSTS)
    advice = pv.advise(nn.GRU(1, 2), LENGTHS, batch_size=8, budget=1000.0)
    assert advice.recommended == AUTO
    assert advice.unclear == []
    assert advice.timing.ratio(AUTO, PACKED).value == pytest.approx(0.5)
    assert advice.timing.missing.keys() == {"pv.run, packed"}
    assert advice.sample == 5  # all of them
    cells = sum(n.size * n.max() for n in (np.array(LENGTHS)[g] for g in batches(LENGTHS, 8)))
    assert advice.timing.median(SPLIT) == pytest.approx(COSTS[SPLIT] * cells)
    assert len({lengths for name, lengths in race.calls if name == AUTO}) == 5
    assert pickle.loads(pickle.dumps(advice)).to_text() == advice.to_text()


@given(
    st.floats(0.01, 30),
    st.lists(st.floats(1e-4, 2e-2), min_size=len(COSTS), max_size=len(COSTS)),
    st.sampled_from([LENGTHS, LENGTHS[:8], [4] * 40]),
)
def test_the_budget_is_kept(budget, costs, lengths):
    with pytest.MonkeyPatch.context() as patch:
        race = Race(patch, dict(zip(COSTS, costs, strict=True)))
        advice = pv.advise(nn.GRU(1, 2), lengths, batch_size=8, budget=budget)
        spent = race.now - 100.0
    cells = 8 * max(lengths)  # of a batch, at most
    one_call_of_each = 2 * sum(costs) * cells  # the second one checks the results
    assert spent <= 1.5 * budget + one_call_of_each * (1 + advice.sample)
    assert PACKED in advice.timing.seconds
    assert advice.timing.rounds >= 1
    assert 1 <= advice.sample <= min(MAX_BATCHES, -(-len(lengths) // 8))
    exact = [name for name in advice.timing.seconds if name not in advice.inexact]
    assert advice.recommended == min(exact, key=advice.timing.median)


def test_out_of_budget_it_recommends_what_measured_fastest(monkeypatch):
    Race(monkeypatch, COSTS)
    budget = 2.2 * 64 * sum(COSTS.values())
    advice = pv.advise(nn.GRU(1, 2), [8] * 39 + [7], batch_size=8, budget=budget)
    assert (advice.timing.rounds, advice.sample) == (1, 1)
    assert advice.recommended == AUTO
    assert advice.timing.median(AUTO) == pytest.approx(COSTS[AUTO] * 64)
    assert "1 round cannot show a difference" in advice.verdict


def test_a_method_with_other_results_is_left_out(monkeypatch):
    race = Race(monkeypatch, COSTS)
    right = dict(advise.ALL_METHODS)

    def wrong(*given):
        output, state = right[AUTO](*given)
        return output, state * 1.001

    def unable(*given):
        raise NotImplementedError("not for a GRU\nreally")

    monkeypatch.setattr(advise, "ALL_METHODS", right | {AUTO: wrong, STAIRCASE: unable})
    advice = pv.advise(nn.GRU(1, 2), LENGTHS, batch_size=8, budget=100.0)
    assert advice.recommended == SPLIT
    assert advice.timing.missing[AUTO] == "its results differ from those of packing"
    assert advice.timing.missing[STAIRCASE] == "cannot run this: not for a GRU"
    assert race.calls


# For real, and small: few rounds end it, long before the budget, which even a busy machine keeps.


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
def test_a_real_run_leaves_no_trace(rnn, monkeypatch):
    monkeypatch.setattr(timing, "NARROW_FACTOR", float("inf"))
    training = rnn.training
    for weight in rnn.parameters():
        weight.grad = torch.full_like(weight, 7)
    weights = [weight.detach().clone() for weight in rnn.parameters()]
    torch.manual_seed(3)
    before = torch.get_rng_state()
    with torch.inference_mode():
        advice = pv.advise(rnn, LENGTHS, batch_size=20, budget=60.0)
    assert torch.equal(torch.get_rng_state(), before)
    assert rnn.training == training
    for weight, old in zip(rnn.parameters(), weights, strict=True):
        assert torch.equal(weight, old)
        assert weight.grad.eq(7).all()
    assert advice.recommended not in advice.inexact
    assert ("forward and backward" if training else "forward alone") in advice.to_text()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu():
    advice = pv.advise(nn.LSTM(4, 8).cuda(), LENGTHS, batch_size=8, budget=2.0)
    assert advice.device.startswith("cuda")


@given(st.lists(st.integers(1, 50), min_size=1, max_size=60), st.integers(1, 9))
def test_the_measured_batches_range_from_small_to_large(lengths, batch_size):
    n = np.array(lengths)
    groups = [n[group] for group in batches(n, batch_size)]
    every = sorted(group.size * group.max() for group in groups)
    for sample in range(1, min(MAX_BATCHES, len(groups)) + 1):
        cells = [
            group.size * group.max() for group in advise._representative_lengths(groups, sample)
        ]
        assert len(cells) == sample
        assert cells == sorted(cells)
        if sample == len(groups):
            assert cells == every
    (middle,) = advise._representative_lengths(groups, 1)
    assert sum(cells < middle.size * middle.max() for cells in every) <= len(groups) // 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lengths": [1, 0]}, r"lengths\[1\] is 0"),
        ({"budget": 0}, "budget is 0; give a finite number of seconds"),
        ({"seed": -1}, "seed is -1; give a whole number"),
        ({"rnn": nn.GRU(1, 1, device="meta")}, "rnn is on the meta device"),
        ({"lengths": None}, "lengths is None; list the number of real"),
        ({"batch_size": 0}, "batch_size is 0"),
    ],
)
def test_bad_input(options, message):
    with pytest.raises(ValueError, match=message):
        pv.advise(**({"rnn": nn.GRU(1, 1), "lengths": [1]} | options))
    with pytest.raises(TypeError, match=r"rnn is a Linear: give an nn\.RNN, nn\.GRU or nn\.LSTM"):
        pv.advise(nn.Linear(1, 1), [1])
