"""Tests how torch's own compilers handle packing in several models.

Every model is compiled with equal lengths, as in the examples of many guides. Then its results on
other lengths, on another number of time steps and on another batch size are compared with those of
the uncompiled model. `torch.compile` passes its graphs to
a backend that counts their operators and runs them eagerly. So no C++ compiler is needed, and the
count shows how much of the model is compiled.

`packviz study compilers --out notebooks/recorded/compilers_cpu.json` makes the recorded file.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch

from packviz.check import models
from packviz.check.captures import captured, difference, first_line, numbers
from packviz.core.silence import quiet
from packviz.core.validation import one_of
from packviz.draw.table import Table, Tabled
from packviz.draw.text import count
from packviz.measure.machine import Data
from packviz.measure.study import Results, Study

RIGHT = "right"
WRONG = "WRONG"
ERROR = "error"
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

_OUTCOME = ("outcome", "message", "compiled", "fixed")
_NOT_RUN = "not run: "
_MARKS = {RIGHT: "✓ ", WRONG: "✗ ", ERROR: ""}  # an error gets no mark, because it is not silent


@dataclass(frozen=True)
class Outcome:
    """The outcome of compiling one model with one compiler.

    Attributes:
        outcome: `RIGHT` if the compiled model runs and returns the right results, even on other
            lengths; `WRONG` if it returns wrong results; `ERROR` if it does not run.
        message: the type and the first line of the error, or the reason why the compiler was not
            run.
        compiled: number of operators outside the RNN in the graphs of `torch.compile`; `None` for
            other compilers and after an error.
        fixed: the axes (T, B or both) for whose other sizes a `RIGHT` model raises an error.
    """

    outcome: str
    message: str = ""
    compiled: int | None = None
    fixed: str = ""

    def __str__(self) -> str:
        if self.fixed:
            return f"{self.fixed} fixed"
        compiled = "" if self.compiled is None else f", {self.compiled} of {AROUND}"
        return f"{_MARKS[self.outcome]}{self.outcome}{compiled}"


@dataclass(frozen=True)
class CompilerPoint:
    """A model from `models.TAGGERS`, by name, and a compiler from `COMPILERS`."""

    network: str
    compiler: str

    def __str__(self) -> str:
        return f"{self.network}, {self.compiler}"


class Outcomes(Tabled, Results[CompilerPoint, Outcome]):
    """The table of all outcomes, with a row for each model and a column for each compiler."""

    @property
    def cells(self) -> dict[str, dict[str, Outcome]]:
        """The outcomes by model and then by compiler."""
        rows: dict[str, dict[str, Outcome]] = {}
        for point, outcome in self.values.items():
            rows.setdefault(point.network, {})[point.compiler] = outcome
        return rows

    @property
    def moved(self) -> str:
        """A warning if this table may differ from the one that the page explains; else empty."""
        if any(_NOT_RUN in error for error in self.errors):
            return "Compilers whose package is not installed were not run."
        if self.provenance["torch"].startswith(f"{WRITTEN_FOR}."):
            return ""
        written = f"The text about this table was written for torch {WRITTEN_FOR}"
        return f"{written}. If they differ, trust the table."

    @property
    def errors(self) -> list[str]:
        """The distinct error messages, in the order of the table."""
        messages = [outcome.message for outcome in self.values.values()]
        return [message for message in dict.fromkeys(messages) if message]

    @property
    def notes(self) -> list[str]:
        """Lines that explain the marks and the numbers in the table."""
        lengths = ", ".join(str([*other]) for other in OTHERS)
        return [
            f"right, WRONG: models compiled with lengths {[*EXAMPLE]} were compared with the"
            f" originals on {lengths}, and on another number of time steps (T) and of sequences"
            " (B).",
            "T fixed: right for other lengths, but an error for another number of time steps.",
            f"n of {AROUND}: n of the {AROUND} operators around the LSTM were compiled. The others"
            " run in Python.",
            f"torch {self.provenance['torch'].split('+')[0]}. {self.moved}".rstrip(),
        ]

    @property
    def table(self) -> Table:
        """The table, with an outcome in each cell, and the errors below."""
        measured = {point.compiler for point in self.values}
        compilers = [compiler for compiler in COMPILERS if compiler in measured]
        rows = []
        for name, outcomes in self.cells.items():
            row = [name]
            for compiler in compilers:
                outcome = outcomes.get(compiler)
                text = str(outcome or "")
                if outcome and outcome.message:
                    text += f" {self.errors.index(outcome.message) + 1}"
                row.append(text)
            rows.append(row)
        folded = [f"error {i}: {error}" for i, error in enumerate(self.errors, 1)]
        if folded:
            folded.insert(0, f"{count(len(folded), 'error')}:")
        return Table(rows, ["", *compilers], notes=self.notes, folded=folded, form="<  <")


def survey(*names: str) -> Outcomes:
    """Computes the rows of some models from `models.TAGGERS`, by default of all.

    A row takes about four seconds.
    """
    chosen = [one_of("names", name, models.TAGGERS) for name in names]
    points = [point for point in STUDY.full if point.network in (chosen or models.TAGGERS)]
    return STUDY.run(points)


def compile_and_compare(point: CompilerPoint, device: str, settings: Data) -> Outcome:
    """Compiles the model on equal lengths, and checks its results on other lengths."""
    with quiet(), torch.no_grad():
        return _outcome(point)


def _outcome(point: CompilerPoint) -> Outcome:
    model = models.TAGGERS[point.network]().eval()
    inputs = models.example(STEPS, EXAMPLE)
    backend = COMPILERS[point.compiler]
    counts: list[int] = []

    def count_operators(graph: Any, example: Any) -> Any:
        names = [str(getattr(node.target, "__name__", node.target)) for node in graph.graph.nodes]
        counts.append(sum(name in ("linear", "relu", "tanh") for name in names))
        return graph.forward

    try:
        if backend == "compile":
            torch.compiler.reset()
            fullgraph = point.compiler.endswith("fullgraph")
            capture = torch.compile(model, backend=count_operators, fullgraph=fullgraph)
            capture(*inputs)
        else:
            capture = captured(backend, model, inputs, {0: (0, 1), 1: (0,)})

        # A graph for other lengths has the same operators, so it is not counted.
        compiled = sum(counts) if backend == "compile" else None
        for lengths in (EXAMPLE, *OTHERS):
            if _differs(model, capture, STEPS, lengths):
                return Outcome(WRONG, compiled=compiled)
    except ImportError as error:
        return Outcome(ERROR, f"{_NOT_RUN}{str(error).partition(';')[0]}")
    except Exception as error:
        return Outcome(ERROR, first_line(error))
    fixed = []
    for axis, size in SIZES.items():
        try:
            if _differs(model, capture, *size):
                return Outcome(WRONG, compiled=compiled)
        except Exception:
            fixed.append(axis)
    return Outcome(RIGHT, compiled=compiled, fixed=" and ".join(fixed))


def _differs(model: Any, capture: Any, steps: int, lengths: tuple[int, ...]) -> str:
    inputs = models.example(steps, lengths)
    return difference(numbers(model(*inputs)), numbers(capture(*inputs)), tolerance=1e-4)


STUDY = Study(
    "compilers",
    CompilerPoint,
    compile_and_compare,
    Outcomes,
    full=[CompilerPoint(name, compiler) for name in models.TAGGERS for compiler in COMPILERS],
    quick=[
        CompilerPoint(name, compiler) for name in ("padded", "Ragged") for compiler in COMPILERS
    ],
    read=lambda point, entry: Outcome(**{key: entry[key] for key in _OUTCOME}),
    write=asdict,
    version=3,
)
run, recorded = STUDY.run, STUDY.load
