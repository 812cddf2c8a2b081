"""The timing module, on a clock that a test advances: never on real times."""

import gc
import json
import threading
from collections import Counter
from dataclasses import asdict

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from packviz.core import results as recorded
from packviz.measure import Timing, machine, measure, provenance, timing
from packviz.measure.machine import allocator


class FakeClock:
    """Time goes by only when a call says so."""

    def __init__(self):
        self.now = self.began = 0.0
        self.log = []

    def start(self):
        self.log.append("start")
        self.began = self.now

    def stop(self):
        self.log.append("stop")
        return self.now - self.began

    def takes(self, name, seconds):
        """A function that takes these seconds, one after the other, the last for ever."""
        left = list(seconds)

        def call():
            self.log.append(name)
            self.now += left.pop(0) if len(left) > 1 else left[0]

        return call


def quick(**options):
    """Two calls of 1 and 2 seconds."""
    clock = FakeClock()
    return clock, measure(
        {"a": clock.takes("a", [1]), "b": clock.takes("b", [2])}, clock=clock, **options
    )


seconds = st.floats(1e-6, 1e3)


# What is called when.


@given(st.integers(1, 6), st.integers(0, 4))
def test_every_round_calls_everything_once(rounds, warmup):
    clock, result = quick(rounds=rounds, warmup=warmup)
    called = [entry for entry in clock.log if entry in "ab"]
    assert len(called) == 2 * (rounds + warmup)
    for i in range(0, len(called), 2):
        assert sorted(called[i : i + 2]) == ["a", "b"]
    assert result.rounds == rounds
    assert result.seconds == {"a": (1,) * rounds, "b": (2,) * rounds}


def test_the_order_changes_between_rounds_and_is_the_same_every_time():
    orders = [[entry for entry in quick(rounds=30)[0].log if entry in "ab"] for _ in range(2)]
    assert orders[0] == orders[1]
    first = Counter(orders[0][::2])
    assert min(first["a"], first["b"]) > 5


def test_only_the_call_is_timed():
    clock = FakeClock()
    result = measure(
        {"a": clock.takes("a", [1])},
        before={"a": clock.takes("before", [10])},
        rounds=2,
        warmup=0,
        clock=clock,
    )
    assert clock.log == ["before", "start", "a", "stop"] * 2
    assert result.seconds == {"a": (1, 1)}


class Leftover:
    """Only a collection frees it: it holds itself. It says when it goes."""

    def __init__(self, says):
        self.says, self.itself = says, self

    def __del__(self):
        self.says("freed")


def test_garbage_is_collected_before_and_not_meanwhile():
    seen = []
    assert gc.isenabled()
    Leftover(seen.append)

    def call():
        seen.append(gc.isenabled())
        for _ in range(gc.get_threshold()[0] + 1):
            Leftover(lambda said: None)
        Leftover(seen.append)

    measure({"a": call}, rounds=2, clock=FakeClock())
    assert seen[:6] == ["freed"] + [False] * 5  # what the calls leave behind goes after them
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError):
        measure({"a": lambda: 1 // 0}, clock=FakeClock())
    assert gc.isenabled()


@given(st.integers(0, 14))
def test_stop_drops_the_round_that_is_not_complete(allowed):
    """It is asked before every call: of four in the warm-up, two that count the memory, and six in the rounds."""
    asked, told = iter(range(1000)), []
    stop, progress = lambda: next(asked) >= allowed, lambda *at: told.append(at)
    clock, result = quick(rounds=3, warmup=2, memory=True, stop=stop, progress=progress)
    complete = min(max(0, (allowed - 6) // 2), 3)
    assert result.rounds == len(result.seconds["a"]) == len(result.seconds["b"]) == complete
    assert result.stopped == (allowed < 12)
    assert sum(entry in "ab" for entry in clock.log) == min(allowed, 12)
    assert told == [(i + 1, 5) for i in range(min(allowed // 2, 2) + complete)]
    if not complete:
        assert (
            result.to_text()
            == "stopped before the first round was complete, so there are no times for a, b"
        )
        with pytest.raises(ValueError, match="no round was completed"):
            result.median("a")


# Peak memory.


def allocated(*sizes):
    """A call that holds blocks of these sizes in bytes, one after the other."""

    def call():
        for size in sizes:
            torch.empty(size, dtype=torch.uint8)

    return call


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 40))
def test_peak_memory_of_a_sum_is_its_two_terms_and_its_result(rows, columns, times):
    """Of `a + b + b`, the terms made within: two at first; then the sum of both, and at last another."""

    def call():
        a, b = torch.empty(rows * columns), torch.empty(rows * columns)
        for _ in range(times):
            a = a + b

    assert machine.peak(call) == 3 * 4 * rows * columns


@pytest.mark.parametrize("packed", [False, True])
def test_peak_memory_agrees_with_torchs_own_profiler(packed):
    """The public profiler writes to stderr in torch 2.13, so it is only asked here."""
    lstm = torch.nn.LSTM(4, 5)
    x = torch.randn(9, 6, 4)
    lengths = torch.arange(9, 3, -1)

    def call():
        given = torch.nn.utils.rnn.pack_padded_sequence(x, lengths) if packed else x
        output = lstm(given)[0]
        (output.data if packed else output).sum().backward()

    call()
    lstm.zero_grad()
    activities = [torch.profiler.ProfilerActivity.CPU]
    # acc_events: else torch 2.11 warns, once in a process, that one cycle is all it keeps.
    with torch.profiler.profile(
        activities=activities, profile_memory=True, acc_events=True
    ) as profiler:
        call()
    events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
    lstm.zero_grad()
    changes = [event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())]
    assert machine.peak(call) == max(np.cumsum(changes)) > 0


def test_peak_memory_elsewhere(monkeypatch):
    """With a stand-in for torch.cuda: there need not be a GPU."""
    log = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: log.append("wait"))
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: log.append("reset"))
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 100)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 350)
    assert machine.peak(lambda: log.append("call"), "cuda") == 250
    assert log == ["wait", "reset", "call", "wait"]
    assert machine.peak(lambda: pytest.fail("not called"), "meta") is None
    monkeypatch.delattr(torch.autograd, "_enable_profiler_legacy")
    assert machine.peak(lambda: pytest.fail("not called")) is None


def test_memory_is_counted_outside_of_the_time():
    clock = FakeClock()
    calls = {"a": clock.takes("a", [1]), "b": allocated(5000)}
    result = measure(
        calls,
        clock=clock,
        rounds=2,
        warmup=1,
        memory=True,
        before={"a": clock.takes("before", [0])},
    )
    assert result.memory == {"a": 0, "b": 5000}
    assert clock.log.count("a") == 4
    assert result.seconds["a"] == (1, 1)
    assert "peak memory 0.005 MB" in result.to_text()
    assert Timing.from_dict(json.loads(json.dumps(asdict(result)))) == result
    assert quick(rounds=1)[1].memory == {}
    with pytest.raises(ValueError, match=r"there is no timing of 'c'; choose one of 'a', 'b'"):
        result.median("c")


@pytest.mark.parametrize(
    ("calls", "options", "message"),
    [
        ({}, {}, "calls is empty; give at least one function"),
        ({"a": int}, {"rounds": 0}, "rounds is 0 and warmup 3; give at least 1 round"),
        ({"a": int}, {"warmup": -1}, "0 or more to warm up"),
        (
            {"a": int},
            {"before": {"b": int}},
            "before has 'b', which is not among calls; choose from a",
        ),
    ],
)
def test_what_cannot_be_measured(calls, options, message):
    with pytest.raises(ValueError, match=message):
        measure(calls, **options)


# What it says.


@given(st.lists(seconds, min_size=1, max_size=30))
def test_median_and_quartiles(values):
    result = Timing({"a": values})
    assert result.spread("a") == pytest.approx(np.percentile(values, [25, 50, 75]))
    assert result.median("a") == result.spread("a")[1]


@given(st.lists(st.tuples(seconds, seconds), min_size=1, max_size=30))
def test_a_ratio_is_taken_within_rounds(pairs):
    a, b = np.array(pairs).T
    ratio = Timing({"a": a.tolist(), "b": b.tolist()}).ratio("a", "b")
    assert ratio.value == pytest.approx(np.median(a / b))
    assert (ratio.low, ratio.high) == pytest.approx(np.percentile(a / b, [25, 75]))


def test_in_words():
    result = Timing({"a": [1.0, 1.0, 1.0] * 2, "packed": [2.0, 2.1, 1.9] * 2}, warmup=3)
    assert repr(result).splitlines()[:3] == [
        "a           1,000 ms  (quartiles 1,000 to 1,000)",
        "packed      2,000 ms  (quartiles 1,925 to 2,075)",
        "packed takes 2.0 times as long as a (95 % interval 1.90 to 2.10)",
    ]
    noisy = (
        Timing({"a": [1.0, 2.0, 3.0] * 3, "b": [2.0, 3.0, 1.0] * 3}, stopped=True)
        .to_text()
        .splitlines()
    )
    assert noisy[2] == "cannot tell b and a apart: b takes 0.3 to 2.0 times as long"
    assert noisy[3].startswith(
        "9 interleaved rounds after 0 to warm up, then stopped; a ratio is the median of"
    )


# Clocks.


def test_the_cuda_clock_waits_and_asks_the_gpu(monkeypatch):
    """With a stand-in for torch.cuda: there need not be a GPU."""
    log = []

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self, stream):
            log.append(f"record on {stream}")

        def elapsed_time(self, other):
            log.append("elapsed")
            return 1500.0

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: log.append(f"wait for {device}"))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: "stream")
    monkeypatch.setattr(torch.cuda, "device", lambda device: threading.Lock())
    monkeypatch.setattr(
        timing, "_keep_busy", lambda device, seconds: log.append(f"busy for {seconds:g} s")
    )
    clock = timing.clock_for("cuda")
    clock.start()
    assert clock.stop() == 1.5
    used = ["wait for cuda", "record on stream", "record on stream", "wait for cuda", "elapsed"]
    assert log == ["busy for 1 s", *used]
    timing._CudaClock.stopped.clear()


# Where it was measured.


def test_a_caption_says_what_how_and_when():
    place = {
        "device": "cpu",
        "device_name": "an abacus",
        "torch": "2.9.1",
        "threads": 1,
        "cores": 2,
    }
    place |= {"load_average": [0.5, 9, 9], "date": "2026-01-02T03:04:05+00:00"}
    said = machine.caption(place, [7])
    assert (
        said == "an abacus (CPU), torch 2.9.1, 1 thread, load 0.5 on 2 cores, 7 rounds, 2026-01-02"
    )
    each = [
        {"load_average": [load], "date": f"2026-01-0{day}T00"}
        for load, day in ((2.0, 4), (1.0, 3), (1.5, 4))
    ]
    said = machine.caption(place | {"device": "cuda:1", "cuda": "13.0"}, [5, 3, 4], each)
    assert said.startswith("an abacus (GPU, CUDA 13.0), ")
    assert said.endswith("load 1.0 to 2.0 on 2 cores, 3 to 5 rounds, 2026-01-03 to 2026-01-04")
    assert machine.caption(place | {"fake": "a test"}).startswith(
        "MADE UP, no machine was timed (a test): an abacus"
    )


def test_provenance_is_plain_data():
    record = provenance("cpu", {"rounds": 3})
    assert json.loads(json.dumps(record)) == record
    assert (record["torch"], record["threads"]) == (torch.__version__, torch.get_num_threads())
    assert record["parameters"] == {"rounds": 3}
    assert record["allocator"] == allocator()
    assert record["date"].endswith("+00:00")
    result = measure({"a": lambda: torch.ones(9).sum()}, rounds=2, parameters={"size": 9})
    assert min(result.seconds["a"]) > 0
    assert result.provenance["parameters"] == {"size": 9}
    assert result.provenance.get("page_faults_per_round", 0) >= 0
    assert f"\nMeasured on {machine.caption(result.provenance, [2])}." in result.to_text()


# The allocator's settings hold for a whole process, so another one tells what they do. Page faults
# are counted, not
# timed, and every torch.empty has 64 MiB: 16,384 pages.
DIARY = """
import json, os, resource, sys
import torch
from packviz.measure import calm_allocator, measure
from packviz.measure.machine import allocator, peak

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.empty(16 * 2**20).fill_(1)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def typical_faults():
    return sorted(faults() for _ in range(40))[10]  # the heap grows first: not all of the calls are calm

told = {"at first": faults()}
os.environ["MALLOC_MMAP_THRESHOLD_"] = "4294967296"
told["a reader's own"] = calm_allocator()["mallopt"]
del os.environ["MALLOC_MMAP_THRESHOLD_"]
told["still"] = faults()
measure({"a": int}, rounds=1)
told["set"] = allocator()
peak(lambda: torch.ones(9))
told["calm"] = typical_faults()
json.dump(told, sys.stdout)
"""


# In a process of its own: memory that others have freed would hide what is asked here.
COUNTING = """
import json, resource, sys
import torch
from packviz.measure import calm_allocator
from packviz.measure.machine import peak

def grow():
    x = torch.ones(2**20)
    for i in range(60):
        x = x + torch.zeros(2**20)[: i + 1].sum()

def most_megabytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

calm_allocator()
before = most_megabytes()
peak(grow)
json.dump(most_megabytes() - before, sys.stdout)
"""

GLIBC = pytest.mark.skipif(
    allocator()["library"].split()[0] != "glibc", reason="this setting is glibc's"
)


@GLIBC
def test_a_calm_allocator(fork):
    """It keeps its pages, after counting too; what was set is recorded; a reader's own setting is left alone."""
    told = json.loads(fork(DIARY).stdout)
    assert told["at first"] > 10_000
    assert told["a reader's own"] == {}
    assert told["still"] > 10_000
    assert told["set"]["mallopt"] == {"M_MMAP_MAX": 0, "M_TRIM_THRESHOLD": 2**31 - 1}
    assert told["set"]["environment"] == {}
    assert told["calm"] < 1000


@GLIBC
def test_counting_memory_does_not_swell_a_calm_heap(fork):
    """The profiler keeps a little of every operator; between blocks of 4 MiB it would tear the heap apart."""
    assert json.loads(fork(COUNTING).stdout) < 120  # without `own_pages`, it is 165 or more


# Result files.


def test_a_file_of_another_kind_or_version_is_refused(tmp_path):
    path = tmp_path / "result.json"
    recorded.save(path, "savings", 1, {"races": []})
    assert recorded.load(path, "savings", 1)["races"] == []
    assert [p.name for p in tmp_path.iterdir()] == ["result.json"]
    for kind, version in (("methods", 1), ("savings", 2)):
        with pytest.raises(
            ValueError,
            match=rf"contains 'savings', version 1; expected '{kind}', version {version}",
        ):
            recorded.load(path, kind, version)
    path.write_text("[1]")
    with pytest.raises(ValueError, match="contains None, version None"):
        recorded.load(path, "savings", 1)
    path.write_text("{")
    with pytest.raises(ValueError, match="is not a JSON file"):
        recorded.load(path, "savings", 1)


def test_files_are_found_from_any_folder_of_the_checkout(tmp_path, monkeypatch):
    folder = tmp_path / "notebooks" / "recorded"
    folder.mkdir(parents=True)
    for name in ("methods_b.json", "methods_a.json", "racetrack.json", "other.json"):
        (folder / name).write_text('{"packviz": "methods", "version": 1}')
    for here in (tmp_path, tmp_path / "notebooks", folder):
        monkeypatch.chdir(here)
        assert recorded.load("methods_a.json", "methods", 1)
        assert recorded.available("methods") == ["methods_a.json", "methods_b.json"]
    assert recorded.available("none") == []
    with pytest.raises(
        ValueError, match=r"there is no result file 'b\.json', here or in a folder recorded/ above"
    ):
        recorded.load("b.json", "methods", 1)


def test_what_no_json_can_hold_is_not_written(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        recorded.save(tmp_path / "a.json", "a", 1, {"value": float("nan")})
    assert not list(tmp_path.iterdir())
