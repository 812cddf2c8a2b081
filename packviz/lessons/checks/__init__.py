"""The checks of the notebooks' exercises. Each takes the reader's answer and returns a `Verdict`."""

from packviz.lessons.checks.advice import worker_loss
from packviz.lessons.checks.costs import gru_flops
from packviz.lessons.checks.growth import backward_bytes
from packviz.lessons.checks.layouts import batch_sizes, half_padding, packed_order, two_batches
from packviz.lessons.checks.mistakes import repaired_batches
from packviz.lessons.checks.staircase import cheapest_staircase
from packviz.lessons.checks.static import mended
from packviz.lessons.checks.tensors import final_states, masked_mean
from packviz.lessons.checks.timing import fair_ratio

__all__ = [
    "backward_bytes",
    "batch_sizes",
    "cheapest_staircase",
    "fair_ratio",
    "final_states",
    "gru_flops",
    "half_padding",
    "mended",
    "masked_mean",
    "packed_order",
    "repaired_batches",
    "two_batches",
    "worker_loss",
]
