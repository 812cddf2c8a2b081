"""Runs a layer on a staircase of rectangles: in each, the padded kernel runs on the sequences still running.

Most sequences end inside a rectangle. What makes their final states exact all the same:

* `h_n` is the output at a sequence's last step.
* The `c_n` of an LSTM is frozen through the padding by one more input column. It is 1 at padding and 0 elsewhere; its
  weights are -`FREEZE` into the input gate and +`FREEZE` into the forget gate. There the sigmoids are exactly 0 and 1,
  so that `c = 1 · c + 0 · g`, and what the padding adds to any gradient is exactly 0.
* The reverse direction begins at every sequence's own end. In a single rectangle, from a state of zeros, it may come
  through the padding instead: there the frozen cell stays 0, and with it the output.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from packviz.core.padded import Padded
from packviz.ops.grid import Grid, put, taken
from packviz.ops.kernels import Layer, Result, in_one_piece, is_fused, rectangle

FREEZE = 3e4
"""Saturates a sigmoid exactly, and is a number in every dtype: float16 ends at 65,504."""


def run(
    layer: Layer,
    x: Tensor,
    h: Tensor,
    c: Tensor | None,
    grid: Grid,
    source: Padded,
    target: Padded,
    padding_value: float = 0.0,
    from_zero: bool = False,
) -> Result:
    """The layer on the rectangles of a grid, from one padded tensor to another.

    Args:
        layer: what to run.
        x: the input, in the shape `source`.
        h: `(D, B, P)` the initial state, in the caller's order.
        c: `(D, B, H)` the same of an LSTM.
        grid: the rectangles.
        source: of the input.
        target: of the output.
        padding_value: what fills the output's padding.
        from_zero: whether the initial state is known to be 0.
    """
    outs: list[Tensor] = []
    c_n: list[Tensor] = []
    through = from_zero and len(grid.rectangles) == 1 and is_fused(layer.mode, x, len(layer.weights[0]) % 2 == 1)
    for d, weights in enumerate(layer.weights):
        state, cell = (s if s is None else _ordered(s[d], grid.order) for s in (h, c))
        frozen = [cell is not None and len(waste) > 0 for waste in grid.waste]
        laid = {freeze: _laid(weights, freeze) for freeze in set(frozen)}
        if d == 0 or not through:
            every = taken(x, x.shape[-1], grid.source(source, d), cell is not None)
        ended = []
        for (_, _, n), freeze, rows in zip(grid.rectangles, frozen, every, strict=True):
            state = state[:n]  # type: ignore[index]
            if cell is not None and len(cell) > n:
                ended.append(cell[n:])
                cell = cell[:n]
            out, state, cell = rectangle(layer.mode, layer.bias, laid[freeze], rows, state, cell, through and d == 1)
            outs.append(out)
        if cell is not None:
            c_n.append(_ordered(torch.cat([cell, *reversed(ended)]) if ended else cell, grid.rank))
    shape = target.shape(layer.directions * layer.output_size)
    out = put(outs, shape, grid.target(target, 1 if through else layer.directions), padding_value)
    ends = out.view(-1, layer.output_size).index_select(0, grid.last(target, layer.directions))
    return out, ends.view(layer.directions, -1, layer.output_size), torch.stack(c_n) if c_n else None


def _ordered(states: Tensor, order: Tensor | None) -> Tensor:
    return states if order is None else states.index_select(0, order)


def _laid(weights: Sequence[Tensor], freeze: bool) -> Sequence[Tensor]:
    """The weights for all rectangles of a layer that freeze its cell state, or do not."""
    weights = _with_column(weights) if freeze else weights
    return weights if weights[0].is_cpu else in_one_piece(weights)


def _with_column(weights: Sequence[Tensor]) -> list[Tensor]:
    """The weights of an LSTM with an input column that freezes its cell state."""
    of_input, *others = weights
    return [torch.cat([of_input, _column(len(of_input), of_input.dtype, of_input.device)], 1), *others]


@functools.lru_cache(maxsize=4)
def _column(rows: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    with torch.inference_mode(False):  # else autograd could not keep what is made of it
        column = torch.zeros(rows, 1, dtype=dtype, device=device)  # by gate, of which there are four
        column[: rows // 4], column[rows // 4 : rows // 2] = -FREEZE, FREEZE
        return column
