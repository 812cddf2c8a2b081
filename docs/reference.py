"""Reads what templates/reference.html shows: signatures, docstrings and their pictures."""

from __future__ import annotations

import contextlib
import doctest
import io
from collections.abc import Iterator
from typing import Any

import griffe
from figures import box, figure

import packviz as pv

FUNCTIONS: dict[str, str] = vars(pv)["_MODULES"]
"""The path of the module of each public function and class."""
PUBLIC = FUNCTIONS | vars(pv)["_SUBMODULES"]
"""The same, and the path of each public module."""
PACKAGE = griffe.load(
    "packviz",
    docstring_parser="google",
    docstring_options={"returns_multiple_items": False, "returns_named_value": False},
)
"""What the sources say about the package."""


def pictures(entry: Any) -> Iterator[str]:
    """Runs the examples of a docstring, and yields the pictures that they draw."""
    if entry.canonical_path.startswith("packviz.measure"):
        return  # these examples take seconds, and draw nothing
    names: dict[str, Any] = {}
    for example in doctest.DocTestParser().get_examples(entry.docstring.value):
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(example.source, entry.name, "exec"), names)
    for drawn in names.values():
        if hasattr(drawn, "to_svg") and not isinstance(drawn, type):
            yield box("picture", figure(drawn.to_svg()))
