"""Real sentences, so that lengths are as a real batch has them."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources


@cache
def sentences() -> tuple[tuple[str, ...], ...]:
    """Sentences from the docstrings of Python's standard library, each a tuple of words and punctuation marks.

    The file says where they are from. It was made once, so that what the notebooks show does not change with Python.
    """
    text = resources.files("packviz.core").joinpath("sentences.json").read_text(encoding="utf-8")
    return tuple(tuple(sentence.split(" ")) for sentence in json.loads(text)["sentences"])
