"""Writes, checks and tests the notebooks.

python tools/notebooks.py write [NAME…]   run the sources and write notebooks/ (`make notebooks`)
python tools/notebooks.py check [NAME…]   find defects without running anything
python tools/notebooks.py test [NAME…]    check the notebooks, and run them and compare every output
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

from nbtools.alternative import describe_pictures
from nbtools.canonical import dumps, leaks, loads
from nbtools.check import defects
from nbtools.execute import RunError, draw_charts, executed
from nbtools.source import Edition, SourceError, editions, source_files
from nbtools.strict import select, strict_failures

ROOT = Path(__file__).resolve().parents[1]


def main(arguments: list[str] | None = None) -> int:
    """Runs the command. Returns 1 if there are defects or failures, 2 if the command is wrong, and otherwise 0."""
    options = _parser().parse_args(arguments)
    options.root = options.root.resolve()
    try:
        return int(options.run(options))
    except SourceError as error:
        print(error, file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="notebooks.py", description="Writes, checks and tests the notebooks."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, function, words in (
        ("write", _write, "run the sources and write the notebooks"),
        ("check", _check, "list every defect of the stored notebooks without running them"),
        ("test", _test, "check the stored notebooks, run them again, and compare every output"),
    ):
        command = commands.add_parser(name, help=words, description=words)
        command.add_argument(
            "names", nargs="*", metavar="NAME", help="01_why_pack, or just 01 (default: all)"
        )
        command.set_defaults(run=function)
    write = commands.choices["write"]
    write.add_argument(
        "--redraw", action="store_true", help="draw every chart again, even if it did not change"
    )
    for command in commands.choices.values():
        command.add_argument(
            "--root", type=Path, default=ROOT, help="the folder that contains notebooks/"
        )
    return parser


def _write(options: argparse.Namespace) -> int:
    failed = []
    for source in source_files(options.root, options.names):
        for edition in editions(source):
            name = edition.path.relative_to(options.root)
            start = time.monotonic()
            try:
                state = _write_one(edition, options)
            except RunError as error:
                failed.append(str(name))
                print(f"{name}: not written: {error}\n", file=sys.stderr, flush=True)
            else:
                print(f"{name}: {state} ({time.monotonic() - start:.1f} s)", flush=True)
    if failed:
        print(f"not written: {', '.join(failed)}", file=sys.stderr)
    return bool(failed)


def _write_one(edition: Edition, options: argparse.Namespace) -> str:
    """Runs one edition, and replaces its file if the notebook has changed. Returns what was done."""
    old = edition.path.read_text(encoding="utf-8") if edition.path.is_file() else None
    stored = None if options.redraw or old is None else _read(old)
    new = _made(edition, options.root, stored)
    if new == old:
        return "unchanged"
    draft = edition.path.with_suffix(".ipynb.part")
    draft.write_text(new, encoding="utf-8", newline="\n")
    os.replace(draft, edition.path)
    return "written"


def _made(edition: Edition, root: Path, stored: Any | None) -> str:
    notebook = executed(edition)
    draw_charts(notebook, stored)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    if found := [f"cell {cell.id}: {leak}" for cell in code for leak in leaks(cell, root)]:
        raise RunError("\n  ".join(["its outputs depend on this run or machine", *found]))
    describe_pictures(notebook)
    return dumps(notebook)


def _read(text: str) -> Any | None:
    """Reads the stored notebook; returns None if it cannot be read."""
    try:
        return loads(text)
    except ValueError:
        return None


def _check(options: argparse.Namespace) -> int:
    found = defects(options.root, options.names)
    for defect in found:
        print(defect)
    print(f"{len(found) or 'no'} defects in the notebooks", file=sys.stderr)
    return bool(found)


def _test(options: argparse.Namespace) -> int:
    if _check(options):
        return 1
    failures = strict_failures(options.root, select(options.root, options.names))
    for failure in failures:
        print(failure, file=sys.stderr)
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
