"""What the programs `python -m packviz.studies.…` have in common."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from packviz.bench.machine import check_device


@contextmanager
def in_a_line(parser: argparse.ArgumentParser) -> Iterator[None]:
    """Ends the program with the usage and the message of a ValueError, and status 2, as for a misspelt option."""
    try:
        yield
    except ValueError as error:
        parser.error(str(error))


def race_and_save(
    name: str,
    said: str | None,
    race: Callable[..., Any],
    save: Callable[[str, Any], None],
    rounds: int,
    arguments: Sequence[str] | None,
) -> None:
    """A program that runs one race, prints what it found, and writes the file.

    Args:
        name: of the study.
        said: what it does.
        race: takes `rounds` and `device`.
        save: takes the file and what was found.
        rounds: if not given.
        arguments: of the command line.
    """
    parser = argparse.ArgumentParser(prog=f"python -m packviz.studies.{name}", description=said)
    parser.add_argument("--out", required=True, help="the file to write")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=rounds)
    options = parser.parse_args(arguments)
    with in_a_line(parser):
        found = race(rounds=options.rounds, device=check_device(options.device))
    print(found)
    save(options.out, found)
