"""Calls in child processes: they answer as calls in this process do, and what happens if they die."""

import os
import signal
from functools import partial

import pytest
import torch
import toys

from packviz.measure import children
from packviz.measure.children import Child, ChildError
from packviz.measure.study import Comparison
from packviz.measure.timing import LocalCall, stopwatch


def call_of(function):
    return LocalCall(function, stopwatch("cpu"), lambda: None)


def random_numbers():
    return torch.rand(3), [torch.rand(2, requires_grad=True) * 2]


def fail():
    raise RuntimeError("nothing works\ntoday")


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def allocate():
    torch.ones(2**24)  # so large a tensor always gets fresh pages


def where():
    return torch.tensor([os.getpid(), torch.get_num_threads()])


FUNCTIONS = (random_numbers, fail, die, allocate, where)


def make():
    """Returns all calls. A child process makes them, too."""
    return {function.__name__: call_of(function) for function in FUNCTIONS}


def test_children_agree_with_this_process_and_have_its_threads(two_threads):
    torch.manual_seed(0)
    expected = make()["random_numbers"].results()
    with children.children(make, ["random_numbers", "where"]) as calls:
        for ours, theirs in zip(calls["random_numbers"].results(), expected, strict=True):
            assert torch.equal(ours, theirs)
        pid, threads = calls["where"].results()[0].tolist()
        assert (pid == os.getpid(), threads) == (False, two_threads)
        assert calls["where"].results()[0][0] == pid  # the same process for every call
    assert all(not call._process.is_alive() for call in calls.values())


def test_a_child_measures_time_page_faults_and_memory():
    with children.children(make, ["allocate"]) as calls:
        seconds, faults = calls["allocate"].sample()
        assert seconds > 0
        assert faults > 100
        assert calls["allocate"].peak() == 4 * 2**24


def test_an_error_in_a_child_is_told_and_the_child_lives_on():
    with children.children(make, ["fail"]) as calls:
        for _ in range(2):
            with pytest.raises(ChildError, match="^RuntimeError: nothing works\ntoday$"):
                calls["fail"].sample()


def test_the_end_of_a_child_is_told():
    with children.children(make, ["die", "where"]) as calls:
        with pytest.raises(ChildError, match="the process of 'die' ended with exit status -9"):
            calls["die"].sample()
        assert calls["where"].results()  # the others are still there


def test_no_child_is_left_after_an_interrupt():
    started = []
    with pytest.raises(KeyboardInterrupt), children.children(make, ["where"]) as calls:
        started += calls.values()
        started[0].results()
        raise KeyboardInterrupt
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
    with pytest.raises(OSError, match="no more"), children.children(make, ["where", "die"]):
        pass
    assert not started[0]._process.is_alive()


def compared(names, alike, point, device):
    return Comparison({name: globals()[name] for name in names}, alike=alike)


def test_a_study_leaves_out_a_method_whose_process_fails():
    study = toys.study(partial(compared, ("where", "fail"), ("where", "fail")))
    timing = study.run(processes=True).timing(toys.Point(1))
    assert [*timing.seconds] == ["where"]
    assert timing.missing["fail"].endswith("RuntimeError: nothing works")
    with pytest.raises(ChildError, match="ended with exit status -9"):
        toys.study(partial(compared, ("die",), ("die",))).run(processes=True)


def test_a_study_times_each_method_in_a_process_of_its_own():
    study = toys.study(partial(compared, ("random_numbers", "allocate"), ()))
    results = study.run(processes=True)
    timing = results.timing(toys.Point(1))
    assert timing.rounds == 2
    assert timing.faults["allocate"] > 100
    assert results.provenance["parameters"]["processes"] == "one for each call"
    assert "a process for each method" in results.caption
