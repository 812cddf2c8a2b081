"""Charts: functions from layouts to plotly figures, each with a text twin."""

from packviz.figures.advice import cost_of, rules_judged, shares, where_packing_pays
from packviz.figures.batches import batch_sizes, length_histogram, padding_waste
from packviz.figures.chart import Chart
from packviz.figures.costs import flops_and_time, flops_ledger, flops_per_step
from packviz.figures.growth import log_log
from packviz.figures.race import who_wins
from packviz.figures.sweeps import times_by_size
from packviz.figures.training import training_curves

__all__ = [
    "Chart",
    "batch_sizes",
    "cost_of",
    "flops_and_time",
    "flops_ledger",
    "flops_per_step",
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
