"""Follows a hidden state through the padding, in the padded and in the packed run."""

from __future__ import annotations

import math

import numpy as np
import torch

from packviz.check.compare import FloatArray, Run, StatesComparison, by_direction, listed
from packviz.core.layout import sequence_name
from packviz.draw.curves import COLOURS, DASHES, Curve, Plot, Sweep
from packviz.draw.text import difference, is_few

MOST = 8
"""The largest number of sequences that are drawn."""

_COLOUR = len(COLOURS) - 1  # a colour that no method has
_DOTTED = DASHES.index("2 3")
_TALL = 80.0  # px: the height of a plot


def trajectory(comparison: StatesComparison, unit: int = 0) -> Sweep:
    """Plots one unit of the last layer's hidden state, step by step, in both runs.

    It is the state of the forward direction. After the end of a sequence, the packed state is
    constant. Each sequence has a plot, in which padding is hatched. In the text of a small batch,
    the states in the padding are in brackets. If the results contain NaN or
    infinity, a curve ends before the first such number.

    Args:
        comparison: the result of `pv.compare`.
        unit: the index of the unit.

    Raises:
        ValueError: the state does not have this unit.
    """
    size = comparison.padded.h_n.shape[-1]
    if not 0 <= unit < size:
        raise ValueError(f"unit is {unit}; give a unit of the hidden state, from 0 to {size - 1}")
    directions = comparison.outputs.absolute.shape[2]

    def states(result: Run) -> FloatArray:
        outputs = by_direction(result.output, comparison.batch_first, directions)
        return outputs[:, :, 0].to("cpu", torch.float64).numpy().copy()

    padded = states(comparison.padded)
    packed = states(comparison.packed)
    layout = comparison.layout
    lengths = layout.lengths.tolist()
    for b, n in enumerate(lengths):
        packed[b, n:] = packed[b, n - 1]
    differs = comparison.h_n.differs[-1, 0]  # differences from rounding do not count
    title = "Padded and packed runs end in the same states"
    if differs.any():
        wrong = np.flatnonzero(differs).tolist()
        names = listed([sequence_name(b) for b in wrong], 6)
        title = f"The padded run reads on into the padding, so h_n is wrong for {names}"
    what = f"unit {unit} of the hidden state, last layer, forward"
    lines = [title, what]
    plots = []
    steps = range(padded.shape[1])
    for b, n in enumerate(lengths):
        verdict = "h_n differs" if differs[b] else "the same h_n"
        heading = f"{sequence_name(b)}: {verdict}"
        lines.append(heading)
        padding = n - 1 if n < len(steps) else math.inf
        curves = []
        for run, states_of, source in (("padded", padded, 0), ("packed", packed, _DOTTED)):
            values = states_of[b, :, unit]
            if is_few(layout):
                cells = list(map(difference, values))
                cells[n:] = [f"[{cell}]" for cell in cells[n:]]
                lines.append(f"  {run}  {' '.join(cells)}")
            end = np.isfinite(values).cumprod().sum()
            # Rounded, because the last digits differ between processors.
            heights = np.round(values[:end], 3).tolist()
            if end:
                hollow = states_of is packed
                curves.append(Curve(run, _COLOUR, source, steps[:end], heights, hollow=hollow))
        plots.append(Plot(heading, curves, y="", padding=padding))
    notes = [f"{what}. Hatched: padding. The packed state is dotted."]
    if len(plots) > MOST:
        notes.append(f"The first {MOST} sequences are drawn.")
    drawn = plots[:MOST]
    pairs = [drawn[i : i + 2] for i in range(0, len(drawn), 2)]
    return Sweep(title, pairs, (), notes, "\n".join(lines), "time step", _TALL)
