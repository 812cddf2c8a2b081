"""The benchmark of a forum question: its network, what it measures and shows, and its files. No time is asserted."""

from pathlib import Path

import numpy as np
import pytest
import torch
from drawings import ParsedSvg
from hypothesis import given
from hypothesis import strategies as st

from packviz.draw.curves import COLOURS
from packviz.draw.palette import METHODS
from packviz.measure.machine import check_device
from packviz.measure.timing import Timing
from packviz.studies import benchmark, network
from packviz.studies.benchmark import STUDY, Benchmark, BenchmarkPoint, grid, setup_lengths, sizes

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
            which: Timing({name: (t,) * 6 for name, t in times.items()}, **options)
            for which, times in passes.items()
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


PLACE = {
    "device": "cpu",
    "device_name": "a test",
    "torch": "9",
    "threads": 1,
    "date": "2026-01-02T03:04:05+00:00",
}


# The setups and the network.


def test_the_forums_setups():
    assert setup_lengths("A", 8, 10).tolist() == [10] * 8
    assert setup_lengths("B", 8, 10).tolist() == [10, 9, 8, 7, 6, 5, 4, 3]
    assert setup_lengths("B", 512, 32).tolist() == np.repeat(np.arange(32, 0, -1), 16).tolist()
    with pytest.raises(ValueError, match="setup is 'C'; choose one of 'A', 'B', 'evenly'"):
        setup_lengths("C", 1, 1)


@given(st.sampled_from("AB"), st.integers(1, 5), st.integers(1, 6))
def test_a_batch_is_padded_with_zeros_and_nothing_else(setup, batch_size, steps):
    n = setup_lengths(setup, batch_size, steps)
    batch = network.batch(n, steps)
    real = torch.arange(steps) < torch.tensor(n.copy())[:, None]
    assert torch.equal(batch.ids != network.PADDING, real)
    assert int(batch.ids.max()) < 10
    assert set(batch.targets.tolist()) <= {0, 1}
    assert all(map(torch.equal, batch, network.batch(n, steps)))


@given(st.sampled_from(["A", "B", "evenly"]), st.integers(1, 5), st.integers(1, 6), st.booleans())
def test_the_logits_are_the_sum_over_the_real_steps_and_the_bias_at_padding(
    setup, batch_size, steps, batch_first
):
    """Each sequence alone, without any padding, tells what a method has to give."""
    model = network.Network().double()
    n = setup_lengths(setup, batch_size, steps)
    ids, lengths, _ = network.batch(n, steps)
    alone = [
        model.linear(model.lstm(model.embedding(row[:k]))[0]).sum(0)
        for row, k in zip(ids, n, strict=True)
    ]
    wanted = torch.stack(alone) + (steps - lengths)[:, None] * model.linear.bias
    x = model.embedding(ids)
    model.lstm.batch_first = batch_first
    for method in network.METHODS.values():
        output, _ = method(model.lstm, x if batch_first else x.transpose(0, 1), lengths)
        output = output if batch_first else output.transpose(0, 1)
        assert output.shape == (batch_size, steps, 32)
        assert torch.allclose(model.linear(output).sum(1), wanted)


# What can be asked for.


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda: run(methods=("padded", "split")),
            "methods is 'split'; choose one of 'padded', 'packed', 'drop-in'",
        ),
        (lambda: sizes(9, 8, 1), "shortest is 9 and longest 8; give a shortest"),
        (lambda: sizes(1, 8, 0), "step is 0"),
        (
            lambda: benchmark.by_machine({}, "speed"),
            "quantity is 'speed'; choose one of 'ratio', 'time', 'memory'",
        ),
        (
            lambda: result_of().chart("speed"),
            "what is 'speed'; choose one of 'ratio', 'time', 'memory'",
        ),
        (
            lambda: result_of(alike()).at("A", 8),
            "setup 'A' at 8 time steps was not measured; measured sizes: B: 8",
        ),
        *(
            (lambda d=d: check_device(d), f"device is '{d}'; choose cpu, c")
            for d in ("mps", "gpu", "cpu:x", "cpu:1")
        ),
    ],
)
def test_what_cannot_be(call, said):
    with pytest.raises(ValueError, match=said):
        call()


def test_a_gpu_that_is_not_there(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for built, said in ((None, "is built without CUDA: install"), ("12.8", "finds no GPU: check")):
        monkeypatch.setattr(torch.version, "cuda", built)
        with pytest.raises(
            ValueError, match=f"device is 'cuda', but torch.* {said}.*; or use the device cpu$"
        ):
            run(device="cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert check_device("cuda:1") == "cuda:1"
    with pytest.raises(ValueError, match="device is 'cuda:2', but the last GPU here is cuda:1"):
        check_device("cuda:2")


# Measuring.


def test_every_point_is_measured_smallest_first(tmp_path):
    result = run(steps=(3, 2))
    assert result.points == [BenchmarkPoint(setup, steps) for steps in (2, 3) for setup in "AB"]
    for timings in result.values.values():
        for timing in timings.values():
            assert [*timing.seconds] == [*timing.memory] == ["padded", "packed"]
            assert (timing.rounds, timing.missing) == (2, {})
            assert [*timing.provenance["difference"]] == ["packed"]
        assert timings["training"].memory["padded"] > timings["forward"].memory["padded"] > 0
    assert not result.left_out
    STUDY.save(tmp_path / "a.json", result)
    assert benchmark.recorded(tmp_path / "a.json") == result
    with pytest.raises(
        ValueError, match=r"under different conditions \(methods padded,packed, not packed\)"
    ):
        run(methods=("packed",), start=result)


@pytest.mark.parametrize("factor", [1.1, -1, float("nan"), 1 + 1e-7])
def test_a_method_that_gives_something_else_is_left_out(monkeypatch, factor):
    packed = network.METHODS["packed"]
    monkeypatch.setitem(
        network.METHODS, "packed", lambda *given: (factor * packed(*given)[0], None)
    )
    result = run(setups=("B",), steps=(4,), rounds=1)
    far = factor != 1 + 1e-7
    assert bool(result.left_out) == far
    line = "✗ setup B, 4 time steps, training, packed: "
    assert (line in result.to_text()) == (line in result.to_svg()) == far


@pytest.mark.parametrize("hungry", [["padded"], ["packed"], ["padded", "packed"]])
def test_a_method_that_runs_out_of_memory_is_left_out_of_that_point(monkeypatch, hungry):
    """Also the first, with which the others are compared."""

    def failing(method):
        def call(rnn, x, lengths):
            if x.shape[1] == 3 and torch.is_grad_enabled():
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
            return method(rnn, x, lengths)

        return call

    for name in hungry:
        monkeypatch.setitem(network.METHODS, name, failing(network.METHODS[name]))
    result = run(setups=("B",), steps=(2, 3, 4))
    assert [p.steps for p in result.points] == [2, 3, 4]
    assert result.left_out == [
        f"setup B, 3 time steps, training, {name}: out of memory" for name in hungry
    ]
    assert [*result.at("B", 3)["training"].seconds] == [
        name for name in SMALL["methods"] if name not in hungry
    ]
    assert f"✗ {result.left_out[0]}" in result.to_text()
    assert "out of memory" in result.to_svg()


# What it says.


def noisy(**times):
    """Seconds and memory by method, in two points that differ; packed is not told apart at the second."""
    first = Timing(
        {name: (t,) * 6 for name, t in times.items()},
        memory={n: round(1e9 * t) for n, t in times.items()},
    )
    return first, Timing(
        {"padded": (1.0, 2.0, 3.0) * 2, "packed": (2.0, 3.0, 1.0) * 2}, memory={"padded": 5 * 10**6}
    )


def test_in_words():
    first, second = noisy(padded=0.01, packed=0.3)
    points = {BenchmarkPoint("B", 8): first, BenchmarkPoint("B", 16): second}
    result = result_of(
        {point: {"forward": timing, "training": Timing({})} for point, timing in points.items()}
    )
    lines = repr(result).splitlines()
    assert lines[0] == "Embedding(10, 16) → LSTM(16, 32) → Linear(32, 2), batch size 512, float32."
    assert [line.split() for line in lines[-8:-5]] == [
        ["steps", "padded", "ms", "packed", "ms", "packed/padded", "padded", "MB", "packed", "MB"],
        ["8", "10", "300", "30", "10", "300"],
        ["16", "2,000", "2,000", "1.5?", "5", "–"],
    ]
    assert lines[-2].startswith(
        "The machine was busy at 1 of 2 points: even in the middle half of the rounds, times"
    )
    assert lines[-1] == "Measured on a test (CPU), torch 9, 1 thread, 6 rounds, 2026-01-02."
    assert result.ratio("packed", "padded", "B", 8, "forward").value == 30


def test_the_picture_has_a_row_per_quantity_and_a_column_per_setup():
    times = {
        "forward": noisy(padded=1e-3, packed=2e-3)[0],
        "training": noisy(padded=0.01, packed=0.3)[0],
    }
    result = result_of(
        {BenchmarkPoint(setup, steps): times for setup in ("B", "A") for steps in (4, 8)}
    )
    whole = result.chart()
    assert [[plot.title.partition(" ")[0] for plot in row] for row in whole.rows] == [
        ["A", "B"]
    ] * 3
    for quantity, row in zip(benchmark.QUANTITIES, whole.rows, strict=True):
        for plot in row:
            for curve in plot.curves:
                method, _, which = curve.name.rpartition(", ")
                timing, method = times[which or curve.name], method or "packed"
                unit = {"ratio": 1 / timing.median("padded"), "time": 1e3, "memory": 1e3}[quantity]
                assert tuple(curve.x) == (4, 8)
                assert tuple(curve.y) == pytest.approx((unit * timing.median(method),) * 2)
    guides = [[(name, *points) for name, points in row[0].guides.items()] for row in whole.rows[:2]]
    assert guides == [
        [("1: as padded", (4, 1), (8, 1))],
        [("slope 1: T", (4, 10), (8, 20)), ("slope 2: T²", (4, 10), (8, 40))],
    ]
    ratio = result.chart("ratio").to_text().splitlines()
    assert [line.split() for line in ratio[3:6]] == [
        ["steps", "packed/padded"],
        ["4", "30"],
        ["8", "30"],
    ]
    assert [plot.y for row in result.chart("memory", "ratio").rows for plot in row] == [
        "MB",
        "MB",
        "×",
        "×",
    ]
    assert whole.title == "Packed takes 30 times as long as padded (training, setup B, 8 steps)"
    assert (
        result.chart("time").title == "Padded takes 10, packed 300 ms (training, setup B, 8 steps)"
    )
    assert (
        result.chart("memory").title
        == "Packed needs 30 times the memory of padded (training, setup B, 8 steps)"
    )


def test_results_side_by_side():
    """Times with batch 64 on the axes of 512 would say that your machine is fast; a ratio can be compared."""
    one, other = result_of(alike()), result_of(alike(), batch_size=8)
    picture = benchmark.beside(
        {"yours": one, "theirs": other, "to come": None}, planned=(4,), notes=("Start.",)
    )
    sources = [{curve.source for plot in row for curve in plot.curves} for row in picture.rows]
    assert sources == [{0, 1}, {0}, set()]
    assert picture.sources[0].startswith("yours: a test")
    assert picture.sources[2] == "to come: nothing measured yet"
    assert picture.notes[0] == "Start."
    assert next(note for note in picture.notes if "batch size 8" in note).startswith("theirs: ")
    assert picture.to_text().startswith("Start.\n\nyours\nEmbedding")
    assert (
        "nothing measured yet"
        in ParsedSvg(benchmark.beside({"yours": None}, ["A"]).to_svg()).said()
    )


def test_a_method_has_its_colour_whoever_else_is_measured():
    alone = result_of(alike(methods=["packed", "run"]), methods=["packed", "run"])
    (plot,) = benchmark.beside({"": alone}).rows[1]
    numbers = {curve.name.partition(",")[0]: curve.method for curve in plot.curves}
    assert (
        [COLOURS[number] for number in numbers.values()]
        == [METHODS[name] for name in numbers]
        != []
    )


# Files.


def test_a_made_up_recording_says_so_everywhere():
    """It proves that curves of a GPU would be drawn; it must never pass for a measurement."""
    fake = benchmark.recorded(FAKE)
    assert fake.provenance["device"] == "cuda"
    for said in (
        fake.to_text(),
        fake.to_svg(),
        fake.caption,
        benchmark.beside({"a": fake, "b": fake}).to_svg(),
    ):
        assert "MADE UP, no machine was timed" in said
    picture = benchmark.beside({"recorded": fake})
    assert [[len(plot.curves) for plot in row] for row in picture.rows] == [[2, 2], [4, 4], [4, 4]]
    (packed,) = [c for c in picture.rows[1][1].curves if c.name == "packed, training"]
    assert list(packed.x) == [
        32,
        128,
        256,
    ]  # at 512 it is out of memory, and no point is made up for that
    assert any(
        "setup B, 512 time steps, training, packed: out of memory" in note for note in picture.notes
    )
    for path in RECORDED.glob("*.json"):
        assert "fake" not in path.read_text()


def test_recordings_are_called_by_their_machine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (folder := tmp_path / "recorded").mkdir()

    def record(file, **place):
        STUDY.save(folder / f"benchmark_{file}.json", result_of(alike(), place=place))

    record("b", device="cpu", threads=4, device_name="a CPU")
    record("c", device="cpu", device_name="a CPU")
    assert "no GPU results have been recorded" in STUDY.without_gpu()
    record("a", device="cuda:1", device_name="a GPU")
    assert STUDY.without_gpu() == ""
    assert list(STUDY.recordings()) == ["CPU", "CPU, 4 threads", "GPU"]
    record("d", device="cuda", device_name="another")
    assert list(STUDY.recordings()) == ["a CPU", "a CPU, 4 threads", "a GPU", "another"]
    assert not benchmark.recordings(["padded", "run"])


def test_every_machine_has_curves_in_the_same_plot():
    both, three = {"padded": 1e-3, "packed": 2e-3}, ["padded", "packed", "run"]
    slow = result_of(*(alike(1.0, three, steps=n) for n in (8, 16)), methods=three)
    fast = result_of(*(made(both, both, steps=n) for n in (8, 16, 32)))
    ratios = benchmark.by_machine({"CPU": fast, "GPU": slow.only(["packed"])}, "ratio", "B")
    assert (
        ratios.title
        == "Packed takes 2.0 times as long as padded (training, setup B, 32 steps) (CPU)"
    )
    ((plot,),) = ratios.rows
    assert [(curve.source, curve.name, [*curve.x]) for curve in plot.curves] == [
        (source, which, sizes)
        for source, sizes in ((1, [8, 16]), (0, [8, 16, 32]))
        for which in ("forward", "training")
    ]
    assert (
        "Setup A"
        not in benchmark.by_machine(
            {"CPU": result_of(alike(setup="A"), alike())}, "ratio", "B"
        ).to_text()
    )
    assert slow.only(["run"]).methods == [
        "padded",
        "run",
    ]  # the first stays, because the others are compared with it


# A GPU.


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_on_a_gpu():
    result = run(device="cuda")
    assert result.provenance["driver"]
    assert not result.left_out
    for timing in result.timings:
        assert set(timing.memory) == {"padded", "packed"}
