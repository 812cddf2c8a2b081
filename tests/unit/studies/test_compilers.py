"""The table of compilers, run for real, and held against what was recorded: who has changed, torch
or we?
"""

import re

import pytest
import torch
from habits import habit_of
from torch.onnx._internal.exporter._errors import TorchExportError

from packviz import cli
from packviz.check import models
from packviz.check.captures import first_line
from packviz.studies import compilers
from packviz.studies.compilers import ERROR, RIGHT, WRONG, CompilerPoint, Outcome, Outcomes

NAMES = tuple(models.TAGGERS)


@pytest.fixture(scope="module", params=[pytest.param(NAMES, marks=pytest.mark.slow)], ids=["all"])
def table(request):
    """The real table. The quick profile leaves it to notebook 13, which surveys all networks at
    every run.
    """
    return compilers.survey(*request.param)


@habit_of(compilers.WRITTEN_FOR)
@pytest.mark.parametrize("way", compilers.COMPILERS)
def test_every_compiler_does_what_was_recorded(table, way):
    known = compilers.recorded()
    assert list(known.cells) == list(NAMES)
    for name in table.cells:
        found, expected = table.cells[name][way], known.cells[name][way]
        assert found == expected, (
            f"torch {known.provenance['torch']} did otherwise for {name}: {found.message}"
        )


def test_errors_are_first_lines_without_paths():
    for said in compilers.recorded().errors:
        assert re.fullmatch(r"\w+: (?!\S*/\S*/).+", said)
        assert len(said) <= 150
    assert (
        first_line(ValueError("in /a/b/c-d/net.py: \x1b[96mno\nmore"))
        == "ValueError: in net.py: no"
    )
    assert len(first_line(ValueError("x" * 500))) == 150
    error = TorchExportError("step 1/3")
    error.__cause__ = TypeError("the cause")
    assert first_line(error) == "TypeError: the cause"


def fake():
    cells = {
        "padded": dict.fromkeys(compilers.COMPILERS, Outcome(RIGHT))
        | {"compile": Outcome(RIGHT, compiled=2)},
        "<packed>": dict.fromkeys(compilers.COMPILERS, Outcome(ERROR, "E: one"))
        | {"jit.trace": Outcome(WRONG)},
    }
    values = {
        CompilerPoint(name, way): cell for name, row in cells.items() for way, cell in row.items()
    }
    return Outcomes({"torch": "9.9+cpu"}, values)


def test_a_model_can_be_right_for_other_lengths_and_fixed_in_the_number_of_steps():
    points = [CompilerPoint(name, "export") for name in ("padded", "Ragged")]
    fixed, free = compilers.STUDY.run(points).values.values()
    assert (str(fixed), str(free)) == ("T fixed", "✓ right")
    assert fixed.outcome == RIGHT  # of what it takes


def test_a_model_that_does_not_exist_is_named():
    with pytest.raises(ValueError, match=r"'ragged'; choose one of .*'Ragged'"):
        compilers.survey("ragged")


def test_in_words():
    head, first, second, *_, folded, error = repr(fake()).splitlines()
    assert head.split("  ")[0] == ""
    assert first.count("✓ right") == 6
    assert "✓ right, 2 of 5" in first
    assert second.split()[:6] == ["<packed>", "✗", "WRONG", "error", "1", "error"]
    assert (folded, error) == ("1 error:", "error 1: E: one")


def test_it_is_quiet_and_leaves_things_as_they_were(capfd):
    state = torch.random.get_rng_state()
    compilers.survey("packed, escaped")
    said = capfd.readouterr()
    assert (said.out, said.err) == ("", "")
    assert torch.equal(torch.random.get_rng_state(), state)
    print("heard again")
    assert capfd.readouterr().out == "heard again\n"


def test_the_text_is_about_the_torch_that_was_recorded():
    assert not compilers.recorded().moved
    assert "trust the table" in fake().moved
    values = {
        CompilerPoint("padded", "ONNX, new"): Outcome(ERROR, "not run: onnx is not installed")
    }
    missing = Outcomes({"torch": f"{compilers.WRITTEN_FOR}.0"}, values)
    assert "Compilers whose package is not installed were not run." in missing.to_text()


def test_the_command(tmp_path, capsys):
    command = [
        "study",
        "compilers",
        "--quick",
        "--only",
        "padded, jit.trace",
        "--out",
        str(tmp_path / "table.json"),
    ]
    assert cli.main(command) == 0
    assert "✓ right" in capsys.readouterr().out
    assert [*compilers.STUDY.load(tmp_path / "table.json").values] == [
        CompilerPoint("padded", "jit.trace")
    ]
    assert cli.main([*command, "--rounds", "3"]) == 2
    assert (
        capsys.readouterr().err
        == "packviz: the study compilers does no timing, so --rounds does not apply\n"
    )
