"""Charts: functions from layouts to plotly figures, each with a text twin."""

from packviz.figures.batches import batch_sizes, length_histogram, padding_waste
from packviz.figures.chart import Chart

__all__ = ["Chart", "batch_sizes", "length_histogram", "padding_waste"]
