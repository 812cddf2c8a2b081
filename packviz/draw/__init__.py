"""Draws pictures and tables of plain values.

No module here needs torch or ipywidgets; only `figures` needs plotly.

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

# The module of each name. A test compares them with the stub.
_MODULES = {
    "Aligned": "aligned",
    "Attention": "attention",
    "Ribbons": "ribbons",
    "Scores": "documents",
    "Stairs": "stairs",
    "Strips": "strips",
    "length_histogram": "plots",
    "padding_waste": "plots",
}
__all__ = sorted(_MODULES)


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        public_names = ", ".join(_MODULES)
        raise AttributeError(
            f"module 'packviz.draw' has no attribute {name!r}; it offers {public_names}"
        )
    module = importlib.import_module(f"packviz.draw.{_MODULES[name]}")
    globals()[name] = value = getattr(module, name)
    return value


def __dir__() -> list[str]:
    return __all__
