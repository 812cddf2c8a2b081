"""Recorded files: every one can be read, and what is drawn of it says on what it was measured."""

import json
import re
from pathlib import Path

import pytest

from packviz.studies import (
    benchmark,
    compiled,
    compilers,
    heuristics,
    methods_benchmark,
    parts,
    rules,
    savings,
)

RECORDED = sorted((Path(__file__).parents[3] / "notebooks" / "recorded").glob("*.json"))
MODULES = (benchmark, compiled, compilers, parts, methods_benchmark, savings, heuristics)
STUDIES = {module.STUDY.name: module.STUDY for module in MODULES}


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name)
def test_every_recorded_file_can_be_read_and_written(path, tmp_path):
    study = STUDIES[json.loads(path.read_text())["packviz"]]
    found = study.load(path)
    study.save(tmp_path / "again.json", found)
    assert study.load(tmp_path / "again.json") == found


CHARTS = {
    "benchmark": (benchmark, lambda found: found.to_svg()),
    "methods": (methods_benchmark, lambda found: found.chart().figure.to_json()),
    "packed faster": (methods_benchmark, lambda found: found.packed_faster().to_svg()),
    "savings": (savings, lambda found: found.to_svg()),
    "compiled": (compiled, lambda found: found.to_svg()),
    "parts": (parts, lambda found: parts.ByMachine({"": found}).to_svg()),
    "rules": (heuristics, lambda found: rules.compare({"": found}, {"never": lambda case: False})),
    "cases": (heuristics, lambda found: rules.where_packing_pays({"": found}, "GRU")[0]),
}


@pytest.mark.parametrize("name", CHARTS)
def test_every_measured_chart_says_what_it_was_measured_on(name):
    """Processor, torch, threads, load, rounds and date: in one form, under each."""
    study, draw = CHARTS[name]
    found = study.STUDY.load()
    drawn = draw(found)
    said = (
        drawn
        if isinstance(drawn, str)
        else drawn.figure.to_json()
        if hasattr(drawn, "figure")
        else drawn.to_text()
    )
    assert re.search(
        r"\(CPU\), torch .*, 1 thread, load .* on \d+ cores, .* rounds?, \d{4}-\d\d-\d\d",
        found.caption,
    )
    assert found.caption in said
