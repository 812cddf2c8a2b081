"""Runs a layer on a staircase of rectangles, each of which contains only the sequences that are
still running.

Each rectangle runs on torch's kernel for padded data. Most sequences end inside a rectangle. Their
final states are still exact, for three reasons:

* `h_n` is the output at a sequence's last step.
* The `c_n` of an LSTM is frozen in the padding by an additional input column. The column is 1 at
  padding and 0 elsewhere; its weights are -`FREEZE` into the input gate and +`FREEZE` into the
  forget gate. In the padding, the sigmoids of these gates are exactly 0 and 1, so `c = 1 · c + 0 ·
  g`, and the padding adds exactly 0 to any gradient. `can_freeze` says for which weights this is
  so.
* The reverse direction begins at the end of each sequence.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from packviz.core.cuts import rectangles
from packviz.core.layout import IntArray
from packviz.core.padded import Padded
from packviz.ops import split
from packviz.ops.index import placed
from packviz.ops.private import fused_lstm, fused_lstm_backward, kernel, is_batched
from packviz.ops.torch_kernels import Layer, Result, gradients_again, in_one_piece, is_fused

FREEZE = 1e38
"""The weight that freezes a cell state. It is finite in float32, float64 and bfloat16."""

LARGEST = 1e15
"""The largest norm of a weight for which `FREEZE` outweighs everything else that a gate receives."""

FREEZE_IN_HALF, LARGEST_IN_HALF = 6e4, 100.0
"""The same in float16, whose largest number is 65,504."""

Call = Callable[
    [Sequence[Tensor], Tensor, Tensor, Tensor | None], tuple[Tensor, Tensor, Tensor | None]
]
"""A kernel: takes weights, a rectangle `(t, n, I)`, `h` and `c`; returns the output and final states."""


def can_freeze(weights: Sequence[Tensor]) -> bool:
    """Returns whether the cell state of an LSTM with these weights can be frozen exactly.

    In the padding, a gate receives its biases, and its weights times numbers that are at most 1, or
    that a projection computes from such numbers. With weights whose norm is at most `LARGEST`, all
    of this is less than `FREEZE`. On a GPU, the norms are not checked, because the processor would
    have to wait for them.
    """
    if not weights[0].is_cpu:
        return True
    largest = LARGEST_IN_HALF if weights[0].dtype == torch.float16 else LARGEST
    with torch.no_grad():  # a comparison with NaN is false
        return all(float(torch.linalg.vector_norm(weight)) <= largest for weight in weights)


class Grid:
    """The cells of a staircase, rectangle by rectangle.

    Each rectangle is time-major, with the longest sequences first.

    Attributes:
        lengths: the lengths of the batch.
        sizes: for each rectangle, the numbers of time steps and sequences.
        left: for each rectangle, the number of sequences that continue after it.
        n_cells: the number of cells.
        order: `(B,)` the caller's index of each sequence, longest sequence first.
        rank: `(B,)` the position of each of the caller's sequences in `order`.
        waste: the indices of the padding among all cells.
        last: `(B,)` for each of the caller's sequences, the index of its last real cell.
        source: a function that takes the shape of a padded batch and a direction, and returns the
            row of the batch for each cell. Direction 1 begins at the end of each sequence.
        target: a function that takes the shape of a padded batch and a range of directions, and
            returns, for each row and direction, the index of its cell among the cells of all these
            directions. At padding, the index is the number of cells.
    """

    def __init__(self, lengths: Sequence[int], cuts: Sequence[int], device: torch.device) -> None:
        """Computes the staircase of a batch with these lengths and cuts. See `packviz.core.cuts.rectangles`."""
        stairs = rectangles(lengths, cuts)
        n = np.array(lengths)
        order = np.argsort(-n, kind="stable")
        step = np.concatenate([np.repeat(np.arange(a, b), count) for a, b, count in stairs])
        rank = np.concatenate([np.tile(np.arange(count), b - a) for a, b, count in stairs])
        self._step = step
        self._sequence = order[rank]
        self._last_step = n[self._sequence] - 1
        self._is_real = step <= self._last_step
        ends = np.flatnonzero(step == self._last_step)
        last = np.empty_like(n)
        last[self._sequence[ends]] = ends
        self.lengths = tuple(lengths)
        self.sizes = [(b - a, count) for a, b, count in stairs]
        self.left = [count for _, _, count in stairs[1:]] + [0]
        self.n_cells = len(step)
        waste = np.flatnonzero(~self._is_real)
        self._device = device
        self.order, self.rank, self.waste, self.last = placed(
            device, order, np.argsort(order), waste, last
        )
        self.source = functools.lru_cache(split.MOST_SHAPES)(self._source)
        self.target = functools.lru_cache(split.MOST_SHAPES)(self._target)

    def _rows(self, shape: Padded, direction: int) -> IntArray:
        step = self._step
        if direction:
            step = np.where(self._is_real, self._last_step - step, step)
        return shape.rows(self._sequence, step)

    def _source(self, shape: Padded, direction: int) -> Tensor:
        (rows,) = placed(self._device, self._rows(shape, direction))
        return rows

    def _target(self, shape: Padded, which: range) -> Tensor:
        cells = np.full((shape.batch * shape.steps, len(which)), len(which) * self.n_cells)
        real = np.flatnonzero(self._is_real)
        for column, direction in enumerate(which):
            cells[self._rows(shape, direction)[real], column] = real + column * self.n_cells
        (placed_cells,) = placed(self._device, cells.ravel())
        return placed_cells


class _Task(NamedTuple):
    """What to run: the layer, the rectangles, the shapes of the padded input and output, and the padding value."""

    layer: Layer
    grid: Grid
    source: Padded
    target: Padded
    padding_value: float


def run(
    layer: Layer,
    x: Tensor,
    h: Tensor,
    c: Tensor | None,
    grid: Grid,
    source: Padded,
    target: Padded,
    padding_value: float = 0.0,
) -> Result:
    """Runs a layer on the rectangles of a grid.

    Args:
        layer: the layer.
        x: the padded input, with the shape `source`.
        h: the initial state, `(D, B, P)`, in the caller's order.
        c: the initial cell state of an LSTM, `(D, B, H)`, in the caller's order; `None` for the
            other RNNs.
        grid: the rectangles.
        source: the shape of the padded input.
        target: the shape of the padded output.
        padding_value: value that fills the padding of the output.

    Returns:
        The output and the final states.
    """
    task = _Task(layer, grid, source, target, padding_value)
    if torch.is_grad_enabled() and is_fused(layer.mode, x, layer.is_projected):
        out, h_n, c_n = _Fused.apply(task, x, h, c, *layer.flat)  # type: ignore[no-untyped-call]
    else:
        call = functools.partial(_kernel, layer.mode)
        out, h_n, c_n = _forward(task, x, h, c, layer.flat, call)
    return out.view(target.shape(layer.directions * layer.output_size)), h_n, c_n


def _forward(
    task: _Task, x: Tensor, h: Tensor, c: Tensor | None, weights: Sequence[Tensor], call: Call
) -> Result:
    """Runs all directions with a kernel. The output has a row for each cell and direction of the target."""
    layer, grid, source, target, padding_value = task
    outs = []
    c_n = []
    for direction, own in enumerate(layer.holding(weights).weights):
        cells = x.reshape(-1, x.shape[-1]).index_select(0, grid.source(source, direction))
        cells = cells.index_fill_(0, grid.waste, 0)
        if c is not None and len(grid.waste):
            cells = torch.cat([cells, _marks(grid, cells)], 1)
            own = (torch.cat([own[0], _column(own[0])], 1), *own[1:])
        if not cells.is_cpu:
            own = in_one_piece(own)
        state = h[direction].index_select(0, grid.order)
        cell = None if c is None else c[direction].index_select(0, grid.order)
        ended = []
        parts = cells.split([steps * count for steps, count in grid.sizes])  # type: ignore[no-untyped-call]
        for part, size, left in zip(parts, grid.sizes, grid.left, strict=True):
            out, state, cell = call(own, part.view(*size, -1), state, cell)
            outs.append(out.flatten(0, 1))
            state = state[:left]
            if cell is not None:
                ended.append(cell[left:])
                cell = cell[:left]
        if ended:
            c_n.append(torch.cat(ended[::-1]).index_select(0, grid.rank))
    padding = outs[0].new_full((1, layer.output_size), padding_value)
    every = torch.cat([*outs, padding])
    h_n = [every.index_select(0, grid.last + d * grid.n_cells) for d in range(layer.directions)]
    # A gather is faster than a scatter, because it writes in order and fills the padding in the
    # same pass.
    out = every.index_select(0, grid.target(target, range(layer.directions)))
    return out, torch.stack(h_n), torch.stack(c_n) if c_n else None


def _marks(grid: Grid, cells: Tensor) -> Tensor:
    """Returns a column that is 1 at padding and 0 elsewhere."""
    return cells.new_zeros(len(cells), 1).index_fill_(0, grid.waste, 1)


def _column(of_input: Tensor) -> Tensor:
    """Returns the weights of the marks: one column beside the weights of the input."""
    freeze = FREEZE_IN_HALF if of_input.dtype == torch.float16 else FREEZE
    column = of_input.new_zeros(len(of_input), 1)
    input_gate, forget_gate, *_ = column.chunk(4)
    input_gate.fill_(-freeze)
    forget_gate.fill_(freeze)
    return column


def _kernel(
    mode: str, weights: Sequence[Tensor], x: Tensor, h: Tensor, c: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Runs one direction with torch's kernel for padded data."""
    hx = h[None] if c is None else (h[None], c[None])
    has_bias = len(weights) > 3
    trains = torch.is_grad_enabled()
    out, *final = kernel(mode)(x, hx, weights, has_bias, 1, 0.0, trains, False, False)
    return out, final[0][0], None if c is None else final[1][0]


class _Fused(torch.autograd.Function):
    """The rectangles of an LSTM on oneDNN's kernel, with a backward pass that needs few calls."""

    @staticmethod
    def forward(ctx: Any, task: _Task, x: Tensor, h: Tensor, c: Tensor, *weights: Tensor) -> Result:
        ctx.set_materialize_grads(False)
        trains = any(ctx.needs_input_grad)
        kept: list[Tensor] = []

        def call(
            own: Sequence[Tensor], x: Tensor, h: Tensor, c: Tensor | None
        ) -> tuple[Tensor, Tensor, Tensor]:
            every = (x, *_with_biases(own), h, cast(Tensor, c))
            taken = [t.detach().contiguous() for t in every]  # oneDNN ignores strides
            out, h_n, c_n, space = fused_lstm(taken, trains)
            kept.extend([*taken, out, h_n, c_n, space])
            return out, h_n, c_n

        results = _forward(task, x, h, c, weights, call)
        if trains:
            ctx.task = task
            ctx.save_for_backward(x, h, c, *weights, *kept)
        return results

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        inputs = 3 + len(ctx.task.layer.flat)
        saved = ctx.saved_tensors  # accessed once, because a checkpoint recomputes them
        if torch.is_grad_enabled() or any(map(is_batched, gradients)):
            again = functools.partial(_packed, ctx.task)
            return None, *gradients_again(again, saved[:inputs], gradients)
        return None, *_backward(ctx.task, saved[:inputs], saved[inputs:], gradients)


def _packed(task: _Task, x: Tensor, h: Tensor, c: Tensor, *weights: Tensor) -> Result:
    """Computes the same as `_Fused` with torch's kernel for packed data, which can be differentiated repeatedly."""
    steps = split.Steps(task.grid.lengths, x.device)
    data = x.reshape(-1, x.shape[-1]).index_select(0, steps.route(task.source).rows)
    how = task.layer, steps, task.target, task.padding_value
    out, h_n, c_n = split.packed(how, data, h, c, *weights)
    return out.view(-1, task.layer.output_size), h_n, c_n


KEPT = 11
"""The number of tensors that `_Fused` keeps for each rectangle: seven inputs and four results of the kernel."""


def _backward(
    task: _Task,
    inputs: Sequence[Tensor],
    kept: Sequence[Tensor],
    gradients: Sequence[Tensor | None],
) -> list[Tensor]:
    """Computes the gradients of the input, the states and the weights."""
    layer, grid, source, target, _ = task
    x, h, c = inputs[:3]
    d_out, d_h_n, d_c_n = gradients
    d_x: Tensor | None = None
    d_states = []
    d_weights: list[Tensor] = []
    for direction in range(layer.directions):
        if d_out is None:
            d_cells = x.new_zeros(grid.n_cells, layer.output_size)
        else:
            d_own = d_out.view(-1, layer.directions, layer.output_size)[:, direction]
            d_cells = d_own.index_select(0, grid.source(target, direction))
            d_cells.index_fill_(0, grid.waste, 0)
        if d_h_n is not None:
            d_cells.index_add_(0, grid.last, d_h_n[direction])
        d_h = h.new_zeros(0, h.shape[2])
        d_c = d_h
        d_ended = torch.zeros_like(c[0]) if d_c_n is None else d_c_n[direction]
        d_ended = d_ended.index_select(0, grid.order)
        d_parts = []
        d_own_weights: list[Tensor] = []
        end = grid.n_cells
        for i in reversed(range(len(grid.sizes))):
            steps, count = grid.sizes[i]
            left = grid.left[i]
            first = KEPT * (direction * len(grid.sizes) + i)
            *taken, out, h_n, c_n, space = kept[first : first + KEPT]
            d_part = d_cells[end - steps * count : end].view(steps, count, -1)
            end -= steps * count
            d_h = torch.cat([d_h, d_h.new_zeros(count - left, h.shape[2])])
            d_c = torch.cat([d_c, d_ended[left:count]])
            results = [out, h_n, c_n, d_part, d_h, d_c]
            d_rows, *d_here, d_h, d_c = fused_lstm_backward(taken, results, space)
            d_parts.append(d_rows.flatten(0, 1)[:, : x.shape[2]])
            if d_own_weights:
                d_here = [a + b for a, b in zip(d_own_weights, d_here, strict=True)]
            d_own_weights = d_here
        d_own_weights[0] = d_own_weights[0][:, : x.shape[2]]
        d_weights += d_own_weights[: len(layer.weights[0])]
        d_states.append([s.index_select(0, grid.rank) for s in (d_h, d_c)])
        d_rows = torch.cat([*d_parts[::-1], x.new_zeros(1, x.shape[2])])
        d_rows = d_rows.index_select(0, grid.target(source, range(direction, direction + 1)))
        d_x = d_rows if d_x is None else d_x.add_(d_rows)
    d_h_0, d_c_0 = (torch.stack(states) for states in zip(*d_states, strict=True))
    return [cast(Tensor, d_x).view(x.shape), d_h_0, d_c_0, *d_weights]


def _with_biases(weights: Sequence[Tensor]) -> Sequence[Tensor]:
    """Returns the weights with biases, which are zeros if the layer has none."""
    if len(weights) == 4:
        return weights
    zeros = weights[0].new_zeros(len(weights[0]))
    return [*weights, zeros, zeros]
