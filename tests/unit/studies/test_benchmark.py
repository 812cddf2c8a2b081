"""The benchmark of a forum question: its network, what it measures and shows, and its files. No time is asserted."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from drawings import ParsedSvg
from hypothesis import given
from hypothesis import strategies as st

from packviz.bench.machine import check_device
from packviz.bench.study import Progress
from packviz.bench.timing import Timing
from packviz.draw.chart import COLOURS
from packviz.draw.palette import METHODS
from packviz.draw.sweep import heights_of
from packviz.studies import benchmark, network
from packviz.studies.benchmark import PASSES, STUDY, Benchmark, BenchmarkPoint, expected, grid, setup_lengths, sizes

RECORDED = Path(__file__).parents[3] / "notebooks" / "recorded"
FAKE = Path(__file__).parent / "recordings" / "benchmark_fake_cuda.json"
SMALL = {"methods": ("padded", "packed"), "batch_size": 4, "rounds": 2}


def run(setups=("A", "B"), steps=(2, 3), **given):
    """The whole result."""
    return benchmark.run(grid(setups, steps), **{**SMALL, **given})


def made(forward, training, setup="B", steps=8, **options):
    """A point with these seconds by method, the same in six rounds."""
    passes = {"forward": forward, "training": training}
    return {
        BenchmarkPoint(setup, steps): {
            which: Timing({name: (t,) * 6 for name, t in times.items()}, **options) for which, times in passes.items()
        }
    }


def alike(seconds=1e-3, methods=("padded", "packed"), **where):
    """A point where everything takes the same time."""
    return made(dict.fromkeys(methods, seconds), dict.fromkeys(methods, seconds), **where)


def result_of(*points, place=(), **parameters):
    """A benchmark of these points."""
    parameters = {"methods": ["padded", "packed"], "batch_size": 512, "rounds": 3} | parameters
    values = {point: timings for some in points for point, timings in some.items()}
    return Benchmark({**PLACE, **dict(place), "parameters": parameters}, values)


PLACE = {"device": "cpu", "device_name": "a test", "torch": "9", "threads": 1, "date": "2026-01-02T03:04:05+00:00"}


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
    model = network.Network()
    assert repr(model.embedding) == "Embedding(10, 16, padding_idx=0)"
    assert repr(model.lstm) == "LSTM(16, 32, batch_first=True)"
    assert repr(model.linear) == "Linear(in_features=32, out_features=2, bias=True)"


@given(st.sampled_from("AB"), st.integers(1, 5), st.integers(1, 6), st.integers(0, 3))
def test_a_batch_is_padded_with_zeros_and_nothing_else(setup, batch_size, steps, seed):
    n = setup_lengths(setup, batch_size, steps)
    batch = network.batch(n, steps, vocabulary=5, classes=3, seed=seed, device="cpu")
    real = torch.arange(steps) < torch.tensor(n.copy())[:, None]
    assert torch.equal(batch.ids != network.PADDING, real)
    assert int(batch.ids.max()) < 5
    assert set(batch.targets.tolist()) <= {0, 1, 2}
    again = network.batch(n, steps, vocabulary=5, classes=3, seed=seed, device="cpu")
    assert all(map(torch.equal, batch, again))


@given(st.sampled_from(["A", "B", "evenly"]), st.integers(1, 5), st.integers(1, 6), st.booleans())
def test_the_logits_are_the_sum_over_the_real_steps_and_the_bias_at_padding(setup, batch_size, steps, batch_first):
    """Each sequence alone, without any padding, tells what a method has to give."""
    model = network.Network().double()
    n = setup_lengths(setup, batch_size, steps)
    ids, lengths, _ = network.batch(n, steps, vocabulary=10, classes=2, seed=1, device="cpu")
    alone = [model.linear(model.lstm(model.embedding(row[:k]))[0]).sum(0) for row, k in zip(ids, n, strict=True)]
    wanted = torch.stack(alone) + (steps - lengths)[:, None] * model.linear.bias
    x = model.embedding(ids)
    model.lstm.batch_first = batch_first
    for method in network.METHODS.values():
        output, _ = method(model.lstm, x if batch_first else x.transpose(0, 1), lengths)
        output = output if batch_first else output.transpose(0, 1)
        assert output.shape == (batch_size, steps, 32)
        assert torch.allclose(model.linear(output).sum(1), wanted)


# What can be asked for.


def test_sizes():
    assert [*sizes(32, 512, 32)] == [32 * i for i in range(1, 17)]
    assert [*sizes(5, 5, 3)] == [5]
    with pytest.raises(ValueError, match="shortest is 9 and longest 8: there is nothing"):
        sizes(9, 8, 1)
    with pytest.raises(ValueError, match="step is 0"):
        sizes(1, 8, 0)


@pytest.mark.parametrize(
    ("methods", "said"),
    [
        (("padded", "split"), "methods is 'split'; choose one of 'padded', 'packed', 'drop-in', 'run'"),
        ((), "methods is empty; name at least one"),
        (("packed", "packed"), "methods is packed, packed; name at least one, each once"),
    ],
)
def test_methods_that_cannot_be(methods, said):
    with pytest.raises(ValueError, match=said):
        run(methods=methods)


def test_a_setup_that_is_not_known():
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


def test_every_point_is_measured_smallest_first():
    progress = []
    result = run(steps=(3, 2), progress=progress.append)
    assert result.points == [BenchmarkPoint(setup, steps) for steps in (2, 3) for setup in "AB"]
    for timings in result.values.values():
        for timing in timings.values():
            assert [*timing.seconds] == ["padded", "packed"]
            assert (timing.rounds, timing.missing) == (2, {})
            assert [*timing.memory] == ["padded", "packed"]
            assert [*timing.provenance["difference"]] == ["packed"]
        assert timings["training"].memory["padded"] > timings["forward"].memory["padded"] > 0
    assert not result.left_out
    assert not result.unverified
    assert {p.points for p in progress} == {4}
    assert all(0 <= p.fraction <= 1 for p in progress)


def test_one_setup_and_one_method():
    result = run(methods=("packed",), setups=("evenly",), steps=(3,))
    assert result.setups == ["evenly"]
    assert [*result.at("evenly", 3)["forward"].seconds] == ["packed"]
    assert "packed ms" in result.to_text()


def test_what_is_timed(monkeypatch):
    """The forward pass without a graph, and training with fresh gradients; one thread."""
    seen = []

    def spy(rnn, x, lengths):
        clean = all(p.grad is None for p in rnn.parameters())
        seen.append((torch.is_grad_enabled(), clean, torch.get_num_threads(), rnn.batch_first, lengths.device.type))
        return packed(rnn, x, lengths)

    packed = network.METHODS["packed"]
    monkeypatch.setitem(network.METHODS, "packed", spy)
    result = run(setups=("B",), steps=(3,))
    assert set(seen) == {(False, True, 1, True, "cpu"), (True, True, 1, True, "cpu")}
    assert len(seen) == 2 * (1 + 2 + 2)  # one round of warm-up, two rounds, once to compare, once for the memory
    assert not result.left_out


@pytest.mark.parametrize(
    ("wrong", "far"),
    [
        (lambda output: output + 0.1, True),
        (lambda output: output.flip(0), True),
        (lambda output: output.detach(), True),
        (lambda output: output * float("nan"), True),
        (lambda output: output * (1 + 1e-7), False),
    ],
)
def test_a_method_that_gives_something_else_is_left_out(monkeypatch, wrong, far):
    packed = network.METHODS["packed"]
    monkeypatch.setitem(network.METHODS, "packed", lambda *given: (wrong(packed(*given)[0]), None))
    result = run(setups=("B",), steps=(4,), rounds=1)
    assert bool(result.left_out) == far
    line = "✗ setup B, 4 time steps, training, packed: "
    assert (line in result.to_text()) == (line in result.to_svg()) == far


def test_seeds_make_it_the_same_network_and_leave_yours_alone():
    def differences():
        return [t.provenance["difference"] for some in run(steps=(3,)).values.values() for t in some.values()]

    state = torch.random.get_rng_state()
    assert differences() == differences()
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize("hungry", ["padded", "packed"])
def test_a_method_that_runs_out_of_memory_is_left_out_of_that_point(monkeypatch, hungry):
    """Also the first, with which the others are compared."""
    calls, method = [], network.METHODS[hungry]

    def call(rnn, x, lengths):
        calls.append(x.shape[1])
        if x.shape[1] == 3 and torch.is_grad_enabled():
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return method(rnn, x, lengths)

    monkeypatch.setitem(network.METHODS, hungry, call)
    result = run(setups=("B",), steps=(2, 3, 4))
    assert [p.steps for p in result.points] == [2, 3, 4]
    assert result.left_out == [f"setup B, 3 time steps, training, {hungry}: out of memory"]
    other = "packed" if hungry == "padded" else "padded"
    assert [*result.at("B", 3)["training"].seconds] == [other]
    assert f"✗ {result.left_out[0]}" in result.to_text()
    assert "out of memory" in result.to_svg()
    assert result.to_text().count("–") >= 2


def test_when_nothing_fits(monkeypatch):
    def fail(*given):
        raise MemoryError

    for name in SMALL["methods"]:
        monkeypatch.setitem(network.METHODS, name, fail)
    result = run(steps=(2,), setups=("A",))
    assert len(result.left_out) == 4
    assert result.to_text()
    assert ParsedSvg(result.to_svg())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"batch_size": 5}, "batch_size 4, not 5"),
        ({"rounds": 3}, "rounds 2, not 3"),
        ({"methods": ("packed",)}, "methods padded,packed, not packed"),
    ],
)
def test_other_parameters_do_not_mix(change, said):
    there = run(steps=(2,), setups=("A",))
    with pytest.raises(ValueError, match=rf"under different conditions \({said}\)"):
        run(**change, start=there)


# How long it will take.


@given(st.floats(0.001, 100), st.floats(0, 3), st.integers(1, 9), st.integers(10, 99))
def test_points_are_foreseen_as_a_power_of_their_size(unit, power, first, last):
    known = {BenchmarkPoint("A", n): unit * n**power for n in (first, last)}
    assert expected(known, BenchmarkPoint("A", 200)) == pytest.approx(unit * 200**power, rel=1e-6)
    assert expected(known, BenchmarkPoint("B", 200)) == pytest.approx(unit * 200**power, rel=1e-6)
    assert STUDY.foresee is expected
    known[BenchmarkPoint("B", 5)] = 7.0
    assert expected(known, BenchmarkPoint("B", 5)) == 7
    assert expected(known, BenchmarkPoint("B", 20)) == pytest.approx(7 * 4**1.5)


def test_nothing_known_nothing_foreseen():
    assert expected({}, BenchmarkPoint("A", 2)) is None
    assert expected({BenchmarkPoint("A", 1): 0.0, BenchmarkPoint("A", 2): 0.0}, BenchmarkPoint("A", 4)) == 0
    assert Progress("setup A, 32 time steps", 0, 8, 0.0, None).to_text() == "point 1 of 8 (setup A, 32 time steps)"
    assert (
        Progress("setup B, 64 time steps", 3, 8, 0.5, 100.0).to_text()
        == "point 4 of 8 (setup B, 64 time steps), 2 min left"
    )


# What it says.


def test_in_words():
    clear = made({"padded": 1e-3, "packed": 2e-3}, {"padded": 0.01, "packed": 0.3})
    noisy = Timing({"padded": (1.0, 2.0, 3.0) * 2, "packed": (2.0, 3.0, 1.0) * 2}, memory={"padded": 5 * 10**6})
    result = result_of(clear, {BenchmarkPoint("B", 16): {"forward": noisy, "training": Timing({})}})
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
        "ms: median. MB: peak memory. ?: not told apart. –: no number.\n"
        "A ratio is the median of the rounds' ratios, not the ratio of two medians.\n"
        "The machine was busy at 1 of 2 points: the same call takes up to 2.2 times as long, even in the middle half of"
        " the rounds.\n"
        "Measured on a test (CPU), torch 9, 1 thread, 6 rounds, 2026-01-02."
    )
    assert result.ratio("packed", "padded", "B", 8).value == 30
    assert result.ratio("packed", "padded", "B", 8, "forward").value == 2
    with pytest.raises(ValueError, match="setup 'A' at 8 time steps was not measured; there are B: 8, 16"):
        result.at("A", 8)


def test_the_picture_has_a_row_per_quantity_and_a_column_per_setup():
    times = {"forward": {"padded": 1e-3, "packed": 2e-3}, "training": {"padded": 0.01, "packed": 0.3}}
    measured = {
        which: Timing(
            {name: (t, t) for name, t in some.items()}, memory={name: round(1e9 * t) for name, t in some.items()}
        )
        for which, some in times.items()
    }
    result = result_of({BenchmarkPoint(setup, steps): measured for setup in ("B", "A") for steps in (4, 8)})
    titles = [t for t in ParsedSvg(result.to_svg()).said() if "(no padding): " in t or "(triangle): " in t]
    assert titles == [
        "A (no padding): times as long as padded",
        "B (triangle): times as long as padded",
        "A (no padding): time",
        "B (triangle): time",
        "A (no padding): peak memory",
        "B (triangle): peak memory",
    ]
    ratios, *others = result.chart().rows
    for plot in ratios:
        assert {c.name: (tuple(c.x), tuple(c.y)) for c in plot.curves} == {
            "forward": ((4, 8), (2, 2)),
            "training": ((4, 8), (30, 30)),
        }
        assert [*plot.guides.values()] == [((4, 1), (8, 1))]
        assert [curve.hollow for curve in plot.curves] == [False, True]  # painted last: forward
    for row, factor in zip(others, (1e3, 1e3), strict=True):
        for plot in row:
            assert {c.name: tuple(c.y) for c in plot.curves} == {
                f"{name}, {which}": pytest.approx((factor * seconds,) * 2)
                for which, some in times.items()
                for name, seconds in some.items()
            }
    assert [(name, *points) for name, points in others[0][0].guides.items()] == [
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
        f"{result.network}.",
        f"Measured on {result.caption}.",
    ]
    assert "Bands" in result.chart("ratio").notes[-1]
    assert "Bands" not in result.chart("memory").notes[-1]  # memory is counted, once
    assert [plot.y for row in result.chart("memory", "ratio").rows for plot in row] == ["MB", "MB", "×", "×"]
    with pytest.raises(ValueError, match="what is 'speed'; choose one of 'ratio', 'time', 'memory'"):
        result.chart("speed")


def test_titles_say_what_was_found():
    def point(setup, steps, packed):
        forward = Timing({"padded": (1.0,), "packed": (1.0,)}, memory={"packed": 7})
        memory = {"padded": 100, "packed": round(packed)}
        training = Timing({"padded": (float(steps),), "packed": (float(packed),)}, memory=memory)
        return {BenchmarkPoint(setup, steps): {"forward": forward, "training": training}}

    result = result_of(point("A", 8, 9), point("B", 2, 4), point("B", 8, 64))
    assert result.chart().title == "Packed takes up to 8 times as long as padded (training, setup B, 8 time steps)"
    assert result.chart("time").title == "From 2 to 8 time steps, training in setup B: padded × 4, packed × 16"
    assert (
        result.chart("memory").title
        == "Packed needs as little as 0.04 of the memory of padded (training, setup B, 2 time steps)"
    )
    noisy = Timing({"padded": (1.0,) * 6, "packed": (0.1, 3, 90) * 2})
    training = Timing({"padded": (1.0,) * 6, "packed": (2.0,) * 6})
    result = result_of({BenchmarkPoint("B", 8): {"forward": noisy, "training": training}})
    assert result.chart().title.endswith("2 times as long as padded (training, setup B, 8 time steps)")
    alone = result_of(alike(1.0, ["padded"]), methods=["padded"])
    assert alone.chart().title == "padded: times as long as padded"
    assert alone.chart("time").title == "Milliseconds per batch, up to 8 time steps"
    assert result_of().chart().title == "The forum's network"


def test_times_of_another_batch_are_not_drawn_beside():
    """Yours with batch 64 on the axes of 512 would say that your machine is fast; a ratio can be compared."""
    one = result_of(alike())
    other = result_of(alike(), batch_size=8)
    sources = [
        {curve.source for plot in row for curve in plot.curves}
        for row in benchmark.beside({"yours": one, "recorded": other}, what=("ratio", "time")).rows
    ]
    assert sources == [{0, 1}, {0}]
    (row,) = benchmark.beside({"yours": None, "recorded": other}, what=("time",)).rows
    assert {curve.source for plot in row for curve in plot.curves} == {1}


def test_a_method_has_its_colour_whoever_else_is_measured():
    alone = result_of(alike(methods=["packed", "run"]), methods=["packed", "run"])
    (plot,) = benchmark.beside({"": alone}).rows[1]
    numbers = {curve.name.partition(",")[0]: curve.method for curve in plot.curves}
    assert [COLOURS[number] for number in numbers.values()] == [METHODS[name] for name in numbers] != []


def test_results_side_by_side():
    one = result_of(alike())
    other = result_of(alike(), batch_size=8)
    picture = benchmark.beside({"yours": one, "theirs": other, "to come": None}, planned=(4,), notes=("Start.",))
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
    both = benchmark.beside({"yours": one, "theirs": one})
    assert [note for note in both.notes if "batch size" in note] == [f"{one.network}."]
    empty = benchmark.beside({"yours": None}, ["A"])
    assert "nothing measured yet" in ParsedSvg(empty.to_svg()).said()


# Files.


def test_a_file_keeps_everything(tmp_path):
    path = tmp_path / "result.json"
    result = run()
    STUDY.save(path, result)
    assert benchmark.recorded(path) == result
    data = json.loads(path.read_text())
    assert (data["packviz"], data["version"]) == ("benchmark", 2)
    assert data["provenance"]["parameters"] == {**SMALL, "methods": ["padded", "packed"]}
    wanted = {"device", "device_name", "cpu", "torch", "threads", "allocator", "date", "load_average", "packviz"}
    assert wanted <= set(data["provenance"])
    assert {"date", "load_average"} <= set(data["points"][0]["training"]["provenance"])
    if data["provenance"]["allocator"]["library"].startswith("glibc"):
        assert data["provenance"]["allocator"]["mallopt"]


def test_a_made_up_recording_says_so_everywhere():
    """It proves that curves of a GPU would be drawn; it must never pass for a measurement."""
    fake = benchmark.recorded(FAKE)
    assert fake.provenance["device"] == "cuda"
    for said in (fake.to_text(), fake.to_svg(), fake.caption, benchmark.beside({"a": fake, "b": fake}).to_svg()):
        assert "MADE UP, no machine was timed" in said
    picture = benchmark.beside({"recorded": fake})
    assert [[len(plot.curves) for plot in row] for row in picture.rows] == [[2, 2], [4, 4], [4, 4]]
    (packed,) = [c for c in picture.rows[1][1].curves if c.name == "packed, training"]
    assert list(packed.x) == [32, 128, 256]  # at 512 it is out of memory, and no point is made up for that
    assert any("setup B, 512 time steps, training, packed: out of memory" in note for note in picture.notes)


def test_a_page_says_that_nothing_was_recorded_on_a_gpu_until_something_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (folder := tmp_path / "recorded").mkdir()
    assert "none was recorded on a GPU" in STUDY.without_gpu()
    (folder / "benchmark_a_gpu.json").write_bytes(FAKE.read_bytes())
    assert STUDY.without_gpu() == ""
    (folder / "benchmark_a_gpu.json").unlink()
    assert "none was recorded on a GPU" in STUDY.without_gpu()


def test_recordings_are_called_by_their_machine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (folder := tmp_path / "recorded").mkdir()

    def record(file, **place):
        result = result_of(alike(), place=place)
        STUDY.save(folder / f"benchmark_{file}.json", result)

    record("a", device="cuda:1", device_name="a GPU")
    record("b", device="cpu", threads=4, device_name="a CPU")
    record("c", device="cpu", device_name="a CPU")
    assert list(STUDY.recordings()) == ["CPU", "CPU, 4 threads", "GPU"]
    record("d", device="cuda", device_name="another")
    assert list(STUDY.recordings()) == ["a CPU", "a CPU, 4 threads", "a GPU", "another"]
    record("e", device="cuda", device_name="another")
    files = [f"benchmark_{name}.json" for name in "cbade"]
    assert list(STUDY.recordings()) == files
    assert list(benchmark.recordings()) == files
    assert not benchmark.recordings(["padded", "run"])


def test_a_setup_has_a_plot_for_each_machine_and_one_scale():
    slow = result_of(*(alike(1.0, steps=n) for n in (8, 16)))
    both = {"padded": 1e-3, "packed": 1e-3}
    fast = result_of(*(made(both, {**both, "packed": 2e-3}, steps=n) for n in (8, 16)))
    ratios = benchmark.by_machine({"CPU": slow, "GPU": fast}, "ratio", "B")
    assert ratios.title == "Times as long as padded, training in B at 16 time steps: CPU: packed 1; GPU: packed 2"
    assert [plot.title for row in ratios.rows for plot in row] == [
        f"{name}, B: times as long as padded" for name in ("CPU", "GPU")
    ]
    times = benchmark.by_machine({"CPU": slow, "GPU": fast}, "time", "B")
    assert [{curve.name for curve in plot.curves} for plot in times.rows[0]] == [{"padded", "packed"}] * 2
    cpu, gpu = (drawn for row in heights_of(times.rows) for drawn in row)
    assert cpu == gpu
    short = Benchmark(fast.provenance, dict([*fast.values.items()][:1]))
    said = benchmark.by_machine({"CPU": slow, "GPU": short}, "ratio", "B").title
    assert said.endswith("in B: CPU: packed 1 at 16 time steps; GPU: packed 2 at 8 time steps")
    with pytest.raises(ValueError, match="quantity is 'speed'"):
        benchmark.by_machine({}, "speed")


def test_some_methods_of_a_result():
    three = ["padded", "packed", "run"]
    whole = result_of(alike(methods=three), methods=three)
    some = whole.only(["run", "packed of another"])
    assert some.methods == ["padded", "run"]  # the first stays, since the others are compared with it
    assert [[*timing.seconds] for timing in some.timings] == [["padded", "run"]] * len(PASSES)
    ratio = ("run", "padded", whole.setups[0], whole.points[0].steps)
    assert some.ratio(*ratio) == whole.ratio(*ratio)


def test_no_made_up_recording_among_the_measured_ones():
    for path in RECORDED.glob("*.json"):
        assert "fake" not in path.read_text()


def test_the_recorded_run_is_complete():
    result = benchmark.recorded(RECORDED / "benchmark_cpu.json")
    assert result.setups[:2] == ["A", "B"]
    assert result.steps("A") == result.steps("B")
    assert {32, 128, 512} <= set(result.steps("A"))
    assert result.provenance["parameters"] == {"methods": [*benchmark.METHODS], "batch_size": 512, "rounds": 7}
    assert result.provenance["threads"] == 1
    assert not result.left_out
    assert not result.unverified
    for timing in result.timings:
        assert [*timing.seconds] == [*timing.memory] == [*benchmark.METHODS]
    assert "benchmark_cpu.json" in STUDY.available()


# A GPU.


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_on_a_gpu():
    result = run(device="cuda")
    assert result.provenance["driver"]
    assert not result.left_out
    for timing in result.timings:
        assert set(timing.memory) == {"padded", "packed"}
