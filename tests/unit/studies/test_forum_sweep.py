"""The forum's experiment: its network, what it measures, what it says, and its files. No time is asserted."""

import dataclasses
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from drawings import Drawing
from hypothesis import given
from hypothesis import strategies as st

from packviz.bench import study
from packviz.bench.machine import check_device
from packviz.bench.study import Progress
from packviz.bench.timing import Timing
from packviz.draw.chart import COLOURS, heights_of
from packviz.draw.palette import METHODS
from packviz.studies.forum import network as forum
from packviz.studies.forum import results, trial
from packviz.studies.forum import sweep as experiment
from packviz.studies.forum.points import PASSES, At, Parameters, Point, call_name, setup_lengths, sizes
from packviz.studies.forum.results import Benchmark
from packviz.studies.forum.sweep import expected, sweep

RECORDED = Path(__file__).parents[3] / "notebooks" / "recorded"
FAKE = Path(__file__).parent / "recordings" / "benchmark_fake_cuda.json"
SMALL = Parameters(batch_size=4, rounds=2, warmup=0)
CALLS = {"padded, forward", "padded, training", "packed, forward", "packed, training"}


def run(parameters=SMALL, setups=("A", "B"), sizes=(2, 3), **options):
    """The whole result."""
    return list(sweep(parameters, setups, sizes, **options))[-1]


def made(times, setup="B", steps=8, **options):
    """A point with these seconds, the same in six rounds."""
    return Point(setup, steps, Timing({name: (t,) * 6 for name, t in times.items()}), **options)


def benchmark(parameters, place, *points):
    """A benchmark of these points."""
    values = {At(point.setup, point.steps): point for point in points}
    return Benchmark({**place, "parameters": dataclasses.asdict(parameters)}, values)


PLACE = {"device": "cpu", "device_name": "a test", "torch": "9", "threads": 1, "date": "2026-01-02T03:04:05+00:00"}


def small_result(*points, **parameters):
    return benchmark(Parameters(**{"rounds": 3} | parameters), PLACE, *points)


# The setups and the network.


def test_the_forums_setups():
    assert setup_lengths("A", 8, 10).tolist() == [10] * 8
    assert setup_lengths("B", 8, 10).tolist() == [10, 9, 8, 7, 6, 5, 4, 3]
    assert setup_lengths("B", 512, 32).tolist() == np.repeat(np.arange(32, 0, -1), 16).tolist()
    with pytest.raises(ValueError, match="setup is 'C'; choose one of 'A', 'B', 'evenly'"):
        setup_lengths("C", 1, 1)


@given(st.integers(1, 40), st.integers(1, 40))
def test_evenly_spread_lengths(batch_size, steps):
    n = setup_lengths("evenly", batch_size, steps)
    assert (n.size, n[0]) == (batch_size, steps)
    assert n[-1] == (1 if batch_size > 1 else steps)
    assert (np.diff(n) <= 0).all()
    assert batch_size < 2 or np.ptp(np.diff(n)) <= 1


def test_the_network_is_the_forums():
    network = forum.Network()
    assert repr(network.embedding) == "Embedding(10, 16, padding_idx=0)"
    assert repr(network.lstm) == "LSTM(16, 32, batch_first=True)"
    assert repr(network.linear) == "Linear(in_features=32, out_features=2, bias=True)"


@given(st.sampled_from("AB"), st.integers(1, 5), st.integers(1, 6), st.integers(0, 3))
def test_a_batch_is_padded_with_zeros_and_nothing_else(setup, batch_size, steps, seed):
    n = setup_lengths(setup, batch_size, steps)
    batch = forum.batch(n, steps, vocabulary=5, classes=3, seed=seed, device="cpu")
    real = torch.arange(steps) < torch.tensor(n.copy())[:, None]
    assert torch.equal(batch.ids != forum.PADDING, real)
    assert int(batch.ids.max()) < 5
    assert set(batch.targets.tolist()) <= {0, 1, 2}
    again = forum.batch(n, steps, vocabulary=5, classes=3, seed=seed, device="cpu")
    assert all(map(torch.equal, batch, again))


@given(st.sampled_from(["A", "B", "evenly"]), st.integers(1, 5), st.integers(1, 6), st.booleans())
def test_the_logits_are_the_sum_over_the_real_steps_and_the_bias_at_padding(setup, batch_size, steps, batch_first):
    """Each sequence alone, without any padding, tells what a method has to give."""
    network = forum.Network().double()
    n = setup_lengths(setup, batch_size, steps)
    ids, lengths, _ = forum.batch(n, steps, vocabulary=10, classes=2, seed=1, device="cpu")
    alone = [network.linear(network.lstm(network.embedding(row[:k]))[0]).sum(0) for row, k in zip(ids, n, strict=True)]
    wanted = torch.stack(alone) + (steps - lengths)[:, None] * network.linear.bias
    x = network.embedding(ids)
    network.lstm.batch_first = batch_first
    for method in forum.METHODS.values():
        output, _ = method(network.lstm, x if batch_first else x.transpose(0, 1), lengths)
        output = output if batch_first else output.transpose(0, 1)
        assert output.shape == (batch_size, steps, 32)
        assert torch.allclose(network.linear(output).sum(1), wanted)


# What can be asked for.


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"batch_size": 0}, "batch_size is 0; give a whole number of at least 1"),
        ({"rounds": 2.5}, "rounds is 2.5"),
        ({"warmup": -1}, "warmup is -1; give a whole number of at least 0"),
        ({"threads": True}, "threads is True"),
        ({"vocabulary": 1}, "vocabulary is 1; give a whole number of at least 2"),
        ({"dtype": "int8"}, "dtype is 'int8'; choose one of 'float32', 'float64', 'bfloat16', 'float16'"),
        ({"autocast": "half"}, "autocast is 'half'; choose one of 'bfloat16', 'float16', None"),
        ({"autocast": "float32"}, "autocast is 'float32'"),  # torch would run without, under its name
        ({"autocast": "bfloat16", "dtype": "float64"}, "autocast is 'bfloat16' and dtype 'float64'; autocast needs"),
        ({"methods": ()}, "methods is empty"),
        ({"methods": ("packed", "packed")}, "methods is packed, packed; name at least one, each once"),
    ],
)
def test_parameters_that_cannot_be(wrong, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        Parameters(**wrong)


def test_sizes():
    assert sizes(32, 512, 32) == tuple(32 * i for i in range(1, 17))
    assert sizes(5, 5, 3) == (5,)
    with pytest.raises(ValueError, match="shortest is 9 and longest 8: there is nothing between them"):
        sizes(9, 8, 1)
    with pytest.raises(ValueError, match="step is 0"):
        sizes(1, 8, 0)


def test_a_method_or_setup_that_is_not_known():
    with pytest.raises(ValueError, match=r"there is no method 'split'; there are padded, packed"):
        run(dataclasses.replace(SMALL, methods=("padded", "split")))
    with pytest.raises(ValueError, match="setup is 'C'"):
        run(setups=("A", "C"))


@pytest.mark.parametrize(
    ("device", "said"),
    [
        ("mps", "device is 'mps'; choose cpu, cuda"),
        ("gpu", "device is 'gpu'; choose cpu, cuda"),
        ("cpu:x", "device is 'cpu:x'; choose cpu, cuda"),
        ("cpu:1", "device is 'cpu:1'; choose cpu, cuda"),
    ],
)
def test_devices_that_cannot_be(device, said):
    with pytest.raises(ValueError, match=said):
        check_device(device)


@pytest.mark.parametrize(
    ("built", "said"), [(None, "is built without CUDA: install"), ("12.8", "finds no GPU: see whether")]
)
def test_no_cuda_says_what_to_do(monkeypatch, built, said):
    monkeypatch.setattr(torch.version, "cuda", built)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match=f"device is 'cuda', and torch.* {said}.*; or take the device cpu$"):
        run(device="cuda")


def test_a_gpu_too_many(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert check_device("cuda:1") == "cuda:1"
    with pytest.raises(ValueError, match="device is 'cuda:2', and the last GPU here is cuda:1"):
        check_device("cuda:2")


# Measuring.


def test_every_point_is_measured_smallest_first_and_told():
    told = []
    steps = list(sweep(SMALL, ("A", "B"), (3, 2), progress=told.append))
    assert [len(result.points) for result in steps] == [0, 1, 2, 3, 4]
    result = steps[-1]
    assert [(p.setup, p.steps) for p in result.points] == [("A", 2), ("B", 2), ("A", 3), ("B", 3)]
    for point in result.points:
        assert set(point.timing.seconds) == CALLS
        assert point.timing.rounds == 2
        assert set(point.timing.memory) == CALLS
        assert point.timing.memory["padded, training"] > point.timing.memory["padded, forward"] > 0
        assert (point.missing, point.wrong) == ({}, [])
        assert list(point.difference) == ["packed"]
    assert [(p.name, p.done) for p in told[::3]] == [
        (f"setup {setup}, {steps} time steps", i)
        for i, (steps, setup) in enumerate([(2, "A"), (2, "B"), (3, "A"), (3, "B")])
    ]
    assert {p.points for p in told} == {4}
    assert all(0 <= p.fraction <= 1 for p in told)


def test_one_setup_and_one_method():
    result = run(dataclasses.replace(SMALL, methods=("packed",)), setups=("evenly",), sizes=(3,))
    assert result.setups == ["evenly"]
    assert set(result.point("evenly", 3).timing.seconds) == {"packed, forward", "packed, training"}
    assert "packed ms" in result.to_text()


def test_what_is_timed(monkeypatch, two_threads):
    """The forward pass without a graph, and training with fresh gradients; one thread; all in one measurement."""
    seen = []

    def spy(rnn, x, lengths):
        clean = all(p.grad is None for p in rnn.parameters())
        seen.append((torch.is_grad_enabled(), clean, torch.get_num_threads(), rnn.batch_first, lengths.device.type))
        return forum.packed(rnn, x, lengths)

    measured = []
    monkeypatch.setitem(forum.METHODS, "spy", spy)
    monkeypatch.setattr(trial, "timed", lambda *a, **k: measured.append(a) or study.timed(*a, **k))
    result = run(dataclasses.replace(SMALL, methods=("padded", "spy")), setups=("B",), sizes=(3,))
    assert set(seen) == {(False, True, 1, True, "cpu"), (True, True, 1, True, "cpu")}
    assert len(seen) == 2 * (2 + 2)  # two rounds, once to compare, once for the memory
    assert len(measured) == 1
    assert torch.get_num_threads() == two_threads
    assert result.point("B", 3).wrong == []


@pytest.mark.parametrize(
    ("wrong", "far"),
    [
        (lambda output: output + 0.1, True),
        (lambda output: output.flip(0), True),
        (lambda output: output.detach(), True),
        (lambda output: output * math.nan, True),
        (lambda output: output * (1 + 1e-7), False),
    ],
)
def test_a_method_that_gives_something_else_is_found(monkeypatch, wrong, far):
    monkeypatch.setitem(forum.METHODS, "other", lambda *given: (wrong(forum.packed(*given)[0]), None))
    parameters = dataclasses.replace(SMALL, methods=("padded", "other"), rounds=1)
    result = run(parameters, setups=("B",), sizes=(4,))
    assert result.point("B", 4).wrong == (["other"] if far else [])
    said = "Setup B at 4 time steps: other gives other results"
    assert (said in result.to_text()) == far
    assert ("other gives other results" in result.to_svg()) == far


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_other_dtypes_agree_to_their_rounding(dtype):
    point = run(dataclasses.replace(SMALL, dtype=dtype, rounds=1), setups=("B",), sizes=(5,)).point("B", 5)
    assert point.wrong == []
    assert point.tolerance == 4 * math.sqrt(torch.finfo(getattr(torch, dtype)).eps)


def test_autocast_reaches_the_forward_pass_only(monkeypatch):
    seen = set()

    def spy(*given):
        output, states = forum.padded(*given)
        seen.add(torch.is_autocast_enabled("cpu"))
        output.requires_grad and output.register_hook(lambda grad: seen.add(torch.is_autocast_enabled("cpu") or "back"))
        return output, states

    monkeypatch.setitem(forum.METHODS, "spy", spy)
    run(dataclasses.replace(SMALL, methods=("spy",), autocast="bfloat16", rounds=1), setups=("B",), sizes=(2,))
    assert seen == {True, "back"}


def test_seeds_make_it_the_same_network_and_leave_yours_alone():
    state = torch.random.get_rng_state()
    one, other = (run(dataclasses.replace(SMALL, rounds=1), sizes=(3,)).points for _ in range(2))
    assert [p.difference for p in one] == [p.difference for p in other]
    assert torch.equal(torch.random.get_rng_state(), state)


def test_out_of_memory_is_noted_and_the_sweep_goes_on(monkeypatch):
    calls = []

    def hungry(rnn, x, lengths):
        calls.append(x.shape[1])
        if x.shape[1] == 3 and torch.is_grad_enabled():
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return forum.packed(rnn, x, lengths)

    monkeypatch.setitem(forum.METHODS, "hungry", hungry)
    result = run(dataclasses.replace(SMALL, methods=("padded", "hungry")), setups=("B",), sizes=(2, 3, 4))
    assert [p.steps for p in result.points] == [2, 3, 4]
    point = result.point("B", 3)
    assert point.missing == {"hungry, training": "out of memory"}
    assert set(point.timing.seconds) == {"padded, forward", "padded, training", "hungry, forward"}
    assert result.points[0].missing == result.points[2].missing == {}
    assert "Setup B at 3 time steps: hungry, training: out of memory." in result.to_text()
    assert "out of memory" in result.to_svg()
    assert calls.count(3) < 9
    assert benchmark(result.parameters, result.provenance, point).to_text().count("–") >= 2


def test_when_nothing_fits(monkeypatch):
    def batch(*args, **options):
        raise MemoryError

    monkeypatch.setattr(forum, "batch", batch)
    result = run(sizes=(2,), setups=("A",))
    assert set(result.point("A", 2).missing) == CALLS
    assert result.to_text()
    assert Drawing(result.to_svg())


@pytest.mark.parametrize(
    ("error", "out"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("x"), True),
        (RuntimeError("[enforce fail at alloc_cpu.cpp:121] . DefaultCPUAllocator: can't allocate memory: you"), True),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), True),
        (RuntimeError("shapes do not fit"), False),
        (ValueError("x"), False),
    ],
)
def test_what_counts_as_out_of_memory(error, out):
    assert trial.is_out_of_memory(error) == out


def test_what_torch_refuses_is_said_with_its_name(monkeypatch):
    def failing(*given):
        raise RuntimeError("no such kernel\nand more")

    monkeypatch.setitem(forum.METHODS, "failing", failing)
    said = "torch cannot run failing, (forward|training) on cpu with dtype float32, autocast float16: no such kernel$"
    with pytest.raises(ValueError, match=said):
        run(dataclasses.replace(SMALL, methods=("failing",), autocast="float16"))


def test_threads_are_restored_and_stop_ends_within_a_call(monkeypatch, two_threads):
    calls = []
    monkeypatch.setitem(forum.METHODS, "spy", lambda *given: calls.append(1) or forum.padded(*given))
    parameters = dataclasses.replace(SMALL, methods=("spy",))
    one_point = 2 * 3  # two passes: twice timed, and once for the memory
    for allowed in (0, 1, one_point - 1, one_point, one_point + 1, 3 * one_point):
        calls.clear()
        result = run(parameters, sizes=(2, 3), stop=lambda allowed=allowed: len(calls) >= allowed)
        assert len(calls) == allowed
        assert len(result.points) == allowed // one_point
    assert torch.get_num_threads() == two_threads


# Going on.


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"batch_size": 5}, "batch_size 4, not 5"),
        ({"rounds": 3, "seed": 1}, "rounds 2, not 3; seed 0, not 1"),
        ({"methods": ("packed",)}, "methods padded,packed, not packed"),
        ({"autocast": "bfloat16"}, "autocast None, not bfloat16"),
    ],
)
def test_other_parameters_do_not_mix(change, said):
    there = run(sizes=(2,), setups=("A",))
    with pytest.raises(ValueError, match=f"the results there were measured otherwise: {said}. Take the same options"):
        run(dataclasses.replace(SMALL, **change), start=there)


# How long it will take.


@given(st.floats(0.001, 100), st.floats(0, 3), st.integers(1, 9), st.integers(10, 99))
def test_points_are_foreseen_as_a_power_of_their_size(unit, power, first, last):
    known = {At("A", n): unit * n**power for n in (first, last)}
    assert expected(known, At("A", 200)) == pytest.approx(unit * 200**power, rel=1e-6)
    assert expected(known, At("B", 200)) == pytest.approx(unit * 200**power, rel=1e-6)  # the best guess there is
    assert experiment.STUDY.foresee is expected
    known[At("B", 5)] = 7.0
    assert expected(known, At("B", 5)) == 7
    assert expected(known, At("B", 20)) == pytest.approx(7 * 4**1.5)


def test_nothing_known_nothing_foreseen():
    assert expected({}, At("A", 2)) is None
    assert expected({At("A", 1): 0.0, At("A", 2): 0.0}, At("A", 4)) == 0
    assert Progress("setup A, 32 time steps", 0, 8, 0.0, None).to_text() == "point 1 of 8 (setup A, 32 time steps)"
    assert (
        Progress("setup B, 64 time steps", 3, 8, 0.5, 100.0).to_text()
        == "point 4 of 8 (setup B, 64 time steps), 2 min left"
    )


# What it says.


def test_in_words():
    times = {"padded, forward": 1e-3, "packed, forward": 2e-3, "padded, training": 0.01, "packed, training": 0.3}
    noisy = Timing(
        {"padded, forward": (1.0, 2.0, 3.0) * 2, "packed, forward": (2.0, 3.0, 1.0) * 2},
        memory={"padded, forward": 5 * 10**6},
    )
    result = small_result(made(times), Point("B", 16, noisy))
    assert repr(result) == (
        "Embedding(10, 16) → LSTM(16, 32) → Linear(32, 2), batch size 512, float32.\n"
        "\n"
        "Setup B (triangle), forward pass:\n"
        "  steps  padded ms  packed ms  packed/padded  padded MB  packed MB\n"
        "      8          1          2           2             –          –\n"
        "     16      2,000      2,000           1.5?          5          –\n"
        "\n"
        "Setup B (triangle), forward and backward pass:\n"
        "  steps  padded ms  packed ms  packed/padded  padded MB  packed MB\n"
        "      8         10        300            30           –          –\n"
        "     16          –          –              –          –          –\n"
        "\n"
        "ms: median. MB: the most memory in use at once. ?: not told apart. –: no number.\n"
        "A ratio is the median of the rounds' ratios, not the ratio of two medians.\n"
        "Measured on a test (CPU), torch 9, 1 thread, 6 rounds, 2026-01-02."
    )
    assert result.ratio("packed", "padded", "B", 8).value == 30
    assert result.ratio("packed", "padded", "B", 8, "forward").value == 2
    with pytest.raises(ValueError, match="setup 'A' at 8 time steps was not measured; there are B: 8, 16"):
        result.point("A", 8)


def test_the_picture_has_a_row_per_quantity_and_a_column_per_setup():
    times = {"padded, forward": 1e-3, "packed, forward": 2e-3, "padded, training": 0.01, "packed, training": 0.3}
    memory = {name: round(1e9 * seconds) for name, seconds in times.items()}
    measured = Timing({name: (seconds, seconds) for name, seconds in times.items()}, memory=memory)
    result = small_result(*(Point(setup, steps, measured) for setup in ("B", "A") for steps in (4, 8)))
    titles = [t for t in Drawing(result.to_svg()).said() if "(no padding): " in t or "(triangle): " in t]
    assert titles == [
        "A (no padding): times as long as padded",
        "B (triangle): times as long as padded",
        "A (no padding): time",
        "B (triangle): time",
        "A (no padding): most memory in use",
        "B (triangle): most memory in use",
    ]
    ratios, *others = result.chart().rows
    for plot in ratios:
        assert {c.name: (tuple(c.x), tuple(c.y)) for c in plot.curves} == {
            "forward": ((4, 8), (2, 2)),
            "training": ((4, 8), (30, 30)),
        }
        assert [guide.points for guide in plot.guides] == [((4, 1), (8, 1))]
        assert [curve.hollow for curve in plot.curves] == [False, True]  # painted last: forward
    for row, factor in zip(others, (1e3, 1e3), strict=True):
        for plot in row:
            assert {c.name: tuple(c.y) for c in plot.curves} == {
                name: pytest.approx((factor * seconds,) * 2) for name, seconds in times.items()
            }
    assert [(guide.name, *guide.points) for guide in others[0][0].guides] == [
        ("slope 1: T", (4, 10), (8, 20)),
        ("slope 2: T²", (4, 10), (8, 40)),
    ]
    assert result.chart("ratio").to_text().splitlines() == [
        result.chart("ratio").title,
        "",
        "A (no padding): times as long as padded, ×",
        "time steps  training   forward",
        "         4        30         2",
        "         8        30         2",
        "",
        "B (triangle): times as long as padded, ×",
        "time steps  training   forward",
        "         4        30         2",
        "         8        30         2",
        f"{result.parameters.to_text()}.",
        f"Measured on {result.caption}.",
    ]
    assert "Bands" in result.chart("ratio").notes[-1]
    assert "Bands" not in result.chart("memory").notes[-1]  # memory is counted, once
    assert [plot.y for row in result.chart("memory", "ratio").rows for plot in row] == ["MB", "MB", "×", "×"]
    with pytest.raises(ValueError, match="what is 'speed'; choose one of 'ratio', 'time', 'memory'"):
        result.chart("speed")


def test_titles_say_what_was_found():
    def point(setup, steps, packed):
        seconds = {
            "padded, forward": 1.0,
            "packed, forward": 1.0,
            "padded, training": steps,
            "packed, training": packed,
        }
        memory = {"padded, training": 100, "packed, training": round(packed), "packed, forward": 7}
        return Point(setup, steps, Timing({name: (value,) for name, value in seconds.items()}, memory=memory))

    result = small_result(point("A", 8, 9), point("B", 2, 4), point("B", 8, 64))
    assert result.chart().title == "Packed takes up to 8 times as long as padded (training, setup B, 8 time steps)"
    assert result.chart("time").title == "From 2 to 8 time steps, training in setup B: padded × 4, packed × 16"
    assert (
        result.chart("memory").title
        == "Packed needs as little as 0.04 of the memory of padded (training, setup B, 2 time steps)"
    )
    noisy = {"padded, forward": (1.0,) * 6, "packed, forward": (0.1, 3, 90) * 2, "padded, training": (1.0,) * 6}
    noisy = Point("B", 8, Timing(noisy | {"packed, training": (2.0,) * 6}))
    assert small_result(noisy).chart().title.endswith("2 times as long as padded (training, setup B, 8 time steps)")
    alone = small_result(made(dict.fromkeys(["padded, forward", "padded, training"], 1.0)), methods=("padded",))
    assert alone.chart().title == "padded: times as long as padded"
    assert alone.chart("time").title == "Milliseconds per batch, up to 8 time steps"
    assert small_result().chart().title == "The forum's network"


def test_times_of_another_batch_are_not_drawn_beside():
    """Yours with batch 64 on the axes of 512 would say that your machine is fast; a ratio can be compared."""
    one = small_result(made(dict.fromkeys(CALLS, 1e-3)))
    other = small_result(made(dict.fromkeys(CALLS, 1e-3)), batch_size=8)
    sources = [
        {curve.source for plot in row for curve in plot.curves}
        for row in results.beside({"yours": one, "recorded": other}, what=("ratio", "time")).rows
    ]
    assert sources == [{0, 1}, {0}]
    (row,) = results.beside({"yours": None, "recorded": other}, what=("time",)).rows
    assert {curve.source for plot in row for curve in plot.curves} == {1}


def test_a_method_has_its_colour_whoever_else_is_measured():
    alone = small_result(made(dict.fromkeys(CALLS, 1e-3)), methods=("packed", "run"))
    (plot,) = results.beside({"": alone}).rows[1]
    numbers = {curve.name.partition(",")[0]: curve.method for curve in plot.curves}
    assert [COLOURS[number] for number in numbers.values()] == [METHODS[name] for name in numbers] != []


def test_results_side_by_side():
    one = small_result(made(dict.fromkeys(CALLS, 1e-3)))
    other = small_result(made(dict.fromkeys(CALLS, 1e-3)), batch_size=8)
    picture = results.beside({"yours": one, "theirs": other, "to come": None}, planned=(4,), notes=("Start.",))
    assert sorted((c.name, c.source) for c in picture.rows[0][0].curves) == [
        ("forward", 0),
        ("forward", 1),
        ("training", 0),
        ("training", 1),
    ]
    assert picture.sources[0].startswith("yours: a test")
    assert picture.sources[2] == "to come: nothing measured yet"
    assert picture.notes[0] == "Start."
    assert next(note for note in picture.notes if "batch size 8" in note).startswith("theirs: ")
    assert picture.to_text().startswith("Start.\n\nyours\nEmbedding")
    alike = results.beside({"yours": one, "theirs": one})
    assert [note for note in alike.notes if "batch size" in note] == [f"{one.parameters.to_text()}."]
    empty = results.beside({"yours": None}, ["A"])
    assert "nothing measured yet" in Drawing(empty.to_svg()).said()


# Files.


def test_a_file_keeps_everything(tmp_path):
    path = tmp_path / "result.json"
    result = run()
    experiment.STUDY.save(path, result)
    assert experiment.recorded(path) == result
    data = json.loads(path.read_text())
    assert (data["packviz"], data["version"]) == ("benchmark", 1)
    assert data["provenance"]["parameters"]["batch_size"] == 4
    wanted = {"device", "device_name", "cpu", "torch", "threads", "allocator", "date", "load_average", "packviz"}
    assert wanted <= set(data["provenance"])
    assert {"date", "load_average"} <= set(data["points"][0]["timing"]["provenance"])
    if data["provenance"]["allocator"]["library"].startswith("glibc"):
        assert data["provenance"]["allocator"]["mallopt"]


def test_a_result_that_is_no_number_is_kept_too(tmp_path):
    point = made(dict.fromkeys(CALLS, 1.0), difference={"packed": math.inf}, tolerance=0.1)
    experiment.STUDY.save(tmp_path / "a.json", small_result(point))
    assert experiment.recorded(tmp_path / "a.json").points[0].wrong == ["packed"]


def damage(change):
    data = json.loads(FAKE.read_text())
    change(data)
    return data


def first_point(**values):
    return lambda data: data["points"][0].update(values)


def first_times(values):
    return lambda data: data["points"][0]["timing"]["seconds"].update({"padded, forward": values})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: data.update(version=2), "holds 'benchmark', version 2; expected 'benchmark', version 1"),
        (lambda data: data.update(packviz="savings"), "holds 'savings', version 1"),
        (lambda data: data["points"][0].pop("tolerance"), "is damaged: it has no 'tolerance'"),
        (lambda data: data["provenance"].pop("parameters"), "is damaged: it has no 'parameters'"),
        (lambda data: data["provenance"]["parameters"].update(colour=1), "this version knows no parameter 'colour'"),
        (
            lambda data: data["points"][0]["timing"]["seconds"].pop("packed, training"),
            "is damaged: setup A, steps 32: packed, training has no time, and nothing says why",
        ),
        (lambda data: data["provenance"]["parameters"].update(rounds=0), "is damaged: rounds is 0"),
        (first_point(setup="Z"), "is damaged: setup is 'Z'; choose one of 'A', 'B', 'evenly'"),
        (first_point(steps="long"), "is damaged: steps is 'long'"),
        (first_point(timing={}), "is damaged: data is no record of a Timing"),
        (first_times([1.0]), "setup A, steps 32: not every call has a time in every round"),
        (first_times([1, 2, 3, 4, -1]), "setup A, steps 32: a time is not a number of seconds"),
        (first_times([1, 2, 3, 4, "x"]), "is damaged: could not convert"),
    ],
)
def test_what_cannot_be_read_is_refused(tmp_path, change, said):
    path = tmp_path / "result.json"
    path.write_text(json.dumps(damage(change)))
    with pytest.raises(ValueError, match=re.escape(said)) as error:
        experiment.recorded(path)
    assert "result.json" in str(error.value)


def test_a_made_up_recording_says_so_everywhere():
    """It proves that curves of a GPU would be drawn; it must never pass for a measurement."""
    fake = experiment.recorded(FAKE)
    assert fake.provenance["device"] == "cuda"
    for said in (fake.to_text(), fake.to_svg(), fake.caption, results.beside({"a": fake, "b": fake}).to_svg()):
        assert "MADE UP, no machine was timed" in said
    picture = results.beside({"recorded": fake})
    assert [[len(plot.curves) for plot in row] for row in picture.rows] == [[2, 2], [4, 4], [4, 4]]
    (packed,) = [c for c in picture.rows[1][1].curves if c.name == "packed, training"]
    assert list(packed.x) == [32, 128, 256]  # at 512 it is out of memory, and no point is made up for that
    assert any("setup B, 512 time steps, packed, training: out of memory" in note for note in picture.notes)


def test_a_page_says_that_nothing_was_recorded_on_a_gpu_until_something_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (folder := tmp_path / "recorded").mkdir()
    assert "none was recorded on a GPU" in experiment.STUDY.without_gpu()
    (folder / "benchmark_a_gpu.json").write_bytes(FAKE.read_bytes())
    assert experiment.STUDY.without_gpu() == ""
    (folder / "benchmark_a_gpu.json").unlink()
    assert "none was recorded on a GPU" in experiment.STUDY.without_gpu()


def test_recordings_are_called_by_their_machine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (folder := tmp_path / "recorded").mkdir()

    def record(file, **place):
        result = small_result(made(dict.fromkeys(CALLS, 1e-3)))
        moved = dataclasses.replace(result, provenance={**result.provenance, **place})
        experiment.STUDY.save(folder / f"benchmark_{file}.json", moved)

    record("a", device="cuda:1", device_name="a GPU")
    record("b", device="cpu", threads=4, device_name="a CPU")
    record("c", device="cpu", device_name="a CPU")
    assert list(experiment.STUDY.recordings()) == ["CPU", "CPU, 4 threads", "GPU"]
    record("d", device="cuda", device_name="another")
    assert list(experiment.STUDY.recordings()) == ["a CPU", "a CPU, 4 threads", "a GPU", "another"]
    record("e", device="cuda", device_name="another")
    files = [f"benchmark_{name}.json" for name in "cbade"]
    assert list(experiment.STUDY.recordings()) == files
    assert list(experiment.recordings()) == files
    assert not experiment.recordings(["padded", "run"])


def test_a_setup_has_a_plot_for_each_machine_and_one_scale():
    slow, fast = (small_result(*[made(dict.fromkeys(CALLS, t), steps=n) for n in (8, 16)]) for t in (1.0, 1e-3))
    fast = Benchmark(
        fast.provenance,
        {at: made({**dict.fromkeys(CALLS, 1e-3), "packed, training": 2e-3}, steps=at.steps) for at in fast.values},
    )
    ratios = results.on_machines({"CPU": slow, "GPU": fast}, "ratio", "B")
    assert ratios.title == "Times as long as padded, training in B at 16 time steps: CPU: packed 1; GPU: packed 2"
    assert [plot.title for row in ratios.rows for plot in row] == [
        f"{name}, B: times as long as padded" for name in ("CPU", "GPU")
    ]
    times = results.on_machines({"CPU": slow, "GPU": fast}, "time", "B")
    assert [{curve.name for curve in plot.curves} for plot in times.rows[0]] == [{"padded", "packed"}] * 2
    cpu, gpu = (drawn for row in heights_of(times.rows) for drawn in row)
    assert cpu == gpu
    short = Benchmark(fast.provenance, dict([*fast.values.items()][:1]))
    said = results.on_machines({"CPU": slow, "GPU": short}, "ratio", "B").title
    assert said.endswith("in B: CPU: packed 1 at 16 time steps; GPU: packed 2 at 8 time steps")
    with pytest.raises(ValueError, match="quantity is 'speed'"):
        results.on_machines({}, "speed")


def test_some_methods_of_a_result():
    times = {call_name(method, which): 1e-3 for method in ("padded", "packed", "run") for which in PASSES}
    whole = small_result(made(times), methods=("padded", "packed", "run"))
    some = whole.only(["run", "packed of another"])
    assert some.parameters.methods == ("padded", "run")  # the first stays, since the others are compared to it
    assert {name for point in some.points for name in point.timing.seconds} == {
        call_name(method, which) for method in ("padded", "run") for which in PASSES
    }
    ratio = ("run", "padded", whole.setups[0], whole.points[0].steps)
    assert some.ratio(*ratio) == whole.ratio(*ratio)


def test_no_made_up_recording_among_the_measured_ones():
    for path in RECORDED.glob("*.json"):
        assert "fake" not in path.read_text()


def test_the_recorded_run_is_complete():
    result = experiment.recorded(RECORDED / "benchmark_cpu.json")
    assert result.setups[:2] == ["A", "B"]
    assert result.steps("A") == result.steps("B")
    assert {32, 128, 512} <= set(result.steps("A"))
    assert (result.parameters.batch_size, result.parameters.threads) == (512, 1)
    assert result.parameters.methods == ("padded", "packed", "drop-in", "run")
    for point in result.points:
        assert set(point.timing.seconds) == set(point.timing.memory) > CALLS
        assert not point.wrong
        assert not point.missing
    assert "benchmark_cpu.json" in experiment.STUDY.available()


# A GPU.


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_on_a_gpu():
    result = run(device="cuda")
    assert result.provenance["driver"]
    for point in result.points:
        assert not point.wrong
        assert set(point.timing.memory) == CALLS
    assert call_name("packed", "training") in result.points[0].timing.seconds
