"""Runs the command `packviz` from a terminal."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from packviz.check.command import add_check, add_diagnose, add_patched, patched_arguments
from packviz.core import lengths
from packviz.core.files import require_suffix
from packviz.core.machine import own_version
from packviz.draw.picture import show
from packviz.studies.command import add_bench, add_study

STOPPED = 130
"""The exit status after Ctrl-C, as in a shell."""


def _parser() -> argparse.ArgumentParser:
    description = "See, check and time PyTorch packed sequences from a terminal."
    parser = argparse.ArgumentParser(prog="packviz", description=description)
    parser.add_argument(
        "--version", action="version", version=f"packviz {own_version() or '(not installed)'}"
    )
    commands = parser.add_subparsers(title="commands", required=True)

    def add(
        name: str, add_options: Callable[[argparse.ArgumentParser], object], words: str
    ) -> None:
        add_options(
            commands.add_parser(name, help=words, description=f"{words[0].upper()}{words[1:]}.")
        )

    add("show", _add_show, "print a batch, padded and packed")
    add(
        "diagnose",
        add_diagnose,
        "find mistakes in a batch and its lengths that torch does not report",
    )
    add("check", add_check, "find the lines of a network that break under fixed shapes")
    add(
        "patched",
        add_patched,
        "run a program with packviz's packing and padding under torch's names",
    )
    add(
        "bench",
        add_bench,
        "time the model from a forum question, padded and packed, on this machine",
    )
    study = "repeat an experiment from the notebooks on this machine"
    add("study", add_study, study)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status.

    The status is 1 if `check` or `diagnose` found a mistake, 2 if the input cannot be used or a
    package is missing, 3 if `check` found no mistake but could not try everything, 130 after
    Ctrl-C, and 0 otherwise.
    """
    parser = _parser()
    arguments, rest = patched_arguments([*(sys.argv[1:] if arguments is None else arguments)])
    options, status = parser.parse_args(arguments, argparse.Namespace(rest=rest, program=None)), 0
    if rest is None and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(
            errors="replace"
        )  # a terminal that cannot show a character still shows the rest
    try:
        status = options.run(options) or 0
        sys.stdout.flush()
    except (
        BrokenPipeError
    ):  # the reader, such as `head`, has ended; this avoids a second error at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except ValueError as error:
        print(f"packviz: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "plotly"):
            raise
        print(
            f"packviz: {error.name} is missing; run python -m pip install {error.name}",
            file=sys.stderr,
        )
        return 2
    except KeyboardInterrupt:
        print("packviz: stopped", file=sys.stderr)
        return STOPPED
    if options.program:
        options.program()
    return status


def _add_lengths(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    add = parser.add_argument
    add("lengths", nargs="+", help="lengths of the sequences, as in 5 3 2; or the path of a text, CSV, JSON or .npy"
        " file with the lengths, or - for standard input")  # fmt: skip
    add(
        "--column",
        metavar="NAME",
        help="the column of a table, or the key of a JSON object, that has the lengths",
    )
    return parser


def _add_show(parser: argparse.ArgumentParser) -> None:
    add = _add_lengths(parser).add_argument
    add(
        "--out",
        metavar="FILE",
        help="write to this file; its name must end in .svg, .png, .html or .txt",
    )
    add("--svg", help=argparse.SUPPRESS)
    parser.set_defaults(run=_show)


def _show(options: argparse.Namespace) -> None:
    if options.svg:
        raise ValueError(f"--svg is now --out, and the suffix sets the format: --out {options.svg}")
    picture = show(lengths.read(" ".join(options.lengths), options.column))
    if not options.out:
        print(picture)
        return
    require_suffix("--out", options.out, (".svg", ".png", ".html", ".txt"))
    try:
        picture.save(options.out)
    except OSError as error:
        folder = Path(options.out).parent
        reason = error.strerror if folder.is_dir() else f"there is no folder {folder}"
        raise ValueError(f"cannot write {options.out}: {reason}") from None
