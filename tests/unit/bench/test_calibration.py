"""Calibration: the fit finds constants that are known, and every method is measured."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from packviz.bench import calibration
from packviz.core.spec import Spec
from packviz.ops.costs import TERMS, Costs, amounts, in_force


@given(st.lists(st.sampled_from([0.0, 1e-8, 1e-6, 1e-3]), min_size=len(TERMS) - 1, max_size=len(TERMS) - 1))
def test_the_fit_finds_the_constants_of_exact_times(constants):
    constants = np.array([*constants, 0.0]) + 0.0
    if not constants.any():
        constants[0] = 1.0
    rng = np.random.default_rng(0)
    points = []
    for _ in range(40):
        inputs, hidden, (layers, directions) = *rng.integers(1, 512, 2).tolist(), rng.integers(1, 3, 2).tolist()
        spec = Spec("GRU", inputs, hidden, layers, directions == 2)
        counted = amounts(spec, *rng.integers(1, 500, 3).tolist())
        points.append((counted, float(np.dot(constants, counted))))
    found = calibration._fitted("split GRU forward", points)
    assert min(found) >= 0
    for counted, seconds in points:
        assert np.dot(found, counted) == pytest.approx(seconds, rel=0.05)


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
    assert found.threads == 1


def test_the_files_that_come_along_are_made_for_each_number_of_threads(monkeypatch, tmp_path, two_threads):
    monkeypatch.setattr(calibration, "SHAPES", ((2, 3, 4, 4, 1, 1),))
    monkeypatch.setattr(calibration, "_MOST_PASSES", 1)
    calibration.main(["--out", str(tmp_path), "--threads", "2", "1", "--seconds", "0"])
    assert {path.name for path in tmp_path.iterdir()} == {"costs_cpu_1.json", "costs_cpu_2.json"}
    assert [Costs.load(tmp_path / f"costs_cpu_{n}.json").threads for n in (1, 2)] == [1, 2]
    assert torch.get_num_threads() == two_threads


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"device": "tpu"}, "device is 'tpu'; choose 'cpu' or 'cuda'"),
        ({"modes": ["MLP"]}, "modes has 'MLP'; choose among"),
        ({"threads": 0}, "threads is 0; give a whole number of at least 1"),
    ],
)
def test_nothing_to_calibrate(options, said):
    with pytest.raises(ValueError, match=said):
        calibration.calibrate(**options)
