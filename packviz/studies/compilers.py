"""What torch's own compilers to a fixed graph make of packing: a table of networks and compilers, computed live.

Every network is compiled on lengths that are all equal, as a guide's examples are, and compared with the network itself
on other lengths. `torch.compile` hands its graphs to a backend that counts their operators and runs them eagerly: no
C++ compiler is needed, and the count says how much of the network is compiled.

`packviz study compilers --out notebooks/recorded/compilers_cpu.json` makes the recorded file.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from packviz.bench.study import MeasureOptions, Results, Study
from packviz.check import captures, networks, trials
from packviz.draw.table import Table, Tabled
from packviz.draw.text import count

RIGHT, WRONG, ERROR = "right", "WRONG", "error"
STEPS, EXAMPLE = 5, (5, 5, 5)
OTHERS = ((5, 3, 1), (2, 5, 4), (4, 4, 4))
COMPILERS = {"jit.trace": "trace", "export": "export", "compile": "compile", "compile, fullgraph": "compile",
             "ONNX, legacy": "onnx_legacy", "ONNX, new": "onnx"}  # fmt: skip
"""The columns, and the backends of `captures`."""
WRITTEN_FOR = "2.13"
"""The torch whose table the notebook explains."""
AROUND = 5
"""The operators of a tagger besides those of its LSTM."""

_NOT_RUN = "not run: "


@dataclass(frozen=True)
class Cell:
    """What came of one network in one compiler.

    Attributes:
        outcome: `RIGHT`: it runs, and gives what the network gives, on other lengths too. `WRONG`: it runs, and does
            not. `ERROR`: it does not run.
        message: the error: its type and the first line of its text.
        compiled: the operators in the graphs that `torch.compile` made, those of the RNN left out; none for others.
        recorded: whether this was not run here, but read from the recorded file.
    """

    outcome: str
    message: str = ""
    compiled: int | None = None
    recorded: bool = False

    def __str__(self) -> str:
        mark = {RIGHT: "✓ ", WRONG: "✗ "}.get(self.outcome, "")  # only silent mistakes stand out
        compiled = "" if self.compiled is None else f", {self.compiled} of {AROUND}"
        return f"{mark}{self.outcome}{compiled}{'*' if self.recorded else ''}"


@dataclass(frozen=True)
class CompilerPoint:
    """A network of `networks.TAGGERS`, and a compiler of `COMPILERS`."""

    network: str
    compiler: str

    def __str__(self) -> str:
        return f"{self.network}, {self.compiler}"


class Relatives(Tabled, Results[CompilerPoint, Cell]):
    """The table."""

    @property
    def cells(self) -> dict[str, dict[str, Cell]]:
        """By the name of the network, then by the compiler."""
        rows: dict[str, dict[str, Cell]] = {}
        for point, cell in self.values.items():
            rows.setdefault(point.network, {})[point.compiler] = cell
        return rows

    @property
    def torch(self) -> str:
        """The version of torch."""
        return str(self.provenance["torch"])

    @property
    def missing(self) -> str:
        """Why columns were not run here; empty if all were."""
        return str(self.provenance.get("missing", ""))

    @property
    def moved(self) -> str:
        """What to say of a text that explains this table, if it was written for another torch; else empty."""
        if self.torch.startswith(f"{WRITTEN_FOR}."):
            return ""
        return f"The text about this table was written for torch {WRITTEN_FOR}: where they differ, believe the table."

    @property
    def errors(self) -> list[str]:
        """The different errors, in the order of the table."""
        return list(dict.fromkeys(cell.message for cell in self.values.values() if cell.message))

    @property
    def notes(self) -> list[str]:
        """What the marks and the numbers mean."""
        lengths = ", ".join(map(str, map(list, OTHERS)))
        notes = [
            f"right, WRONG: compiled with lengths {list(EXAMPLE)}, compared with the network itself on {lengths}.",
            f"n of {AROUND}: so many operators around the LSTM were compiled; the others run in Python, as without.",
            " ".join(filter(None, (f"torch {self.torch.split('+')[0]}.", self.moved, self.missing))),
        ]
        return notes

    def label(self, network: str, compiler: str) -> str:
        """What stands in a cell."""
        cell = self.values[CompilerPoint(network, compiler)]
        return str(cell).replace(ERROR, f"{ERROR} {self.errors.index(cell.message) + 1}") if cell.message else str(cell)

    @property
    def table(self) -> Table:
        """A mark and a word in each cell, and the errors below."""
        compilers = [compiler for compiler in COMPILERS if any(point.compiler == compiler for point in self.values)]
        rows = [
            [name, *(self.label(name, compiler) if compiler in row else "" for compiler in compilers)]
            for name, row in self.cells.items()
        ]
        errors = [f"error {i}: {error}" for i, error in enumerate(self.errors, 1)]
        folded = [f"{count(len(errors), 'error')}:", *errors] if errors else []
        return Table(rows, ["", *compilers], notes=self.notes, folded=folded, form="<  <")


def survey(points: Iterable[CompilerPoint] = (), record: str = "") -> Relatives:
    """Computes the table: some ten seconds.

    Args:
        points: the cells; all if none are given.
        record: the file to take cells from that cannot be computed here, because packages are missing: the recorded
            one if none is given.
    """
    found = STUDY.run([*points] or STUDY.full)
    gone = {
        point: cell.message.removeprefix(_NOT_RUN)
        for point, cell in found.values.items()
        if cell.message.startswith(_NOT_RUN)
    }
    if not gone:
        return found
    why = " and ".join(sorted(set(gone.values())))
    try:
        known = STUDY.load(record)
    except ValueError:
        values, missing = {}, f"Not run: {', '.join(dict.fromkeys(point.compiler for point in gone))} ({why})."
    else:
        values = {point: replace(known.values[point], recorded=True) for point in gone}
        missing = f"* not run here ({why}): recorded with torch {known.torch.split('+')[0]}."
    return Relatives({**found.provenance, "missing": missing}, {**found.values, **values})


def compile_and_compare(point: CompilerPoint, options: MeasureOptions) -> Cell:
    """Compiles the network with that compiler on lengths that are all equal, and compares on others."""
    counted: list[int] = []

    def count_operators(graph: Any, inputs: Any) -> Any:
        names = [str(getattr(node.target, "__name__", node.target)) for node in graph.graph.nodes]
        counted.append(sum(name in ("linear", "relu", "tanh") for name in names))
        return graph.forward

    def capture(run: Any, inputs: Any, at: Any) -> Any:
        made = captures.compiled(run, inputs, at, count_operators, point.compiler.endswith("fullgraph"))
        once = len(counted)

        def captured(other: Any) -> Any:
            found = made(other)
            del counted[once:]  # a graph made anew for other lengths is the same part of the network
            return found

        return captured

    network, compiles = networks.TAGGERS[point.network](), point.compiler.startswith("compile")
    run, tried = trials.Runner(network, inspect.signature(network.forward)), []
    for lengths in (EXAMPLE, *OTHERS):
        inputs = dict(zip(("x", "lengths"), networks.example(STEPS, lengths), strict=True))
        tried.append(trials.Trial(str(lengths), inputs, run.outputs(inputs)))
    row = captures.judged(COMPILERS[point.compiler], run, tried, [], capture=capture if compiles else None)
    if row.takes is None:
        return Cell(ERROR, f"{_NOT_RUN}{row.message.partition(':')[0]}")
    if not row.takes or row.error:
        return Cell(ERROR, row.message)
    return Cell(RIGHT if row.same else WRONG, compiled=sum(counted) if compiles else None)


STUDY = Study(
    "compilers",
    CompilerPoint,
    compile_and_compare,
    Relatives,
    full=[CompilerPoint(network, compiler) for network in networks.TAGGERS for compiler in COMPILERS],
    quick=[CompilerPoint(network, compiler) for network in ("padded", "Ragged") for compiler in COMPILERS],
    read=lambda point, entry: Cell(**{field.name: entry[field.name] for field in fields(Cell)}),
    write=asdict,
    version=2,
)
run, recorded = STUDY.run, STUDY.load
