"""Quiet: what libraries say besides their results is kept back, for a page that shows results."""

from __future__ import annotations

import io
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout


@contextmanager
def quiet() -> Iterator[None]:
    """Keeps back warnings, log lines and prints, also those of C++ code, which go past Python's streams."""
    level = logging.root.manager.disable
    sys.stdout.flush()
    kept, nowhere = [os.dup(1), os.dup(2)], os.open(os.devnull, os.O_WRONLY)
    logging.disable(logging.CRITICAL)
    try:
        for stream in (1, 2):
            os.dup2(nowhere, stream)
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for stream, before in zip((1, 2), kept, strict=True):
            os.dup2(before, stream)
            os.close(before)
        os.close(nowhere)
        logging.disable(level)
