"""The experiment of notebook 07: equal FLOPs from few and from many distinct lengths."""

from packviz.measure.study import Point, Results
from packviz.measure.timing import Timing
from packviz.studies import savings

POINT = Point("GRU", savings.LENGTH_KIND, 16, 16, 4, 8)


def made_up(**milliseconds):
    names = [savings.PADDED, *map(savings.name, savings.distinct_counts(POINT))]
    seconds = {name: (1e-3 * (i + 1),) * 6 for i, name in enumerate(names)}
    place = {"device_name": "a test", "torch": "9", "threads": 1}
    return Results(place, {POINT: {"training": Timing(seconds)}})


def test_flops_are_the_same_for_every_batch():
    for results in (made_up(), savings.STUDY.load()):
        for rows in savings.picture(results).groups.values():
            (work,) = {work for work, _ in rows.values()}
            assert 0.5 < work < 0.54


def test_the_picture_is_multiples_of_padded():
    picture = savings.picture(made_up())
    (rows,) = picture.groups.values()
    assert [*rows] == [f"packed, {distinct} distinct lengths" for distinct in (2, 4, 16)]
    assert [round(time.value, 9) for _, time in rows.values()] == [2, 3, 4]
    assert picture.title.endswith("of the FLOPs and 2 to 4 times the time")
    assert "Measured on a test" in picture.to_text()


def test_every_step_has_the_same_results_as_its_batch_in_order():
    results = savings.STUDY.run(rounds=1)
    (point,) = results.points
    names = [savings.PADDED, *map(savings.name, savings.distinct_counts(point))]
    assert [*results.timing(point).seconds] == names
