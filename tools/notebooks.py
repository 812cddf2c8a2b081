"""Writes, checks and tests the notebooks.

python tools/notebooks.py write [NAME…]   run the sources and write notebooks/ (`make notebooks`)
python tools/notebooks.py check [NAME…]   find defects without running anything
python tools/notebooks.py test [NAME…]    check the notebooks, and run them and compare every output
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path
from typing import Any

from nbtools.alternative import describe_pictures
from nbtools.canonical import dumps, leaks, loads
from nbtools.check import defects, stored_notebooks
from nbtools.execute import RunError, draw_charts, executed
from nbtools.source import Edition, SourceError, editions, source_files
from nbtools.strict import run_strictly

ROOT = Path(__file__).resolve().parents[1]


def main(arguments: list[str] | None = None) -> int:
    """Runs the command.

    Returns:
        1 if there are defects or failures, 2 if the command is wrong, and otherwise 0.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    commands = {"write": _write, "check": _check, "test": _test}
    parser.add_argument("command", choices=commands)
    parser.add_argument("names", nargs="*", help="01_why_pack, or 01 (default: all)")
    parser.add_argument("--root", type=Path, default=ROOT, help="the folder of notebooks/")
    options = parser.parse_args(arguments)
    options.root = options.root.resolve()
    try:
        return int(commands[options.command](options))
    except SourceError as error:
        print(error, file=sys.stderr)
        return 2


def _write(options: argparse.Namespace) -> int:
    failed = False
    for source in source_files(options.root, options.names):
        for edition in editions(source):
            name = edition.path.relative_to(options.root)
            try:
                print(f"{name}: {_write_one(edition, options)}", flush=True)
            except RunError as error:
                failed = True
                print(f"{name}: not written: {error}\n", file=sys.stderr, flush=True)
    return failed


def _write_one(edition: Edition, options: argparse.Namespace) -> str:
    """Runs one edition, and replaces its file if it has changed. Returns what was done."""
    stored = _stored(edition.path)
    # Both editions have the live timings and charts of the reader's notebook, which is written
    # first.
    readers = _stored(options.root / "notebooks" / edition.path.name)
    notebook = executed(edition, readers)
    draw_charts(notebook, stored, readers)
    problems = []
    for cell in notebook.cells:
        problems += [f"cell {cell.id}: {leak}" for leak in leaks(cell, options.root)]
    if problems:
        raise RunError("\n  ".join(["its outputs depend on this run or machine", *problems]))
    describe_pictures(notebook)
    new = dumps(notebook)
    if stored and new == edition.path.read_text(encoding="utf-8"):
        return "unchanged"
    edition.path.write_text(new, encoding="utf-8", newline="\n")
    return "written"


def _stored(path: Path) -> Any | None:
    """Returns a stored notebook, or None if it is missing or broken."""
    with contextlib.suppress(FileNotFoundError, ValueError):
        return loads(path.read_text(encoding="utf-8"))
    return None


def _check(options: argparse.Namespace) -> int:
    problems = defects(options.root, options.names)
    for problem in problems:
        print(problem)
    print(f"{len(problems) or 'no'} defects in the notebooks", file=sys.stderr)
    return bool(problems)


def _test(options: argparse.Namespace) -> int:
    if _check(options):
        return 1
    # A solutions notebook comes after the reader's notebook of the same name, and replaces it.
    stored = {path.stem: path for path in stored_notebooks(options.root)}
    paths = [stored[source.stem] for source in source_files(options.root, options.names)]
    failed = run_strictly(options.root, paths)
    for path in paths:
        print(f"{path.relative_to(options.root)}: run and compared", flush=True)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
