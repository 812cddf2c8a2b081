"""Two real processes: their shares, their gradients, and that none outlives the call."""

import multiprocessing
import os
import re
import socket
import subprocess
import sys
import time
from itertools import pairwise

import psutil
import pytest
import torch
from drawings import ParsedSvg

from packviz.core import batches as buckets
from packviz.studies import workers

LENGTHS = [3, 8, 1, 6, 5, 2]


@pytest.fixture(scope="module", autouse=True)
def started():
    """Lists the workers. They are copies of a process that has imported torch, which takes most of their time."""
    processes = []

    def spawn(*given, **options):
        context = torch.multiprocessing.start_processes(
            *given, **options, start_method="forkserver"
        )
        processes.extend(context.processes)
        return context

    multiprocessing.set_forkserver_preload([workers.__name__])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workers, "spawn", spawn)
        yield processes


def have_ended(processes):
    """Whether these two workers have ended. Not even a zombie is left."""
    ended = [process.pid for process in processes if not psutil.pid_exists(process.pid)]
    processes.clear()
    return len(ended) == 2


@pytest.fixture(scope="module")
def found(started):
    result = workers.compare(LENGTHS, rounds=2)
    assert have_ended(started)
    return result


def test_shares(found):
    for strategy in buckets.SPLITS:
        shares = [[LENGTHS[i] for i in share] for share in buckets.split(LENGTHS, 2, strategy)]
        assert found.tokens(strategy) == [sum(share) for share in shares]
        assert found.steps(strategy) == [max(share) for share in shares]
        assert len(found.seconds(strategy)) == 2
        assert min(found.seconds(strategy)) > 0
    assert found.layout.lengths.tolist() == LENGTHS
    assert all(timing.rounds == 2 for timing in found.timings)


def test_the_gradients_are_those_of_a_loop_over_the_shares(found):
    """The same model and data in this process alone, the workers' gradients averaged by hand."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = workers._Model()
        x, y = torch.randn(6, 8, workers._INPUT), torch.randn(6, 8)

    def gradients(rows):
        own = [LENGTHS[i] for i in rows]
        losses = torch.cat([(model.linear(model.gru(x[i : i + 1, :n])[0])[0, :, 0] - y[i, :n]) ** 2 for i, n in
                            zip(rows, own, strict=True)])  # fmt: skip
        return torch.autograd.grad(losses.mean(), list(model.parameters()))

    wanted = gradients(range(6))
    for strategy, errors in found.errors.items():
        each = [gradients(share.tolist()) for share in buckets.split(LENGTHS, 2, strategy)]
        averaged = [(a + b) / 2 for a, b in zip(*each, strict=True)]
        error = workers.gradient_error(averaged, wanted)
        assert errors[workers.MEANS] == pytest.approx(error, rel=1e-3, abs=1e-6)
        assert errors[workers.WEIGHTED] < 1e-6
    means = [found.errors[strategy][workers.MEANS] for strategy in buckets.SPLITS]
    assert all(
        worse > better for worse, better in pairwise(means)
    )  # fairer shares, a better gradient
    assert means[0] > 1e-3


def test_in_words_and_as_a_chart(found):
    title, head, first, *lines = found.to_text().splitlines()
    assert title == "6 sequences, 25 tokens, workers: 2"
    assert head.split()[:3] == ["split", "tokens", "steps"]
    assert first.split()[:4] == ["contiguous", "19", "/", "6"]
    assert all(line.endswith("< 1e-06") for line in [first, *lines])
    assert re.search(r"Measured by each worker on .*, 1 thread, .*, 2 rounds", found.times())
    drawing = ParsedSvg(found.chart().to_svg())
    rows = [one.said for one in drawing.texts if ", worker " in one.said]
    assert rows == [f"{strategy}, worker {i}" for strategy in buckets.SPLITS for i in (0, 1)]
    assert {f"{own}" for strategy in buckets.SPLITS for own in found.tokens(strategy)} <= {
        *drawing.said()
    }


def test_a_worker_that_fails_ends_all(monkeypatch, started):
    monkeypatch.setattr(
        workers, "_batch", lambda lengths, count: [1]
    )  # nothing is left for the second
    with pytest.raises(RuntimeError, match=r"worker \d failed:\n(?s:.*)Error"):
        workers.compare([2, 1])
    assert have_ended(started)


def test_an_interrupt_ends_the_workers(monkeypatch, started):
    def interrupt(context):
        assert all(process.is_alive() for process in context.processes)
        raise KeyboardInterrupt

    monkeypatch.setattr(torch.multiprocessing.ProcessContext, "join", interrupt)
    with pytest.raises(KeyboardInterrupt):
        workers.compare([2, 1])
    assert have_ended(started)


def spawned():
    """Returns the workers below this process that were started as users start them, and have begun."""
    return [
        child for child in psutil.Process().children(recursive=True) if "spawn_main" in _line(child)
    ]


def _line(process):
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def test_workers_end_with_the_process_that_started_them():
    code = "from packviz.studies import workers; workers.compare([2, 1], rounds=10**9)"
    parent = subprocess.Popen([sys.executable, "-c", code])
    deadline = time.monotonic() + 300
    try:
        while len(started := spawned()) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        parent.kill()
        parent.wait()
    _, alive = psutil.wait_procs(started, timeout=300)
    assert not alive


@pytest.mark.parametrize(
    ("lengths", "options", "message"),
    [
        ([2, 0], {}, r"lengths\[1\] is 0"),
        ([2], {}, "workers is 2; give a whole number from 1 to 1, the number of sequences"),
        ([2, 1], {"workers": 1.5}, "workers is 1.5"),
        ([2, 1], {"device": "mps"}, "device is 'mps'; choose one of 'cpu', 'cuda'"),
        ([2, 1], {"device": "cuda"}, "a GPU for each of 2 workers, but torch finds 1"),
        ([2, 1], {"rounds": 0}, "rounds is 0; give a whole number of at least 1"),
        ([2, 1], {"timeout": -1}, "timeout is -1; give a number of seconds greater than 0"),
        ("nothing.csv", {}, r"cannot read nothing\.csv"),
    ],
)
def test_bad_input(lengths, options, message, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ValueError, match=message):
        workers.compare(lengths, **options)


@pytest.mark.slow
def test_a_worker_leaves_when_all_is_said(tmp_path):
    """On the way out of the interpreter gloo's threads abort one in four: that way is not taken."""
    (tmp_path / "lengths.csv").write_text("length\n3\n2\n")
    code = "import atexit; atexit.register(print, 'on the way out'); from packviz.studies.workers import main; main()"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    place = {
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
    }
    done = subprocess.run(
        [sys.executable, "-c", code, "--lengths", tmp_path / "lengths.csv", "--rounds", "1"],
        capture_output=True, text=True, check=True, env=os.environ | place,
    )  # fmt: skip
    assert "2 sequences, 5 tokens, workers: 1" in done.stdout
    assert "on the way out" not in done.stdout
