"""Suppresses what other code prints."""

from __future__ import annotations

import io
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout


@contextmanager
def quiet() -> Iterator[None]:
    """Suppresses warnings, log lines and printed text.

    This includes the output of C++ code, which bypasses Python's streams.
    """
    level = logging.root.manager.disable
    sys.stdout.flush()
    logging.disable(logging.CRITICAL)
    nowhere = io.StringIO()
    try:
        with closed(1, 2), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with redirect_stdout(nowhere), redirect_stderr(nowhere):
                yield
    finally:
        logging.disable(level)


@contextmanager
def closed(*streams: int) -> Iterator[None]:
    """Suppresses all output to file descriptors, such as 1 (standard output) and 2 (errors)."""
    with ExitStack() as after, open(os.devnull, "w") as nowhere:
        for stream in streams:
            before = os.dup(stream)
            after.callback(os.close, before)
            after.callback(os.dup2, before, stream)
            os.dup2(nowhere.fileno(), stream)
        yield
