"""Recorded files: every one can be read, and what is drawn of it says on what it was measured."""

import json
import re
from pathlib import Path

import pytest

from packviz.draw import quantities
from packviz.studies import compiled, forum, methods, parts, rules, savings
from packviz.studies.command import load_study

ROOT = Path(__file__).parents[3]
RECORDED = sorted((ROOT / "notebooks" / "recorded").glob("*.json"))
SELECTED = {
    "allocator_default_cpu": "64 × 128",
    "allocator_thp_cpu": "512 × 512",
}
"""Words in the names of the points of a file that has only some of its study's points."""


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name)
def test_every_recorded_file_has_all_points_of_its_study(path):
    head = json.loads(path.read_text().partition("\n")[0])
    assert "fake" not in head["provenance"]
    study = load_study(head["packviz"])
    results = study.load(path)
    set_of_points = path.name.partition("_")[0]
    points = study.others.get(set_of_points, study.full_points)
    words = SELECTED.get(path.stem, "")
    assert {point for point in points if words in str(point)} <= {*results.points}
    assert {*results.points} <= {*points} | {*forum.grid(steps=range(32, 513, 32))}
    assert results.to_text()
    for point in results.points:
        for timing in results.timings(point).values():
            assert timing.rounds
            assert {"date", "load_average"} <= timing.provenance.keys()


@pytest.mark.parametrize(
    ("module", "chart"),
    [
        (forum, lambda results: forum.chart({"": results}, "time")),
        (methods, methods.verdicts),
        (methods, methods.packed_faster),
        (savings, savings.picture),
        (compiled, lambda results: results),
        (parts, lambda results: parts.chart({"": results})),
        (rules, lambda results: rules.compare({"": results}, {"never": lambda case: False})),
        (rules, lambda results: rules.where_packing_pays("", results, "GRU")),
    ],
)
def test_every_measured_chart_says_what_it_was_measured_on(module, chart):
    results = module.STUDY.load()
    assert ", 1 thread, glibc's " in results.caption
    assert results.caption in chart(results).to_text()


def test_the_times_of_the_readme_are_recorded():
    recorded = {}
    for study in (forum.STUDY, methods.STUDY):
        results = study.load()
        recorded |= {str(point): results.timing(point) for point in results.points}
    large = forum.STUDY.others["allocator"][1]
    tuned = forum.STUDY.load("allocator_tuned_cpu.json")
    readme = (ROOT / "README.md").read_text()
    ratio = tuned.ratio(large, "packed", "run").value
    assert f"`pv.run` is still {ratio:.0f} times as fast as packing" in readme
    rows = re.findall(r"^\| (?:a model with )?(\w+\([^|]+) \| (.+) \|$", readme, re.M)
    assert len(rows) == 4
    for point, numbers in rows:
        timing = recorded[point]
        names = [name for name in timing.seconds if name != "drop-in"][:3]
        times = [quantities.format_milliseconds(timing.median(name)) for name in names]
        assert numbers == " | ".join([*times, f"{timing.ratio(*names[1:]).value:.1f}"])
