"""Draws the distance between a padded and a packed hidden state, step by step."""

from __future__ import annotations

import math

import numpy as np
import torch

from packviz.check.states import DIRECTIONS, StatesComparison, by_direction, listed
from packviz.core.layout import sequence_name
from packviz.draw.curves import Curve, Trajectory


def trajectory(comparison: StatesComparison, direction: str = "forward", unit: int | None = None) -> Trajectory:
    """Draws the distance of the last layer's padded hidden state from the packed one, step by step.

    In a packed run, a sequence keeps its final state after its end. In the reverse direction, which begins there, it
    has its initial state instead.

    Args:
        comparison: the result of `pv.compare`.
        direction: `"forward"` or `"reverse"`; the reverse one starts at the last time step.
        unit: a unit of the state to draw, padded and packed. Defaults to the 2-norm of the difference of the whole
            state.

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
    begins = comparison.h_0[d - len(has)].to("cpu", torch.float64).numpy()
    curves = []
    for b, length in enumerate(comparison.layout.lengths.tolist()):
        packed[b, length:] = begins[b] if reverse else packed[b, length - 1]
        gap = np.where(np.isnan(padded[b]) & np.isnan(packed[b]), 0.0, padded[b] - packed[b])
        gap[np.abs(gap).max(axis=-1) <= comparison.tolerance * comparison.h_n.scale[b]] = 0.0  # rounding does not count
        distance = np.linalg.norm(gap, axis=-1)
        one, other = (distance, np.zeros_like(distance)) if unit is None else (padded[b, :, unit], packed[b, :, unit])
        if reverse and unit is not None:
            other[length:] = math.nan
        off = float(distance[0 if reverse else -1])
        curves.append(Curve(sequence_name(b), length, one.tolist(), other.tolist(), off))
    what = "distance |padded − packed| of the hidden state" if unit is None else f"unit {unit} of the hidden state"
    spoilt = [curve.name for curve in curves if curve.off]
    names = listed(spoilt, 6) if spoilt else ""
    title = (
        "Padded and packed end in the same states"
        if not spoilt
        else f"Padded, the reverse direction starts in the padding: h_n of {names} is off"
        if reverse
        else f"Padded, the state moves on through the padding: h_n of {names} is off"
    )
    return Trajectory(title, f"{what}, last layer, {direction}", tuple(curves), reverse, unit is None)
