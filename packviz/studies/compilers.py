"""What torch's own ways to a fixed graph make of packing: a table of networks and compilers, computed live.

Every network is compiled on lengths that are all equal, as a guide's examples are, and compared with the network itself
on other lengths. `torch.compile` hands its graphs to a backend that counts their operators and runs them eagerly: no
C++ compiler is needed, and the count says how much of the network is compiled.

`python -m packviz.studies.compilers --out notebooks/recorded/relatives_cpu.json` makes the recorded file.
"""

from __future__ import annotations

import argparse
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, cast

from packviz.bench.machine import provenance
from packviz.core import files as recorded
from packviz.core.quiet import quiet
from packviz.draw.table import Table, Tabled

RIGHT, WRONG, ERROR = "right", "WRONG", "error"
STEPS, EXAMPLE = 5, (5, 5, 5)
OTHERS = ((5, 3, 1), (2, 5, 4), (4, 4, 4))
WAYS = ("jit.trace", "export", "compile", "compile, fullgraph", "ONNX, legacy", "ONNX, new")
WRITTEN_FOR = "2.13"
"""The torch whose table the notebook explains."""
AROUND = 5
"""The operators of a tagger besides those of its LSTM."""

_KIND, _VERSION = "relatives", 1
_LONGEST = 150  # characters of an error's text
_ANSI = re.compile(r"\x1b\[[\d;]*m")

Answer = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Cell:
    """What came of one network in one compiler.

    Attributes:
        outcome: `RIGHT`: it runs, and gives what the network gives, on other lengths too. `WRONG`: it runs, and does
            not. `ERROR`: it does not run.
        said: the error: its type and the first line of its text.
        compiled: the operators in the graphs that `torch.compile` made, those of the RNN left out; none for others.
        recorded: whether this was not run here, but read from the recorded file.
    """

    outcome: str
    said: str = ""
    compiled: int | None = None
    recorded: bool = False

    def __str__(self) -> str:
        mark = "✓" if self.outcome == RIGHT else "✗"
        compiled = "" if self.compiled is None else f", {self.compiled} of {AROUND}"
        return f"{mark} {self.outcome}{compiled}{'*' if self.recorded else ''}"


@dataclass(frozen=True, repr=False)
class Relatives(Tabled):
    """The table.

    Attributes:
        cells: by the name of the network, in `networks.TAGGERS`, then by the compiler, in `WAYS`.
        torch: the version of torch.
        missing: why rows were not run here; empty if all were.
        provenance: what it was computed on.
    """

    cells: Mapping[str, Mapping[str, Cell]]
    torch: str
    missing: str = ""
    provenance: Mapping[str, Any] | None = None

    @property
    def moved(self) -> str:
        """What to say where the table is not as a text says."""
        return f"this is torch {self.torch}, and the text was written for torch {WRITTEN_FOR}: believe the table"

    @property
    def errors(self) -> list[str]:
        """The different errors, in the order of the table."""
        return list(dict.fromkeys(cell.said for row in self.cells.values() for cell in row.values() if cell.said))

    @property
    def notes(self) -> list[str]:
        """What the marks and the numbers mean."""
        lengths = ", ".join(map(str, map(list, OTHERS)))
        notes = [
            f"right, WRONG: compiled with lengths {list(EXAMPLE)}, compared with the network itself on {lengths}.",
            f"n of {AROUND}: so many operators around the LSTM were compiled; the others run in Python, as without.",
            *(f"error {i}: {said}" for i, said in enumerate(self.errors, 1)),
            f"torch {self.torch.split('+')[0]}. {self.missing}".strip(),
        ]
        return notes

    def said(self, network: str, way: str) -> str:
        """What stands in a cell."""
        cell = self.cells[network][way]
        return str(cell).replace(ERROR, f"{ERROR} {self.errors.index(cell.said) + 1}") if cell.said else str(cell)

    @property
    def table(self) -> Table:
        """A mark and a word in each cell, and the errors below."""
        rows = [[name, *(self.said(name, way) for way in WAYS)] for name in self.cells]
        return Table(rows, ["", *WAYS], notes=self.notes, form="<  <")


def survey(
    record: str = "relatives_cpu.json", *, progress: Callable[[int, int], object] = lambda done, all: None
) -> Relatives:
    """Computes the table: some ten seconds.

    Args:
        record: the file to take a column from that cannot be computed here, because its packages are missing.
        progress: called after each cell, with the cells done and the cells in all.
    """
    import torch  # noqa: PLC0415

    from packviz.check import networks  # noqa: PLC0415

    cells: dict[str, dict[str, Cell]] = {}
    gone: dict[str, str] = {}
    with torch.random.fork_rng(devices=[]):
        for name, network in networks.TAGGERS.items():
            torch.manual_seed(0)
            made, cells[name] = network().eval(), {}
            for way in WAYS:
                try:
                    cells[name][way] = _cell(made, way)
                except ImportError as error:
                    gone[way] = str(error.name)
                progress(sum(map(len, cells.values())), len(networks.TAGGERS) * len(WAYS))
    missing = _fill_in(cells, gone, record) if gone else ""
    return Relatives(
        {name: {way: row[way] for way in WAYS} for name, row in cells.items()}, torch.__version__, missing, provenance()
    )


def _fill_in(cells: dict[str, dict[str, Cell]], gone: Mapping[str, str], record: str) -> str:
    """Takes what cannot be computed here from the record; says so."""
    packages = " and ".join(sorted(set(gone.values())))
    try:
        known = load(record)
    except ValueError:
        for row in cells.values():
            row.update((way, Cell(ERROR, f"not run: {package} is not installed")) for way, package in gone.items())
        return f"Not run: {', '.join(gone)} ({packages} is not installed)."
    for name, row in cells.items():
        row.update((way, replace(known.cells[name][way], recorded=True)) for way in gone)
    return f"* not run here ({packages} is not installed): recorded with torch {known.torch.split('+')[0]}."


def _cell(network: Any, way: str) -> Cell:
    """Compiles a network in one way, and compares.

    Raises:
        ImportError: a package that the way needs is missing.
    """
    import torch  # noqa: PLC0415

    counted: list[int] = []
    with torch.no_grad(), quiet():
        try:
            compiled = _COMPILERS[way](network, counted)
            answers = [(compiled(*batch), network(*batch)) for batch in map(_batch, (EXAMPLE, *OTHERS))]
        except ImportError:
            raise
        except Exception as error:
            return Cell(ERROR, _first_line(error))
        finally:
            torch._dynamo.reset()
    right = all(a.shape == b.shape and torch.allclose(a, b, atol=1e-5) for a, b in answers)
    return Cell(RIGHT if right else WRONG, compiled=sum(counted) if way.startswith("compile") else None)


def _batch(lengths: Sequence[int]) -> Any:
    from packviz.check import networks  # noqa: PLC0415

    return networks.example(STEPS, lengths)


def _trace(network: Any, counted: list[int]) -> Answer:
    import torch  # noqa: PLC0415

    return torch.jit.trace(network, _batch(EXAMPLE), check_trace=False)  # type: ignore[no-any-return,no-untyped-call]


def _export(network: Any, counted: list[int]) -> Answer:
    import torch  # noqa: PLC0415

    return torch.export.export(network, _batch(EXAMPLE)).module()


def _compile(network: Any, counted: list[int], fullgraph: bool = False) -> Answer:
    import torch  # noqa: PLC0415

    def backend(graph: Any, inputs: Any) -> Any:
        calls = [str(getattr(node.target, "__name__", node.target)) for node in graph.graph.nodes]
        counted.append(sum(name in ("linear", "relu", "tanh") for name in calls))
        return graph.forward

    torch._dynamo.reset()
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
    import torch  # noqa: PLC0415

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
        given = {"x": x.numpy(), "lengths": lengths.numpy()}  # what the network does not read is left out of the file
        return torch.from_numpy(session.run(None, {name: given[name] for name in names})[0])

    return run


_COMPILERS: dict[str, Callable[[Any, list[int]], Answer]] = {
    "jit.trace": _trace,
    "export": _export,
    "compile": _compile,
    "compile, fullgraph": lambda network, counted: _compile(network, counted, fullgraph=True),
    "ONNX, legacy": lambda network, counted: _onnx(network, counted, new=False),
    "ONNX, new": lambda network, counted: _onnx(network, counted, new=True),
}


def _first_line(error: BaseException) -> str:
    """The type and the first line of an error, of its cause if it only passes that on; shortened, without paths."""
    while type(error).__module__.startswith("torch.onnx") and error.__cause__ is not None:
        error = error.__cause__
    line = _ANSI.sub("", next(iter(str(error).splitlines()), ""))
    line = re.sub(r"\S*/[\w./-]*/(\w+\.\w+)", r"\1", line)
    said = f"{type(error).__name__}: {line}"
    return said if len(said) <= _LONGEST else f"{said[: _LONGEST - 1]}…"


def save(path: str, table: Relatives) -> None:
    """Writes a result file: schema `relatives`, version 1: `cells` by network and compiler, `torch`, `provenance`."""
    cells = {name: {way: asdict(cell) for way, cell in row.items()} for name, row in table.cells.items()}
    recorded.save(
        path, _KIND, _VERSION, {"torch": table.torch, "provenance": dict(table.provenance or {}), "cells": cells}
    )


def load(path: str) -> Relatives:
    """Reads what `save` wrote.

    Raises:
        ValueError: there is no such file, or it holds something else.
    """
    data = recorded.load(path, _KIND, _VERSION)
    cells = {name: {way: Cell(**cell) for way, cell in row.items()} for name, row in data["cells"].items()}
    return Relatives(cells, data["torch"], "", data["provenance"])


def main(arguments: Sequence[str] | None = None) -> None:
    """Computes the table, and writes the file."""
    parser = argparse.ArgumentParser(prog="python -m packviz.studies.compilers", description=main.__doc__)
    parser.add_argument("--out", required=True, help="the file to write")
    options = parser.parse_args(arguments)
    table = survey()
    print(table)
    save(options.out, table)


if __name__ == "__main__":
    main()
