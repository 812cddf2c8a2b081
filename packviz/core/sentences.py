"""Loads real sentences, which make batches with realistic lengths."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib import resources


@cache
def sentences() -> tuple[tuple[str, ...], ...]:
    """Returns sentences from the docstrings of Python's standard library.

    Each is a tuple of words and punctuation marks.

    The data file names their source. The file was generated only once, so that the notebooks do not
    change with Python's version.
    """
    text = resources.files("packviz.core").joinpath("sentences.toml").read_text(encoding="utf-8")
    sentences = tomllib.loads(text)["sentences"].splitlines()
    return tuple(tuple(re.findall(r"[\w'-]+|[^\w\s]", sentence)) for sentence in sentences)
