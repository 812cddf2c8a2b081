"""The timing module, on a clock that a test advances: never on real times."""

import gc
import json
import mmap
import threading
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from packviz.measure import Timing, machine, measure, provenance, timing


class FakeClock:
    """Time goes by only when a call says so."""

    def __init__(self):
        self.now = 0.0
        self.log = []

    def __call__(self, call):
        self.log.append("start")
        began = self.now
        call()
        self.log.append("stop")
        return self.now - began

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
        {"a": clock.takes("a", [1]), "b": clock.takes("b", [2])}, stopwatch=clock, **options
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
        before_call=clock.takes("before", [10]),
        rounds=2,
        warmup=0,
        stopwatch=clock,
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
            Leftover(lambda word: None)
        Leftover(seen.append)

    measure({"a": call}, rounds=2, stopwatch=FakeClock())
    assert seen[:6] == ["freed"] + [False] * 5  # what the calls leave behind goes after them
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError):
        measure({"a": lambda: 1 // 0}, stopwatch=FakeClock())
    assert gc.isenabled()


def test_a_budget_ends_the_rounds(monkeypatch):
    clock = FakeClock()
    monkeypatch.setattr(timing.time, "monotonic", lambda: clock.now)
    calls = {"a": clock.takes("a", [1]), "b": clock.takes("b", [2])}
    for budget, rounds in ((1, 6), (30, 8), (1000, 20)):
        assert measure(calls, stopwatch=clock, warmup=2, budget=budget).rounds == rounds
    assert measure(calls, stopwatch=clock, warmup=2, budget=1, min_rounds=1).rounds == 1


def test_rounds_end_when_the_ratios_are_known():
    clock = FakeClock()
    wild = np.random.default_rng(0).exponential(size=999).tolist()
    calls = {"steady": clock.takes("steady", [1]), "wild": clock.takes("wild", wild)}
    assert measure(calls, stopwatch=clock, rounds=100, until_narrow=True).rounds == 100
    assert quick(rounds=100, until_narrow=True)[1].rounds == 6


def test_page_faults_are_counted_for_each_call():
    def fresh():
        with mmap.mmap(-1, 2**22) as pages:  # an allocator might reuse an earlier block
            pages.write(bytes(2**22))

    result = measure({"fresh": fresh, "nothing": int}, rounds=3, warmup=1)
    assert result.faults["fresh"] > 16 * (result.faults["nothing"] + 1)
    assert f"{result.faults['fresh']:,} page faults" in result.to_text()


# Peak memory.


def allocated(*sizes):
    """A call that holds blocks of these sizes in bytes, one after the other."""

    def call():
        for size in sizes:
            torch.empty(size, dtype=torch.uint8)

    return call


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 40))
def test_peak_memory_of_a_sum_is_its_two_terms_and_its_result(rows, columns, times):
    """At its largest, `a + b + b` needs its two terms and its result."""

    def call():
        a, b = torch.empty(rows * columns), torch.empty(rows * columns)
        for _ in range(times):
            a = a + b

    assert machine.peak_memory(call) == 3 * 4 * rows * columns


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
    assert machine.peak_memory(call) == max(np.cumsum(changes)) > 0


def test_peak_memory_elsewhere(monkeypatch):
    """With a stand-in for torch.cuda: there need not be a GPU."""
    log = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: log.append("wait"))
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: log.append("reset"))
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 100)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 350)
    assert machine.peak_memory(lambda: log.append("call"), "cuda") == 250
    assert log == ["wait", "reset", "call", "wait"]
    assert machine.peak_memory(lambda: pytest.fail("not called"), "meta") is None
    monkeypatch.delattr(torch.autograd, "_enable_profiler_legacy")
    assert machine.peak_memory(lambda: pytest.fail("not called")) is None


def test_memory_is_counted_outside_of_the_time():
    clock = FakeClock()
    calls = {"a": clock.takes("a", [1]), "b": allocated(5000)}
    result = measure(calls, stopwatch=clock, rounds=2, warmup=1)
    result = replace(result, memory=timing.peak_memories(calls, lambda: None, "cpu"))
    assert result.memory == {"a": 0, "b": 5000}
    assert clock.log.count("a") == 4
    assert result.seconds["a"] == (1, 1)
    assert "peak memory 0.005 MB" in result.to_text()
    json.dumps(asdict(result))
    assert quick(rounds=1)[1].memory == {}
    with pytest.raises(ValueError, match=r"there is no timing of 'c'; choose one of 'a', 'b'"):
        result.median("c")


@pytest.mark.parametrize(
    ("calls", "options", "message"),
    [
        ({}, {}, "calls is empty; give at least one function"),
        ({"a": int}, {"rounds": 0}, "rounds is 0, and warmup is 3; give rounds of at least 1"),
        ({"a": int}, {"warmup": -1}, "warmup is -1; give rounds of at least 1"),
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
    noisy = Timing({"a": [1.0, 2.0, 3.0] * 3, "b": [2.0, 3.0, 1.0] * 3}).to_text().splitlines()
    assert noisy[2] == "no clear difference between b and a: b takes 0.3 to 2.0 times as long"
    few = Timing({"a": [1.0], "b": [2.0]}).against("a")
    assert [row[2] for row in few] == ["1 (1 to 1)", "2 (2 to 2), too few rounds to tell"]


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
    monkeypatch.setattr(timing, "_gpu_last_used", {})
    assert timing.make_stopwatch("cuda")(lambda: log.append("call")) == 1.5
    used = ["wait for cuda", "record on stream", "call", "record on stream"]
    assert log == ["busy for 1 s", *used, "wait for cuda", "elapsed"]


# Where it was measured.


def test_a_caption_says_what_how_and_when():
    place = {"device": "cpu", "device_name": "an abacus", "torch": "2.9.1", "threads": 1}
    place |= {"blas": "mkl", "allocator": "glibc 9, default", "environment": {"A": "0"}}
    place |= {"cores": 2, "load_average": [0.5, 9, 9], "date": "2026-01-02T03:04:05+00:00"}
    assert (
        machine.caption(place, [7]) == "an abacus (CPU), torch 2.9.1, BLAS MKL, 1 thread,"
        " glibc's default allocator, A=0, load 0.5 on 2 cores, 7 rounds, 2026-01-02"
    )
    each = [
        {"load_average": [load], "date": f"2026-01-0{day}T00"}
        for load, day in ((2.0, 4), (1.0, 3), (1.5, 4))
    ]
    text = machine.caption(place | {"device": "cuda:1", "cuda": "13.0"}, [5, 3, 4], each)
    assert text.startswith("an abacus (GPU, CUDA 13.0), ")
    assert text.endswith("load 1.0 to 2.0 on 2 cores, 3 to 5 rounds, 2026-01-03 to 2026-01-04")
    assert machine.caption(place | {"fake": "a test"}).startswith("MADE UP, no machine was timed")
    each = [{"busy_cores": 0.0}, {"busy_cores": 0.12}]
    alone = {"parameters": {"processes": machine.PROCESS_PER_CALL}}
    text = machine.caption(place | alone, [5], each)
    assert "a process for each method, other programs on 0.0 to 0.1 of 2 cores, 5 rounds" in text


@pytest.mark.parametrize(
    ("allocator", "words"),
    [
        ("glibc 2.36, default", ", glibc's default allocator"),
        ("glibc 2.36, MALLOC_MMAP_MAX_=0", ", glibc's allocator with MALLOC_MMAP_MAX_=0"),
        ("darwin, default", ", darwin's default allocator"),
        (None, ", allocator not recorded"),
    ],
)
def test_a_caption_says_which_allocator_in_words(allocator, words):
    place = {"allocator": allocator} if allocator else {}
    caption = machine.caption(place)
    assert caption.endswith(f"BLAS not recorded{words}")


def test_waiting_for_an_idle_machine(monkeypatch):
    busy = [1.5, 0.9, 0.1]
    monkeypatch.setattr(machine, "_measure_busy_cores", lambda seconds: busy.pop(0))
    assert machine.wait_until_idle(60) == 0.1
    busy += [1.5, 0.9]
    assert machine.wait_until_idle(0) == 1.5  # the time was up


def test_busy_cores_are_counted(monkeypatch):
    ticks = [(100, 1000), (150, 1200)]
    monkeypatch.setattr(machine, "_busy_and_total_ticks", lambda: ticks.pop(0))
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    assert machine._measure_busy_cores(0) == 2
    missing = Mock(side_effect=FileNotFoundError)
    monkeypatch.setattr(machine, "_busy_and_total_ticks", missing)
    monkeypatch.setattr("os.getloadavg", lambda: (3.5, 0, 0))
    assert machine._measure_busy_cores(0) == 3.5


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="the system has no /proc/stat")
def test_the_time_of_the_cores_is_read():
    busy, passed = machine._busy_and_total_ticks()
    assert 0 < busy < passed


def test_a_platform_without_page_faults(monkeypatch):
    monkeypatch.setattr(machine, "resource", None)
    result = measure({"a": int}, rounds=2)
    assert result.faults == {}
    assert result.rounds == 2


@pytest.mark.parametrize("device", ["mps", "gpu", "cpu:x", "cpu:1"])
def test_other_devices_are_refused(device):
    with pytest.raises(ValueError, match=f"device is '{device}'; choose cpu, c"):
        machine.check_device(device)


def test_a_gpu_that_is_not_there(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(ValueError, match=r"but torch .* finds no GPU: check .*; or choose another"):
        machine.check_device("cuda")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert machine.check_device("cuda:1") == "cuda:1"
    with pytest.raises(ValueError, match="device is 'cuda:2', but the last GPU here is cuda:1"):
        machine.check_device("cuda:2")


def test_provenance_is_plain_data():
    record = provenance("cpu", {"rounds": 3})
    assert json.loads(json.dumps(record)) == record
    assert (record["torch"], record["threads"]) == (torch.__version__, torch.get_num_threads())
    assert record["parameters"] == {"rounds": 3}
    result = measure({"a": lambda: torch.ones(9).sum()}, rounds=2)
    assert min(result.seconds["a"]) > 0
    assert f"\nMeasured on {machine.caption(result.provenance, [2])}." in result.to_text()
