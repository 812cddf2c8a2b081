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
    sink = io.StringIO()
    try:
        with (
            discard_output(1, 2),
            warnings.catch_warnings(action="ignore"),
            redirect_stdout(sink),
            redirect_stderr(sink),
        ):
            yield
    finally:
        logging.disable(level)


@contextmanager
def discard_output(*descriptors: int) -> Iterator[None]:
    """Suppresses all output to file descriptors, such as 1 (standard output) and 2 (errors)."""
    with ExitStack() as cleanup, open(os.devnull, "w") as sink:
        for descriptor in descriptors:
            saved_descriptor = os.dup(descriptor)
            cleanup.callback(os.close, saved_descriptor)
            cleanup.callback(os.dup2, saved_descriptor, descriptor)
            os.dup2(sink.fileno(), descriptor)
        yield
