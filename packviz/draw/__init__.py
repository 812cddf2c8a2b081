"""The one place that draws: values in, pictures and tables out. No widget, no torch; plotly in `figures` only.

Pictures that stand on their own, as `pv.draw.Stairs`; what also counts, compares or measures is a verb of `packviz`.

Examples:
    >>> import packviz as pv
    >>> scores = pv.draw.Scores([3, 7, 4, 5, 4], 8)
    >>> scores.needed, scores.cross_document, scores.wasted
    (115, 62, 15)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from packviz.draw.cells import Aligned as Aligned
    from packviz.draw.handover import Handover as Handover
    from packviz.draw.heatmap import Attention as Attention
    from packviz.draw.plots import length_histogram as length_histogram
    from packviz.draw.plots import log_log as log_log
    from packviz.draw.plots import padding_waste as padding_waste
    from packviz.draw.plots import totals as totals
    from packviz.draw.plots import training_curves as training_curves
    from packviz.draw.scores import Scores as Scores
    from packviz.draw.stairs import Stairs as Stairs
    from packviz.draw.strips import Strips as Strips

_CLASSES = {
    "Aligned": "cells",
    "Attention": "heatmap",
    "Handover": "handover",
    "Scores": "scores",
    "Stairs": "stairs",
    "Strips": "strips",
}
_PLOTS = ("length_histogram", "log_log", "padding_waste", "totals", "training_curves")
_HOME = _CLASSES | dict.fromkeys(_PLOTS, "plots")


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'packviz.draw' has no attribute {name!r}; it offers {', '.join(_HOME)}")
    globals()[name] = value = getattr(importlib.import_module(f"packviz.draw.{_HOME[name]}"), name)
    return value


def __dir__() -> list[str]:
    return [*_HOME]
