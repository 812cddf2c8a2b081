"""Plots how a padded hidden state departs from the packed one, step by step."""

from __future__ import annotations

import math

import numpy as np
import torch

from packviz.check.states import DIRECTIONS, StatesComparison, by_direction, listed
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
    has = DIRECTIONS[: comparison.outputs.absolute.shape[2]]
    if direction not in has:
        raise ValueError(f"direction is {direction!r}; this module has {', '.join(map(repr, has))}")
    d, reverse = has.index(direction), direction == "reverse"
    size = comparison.padded.h_n.shape[-1]
    if unit is not None and not 0 <= unit < size:
        raise ValueError(f"unit is {unit}; the hidden state has units 0 … {size - 1}")
    padded, packed = (
        by_direction(run.output, comparison.batch_first, len(has))[:, :, d]
        .to("cpu", torch.float64)
        .numpy()
        .copy()
        for run in (comparison.padded, comparison.packed)
    )
    begins, n = (
        comparison.h_0[d - len(has)].to("cpu", torch.float64).numpy(),
        comparison.layout.lengths,
    )
    for b, length in enumerate(n.tolist()):
        packed[b, length:] = begins[b] if reverse else packed[b, length - 1]
    gap = np.where(np.isnan(padded) & np.isnan(packed), 0.0, padded - packed)
    rounding = comparison.tolerance * comparison.h_n.scale[:, None]
    gap[np.abs(gap).max(axis=-1) <= rounding] = 0.0  # differences from rounding do not count
    distances = np.linalg.norm(gap, axis=-1)
    off = distances[:, 0 if reverse else -1]
    one, other = (
        (distances, np.zeros_like(distances))
        if unit is None
        else (padded[..., unit], packed[..., unit])
    )
    if reverse and unit is not None:
        other[~comparison.layout.mask] = math.nan
    what = (
        "distance |padded − packed| of the hidden state"
        if unit is None
        else f"unit {unit} of the hidden state"
    )
    spoilt = [sequence_name(b) for b in np.flatnonzero(off).tolist()]
    how = (
        "In reverse, the padded run starts in the padding"
        if reverse
        else "The padded run reads on into the padding"
    )
    title = (
        f"{how}, so h_n is wrong for {listed(spoilt, 6)}"
        if spoilt
        else "Padded and packed runs end in the same states"
    )
    return Trajectory(
        title, f"{what}, last layer, {direction}", n, one, other, off, reverse, unit is None
    )
