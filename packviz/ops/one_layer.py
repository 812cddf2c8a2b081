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

from packviz.core.padded import PaddedShape
from packviz.ops import rectangles, split
from packviz.ops.private import is_vmapped, rnn_kernel
from packviz.ops.rectangles import Staircase
from packviz.ops.torch_kernels import Gradients, Layer, Tensors, runs_fused_lstm, split_by_size

Result = tuple[Tensor, Tensor, Tensor | None]
"""A layer's output, and `h_n` `(D, B, P)` and `c_n` `(D, B, H)` or `None`, in the order of the
staircase."""


class LayerTask(NamedTuple):
    """What to run.

    Attributes:
        layer: the layer.
        staircase: the cells of the batch. If `by_step` is true, no rectangle may contain padding.
        by_step: whether to run step by step with packviz's own code.
        input_shape: the shape of the padded input.
        output_shape: the shape of the padded output.
        padding_value: value that fills the padding of the output.
    """

    layer: Layer
    staircase: Staircase
    by_step: bool
    input_shape: PaddedShape
    output_shape: PaddedShape
    padding_value: float


def run(layer_task: LayerTask, x: Tensor, h: Tensor, c: Tensor | None) -> Result:
    """Runs a layer on a padded input.

    Args:
        layer_task: what to run.
        x: the padded input.
        h: the initial state, `(D, B, P)`, in the staircase's order.
        c: the initial cell state of an LSTM, `(D, B, H)`, in the staircase's order; `None` for the
            other RNNs.
    """
    layer = layer_task.layer
    is_fused = runs_fused_lstm(layer.mode, x, layer.is_projected)
    if torch.is_grad_enabled() and (layer_task.by_step or is_fused):
        out, h_n, c_n = _LayerFunction.apply(  # type: ignore[no-untyped-call]
            layer_task, x, h, c, *layer.flat_weights
        )
    else:
        out, h_n, c_n, _ = _forward(layer_task, x, h, c, layer.flat_weights, False)
    # An output of `_LayerFunction` may not be a view, because the caller may change it in place.
    return out.view(layer_task.output_shape.shape(layer.directions * layer.output_size)), h_n, c_n


def reorder_state(state: Tensor, order: Tensor | None) -> Tensor:
    """Returns a state with its sequences in the given order."""
    return state if order is None else state.index_select(1, order)


def _forward(
    layer_task: LayerTask,
    x: Tensor,
    h: Tensor,
    c: Tensor | None,
    weights: Tensors,
    saves_intermediates: bool,
) -> tuple[Tensor, Tensor, Tensor | None, Tensors]:
    """Runs all directions."""
    layer = layer_task.layer
    staircase = layer_task.staircase
    forward = rectangles.forward_fused if saves_intermediates else rectangles.forward
    if layer_task.by_step:
        forward = split.forward
    outputs: list[Tensor] = []
    c_n = []
    intermediates: list[Tensor] = []
    for direction, direction_weights in enumerate(layer.split_by_direction(weights)):
        cells = staircase.cells(x, layer_task.input_shape, direction)
        initial_states = [state[direction] for state in (h, c) if state is not None]
        direction_outputs, final_c, direction_intermediates = forward(
            layer, staircase, direction_weights, cells, *initial_states
        )
        outputs += direction_outputs
        intermediates += direction_intermediates
        if final_c is not None:
            c_n.append(final_c)
    directions = range(layer.directions)
    joined_outputs = staircase.join_parts(
        outputs, layer_task.output_shape, directions, layer_task.padding_value
    )
    h_n = [
        joined_outputs.index_select(0, staircase.last_cells + d * staircase.n_cells)
        for d in directions
    ]
    is_saved = saves_intermediates or torch.is_grad_enabled()  # for the kernel's backward pass
    out = staircase.pad_cells(
        joined_outputs, layer_task.output_shape, directions, layer_task.padding_value, is_saved
    )
    return out, torch.stack(h_n), torch.stack(c_n) if c_n else None, intermediates


class _LayerFunction(torch.autograd.Function):
    """A layer with a backward pass of its own."""

    @staticmethod
    def forward(
        ctx: Any, layer_task: LayerTask, x: Tensor, h: Tensor, c: Tensor | None, *weights: Tensor
    ) -> Result:
        ctx.set_materialize_grads(False)
        ctx.layer_task = layer_task
        out, h_n, c_n, intermediates = _forward(layer_task, x, h, c, weights, True)
        ctx.save_for_backward(x, h, c, *weights, *intermediates)
        return out, h_n, c_n

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        layer_task = ctx.layer_task
        saved_tensors = ctx.saved_tensors  # accessed once, because a checkpoint recomputes them
        inputs = saved_tensors[: 3 + len(layer_task.layer.flat_weights)]
        if torch.is_grad_enabled() or any(map(is_vmapped, gradients)):
            return None, *_differentiable_gradients(layer_task, inputs, gradients)
        with torch.autocast(saved_tensors[0].device.type, enabled=False):
            intermediates = saved_tensors[len(inputs) :]
            return None, *_backward(
                layer_task, inputs, intermediates, gradients, ctx.needs_input_grad[1]
            )


def _backward(
    layer_task: LayerTask,
    inputs: Sequence[Any],
    intermediates: Tensors,
    gradients: Gradients,
    needs_input_grad: bool,
) -> Gradients:
    """Computes the gradients of the input, the states and the weights."""
    layer = layer_task.layer
    staircase = layer_task.staircase
    x, _, c, *weights = inputs
    d_out, d_h_n, d_c_n = gradients
    backward = split.backward if layer_task.by_step else rectangles.backward_fused
    d_x: Tensor | None = None
    d_h_0 = []
    d_c_0 = []
    d_weights: list[Tensor | None] = []
    intermediates_by_direction = split_by_size(
        intermediates, len(intermediates) // layer.directions
    )
    for direction, direction_weights in enumerate(layer.split_by_direction(weights)):
        direction_range = range(direction, direction + 1)
        d_cells = x.new_zeros(staircase.n_cells, layer.output_size)
        if d_out is not None:
            d_out_3d = d_out.view(
                layer_task.output_shape.shape(layer.directions * layer.output_size)
            )
            d_direction_out = d_out_3d.chunk(layer.directions, 2)[direction]
            d_cells = staircase.cells(d_direction_out, layer_task.output_shape, direction).reshape(
                d_cells.shape
            )
            is_padded_batch = staircase.is_padded_batch(layer_task.output_shape, direction_range)
            index_fill = d_cells.index_fill if is_padded_batch else d_cells.index_fill_
            d_cells = index_fill(0, staircase.padding_indices, 0)
        if d_h_n is not None:
            d_cells.index_add_(0, staircase.last_cells, d_h_n[direction])
        d_final_c = None if c is None else torch.zeros_like(c[direction])
        if d_c_n is not None:
            d_final_c = d_c_n[direction].clone()
        d_cell_parts, d_h, d_c, d_direction_weights = backward(
            layer,
            staircase,
            direction_weights,
            intermediates_by_direction[direction],
            d_cells,
            d_final_c,
            needs_input_grad,
        )
        d_weights += d_direction_weights
        d_h_0.append(d_h)
        if d_c is not None:
            d_c_0.append(d_c)
        if needs_input_grad:
            joined_gradients = staircase.join_parts(
                d_cell_parts, layer_task.input_shape, direction_range, 0
            )
            d_direction_x = staircase.pad_cells(
                joined_gradients, layer_task.input_shape, direction_range, 0, False
            )
            d_x = d_direction_x if d_x is None else d_x.add_(d_direction_x)
    if layer.is_projected and d_out is None and d_h_n is None and max(staircase.lengths) == 1:
        # After a single step, c_n does not depend on the projection, so torch gives it no gradient.
        d_weights = [
            None if i % len(direction_weights) == len(direction_weights) - 1 else g
            for i, g in enumerate(d_weights)
        ]
    d_x = None if d_x is None else d_x.reshape(x.shape)
    return [d_x, torch.stack(d_h_0), torch.stack(d_c_0) if d_c_0 else None, *d_weights]


def _differentiable_gradients(
    layer_task: LayerTask, inputs: Sequence[Any], gradients: Gradients
) -> Gradients:
    """Computes the gradients of the input, the states and the weights, differentiable again."""
    # One input may be computed from another, such as a state from the weights. With views of the
    # inputs, gradients reach each input only through this function, so nothing is counted twice.
    is_differentiable = torch.is_grad_enabled()
    with torch.enable_grad(), torch.autocast(inputs[0].device.type, enabled=False):
        input_views: list[Any] = [x if x is None else x.view_as(x) for x in inputs]
        results = _run_packed_kernel(layer_task, *input_views)
    pairs = zip(results, gradients, strict=True)
    pairs_with_grad = [(out, g) for out, g in pairs if g is not None]
    outputs, output_grads = zip(*pairs_with_grad, strict=True)
    differentiable_inputs = [x for x in input_views if x is not None and x.requires_grad]
    input_grads = torch.autograd.grad(
        outputs,
        differentiable_inputs,
        output_grads,
        create_graph=is_differentiable,
        allow_unused=True,
    )
    grad_iterator = iter(input_grads)
    return [next(grad_iterator) if x is not None and x.requires_grad else None for x in input_views]


def _run_packed_kernel(
    layer_task: LayerTask, x: Tensor, h: Tensor, c: Tensor | None, *weights: Tensor
) -> Result:
    """Computes the same with torch's packed kernel, which can be differentiated repeatedly."""
    layer = layer_task.layer
    staircase = Staircase.make_unpadded(layer_task.staircase.lengths, x.device)
    data = x.reshape(-1, x.shape[-1]).index_select(
        0, staircase.source_rows(layer_task.input_shape, 0)
    )
    is_sorted = layer_task.staircase.order is not None
    order = None if is_sorted else staircase.order
    hx = [reorder_state(state, order) for state in (h, c) if state is not None]
    sizes = torch.tensor(staircase.batch_sizes, device="cpu")
    options = layer.bias, 1, 0.0, torch.is_grad_enabled(), layer.directions == 2
    states = hx[0] if c is None else hx
    data, *final_states = rnn_kernel(layer.mode)(data, sizes, states, weights, *options)
    data_and_padding = torch.cat(
        [data, data.new_full((1, data.shape[1]), layer_task.padding_value)]
    )
    out = data_and_padding.index_select(
        0, staircase.source_cells(layer_task.output_shape, range(1))
    )
    h_n, *c_n = [
        reorder_state(state, None if is_sorted else staircase.ranks) for state in final_states
    ]
    return out.view(-1, layer.output_size), h_n, c_n[0] if c_n else None
