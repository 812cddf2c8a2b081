"""Calibration: the fit finds constants that are known, and every method is measured."""

import gpus
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from packviz.core.cuts import rectangles
from packviz.core.spec import Spec
from packviz.measure import calibration
from packviz.ops import costs
from packviz.ops.costs import TERMS, amounts, in_force
from packviz.studies import methods_benchmark


@given(
    st.lists(
        st.sampled_from([0.0, 1e-8, 1e-6, 1e-3]), min_size=len(TERMS) - 2, max_size=len(TERMS) - 2
    )
)
def test_the_fit_finds_the_constants_of_exact_times(constants):
    constants = dict(
        zip(TERMS, constants, strict=False)
    )  # but for the last two, which this method does not have
    if not any(constants.values()):
        constants["run"] = 1.0
    rng = np.random.default_rng(0)
    points = []
    for _ in range(40):
        inputs, hidden, (layers, directions) = (
            *rng.integers(1, 512, 2).tolist(),
            rng.integers(1, 3, 2).tolist(),
        )
        spec = Spec("GRU", inputs, hidden, layers, directions == 2)
        counted = amounts(spec, *rng.integers(1, 500, 3).tolist())
        points.append(
            (counted, sum(seconds * counted[term] for term, seconds in constants.items()))
        )
    found = calibration._fitted("split GRU forward", points)
    assert min(found.values()) >= 0
    for counted, seconds in points:
        assert sum(found[term] * counted[term] for term in TERMS) == pytest.approx(
            seconds, rel=0.05
        )


def test_calibrating_measures_every_method(monkeypatch):
    monkeypatch.setattr(calibration, "SHAPES", ((4, 6, 3, 5, 2, 2), (2, 3, 4, 4, 1, 1)))
    monkeypatch.setattr(calibration, "_FIRST", 1)
    before, state = in_force("cpu"), torch.random.get_rng_state()
    found = calibration.calibrate(modes=["RNN", "LSTM"], budget=1e-9)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert in_force("cpu") is before
    assert set(found.seconds) == set(before.seconds)
    for name, row in found.seconds.items():
        assert (row == before.seconds[name]) == ("GRU" in name)
        assert any(row.values())
    assert found.provenance["parameters"] == {"modes": ["RNN", "LSTM"], "batches": 2}
    assert found.threads == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"device": "tpu"}, "device is 'tpu'; choose one of 'cpu', 'cuda'"),
        ({"modes": ["MLP"]}, "one of modes is 'MLP'; choose one of"),
        ({"threads": 0}, "threads is 0; give a whole number of at least 1"),
    ],
)
def test_nothing_to_calibrate(options, said):
    with pytest.raises(ValueError, match=said):
        calibration.calibrate(**options)


# A GPU that is made up.


def took(spec, training, lengths, method, cuts=None):
    """Seconds on a GPU that does one step after the other, none under a latency, whatever is in it.

    Small layers are run by a faster kernel where they are padded; and cuDNN works on several layers
    at the same time.
    """
    times, layers, small = (
        3 if training else 1,
        spec.num_layers * spec.directions,
        (128, 192)[not training],
    )
    latency = 3e-6 if spec.hidden_size <= small * (2 if spec.mode == "RNN" else 1) else 10e-6
    work = times * spec.gemm_per_cell / layers / 40e12

    def steps(sequences, latency):
        return np.maximum(latency * times, np.array(sequences) * work).sum()

    longest, n = max(lengths), np.array(lengths)
    running = [(n > t).sum() for t in range(longest)]
    if method == "packed":
        return (
            150e-6 * times
            + 2e-11 * n.sum() * spec.hidden_size
            + (0.75 + 0.25 * layers) * steps(running, 10e-6)
        )
    if method == "split":
        return 400e-6 * times + layers * steps(running, 75e-6)
    if method == "whole":
        return 60e-6 * times + layers * steps([len(n)] * longest, latency)
    every = (
        120e-6 * times + steps([rows] * (b - a), latency)
        for a, b, rows in rectangles(lengths, cuts)
    )
    return 200e-6 * times + layers * sum(every)


@pytest.mark.parametrize("training", [True, False])
def test_by_constants_of_a_gpu_auto_is_never_far_from_packed_and_padded(training):
    made_up = gpus.calibrated(
        "cuda",
        calibration.MODES,
        lambda spec, some, run: took(spec, some, run.lengths, run.name, run.method),
    )
    assert made_up.is_enough
    chosen = set()
    for point in methods_benchmark.POINTS:
        if point.mode == "none":
            continue
        n, spec = point.drawn(), point.spec
        with gpus.in_force(made_up.costs):
            choice = costs.choose(spec, tuple(n), training, "cuda")
        padded = "whole" if max(n) == min(n) else "staircase"
        seconds = {"packed": took(spec, training, n, "packed")}
        seconds["padded"] = took(spec, training, n, padded, (0, max(n)))
        if choice.method == "staircase":
            seconds["staircase"] = took(spec, training, n, "staircase", choice.cuts)
        assert seconds[choice.method] <= 1.05 * min(seconds["packed"], seconds["padded"]), point
        chosen.add(choice.method)
    assert {"packed", "padded"} <= chosen
