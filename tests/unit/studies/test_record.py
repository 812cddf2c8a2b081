"""`packviz bench record` and `packviz bench adopt`: a toy is recorded, with everything in between that may happen."""

import dataclasses
import itertools
import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from toys import Found, Point, contest

from packviz import cli
from packviz.bench import calibration
from packviz.bench.study import Contest, Study, timed
from packviz.ops import costs
from packviz.studies import adopt, exact, record
from packviz.studies.forum import sweep

ROOT = Path(__file__).parents[3]
FAKE = Path(__file__).parent / "recordings" / "benchmark_fake_cuda.json"


@pytest.fixture
def before(monkeypatch):
    """Two studies in place of those that are recorded; what is in `before` is called before each point."""
    before = []

    def measure(point, how):
        for call in before:
            call(point, how)
        return timed(contest(point), how)

    monkeypatch.setattr("os.getloadavg", lambda: (0.1, 0.1, 0.1), raising=False)
    made = {}
    for name, sizes in {"one": (1, 2, 3), "two": (4, 5)}.items():
        study = Study(name, Point, measure, Found, [*map(Point, sizes)], [Point(sizes[0])], {"rounds": 3})
        monkeypatch.setitem(sys.modules, f"toy_{name}", SimpleNamespace(STUDY=study))
        made[name] = (f"toy_{name}", 1.0)
    monkeypatch.setattr(record, "PARTS", made)
    monkeypatch.setattr(adopt, "PARTS", made)
    return before


@pytest.fixture
def said(tmp_path, monkeypatch, capsys):
    """Calls a command of `packviz bench` in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        status = cli.main(["bench", *map(str, arguments)])
        return status, *capsys.readouterr()

    return call


def there():
    """By file, the sizes of its points, in their order."""
    return {
        path.stem: [point["size"] for point in json.loads(path.read_text())["points"]]
        for path in sorted(Path("out").glob("*_*.json"))
    }


ALL = {"one_cpu": [1, 2, 3], "two_cpu": [4, 5]}


def at(size, happens):
    """Something that happens at a point."""

    def call(point, how):
        if point.size == size:
            happens()

    return call


def test_everything_is_recorded_in_order_and_once(before, said):
    status, out, error = said("record", "--out", "out")
    assert (status, there()) == (0, ALL)
    lines = error.splitlines()
    assert lines[0] == "out holds 0 points; 2 min left, about"
    assert lines[1:] == [f"{name}: size {size}: done" for name, size in zip(("one",) * 3 + ("two",) * 2, range(1, 6), strict=True)]  # fmt: skip  # noqa: E501
    assert out.splitlines()[:2] == ["one: 3 of 3 points", "two: 2 of 2 points"]
    files = {path.name: path.read_bytes() for path in Path("out").iterdir()}
    assert set(files) == {"one_cpu.json", "two_cpu.json", "record.json"}
    assert said("record", "--out", "out")[0] == 0  # nothing is measured again
    assert {path.name: path.read_bytes() for path in Path("out").iterdir()} == files


def test_a_busy_machine_is_warned_of(before, said, monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    monkeypatch.setattr("os.getloadavg", lambda: (3.6, 0, 0))
    assert "Something else runs here (load 3.6)" in said("record", "--out", "out", "--quick")[2]
    monkeypatch.setattr("os.getloadavg", lambda: (3.4, 0, 0))
    assert "Something else" not in said("record", "--out", "out2", "--quick")[2]


def test_parts_and_quick_points(before, said):
    assert said("record", "--out", "out", "--parts", "two", "--quick")[0] == 0
    assert there() == {"two_cpu": [4]}


def test_another_number_of_threads_has_files_of_its_own(before, said, monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    for threads in (1, 4):
        assert said("record", "--out", "out", "--quick", "--threads", threads)[0] == 0
    assert set(there()) == {"one_cpu", "one_cpu_4", "two_cpu", "two_cpu_4"}
    assert sweep.STUDY.file("cuda:1", 4) == "benchmark_cuda.json"


def test_a_point_that_fails_is_kept_apart_and_tried_again_last(before, said):
    before.append(at(2, lambda: 1 / 0))
    status, out, error = said("record", "--out", "out")
    assert (status, there()) == (1, {"one_cpu": [1, 3], "two_cpu": [4, 5]})
    assert "one: size 2: FAILED, ZeroDivisionError: division by zero\n" in error
    assert "failed: one: size 2: ZeroDivisionError" in out
    notes = json.loads(Path("out/record.json").read_text())
    assert "Traceback (most recent call last):" in notes["failed"]["one: size 2"]
    before.clear()
    Path("out/two_cpu.json").unlink()
    status, out, error = said("record", "--out", "out")
    assert (status, there()) == (0, {"one_cpu": [1, 3, 2], "two_cpu": [4, 5]})
    assert error.splitlines()[-1] == "one: size 2: done"
    assert json.loads(Path("out/record.json").read_text())["failed"] == {}


def test_who_was_left_out_of_a_point_is_said(before, said, monkeypatch):
    def differs(point, device):
        return Contest({"once": lambda: torch.ones(1), "twice": lambda: 2 * torch.ones(1)}, alike=("once", "twice"))

    study = Study(
        "one", Point, lambda point, how: timed(differs(point, how), how), Found, [Point(7)], [], {"rounds": 3}
    )
    monkeypatch.setitem(sys.modules, "toy_one", SimpleNamespace(STUDY=study))
    for folder in ("notebooks/recorded", "packviz/ops"):
        Path(folder).mkdir(parents=True)
    for out in (said("record", "--out", "out", "--parts", "one")[1], said("adopt", "out", "--check")[1]):
        assert "  left out: size 7, twice: 1 from once\n" in out


def test_a_device_that_answers_no_more_ends_it(before, said, monkeypatch):
    def lost(*given, **options):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    def crash():
        monkeypatch.setattr(torch, "ones", lost)
        lost()

    before.append(at(2, crash))
    status, out, error = said("record", "--out", "out")
    assert (status, there()) == (1, {"one_cpu": [1]})
    assert "does not answer any more" in error
    assert "The same command again goes on from here." in out


def test_ctrl_c_costs_one_step(before, said):
    before.append(at(4, lambda: signal.raise_signal(signal.SIGINT)))
    status, out, _ = said("record", "--out", "out")
    assert (status, there()) == (130, {"one_cpu": [1, 2, 3]})
    assert "two: 0 of 2 points" in out
    before.clear()
    assert said("record", "--out", "out")[0] == 0
    assert there() == ALL


def test_a_process_that_is_killed_costs_one_step_which_comes_last_then(before, said):
    class Killed(BaseException):
        pass

    def kill():
        raise Killed

    before.append(at(2, kill))
    with pytest.raises(Killed):
        said("record", "--out", "out")
    assert there() == {"one_cpu": [1]}
    before.clear()
    status, _, _ = said("record", "--out", "out")
    assert (status, there()) == (0, {"one_cpu": [1, 3, 2], "two_cpu": [4, 5]})


def recording(until, foreseen=1.0):
    """Both toys, by a clock that goes on by a second whenever somebody looks at it."""
    parts = [record._part(name, "cpu", 1, False, Path("out")) for name in record.PARTS]
    for part in parts:
        part.foreseen = foreseen * len(part.points)
    clock = itertools.count()
    return record.Recording(parts, record.Notes(Path("record.json")), "cpu", 1, until, lambda: next(clock))


def test_time_that_is_over_is_no_failure(before, said):
    def slow(point, how):
        if point.size == 2:
            assert any(how.stop() for _ in range(1000))

    before.append(slow)
    for until, measured in ((0, []), (40, [1])):
        Path("out").mkdir(exist_ok=True)
        one = recording(until)
        assert one.carry_out() == 0
        assert there().get("one_cpu", []) == measured
        assert (one.notes.begun, one.notes.failed) == ("", {})


def test_a_step_that_does_not_fit_waits_and_a_shorter_one_is_measured(before, said):
    Path("out").mkdir()
    one = recording(until=1000)
    one.parts[0].foreseen = 1e6
    assert one.carry_out() == 0
    assert one.parts[0].found is None
    assert len(one.parts[1].found.values) == 2


def test_the_seconds_of_steps_foretell_the_others(before, said):
    assert said("record", "--out", "out", "--parts", "one")[0] == 0
    part = record._part("one", "cpu", 1, False, Path("out"))
    notes = record.Notes.of(Path("out/record.json"))
    record.Recording([part], notes, "cpu", 1, 0)
    assert set(part.took) == {*map(Point, (1, 2, 3))}
    assert part.expects(Point(9)) == pytest.approx(sum(part.took.values()) / 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--device", "gpu"], "device is 'gpu'; choose cpu"),
        (["--threads", "9999"], "threads is 9999, more than the cores"),
        (["--out", "no/such/folder"], "cannot write no/such/folder: there is no folder no/such"),
    ],
)
def test_it_refuses_in_a_line(before, said, options, message):
    status, out, error = said("record", "--out", "out", *options)
    assert (status, out, error.count("\n")) == (2, "", 1)
    assert error.startswith(f"packviz: {message}")


def test_results_of_another_machine_are_not_mixed(before, said):
    assert said("record", "--out", "out", "--parts", "two")[0] == 0
    path = Path("out/two_cpu.json")
    data = json.loads(path.read_text())
    data["provenance"]["device_name"] = "abacus"
    path.write_text(json.dumps(data))
    status, out, error = said("record", "--out", "out")
    assert (status, out) == (2, "")
    assert error.startswith("packviz: out/two_cpu.json: the results there were measured otherwise: device abacus, not")
    assert not Path("out/one_cpu.json").exists()  # that was seen first


def test_auto_chooses_by_the_constants_of_this_machine_once_they_are_measured(before, said, monkeypatch):
    used = []
    monkeypatch.setattr(costs.Costs, "use", lambda self: used.append(self.provenance["parameters"]))
    monkeypatch.setattr(calibration, "SHAPES", ((2, 3, 4, 4, 1, 1),))
    points = [calibration.Point(mode, calibration.SHAPES[0]) for mode in calibration.MODES]
    study = dataclasses.replace(calibration.STUDY, full=points)
    monkeypatch.setitem(sys.modules, "toy_calibration", SimpleNamespace(STUDY=study))
    monkeypatch.setitem(record.PARTS, "calibration", ("toy_calibration", 1.0))
    assert said("record", "--out", "out", "--parts", "calibration", "one")[0] == 0
    assert used == [{"modes": list(calibration.MODES), "batches": 3}]


def test_every_part_is_a_study_of_its_name():
    for name, (module, minutes) in record.PARTS.items():
        study = __import__(module, fromlist=["STUDY"]).STUDY
        assert study.name == name
        assert minutes > 0
        assert study.full
        assert study.quick
        assert len({str(point) for point in study.full}) == len(study.full)


@pytest.mark.slow
def test_killed_at_any_moment_it_goes_on_where_it_was(tmp_path):
    command = [sys.executable, "-m", "packviz", "bench", "record", "--quick", "--parts", "helpers", "thumb", "savings"]
    command += ["--out", str(tmp_path / "out")]
    for i, sign in enumerate((signal.SIGKILL, signal.SIGINT, signal.SIGKILL, signal.SIGINT)):
        program = subprocess.Popen(command, cwd=ROOT)
        time.sleep(3 + i / 3)
        program.send_signal(sign)
        program.wait()
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == 0
    for name in ("helpers", "thumb", "savings"):
        study = __import__(f"packviz.studies.{name}", fromlist=["STUDY"]).STUDY
        assert {*study.load(tmp_path / "out" / f"{name}_cpu.json").values} == {*study.quick}


# Taken into a checkout.


@pytest.fixture
def checkout(before, said):
    """A recording beside the folders of a checkout, in which nothing is recorded."""
    for folder in ("notebooks/recorded", "packviz/ops"):
        Path(folder).mkdir(parents=True)
    assert said("record", "--out", "out")[0] == 0
    return Path("notebooks/recorded")


def test_adopting_puts_the_files_where_notebooks_look(checkout, said):
    status, out, error = said("adopt", "out", "--check")
    assert (status, error) == (0, "")
    assert out.endswith("Nothing was changed: one_cpu.json, two_cpu.json.\n")
    assert not [*checkout.iterdir()]
    status, out, _ = said("adopt", "out")
    assert status == 0
    assert "Nothing of the kind was recorded before." in out
    assert (checkout / "one_cpu.json").read_bytes() == Path("out/one_cpu.json").read_bytes()
    data = json.loads((checkout / "one_cpu.json").read_text())
    seconds = data["points"][1]["timing"]["seconds"]
    seconds["twice"] = [9 * s for s in seconds["once"]]
    (checkout / "one_cpu.json").write_text(json.dumps(data))
    out = said("adopt", "out")[1]
    assert "3 ratios, new over old" in out
    first = next(line for line in out.splitlines() if "→" in line and "size" in line)
    assert first.split()[:3] == ["size", "2,", "twice"]
    assert " 9 " in first


def change(path, **changes):
    data = json.loads(Path(path).read_text())
    for where, value in changes.items():
        data[where] = value(data[where])
    Path(path).write_text(json.dumps(data))


@pytest.mark.parametrize(
    ("place", "name"), [({"device": "cuda:1"}, "one_cuda.json"), ({"threads": 4}, "one_cpu_4.json")]
)
def test_the_name_says_what_it_was_measured_on(checkout, said, place, name):
    change("out/one_cpu.json", provenance=lambda provenance: provenance | place)
    assert said("adopt", "out")[0] == 0
    assert {path.name for path in checkout.iterdir()} == {name, "two_cpu.json"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": lambda v: 9}, "version 9; expected"),
        ({"packviz": lambda kind: "weather"}, "holds 'weather'; there are one, two"),
        ({"provenance": lambda p: {**p, "fake": "for a test"}}, r"is made up \(for a test\)"),
        ({"provenance": lambda p: {k: v for k, v in p.items() if k != "torch"}}, "its provenance has no torch"),
        ({"points": lambda points: [*points, {**points[0], "size": 77}]}, "holds other points.*size 77"),
        (
            {"points": lambda points: [{**p, "timing": {**p["timing"], "provenance": {}}} for p in points]},
            "at 3 points the results do not agree, or nobody looked: size 1; size 2; size 3",
        ),
    ],
)
def test_adopting_looks_at_everything_first(checkout, said, changes, message):
    change("out/one_cpu.json", **changes)
    status, out, error = said("adopt", "out")
    assert (status, out) == (2, "")
    assert re.search(message, error)
    assert not [*checkout.iterdir()]


def test_a_file_with_less_than_is_recorded_is_refused(checkout, said):
    assert said("adopt", "out")[0] == 0
    change("out/one_cpu.json", points=lambda points: points[:2])
    status, _, error = said("adopt", "out")
    assert status == 2
    assert "lacks 1 point of what is recorded now, such as size 3" in error


def test_an_invented_gpu_is_never_adopted_and_a_real_one_would_be(monkeypatch, said, tmp_path):
    for folder in ("notebooks/recorded", "packviz/ops", "out"):
        Path(folder).mkdir(parents=True)
    data = json.loads(FAKE.read_text())
    Path("out/benchmark_cuda.json").write_text(json.dumps(data))
    assert "is made up" in said("adopt", "out")[2]
    found = sweep.recorded("out/benchmark_cuda.json")
    monkeypatch.setattr(sweep, "STUDY", dataclasses.replace(sweep.STUDY, full=[*found.values]))
    change("out/benchmark_cuda.json", provenance=lambda p: {k: v for k, v in p.items() if k != "fake"} | {"python": "3", "system": "Linux"})  # fmt: skip  # noqa: E501
    status, out, error = said("adopt", "out")
    assert (status, error) == (0, "")
    assert "no such GPU (GPU, CUDA 0.0)" in out
    assert sweep.STUDY.load("benchmark_cuda.json").provenance["device"] == "cuda"
    change("out/benchmark_cuda.json", points=lambda points: [{**p, "difference": {}} for p in points])
    assert "nobody looked" in said("adopt", "out")[2]


def test_measured_constants_replace_those_of_the_library(monkeypatch, said, tmp_path):
    for folder in ("notebooks/recorded", "packviz/ops", "out"):
        Path(folder).mkdir(parents=True)
    monkeypatch.setattr(calibration, "SHAPES", ((2, 3, 4, 4, 1, 1),))
    points = [calibration.Point(mode, calibration.SHAPES[0]) for mode in calibration.MODES]
    monkeypatch.setattr(calibration, "STUDY", dataclasses.replace(calibration.STUDY, full=points))
    before = costs.in_force("cpu", 1)
    some = calibration.STUDY.run(points[:2])
    calibration.STUDY.save("out/calibration_cpu.json", some)
    assert "too few points for constants" in said("adopt", "out")[2]
    found = calibration.STUDY.run(points)
    calibration.STUDY.save("out/calibration_cpu.json", found)
    try:
        status, out, _ = said("adopt", "out")
    finally:
        before.use()
    assert status == 0
    assert "In place of measured constants. auto chooses otherwise at" in out
    assert costs.Costs.load("packviz/ops/costs_cpu_1.json").seconds == found.costs.seconds
    assert exact.STUDY.name in adopt.PARTS


def test_adopting_needs_a_checkout_and_files(said):
    assert "this is no checkout of packviz" in said("adopt", ".")[2]
    for folder in ("notebooks/recorded", "packviz/ops", "out"):
        Path(folder).mkdir(parents=True)
    assert "there is no result file in out" in said("adopt", "out")[2]
