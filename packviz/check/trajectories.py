"""Follows a hidden state through the padding, in the padded and in the packed run."""

from __future__ import annotations

import math

import numpy as np
import torch

from packviz.check.compare import (
    FloatArray,
    RunResult,
    StatesComparison,
    join_words,
    split_directions,
)
from packviz.core.layout import sequence_name
from packviz.draw.curves import DASHES, METHOD_COLOURS, Curve, Plot, Sweep
from packviz.draw.text import format_difference, is_small

MAX_SEQUENCES = 8
"""The largest number of sequences that are drawn."""

_CURVE_COLOUR = len(METHOD_COLOURS) - 1  # a colour that no method has
_DOTTED_DASH = DASHES.index("2 3")
_PLOT_HEIGHT = 80.0  # px: the height of a plot


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
    n_directions = comparison.outputs.absolute.shape[2]

    def forward_states(result: RunResult) -> FloatArray:
        outputs = split_directions(result.output, comparison.batch_first, n_directions)
        return outputs[:, :, 0].to("cpu", torch.float64).numpy().copy()

    padded = forward_states(comparison.padded)
    packed = forward_states(comparison.packed)
    layout = comparison.layout
    lengths = layout.lengths.tolist()
    for b, n in enumerate(lengths):
        packed[b, n:] = packed[b, n - 1]
    h_n_differs = comparison.h_n.differs[-1, 0]  # differences from rounding do not count
    title = "Padded and packed runs end in the same states"
    if h_n_differs.any():
        differing_rows = np.flatnonzero(h_n_differs).tolist()
        sequences_text = join_words([sequence_name(b) for b in differing_rows], 6)
        title = f"The padded run reads on into the padding, so h_n is wrong for {sequences_text}"
    description = f"unit {unit} of the hidden state, last layer, forward"
    lines = [title, description]
    plots = []
    steps = range(padded.shape[1])
    for b, n in enumerate(lengths):
        verdict = "h_n differs" if h_n_differs[b] else "the same h_n"
        heading = f"{sequence_name(b)}: {verdict}"
        lines.append(heading)
        padding = n - 1 if n < len(steps) else math.inf
        curves = []
        for run_name, run_states, dash in (("padded", padded, 0), ("packed", packed, _DOTTED_DASH)):
            values = run_states[b, :, unit]
            if is_small(layout):
                value_texts = list(map(format_difference, values))
                value_texts[n:] = [f"[{value_text}]" for value_text in value_texts[n:]]
                lines.append(f"  {run_name}  {' '.join(value_texts)}")
            n_leading_finite = np.isfinite(values).cumprod().sum()
            # Rounded, because the last digits differ between processors.
            curve_values = np.round(values[:n_leading_finite], 3).tolist()
            if n_leading_finite:
                curves.append(
                    Curve(
                        run_name,
                        _CURVE_COLOUR,
                        dash,
                        steps[:n_leading_finite],
                        curve_values,
                        hollow=run_states is packed,
                    )
                )
        plots.append(Plot(heading, curves, y="", padding=padding))
    notes = [f"{description}. Hatched: padding. The packed state is dotted."]
    if len(plots) > MAX_SEQUENCES:
        notes.append(f"The first {MAX_SEQUENCES} sequences are drawn.")
    drawn_plots = plots[:MAX_SEQUENCES]
    plot_rows = [drawn_plots[i : i + 2] for i in range(0, len(drawn_plots), 2)]
    return Sweep(title, plot_rows, (), notes, "\n".join(lines), "time step", _PLOT_HEIGHT)
