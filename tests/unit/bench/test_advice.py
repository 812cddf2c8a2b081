"""pv.advise: what it recommends from given times, what it measures and for how long; on a clock that a test winds."""

import io
import json
import pickle
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from drawings import ParsedSvg
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import packviz as pv
from packviz.bench import advice, comparison, timing
from packviz.bench.advice import SAMPLE, Advice, bucketed
from packviz.bench.comparison import OWN_BOTH, OWN_PAD, PACKED, PADDED, Batch
from packviz.bench.timing import Timing
from packviz.core.batches import BUCKETED, SHUFFLED, Load, batches
from packviz.core.spec import Spec
from packviz.draw import palette

AUTO, STAIRCASE = "pv.run, auto", "pv.run, staircase"


def given_times(seconds, lengths=(5, 3, 8, 2) * 50, spread=0.01, **options):
    """Advice from these medians, each with this spread."""
    n = np.array(lengths)
    loads = {order: Load.of(n, batches(n, 64, order)) for order in (SHUFFLED, BUCKETED)}
    wobble = np.random.default_rng(0)
    rounds = {name: tuple(middle * (1 + spread * wobble.standard_normal(9))) for name, middle in seconds.items()}
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
    assert re.fullmatch(r"2\S* \(95 % interval 1\.9\d* to 2\.0\d*\)", repr(found.seconds_per_epoch))
    assert found.epoch(PACKED) == pytest.approx(4.0, rel=0.05)
    assert re.search(r", some (1\.9|2)\S* s per epoch\.", found.verdict)
    assert found.verdict.startswith("Use pv.run, staircase.\nIt saves ")
    assert "method='staircase'" in found.code


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
    found = given_times({PADDED: 1.0, PACKED: 9.0, AUTO: 2.02, STAIRCASE: 2.0}, spread=0.1)
    assert found.best == AUTO
    assert "pv.run(rnn, x, lengths)" in found.code
    assert "BucketSampler" not in found.code
    assert found.verdict.splitlines()[1].endswith(
        " pv.run, staircase has a lower median, but is not told apart from it."
    )


def test_a_lonely_packing():
    assert "Nothing else was measured." in given_times({PADDED: 1.0, PACKED: 2.0}).verdict


def test_advice_can_be_pickled():
    found = given_times({PADDED: 1.0, PACKED: 2.0, AUTO: 1.0})
    again = pickle.loads(pickle.dumps(found))
    assert again.to_text() == found.to_text()
    speedup = pickle.loads(pickle.dumps(found.speedup))
    assert (speedup, speedup.low, speedup.high) == (found.speedup, found.speedup.low, found.speedup.high)


@given(st.lists(st.floats(0.5, 2.0), min_size=3, max_size=3), st.floats(0, 0.3))
def test_the_recommendation_is_never_clearly_slower_than_another_right_one(middles, spread):
    found = given_times(dict(zip((PACKED, AUTO, STAIRCASE), middles, strict=True)) | {PADDED: 0.01}, spread=spread)
    assert found.best != PADDED
    for other in (PACKED, AUTO, STAIRCASE):
        ratio = found.timing.ratio(found.best, other)
        fastest = min((PACKED, AUTO, STAIRCASE), key=found.timing.median)
        assert other != fastest or ratio.value <= 1 or not ratio.is_clear


# Bucketing.


def test_what_bucketing_adds():
    shuffled = {PADDED: 1.0, PACKED: 4.0, AUTO: 3.0}
    found = given_times(shuffled | {bucketed(name): seconds / 2 for name, seconds in shuffled.items()})
    assert (found.best, found.recommended) == (AUTO, bucketed(AUTO))
    assert found.speedup == pytest.approx(4 / 1.5, rel=0.05)
    assert found.seconds_per_epoch == found.epoch(bucketed(AUTO)) == pytest.approx(1.5, rel=0.05)
    assert found.bucketing.value == pytest.approx(0.5, rel=0.05)
    assert f"of 43.8 %, and takes {100 * (1 - found.bucketing.value):.0f} % less" in found.verdict
    assert found.verdict.startswith(
        "Use pv.run, auto, on buckets of similar lengths.\nOn shuffled batches pv.run, auto"
    )
    assert found.verdict.endswith("less time per epoch, with pv.run, auto.")
    assert "(window 50: all of 4 batches sorted together)" in found.verdict
    assert "pv.BucketSampler(all_lengths, 64, window=50)" in found.code
    assert found.code.endswith("pv.run(rnn, x, lengths)")
    assert found.code.count("import packviz") == 1
    slower = given_times(shuffled | {bucketed(name): 2 * seconds for name, seconds in shuffled.items()})
    assert "more time per epoch" in slower.verdict
    assert slower.recommended == AUTO
    assert "BucketSampler" not in slower.code
    measured = given_times(shuffled).timing.seconds
    wobble = np.random.default_rng(1)
    other = {bucketed(name): tuple(wobble.permutation(seconds)) for name, seconds in measured.items()}
    same = Timing(measured | other)
    assert "in time it is not told apart from shuffled batches" in replace(found, timing=same).verdict
    assert given_times(shuffled).bucketing is None
    assert "its time was not measured" in given_times(shuffled).verdict


# In words and as a picture.


def test_the_table():
    found = given_times(
        {PADDED: 1.0, PACKED: 4.0, AUTO: 3.0, bucketed(PACKED): 2.0},
        spread=0,
        once={"pv.run, split": 1.5},
        failed={"pv.run, packed": "gives another h_n than packing"},
    )
    lines = found.to_text().splitlines()
    assert repr(found) == found.to_text()
    start = next(i for i, line in enumerate(lines) if line.startswith("seconds per epoch"))
    rows = [" ".join(line.split()) for line in lines[start:]]
    assert rows[:8] == [
        "seconds per epoch median × packed 95 % interval results of packing",
        "torch, padded 1 0.25 0.25 to 0.25 no: padding is read",
        "torch, packed 4 1 1 to 1 yes",
        "pv.run, auto 3 0.75 0.75 to 0.75 yes",
        "torch, packed, bucketed 2 0.5 0.5 to 0.5 yes",
        "pv.run, split ~ 6 (a look at one batch)",
        "pv.run, packed gives another h_n than packing",
        "A ratio is the median of the rounds' ratios, not the ratio of two medians.",
    ]
    assert "GRU(32, 64), forward and backward." in rows[9]
    assert "200 sequences of 2 to 8 time steps in 4 batches of 64." in rows[10]
    assert (
        "bucketed: window 50: all of 4 batches sorted together, as BucketSampler(lengths, 64, window=50) does." in rows
    )
    assert rows[-1] == "Measured on an abacus (CPU), torch None, 1 thread, 9 rounds."


def test_an_epoch_is_as_many_batches_as_there_are():
    n = np.arange(1, 641)
    found = given_times({PADDED: 1.0, PACKED: 4.0}, n, spread=0, sample=4)
    assert (found.batches, found.sample) == (10, 4)
    assert found.epoch(PACKED) == pytest.approx(10.0)


EXCHANGED = {PADDED: 1.0, PACKED: 4.0, OWN_PAD: 2.4, OWN_BOTH: 2.0, AUTO: 1.0}


def test_what_torchs_packing_spends_its_time_on():
    """By exchanging one part after the other; these runs are no methods to choose."""
    found = given_times(EXCHANGED, spread=0)
    expected = {"pad": 0.4, "pack": 0.1, "RNN": 0.25, "rest": 0.25}
    assert found.shares == {name: pytest.approx(share) for name, share in expected.items()}
    assert "  pad_packed_sequence     40 %" in found.to_text()
    assert "pad was 40 %" in found.to_svg()
    fast = given_times(EXCHANGED | {OWN_PAD: 0.1, OWN_BOTH: 0.1})
    assert fast.best == AUTO
    assert not any(name in line for name in (OWN_PAD, OWN_BOTH) for line in fast.to_text().splitlines())
    same = given_times(EXCHANGED | {OWN_BOTH: 2.4}, spread=0.1)
    assert "  pack_padded_sequence    not told apart from 0 %" in same.to_text()
    assert sum(same.shares.values()) == pytest.approx(1)
    slower = given_times(EXCHANGED | {OWN_BOTH: 3.0}, spread=0)  # no share is less than nothing
    assert "  pack_padded_sequence    not told apart from 0 %" in slower.to_text()
    assert "pack was" not in slower.to_svg()
    none = given_times({PADDED: 1.0, PACKED: 4.0, AUTO: 1.0})
    assert none.parts == none.shares == {}
    tight = replace(none, once={OWN_PAD: 1.0}, failed={OWN_BOTH: "left out: the budget was used up"})
    assert "What torch, packed spends its time on was not measured: give a larger budget." in tight.to_text()
    assert OWN_PAD not in tight.to_text()
    assert OWN_BOTH not in tight.to_text()
    assert "exchang" not in none.to_text() + none.to_svg()


def test_a_longer_bar_is_a_larger_ratio():
    """One quantity for each bar: medians and paired ratios may say opposite things."""
    found = given_times({PADDED: 1.0, PACKED: 4.0, AUTO: 3.9})
    packed, auto = (1.0, 10.0, 2.0) * 3, (1.1, 8.0, 2.2) * 3  # a median of 2.2 against 2, a ratio of 1.1
    seconds = {PADDED: (1.0, 1.0, 1.0) * 3, PACKED: packed, AUTO: auto, STAIRCASE: (0.9, 12.0, 1.0) * 3}
    found = replace(found, timing=replace(found.timing, seconds=seconds))
    drawing = ParsedSvg(found.to_svg())
    bars = {box.fill: box.width for box in drawing.boxes}
    wide = bars[palette.METHODS["packed"]]
    for name, method in ((AUTO, "run"), (STAIRCASE, "staircase")):
        ratio = found.timing.ratio(name, PACKED)
        assert bars[palette.METHODS[method]] == pytest.approx(ratio.value * wide, abs=0.02)
        assert ratio.number in [text.said for text in drawing.texts]


@pytest.mark.parametrize("theme", palette.THEMES)
def test_picture(theme):
    names = [PADDED, PACKED, AUTO, STAIRCASE, bucketed(PACKED), bucketed(STAIRCASE)]
    found = given_times(dict(zip(names, (1.0, 4.0, 3.0, 2.0, 2.0, 1.5), strict=True)))
    svg = found.to_svg(theme)
    drawing = ParsedSvg(svg)
    texts = [text.said for text in sorted(drawing.texts, key=lambda text: text.y)]
    assert [name for name in texts if name in names] == names
    hatched = [box for box in drawing.boxes if box.fill == palette.THEMES[theme].padding]
    assert len(hatched) == 2  # torch's padded run, and the key
    assert "other results than packing" in texts
    for text in drawing.texts:
        assert text.box.x >= 0
        assert text.box.right <= drawing.width
    assert found._repr_mimebundle_()["text/plain"] == found.to_text()


# Code to paste.


@pytest.mark.parametrize("best", [PADDED, PACKED, AUTO, STAIRCASE])
@pytest.mark.parametrize("mode", ["GRU", "LSTM"])
def test_the_code_does_what_it_says(best, mode):
    lengths = [3, 3] if best == PADDED else [3, 2]
    found = given_times({name: 2.0 - (name == best) for name in (PADDED, PACKED, AUTO, STAIRCASE)}, lengths)
    found = replace(found, spec=Spec(mode, 2, 4))
    assert found.best == best
    rnn, x = getattr(nn, mode)(2, 4, batch_first=True), torch.randn(2, 3, 2)
    scope = {"rnn": rnn, "x": x, "lengths": lengths}
    exec(found.code, scope)
    packed, state = rnn(pack_padded_sequence(x, lengths, batch_first=True))
    h_n = state[0] if mode == "LSTM" else state
    assert ("c_n" in scope) == (mode == "LSTM")
    assert torch.allclose(scope["output"], pad_packed_sequence(packed, batch_first=True)[0], atol=1e-6)
    assert torch.allclose(scope["h_n"], h_n, atol=1e-6)


def test_the_code_for_buckets():
    times = {PADDED: 1.0, PACKED: 4.0, bucketed(PACKED): 2.0}
    found = given_times(times, batch_size=2)
    data = [torch.zeros(n, 1) for n in (3, 1, 2)]
    scope = {"dataset": data, "all_lengths": [3, 1, 2], "collate": torch.nn.utils.rnn.pad_sequence}
    exec(found.code, scope | {"rnn": nn.GRU(1, 2), "x": torch.zeros(3, 2, 1), "lengths": [3, 2]}, scope)
    assert sorted(batch.shape[1] for batch in scope["loader"]) == [1, 2]
    assert scope["sampler"].window == found.window


# The measurement, on a clock that the contestants wind.


class Race:
    """Contestants that take as long as a test says, for each cell that they compute."""

    def __init__(self, monkeypatch, costs, start=100.0):
        self.now, self.costs, self.calls = start, costs, []
        monkeypatch.setattr(advice, "every_method", self.every_method)
        monkeypatch.setattr(advice.time, "monotonic", lambda: self.now)
        for module in (comparison, timing):
            monkeypatch.setattr(module, "clock_for", lambda device: self)

    def start(self):
        self.began = self.now

    def stop(self):
        return self.now - self.began

    def every_method(self):
        return {name: self.method(name) for name in self.costs}

    def method(self, name):
        def run(rnn, x, lengths):
            self.calls.append((name, tuple(lengths.tolist())))
            self.now += self.costs[name] * x.shape[0] * x.shape[1]
            packed, state = rnn(pack_padded_sequence(x, lengths, rnn.batch_first, enforce_sorted=False))
            return pad_packed_sequence(packed, rnn.batch_first)[0], state

        return run


LENGTHS = np.random.default_rng(0).integers(1, 9, 40).tolist()
COSTS = {PADDED: 1e-3, PACKED: 4e-3, AUTO: 2e-3, STAIRCASE: 2.2e-3, "pv.run, split": 3.2e-3, "pv.run, packed": 7e-3}


def test_it_finds_the_costs(monkeypatch):
    race = Race(monkeypatch, COSTS)
    found = advice.advise(nn.GRU(1, 2), LENGTHS, batch_size=8, budget=1000.0, progress=lambda *n: None)
    assert found.best == AUTO
    assert found.speedup == pytest.approx(found.bucketing.value and 2 / found.bucketing.value)
    assert found.once == {"pv.run, packed": pytest.approx(7e-3 * 8 * 8, rel=0.4)}
    assert found.sample == found.batches == 5  # all of them
    for order in (SHUFFLED, BUCKETED):
        cells = found.loads[order].cells.sum()
        for name in (PADDED, PACKED, AUTO, STAIRCASE, "pv.run, split"):
            measured = found.epoch(name if order == SHUFFLED else bucketed(name))
            assert measured == pytest.approx(COSTS[name] * cells)
    assert found.bucketing.value == pytest.approx(found.loads[BUCKETED].cells.sum() / found.loads[SHUFFLED].cells.sum())
    assert sum(found.spent.values()) == pytest.approx(race.now - 100.0)


def test_a_call_never_meets_the_order_of_the_last_one(monkeypatch):
    """Else a method that remembers what it has made of the lengths would be timed without making it."""
    race = Race(monkeypatch, COSTS)
    advice.advise(nn.GRU(1, 2), LENGTHS, batch_size=8, budget=5.0, progress=lambda *n: None)
    of_one = [lengths for name, lengths in race.calls if name == AUTO][3:]
    assert len(set(of_one)) > 0.9 * len(of_one)
    assert len({tuple(sorted(lengths)) for lengths in of_one}) <= 10


@given(
    st.floats(0.01, 30),
    st.lists(st.floats(1e-4, 2e-2), min_size=len(COSTS), max_size=len(COSTS)),
    st.sampled_from([LENGTHS, LENGTHS[:8], [4] * 40]),
)
def test_the_budget_is_kept(budget, costs, lengths):
    told = []
    with pytest.MonkeyPatch.context() as patch:
        race = Race(patch, dict(zip(COSTS, costs, strict=True)))
        found = advice.advise(nn.GRU(1, 2), lengths, batch_size=8, budget=budget, progress=lambda *n: told.append(n))
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
    assert told == [(i + 1, told[-1][1]) for i in range(len(told))]
    if budget > 20 * (2 + 12 * 12) * sum(costs) * cells:
        assert found.timing.rounds == 6  # which are all alike
        assert found.sample == min(SAMPLE, found.batches)
        assert (found.bucketing is None) == (lengths is not LENGTHS)


def test_too_small_a_budget(monkeypatch):
    race = Race(monkeypatch, COSTS)
    found = advice.advise(nn.GRU(1, 2), LENGTHS, batch_size=8, budget=1e-3, progress=lambda *n: None)
    assert [name for name, _ in race.calls] == [PACKED]
    assert found.best == PACKED
    assert list(found.failed) == [name for name, _ in sorted(COSTS.items(), key=lambda item: item[0] == PADDED)][1:]
    assert "Nothing else was measured." in found.verdict


def test_a_look_that_is_all_there_is_time_for(monkeypatch):
    race = Race(monkeypatch, COSTS)
    budget = 1.2 * 64 * sum(COSTS.values())
    found = advice.advise(nn.GRU(1, 2), [8] * 39 + [7], batch_size=8, budget=budget, progress=lambda *n: None)
    assert len(race.calls) == len(COSTS)
    assert (found.timing.rounds, found.timing.warmup, found.sample) == (1, 0, 1)
    assert found.epoch(AUTO) == pytest.approx(COSTS[AUTO] * 64 * 5)
    assert found.best == PACKED  # one round tells nothing
    assert "1 round cannot tell the methods apart; the fastest was pv.run, auto." in found.verdict
    assert "quartiles" not in found.verdict
    assert "in interleaved rounds, the look being the first." in found.to_text()


def test_buckets_are_not_measured_where_they_change_nothing(monkeypatch):
    for lengths in ([5, 3, 2], [4] * 40):
        race = Race(monkeypatch, COSTS)
        found = advice.advise(nn.GRU(1, 2), lengths, batch_size=8, budget=1000.0, progress=lambda *n: None)
        assert found.bucketing is None
        assert found.verdict.endswith(" sorted together) leaves no less padding here.")
        assert {name for name in found.timing.seconds if name != advice._method(name)} == set()
        assert race.calls


def test_stopping(monkeypatch):
    Race(monkeypatch, COSTS)
    quiet = {"budget": 100.0, "batch_size": 8, "progress": lambda *n: None}
    with pytest.raises(ValueError, match="stopped before every method was looked at"):
        advice.advise(nn.GRU(1, 2), LENGTHS, stop=lambda: True, **quiet)
    asked = iter(range(10**6))
    with pytest.raises(ValueError, match="stopped before every method was looked at"):
        advice.advise(nn.GRU(1, 2), LENGTHS, stop=lambda: next(asked) > 4, **quiet)
    for most in (6, 14, 24):  # in the second look, in the warm-up
        asked = iter(range(10**6))
        found = advice.advise(nn.GRU(1, 2), LENGTHS, stop=lambda: next(asked) > most, **quiet)  # noqa: B023
        assert (found.timing.rounds, found.timing.warmup, found.sample) == (1, 0, 1)
    asked = iter(range(10**6))
    found = advice.advise(nn.GRU(1, 2), LENGTHS, stop=lambda: next(asked) > 60, **quiet)
    assert found.timing.stopped
    assert 3 <= found.timing.rounds < 6
    assert found.best == PACKED


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
    found = advice.advise(nn.GRU(1, 2), LENGTHS, batch_size=8, budget=100.0, progress=lambda *n: None)
    assert found.best == "pv.run, split"
    assert found.failed == {AUTO: "gives another h_n than packing", STAIRCASE: "cannot run this: not for a GRU"}


def test_a_bar_on_a_terminal(monkeypatch):
    Race(monkeypatch, COSTS)
    terminal = io.StringIO()
    monkeypatch.setattr(advice.sys, "stderr", terminal)
    advice.advise(nn.GRU(1, 2), LENGTHS, budget=100.0)
    assert terminal.getvalue() == ""
    terminal.isatty = lambda: True
    advice.advise(nn.GRU(1, 2), LENGTHS, budget=100.0)
    assert "measuring [#" in terminal.getvalue()
    assert terminal.getvalue().endswith(" \r")


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


@pytest.mark.usefixtures("few_rounds")
def test_it_leaves_the_threads_alone(two_threads):
    pv.advise(nn.GRU(2, 3), [3, 2, 1], batch_size=3, budget=60.0)
    assert torch.get_num_threads() == two_threads


@pytest.mark.usefixtures("few_rounds")
def test_frozen_weights():
    rnn = nn.GRU(2, 3)
    rnn.requires_grad_(False)
    assert pv.advise(rnn, [3, 2, 1], batch_size=3, budget=60.0).failed == {}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu():
    found = pv.advise(nn.LSTM(4, 8).cuda(), LENGTHS, batch_size=8, budget=2.0)
    assert found.failed == {}
    assert found.timing.provenance["device"].startswith("cuda")


# Where lengths come from.


def test_lengths_of_every_kind(tmp_path):
    (tmp_path / "a.csv").write_text("name,length\nx,3\ny,2\n")
    (tmp_path / "a.json").write_text(json.dumps({"lengths": [3, 2]}))
    for lengths in (
        [3, 2],
        np.array([3, 2]),
        torch.tensor([3, 2]),
        pv.Layout([3, 2]),
        str(tmp_path / "a.csv"),
        tmp_path / "a.json",
    ):
        assert advice._lengths(lengths).tolist() == [3, 2]


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


@pytest.mark.parametrize("batch_first", [True, False])
def test_the_data(batch_first):
    rnn = nn.GRU(2, 3, batch_first=batch_first).double()
    batch = comparison.batch_of(rnn, np.array([3, 5]), 0)
    assert isinstance(batch, Batch)
    assert tuple(batch.x.shape) == ((2, 5, 2) if batch_first else (5, 2, 2))
    assert batch.x.dtype == torch.float64
    assert batch.x.requires_grad
    assert batch.x.is_leaf
    assert batch.lengths.tolist() == [3, 5]
    assert not comparison.batch_of(rnn.eval(), np.array([3]), 0).x.requires_grad
    rnn.train()


@pytest.mark.parametrize(
    ("rnn", "lengths", "options", "error", "message"),
    [
        (nn.Linear(1, 1), [1], {}, TypeError, "rnn is a Linear: give an nn.RNN, nn.GRU or nn.LSTM"),
        (nn.GRU(1, 1), [1, 0], {}, ValueError, r"lengths\[1\] is 0"),
        (nn.GRU(1, 1), "nothing.csv", {}, ValueError, r"cannot read nothing\.csv"),
        (nn.GRU(1, 1), [1], {"budget": 0}, ValueError, "budget is 0; give a number of seconds over 0"),
        (nn.GRU(1, 1), [1], {"budget": "5"}, ValueError, "budget is '5'; give a number of seconds over 0"),
        (nn.GRU(1, 1), [1], {"budget": float("inf")}, ValueError, "budget is inf; give a number of seconds over 0"),
        (nn.GRU(1, 1), [1], {"seed": -1}, ValueError, "seed is -1; give a whole number of at least 0"),
        (nn.GRU(1, 1, device="meta"), [1], {}, ValueError, "rnn is on the meta device"),
        (nn.GRU(1, 1), None, {}, ValueError, "lengths is None; give a list"),
        (nn.GRU(1, 1), [1], {"batch_size": 0}, ValueError, "batch_size is 0"),
    ],
)
def test_bad_input(rnn, lengths, options, error, message):
    with pytest.raises(error, match=message):
        pv.advise(rnn, lengths, **options)
