"""Charts, on their way: those of layouts are `packviz.draw.figures`; those of studies move beside their study."""

from packviz.draw.figures import (
    Chart,
    batch_sizes,
    length_histogram,
    log_log,
    padding_waste,
    times_by_size,
    training_curves,
)
from packviz.figures.studies import cost_of, rules_judged, shares, where_packing_pays, who_wins

__all__ = [
    "Chart",
    "batch_sizes",
    "cost_of",
    "length_histogram",
    "log_log",
    "padding_waste",
    "rules_judged",
    "shares",
    "times_by_size",
    "training_curves",
    "where_packing_pays",
    "who_wins",
]
