"""Calls in child processes: they do what calls in this process do, and their ends are told."""

import multiprocessing
import os
import re
import signal
from functools import partial

import pytest
import torch
import toys

from packviz.measure import children
from packviz.measure.children import Child, ChildError
from packviz.measure.study import Comparison
from packviz.measure.timing import make_stopwatch, time_call


def call_of(function):
    return partial(time_call, function, make_stopwatch("cpu"), lambda: None)


def random_numbers():
    return torch.rand(3)


def fail():
    raise RuntimeError(f"{os.getpid()} {torch.get_num_threads()} {random_numbers().tolist()}")


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def allocate():
    torch.ones(2**24)  # so large a tensor always gets fresh pages


FUNCTIONS = (random_numbers, fail, die, allocate)


def make():
    """Returns all calls. A child process makes them, too."""
    return {function.__name__: call_of(function) for function in FUNCTIONS}


def test_a_child_measures_time_and_page_faults():
    with children.start_children(make, ["allocate", "random_numbers"]) as calls:
        seconds, faults = calls["allocate"]()
        assert seconds > 0
        for _ in range(2):
            few = calls["random_numbers"]()[1]
        assert faults > 100 * (few + 1)
    assert not any(call._process.is_alive() for call in calls.values())


def test_children_have_the_threads_and_random_numbers_of_this_process(two_threads):
    torch.manual_seed(0)
    with children.start_children(make, ["fail"]) as calls:
        pids = set()
        for _ in range(2):  # a child lives on after an error
            error = re.escape(f" {two_threads} {random_numbers().tolist()}")
            pattern = f"^the process of 'fail' raised RuntimeError: (\\d+){error}$"
            with pytest.raises(ChildError, match=pattern) as caught:
                calls["fail"]()
            pids.add(int(re.match(pattern, str(caught.value))[1]))
    assert len(pids) == 1
    assert os.getpid() not in pids


def test_the_end_of_a_child_is_told():
    with children.start_children(make, ["die", "allocate"]) as calls:
        with pytest.raises(ChildError, match="the process of 'die' ended with exit status -9"):
            calls["die"]()
        assert calls["allocate"]()  # the others are still there


def interrupted(started):
    with children.start_children(make, ["allocate"]) as calls:
        started += calls.values()
        started[0]()
        raise KeyboardInterrupt


def test_no_child_is_left_after_an_interrupt():
    started = []
    with pytest.raises(KeyboardInterrupt):
        interrupted(started)
    assert not started[0]._process.is_alive()


def test_a_child_that_cannot_be_started_leaves_no_other(monkeypatch):
    started = []

    class Second(Child):
        def __init__(self, make, name):
            if started:
                raise OSError("no more processes")
            super().__init__(make, name)
            started.append(self)

    monkeypatch.setattr(children, "Child", Second)
    with (
        pytest.raises(OSError, match="no more"),
        children.start_children(make, ["allocate", "die"]),
    ):
        pass
    assert not started[0]._process.is_alive()


def two_ways(point, device):
    return Comparison({"allocate": allocate, "random": random_numbers})


def test_a_study_times_each_method_in_a_process_of_its_own():
    results = toys.study(two_ways).run(processes=True)
    timing = results.timing(toys.Point(1))
    assert timing.rounds == 2
    assert timing.faults["allocate"] > 100
    assert results.provenance["parameters"]["processes"] == "one for each call"
    assert "a process for each method" in results.caption
    here = toys.study(two_ways).run()
    assert here.provenance["parameters"]["processes"] == "one"


def test_a_study_stops_if_a_child_dies():
    """The calls are compared in this process, so only the child dies."""
    study = toys.study(dies_in_a_child)
    with pytest.raises(ChildError, match="the process of 'b' ended with exit status -9"):
        study.run(processes=True)
    assert study.run().timing(toys.Point(1)).rounds == 2


def die_in_a_child():
    if multiprocessing.parent_process():
        die()


def dies_in_a_child(point, device):
    return Comparison({"a": random_numbers, "b": die_in_a_child})
