"""The experiment of notebook 03: equal FLOPs from few and from many distinct lengths."""

import json

import numpy as np

from packviz.bench import Timing
from packviz.draw.palette import METHODS
from packviz.studies import savings

TINY = savings.Point("GRU", 4, (2, 4), hidden_size=3)
POINT = savings.Point("GRU", 16, (2, 16), 4, 8)


def fake(times=None, rounds=3):
    """16 sequences with times of our own."""
    names = ["padded", savings.name(2), savings.name(16)]
    times = times or {name: [1e-3 * (i + 1)] * rounds for i, name in enumerate(names)}
    timing = Timing(dict(zip(names, times.values(), strict=True)), 3, provenance={"load_average": [0.5, 0, 0]})
    place = {"device_name": "a test", "torch": "9", "threads": 1, "cores": 2, "parameters": {"rounds": rounds}}
    return savings.Savings(place, {POINT: timing})


def test_flops_are_the_same_for_every_batch():
    for results in (fake(), savings.recorded()):
        for point, timing in results.values.items():
            padded, *packed = point.flops.values()
            assert len(set(packed)) == 1
            assert 0.5 < packed[0] / padded < 0.54
            assert list(point.flops) == list(timing.seconds)


def test_a_small_run_for_real():
    found = savings.run([TINY], rounds=2)
    assert found.points == [TINY]
    timing = found.values[TINY]
    assert timing.rounds == 2
    assert list(timing.seconds) == ["padded", "packed (2 lengths)", "packed (4 lengths)"]
    assert found.provenance["threads"] == 1


def test_padded_and_packed_train_the_same_weights():
    """Where nothing is padded they give the same; elsewhere all that are packed have gradients of the right shapes."""
    calls = savings.contest(TINY, "cpu").calls
    shapes = {name: [part.shape for part in call()] for name, call in calls.items()}
    assert len({str(some) for some in shapes.values()}) == 1
    assert shapes["padded"][:2] == [(4, 4, 3), (4, 4, 32)]


def test_in_words():
    assert repr(fake()) == (
        "GRU(4, 8), one training step. 16 sequences padded to 16 time steps, 136 of 256 cells real in every batch.\n"
        "In parentheses: how many distinct lengths a batch has.\n"
        "                        GFLOP       ms  quartiles\n"
        "padded               0.000436        1  1 to 1\n"
        "packed (2 lengths)   0.000229        2  2 to 2\n"
        "packed (16 lengths)  0.000229        3  3 to 3\n"
        "Packed, every batch takes 0.525 times the padded FLOPs.\n"
        "packed (2 lengths) takes 2 times as long as padded (quartiles 2 to 2).\n"
        "packed (16 lengths) takes 3 times as long as padded (quartiles 3 to 3).\n"
        "packed (16 lengths) takes 1.5 times as long as packed (2 lengths) (quartiles 1.5 to 1.5).\n"
        "Measured on a test (CPU), torch 9, 1 thread, load 0.5 on 2 cores, 3 rounds."
    )


def test_the_verdict_follows_the_numbers():
    quick = fake({"padded": [4.0, 4, 4], "few": [2.0, 2, 2], "many": [2.0, 1, 3]}).verdict(POINT)
    assert "packed (2 lengths) takes 0.5 times as long as padded" in quick
    assert "(quartiles 0.375 to 0.625); " not in quick
    assert (
        "packed (16 lengths) takes 1 times as long as packed (2 lengths) (quartiles 0.75 to 1.25); the spread" in quick
    )


def test_chart():
    chart = fake().chart(POINT)
    flops, times = chart.data[::2], chart.data[1::2]
    assert [bar.y[0] for bar in flops] == [bar.y[0] for bar in times] == list(POINT.flops)
    assert [bar.x[0] for bar in times] == [1, 2, 3]
    assert np.allclose([bar.x[0] for bar in flops], [n / 1e9 for n in POINT.flops.values()], rtol=0.01)
    assert {(bar.error_x.array[0], bar.error_x.arrayminus[0]) for bar in times} == {(0, 0)}
    assert [bar.marker.color for bar in times] == [METHODS["padded"], METHODS["packed"], METHODS["packed"]]
    assert chart.to_text() == repr(fake())
    said = [note.text for note in chart.layout.annotations]
    assert said == [
        "GFLOPs (GEMM)",
        "milliseconds (median, quartiles)",
        f"Measured on {fake().caption}.",
        "0.000436",
        "1",
        "0.000229",
        "2",
        "0.000229",
        "3",
    ]
    json.dumps(chart._repr_mimebundle_())


def test_whiskers_are_the_quartiles():
    race = fake({"padded": [1.0, 2, 3, 4, 5], "few": [1.0] * 5, "many": [1.0] * 5})
    times = race.chart(POINT).data[1::2]
    assert [bar.x[0] for bar in times] == [3000, 1000, 1000]
    assert (times[0].error_x.array[0], times[0].error_x.arrayminus[0]) == (1000, 1000)


def test_no_label_calls_flops_a_speed_up():
    chart = fake().chart(POINT)
    said = (chart.to_json() + chart.to_text()).lower()
    assert not [word for word in ("speed", "faster", "slower") if word in said]
