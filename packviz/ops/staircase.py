"""Runs a layer on a staircase of rectangles, each of which contains only the sequences that are
still running.

Each rectangle runs on torch's kernel for padded data. Most sequences end inside a rectangle. Their
final states are still exact, for three reasons:

* `h_n` is the output at a sequence's last step.
* The `c_n` of an LSTM is frozen in the padding by an additional input column. The column is 1 at
  padding and 0 elsewhere; its weights are -`FREEZE` into the input gate and +`FREEZE` into the
  forget gate. In the padding, the sigmoids of these gates are exactly 0 and 1, so `c = 1 · c + 0 ·
  g`, and the padding adds exactly 0 to any gradient.
* The reverse direction begins at the end of each sequence. In an LSTM with a single rectangle and
  an initial state of zeros, it may also begin in the padding, because there the frozen cell state
  stays 0, and so does the output.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from packviz.core.padded import Padded
from packviz.ops.grid import Grid, put, taken
from packviz.ops.kernels import Layer, in_one_piece, is_fused, rectangle

FREEZE = 3e4
"""An input that saturates a sigmoid exactly, and is finite in every dtype, even in float16, whose maximum is 65,504."""


def run(
    layer: Layer,
    x: Tensor | Sequence[Tensor],
    h: Tensor,
    c: Tensor | None,
    grid: Grid,
    source: Padded | None,
    target: Padded | None,
    padding_value: float = 0.0,
    from_zero: bool = False,
) -> tuple[Any, Tensor, Tensor | None]:
    """Runs a layer on the rectangles of a grid.

    Args:
        layer: the layer.
        x: the input, with the shape `source`; or, if `source` is `None`, the rectangles of the
            previous layer.
        h: the initial state, `(D, B, P)`, in the caller's order.
        c: the initial cell state of an LSTM, `(D, B, H)`, in the caller's order; `None` for the
            other RNNs.
        grid: the rectangles.
        source: the shape of the padded input; `None` if `x` is a list of rectangles.
        target: the shape of the padded output; `None` to return a list of rectangles.
        padding_value: value that fills the padding of the output.
        from_zero: whether the initial state is known to be 0.

    Returns:
        The output and the final states. If `target` is `None`, the output is a list of rectangles,
        `(t, n, P)` each, for the next layer. This needs no copy, but it works only for a single
        direction, because a second direction needs a different order.
    """
    outs: list[Tensor] = []
    finals: list[tuple[Tensor, Tensor | None]] = []
    single = len(grid.rectangles) == 1
    exact = from_zero or not len(grid.waste[0])
    through = exact and single and is_fused(layer.mode, h, len(layer.weights[0]) % 2 == 1)
    frozen = [c is not None and len(waste) > 0 for waste in grid.waste]
    for d, weights in enumerate(layer.weights):
        state, cell = (s if s is None else _ordered(s[d], grid.order) for s in (h, c))
        laid = {freeze: _laid(weights, freeze) for freeze in set(frozen)}
        if d == 0 or not through:
            cells = x if source is None else taken(x, x.shape[-1], grid.source(source, d))  # type: ignore[arg-type, union-attr]
            cells = [
                torch.cat([one, grid.mark(i, one)], 2) if frozen[i] else one
                for i, one in enumerate(cells)
            ]
        ended: list[tuple[Tensor, Tensor | None]] = []
        for (ends, left), freeze, rows in zip(grid.ends, frozen, cells, strict=True):
            out, state, cell = rectangle(
                layer.mode, layer.bias, laid[freeze], rows, state, cell, through and d == 1
            )  # type: ignore[arg-type]
            outs.append(out)
            last = state if through and d == 1 else out.flatten(0, 1).index_select(0, ends)
            ended.append((last, cell if cell is None else cell[left:]))
            state, cell = state[:left], cell if cell is None else cell[:left]
        finals.append(
            tuple(_ordered(_joined(s[::-1]), grid.rank) for s in zip(*ended, strict=True))
        )  # type: ignore[arg-type]
    h_n, c_n = (s[0] if s[0] is None else torch.stack(s) for s in zip(*finals, strict=True))
    if target is None:
        return outs, h_n, c_n  # type: ignore[return-value]
    shape = target.shape(layer.directions * layer.output_size)
    out = put(outs, shape, grid.target(target, 1 if through else layer.directions), padding_value)
    return out, h_n, c_n  # type: ignore[return-value]


def _joined(parts: Sequence[Tensor | None]) -> Tensor | None:
    first = parts[0]
    return first if first is None or len(parts) == 1 else torch.cat(parts)  # type: ignore[arg-type]


def _ordered(states: Tensor | None, order: Tensor | None) -> Tensor | None:
    return states if states is None or order is None else states.index_select(0, order)


def _laid(weights: Sequence[Tensor], freeze: bool) -> Sequence[Tensor]:
    """Returns the weights for the rectangles of a layer.

    If `freeze` is True, they freeze the cell state in the padding.
    """
    if freeze:
        of_input, *others = weights
        weights = [
            torch.cat([of_input, _column(len(of_input), of_input.dtype, of_input.device)], 1),
            *others,
        ]
    return weights if weights[0].is_cpu else in_one_piece(weights)


@functools.lru_cache(maxsize=4)
def _column(rows: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    with torch.inference_mode(False):  # otherwise autograd could not save what is computed from it
        column = torch.zeros(rows, 1, dtype=dtype, device=device)  # the rows of the four gates
        column[: rows // 4], column[rows // 4 : rows // 2] = -FREEZE, FREEZE
        return column
