"""The table of compilers, run for real, and held against what torch did before: who has changed,
torch or we?
"""

import re

import pytest
import torch
from habits import habit_of
from torch.onnx._internal.exporter._errors import TorchExportError

from packviz.check import models
from packviz.check.captures import first_line
from packviz.studies import compilers
from packviz.studies.compilers import Outcome, Outcomes

BEFORE = {
    "padded": ["✓ right", "T fixed", "✓ right, 2 of 5", "error", "✓ right", "T fixed"],
    "packed, padded again": ["✓ right", "error", "✓ right, 2 of 5", "error", "✓ right", "error"],
    "… no total_length": ["✓ right", "error", "✓ right, 2 of 5", "error", "✗ WRONG", "error"],
    "maximum, padded with −inf": [
        *("✓ right", "error", "✓ right, 2 of 5", "error", "✗ WRONG", "error")
    ],
    "maximum, masked": ["✓ right", "error", "✓ right, 2 of 5", "error", "✓ right", "error"],
    "packed, escaped": ["✓ right", "error", "✓ right, 2 of 5", "error", "error", "error"],
    "packed if ragged": ["✗ WRONG", "error", "✓ right, 2 of 5", "error", "✗ WRONG", "error"],
    "only pack disabled": ["✓ right", "error", "✓ right, 2 of 5", "error", "✓ right", "error"],
    "disabled island": ["✓ right", "error", "✓ right, 5 of 5", "error", "✓ right", "error"],
    "Ragged": ["✓ right", "✓ right", "✓ right, 5 of 5", "✓ right, 5 of 5", "✓ right", "✓ right"],
}
"""What torch did when the page was written, by network, in the order of the compilers."""


@pytest.fixture(scope="module", params=[pytest.param(BEFORE, marks=pytest.mark.slow)], ids=["all"])
def table(request):
    """The real table. The quick profile leaves it to notebook 13, which surveys all networks at
    every run.
    """
    return compilers.survey(*request.param)


@habit_of(compilers.WRITTEN_FOR)
@pytest.mark.parametrize("name", models.TAGGERS)
def test_every_compiler_does_what_it_did_before(table, name):
    row = table.cells[name]
    assert [*row] == [*compilers.COMPILERS]
    assert [str(outcome) for outcome in row.values()] == BEFORE[name]
    for outcome in row.values():
        is_error = outcome.outcome == "error"
        assert bool(re.fullmatch(r"\w+: (?!\S*/\S*/).{,140}", outcome.message)) == is_error


def test_errors_are_first_lines_without_paths():
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
        "padded": dict.fromkeys(compilers.COMPILERS, Outcome("right"))
        | {"compile": Outcome("right", compiled=2)},
        "<packed>": dict.fromkeys(compilers.COMPILERS, Outcome("error", "E: one"))
        | {"jit.trace": Outcome("WRONG"), "export": Outcome("error", "E: two")},
    }
    return Outcomes(cells)


def test_a_model_that_does_not_exist_is_named():
    with pytest.raises(ValueError, match=r"'ragged'; choose one of .*'Ragged'"):
        compilers.survey("ragged")


def test_in_words():
    head, first, second, *_, folded, error, last = repr(fake()).splitlines()
    assert head.split("  ")[0] == ""
    assert first.count("✓ right") == 6
    assert "✓ right, 2 of 5" in first
    assert second.split()[:7] == ["<packed>", "✗", "WRONG", "error", "1", "error", "2"]
    assert (folded, error, last) == ("2 errors:", "error 1: E: two", "error 2: E: one")


def test_it_is_quiet_and_leaves_things_as_they_were(capfd):
    state = torch.random.get_rng_state()
    (row,) = compilers.survey("padded").cells.values()
    assert [str(outcome) for outcome in row.values()] == BEFORE["padded"]
    assert row["export"].outcome == "right"  # of what it takes
    said = capfd.readouterr()
    assert (said.out, said.err) == ("", "")
    assert torch.equal(torch.random.get_rng_state(), state)
    print("heard again")
    assert capfd.readouterr().out == "heard again\n"


def test_the_text_is_about_the_torch_that_was_tried(monkeypatch):
    monkeypatch.setattr(torch, "__version__", f"{compilers.WRITTEN_FOR}.0+cpu")
    assert not fake().moved
    missing = Outcomes({"padded": {"ONNX, new": Outcome("not run", "onnx is not installed")}})
    assert "Compilers whose package is not installed were not run." in missing.to_text()
    monkeypatch.setattr(torch, "__version__", "9.9")
    assert "torch 9.9. The text" in fake().to_text()
    assert "trust the table" in fake().moved
