"""Tests the model of what a run costs: its choice is deterministic and never fails."""

import itertools
import json

import gpus
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packviz.core.cuts import rectangles
from packviz.core.spec import Spec
from packviz.ops import costs
from packviz.ops.costs import NEAR, TERMS, Costs, amounts, choose, in_force, rates


@pytest.fixture(autouse=True, scope="module")
def gpu():
    """Provides constants for a GPU, because packviz ships none."""
    with gpus.in_force(gpus.constants()):
        yield


sizes = st.builds(
    Spec,
    st.sampled_from(["RNN", "GRU", "LSTM"]),
    st.sampled_from([1, 16, 2048]),
    st.sampled_from([1, 32, 2048]),
    st.integers(1, 3),
    st.booleans(),
    st.just(0),
)


@given(
    sizes,
    st.integers(0, 5),
    st.integers(1, 9),
    st.integers(1, 99),
    st.booleans(),
    st.sampled_from(["cpu", "cuda"]),
)
def test_rates_are_the_constants_times_what_they_are_for(
    sizes, calls, steps, cells, training, device
):
    for method in ("padded", "packed", "split", "staircase", "whole"):
        counted = amounts(sizes, calls, steps, cells)
        constants = in_force(device).seconds[costs.key(method, sizes, training, True, device)]
        assert [*counted] == [*constants] == [*TERMS]
        expected = sum(constants[term] * counted[term] for term in TERMS)
        assert rates(sizes, training, device)[method].seconds(calls, steps, cells) == pytest.approx(
            expected
        )


@pytest.fixture
def own_costs(monkeypatch):
    """Restores the constants after each test."""
    monkeypatch.setattr(costs, "_in_force", {})
    costs.forget()
    yield
    costs.forget()


@given(
    sizes,
    st.lists(st.integers(1, 700), min_size=1, max_size=60).map(tuple),
    st.booleans(),
    st.sampled_from(["cpu", "cuda"]),
    st.booleans(),
    st.sampled_from([1, 2, 3, 64]),
)
def test_a_choice_is_made_of_everything_and_always_the_same(
    sizes, lengths, training, device, fused, threads
):
    batch = sizes, lengths, training, device, fused, threads
    found = choose(*batch)
    assert bool(found.seconds) == found.reason.startswith("constants measured on")
    least = min(found.seconds.values(), default=0)
    assert not found.seconds or found.seconds[found.method] <= NEAR * least
    before = itertools.takewhile(lambda method: method != found.method, found.seconds)
    assert all(found.seconds[simpler] > NEAR * least for simpler in before)
    assert all(seconds > 0 for seconds in found.seconds.values())
    rectangles(lengths, found.cuts)
    assert (len(found.cuts) > 2) == (found.method == "staircase")
    costs.forget()
    assert choose(*batch) == found


@pytest.mark.usefixtures("own_costs")
@pytest.mark.parametrize("threads", [1, 2])
def test_the_constants_that_come_along(threads, tmp_path):
    shipped = in_force("cpu", threads)
    assert (shipped.device, shipped.threads) == ("cpu", threads)
    assert shipped.provenance
    ways, modes, passes = (
        ("whole", "rectangles", "packed", "split"),
        ("RNN", "GRU", "LSTM"),
        ("forward", "training"),
    )
    keys = {" ".join(named) for named in itertools.product(ways, modes, passes)}
    assert set(shipped.seconds) == keys | {f"fused LSTM {each}" for each in passes}
    assert all(value >= 0 for row in shipped.seconds.values() for value in row.values())
    said = repr(shipped)
    assert (
        f"constants measured on {shipped.provenance['device_name']}, torch threads: {threads}"
        in said
    )
    assert "packed GRU training" in said
    shipped.save(tmp_path / "c.json")
    again = Costs.load(tmp_path / "c.json")
    assert (again.device, dict(again.seconds), again.provenance) == (
        "cpu",
        dict(shipped.seconds),
        shipped.provenance,
    )
    assert not in_force("cuda").seconds


@pytest.mark.usefixtures("own_costs")
@given(st.sets(st.sampled_from([1, 2, 4, 8, 16, 64]), min_size=1), st.integers(1, 128))
def test_the_nearest_number_of_threads_counts(measured, threads):
    costs._in_force["cpu"] = {}
    costs.forget()
    for number in measured:
        Costs("cpu", {}, {"threads": number}).use()
    found = in_force("cpu", threads).threads
    assert found in measured
    times = {number: max(number, threads) / min(number, threads) for number in measured}
    assert times[found] == pytest.approx(min(times.values()))
    Costs("cpu", {}).use()
    assert in_force("cpu", threads).threads == 0


def constant(names, **seconds):
    """Returns a model in which a run takes the given seconds by each method, for any batch."""
    rows = {name: {"run": seconds.get(name.split()[0], 9.0)} for name in names}
    return Costs("cpu", rows, {"device_name": "a CPU that is made up", "threads": 1})


@pytest.mark.usefixtures("own_costs")
@pytest.mark.parametrize(
    ("mode", "lengths", "training", "fused", "taken"),
    [
        ("LSTM", (5, 5), True, True, "padded"),
        ("LSTM", (5, 5), True, False, "split"),
        ("GRU", (5, 5), True, True, "split"),
        *((mode, (5, 5), False, False, "padded") for mode in ("LSTM", "GRU", "RNN")),
        ("GRU", (5, 3), False, False, "packed"),
        ("RNN", (5, 3), False, False, "split"),
    ],
)
def test_where_nothing_is_weighed_torchs_kernel_runs(mode, lengths, training, fused, taken):
    constant(in_force("cpu").seconds, split=1.0).use()
    found = choose(Spec(mode, 8, 8), lengths, training, fused=fused)
    assert found.method == taken
    assert (taken == "split") == bool(found.seconds)


@pytest.mark.usefixtures("own_costs")
@pytest.mark.parametrize(
    ("mode", "seconds", "lengths", "taken"),
    [
        (
            "LSTM",
            {"packed": 1.04, "split": 1.0},
            (5, 3),
            "packed",
        ),  # a gain within the model's error does not count
        ("LSTM", {"packed": 1.06, "split": 1.0}, (5, 3), "split"),
        ("LSTM", {"packed": 1.2, "fused": 1.03, "split": 1.0}, (5, 3), "padded"),
        ("RNN", {"packed": 1.0, "whole": 1.04}, (5, 5), "padded"),  # nothing has to be packed
        ("RNN", {"packed": 1.0, "whole": 1.06}, (5, 5), "packed"),
    ],
)
def test_of_what_is_near_the_simplest_is_taken(mode, seconds, lengths, taken):
    constant(in_force("cpu").seconds, **seconds).use()
    found = choose(Spec(mode, 8, 8), lengths)
    assert found.method == taken
    fastest = min(found.seconds, key=found.seconds.get)
    assert ("simpler and within 5%" in found.to_text()) == (taken != fastest)


@pytest.mark.parametrize(
    "change",
    [
        {"version": 99},
        {"terms": ["run"]},
        {"terms": [f"a {i}" for i in TERMS]},
        {"seconds": {"a": [1]}},
        {"packviz": "else"},
        {"seconds": None},
    ],
)
def test_a_file_of_something_else(change, tmp_path):
    path = tmp_path / "c.json"
    in_force("cpu").save(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(
        ValueError, match=r"does not contain the costs of a run|expected 'costs', version 1"
    ):
        Costs.load(path)
