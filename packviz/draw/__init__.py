"""The one place that draws: values in, pictures and tables out. No widget, no torch; plotly in `figures` only.

Pictures that stand on their own, as `pv.draw.Stairs`; what also counts, compares or measures is a verb of `packviz`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from packviz.draw.cells import Aligned
    from packviz.draw.handover import Handover
    from packviz.draw.heatmap import Attention
    from packviz.draw.plots import length_histogram, log_log, padding_waste, totals, training_curves
    from packviz.draw.scores import Scores
    from packviz.draw.stairs import Stairs
    from packviz.draw.strips import Strips

_HOME = {
    "Aligned": "cells",
    "Attention": "heatmap",
    "Handover": "handover",
    "Scores": "scores",
    "Stairs": "stairs",
    "Strips": "strips",
    "length_histogram": "plots",
    "log_log": "plots",
    "padding_waste": "plots",
    "totals": "plots",
    "training_curves": "plots",
}

__all__ = [
    "Aligned",
    "Attention",
    "Handover",
    "Scores",
    "Stairs",
    "Strips",
    "length_histogram",
    "log_log",
    "padding_waste",
    "totals",
    "training_curves",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'packviz.draw' has no attribute {name!r}; it offers {', '.join(__all__)}")
    globals()[name] = value = getattr(importlib.import_module(f"packviz.draw.{_HOME[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
