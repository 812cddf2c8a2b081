"""The command `packviz`."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence

from packviz.bench.command import STOPPED, add_studies
from packviz.bench.machine import own_version
from packviz.core import lengths
from packviz.draw.picture import show
from packviz.studies.forum import command as forum

STUDIES = {
    "savings": "the same FLOPs saved, by few and by many distinct lengths: the same time?",
    "helpers": "the everyday helpers against a plain loop over the sequences",
    "compiled": "compiling and packing, together and apart",
    "race": "torch padded, torch packed, and every method of pv.run",
    "thumb": "rules of thumb, held against a grid of batches",
    "compilers": "what tracing, export, compile and ONNX make of packing",
}
"""What `packviz study` runs: modules of `packviz.studies`, and what each is about."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status: 0, 2 for input it cannot use, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(prog="packviz", description="See PyTorch packed sequences from a terminal.")
    parser.add_argument("--version", action="version", version=f"packviz {own_version() or '(not installed)'}")
    commands = parser.add_subparsers(title="commands", required=True)

    shower = commands.add_parser("show", help="print a batch, padded and packed")
    shower.add_argument("lengths", nargs="*", help="the real time steps of each sequence, as in 5 3 2")
    shower.add_argument("--file", metavar="PATH", help="read the lengths from a CSV or JSON file; - is standard input")
    shower.add_argument("--svg", metavar="PATH", help="write the picture to this file instead of printing text")
    shower.set_defaults(run=_show)

    bench = "time the forum's network, padded and packed, on this machine"
    forum.add_to(commands.add_parser("bench", help=bench, description=f"{bench.capitalize()}."))

    study = "run a study again: what notebooks show as recorded, measured on this machine"
    add_studies(commands.add_parser("study", help=study, description=f"{study.capitalize()}."), STUDIES)

    options = parser.parse_args(arguments)
    try:
        return options.run(options) or 0
    except ValueError as error:
        print(f"packviz: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        print("packviz: this needs torch: python -m pip install torch", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("packviz: stopped", file=sys.stderr)
        return STOPPED


def _show(options: argparse.Namespace) -> None:
    if bool(options.lengths) == bool(options.file):
        raise ValueError("give the lengths, as in `packviz show 5 3 2`, or a file with --file, not both")
    picture = show(lengths.read(options.file) if options.file else lengths.parse(" ".join(options.lengths)))
    if options.svg:
        try:
            with open(options.svg, "w", encoding="utf-8") as file:
                file.write(picture.to_svg())
        except OSError as error:
            raise ValueError(f"cannot write {options.svg}: {error.strerror}") from None
        return
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal that lacks our dashes and dots still gets the numbers
        sys.stdout.reconfigure(errors="replace")
    try:
        print(picture, flush=True)
    except BrokenPipeError:  # the reader, `head` say, has had enough; spare it the interpreter's complaint at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
