"""What torch's own compilers to a fixed graph make of packing: a table of networks and compilers, computed live.

Every network is compiled on lengths that are all equal, as a guide's examples are, and compared with the network itself
on other lengths. `torch.compile` hands its graphs to a backend that counts their operators and runs them eagerly: no
C++ compiler is needed, and the count says how much of the network is compiled.

`packviz study compilers --out notebooks/recorded/compilers_cpu.json` makes the recorded file.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from typing import Any, cast

import torch

from packviz.bench.study import MeasureOptions, Results, Study
from packviz.check import networks
from packviz.core.quiet import quiet
from packviz.draw.table import Table, Tabled
from packviz.draw.text import count

RIGHT, WRONG, ERROR = "right", "WRONG", "error"
STEPS, EXAMPLE = 5, (5, 5, 5)
OTHERS = ((5, 3, 1), (2, 5, 4), (4, 4, 4))
COMPILERS = ("jit.trace", "export", "compile", "compile, fullgraph", "ONNX, legacy", "ONNX, new")
WRITTEN_FOR = "2.13"
"""The torch whose table the notebook explains."""
AROUND = 5
"""The operators of a tagger besides those of its LSTM."""

_NOT_RUN = "not run: "
_LONGEST = 150  # characters of an error's text
_ANSI = re.compile(r"\x1b\[[\d;]*m")

Answer = Callable[[Any, Any], Any]


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
        mark = {RIGHT: "✓", WRONG: "✗"}.get(self.outcome, "–")  # only silent mistakes stand out
        compiled = "" if self.compiled is None else f", {self.compiled} of {AROUND}"
        return f"{mark} {self.outcome}{compiled}{'*' if self.recorded else ''}"


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


def compile_and_compare(point: CompilerPoint, how: MeasureOptions) -> Cell:
    """Compiles the network with that compiler, and compares."""
    try:
        return _cell(networks.TAGGERS[point.network]().eval(), point.compiler)
    except ImportError as error:
        return Cell(ERROR, f"{_NOT_RUN}{error.name} is not installed")


def _cell(network: Any, compiler: str) -> Cell:
    """Compiles a network with one compiler, and compares.

    Raises:
        ImportError: a package that the compiler needs is missing.
    """
    counted: list[int] = []
    with torch.no_grad(), quiet():
        try:
            compiled = _COMPILERS[compiler](network, counted)
            answers = [(compiled(*batch), network(*batch)) for batch in map(_batch, (EXAMPLE, *OTHERS))]
        except ImportError:
            raise
        except Exception as error:
            return Cell(ERROR, _first_line(error))
        finally:
            torch.compiler.reset()
    right = all(a.shape == b.shape and torch.allclose(a, b, atol=1e-5) for a, b in answers)
    return Cell(RIGHT if right else WRONG, compiled=sum(counted) if compiler.startswith("compile") else None)


def _batch(lengths: Sequence[int]) -> Any:
    return networks.example(STEPS, lengths)


def _trace(network: Any, counted: list[int]) -> Answer:
    return torch.jit.trace(network, _batch(EXAMPLE), check_trace=False)  # type: ignore[no-any-return,no-untyped-call]


def _export(network: Any, counted: list[int]) -> Answer:
    return torch.export.export(network, _batch(EXAMPLE)).module()


def _compile(network: Any, counted: list[int], fullgraph: bool = False) -> Answer:
    def backend(graph: Any, inputs: Any) -> Any:
        calls = [str(getattr(node.target, "__name__", node.target)) for node in graph.graph.nodes]
        counted.append(sum(name in ("linear", "relu", "tanh") for name in calls))
        return graph.forward

    torch.compiler.reset()
    compiled: Answer = torch.compile(network, backend=backend, fullgraph=fullgraph)
    compiled(*_batch(EXAMPLE))
    once = list(counted)

    def run(x: Any, lengths: Any) -> Any:
        found = compiled(x, lengths)
        counted[:] = once  # a graph made anew for other lengths is the same part of the network
        return found

    return run


def _onnx(network: Any, counted: list[int], new: bool) -> Answer:
    import onnxruntime  # noqa: PLC0415

    file = io.BytesIO()
    if new:
        import onnxscript  # noqa: F401, PLC0415 - torch would say less clearly that it is missing

        program: Any = torch.onnx.export(network, _batch(EXAMPLE), dynamo=True, verbose=False)
        file.write(program.model_proto.SerializeToString())
    else:
        import onnx  # noqa: F401, PLC0415

        torch.onnx.export(network, _batch(EXAMPLE), cast(Any, file), dynamo=False, input_names=["x", "lengths"])
    session = onnxruntime.InferenceSession(file.getvalue())
    names = [one.name for one in session.get_inputs()]

    def run(x: Any, lengths: Any) -> Any:
        inputs = {"x": x.numpy(), "lengths": lengths.numpy()}  # what the network does not read is left out of the file
        return torch.from_numpy(session.run(None, {name: inputs[name] for name in names})[0])

    return run


_COMPILERS: dict[str, Callable[[Any, list[int]], Answer]] = {
    "jit.trace": _trace,
    "export": _export,
    "compile": _compile,
    "compile, fullgraph": partial(_compile, fullgraph=True),
    "ONNX, legacy": partial(_onnx, new=False),
    "ONNX, new": partial(_onnx, new=True),
}


def _first_line(error: BaseException) -> str:
    """The type and the first line of an error, of its cause if it only passes that on; shortened, without paths."""
    while type(error).__module__.startswith("torch.onnx") and error.__cause__ is not None:
        error = error.__cause__
    line = _ANSI.sub("", next(iter(str(error).splitlines()), ""))
    line = re.sub(r"\S*/[\w./-]*/(\w+\.\w+)", r"\1", line)
    message = f"{type(error).__name__}: {line}"
    return message if len(message) <= _LONGEST else f"{message[: _LONGEST - 1]}…"


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
