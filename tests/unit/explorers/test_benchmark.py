"""The form of the benchmark: every control, the run in a thread and here, stopping, and what it draws."""

import threading
import time
from pathlib import Path

import pytest
import torch
from panels import move, words

from packviz.bench.machine import no_cuda
from packviz.explorers import BenchmarkExplorer
from packviz.studies import benchmark, network

FAKE = Path(__file__).parents[1] / "studies" / "recordings" / "benchmark_fake_cuda.json"
RECORDED = Path(__file__).parents[3] / "notebooks" / "recorded" / "benchmark_cpu.json"
TINY = {"batch_size": 8, "shortest": 1, "longest": 2, "step": 1}


@pytest.fixture
def explorer():
    panel = BenchmarkExplorer(**TINY)
    yield panel
    panel.halt()
    if panel.job.thread:
        panel.job.thread.join()


def wait_for(what, seconds=60):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def press(button):
    button._handle_custom_msg({"event": "click"}, [])  # what the browser sends


def test_quick_and_full_set_the_sliders(explorer):
    sliders = (explorer.batch_size, explorer.shortest, explorer.longest, explorer.step)
    for size, values, shown in (
        ("full", [512, 32, 512, 32], "512 sequences of 32, 64, … 512 time steps, setup A and B, on cpu: up to 25"),
        ("quick", [64, 32, 128, 32], "64 sequences of 32, 64, 96, 128 time steps, setup A and B, on cpu: up to 25"),
    ):
        move(explorer.size, size)
        assert [slider.value for slider in sliders] == values
        assert shown in words(explorer.summary)


def test_sizes_that_cannot_be(explorer):
    before = explorer.picture.value
    move(explorer.shortest, 3)
    assert "shortest is 3 and longest 2; give a shortest of at most the longest" in words(explorer.error)
    assert explorer.picture.value == before
    press(explorer.job.start)
    assert "shortest is 3 and longest 2" in explorer.job.message.value
    assert explorer.job.thread is None
    with pytest.raises(ValueError, match="shortest is 3"):
        explorer.measure()
    assert not explorer.job.start.disabled


def test_it_starts_as_told():
    panel = BenchmarkExplorer(
        "cpu:0", quick=False, setups="B", batch_size=1000, step=64, methods="packed,padded", beside=None
    )
    assert (panel.device.value, panel.setups.value, panel.size.value) == ("cpu:0", "B", "full")
    assert (panel.batch_size.value, panel.step.value, panel.longest.value) == (1000, 64, 512)
    assert panel.beside.value == "nothing"
    assert panel._plan()[1]["methods"] == ("packed", "padded")
    sizes = [BenchmarkExplorer(quick=quick).size.value for quick in ("False", True, "true")]
    assert sizes == ["full", "quick", "quick"]
    with pytest.raises(ValueError, match="quick is 'no'; it is true or false"):
        BenchmarkExplorer(quick="no")
    with pytest.raises(ValueError, match="setups is 'AB'; choose one of 'A', 'B', 'A and B'"):
        BenchmarkExplorer(setups="AB")
    with pytest.raises(ValueError, match="beside is 'mine'; choose one of 'nothing', "):
        BenchmarkExplorer(beside="mine")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is CUDA here")
def test_a_missing_gpu_is_not_offered_and_explained(explorer):
    assert [value for _, value in explorer.device.options] == ["cpu"]
    said = [child.value for child in explorer.children if isinstance(getattr(child, "value", None), str)]
    assert f"No CUDA: {no_cuda()}." in said
    with pytest.raises(ValueError, match="device is 'cuda', and torch"):
        BenchmarkExplorer("cuda")


# Running.


def test_here_and_now(explorer):
    result = explorer.measure()
    assert [(p.setup, p.steps) for p in result.points] == [("A", 1), ("B", 1), ("A", 2), ("B", 2)]
    assert result is explorer.result
    assert result.provenance["parameters"]["batch_size"] == 8
    assert explorer.job.message.value == "Done."
    assert (explorer.job.start.disabled, explorer.job.stop.disabled) == (False, True)
    assert explorer.job.bar.value == explorer.job.bar.max
    assert "yours: " in words(explorer.picture)
    assert repr(result) in explorer.to_text()


def test_the_button_runs_it_in_a_thread_and_curves_come_one_by_one(explorer, monkeypatch):
    seen = []
    go_on = threading.Semaphore(0)

    def gated(*given, **options):
        for result in real(*given, **options):
            yield result
            seen.append(len(result.points))
            go_on.acquire(timeout=60)

    real = benchmark.Study.steps
    monkeypatch.setattr(benchmark.Study, "steps", gated)
    pictures = [explorer.picture.value]
    press(explorer.job.start)
    for points in range(5):
        wait_for(lambda points=points: len(seen) > points)
        assert explorer.job.start.disabled
        assert not explorer.job.stop.disabled
        pictures.append(explorer.picture.value)
        go_on.release()
    explorer.job.thread.join(60)
    assert seen == [0, 1, 2, 3, 4]
    assert len(set(pictures)) == 6
    assert explorer.job.message.value == "Done."
    assert not explorer.job.start.disabled


def running(explorer, monkeypatch):
    """Starts a run that waits in its first call; returns the calls made, and what lets one more go."""
    calls, gate = [], threading.Semaphore(0)

    def slow(*given):
        calls.append(1)
        gate.acquire(timeout=60)
        return network.padded(*given)

    monkeypatch.setitem(network.METHODS, "packed", slow)
    press(explorer.job.start)
    wait_for(lambda: calls)
    return calls, gate


def test_stop_waits_for_one_call(explorer, monkeypatch):
    calls, gate = running(explorer, monkeypatch)
    press(explorer.job.stop)
    gate.release()
    explorer.job.thread.join(60)
    assert not explorer.job.thread.is_alive()
    assert len(calls) == 1
    assert explorer.job.message.value == "Stopped; 0 of 4 points were measured."
    assert explorer.result.points == []
    assert not explorer.job.start.disabled


@pytest.mark.parametrize("how", ["run the cell again", "measure elsewhere"])
def test_no_run_is_left_behind(explorer, monkeypatch, how):
    calls, gate = running(explorer, monkeypatch)
    another = BenchmarkExplorer(**TINY)
    if how == "measure elsewhere":
        # Let the first one continue as if the second panel had been there before it.
        explorer.job._asked.clear()
        BenchmarkExplorer._latest = explorer
        threading.Timer(0.05, gate.release, [1000]).start()
        monkeypatch.setitem(network.METHODS, "packed", network.packed)
        assert len(another.measure().points) == 4
    gate.release(1000)
    explorer.job.thread.join(60)
    assert not explorer.job.thread.is_alive()
    assert len(calls) == 1 or how == "measure elsewhere"


# What it draws.


def test_beside_stands_what_was_recorded_on_a_device_of_this_kind(tmp_path, monkeypatch):
    """As soon as somebody has recorded a GPU, whatever the file is called; until then the CPU's, and that is said."""
    (folder := tmp_path / "recorded").mkdir()
    monkeypatch.chdir(tmp_path)
    assert BenchmarkExplorer(**TINY).beside.value == "nothing"
    (folder / "benchmark_a.json").write_bytes(RECORDED.read_bytes())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda i: "invented")
    panel = BenchmarkExplorer("cuda", **TINY)
    assert panel.beside.value == "benchmark_a.json"
    assert "not one of your kind of device: cpu, not cuda." in words(panel.picture)
    (folder / "benchmark_b.json").write_bytes(FAKE.read_bytes())
    (folder / "benchmark_broken.json").write_text("{}")
    panel = BenchmarkExplorer("cpu", **TINY, beside="benchmark_b.json")
    assert "recorded: MADE UP, no machine was timed" in words(panel.picture)
    assert repr(benchmark.recorded(FAKE)) in panel.to_text()
    assert "stroke-dasharray" in panel.picture.value
    move(panel.beside, "benchmark_broken.json")
    assert "benchmark_broken.json holds None" in words(panel.error)
    (folder / "benchmark_broken.json").unlink()
    panel = BenchmarkExplorer("cuda", **TINY)
    assert panel.beside.value == "benchmark_b.json"
    assert "kind of device" not in words(panel.picture)
    assert BenchmarkExplorer(**TINY).beside.value == "benchmark_a.json"
