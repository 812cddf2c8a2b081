"""The checks of the notebooks' exercises. Each takes the reader's answer and returns a `Verdict`."""

from packviz.lessons.checks.costs import gru_flops
from packviz.lessons.checks.layouts import batch_sizes, half_padding, packed_order, two_batches
from packviz.lessons.checks.tensors import final_states, masked_mean

__all__ = [
    "batch_sizes",
    "final_states",
    "gru_flops",
    "half_padding",
    "masked_mean",
    "packed_order",
    "two_batches",
]
