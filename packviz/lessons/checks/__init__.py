"""Contains the checks of the notebooks' exercises. Each check takes the reader's answer and returns a `Verdict`."""

from packviz.lessons.checks.counting import backward_bytes, gru_flops
from packviz.lessons.checks.layouts import batch_sizes, half_padding, two_batches
from packviz.lessons.checks.mistakes import repaired_batches, repaired_network
from packviz.lessons.checks.results import collate, final_states, masked_mean, right_padded
from packviz.lessons.checks.rows import document_ids
from packviz.lessons.checks.timing import cheapest_staircase, fair_ratio, fastest_exact, worker_loss

__all__ = [
    "backward_bytes",
    "batch_sizes",
    "cheapest_staircase",
    "collate",
    "document_ids",
    "fair_ratio",
    "fastest_exact",
    "final_states",
    "gru_flops",
    "half_padding",
    "masked_mean",
    "repaired_batches",
    "repaired_network",
    "right_padded",
    "two_batches",
    "worker_loss",
]
