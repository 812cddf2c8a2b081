"""Cuts and costs: the optimum is that of trying everything, and the model's choice is deterministic and never fails."""

import itertools
import json
import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from packviz.bench import calibration
from packviz.core.cuts import Prediction, Rates, best_cuts, every_cut, predict, rectangles
from packviz.count.flops import Spec
from packviz.ops import costs
from packviz.ops.costs import TERMS, Costs, Sizes, choose, in_force, rates

some_lengths = st.lists(st.integers(1, 9), min_size=1, max_size=7)
some_rates = st.builds(
    Rates,
    st.sampled_from([0.0, 1.0]),
    st.sampled_from([0.0, 1.0, 2.5, 10.0, 50.0]),
    st.sampled_from([0.0, 1.0]),
    st.sampled_from([0.0, 0.5, 1.0, 3.0]),
)
sizes = st.builds(
    Sizes,
    st.sampled_from(["RNN", "GRU", "LSTM"]),
    st.sampled_from([1, 16, 2048]),
    st.sampled_from([1, 32, 2048]),
    st.integers(1, 3),
    st.integers(1, 2),
    st.just(0),
)


def every_staircase(lengths):
    """All cuts that may be best."""
    first, *inner, last = every_cut(lengths)
    for n in range(len(inner) + 1):
        for some in itertools.combinations(inner, n):
            yield (first, *some, last)


# Cuts.


@given(some_lengths, some_rates)
def test_no_staircase_is_cheaper_than_the_best(lengths, rates):
    best = min(predict(lengths, cuts, rates).seconds for cuts in every_staircase(lengths))
    assert predict(lengths, best_cuts(lengths, rates), rates).seconds == pytest.approx(best)


@given(some_lengths, some_rates)
def test_no_staircase_of_so_many_calls_is_cheaper(lengths, rates):
    for calls in range(1, len(set(lengths)) + 1):
        best = min(predict(lengths, c, rates).seconds for c in every_staircase(lengths) if len(c) == calls + 1)
        cuts = best_cuts(lengths, rates, calls)
        assert len(cuts) == calls + 1
        assert predict(lengths, cuts, rates).seconds == pytest.approx(best)


@given(some_lengths)
def test_a_cut_elsewhere_than_at_an_end_never_helps(lengths):
    rates = Rates(0, 1, 0, 1)
    best = predict(lengths, best_cuts(lengths, rates), rates).seconds
    inner = range(1, max(lengths))
    for some in itertools.chain.from_iterable(itertools.combinations(inner, n) for n in range(3)):
        assert predict(lengths, (0, *some, max(lengths)), rates).seconds >= best - 1e-9


@given(some_lengths, st.data())
def test_rectangles_cover_exactly_the_cells_that_they_should(lengths, data):
    cuts = data.draw(st.sampled_from(list(every_staircase(lengths))))
    covered = np.zeros((len(lengths), max(lengths)), dtype=int)
    by_rank = sorted(lengths, reverse=True)
    for a, b, n in rectangles(lengths, cuts):
        covered[:n, a:b] += 1
    real = np.arange(max(lengths)) < np.array(by_rank)[:, None]
    assert covered.max() == 1
    assert covered[real].all()
    found = predict(lengths, cuts, Rates(0, 0, 0, 1))
    assert found == Prediction(covered.sum(), len(cuts) - 1, covered.sum(), (covered * ~real).sum())


def test_from_padding_to_packing():
    lengths = [8, 3, 5, 5, 1]
    free, dear = Rates(0, 0, 0, 1), Rates(0, 1e9, 0, 1)
    assert best_cuts(lengths, dear) == best_cuts(lengths, free, 1) == (0, 8)
    assert predict(lengths, (0, 8), free) == Prediction(40, 1, 40, 18)
    assert best_cuts(lengths, free) == best_cuts(lengths, free, 4) == every_cut(lengths) == (0, 1, 3, 5, 8)
    assert predict(lengths, (0, 1, 3, 5, 8), free) == Prediction(22, 4, 22, 0)
    assert rectangles(lengths, (0, 3, 8)) == [(0, 3, 5), (3, 8, 3)]


def test_rates_of_layers_and_runs_add_up():
    assert Rates(1, 2, 3, 4, 5).seconds(6, 7, 8) == 1 + 2 * 6 + 3 * 7 + 4 * 8 + 5 * 7 * 8


@pytest.mark.parametrize("cuts", [(), (0,), (0, 4), (1, 5), (0, 3, 3, 5), (0, 4, 2, 5), (0, 5, 6)])
def test_cuts_that_are_none(cuts):
    with pytest.raises(ValueError, match=re.escape(f"cuts are {cuts}; give time steps that rise from 0 to 5")):
        rectangles([5, 2], cuts)


@pytest.mark.parametrize("calls", [0, 3])
def test_more_calls_than_lengths(calls):
    with pytest.raises(ValueError, match=f"calls is {calls}; these lengths allow for 1 to 2 rectangles"):
        best_cuts([5, 2, 5], Rates(0, 1, 0, 1), calls)


# Costs.


@pytest.mark.parametrize(
    ("rnn", "expected"),
    [
        (nn.LSTM(3, 5, 2, bidirectional=True, proj_size=2, bias=False), Sizes("LSTM", 3, 5, 2, 2, 2)),
        (nn.GRU(3, 5, 3), Sizes("GRU", 3, 5, 3, 1, 0)),
        (nn.RNN(2, 4, nonlinearity="relu"), Sizes("RNN", 2, 4, 1, 1, 0)),
    ],
)
def test_sizes_are_those_of_the_weights(rnn, expected):
    found = Sizes.of(rnn)
    assert found == expected
    assert found.weights == sum(p.numel() for name, p in rnn.named_parameters() if "bias" not in name)
    assert found.gates == rnn.weight_ih_l0.shape[0]
    names = ("mode", "input_size", "hidden_size", "num_layers", "bidirectional", "proj_size")
    assert Sizes.of(Spec(**{name: getattr(rnn, name) for name in names})) == found


@given(sizes, st.integers(0, 5), st.integers(1, 9), st.integers(1, 99), st.booleans(), st.sampled_from(["cpu", "cuda"]))
def test_rates_are_the_constants_times_what_they_are_for(sizes, calls, steps, cells, training, device):
    for method in ("padded", "packed", "split", "staircase", "whole"):
        amounts = sizes.amounts(calls, steps, cells)
        fused = device == "cpu"
        constants = in_force(device).seconds[costs.key(method, sizes, training, fused)]
        assert len(amounts) == len(constants) == len(TERMS)
        expected = sum(c * a for c, a in zip(constants, amounts, strict=True))
        assert rates(method, sizes, training, device, fused).seconds(calls, steps, cells) == pytest.approx(expected)


@given(
    sizes,
    st.lists(st.integers(1, 700), min_size=1, max_size=60).map(tuple),
    st.booleans(),
    st.sampled_from(["cpu", "cuda"]),
    st.booleans(),
)
def test_a_choice_is_made_of_everything_and_always_the_same(sizes, lengths, training, device, fused):
    found = choose(sizes, lengths, training, device, fused and device == "cpu")
    assert found.method == min(found.seconds, key=found.seconds.get)
    assert all(seconds > 0 for seconds in found.seconds.values())
    rectangles(lengths, found.cuts)
    assert (len(found.cuts) > 2) == (found.method == "staircase")
    choose.cache_clear()
    rates.cache_clear()
    assert choose(sizes, lengths, training, device, fused and device == "cpu") == found


def test_equal_lengths_are_not_cut():
    for mode in ("RNN", "GRU", "LSTM"):
        assert "staircase" not in choose(Sizes(mode, 32, 32), (50,) * 20).seconds


def test_a_staircase_is_chosen_where_it_pays():
    found = choose(Sizes("LSTM", 128, 256), tuple(range(128, 0, -1)))
    assert found.method == "staircase"
    assert costs.staircase(Sizes("LSTM", 128, 256), tuple(range(128, 0, -1))) == found.cuts


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_constants_that_come_along(device, tmp_path):
    shipped = in_force(device)
    assert shipped.device == device
    assert bool(shipped.provenance) == (device == "cpu")
    ways, modes, passes = ("whole", "rectangles", "packed", "split"), ("RNN", "GRU", "LSTM"), ("forward", "training")
    keys = {" ".join(named) for named in itertools.product(ways, modes, passes)}
    assert set(shipped.seconds) == keys | ({"fused LSTM forward", "fused LSTM training"} if device == "cpu" else set())
    assert all(value >= 0 for row in shipped.seconds.values() for value in row)
    said = repr(shipped)
    assert ("guesses, not measured" in said) == (device == "cuda")
    assert "packed GRU training" in said
    shipped.save(tmp_path / "c.json")
    again = Costs.load(tmp_path / "c.json")
    assert (again.device, dict(again.seconds), again.provenance) == (device, dict(shipped.seconds), shipped.provenance)


@pytest.mark.parametrize(
    "change", [{"version": 99}, {"terms": ["run"]}, {"seconds": {"a": [1]}}, {"packviz": "else"}, {"seconds": None}]
)
def test_a_file_of_something_else(change, tmp_path):
    path = tmp_path / "c.json"
    in_force("cpu").save(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ValueError, match="does not hold the costs of a run"):
        Costs.load(path)


def test_constants_put_in_force_decide():
    shipped = in_force("cpu")
    sizes, lengths = Sizes("GRU", 8, 8), (5, 4, 2)
    free = {name: [0.0] * len(TERMS) if "packed" in name else [1.0] * len(TERMS) for name in shipped.seconds}
    try:
        Costs("cpu", free).use()
        assert choose(sizes, lengths).method == "packed"
        Costs("cpu", dict(shipped.seconds) | {"split GRU training": [0.0] * len(TERMS)}).use()
        assert choose(sizes, lengths).method == "split"
    finally:
        shipped.use()


# Calibration.


@given(st.lists(st.sampled_from([0.0, 1e-8, 1e-6, 1e-3]), min_size=len(TERMS) - 1, max_size=len(TERMS) - 1))
def test_the_fit_finds_the_constants_of_exact_times(constants):
    constants = np.array([*constants, 0.0]) + 0.0
    if not constants.any():
        constants[0] = 1.0
    rng = np.random.default_rng(0)
    points = []
    for _ in range(40):
        sizes = Sizes("GRU", *rng.integers(1, 512, 2).tolist(), *rng.integers(1, 3, 2).tolist())
        amounts = sizes.amounts(*rng.integers(1, 500, 3).tolist())
        points.append((amounts, float(np.dot(constants, amounts))))
    found = calibration._fitted("split GRU forward", points)
    assert min(found) >= 0
    for amounts, seconds in points:
        assert np.dot(found, amounts) == pytest.approx(seconds, rel=0.05)


def test_calibrating_measures_every_method(monkeypatch):
    monkeypatch.setattr(calibration, "SHAPES", ((4, 6, 3, 5, 2, 2), (2, 3, 4, 4, 1, 1)))
    monkeypatch.setattr(calibration, "_FIRST", 1)
    before, said, state = in_force("cpu"), [], torch.random.get_rng_state()
    found = calibration.calibrate(modes=["RNN", "LSTM"], seconds=0, progress=said.append)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert in_force("cpu") is before
    assert said == ["RNN, shape 1 of 2", "LSTM, shape 1 of 2"]
    assert set(found.seconds) == set(before.seconds)
    for name, row in found.seconds.items():
        assert (row == before.seconds[name]) == ("GRU" in name)
        assert any(row)
    assert found.provenance["parameters"] == {"modes": ["RNN", "LSTM"], "batches": 2}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"device": "tpu"}, "device is 'tpu'; choose 'cpu' or 'cuda'"),
        ({"modes": ["MLP"]}, "modes has 'MLP'; choose among"),
    ],
)
def test_nothing_to_calibrate(options, said):
    with pytest.raises(ValueError, match=said):
        calibration.calibrate(**options)
