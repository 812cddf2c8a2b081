"""Studies and their files, with a toy study whose calls do next to nothing."""

import json
import multiprocessing
import sys
from functools import partial

import pytest
import torch
import toys
from toys import Point

from packviz.measure import machine, provenance, rnn_calls
from packviz.measure.study import Comparison, Study, time_comparison
from packviz.ops import running
from packviz.ops.tolerance import rnn_may_use_tf32

seen = []


def calls(point, device):
    seen.append((point.size, torch.get_num_threads(), float(torch.rand(()))))
    return toys.calls(point, device)


STUDY = toys.study(calls)


@pytest.fixture(autouse=True)
def fresh():
    seen.clear()


# Running.


def test_a_run_measures_the_quick_points():
    results = STUDY.run(rounds=3)
    assert results.points == [Point(1)]
    timing = results.timing(Point(1))
    assert (timing.rounds, timing.warmup) == (3, 1)
    assert results.provenance["parameters"] == {"rounds": 3, "processes": "one"}
    assert timing.provenance["difference"] == {"twice": 0.0}
    assert {"date", "load_average"} <= timing.provenance.keys()
    assert timing.faults.keys() == timing.seconds.keys()
    assert f"{timing.faults['twice']:,} page fault" in results.to_text()
    assert results.ratio(Point(1), "once", "twice").rounds == 3
    with pytest.raises(
        ValueError, match=r"size 9 was not measured; choose one of \.points: size 1"
    ):
        results.timing(Point(9))


def test_a_budget_replaces_the_rounds():
    assert STUDY.run(budget=1e-9).timing(Point(1)).rounds == 6
    assert STUDY.run(budget=60).timing(Point(1)).rounds == 25


def test_threads_and_random_numbers_are_the_callers_again(two_threads):
    state = torch.random.get_rng_state()
    STUDY.run(threads=1)
    STUDY.run(threads=1)
    assert seen[0] == seen[1]  # the same random numbers every time
    assert seen[0][1] == 1
    assert torch.get_num_threads() == two_threads
    assert torch.equal(torch.random.get_rng_state(), state)


def test_results_that_differ_are_not_timed():
    def compared(**calls):
        return toys.study(lambda point, device: Comparison(calls, agreeing_calls=tuple(calls)))

    def failing():
        raise RuntimeError("cuDNN is not in the mood\nand more")

    def hungry():
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    right = torch.ones(2), [torch.ones(1)]
    wrong = torch.ones(2), [torch.ones(1) * 1.01]
    nothing = torch.ones(2), [torch.ones(1) * float("nan")]
    study = compared(
        hungry=hungry,  # the others are compared with the next one
        right=lambda: right,
        same=lambda: right,
        wrong=lambda: wrong,
        nothing=lambda: nothing,
        failing=failing,
    )
    results = study.run()
    timing = results.timing(Point(1))
    assert set(timing.seconds) == {"right", "same"}
    assert timing.missing == {
        "hungry": "out of memory",
        "wrong": "its results differ from those of 'right' by 0.01 of the largest value",
        "nothing": "its results differ from those of 'right' by inf of the largest value",
        "failing": "RuntimeError: cuDNN is not in the mood",
    }
    assert timing.provenance["difference"] == {"same": 0.0}
    assert (
        "✗ size 1, training, wrong: its results differ from those of 'right' by 0.01 of the "
        "largest value." in results.to_text()
    )
    with pytest.raises(ValueError, match="'wrong' was left out"):
        results.ratio(Point(1), "wrong", "right")
    with pytest.raises(RuntimeError, match="not in the mood"):  # nothing to compare the others with
        compared(failing=failing, right=lambda: right).run()


def test_tf32_is_off_while_results_are_compared_and_on_while_they_are_timed():
    modes = []

    def call():
        modes.append(rnn_may_use_tf32())
        return torch.ones(1)

    before = rnn_may_use_tf32()
    toys.study(
        lambda point, device: Comparison({"a": call, "b": call}, agreeing_calls=("a", "b"))
    ).run()
    assert modes == [False, False] + [before] * 6


def test_more_threads_than_cores_are_refused(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    with pytest.raises(ValueError, match="threads is 5; give at most 4"):
        STUDY.run(threads=5)


def test_a_pass_is_forward_alone_or_with_the_gradients():
    rnn, x = torch.nn.GRU(2, 3), torch.randn(4, 2, 2, requires_grad=True)
    n, leaves = torch.tensor([4, 2]), [x, *rnn.parameters()]
    output = rnn_calls.packed(rnn, x, n)[0]
    expected = [output, *torch.autograd.grad(output.sum(), leaves)]
    for method in (
        rnn_calls.packed,
        rnn_calls.packed_packviz_pad,
        rnn_calls.packed_packviz,
        running.run,
    ):
        call = partial(method, rnn, x, n)
        results = rnn_calls.make_pass(call, leaves)()
        for ours, theirs in zip(results, expected, strict=True):
            torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)
        assert x.grad is None
        forward = rnn_calls.make_pass(call, leaves, training=False)()
        assert not forward[0].requires_grad
    assert torch.equal(rnn_calls.packed(rnn, x, n, is_sorted=True)[0], output)
    with pytest.raises(RuntimeError, match="sorted"):
        rnn_calls.packed(rnn, x, n.flip(0), is_sorted=True)


def test_peak_memory_is_measured_with_the_usual_allocator_alone(monkeypatch):
    def make():
        return Comparison({"filled": lambda: torch.ones(1000)})

    assert time_comparison(make, "cpu", {"rounds": 6}, measure_memory=True).memory == {
        "filled": 4000
    }
    monkeypatch.setenv("MALLOC_MMAP_MAX_", "0")
    assert not time_comparison(make, "cpu", {"rounds": 6}, measure_memory=True).memory


# Progress.


def test_a_line_for_each_point_if_tqdm_is_not_installed(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    STUDY.record(None)
    assert capsys.readouterr().err == "size 2: done\nsize 3: done\n"


def test_a_run_is_silent_unless_asked(capsys):
    STUDY.run()
    assert capsys.readouterr().err == ""
    STUDY.run(progress=True)
    assert "size 1" in capsys.readouterr().err


# Files.


def test_a_file_keeps_everything_and_is_resumed(tmp_path):
    path = tmp_path / "toy.json"
    first = STUDY.record(path, [Point(2)])
    assert STUDY.load(path) == first
    assert STUDY.record(path).points == [Point(2), Point(3)]
    assert [size for size, *_ in seen] == [2, 3]
    head, row, _ = map(json.loads, path.read_text().splitlines())
    assert (head["packviz"], head["version"]) == ("toy", 2)
    assert [*row] == ["size", "training"]


def test_a_process_that_was_interrupted_leaves_complete_rows(tmp_path):
    path = tmp_path / "toy.json"
    STUDY.record(path)
    content = path.read_bytes()
    path.write_bytes(content[:-9])  # as if the process had ended while it wrote the last row
    assert STUDY.load(path).points == [Point(2)]
    assert STUDY.record(path).points == [Point(2), Point(3)]


def _record(path, sizes):
    points = [Point(size) for size in sizes]
    STUDY.record(path, points, progress=False, processes=False)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_two_processes_write_one_file_and_lose_nothing(tmp_path):
    path = tmp_path / "toy.json"
    context = multiprocessing.get_context("fork")
    sizes = [range(1, 30), range(30, 0, -1), range(20, 50)]
    processes = [context.Process(target=_record, args=(path, own)) for own in sizes]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 3
    results = STUDY.load(path)
    assert sorted(point.size for point in results.points) == [*range(1, 50)]
    assert all(results.timing(point).rounds == 2 for point in results.points)


WINDOWS = """
import multiprocessing, os, sys
sys.modules["fcntl"] = sys.modules["resource"] = None
del os.getloadavg
multiprocessing.get_all_start_methods = lambda: ["spawn"]
from packviz.studies import forum
results = forum.STUDY.record(sys.argv[1], forum.grid("A", [2], 3), rounds=1, progress=False)
print(results)
"""


def test_a_study_needs_nothing_that_windows_lacks(fork, tmp_path):
    run = fork(WINDOWS, tmp_path / "mine.json")
    assert run.returncode == 0, run.stderr
    assert "equal, 3 × 2, training" in run.stdout


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ({"device_name": "abacus"}, "device_name abacus, not "),
        ({"threads": 9}, "threads 9, not 1"),
        ({"blas": "abacus"}, "blas abacus, not "),
        ({"environment": {"MALLOC_MMAP_MAX_": "0"}}, "environment {'MALLOC_MMAP_MAX_': '0'}, not"),
        ({"parameters": {"rounds": 5}}, "rounds 5, not 2"),
        ({"date": "2020-01-01T00:00:00+00:00", "load_average": [9, 9, 9], "cores": 99}, ""),
    ],
)
def test_a_file_from_other_conditions_is_refused(tmp_path, change, difference):
    path = tmp_path / "toy.json"
    STUDY.record(path, [Point(2)])
    head, *rows = path.read_text().splitlines(keepends=True)
    data = json.loads(head)
    data["provenance"].update(change)
    path.write_text("".join([json.dumps(data) + "\n", *rows]))
    if not difference:
        assert STUDY.record(path).points == [Point(2), Point(3)]
        return
    with pytest.raises(ValueError, match="which was measured under different conditions") as error:
        STUDY.record(path)
    assert difference in str(error.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not a result file, or is damaged"),
        ("[1]\n", "is not a result file, or is damaged"),
        ('{"packviz": "toy", "version": 2}\n', "toy.json is not a result file, or is damaged"),
        ("\udcff\n", "toy.json is not a result file, or is damaged"),
        (
            '{"packviz": "toy", "version": 1, "provenance": {}}\n',
            "contains results of 'toy', version 1, not of 'toy', version 2",
        ),
        (
            '{"packviz": "other", "version": 2, "provenance": {}}\n',
            "contains results of 'other', version 2, not of 'toy', version 2",
        ),
        (
            '{"packviz": "toy", "version": 2, "provenance": {}}\n{"length": 3}\n',
            "is damaged: a row has no 'size'",
        ),
    ],
)
def test_a_damaged_file(tmp_path, content, message):
    path = tmp_path / "toy.json"
    path.write_text(content, errors="surrogateescape")
    with pytest.raises(ValueError, match=message):
        STUDY.load(path)


def test_what_json_cannot_hold_is_not_written(tmp_path):
    path = tmp_path / "toy.json"
    bad = Study(
        "toy",
        Point,
        lambda point, device, settings: {},
        toys.Results,
        write=lambda value: {"x": 1e999},
    )
    with pytest.raises(ValueError, match="JSON"):
        bad.record(path, [Point(1)], progress=False)
    assert not path.exists()


def test_files_are_found_from_any_folder_of_the_checkout(tmp_path, monkeypatch):
    folder = tmp_path / "notebooks" / "recorded"
    folder.mkdir(parents=True)
    STUDY.record(folder / "toy_cpu.json", [Point(2)])
    for here in (tmp_path, tmp_path / "notebooks", folder):
        monkeypatch.chdir(here)
        assert STUDY.load().points == [Point(2)]
        assert [*STUDY.recordings()] == ["CPU"]
    with pytest.raises(ValueError, match=r"there is no result file 'b\.json'; give its path"):
        STUDY.load("b.json")


def test_recordings_are_named_by_their_machine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (folder := tmp_path / "recorded").mkdir()

    def record(name, **place):
        head = {"packviz": "toy", "version": 2, "provenance": place}
        (folder / f"toy_{name}.json").write_text(json.dumps(head) + "\n")

    record("b", device="cpu", threads=4, device_name="a CPU")
    record("c", device="cpu", device_name="a CPU")
    assert "no GPU results have been recorded" in STUDY.without_gpu()
    record("a", device="cuda:1", device_name="a GPU")
    assert STUDY.without_gpu() == ""
    assert list(STUDY.recordings()) == ["CPU", "CPU, 4 threads", "GPU"]
    record("d", device="cuda", device_name="another")
    assert [name[:5] for name in STUDY.recordings()] == ["toy_c", "toy_b", "toy_a", "toy_d"]


def test_the_provenance_names_what_a_time_depends_on(monkeypatch):
    monkeypatch.setattr("platform.libc_ver", lambda: ("glibc", "9.9"))
    for name in machine.ALLOCATOR_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert provenance()["allocator"] == "glibc 9.9, default"
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "7")
    monkeypatch.setenv("LD_PRELOAD", "")
    place = provenance()
    assert place["allocator"] == "glibc 9.9, MALLOC_TRIM_THRESHOLD_=7"
    assert place["environment"]["OMP_NUM_THREADS"] == "3"
    assert {"blas", "threads", "torch", "cpu"} <= place.keys()
