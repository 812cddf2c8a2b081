"""Turns a source file into its notebooks, without running them.

A source is `notebooks/source/NN_name.py` in jupytext's percent format. It becomes the reader's
notebook `notebooks/NN_name.ipynb` and, if it contains solutions or claims, also
`notebooks/solutions/NN_name.ipynb`.

A cell tagged `claims` checks the statements of a section. Readers do not need it, and its
assertions may fail in their version of torch, so it appears only in the solutions notebook, where
it is folded. Every test run executes it.
"""

from __future__ import annotations

import copy
import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jupytext

from nbtools.canonical import CELL_OPTIONS, canonical, tags

BEGIN, END = "# solution", "# end solution"
STUB = "...  # your code here"
CLAIMS = "claims"
_JUPYTEXTS_OWN = {"lines_to_next_cell", "lines_to_end_of_cell_marker"}

_MARKER = re.compile(r"(?im)^ *(#+ *(end[ _-]*)?solutions? *:?) *$")
_REGION = re.compile(rf"(?ms)^(?P<indent> *){BEGIN}\n(?P<solution>.*?)\n *{END}$")
_CODE = r"(?:^|\n)(?P<fence>```|~~~).*?(?:\n(?P=fence)|\Z)|(?P<ticks>`+)[^`].*?(?P=ticks)"
_LINK = r"(?P<open>\]\(\s*<?|^\[[^\]\n]+\]:[ \t]*|\b(?:src|href)=[\"'])(?P<target>[^\s)\"'>]+)"
_TITLE = re.compile(r"^(# .*?)[ \t]*$", re.MULTILINE)
_CODE_OR_LINK = re.compile(f"{_CODE}|{_LINK}", re.DOTALL | re.MULTILINE)


class SourceError(ValueError):
    """Raised if a source file cannot be turned into notebooks, or if a request is wrong."""


@dataclass(frozen=True)
class Edition:
    """One notebook made from a source.

    Attributes:
        path: The path of the notebook file.
        strict: True for a solutions notebook, which runs with `PACKVIZ_STRICT=1`.
        notebook: The notebook in canonical form, without outputs.
    """

    path: Path
    strict: bool
    notebook: Any


def source_files(root: Path, names: Iterable[str] = ()) -> list[Path]:
    """Returns the source files under `root`: all of them, or those with the given names.

    Args:
        root: The folder that contains `notebooks/`.
        names: Names such as `01_why_pack` or `01`, or paths of sources or notebooks. Without names,
            all are returned.

    Raises:
        SourceError: There is no source, or none with one of these names.
    """
    sources = sorted((root / "notebooks" / "source").glob("[0-9][0-9]_*.py"))
    wanted = {Path(name).stem for name in names}
    chosen = [path for path in sources if not wanted or wanted & {path.stem, path.stem[:2]}]
    if len(chosen) < len(wanted) or not chosen:
        offer = ", ".join(path.stem for path in sources) or "no sources"
        raise SourceError(f"names {sorted(wanted)}: {root / 'notebooks' / 'source'} has {offer}")
    return chosen


def editions(source: Path) -> list[Edition]:
    """Reads a source, and returns its one or two notebooks.

    The second is the solutions notebook, which exists if there are solutions or claims.

    Raises:
        SourceError: The source has an unclosed, empty or misspelt solution region, an unknown cell
            option, a cell that is neither code nor Markdown, or no heading.
    """
    reader = jupytext.read(source, fmt="py:percent")
    solved = copy.deepcopy(reader)
    folder = source.parent.parent
    name = f"{source.stem}.ipynb"
    for i, (stub, solution) in enumerate(zip(reader.cells, solved.cells, strict=True)):
        where = f"{source.name}, cell {i}"
        _refuse_odd_cell(stub, where)
        if stub.cell_type == "code":
            stub.source, solution.source = split_solution(stub.source, where)
        if CLAIMS in tags(solution):
            solution.metadata["jupyter"] = {"source_hidden": True}
    reader.cells = [cell for cell in reader.cells if CLAIMS not in tags(cell)]
    reader = canonical(reader, source.stem)
    solved = canonical(solved, source.stem)
    result = [Edition(folder / name, strict=False, notebook=reader)]
    if reader.cells != solved.cells:
        _deepen(solved, source.name)
        result.append(Edition(folder / "solutions" / name, strict=True, notebook=solved))
    return result


def split_solution(text: str, where: str = "cell") -> tuple[str, str]:
    """Splits a cell's text at its solution regions.

    Returns:
        The text in which a stub line replaces each region, and the text in which only the markers
        are removed.

    Raises:
        SourceError: A region is empty, or a marker is misspelt or not one of a pair.
    """
    for region in _REGION.finditer(text):
        if not region["solution"].strip():
            raise SourceError(f"{where}: the solution is empty")
    stub = _REGION.sub(rf"\g<indent>{STUB}", text)
    solved = _REGION.sub(r"\g<solution>", text)
    if odd := _MARKER.search(f"{stub}\n{solved}"):
        raise SourceError(f"{where}: {odd[1]!r} is not one of a pair, {BEGIN!r} and {END!r}")
    return stub, solved


def links(markdown: str) -> list[str]:
    """Lists the link and image targets of a Markdown text, except those in code."""
    matches = _CODE_OR_LINK.finditer(markdown)
    return [match["target"] for match in matches if match["target"] is not None]


def is_relative(target: str) -> bool:
    """Returns whether a link's target is a path relative to the file that contains the link."""
    return not re.match(r"[a-zA-Z][\w+.-]*:|//|#|/", target)


def one_folder_deeper(markdown: str) -> str:
    """Rewrites relative links so that they lead to the same files from the folder `solutions/`."""

    def deepen(match: re.Match[str]) -> str:
        target = match["target"]
        if target is None or not is_relative(target):
            return match[0]
        path, hash_, anchor = target.partition("#")
        return match["open"] + posixpath.relpath(path, "solutions") + hash_ + anchor

    return _CODE_OR_LINK.sub(deepen, markdown)


def _refuse_odd_cell(cell: Any, where: str) -> None:
    if cell.cell_type not in {"code", "markdown"}:
        raise SourceError(f"{where}: a {cell.cell_type} cell is not allowed")
    if odd := set(cell.metadata) - CELL_OPTIONS - _JUPYTEXTS_OWN:
        raise SourceError(f"{where}: unknown cell option {', '.join(sorted(odd))}")


def _deepen(notebook: Any, name: str) -> None:
    """Changes the title and the links to those of a solutions notebook, in place."""
    titles = 0
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = one_folder_deeper(cell.source)
            if not titles:
                cell.source, titles = _TITLE.subn(r"\1 (solutions)", cell.source, count=1)
    if not titles:
        raise SourceError(f"{name}: has no heading to which '(solutions)' can be appended")
