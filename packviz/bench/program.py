"""What the programs `python -m packviz.bench.…` have in common."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def in_a_line(parser: argparse.ArgumentParser) -> Iterator[None]:
    """Ends the program with the usage and the message of a ValueError, and status 2, as for a misspelt option."""
    try:
        yield
    except ValueError as error:
        parser.error(str(error))
