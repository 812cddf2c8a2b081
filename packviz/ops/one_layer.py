"""Runs one layer of an RNN on a ragged batch, by rectangles or step by step.

For each direction, the cells of a padded batch are gathered in the order in which a kernel takes
them, and the outputs are gathered into another padded batch. The reverse direction begins at the
end of each sequence, so it needs no kernel of its own. The backward pass does the same with the
gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from packviz.core.padded import Padded
from packviz.ops import rectangles, split
from packviz.ops.private import is_batched, kernel
from packviz.ops.rectangles import Grid
from packviz.ops.torch_kernels import Gradients, Layer, Tensors, is_fused

Result = tuple[Tensor, Tensor, Tensor | None]
"""A layer's output, and `h_n` `(D, B, P)` and `c_n` `(D, B, H)` or `None` in the grid's order."""


class Task(NamedTuple):
    """What to run.

    Attributes:
        layer: the layer.
        grid: the cells of the batch. If `by_step` is true, no rectangle may contain padding.
        by_step: whether to run step by step with packviz's own code.
        source: the shape of the padded input.
        target: the shape of the padded output.
        padding_value: value that fills the padding of the output.
    """

    layer: Layer
    grid: Grid
    by_step: bool
    source: Padded
    target: Padded
    padding_value: float


def run(task: Task, x: Tensor, h: Tensor, c: Tensor | None) -> Result:
    """Runs a layer on a padded input.

    Args:
        task: what to run.
        x: the padded input.
        h: the initial state, `(D, B, P)`, in the grid's order.
        c: the initial cell state of an LSTM, `(D, B, H)`, in the grid's order; `None` for the
            other RNNs.
    """
    layer = task.layer
    fused = is_fused(layer.mode, x, layer.is_projected)
    if torch.is_grad_enabled() and (task.by_step or fused):
        out, h_n, c_n = _Layer.apply(task, x, h, c, *layer.flat)  # type: ignore[no-untyped-call]
    else:
        out, h_n, c_n, _ = _forward(task, x, h, c, layer.flat, False)
    # An output of `_Layer` may not be a view, because the caller may change it in place.
    return out.view(task.target.shape(layer.directions * layer.output_size)), h_n, c_n


def selected(state: Tensor, order: Tensor | None) -> Tensor:
    """Returns a state with its sequences in the given order."""
    return state if order is None else state.index_select(1, order)


def _forward(
    task: Task, x: Tensor, h: Tensor, c: Tensor | None, weights: Tensors, keeps: bool
) -> tuple[Tensor, Tensor, Tensor | None, list[Tensor]]:
    """Runs all directions."""
    layer = task.layer
    grid = task.grid
    forward = rectangles.forward_fused if keeps else rectangles.forward
    if task.by_step:
        forward = split.forward
    outs: list[Tensor] = []
    c_n = []
    kept = []
    for direction, own in enumerate(layer.holding(weights)):
        cells = grid.cells(x, task.source, direction)
        first = [state[direction] for state in (h, c) if state is not None]
        own_outs, ended, own_kept = forward(layer, grid, own, cells, *first)
        outs += own_outs
        kept += own_kept
        if ended is not None:
            c_n.append(ended)
    directions = range(layer.directions)
    joined = grid.joined(outs, task.target, directions, task.padding_value)
    h_n = [joined.index_select(0, grid.last + d * grid.n_cells) for d in directions]
    is_saved = keeps or torch.is_grad_enabled()  # for the kernel's backward pass
    out = grid.padded(joined, task.target, directions, task.padding_value, is_saved)
    return out, torch.stack(h_n), torch.stack(c_n) if c_n else None, kept


class _Layer(torch.autograd.Function):
    """A layer with a backward pass of its own."""

    @staticmethod
    def forward(
        ctx: Any, task: Task, x: Tensor, h: Tensor, c: Tensor | None, *weights: Tensor
    ) -> Result:
        ctx.set_materialize_grads(False)
        ctx.task = task
        out, h_n, c_n, kept = _forward(task, x, h, c, weights, True)
        ctx.save_for_backward(x, h, c, *weights, *kept)
        return out, h_n, c_n

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        task = ctx.task
        saved = ctx.saved_tensors  # accessed once, because a checkpoint recomputes them
        inputs = saved[: 3 + len(task.layer.flat)]
        if torch.is_grad_enabled() or any(map(is_batched, gradients)):
            return None, *_gradients_again(task, inputs, gradients)
        with torch.autocast(saved[0].device.type, enabled=False):
            kept = saved[len(inputs) :]
            return None, *_backward(task, inputs, kept, gradients, ctx.needs_input_grad[1])


def _backward(
    task: Task,
    inputs: Sequence[Any],
    kept: Tensors,
    gradients: Gradients,
    needs_input: bool,
) -> list[Tensor | None]:
    """Computes the gradients of the input, the states and the weights."""
    layer = task.layer
    grid = task.grid
    x, _, c, *weights = inputs
    d_out, d_h_n, d_c_n = gradients
    backward = split.backward if task.by_step else rectangles.backward_fused
    d_x: Tensor | None = None
    d_h_0 = []
    d_c_0 = []
    d_weights: list[Tensor | None] = []
    each = len(kept) // layer.directions
    for direction, own in enumerate(layer.holding(weights)):
        which = range(direction, direction + 1)
        d_cells = x.new_zeros(grid.n_cells, layer.output_size)
        if d_out is not None:
            whole = d_out.view(task.target.shape(layer.directions * layer.output_size))
            d_own = whole.chunk(layer.directions, 2)[direction]
            d_cells = grid.cells(d_own, task.target, direction).reshape(d_cells.shape)
            is_view = grid.is_view(task.target, which)
            fill = d_cells.index_fill if is_view else d_cells.index_fill_
            d_cells = fill(0, grid.waste, 0)
        if d_h_n is not None:
            d_cells.index_add_(0, grid.last, d_h_n[direction])
        d_ended = None if c is None else torch.zeros_like(c[direction])
        if d_c_n is not None:
            d_ended = d_c_n[direction].clone()
        own_kept = kept[direction * each : (direction + 1) * each]
        d_parts, d_h, d_c, d_own_weights = backward(
            layer, grid, own, own_kept, d_cells, d_ended, needs_input
        )
        d_weights += d_own_weights
        d_h_0.append(d_h)
        if d_c is not None:
            d_c_0.append(d_c)
        if needs_input:
            joined = grid.joined(d_parts, task.source, which, 0)
            d_own_x = grid.padded(joined, task.source, which, 0, False)
            d_x = d_own_x if d_x is None else d_x.add_(d_own_x)
    if layer.is_projected and d_out is None and d_h_n is None and max(grid.lengths) == 1:
        # After a single step, c_n does not depend on the projection, so torch gives it no gradient.
        d_weights = [None if i % len(own) == len(own) - 1 else g for i, g in enumerate(d_weights)]
    d_x = None if d_x is None else d_x.reshape(x.shape)
    return [d_x, torch.stack(d_h_0), torch.stack(d_c_0) if d_c_0 else None, *d_weights]


def _gradients_again(
    task: Task, inputs: Sequence[Any], gradients: Gradients
) -> list[Tensor | None]:
    """Computes the gradients of the input, the states and the weights, differentiable again."""
    # One input may be computed from another, such as a state from the weights. With views of the
    # inputs, gradients reach each input only through this function, so nothing is counted twice.
    again = torch.is_grad_enabled()
    with torch.enable_grad(), torch.autocast(inputs[0].device.type, enabled=False):
        own: list[Any] = [x if x is None else x.view_as(x) for x in inputs]
        results = _packed(task, *own)
    pairs = zip(results, gradients, strict=True)
    used = [(out, g) for out, g in pairs if g is not None]
    outs, given = zip(*used, strict=True)
    sources = [x for x in own if x is not None and x.requires_grad]
    grads = torch.autograd.grad(outs, sources, given, create_graph=again, allow_unused=True)
    remaining = iter(grads)
    return [next(remaining) if x is not None and x.requires_grad else None for x in own]


def _packed(task: Task, x: Tensor, h: Tensor, c: Tensor | None, *weights: Tensor) -> Result:
    """Computes the same with torch's packed kernel, which can be differentiated repeatedly."""
    layer = task.layer
    grid = Grid.without_waste(task.grid.lengths, x.device)
    data = x.reshape(-1, x.shape[-1]).index_select(0, grid.source(task.source, 0))
    is_sorted = task.grid.order is not None
    order = None if is_sorted else grid.order
    hx = [selected(state, order) for state in (h, c) if state is not None]
    sizes = torch.tensor(grid.batch_sizes, device="cpu")
    options = layer.bias, 1, 0.0, torch.is_grad_enabled(), layer.directions == 2
    states = hx[0] if c is None else hx
    data, *final = kernel(layer.mode)(data, sizes, states, weights, *options)
    every = torch.cat([data, data.new_full((1, data.shape[1]), task.padding_value)])
    out = every.index_select(0, grid.target(task.target, range(1)))
    h_n, *c_n = [selected(state, None if is_sorted else grid.rank) for state in final]
    return out.view(-1, layer.output_size), h_n, c_n[0] if c_n else None
