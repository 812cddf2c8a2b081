"""Draws how a padded hidden state departs from the packed one, step by step."""

from __future__ import annotations

import math

import numpy as np
import torch

from packviz.check.states import DIRECTIONS, StatesComparison, by_direction, listed
from packviz.core.layout import sequence_name
from packviz.draw.curves import Trajectory


def trajectory(comparison: StatesComparison, direction: str = "forward", unit: int | None = None) -> Trajectory:
    """Draws how far the padded hidden state of the last layer is from the packed one, step by step.

    After the end of a sequence, the packed state is drawn as constant. In the reverse direction, it is still the
    initial state there.

    Args:
        comparison: the result of `pv.compare`.
        direction: `"forward"` or `"reverse"`; the reverse one starts at the last time step.
        unit: index of a single unit of the state to draw, padded and packed. By default, the 2-norm of the difference
            between the two states is drawn.

    Raises:
        ValueError: there is no such direction, or no such unit.
    """
    has = DIRECTIONS[: comparison.outputs.absolute.shape[2]]
    if direction not in has:
        raise ValueError(f"direction is {direction!r}; this module has {', '.join(map(repr, has))}")
    d, reverse = has.index(direction), direction == "reverse"
    size = comparison.padded.h_n.shape[-1]
    if unit is not None and not 0 <= unit < size:
        raise ValueError(f"unit is {unit}; the hidden state has units 0 … {size - 1}")
    padded, packed = (
        by_direction(run.output, comparison.batch_first, len(has))[:, :, d].to("cpu", torch.float64).numpy().copy()
        for run in (comparison.padded, comparison.packed)
    )
    begins, n = comparison.h_0[d - len(has)].to("cpu", torch.float64).numpy(), comparison.layout.lengths
    for b, length in enumerate(n.tolist()):
        packed[b, length:] = begins[b] if reverse else packed[b, length - 1]
    gap = np.where(np.isnan(padded) & np.isnan(packed), 0.0, padded - packed)
    rounding = comparison.tolerance * comparison.h_n.scale[:, None]
    gap[np.abs(gap).max(axis=-1) <= rounding] = 0.0  # rounding is not a distance
    distances = np.linalg.norm(gap, axis=-1)
    off = distances[:, 0 if reverse else -1]
    one, other = (distances, np.zeros_like(distances)) if unit is None else (padded[..., unit], packed[..., unit])
    if reverse and unit is not None:
        other[~comparison.layout.mask] = math.nan
    what = "distance |padded − packed| of the hidden state" if unit is None else f"unit {unit} of the hidden state"
    spoilt = [sequence_name(b) for b in np.flatnonzero(off).tolist()]
    names = listed(spoilt, 6) if spoilt else ""
    title = (
        "Padded and packed end in the same states"
        if not spoilt
        else f"Padded, the reverse direction starts in the padding: h_n of {names} is off"
        if reverse
        else f"Padded, the state moves on through the padding: h_n of {names} is off"
    )
    return Trajectory(title, f"{what}, last layer, {direction}", n, one, other, off, reverse, unit is None)
