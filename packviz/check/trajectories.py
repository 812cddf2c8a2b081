"""Plots how a padded hidden state departs from the packed one, step by step."""

from __future__ import annotations

import math

import numpy as np
import torch

from packviz.check.compare import (
    DIRECTIONS,
    FloatArray,
    Run,
    StatesComparison,
    by_direction,
    listed,
)
from packviz.core.layout import sequence_name
from packviz.draw.trajectory import Trajectory


def trajectory(
    comparison: StatesComparison, direction: str = "forward", unit: int | None = None
) -> Trajectory:
    """Plots how far the padded hidden state of the last layer is from the packed one, step by step.

    After the end of a sequence, the packed state is constant. In the reverse direction, the packed
    state is the initial state there, and is not drawn if `unit` is given.

    Args:
        comparison: the result of `pv.compare`.
        direction: `"forward"` or `"reverse"`; the reverse one starts at the last time step.
        unit: the index of a unit of the state. If it is given, the padded and the packed values of
            this unit are drawn. By default, the drawing shows the 2-norm of the difference between
            the two states.

    Raises:
        ValueError: the RNN does not have this direction, or the state does not have this unit.
    """
    directions = DIRECTIONS[: comparison.outputs.absolute.shape[2]]
    if direction not in directions:
        names = ", ".join(map(repr, directions))
        raise ValueError(f"direction is {direction!r}; this module has {names}")
    d = directions.index(direction)
    reverse = direction == "reverse"
    size = comparison.padded.h_n.shape[-1]
    if unit is not None and not 0 <= unit < size:
        raise ValueError(f"unit is {unit}; the hidden state has units 0 … {size - 1}")

    def states(result: Run) -> FloatArray:
        outputs = by_direction(result.output, comparison.batch_first, len(directions))
        return outputs[:, :, d].to("cpu", torch.float64).numpy().copy()

    padded = states(comparison.padded)
    packed = states(comparison.packed)
    first = comparison.h_0[d - len(directions)].to("cpu", torch.float64).numpy()
    lengths = comparison.layout.lengths
    for b, n in enumerate(lengths):
        packed[b, n:] = first[b] if reverse else packed[b, n - 1]
    gap = np.where(np.isnan(padded) & np.isnan(packed), 0.0, padded - packed)
    rounding = comparison.tolerance * comparison.h_n.scale[:, None]
    gap[np.abs(gap).max(axis=-1) <= rounding] = 0.0  # differences from rounding do not count
    distances = np.linalg.norm(gap, axis=-1)
    off = distances[:, 0 if reverse else -1]
    wrong = listed([sequence_name(b) for b in np.flatnonzero(off).tolist()], 6)
    title = "Padded and packed runs end in the same states"
    if wrong:
        how = "The padded run reads on into the padding"
        if reverse:
            how = "In reverse, the padded run starts in the padding"
        title = f"{how}, so h_n is wrong for {wrong}"
    if unit is None:
        what = "distance |padded − packed| of the hidden state"
        values = (distances, np.zeros_like(distances))
    else:
        what = f"unit {unit} of the hidden state"
        values = (padded[..., unit], packed[..., unit])
        if reverse:
            values[1][~comparison.layout.mask] = math.nan
    what += f", last layer, {direction}"
    return Trajectory(title, what, lengths, *values, off, reverse, unit is None)
