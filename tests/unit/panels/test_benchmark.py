"""Tests of the panel of the benchmark: its controls, a run, and the curves that it draws."""

from pathlib import Path

import pytest
import torch
from controls import move, words

from packviz.measure.machine import no_cuda
from packviz.panels import BenchmarkPanel
from packviz.studies import benchmark

FAKE = Path(__file__).parents[1] / "studies" / "recordings" / "benchmark_fake_cuda.json"
RECORDED = Path(__file__).parents[3] / "notebooks" / "recorded" / "benchmark_cpu.json"
TINY = {"batch_size": 8, "shortest": 1, "longest": 2, "step": 1}


@pytest.fixture
def panel():
    return BenchmarkPanel(**TINY)


def test_quick_and_full_set_the_sliders(panel):
    sliders = (panel.batch_size, panel.shortest, panel.longest, panel.step)
    for size, values, shown in (
        (
            "full",
            [512, 32, 512, 32],
            "512 sequences of 32, 64, … 512 time steps, setup A and B, on cpu, in up to 25",
        ),
        (
            "quick",
            [64, 32, 128, 32],
            "64 sequences of 32, 64, 96, 128 time steps, setup A and B, on cpu, in up to 25",
        ),
    ):
        move(panel.size, size)
        assert [slider.value for slider in sliders] == values
        assert shown in words(panel.summary)


def test_sizes_that_do_not_fit_together(panel):
    before = panel.picture.value
    move(panel.shortest, 3)
    assert "shortest is 3 and longest 2" in words(panel.error)
    assert panel.picture.value == before
    with pytest.raises(ValueError, match="shortest is 3"):
        panel.measure()
    assert "shortest is 3 and longest 2" in panel.job.message.value
    assert panel.job.complaint in panel.to_text()
    assert not panel.job.start.disabled


def test_the_arguments():
    panel = BenchmarkPanel(
        "cpu:0",
        quick=False,
        setups="B",
        batch_size=1000,
        step=64,
        methods="packed,padded",
        beside=None,
    )
    assert (panel.device.value, panel.setups.value, panel.size.value) == ("cpu:0", "B", "full")
    assert (panel.batch_size.value, panel.step.value, panel.longest.value) == (1000, 64, 512)
    assert panel.beside.value == "nothing"
    assert panel._plan()[1]["methods"] == ("packed", "padded")
    sizes = [BenchmarkPanel(quick=quick).size.value for quick in ("False", True, "true")]
    assert sizes == ["full", "quick", "quick"]
    for wrong, message in (
        ({"quick": "no"}, "quick is 'no'; choose one of 'true', 'false'"),
        ({"setups": "AB"}, "setups is 'AB'; choose one of 'A', 'B', 'A and B'"),
        ({"beside": "mine"}, "beside is 'mine'; choose one of 'nothing', "),
    ):
        with pytest.raises(ValueError, match=message):
            BenchmarkPanel(**wrong)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is CUDA here")
def test_a_missing_gpu_is_not_offered_and_explained(panel):
    assert [value for _, value in panel.device.options] == ["cpu"]
    assert f"No CUDA: {no_cuda()}." in [getattr(child, "value", None) for child in panel.children]
    with pytest.raises(ValueError, match="device is 'cuda', but torch"):
        BenchmarkPanel("cuda")


def test_a_run_draws_one_point_after_the_other(panel, monkeypatch):
    pictures, steps = [panel.picture.value], benchmark.Study.steps

    def watched(*args, **options):
        for result in steps(*args, **options):
            yield result
            pictures.append(panel.picture.value)

    monkeypatch.setattr(benchmark.Study, "steps", watched)
    result = panel.measure()
    assert [(p.setup, p.steps) for p in result.points] == [("A", 1), ("B", 1), ("A", 2), ("B", 2)]
    assert len(set(pictures)) == len(pictures) == 6
    assert result is panel.result
    assert result.provenance["parameters"]["batch_size"] == 8
    assert (panel.job.message.value, panel.job.bar.value) == ("Done.", panel.job.bar.max)
    assert "yours: " in words(panel.picture)
    assert repr(result) in panel.to_text()


def test_a_stopped_run_keeps_the_points_that_are_complete(panel):
    message = panel.job._work(
        lambda done, of: None, lambda: bool(panel.result and panel.result.points)
    )
    assert message == "Stopped; 1 of 4 points were measured."
    assert len(panel.result.points) == 1


def test_a_recorded_run_on_this_kind_of_device_is_drawn_beside(tmp_path, monkeypatch):
    """Until somebody records a GPU, the panel draws the CPU and adds a note."""
    (folder := tmp_path / "recorded").mkdir()
    monkeypatch.chdir(tmp_path)
    assert BenchmarkPanel(**TINY).beside.value == "nothing"
    (folder / "benchmark_cpu.json").write_bytes(RECORDED.read_bytes())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda i: "invented")
    panel = BenchmarkPanel("cuda", **TINY)
    assert panel.beside.value == "benchmark_cpu.json"
    assert "a different kind of device: cpu, not cuda." in words(panel.picture)
    (folder / "benchmark_cuda.json").write_bytes(FAKE.read_bytes())
    (folder / "benchmark_broken.json").write_text("{}")
    panel = BenchmarkPanel("cuda", **TINY)
    assert panel.beside.value == "benchmark_cuda.json"
    assert "kind of device" not in words(panel.picture)
    assert "recorded: MADE UP, no machine was timed" in words(panel.picture)
    assert repr(benchmark.recorded(FAKE)) in panel.to_text()
    assert "stroke-dasharray" in panel.picture.value
    move(panel.beside, "benchmark_broken.json")
    assert "benchmark_broken.json contains None" in words(panel.error)
