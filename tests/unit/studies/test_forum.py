"""The benchmark of a forum question: its model, what it measures, and what it shows."""

from pathlib import Path

import numpy as np
import pytest
import torch
from drawings import ParsedSvg
from hypothesis import given
from hypothesis import strategies as st

from packviz.draw.curves import METHOD_COLOURS
from packviz.draw.palette import METHODS
from packviz.measure.study import PASSES, Results
from packviz.measure.timing import Timing
from packviz.studies import forum, network
from packviz.studies.forum import grid, setup_lengths

FAKE = Path(__file__).parent / "recordings" / "benchmark_fake_cuda.json"
PLACE = {"device": "cpu", "device_name": "a test", "torch": "9", "threads": 1}


def run(setups=("A", "B"), steps=(2, 3)):
    """Measures small points."""
    points = grid(setups, steps, batch_size=4)
    return forum.STUDY.run(points, methods=["padded", "packed"], rounds=2)


def results_of(seconds, setups=("B",), steps=(8,), batch_size=512):
    """Returns results in which methods take these seconds in all points, passes and rounds."""
    timing = Timing(
        {name: (time,) * 6 for name, time in seconds.items()},
        memory={name: round(1e9 * time) for name, time in seconds.items()},
    )
    points = grid(setups, steps, batch_size)
    place = {**PLACE, "parameters": {"methods": [*seconds]}}
    return Results(place, {point: dict.fromkeys(PASSES, timing) for point in points})


# The setups and the model.


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
    ids, _, targets = batch
    real = torch.arange(steps) < torch.tensor(n.copy())[:, None]
    assert torch.equal(ids != network.PADDING_TOKEN, real)
    assert int(ids.max()) < 10
    assert set(targets.tolist()) <= {0, 1}
    assert all(map(torch.equal, batch, network.batch(n, steps)))


@given(st.sampled_from(["A", "B", "evenly"]), st.integers(1, 5), st.integers(1, 6), st.booleans())
def test_the_logits_are_the_sum_over_the_real_steps_and_the_bias_at_padding(
    setup, batch_size, steps, batch_first
):
    """Each sequence alone, without any padding, gives the expected logits."""
    model = network.Network().double()
    n = setup_lengths(setup, batch_size, steps)
    ids, lengths, _ = network.batch(n, steps)
    alone = [
        model.linear(model.lstm(model.embedding(row[:k]))[0]).sum(0)
        for row, k in zip(ids, n, strict=True)
    ]
    expected = torch.stack(alone) + (steps - lengths)[:, None] * model.linear.bias
    x = model.embedding(ids)
    model.lstm.batch_first = batch_first
    for method in network.METHODS.values():
        output, _ = method(model.lstm, x if batch_first else x.transpose(0, 1), lengths)
        output = output if batch_first else output.transpose(0, 1)
        assert output.shape == (batch_size, steps, 32)
        assert torch.allclose(model.linear(output).sum(1), expected)


# Measuring.


def test_every_point_is_measured_smallest_first():
    results = run(steps=(3, 2))
    assert results.points == [forum.point(setup, t, 4) for t in (2, 3) for setup in "AB"]
    for point in results.points:
        for timing in results.timings(point).values():
            assert [*timing.seconds] == [*timing.memory] == ["padded", "packed"]
            assert (timing.rounds, timing.missing) == (2, {})
            assert [*timing.provenance["difference"]] == ["packed"]
        training, forward = (results.timing(point, which) for which in PASSES)
        assert training.memory["padded"] > forward.memory["padded"] > 0
    assert not results.left_out
    assert results.to_text().count("peak memory") == 4 * len(results.points)


@pytest.mark.parametrize("factor", [1.1, float("nan"), 1 + 1e-7])
def test_a_method_with_other_results_is_left_out(monkeypatch, factor):
    packed = network.METHODS["packed"]

    def wrong(*given):
        return factor * packed(*given)[0], None

    monkeypatch.setitem(network.METHODS, "packed", wrong)
    results = run(setups=("B",))
    far = factor != 1 + 1e-7
    line = "✗ LSTM(16, 32), triangle, 4 × 3, training, packed: "
    assert bool(results.left_out) == far
    assert (line in results.to_text()) == far
    assert (line in forum.chart({"": results}, "ratio", ["B"]).to_svg()) == far


# Charts.


def test_each_setup_has_a_plot_with_a_curve_for_each_method_and_pass():
    results = results_of({"padded": 0.01, "packed": 0.3}, ("A", "B"), (4, 8))
    units = {"ratio": 100, "time": 1e3, "memory": 1e3}
    for quantity, unit in units.items():
        (plots,) = forum.chart({"": results}, quantity).rows
        assert [plot.title[0] for plot in plots] == ["A", "B"]
        for plot in plots:
            for curve in plot.curves:
                seconds = 0.3 if curve.name.startswith("packed") else 0.01
                assert tuple(curve.x) == (4, 8)
                assert tuple(curve.y) == pytest.approx((unit * seconds,) * 2)
    assert plots[0].guide_lines == {}
    (plot, _), *_ = forum.chart({"": results}, "ratio").rows
    assert plot.guide_lines == {"1: as padded": ((4, 1), (8, 1))}
    (plot, _), *_ = forum.chart({"": results}, "time").rows
    assert plot.guide_lines["slope 2: T²"] == ((4, 10), (8, 40))


def test_both_setups_are_in_one_plot_with_names_at_the_ends():
    results = results_of({"padded": 0.01, "packed": 0.3, "run": 0.005}, ("A", "B"), (4, 8))
    sweep = forum.ratios(results, ["padded", "packed", "run"])
    ((plot,),) = sweep.rows
    ends = {curve.name: (curve.y[-1], curve.hollow) for curve in plot.curves}
    assert ends == {
        "packed, A": (pytest.approx(30), True),
        "run, A": (pytest.approx(0.5), True),
        "packed, B": (pytest.approx(30), False),
        "run, B": (pytest.approx(0.5), False),
    }
    assert {*ends} <= {*ParsedSvg(sweep.to_svg()).said()}
    assert sweep.title.startswith("Packed takes 30, run takes 0.50 times as long as padded")
    assert "packed, B: 30 at 4, 30 at 8" in sweep.to_text()


def test_the_allocators_are_named_and_missing_files_left_out(tmp_path):
    path = tmp_path / "tuned.json"
    point = forum.STUDY.others["allocator"][0]
    settings = {"progress": False, "processes": False, "rounds": 1}
    forum.STUDY.record(path, [point], methods=["padded", "packed"], **settings)
    head, line = forum.allocators([str(path), "allocator_nowhere_cpu.json"]).splitlines()
    assert head.split()[:3] == ["batch", "padded", "packed"]
    results = forum.STUDY.load(path)
    assert line.startswith("64 × 128")
    assert line.endswith(results.provenance["allocator"])
    assert f"{results.timing(point).faults['packed']:,}" in line


def test_titles_state_the_finding():
    results = results_of({"padded": 0.01, "packed": 0.3})
    titles = [forum.chart({"": results}, what, ["B"]).title for what in forum.QUANTITY_UNITS]
    where = "(training, setup B, 8 steps)"
    assert titles == [
        f"Packed takes 30 times as long as padded {where}",
        f"Padded 10, packed 300 ms {where}",
        f"Packed needs 30 times the memory of padded {where}",
    ]
    assert forum.chart({}, "time").title == "Nothing was recorded"
    with pytest.raises(ValueError, match="quantity is 'speed'; choose one of 'ratio', 'time'"):
        forum.chart({}, "speed")


def test_results_of_several_machines():
    times = {"padded": 1e-3, "packed": 2e-3}
    machines = {"yours": results_of(times), "theirs": results_of(times, batch_size=8)}
    sweep = forum.chart(machines, "ratio", ["B"])
    assert {curve.source_index for curve in sweep.rows[0][0].curves} == {0, 1}
    assert sweep.sources[0].startswith("yours: a test")
    assert not ParsedSvg(sweep.to_svg()).outside()


def test_a_method_has_its_colour_whatever_else_is_measured():
    results = results_of({"packed": 1.0, "run": 2.0}, steps=(8, 16))
    sweep = forum.chart({"": results}, "time", ["B"], ["packed", "run"])
    for curve in sweep.rows[0][0].curves:
        assert METHOD_COLOURS[curve.method_index] == METHODS[curve.name.partition(",")[0]]


def test_a_made_up_recording_says_so_everywhere():
    """It shows how curves of a GPU are drawn; it must never pass for a measurement."""
    fake = forum.STUDY.load(FAKE)
    assert fake.provenance["device"] == "cuda"
    sweep = forum.chart({"GPU": fake}, "time")
    for text in (fake.to_text(), fake.caption, sweep.to_svg(), sweep.to_text()):
        assert "MADE UP, no machine was timed" in text
    (packed,) = [c for c in sweep.rows[0][1].curves if c.name == "packed, training"]
    assert list(packed.x) == [32, 128, 256]  # at 512 it is out of memory
    rows = [line.split() for line in sweep.to_text().splitlines()]
    assert [row[-1] for row in rows if row[:2] == ["packed,", "training"]][1] == "–"
    assert any("512 × 512, training, packed: out of memory" in note for note in sweep.notes)


@pytest.mark.parametrize("batch_size", [4, forum.FULL_BATCH])
def test_only_recordings_of_these_methods_and_the_forums_batch(monkeypatch, tmp_path, batch_size):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recorded").mkdir()
    path = tmp_path / "recorded" / "benchmark_here.json"
    points = grid(["A"], [2], batch_size)
    forum.STUDY.record(
        path, points, methods=["padded", "packed"], rounds=1, progress=False, processes=False
    )
    assert len(forum.recordings()) == (batch_size == forum.FULL_BATCH)
    assert not forum.recordings(["padded", "run"])
