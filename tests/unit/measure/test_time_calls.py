"""pv.time_calls: the reader's own functions, compared and timed in turn."""

import numpy as np
import pytest
import torch
from clocks import Clock
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

import packviz as pv
from packviz.measure.timing import MIN_INTERVAL_ROUNDS

QUICK = {"budget": 1e-3}
ONE = torch.tensor([2.0, -4.0])


def times(first, second, **options):
    """Compares and times two functions that return these results."""
    return pv.time_calls({"f": lambda: first, "g": lambda: second}, **QUICK, **options)


class Functions(Clock):
    """A clock that the functions wind."""

    def __init__(self, monkeypatch):
        super().__init__(monkeypatch)
        self.called = []

    def call(self, name, seconds):
        def run():
            self.now += seconds
            self.called.append(name)
            return ONE

        return run


def test_it_finds_the_ratio_and_stops_when_it_is_known(monkeypatch):
    clock = Functions(monkeypatch)
    calls = {"before": clock.call("before", 0.2), "after": clock.call("after", 0.1)}
    timing = pv.time_calls(calls, setup=clock.call("setup", 3.0), budget=1000)
    assert clock.called[::2] == ["setup"] * (len(clock.called) // 2)
    assert "setup" not in clock.called[1::2]
    assert timing.ratio("after", "before").value == pytest.approx(0.5)
    assert timing.rounds == MIN_INTERVAL_ROUNDS
    assert "after takes 0.5" in timing.to_text()
    assert "Results agree exactly with those of before." in timing.to_text()


@pytest.mark.parametrize("budget", [0.1, 50.0])
def test_the_budget_is_kept(monkeypatch, budget):
    clock, random = Functions(monkeypatch), np.random.default_rng(0)

    def wild():
        clock.call("wild", random.exponential())()

    timing = pv.time_calls({"steady": clock.call("steady", 0.5), "wild": wild}, budget=budget)
    assert (timing.rounds > MIN_INTERVAL_ROUNDS) == (budget > 1)
    if budget > 1:
        assert budget <= clock.now - 100 < budget + 10


def test_a_step_with_an_optimiser_is_compared_if_setup_resets_it():
    weight = torch.nn.Parameter(torch.ones(2))
    optimiser = torch.optim.SGD([weight], lr=0.1)

    def step():
        optimiser.zero_grad()
        weight.square().sum().backward()
        optimiser.step()
        return weight

    with pytest.raises(ValueError, match="reset it in setup="):
        pv.time_calls({"before": step, "after": step}, **QUICK)
    calls = {"before": step, "after": step}
    timing = pv.time_calls(calls, setup=lambda: torch.nn.init.ones_(weight), **QUICK)
    assert "exactly" in timing.to_text()


nests = st.recursive(
    st.sampled_from(
        [
            1,
            2.5,
            True,
            ONE,
            ONE.long(),
            ONE * 1j,
            np.ones(3),
            ONE.to_sparse(),
            torch.zeros(0),
            ONE / 0,
        ]
    ),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3)
    ),
    max_leaves=5,
)


PACKED = pack_padded_sequence(torch.randn(2, 5, 2), [5, 3], batch_first=True)
NESTED = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)


@example(PACKED)
@example(NESTED)
@given(nests)
def test_the_same_is_the_same_however_nested(nested):
    assert "exactly" in times(nested, nested).to_text()


@given(
    st.sampled_from(["[0]", "[1]['h'][1]"]), st.sampled_from([1, 2.0, float("nan"), float("inf")])
)
def test_what_differs_is_named(part, more):
    def result(extra):
        other = {"[0]": 0, "[1]['h'][1]": 0} | {part: extra}
        return ONE + other["[0]"], {"h": [ONE, ONE + other["[1]['h'][1]"]]}

    with pytest.raises(ValueError, match="'g' does not return what 'f' returns: ") as error:
        pv.time_calls(
            {"f": lambda: result(0), "same": lambda: result(0), "g": lambda: result(more)}, **QUICK
        )
    off = f"differs by {more / 4:.2g} of its largest" if np.isfinite(more) else "holds NaN"
    assert f"result{part} {off}" in str(error.value)
    assert "reset it in setup=" in str(error.value)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ((ONE,), r"only 'f' returns result\[1\]"),
        ((ONE, ONE, ONE), r"only 'g' returns result\[2\]"),
        ((ONE, ONE[:1]), r"result\[1\] has shape \(1,\), not \(2,\)"),
        (
            (ONE, ONE.long() + 1),
            r"result\[1\] differs by 0\.25 of its largest value \(allowed: 1e-05\)",
        ),
    ],
)
def test_another_form_is_named(other, message):
    with pytest.raises(ValueError, match=message):
        times((ONE, ONE), other)


def test_rounding_and_tolerance():
    close, far = ONE * (1 + 1e-6), ONE * (1 + 1e-3)
    assert "to within 9.5e-07 of" in times(ONE, close).to_text()
    with pytest.raises(
        ValueError, match=r"result differs by 0\.001 of its largest value \(allowed: 1e-05\)"
    ):
        times(ONE, far)
    with pytest.raises(ValueError, match=r"\(allowed: 1e-08\)"):
        times(ONE, close, tolerance=1e-8)
    assert times(ONE, far, tolerance=0.01).rounds
    timing = times(ONE, "another", check=False)
    assert "Results were not compared (check=False)." in timing.to_text()


def test_what_returns_none_is_not_compared():
    timing = times(None, None).to_text()
    assert "Not compared, because they return None: f, g." in timing
    calls = {"f": lambda: ONE, "g": lambda: None, "h": lambda: ONE}
    timing = pv.time_calls(calls, **QUICK).to_text()
    assert (
        "Results agree exactly with those of f. Not compared, because they return None: g."
        in timing
    )


def test_results_in_the_same_memory_are_compared():
    buffer = torch.zeros(2)
    with pytest.raises(ValueError, match="'g' does not return what 'f' returns"):
        pv.time_calls({"f": lambda: buffer.fill_(1), "g": lambda: buffer.fill_(2)}, **QUICK)


def test_dropout_masks_are_the_same_and_the_random_state_stays():
    rnn, x = nn.GRU(2, 3, num_layers=2, dropout=0.5, batch_first=True), torch.randn(2, 5, 2)
    torch.manual_seed(3)
    before = torch.get_rng_state()
    assert "exactly" in pv.time_calls({"a": lambda: rnn(x), "b": lambda: rnn(x)}, **QUICK).to_text()
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("calls", "options", "error", "message"),
    [
        ([print], {}, TypeError, 'give functions by name: {"before": f, "after": g}'),
        ({"a": 3}, {}, TypeError, "calls is {'a': 3}; give functions by name"),
        ({}, {}, ValueError, "calls is empty; give at least one function with its name"),
        (
            {"a": dict},
            {"budget": 0},
            ValueError,
            "budget is 0; give a finite number of seconds greater than 0",
        ),
        ({"a": dict}, {"tolerance": -1}, ValueError, "tolerance is -1; give a finite number"),
        ({"a": dict}, {"device": "tpu"}, ValueError, "device is 'tpu'; choose cpu, cuda"),
        (
            {"a": object},
            {},
            TypeError,
            "result is an object; return tensors, numbers, arrays, or tuples",
        ),
        ({"a": lambda: [1, "b"]}, {}, TypeError, r"result\[1\] is a str; return tensors"),
    ],
)
def test_refusals(calls, options, error, message):
    with pytest.raises(error, match=message):
        pv.time_calls(calls, **QUICK | options)


def test_where_the_work_is_done_must_be_known(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    with pytest.raises(
        ValueError, match="the results do not show where the work is done; pass device='cuda'"
    ):
        pv.time_calls({"a": lambda: 1.0}, **QUICK)
    assert pv.time_calls({"a": lambda: 1.0}, device="cpu", **QUICK).rounds


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_device_is_that_of_the_results():
    x = torch.randn(64, 64, device="cuda")
    timing = pv.time_calls({"a": lambda: {"y": [x @ x]}, "b": lambda: {"y": [x @ x]}}, budget=1)
    assert timing.provenance["device"].startswith("cuda")
