"""Recorded files: all are up to date, and those of an older packviz can be brought there without a number changing."""

import json
import re
from pathlib import Path

import migrate_recorded
import pytest

from packviz.studies import compiled, compilers, helpers, parts, race, rules, savings, thumb
from packviz.studies.forum import sweep

RECORDED = sorted((Path(__file__).parents[3] / "notebooks" / "recorded").glob("*.json"))


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name)
def test_every_recorded_file_is_up_to_date(path):
    before = path.read_bytes()
    assert migrate_recorded.migrate(path).endswith("nothing to do")
    assert path.read_bytes() == before


CHARTS = {
    "benchmark": (sweep, lambda found: found.to_svg()),
    "race": (race, lambda found: race.chart({"": found}).to_json()),
    "packed faster": (race, lambda found: found.packed_faster().to_svg()),
    "savings": (savings, lambda found: found.to_svg()),
    "compiled": (compiled, lambda found: found.to_svg()),
    "parts": (parts, lambda found: found.to_svg()),
    "rules": (thumb, lambda found: rules.compare({"": found}, {"never": lambda case: False})),
    "cases": (thumb, lambda found: rules.where_packing_pays({"": found}, "GRU")[0]),
    "costs": (thumb, lambda found: rules.CostModel.fit(found.cases).chart(found.cases[0], found.caption)),
}


@pytest.mark.parametrize("name", CHARTS)
def test_every_measured_chart_says_what_it_was_measured_on(name):
    """Processor, torch, threads, load, rounds and date: in one form, under each."""
    study, draw = CHARTS[name]
    found = study.STUDY.load()
    drawn = draw(found)
    said = drawn if isinstance(drawn, str) else drawn.to_json()
    assert re.search(r"\(CPU\), torch .*, 1 thread, load .* on \d+ cores, .* rounds?, \d{4}-\d\d-\d\d", found.caption)
    assert found.caption in said


def old(path, kind, **data):
    path.write_text(json.dumps({"packviz": kind, "version": 1, **data}))
    return path


PLACE = {
    "device_name": "abacus",
    "torch": "2",
    "threads": 1,
    "cores": 2,
    "date": "2026-01-02",
    "load_average": [1, 2, 3],
}


def test_timings_become_points(tmp_path):
    def timing(name, seconds, **more):
        parameters = {"batch": 2, "steps": 3, "features": 4, "rounds": 2, "helper": name}
        place = {**PLACE, "page_faults_per_round": 7, "parameters": parameters} | more
        return {"seconds": {"helper": [seconds, 1e-3 / 3], "loop": [0.5, 0.25]}, "warmup": 3, "stopped": False, "provenance": place}  # fmt: skip  # noqa: E501

    timings = {"align": timing("align", 0.1), "padding_mask": timing("padding_mask", 0.2, load_average=[9, 9, 9])}
    path = old(tmp_path / "helpers_mine.json", "helpers", timings=timings)
    with pytest.raises(ValueError, match=r"version 1; expected 'helpers', version 2\. `python tools/migrate_recorded"):
        helpers.recorded(path)
    assert (
        migrate_recorded.migrate(path)
        == "helpers_mine.json: helpers, version 1 → helpers_mine.json: helpers, version 2"
    )
    found = helpers.recorded(path)
    assert found.provenance == {**PLACE, "parameters": {"rounds": 2}}
    assert found.points == [helpers.Point(name, 2, 3, 4) for name in timings]
    for point, now in found.values.items():
        before = timings[point.helper]
        assert {name: list(seconds) for name, seconds in now.seconds.items()} == before["seconds"]
        assert now.provenance["load_average"] == before["provenance"]["load_average"]
    path = old(path, "helpers", timings={**timings, "masked_loss": timing("masked_loss", 0.1, torch="1")})
    with pytest.raises(ValueError, match="measured on different machines"):
        migrate_recorded.migrate(path)


def test_cases_become_points(tmp_path):
    case = {"mode": "GRU", "training": True, "batch_size": 2, "longest": 4, "size": 8, "kind": "uniform"}
    case |= {"padded": 0.1234, "packed": 0.4321, "ratio": [3.502, 3.5, 3.6]}
    path = old(
        tmp_path / "mine.json", "thumb", provenance={**PLACE, "parameters": {"cases": 1, "rounds": 7}}, cases=[case]
    )
    migrate_recorded.migrate(path)
    (now,) = thumb.recorded(path).cases
    assert (now.seconds, now.ratio.rounds) == ({"padded": 0.1234, "packed": 0.4321}, 7)
    assert [now.ratio.value, now.ratio.low, now.ratio.high] == case["ratio"]


def test_a_file_of_another_name_takes_the_new_one(tmp_path):
    cell = {"outcome": "right", "said": "", "compiled": 2, "recorded": False}
    path = old(
        tmp_path / "relatives_cpu.json", "relatives", torch="2", provenance=PLACE, cells={"padded": {"export": cell}}
    )
    migrate_recorded.migrate(path)
    assert not path.exists()
    found = compilers.recorded(tmp_path / "compilers_cpu.json")
    assert found.cells == {"padded": {"export": compilers.Cell("right", compiled=2)}}
    assert found.torch == "2"


def test_a_file_of_another_kind_is_not_said_to_be_an_older_one():
    """The remedy for an older version would have nothing to do there."""
    with pytest.raises(ValueError, match=r"holds 'race', version 1; expected 'savings', version 2$"):
        savings.STUDY.load("race_cpu.json")
