"""Two real processes: their shards, their gradients, and that none outlives the call."""

import multiprocessing
import re
from itertools import pairwise

import psutil
import pytest
import torch
from drawings import ParsedSvg

from packviz.core import batches as buckets
from packviz.studies import processes

LENGTHS = [3, 8, 1, 6, 5, 2]


@pytest.fixture(scope="module", autouse=True)
def started():
    """Lists the processes.

    They are copies of one that has imported torch, which takes most of their time.
    """
    everyone = []

    def spawn(function, task, count):
        context = torch.multiprocessing.start_processes(
            function, task, count, join=False, start_method="forkserver"
        )
        everyone.extend(process.pid for process in context.processes)
        while not context.join():
            pass

    multiprocessing.set_forkserver_preload([processes.__name__])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "spawn", spawn)
        yield everyone


def have_ended(pids):
    """Returns whether these two processes have ended."""
    ended = [pid for pid in pids if not psutil.pid_exists(pid)]
    pids.clear()
    return len(ended) == 2


@pytest.fixture(scope="module")
def shards(started):
    results = processes.compare(LENGTHS, rounds=2)
    assert have_ended(started)
    return results


def test_shards(shards):
    for strategy in buckets.SPLITS:
        expected = [[LENGTHS[i] for i in own] for own in buckets.split(LENGTHS, 2, strategy)]
        assert [n.tolist() for n in shards.lengths(strategy)] == expected
        assert shards.tokens(strategy) == [sum(own) for own in expected]
    assert shards.layout.lengths.tolist() == LENGTHS
    assert all(timing.rounds == 2 for timing in shards.timings)
    assert all(min(timing.seconds["snake"]) > 0 for timing in shards.timings)


def test_the_gradients_are_those_of_a_loop_over_the_shards(shards):
    """The same model and data in this process alone, with gradients averaged by hand."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = processes._Model()
        x, y = torch.randn(6, 8, processes._INPUT_SIZE), torch.randn(6, 8)

    def gradients(rows):
        losses = []
        for i in rows:
            n = LENGTHS[i]
            outputs = model.gru(x[i : i + 1, :n])[0]
            losses.append((model.linear(outputs)[0, :, 0] - y[i, :n]) ** 2)
        return torch.autograd.grad(torch.cat(losses).mean(), list(model.parameters()))

    expected = gradients(range(6))
    for strategy, errors in shards.errors.items():
        first, second = (gradients(own) for own in buckets.split(LENGTHS, 2, strategy))
        averaged = [(a + b) / 2 for a, b in zip(first, second, strict=True)]
        error = processes.gradient_error(averaged, expected)
        assert errors[processes.MEAN_OF_MEANS_LOSS] == pytest.approx(error, rel=1e-3, abs=1e-6)
        assert errors[processes.TOKEN_WEIGHTED_LOSS] < 1e-6
    means = [shards.errors[strategy][processes.MEAN_OF_MEANS_LOSS] for strategy in buckets.SPLITS]
    assert all(worse > better for worse, better in pairwise(means))  # fairer shards are better
    assert means[0] > 1e-3


def test_in_words_and_as_a_chart(shards):
    title, head, first, *lines = shards.to_text().splitlines()
    assert title == "6 sequences, 25 tokens, 2 processes"
    assert head.split()[:3] == ["split", "tokens", "steps"]
    assert first.split()[:4] == ["contiguous", "19", "/", "6"]
    assert all(line.endswith("< 1e-06") for line in [first, *lines])
    assert re.search(r"Measured by each process on .*, 1 thread, .*, 2 rounds", shards.times())
    drawing = ParsedSvg(shards.chart().to_svg())
    rows = [text.said for text in drawing.texts if ", rank " in text.said]
    assert rows == [f"{strategy}, rank {i}" for strategy in buckets.SPLITS for i in (0, 1)]


def test_a_process_that_fails_ends_all(monkeypatch, started):
    # This leaves rank 1 without data.
    monkeypatch.setattr(processes, "require_at_least", lambda name, value: 1)
    with pytest.raises(RuntimeError, match=r"rank \d failed:\n(?s:.*)Error"):
        processes.compare([2], rounds=1)
    assert have_ended(started)


@pytest.mark.parametrize(
    ("lengths", "options", "message"),
    [
        ([2, 0], {}, r"lengths\[1\] is 0"),
        ([2], {}, "processes is 2; give at most 1, the number of sequences"),
        ([2, 1], {"processes": 1.5}, "processes is 1.5"),
        ([2, 1], {"rounds": 0}, "rounds is 0; give a whole number of at least 1"),
    ],
)
def test_bad_input(lengths, options, message):
    with pytest.raises(ValueError, match=message):
        processes.compare(lengths, **options)
