"""Charts: functions from layouts to plotly figures, each with a text twin."""

from packviz.figures.batches import batch_sizes, length_histogram, padding_waste
from packviz.figures.chart import Chart
from packviz.figures.costs import flops_and_time, flops_ledger, flops_per_step
from packviz.figures.training import training_curves

__all__ = [
    "Chart",
    "batch_sizes",
    "flops_and_time",
    "flops_ledger",
    "flops_per_step",
    "length_histogram",
    "padding_waste",
    "training_curves",
]
