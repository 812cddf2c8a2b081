"""Runs the command `packviz` from a terminal."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence

from packviz.core import lengths
from packviz.core.system import packviz_version
from packviz.core.util import require_suffix
from packviz.draw.picture import show
from packviz.studies.command import add_bench_options, add_study_commands, save

INTERRUPT_STATUS = 130
"""The exit status after Ctrl-C, as in a shell."""


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="packviz", description="See and time PyTorch packed sequences from a terminal."
    )
    version = packviz_version() or "(not installed)"
    parser.add_argument("--version", action="version", version=f"packviz {version}")
    commands = parser.add_subparsers(title="commands", required=True)

    def add_command(name: str, summary: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=summary, description=f"{summary.capitalize()}.")

    _add_show_options(add_command("show", "print a batch, padded and packed"))
    add_bench_options(
        add_command(
            "bench", "time the model from a forum question, padded and packed, on this machine"
        )
    )
    add_study_commands(
        add_command("study", "repeat an experiment from the notebooks on this machine")
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status.

    The status is 2 if the input cannot be used, the output cannot be written, or a package is
    missing. It is 130 after Ctrl-C, and 0 otherwise.
    """
    options = _make_parser().parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal that cannot show a character still shows the rest.
        sys.stdout.reconfigure(errors="replace")
    status = 2
    try:
        options.run(options)
        sys.stdout.flush()
        return 0
    except OSError as error:
        if error.filename or not error.strerror:  # this is not an error of standard output
            raise
        # Otherwise, what is left to write would cause a second error at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):  # the reader, such as `head`, has ended
            return 0
        message = f"the output was not fully written: {error.strerror}"
    except ValueError as error:
        message = str(error)
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "plotly"):
            raise
        message = f"{error.name} is missing; run python -m pip install {error.name}"
    except KeyboardInterrupt:
        message = "stopped"
        status = INTERRUPT_STATUS
    print(f"packviz: {message}", file=sys.stderr)
    return status


def _add_show_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `packviz show` to the parser."""
    parser.add_argument(
        "lengths",
        nargs="+",
        help="lengths of the sequences, as in 5 3 2; or the path of a text, CSV, JSON or .npy file"
        " with the lengths, or - for standard input",
    )
    parser.add_argument(
        "--column",
        metavar="NAME",
        help="the column of a table, or the key of a JSON object, that has the lengths",
    )
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="write to this file; its name must end in .svg, .png, .html or .txt",
    )
    parser.set_defaults(run=_run_show)


def _run_show(options: argparse.Namespace) -> None:
    picture = show(lengths.read(" ".join(options.lengths), options.column))
    if not options.out:
        print(picture)
        return
    require_suffix("--out", options.out, (".svg", ".png", ".html", ".txt"))
    save(picture, options.out)
