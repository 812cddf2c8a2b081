"""Tests how torch's own compilers handle packing in several models.

Every model is compiled with equal lengths, as in the examples of many guides. Then its results on
other lengths, on another number of time steps and on another batch size are compared with those of
the uncompiled model. `torch.compile` passes its graphs to a backend that counts their operators and
runs them eagerly. So no C++ compiler is needed, and the count shows how much of the model is
compiled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from packviz.check import models
from packviz.check.captures import Capture, captured, difference, first_line, numbers
from packviz.core.silence import quiet
from packviz.core.validation import one_of
from packviz.draw.table import Table, Tabled
from packviz.draw.text import count

STEPS = 5
EXAMPLE = (5, 5, 5)
OTHERS = ((5, 3, 1), (2, 5, 4), (4, 4, 4))
SIZES = {"T": (8, (8, 5, 3)), "B": (5, (5, 4, 4, 2))}
"""For each axis, a number of time steps and lengths that give it another size."""
COMPILERS = {
    "jit.trace": "trace",
    "export": "export",
    "compile": "compile",
    "compile, fullgraph": "compile",
    "ONNX, legacy": "onnx_legacy",
    "ONNX, new": "onnx",
}
"""The compilers in the columns of the table, each with its backend in `captures`."""
WRITTEN_FOR = "2.13"
"""The version of torch whose table the notebook explains."""
AROUND = 5
"""The number of operators in a tagger outside its LSTM."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of compiling one model with one compiler.

    Attributes:
        outcome: `"right"` if the compiled model runs and returns the right results, even on other
            lengths; `"WRONG"` if it returns wrong results; `"error"` if it does not run; `"not
            run"` if the compiler is not installed.
        message: the type and the first line of the error, or the reason why the compiler was not
            run.
        compiled: number of operators outside the RNN in the graphs of `torch.compile`; `None` for
            other compilers and after an error.
        fixed: the axes (T, B or both) whose size is fixed: the compiled model is right for other
            lengths, but raises an error for another size.
    """

    outcome: str
    message: str = ""
    compiled: int | None = None
    fixed: str = ""

    def __str__(self) -> str:
        if self.fixed:
            return f"{self.fixed} fixed"
        mark = {"right": "✓ ", "WRONG": "✗ "}.get(self.outcome, "")  # an error is not silent
        compiled = "" if self.compiled is None else f", {self.compiled} of {AROUND}"
        return f"{mark}{self.outcome}{compiled}"


@dataclass(frozen=True)
class Outcomes(Tabled):
    """The table of all outcomes, with a row for each model and a column for each compiler.

    Attributes:
        cells: the outcomes by model and then by compiler.
    """

    cells: Mapping[str, Mapping[str, Outcome]]

    @property
    def moved(self) -> str:
        """A warning if this table may differ from the one that the page explains; else empty."""
        outcomes = [outcome.outcome for row in self.cells.values() for outcome in row.values()]
        if "not run" in outcomes:
            return "Compilers whose package is not installed were not run."
        if torch.__version__.startswith(f"{WRITTEN_FOR}."):
            return ""
        written = f"The text about this table was written for torch {WRITTEN_FOR}"
        return f"{written}. If they differ, trust the table."

    @property
    def table(self) -> Table:
        """The table, with an outcome in each cell, and the errors below."""
        errors: dict[str, int] = {}
        rows = []
        for name, outcomes in self.cells.items():
            row = [name]
            for outcome in outcomes.values():
                cell = str(outcome)
                if outcome.message:
                    cell += f" {errors.setdefault(outcome.message, len(errors) + 1)}"
                row.append(cell)
            rows.append(row)
        folded = [f"error {i}: {error}" for error, i in errors.items()]
        if folded:
            folded.insert(0, f"{count(len(folded), 'error')}:")
        lengths = ", ".join(str([*other]) for other in OTHERS)
        notes = [
            f"right, WRONG: models compiled with lengths {[*EXAMPLE]} were compared with the"
            f" originals on {lengths}, and on another number of time steps (T) and of sequences"
            " (B).",
            "T fixed: right for other lengths, but an error for another number of time steps.",
            f"n of {AROUND}: n of the {AROUND} operators around the LSTM were compiled. The others"
            " run in Python.",
            f"torch {torch.__version__.partition('+')[0]}. {self.moved}".rstrip(),
        ]
        return Table(rows, ["", *COMPILERS], notes=notes, folded=folded, form="<  <")


def survey(*names: str) -> Outcomes:
    """Computes the rows of some models from `models.TAGGERS`, by default of all.

    A row takes about four seconds.
    """
    cells = {}
    for name in names or models.TAGGERS:
        tagger = models.TAGGERS[one_of("names", name, models.TAGGERS)]
        with quiet(), torch.random.fork_rng(), torch.no_grad():
            torch.manual_seed(0)
            model = tagger().eval()
            cells[name] = {compiler: _outcome(model, compiler) for compiler in COMPILERS}
    return Outcomes(cells)


def _outcome(model: nn.Module, compiler: str) -> Outcome:
    """Compiles the model on equal lengths, and checks its results on other lengths and sizes."""
    inputs = models.example(STEPS, EXAMPLE)
    backend = COMPILERS[compiler]
    compiled = None
    fixed = []
    try:
        if backend == "compile":
            capture, compiled = _compiled(model, inputs, compiler.endswith("fullgraph"))
        else:
            capture = captured(backend, model, inputs, {0: (0, 1), 1: (0,)})
        for lengths in (EXAMPLE, *OTHERS):
            if _differs(model, capture, STEPS, lengths):
                return Outcome("WRONG", compiled=compiled)
    except ImportError as error:
        return Outcome("not run", str(error))
    except Exception as error:
        return Outcome("error", first_line(error))
    for axis, size in SIZES.items():
        try:
            if _differs(model, capture, *size):
                return Outcome("WRONG", compiled=compiled)
        except Exception:
            fixed.append(axis)
    return Outcome("right", compiled=compiled, fixed=" and ".join(fixed))


def _compiled(
    model: nn.Module, inputs: tuple[Tensor, Tensor], fullgraph: bool
) -> tuple[Capture, int]:
    """Compiles the model, and counts the operators outside the RNN in the graphs."""
    names: list[str] = []

    def note(graph: Any, example: Any) -> Any:
        names.extend(getattr(node.target, "__name__", "") for node in graph.graph.nodes)
        return graph.forward

    torch.compiler.reset()
    capture = torch.compile(model, backend=note, fullgraph=fullgraph)
    capture(*inputs)
    return capture, sum(name in ("linear", "relu", "tanh") for name in names)


def _differs(model: nn.Module, capture: Capture, steps: int, lengths: tuple[int, ...]) -> str:
    inputs = models.example(steps, lengths)
    return difference(numbers(model(*inputs)), numbers(capture(*inputs)), tolerance=1e-4)
