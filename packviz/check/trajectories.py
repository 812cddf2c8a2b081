"""Follows a hidden state through the padding, in the padded and in the packed run."""

from __future__ import annotations

import numpy as np
import torch

from packviz.check.compare import FloatArray, Run, StatesComparison, by_direction, listed
from packviz.core.layout import sequence_name
from packviz.draw.trajectory import Trajectory


def trajectory(comparison: StatesComparison, unit: int = 0) -> Trajectory:
    """Returns one unit of the last layer's hidden state, step by step, in both runs.

    It is the state of the forward direction. After the end of a sequence, the packed state is
    constant.

    Args:
        comparison: the result of `pv.compare`.
        unit: the index of the unit.

    Raises:
        ValueError: the state does not have this unit.
    """
    size = comparison.padded.h_n.shape[-1]
    if not 0 <= unit < size:
        raise ValueError(f"unit is {unit}; the hidden state has units 0 … {size - 1}")
    directions = comparison.outputs.absolute.shape[2]

    def states(result: Run) -> FloatArray:
        outputs = by_direction(result.output, comparison.batch_first, directions)
        return outputs[:, :, 0].to("cpu", torch.float64).numpy().copy()

    padded = states(comparison.padded)
    packed = states(comparison.packed)
    lengths = comparison.layout.lengths
    for b, n in enumerate(lengths):
        packed[b, n:] = packed[b, n - 1]
    differs = comparison.h_n.differs[-1, 0]  # differences from rounding do not count
    gap = padded[:, -1] - packed[:, -1]
    off = np.where(differs, np.linalg.norm(gap, axis=-1), 0.0)
    title = "Padded and packed runs end in the same states"
    if differs.any():
        wrong = listed([sequence_name(b) for b in np.flatnonzero(differs).tolist()], 6)
        title = f"The padded run reads on into the padding, so h_n is wrong for {wrong}"
    what = f"unit {unit} of the hidden state, last layer, forward"
    return Trajectory(title, what, lengths, padded[..., unit], packed[..., unit], off)
