"""Tests how torch's own compilers handle packing in several networks, and makes a table of the
outcomes.

Every network is compiled with equal lengths, as in the examples of many guides. Then its results on
other lengths are compared with those of the uncompiled network. `torch.compile` passes its graphs
to a backend that counts their operators and runs them eagerly. So no C++ compiler is needed, and
the count shows how much of the network is compiled.

`packviz study compilers --out notebooks/recorded/compilers_cpu.json` makes the recorded file.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from packviz.check import captures, networks, trials
from packviz.draw.table import Table, Tabled
from packviz.draw.text import count
from packviz.measure.study import MeasureOptions, Results, Study

RIGHT, WRONG, ERROR = "right", "WRONG", "error"
STEPS, EXAMPLE = 5, (5, 5, 5)
OTHERS = ((5, 3, 1), (2, 5, 4), (4, 4, 4))
COMPILERS = {"jit.trace": "trace", "export": "export", "compile": "compile", "compile, fullgraph": "compile",
             "ONNX, legacy": "onnx_legacy", "ONNX, new": "onnx"}  # fmt: skip
"""The compilers in the columns of the table, each with its backend in `captures`."""
WRITTEN_FOR = "2.13"
"""The version of torch whose table the notebook explains."""
AROUND = 5
"""The number of operators in a tagger outside its LSTM."""

_NOT_RUN = "not run: "


@dataclass(frozen=True)
class _Cell:
    """The outcome of compiling one network with one compiler.

    Attributes:
        outcome: `RIGHT` if the compiled network runs and returns the right results, even on other
            lengths; `WRONG` if it returns wrong results; `ERROR` if it does not run.
        message: the type and the first line of the error, or the reason why the compiler was not
            run.
        compiled: number of operators outside the RNN in the graphs of `torch.compile`; `None` for
            other compilers and after an error.
    """

    outcome: str
    message: str = ""
    compiled: int | None = None

    def __str__(self) -> str:
        mark = {RIGHT: "✓ ", WRONG: "✗ "}.get(
            self.outcome, ""
        )  # an error gets no mark, because it is not silent
        compiled = "" if self.compiled is None else f", {self.compiled} of {AROUND}"
        return f"{mark}{self.outcome}{compiled}"


@dataclass(frozen=True)
class CompilerPoint:
    """A network from `networks.TAGGERS` and a compiler from `COMPILERS`."""

    network: str
    compiler: str

    def __str__(self) -> str:
        return f"{self.network}, {self.compiler}"


class _Relatives(Tabled, Results[CompilerPoint, _Cell]):
    """The table of all outcomes, with a row for each network and a column for each compiler."""

    @property
    def cells(self) -> dict[str, dict[str, _Cell]]:
        """The cells of the table, by network and then by compiler."""
        rows: dict[str, dict[str, _Cell]] = {}
        for point, cell in self.values.items():
            rows.setdefault(point.network, {})[point.compiler] = cell
        return rows

    @property
    def moved(self) -> str:
        """A warning if this table may differ from the one that the page explains, and otherwise an empty string."""
        if any(_NOT_RUN in error for error in self.errors):
            return "Compilers whose package is not installed were not run."
        if self.provenance["torch"].startswith(f"{WRITTEN_FOR}."):
            return ""
        return f"The text about this table was written for torch {WRITTEN_FOR}. If they differ, trust the table."

    @property
    def errors(self) -> list[str]:
        """The distinct error messages, in the order of the table."""
        return list(dict.fromkeys(cell.message for cell in self.values.values() if cell.message))

    @property
    def notes(self) -> list[str]:
        """Lines that explain the marks and the numbers in the table."""
        lengths = ", ".join(map(str, map(list, OTHERS)))
        return [
            f"right, WRONG: networks compiled with lengths {[*EXAMPLE]} were compared with the originals on {lengths}.",
            f"n of {AROUND}: n of the {AROUND} operators around the LSTM were compiled. The others run in Python.",
            f"torch {self.provenance['torch'].split('+')[0]}. {self.moved}".rstrip(),
        ]

    def label(self, network: str, compiler: str) -> str:
        """Returns the text of a cell."""
        cell = self.values[CompilerPoint(network, compiler)]
        return (
            str(cell).replace(ERROR, f"{ERROR} {self.errors.index(cell.message) + 1}")
            if cell.message
            else str(cell)
        )

    @property
    def table(self) -> Table:
        """The table, with an outcome in each cell, and the errors below."""
        compilers = [
            compiler
            for compiler in COMPILERS
            if any(point.compiler == compiler for point in self.values)
        ]
        rows = [
            [
                name,
                *(self.label(name, compiler) if compiler in row else "" for compiler in compilers),
            ]
            for name, row in self.cells.items()
        ]
        errors = [f"error {i}: {error}" for i, error in enumerate(self.errors, 1)]
        folded = [f"{count(len(errors), 'error')}:", *errors] if errors else []
        return Table(rows, ["", *compilers], notes=self.notes, folded=folded, form="<  <")


def survey(points: Iterable[CompilerPoint] = ()) -> _Relatives:
    """Computes some cells of the table. By default, it computes all of them, which takes about ten seconds."""
    return STUDY.run([*points] or STUDY.full)


def compile_and_compare(point: CompilerPoint, options: MeasureOptions) -> _Cell:
    """Compiles the network on equal lengths, and checks its results on other lengths."""
    counted: list[int] = []

    def count_operators(graph: Any, inputs: Any) -> Any:
        names = [str(getattr(node.target, "__name__", node.target)) for node in graph.graph.nodes]
        counted.append(sum(name in ("linear", "relu", "tanh") for name in names))
        return graph.forward

    def capture(run: Any, inputs: Any, at: Any) -> Any:
        made = captures.compiled(
            run, inputs, at, count_operators, point.compiler.endswith("fullgraph")
        )
        once = len(counted)

        def captured(other: Any) -> Any:
            found = made(other)
            del counted[
                once:
            ]  # a graph for other lengths has the same operators, so it is not counted
            return found

        return captured

    network, compiles = networks.TAGGERS[point.network](), point.compiler.startswith("compile")
    run, tried = trials.Runner(network, inspect.signature(network.forward)), []
    for lengths in (EXAMPLE, *OTHERS):
        inputs = dict(zip(("x", "lengths"), networks.example(STEPS, lengths), strict=True))
        tried.append(trials.Trial(str(lengths), inputs, run.outputs(inputs)))
    row = captures.judged(
        COMPILERS[point.compiler], run, tried, [], capture=capture if compiles else None
    )
    if row.takes is None:
        return _Cell(ERROR, f"{_NOT_RUN}{row.message.partition(':')[0]}")
    if not row.takes or row.error:
        return _Cell(ERROR, row.message)
    return _Cell(RIGHT if row.same else WRONG, compiled=sum(counted) if compiles else None)


STUDY = Study(
    "compilers",
    CompilerPoint,
    compile_and_compare,
    _Relatives,
    full=[
        CompilerPoint(network, compiler) for network in networks.TAGGERS for compiler in COMPILERS
    ],
    quick=[
        CompilerPoint(network, compiler)
        for network in ("padded", "Ragged")
        for compiler in COMPILERS
    ],
    read=lambda point, entry: _Cell(entry["outcome"], entry["message"], entry["compiled"]),
    write=asdict,
    version=2,
)
run, recorded = STUDY.run, STUDY.load
