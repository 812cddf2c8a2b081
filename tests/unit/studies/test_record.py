"""`tools/record.py`: what it copies into a checkout, what it refuses, and that it resumes."""

import json
import shutil
import sys
import time
from pathlib import Path

import pytest
import record

from packviz.studies import heuristics, parts

RECORDED = Path(__file__).parents[3] / "notebooks" / "recorded"
FAKE = Path(__file__).parent / "recordings" / "benchmark_fake_cuda.json"


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """The folders of a checkout in which nothing is recorded, beside a folder of results."""
    for folder in ("notebooks/recorded", "packviz/ops", "out"):
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.setattr(record, "ROOT", tmp_path)
    return tmp_path


def copied(checkout, monkeypatch, *options):
    """What is copied, and the exit status."""
    monkeypatch.setattr(
        sys, "argv", ["record.py", "--out", str(checkout / "out"), "--minutes", "0", *options]
    )
    status = record.main()
    return [
        path.name for folder in ("notebooks/recorded",) for path in (checkout / folder).iterdir()
    ], status


def test_every_step_is_a_study_and_recorded():
    for step in record.STEPS:
        _, points = record.study_of(step)
        assert points
        assert record.missing(step, RECORDED / f"{step}_cpu.json") == []


def test_complete_results_are_copied(checkout, monkeypatch, capsys):
    for step in ("parts", "untuned"):
        shutil.copy(RECORDED / f"{step}_cpu.json", checkout / "out")
    names, status = copied(checkout, monkeypatch)
    assert (sorted(names), status) == (["parts_cpu.json", "untuned_cpu.json"], 0)
    assert (checkout / "notebooks/recorded/parts_cpu.json").read_bytes() == (
        RECORDED / "parts_cpu.json"
    ).read_bytes()
    lines = capsys.readouterr().out.splitlines()
    assert (
        f"parts_cpu.json: copied to notebooks/recorded/parts_cpu.json, measured on {parts.recorded().caption}"
        in lines
    )
    assert "methods_cpu.json: nothing measured yet" in lines


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda data: data["points"].pop(),
            "not complete: 1 points are missing, the first 512 sequences of up to 256",
        ),
        (
            lambda data: data["provenance"].update(fake="for a test"),
            "not copied: it was not measured on cpu",
        ),
        (
            lambda data: data["provenance"].update(device="cuda:1"),
            "not copied: it was not measured on cpu",
        ),
    ],
)
def test_other_results_are_not(checkout, monkeypatch, capsys, change, message):
    data = json.loads((RECORDED / "parts_cpu.json").read_text())
    change(data)
    (checkout / "out" / "parts_cpu.json").write_text(json.dumps(data))
    assert copied(checkout, monkeypatch, "--studies", "parts") == ([], 0)
    assert f"parts_cpu.json: {message}" in capsys.readouterr().out
    shutil.copy(FAKE, checkout / "out" / "benchmark_cuda.json")
    assert copied(checkout, monkeypatch, "--device", "cuda:1") == ([], 0)


@pytest.mark.slow
def test_it_ends_in_time_and_resumes(tmp_path):
    path, counts, seconds = tmp_path / "heuristics_cpu.json", [], 15
    while len(counts) < 2:
        assert record.record("heuristics", path, "cpu", 1, time.monotonic() + seconds) == 0
        if path.exists() and (found := heuristics.recorded(path).values):
            counts.append(len(found))
        else:
            seconds *= 2  # the machine is busy
    assert counts[0] <= counts[1] < len(heuristics.STUDY.full)
