"""Studies and their command, with a toy study whose calls do next to nothing."""

import dataclasses
import importlib
import json
import re

import pytest
import torch
import toys
from toys import Found, Point

from packviz import cli
from packviz.measure import provenance, rnn_calls
from packviz.measure import study as form
from packviz.measure.study import Comparison
from packviz.measure.timing import Timing
from packviz.ops.agreement import multiplies_in_tf32
from packviz.studies import savings

seen = []


def calls(point, device):
    seen.append((point.size, torch.get_num_threads(), float(torch.rand(()))))
    return toys.calls(point, device)


STUDY = toys.study(calls)


@pytest.fixture(autouse=True)
def fresh():
    seen.clear()


def steps(points=STUDY.full, study=STUDY, **given):
    return [*study.steps(points, **{"parameters": {"rounds": 2}} | given)]


# Running.


def test_results_grow_point_by_point():
    assert [[*found.values] for found in steps()] == [[], [Point(2)], [Point(2), Point(3)]]
    found = STUDY.run(rounds=3)
    assert found.points == [Point(1)]
    timing = found.values[Point(1)]
    assert (timing.rounds, timing.warmup) == (3, 1)
    assert found.provenance["parameters"] == {"rounds": 3}
    assert (
        {"date", "load_average", "page_faults_per_round", "difference"}
        >= set(timing.provenance)
        >= {"date"}
    )
    assert timing.provenance["difference"] == {"twice": 0.0}
    assert found.ratio(Point(1), "once", "twice").rounds == 3


def test_threads_and_random_numbers_are_the_callers_again(two_threads):
    state = torch.random.get_rng_state()
    steps(threads=1)
    first = list(seen)
    steps(threads=1)
    assert seen[2:] == first  # the same numbers every time
    assert {some[1] for some in seen} == {1}
    with pytest.raises(ZeroDivisionError):
        steps(stop=lambda: 1 // 0)
    assert torch.get_num_threads() == two_threads
    assert torch.equal(torch.random.get_rng_state(), state)


def test_what_does_not_agree_is_not_timed():
    def of(**calls):
        return toys.study(lambda point, device: Comparison(calls, alike=tuple(calls)))

    def failing():
        raise RuntimeError("cuDNN is not in the mood\nand more")

    right = torch.ones(2), [torch.ones(1)]
    wrong = torch.ones(2), [torch.ones(1) * 1.01]
    nothing = torch.ones(2), [torch.ones(1) * float("nan")]
    study = of(
        right=lambda: right,
        same=lambda: right,
        wrong=lambda: wrong,
        nothing=lambda: nothing,
        failing=failing,
    )
    *_, found = steps(study=study)
    timing = found.values[Point(3)]
    assert set(timing.seconds) == {"right", "same"}
    assert timing.missing == {
        "wrong": "0.01 from right",
        "nothing": "inf from right",
        "failing": "RuntimeError: cuDNN is not in the mood",
    }
    assert timing.provenance["difference"] == {"same": 0.0}
    assert "✗ wrong was left out: 0.01 from right" in timing.to_text()
    assert Timing.from_dict(json.loads(json.dumps(dataclasses.asdict(timing)))) == timing
    with pytest.raises(ValueError, match="wrong was left out"):
        found.ratio(Point(3), "wrong", "right")
    with pytest.raises(RuntimeError, match="not in the mood"):  # nothing to compare the others with
        steps(study=of(failing=failing, right=lambda: right))


def test_tf32_is_off_while_results_are_compared_and_on_while_they_are_timed():
    seen = []

    def call():
        seen.append(multiplies_in_tf32())
        return torch.ones(1)

    before = multiplies_in_tf32()
    steps(
        [Point(1)],
        toys.study(lambda point, device: Comparison({"a": call, "b": call}, alike=("a", "b"))),
    )
    assert seen == [False, False] + [before] * 6


def test_a_budget_buys_rounds():
    assert STUDY.run(budget=1e-9).values[Point(1)].rounds == 6
    assert STUDY.run(budget=60).values[Point(1)].rounds == 25


def test_it_resumes_from_what_is_there():
    half = steps([Point(2)])[-1]
    seen.clear()
    told = []
    first, *_, last = steps(
        [Point(2), Point(3), Point(4)], start=half, progress=lambda *at: told.append(at)
    )
    assert first is half
    shares = [
        0,
        1,
        2,
        3,
        3,
        4,
        5,
        6,
    ]  # of two points, each with a round of warm-up and two that count
    assert [round(6 * share, 6) for share, _ in told] == shares
    assert (told[0][1], told[-1][1]) == ("point 1 of 2 (size 3)", "point 2 of 2 (size 4)")
    assert [size for size, *_ in seen] == [3, 4]
    assert last.values[Point(2)] is half.values[Point(2)]
    with pytest.raises(ValueError, match=r"under different conditions \(rounds 2, not 5\)"):
        steps(start=half, parameters={"rounds": 5})
    elsewhere = dataclasses.replace(
        half, provenance={**half.provenance, "device_name": "abacus", "threads": 9}
    )
    with pytest.raises(ValueError, match=r"device abacus, not .*; threads 9, not 1\)"):
        steps(start=elsewhere)
    later = {"date": "2020-01-01T00:00:00+00:00", "load_average": [9, 9, 9]}
    assert len(steps(start=dataclasses.replace(half, provenance={**half.provenance, **later}))) == 2


def test_results_of_different_machines_are_told_apart():
    here = provenance()
    assert form.differences(here, provenance()) == []
    changes = {"torch": "another", "onednn": "off", "environment": {"OMP_NUM_THREADS": "99"}}
    for name, value in (changes | {"allocator": {"library": "jemalloc"}}).items():
        (first, *_) = form.differences(here | {name: value}, here)
        assert re.match(rf"{name}.* (another|off|99|jemalloc), not ", first) or name == "allocator"


def test_on_a_gpu_it_resumes_on_another_machine_of_the_same_kind():
    here = {
        "device": "cuda",
        "device_name": "H9",
        "cpu": "Z",
        "tf32": True,
        "driver": "1",
        "cores": 8,
        "cudnn": 9,
    }
    here |= {
        "allocator": {"library": "glibc", "environment": {}, "mallopt": {}},
        "parameters": {"rounds": 3},
    }
    there = here | {
        "device": "cuda:1",
        "driver": "2",
        "cores": 16,
        "environment": {"OMP_NUM_THREADS": "4"},
    }
    there |= {
        "allocator": {"library": "musl", "environment": {"MALLOC_ARENA_MAX": "1"}},
        "device_memory": 1,
    }
    assert form.differences(here, there) == []
    others = {
        "tf32": False,
        "device_name": "H8",
        "cudnn": 8,
        "cpu": "Y",
        "parameters": {"rounds": 4},
    }
    others["allocator"] = {"environment": {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}}
    for name, value in others.items():
        assert len(form.differences(here, there | {name: value})) == 1
    assert len(form.differences(here | {"device": "cpu"}, there | {"device": "cpu"})) > 4
    kept = form.without_place(Timing({}, provenance=here | {"date": "today"})).provenance
    assert kept == {"date": "today", "driver": "1", "cores": 8, "parameters": {"rounds": 3}}


def test_what_cannot_be(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    with pytest.raises(
        ValueError, match="threads is 5; this machine has 4 cores, so give at most 4"
    ):
        steps(threads=5)


def test_a_pass_is_forward_alone_or_with_the_gradients():
    rnn, x = torch.nn.GRU(2, 3), torch.randn(4, 2, 2, requires_grad=True)
    n, leaves = torch.tensor([4, 2]), [x, *rnn.parameters()]
    output = rnn_calls.packed(rnn, x, n)[0]
    wanted = [output, *torch.autograd.grad(output.sum(), leaves)]
    for method in (rnn_calls.packed, rnn_calls.own_pad, rnn_calls.drop_in, rnn_calls.run):
        found = rnn_calls.one_pass(lambda: method(rnn, x, n), leaves)()
        for ours, theirs in zip(found, wanted, strict=True):
            torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)
        assert x.grad is None
        assert not rnn_calls.one_pass(lambda: method(rnn, x, n), leaves, training=False)()[
            0
        ].requires_grad
    assert torch.equal(rnn_calls.packed(rnn, x, n, in_order=True)[0], output)
    with pytest.raises(RuntimeError, match="sorted"):
        rnn_calls.packed(rnn, x, n.flip(0), in_order=True)


# Files.


def test_a_file_keeps_everything(tmp_path):
    found = STUDY.run()
    STUDY.save(tmp_path / "toy.json", found)
    again = STUDY.load(tmp_path / "toy.json")
    assert again == found
    assert isinstance(again, Found)
    data = json.loads((tmp_path / "toy.json").read_text())
    assert (data["packviz"], data["version"]) == ("toy", 2)
    assert list(data["points"][0]) == ["size", "shape", "timing"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: data.pop("points"), "is damaged: it has no 'points'"),
        (
            lambda data: data["points"].append(data["points"][0]),
            "is damaged: it contains the same point twice",
        ),
    ],
)
def test_a_damaged_file(tmp_path, change, said):
    path = tmp_path / "toy.json"
    STUDY.save(path, STUDY.run())
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    with pytest.raises(ValueError, match=re.escape(said)):
        STUDY.load(path)


# The command.


def said(arguments, capsys):
    return cli.main(["study", *map(str, arguments)]), *capsys.readouterr()


@pytest.fixture
def command(monkeypatch):
    """Has `packviz study savings` run the toy."""
    monkeypatch.setattr(savings, "STUDY", STUDY)


def test_the_command_writes_the_file_and_resumes(command, tmp_path, capsys):
    path = tmp_path / "toy.json"
    status, out, error = said(["savings", "--out", path, "--only", "size 3"], capsys)
    assert (status, out, error) == (0, "found: size 3\n", "size 3: done\n")
    status, out, error = said(["savings", "--out", path], capsys)
    assert (status, out) == (0, "found: size 3, size 2\n")
    assert error == "size 2: done\n"
    assert [*STUDY.load(path).values] == [Point(3), Point(2)]
    status, out, error = said(["savings", "--out", path, "--rounds", "7"], capsys)
    assert (status, out) == (2, "")
    assert error.startswith(
        "packviz: cannot resume from results that were measured under different conditions"
    )
    options = ["--points", "more", "--budget", "1e-9", "--threads", "1", "--device", "cpu"]
    assert said(["savings", "--out", tmp_path / "more.json", *options], capsys)[0] == 0
    found = STUDY.load(tmp_path / "more.json")
    assert found.points == [Point(9)]
    assert (found.provenance["threads"], found.provenance["parameters"]) == (1, {"budget": 1e-9})
    with pytest.raises(
        ValueError, match="the study toy does no timing, so --rounds does not apply"
    ):
        dataclasses.replace(STUDY, parameters={}).run(rounds=3)


@pytest.mark.parametrize("name", [module for module in cli.STUDIES if "calibration" not in module])
def test_every_study_has_points_a_file_and_a_name_for_each(name):
    study = importlib.import_module(name).STUDY
    name = name.rpartition(".")[2].removesuffix("_benchmark")
    assert study.name == name
    for points in (study.full, study.quick):
        assert points
        assert len({str(point) for point in points}) == len(points)
    found = study.load()
    assert [*found.values] == list(study.full)
    assert f"{name}_cpu.json" in study.available()
    assert found.to_text()
    assert {"cpu", "torch", "threads", "allocator", "date", "parameters", "load_average"} <= set(
        found.provenance
    )
    for timing in found.timings:
        assert timing.rounds
        assert not timing.stopped
        assert {"date", "load_average"} <= set(timing.provenance)
