"""The experiment of notebook 07: equal FLOPs from few and from many distinct lengths."""

import json

from drawings import ParsedSvg

from packviz.measure import Timing
from packviz.studies import savings

POINT = savings.SavingsPoint("GRU", 16, (2, 16), 4, 8)


def fake(times=None, rounds=6):
    """16 sequences with times of our own."""
    names = ["padded", savings.name(2), savings.name(16)]
    times = times or {name: [1e-3 * (i + 1)] * rounds for i, name in enumerate(names)}
    timing = Timing(
        dict(zip(names, times.values(), strict=True)), 3, provenance={"load_average": [0.5, 0, 0]}
    )
    place = {
        "device_name": "a test",
        "torch": "9",
        "threads": 1,
        "cores": 2,
        "parameters": {"rounds": rounds},
    }
    return savings.Savings(place, {POINT: timing})


def test_flops_are_the_same_for_every_batch():
    for results in (fake(), savings.recorded()):
        for point, timing in results.values.items():
            padded, *packed = point.flops.values()
            assert len(set(packed)) == 1
            assert 0.5 < packed[0] / padded < 0.54
            assert list(point.flops) == list(timing.seconds)


def test_the_picture_is_multiples_of_padded():
    found = fake()
    (rows,) = found.picture.groups.values()
    assert [*rows] == ["packed, 2 distinct lengths", "packed, 16 distinct lengths"]
    times = [(time.low, time.value, time.high, time.is_clear) for _, time in rows.values()]
    assert times == [(2, 2, 2, True), (3, 3, 3, True)]
    padded, *packed = POINT.flops.values()
    assert [work for work, _ in rows.values()] == [count / padded for count in packed]
    assert found.picture.title == "Packed training takes half the FLOPs and 2 to 3 times the time"
    assert "Measured on a test" in ParsedSvg(found.to_svg()).said()[-1]
    assert found.to_text() == found.picture.to_text()
    json.dumps(found._repr_mimebundle_())


def test_the_quartiles_are_those_of_the_ratios():
    picture = fake({"padded": [1.0, 2, 4], "few": [1.0, 1, 1], "many": [1.0, 2, 4]}).picture
    ((_, few), (_, many)) = next(iter(picture.groups.values())).values()
    assert (few.low, few.value, few.high) == (0.375, 0.5, 0.75)
    assert not few.is_clear or few.high / few.low < 2
    assert (many.value, many.is_clear) == (1, False)
