"""Draws pictures and tables of plain values. No module here needs torch or ipywidgets; only
`figures` needs plotly.

This package offers classes and functions that draw given lengths and numbers, such as
`pv.draw.Stairs`. Functions that also count FLOPs, compare results or measure times are in `packviz`
itself.

Examples:
    >>> import packviz as pv
    >>> scores = pv.draw.Scores([3, 7, 4, 5, 4], 8)
    >>> scores.needed, scores.cross_document, scores.wasted
    (115, 62, 15)
"""

from __future__ import annotations

import importlib
from typing import Any

# Maps each name to its module, as read from the stub's lines `from HOME import NAME as NAME`.
with open(f"{__path__[0]}/__init__.pyi", encoding="utf-8") as _stub:
    _HOME = {words[-1]: words[1] for words in map(str.split, _stub) if words[:1] == ["from"]}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(
            f"module 'packviz.draw' has no attribute {name!r}; it offers {', '.join(_HOME)}"
        )
    globals()[name] = value = getattr(importlib.import_module(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return [*_HOME]
