"""The methods benchmark: which methods are timed, that only right results are, and what it says of made-up times."""

import re
from dataclasses import replace

import pytest

from packviz.core.layout import Layout
from packviz.count.flops import flops
from packviz.measure.timing import Timing
from packviz.ops import running
from packviz.studies import methods_benchmark
from packviz.studies.methods_benchmark import (
    AUTO,
    COPY,
    METHODS,
    OURS,
    PACKED,
    PADDED,
    PASSES,
    MethodsBenchmark,
    MethodsPoint,
)

TINY = MethodsPoint("GRU", "uniform", 3, 5, 2, 3)
OTHER = MethodsPoint("LSTM", "equal", 3, 5, 2, 3)
PACKING = MethodsPoint("none", "triangle", 3, 5, 2, 2)
PLACE = {"device_name": "a machine", "torch": "9.9", "threads": 1, "date": "2026-01-02T03:04:05"}


@pytest.fixture(scope="module")
def found():
    return methods_benchmark.run([TINY, PACKING], budget=0.01)


def made_up(point=TINY, **times):
    """Results in which these methods took these milliseconds, and all others 10."""
    names = (PADDED, PACKED, *METHODS)
    seconds = {name: (times.get(name.replace(" ", "_"), 10) / 1e3,) * 6 for name in names}
    return MethodsBenchmark(PLACE, {point: dict.fromkeys(PASSES, Timing(seconds))})


def test_everybody_takes_part(found):
    for which in PASSES:
        assert set(found.values[TINY][which].seconds) == {PADDED, PACKED, *METHODS}
        assert {PACKED, OURS, COPY} <= set(found.values[PACKING][which].seconds)
    assert found.points == [TINY]
    assert set(found.values[TINY]["training"].memory) == {PADDED, PACKED, *METHODS}


def test_a_method_with_other_results_is_not_timed(monkeypatch):
    true_run = running.run

    def wrong(*args, method, **options):
        out, final = true_run(*args, method=method, **options)
        return (out * 1.01 if method == "split" else out), final

    monkeypatch.setattr(running, "run", wrong)
    found = methods_benchmark.run([TINY], budget=0.01)
    for timing in found.values[TINY].values():
        assert set(timing.seconds) == {PADDED, PACKED, *METHODS} - {"split"}
        assert re.fullmatch(r"0\.\d+ from torch packed", timing.missing["split"])
    assert found.best(TINY) != "split"
    assert found.to_text().count("✗ split was left out: 0.0") == 2
    assert "split –" in found.chart().to_text()


def test_a_method_that_was_left_out_is_not_drawn():
    found = made_up()
    timings = {
        which: replace(
            timing,
            seconds={n: s for n, s in timing.seconds.items() if n != AUTO},
            missing={AUTO: "wrong"},
        )
        for which, timing in found.values[TINY].items()
    }
    found = MethodsBenchmark(PLACE, {TINY: timings, PACKING: made_up(PACKING).values[PACKING]})
    assert "GRU(2, 3), uniform, 3 × 5" in found.to_text()
    assert "at 0 of 0 points" in found.chart().to_text()


def test_the_text_has_all_times():
    assert (
        made_up(split=1.25, torch_padded=0.1, auto=0.1).best(TINY) == "split"
    )  # of those that are right
    said = str(made_up(split=1.25, auto=1.5))
    assert "split 1.25" in said
    assert "best: split" in said
    assert said.endswith("Measured on a machine (CPU), torch 9.9, 1 thread, 6 rounds, 2026-01-02.")


def test_the_chart_is_in_groups_and_rings_what_auto_chose():
    slower = {**made_up(auto=25).values, **made_up(OTHER, auto=5, split=2.5).values}
    chart = MethodsBenchmark(PLACE, slower).chart()
    drawn = {trace.name: dict(zip(trace.y, trace.x, strict=True)) for trace in chart.figure.data}
    assert drawn["split"] == {OTHER.name: 0.25, TINY.name: 1}
    assert drawn[AUTO] == {OTHER.name: 0.5}
    assert "split 0.25" in chart.to_text()
    assert str(chart).startswith(
        "Training: auto is clearly faster than torch padded at 1 of 2 points, slower at 1; forward and"
    )
    rings = {
        trace.name: (list(trace.x), list(trace.y))
        for trace in chart.figure.data
        if AUTO in trace.name
    }
    assert rings == {AUTO: ([0.5], [OTHER.name]), f"{AUTO}, clearly slower": ([2.5], [TINY.name])}
    keys = [trace.name for trace in chart.figure.data if trace.showlegend]
    assert keys == [PACKED, "padded", "split", "staircase", AUTO, f"{AUTO}, clearly slower"]
    wide = MethodsPoint("GRU", "uniform", 30, 50, 2, 3)
    lines = str(MethodsBenchmark(PLACE, made_up(wide).values | slower).chart()).splitlines()
    assert [line for line in lines if line.endswith(":")] == ["GRU:", "tiny:"]


def test_where_packed_is_faster():
    """Only what is clear, with the FLOPs of these lengths in this tensor."""
    none = made_up().packed_faster()
    assert none.title == "Packed is clearly faster in training on 0 of 1 batch, forward alone on 0"
    assert not none.groups
    assert none.to_svg()
    ((name, rows),) = made_up(torch_packed=5).packed_faster().groups.items()
    assert (name, [time.value for _, time in rows.values()]) == (TINY.name, [0.5, 0.5])
    assert rows["forward"][0] == sum(TINY.drawn()) / (TINY.batch_size * TINY.steps)
    count = flops(TINY.spec, Layout(TINY.drawn(), max_len=TINY.steps), input_grad=True).training
    assert rows["training"][0] == count.packed / count.padded
    seconds = {
        PADDED: (0.01,) * 6,
        PACKED: (0.002, 0.009, 0.02) * 2,
    }  # faster in the median, and not clearly
    assert (
        MethodsBenchmark(PLACE, {TINY: dict.fromkeys(PASSES, Timing(seconds))})
        .packed_faster()
        .groups
        == {}
    )
    recorded = methods_benchmark.recorded().packed_faster()
    assert all(rows["training"][1].value < 1 for rows in recorded.groups.values())
