"""Quiet: what libraries say besides their results is kept back, for a page that shows results."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet() -> Iterator[None]:
    """Keeps back warnings, log lines, and what C++ code writes to the standard error stream."""
    level = logging.root.manager.disable
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    logging.disable(logging.CRITICAL)
    os.dup2(nowhere, 2)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
        logging.disable(level)
