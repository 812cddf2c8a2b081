"""`tools/record.py`: it copies complete results, resumes, and stops in time."""

import json
import signal
import sys
from pathlib import Path

import pytest
import record

from packviz.studies.command import STUDY_DESCRIPTIONS

RECORDED = Path(__file__).parents[3] / "notebooks" / "recorded"


@pytest.fixture
def main(tmp_path, monkeypatch):
    """The command, for a checkout in which nothing is recorded."""
    (tmp_path / "notebooks" / "recorded").mkdir(parents=True)
    monkeypatch.setattr(record, "ROOT", tmp_path)

    def run(*options):
        monkeypatch.setattr(sys, "argv", ["record.py", "--out", str(tmp_path / "out"), *options])
        return record.main(), sorted((tmp_path / "notebooks" / "recorded").iterdir())

    return run


def test_every_study_exists_and_every_recorded_file_has_a_study():
    assert {study for study, *_ in record.STUDIES.values()} <= {*STUDY_DESCRIPTIONS}
    recorded = {path.stem.rpartition("_cpu")[0] for path in RECORDED.glob("*_cpu*.json")}
    assert recorded <= {*record.STUDIES}


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_order_and_who_changes_the_allocator(main, monkeypatch, device):
    seen = []
    monkeypatch.setattr(record, "record", lambda *given: seen.append(given))
    main("--device", device)
    commands = [" ".join(command) for command, *_ in seen]
    on_gpu = device == "cuda"
    assert ("tests/device" in commands[0]) == on_gpu
    assert "study benchmark --out" in commands[on_gpu]
    changed = [variables for _, variables, _ in seen if variables]
    assert changed == ([] if on_gpu else [*record.VARIABLES.values()])


@pytest.mark.parametrize(("status", "copies"), [("0", 1), ("2", 0)])
def test_only_complete_results_are_copied(main, tmp_path, monkeypatch, status, copies):
    (tmp_path / "packviz").mkdir()
    (tmp_path / "packviz" / "__main__.py").write_text(
        "import json, pathlib, sys\n"
        "arguments = sys.argv[1:]\n"
        "path = pathlib.Path(arguments[arguments.index('--out') + 1])\n"
        f"path.write_text(json.dumps(arguments))\nsys.exit({status})\n"
    )
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setattr(record, "EXACT", ("-c", "print('exact')"))
    code, paths = main("--studies", "untuned", "--device", "cuda:1")
    assert (code, len(paths)) == (int(status != "0"), copies)
    given = json.loads((tmp_path / "out" / "untuned_cuda.json").read_text())
    assert given[:6] == ["study", "methods", "--points", "untuned", "--budget", "1"]
    assert given[-6:] == ["--device", "cuda:1", "--threads", "1", "--wait", "60"]


def test_a_study_that_takes_too_long_is_interrupted(main, tmp_path, monkeypatch, capfd):
    (tmp_path / "packviz").mkdir()
    (tmp_path / "packviz" / "__init__.py").touch()
    (tmp_path / "packviz" / "__main__.py").write_text("import time\ntime.sleep(600)\n")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in the background of a shell's script
    assert main("--studies", "parts", "--minutes", "0.01") == (0, [])
    assert "parts_cpu.json: not complete" in capfd.readouterr().out
