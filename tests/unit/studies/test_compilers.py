"""The table of compilers, run for real, and held against what was recorded: who has changed, torch or we?"""

import builtins
import re

import pytest
import torch
from habits import habit_of
from torch.onnx._internal.exporter._errors import TorchExportError

from packviz import cli
from packviz.check import networks
from packviz.check.captures import first_line
from packviz.studies import compilers as relatives
from packviz.studies.compilers import ERROR, RIGHT, WRONG, Cell, CompilerPoint, Relatives

NAMES = tuple(networks.TAGGERS)


def survey(names, **options):
    return relatives.survey([CompilerPoint(name, way) for name in names for way in relatives.COMPILERS], **options)


@pytest.fixture(scope="module", params=[pytest.param(NAMES, marks=pytest.mark.slow)], ids=["all"])
def table(request):
    """The real table. The quick profile leaves it to notebook 13, which surveys all networks at every run."""
    return survey(request.param)


@habit_of(relatives.WRITTEN_FOR)
@pytest.mark.parametrize("way", relatives.COMPILERS)
def test_every_compiler_does_what_was_recorded(table, way):
    known = relatives.recorded()
    assert list(known.cells) == list(NAMES)
    for name in table.cells:
        found, expected = table.cells[name][way], known.cells[name][way]
        if not found.recorded:
            assert found == expected, f"torch {known.torch} did otherwise for {name}: {found.message}"


def test_errors_are_first_lines_without_paths():
    for said in relatives.recorded().errors:
        assert re.fullmatch(r"\w+: (?!\S*/\S*/).+", said)
        assert len(said) <= 150
    assert first_line(ValueError("in /a/b/c-d/net.py: \x1b[96mno\nmore")) == "ValueError: in net.py: no"
    assert len(first_line(ValueError("x" * 500))) == 150
    error = TorchExportError("step 1/3")
    error.__cause__ = TypeError("the cause")
    assert first_line(error) == "TypeError: the cause"


def fake():
    cells = {
        "padded": dict.fromkeys(relatives.COMPILERS, Cell(RIGHT)) | {"compile": Cell(RIGHT, compiled=2)},
        "<packed>": dict.fromkeys(relatives.COMPILERS, Cell(ERROR, "E: one")) | {"jit.trace": Cell(WRONG)},
    }
    values = {CompilerPoint(name, way): cell for name, row in cells.items() for way, cell in row.items()}
    return Relatives({"torch": "9.9+cpu"}, values)


def test_in_words():
    assert repr(fake()).splitlines() == [
        "          jit.trace  export   compile          compile, fullgraph  ONNX, legacy  ONNX, new",
        "padded    ✓ right    ✓ right  ✓ right, 2 of 5  ✓ right             ✓ right       ✓ right",
        "<packed>  ✗ WRONG    error 1  error 1          error 1             error 1       error 1",
        "",
        "right, WRONG: compiled with lengths [5, 5, 5], compared with the network itself on [5, 3, 1], [2, 5, 4],"
        " [4, 4, 4].",
        "n of 5: so many operators around the LSTM were compiled; the others run in Python, as without.",
        "torch 9.9. The text about this table was written for torch 2.13: where they differ, believe the table.",
        "1 error:",
        "error 1: E: one",
    ]


@pytest.mark.slow
def test_a_package_that_is_missing_leaves_recorded_cells(monkeypatch):
    real = builtins.__import__

    def without_onnxruntime(name, *rest):
        if name == "onnxruntime":
            raise ImportError("no such module", name=name)
        return real(name, *rest)

    names = ("padded", "Ragged")
    monkeypatch.setattr(builtins, "__import__", without_onnxruntime)
    table = survey(names)
    known = relatives.recorded()
    for name in names:
        assert table.cells[name]["ONNX, legacy"].outcome == known.cells[name]["ONNX, legacy"].outcome
        assert [way for way in relatives.COMPILERS if table.cells[name][way].recorded] == ["ONNX, legacy", "ONNX, new"]
    assert table.label("padded", "ONNX, new") == "✓ right*"
    assert f"* not run here (onnxruntime is not installed): recorded with torch {known.torch.split('+')[0]}." in repr(
        table
    )
    unknown = survey(names, record="there is no such file.json")
    assert unknown.cells["padded"]["ONNX, new"] == Cell(ERROR, "not run: onnxruntime is not installed")
    assert "Not run: ONNX, legacy, ONNX, new (onnxruntime is not installed)." in repr(unknown)


def test_it_is_quiet_and_leaves_things_as_they_were(capfd):
    state = torch.random.get_rng_state()
    survey(["packed, escaped"])
    said = capfd.readouterr()
    assert (said.out, said.err) == ("", "")
    assert torch.equal(torch.random.get_rng_state(), state)
    print("heard again")
    assert capfd.readouterr().out == "heard again\n"


def test_the_text_is_about_the_torch_that_was_recorded():
    assert not relatives.recorded().moved
    assert "believe the table" in fake().moved


def test_the_command(tmp_path, capsys):
    command = ["study", "compilers", "--quick", "--only", "padded, jit.trace", "--out", str(tmp_path / "table.json")]
    assert cli.main(command) == 0
    assert "✓ right" in capsys.readouterr().out
    assert [*relatives.STUDY.load(tmp_path / "table.json").values] == [CompilerPoint("padded", "jit.trace")]
    assert cli.main([*command, "--rounds", "3"]) == 2
    assert capsys.readouterr().err == "packviz: the study compilers does no timing, so --rounds does not apply\n"
