"""The experiment of notebook 03: equal FLOPs from few and from many distinct lengths."""

import json

from drawings import ParsedSvg

from packviz.bench import Timing
from packviz.studies import savings

TINY = savings.SavingsPoint("GRU", 4, (2, 4), hidden_size=3)
POINT = savings.SavingsPoint("GRU", 16, (2, 16), 4, 8)


def fake(times=None, rounds=6):
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
    calls = savings.training_steps(TINY, "cpu").calls
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
        "packed (2 lengths) takes 2 times as long as padded (95 % interval 2 to 2).\n"
        "packed (16 lengths) takes 3 times as long as padded (95 % interval 3 to 3).\n"
        "packed (16 lengths) takes 1.5 times as long as packed (2 lengths) (95 % interval 1.5 to 1.5).\n"
        "Measured on a test (CPU), torch 9, 1 thread, load 0.5 on 2 cores, 6 rounds."
    )


def test_the_verdict_follows_the_numbers():
    quick = fake({"padded": [4.0] * 6, "few": [2.0] * 6, "many": [2.0, 1, 3] * 2}).finding(POINT)
    assert "packed (2 lengths) takes 0.5 times as long as padded" in quick
    assert "cannot tell packed (16 lengths) and packed (2 lengths) apart" in quick


def test_the_picture_is_multiples_of_padded():
    found = fake()
    rows = found.picture.rows
    assert [row.name for row in rows] == ["packed, 2 distinct lengths", "packed, 16 distinct lengths"]
    assert [(row.low, row.time, row.high, row.clear) for row in rows] == [(2, 2, 2, True), (3, 3, 3, True)]
    padded, *packed = POINT.flops.values()
    assert [row.work for row in rows] == [count / padded for count in packed]
    assert found.picture.title == "One training step: half the FLOPs, 2 to 3 times the time"
    assert "Measured on a test" in ParsedSvg(found.to_svg()).said()[-1]
    json.dumps(found._repr_mimebundle_())


def test_the_title_of_the_recorded_picture_follows_its_numbers():
    found = savings.recorded()
    times = [found.ratio(p, savings.name(d), "padded").value for p in found.points for d in p.distinct]
    assert found.picture.title.endswith(f"half the FLOPs, {min(times):.2g} to {max(times):.2g} times the time")


def test_the_quartiles_are_those_of_the_ratios():
    (few, many) = fake({"padded": [1.0, 2, 4], "few": [1.0, 1, 1], "many": [1.0, 2, 4]}).picture.rows
    assert (few.low, few.time, few.high) == (0.375, 0.5, 0.75)
    assert not few.clear or few.high / few.low < 2
    assert (many.time, many.clear) == (1, False)


def test_no_label_calls_flops_a_speed_up():
    found = fake()
    said = (found.to_svg() + found.to_text() + found.picture.to_text()).lower()
    assert not [word for word in ("speed", "faster", "slower") if word in said]
