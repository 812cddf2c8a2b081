"""Runs one direction of a layer on packed data one time step at a time, with its own backward pass.

Each step computes only the sequences that are still running, so no cell is wasted. The input's
share of all gates is a single matrix product over all real cells, and so is the gradient of each
weight. Only the work that depends on the state stays in the loop: one matrix product per step, and
a few in-place element-wise operations.

The gates and their order are the same as in torch. In the backward pass, the gradient that arrives
at a step's state `h` is multiplied by factors that are known in advance, so these factors are
computed for all steps at once.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from packviz.ops.private import sigmoid_backward, tanh_backward
from packviz.ops.rectangles import Backward, Forward, Grid
from packviz.ops.torch_kernels import Layer, Tensors


def forward(
    layer: Layer,
    grid: Grid,
    weights: Tensors,
    cells: Tensor,
    h: Tensor,
    c: Tensor | None = None,
) -> Forward:
    """Runs one direction, for `backward`. The cells are those of `Grid.without_waste`."""
    cells = cells.reshape(grid.n_cells, -1)
    biases = weights[2:4] if layer.bias else ()
    if layer.mode == "GRU":
        y, *kept = _gru(grid, weights, biases, cells, h)
        return [y], None, [cells, h, y, *kept]
    gates = _input_gates(cells, weights[0], biases)
    of_state = weights[1].t()
    if c is None:
        _rnn(grid, gates, of_state, h, layer.mode == "RNN_RELU")
        return [gates], None, [cells, h, gates]
    projection = weights[-1] if layer.is_projected else None
    y, *kept = _lstm(grid, gates, of_state, projection, h, c)
    return [y], kept[0].index_select(0, grid.last), [cells, h, y, c, *kept]


def backward(
    layer: Layer,
    grid: Grid,
    weights: Tensors,
    kept: Tensors,
    dy: Tensor,
    d_ended: Tensor | None,
    needs_input: bool,
) -> Backward:
    """Computes the gradients of what `forward` takes. It overwrites `dy` and `d_ended`."""
    cells, h, y, *saved = kept
    dh = torch.zeros_like(h)
    of_input, of_state = weights[:2]
    inner = None  # the gradient of the state's share of the last gate, if that differs
    last: list[Tensor] = []
    if d_ended is not None:
        projection = weights[-1] if layer.is_projected else None
        d_gates, last = _lstm_back(grid, of_state, projection, saved, dy, dh, d_ended)
    elif layer.mode == "GRU":
        d_gates, inner = _gru_back(grid, of_state, h, y, saved, dy, dh)
    else:
        d_gates = _rnn_back(grid, of_state, y, dy, dh, layer.mode == "RNN_RELU")
    d_state = d_gates.t() @ _before(grid, h, y)
    d_state_bias = d_gates.sum(0)
    if inner is not None:
        d_gates[:, -inner.shape[1] :] = inner
    biases = [d_gates.sum(0), d_state_bias] if layer.bias else []
    d_cells = [d_gates @ of_input] if needs_input else []
    return d_cells, dh, d_ended, [d_gates.t() @ cells, d_state, *biases, *last]


def _input_gates(cells: Tensor, of_input: Tensor, biases: Tensors) -> Tensor:
    """Returns the input's share of the gates, `(N, G · H)`, with two biases or none."""
    if not biases:
        return cells @ of_input.t()
    return torch.addmm(biases[0] + biases[1], cells, of_input.t())


def _before(grid: Grid, first: Tensor, states: Tensor) -> Tensor:
    """Returns the state before each cell's step."""
    return torch.cat([first, states.index_select(0, grid.before)])


def _along(grid: Grid, *tensors: Tensor) -> list[Any]:
    """Returns, for each time step, the number of running sequences and each tensor's rows."""
    sizes = grid.batch_sizes
    parts = [tensor.split_with_sizes(sizes) for tensor in tensors]
    return list(zip(sizes, *parts, strict=True))


def _rnn(grid: Grid, gates: Tensor, of_state: Tensor, h: Tensor, is_relu: bool) -> None:
    """Turns the input's share of the gates into the outputs, in place."""
    activate = torch.relu_ if is_relu else torch.tanh_
    for n, step in _along(grid, gates):
        h = activate(step.addmm_(h[:n], of_state))


def _rnn_back(
    grid: Grid, of_state: Tensor, y: Tensor, dy: Tensor, dh: Tensor, is_relu: bool
) -> Tensor:
    d_gates = (~(y <= 0)).to(y.dtype) if is_relu else 1 - y * y  # NaN counts, as in torch
    for n, gate, g in reversed(_along(grid, d_gates, dy)):
        running = dh[:n]
        torch.mm(gate.mul_(g.add_(running)), of_state, out=running)
    return d_gates


def _gru(grid: Grid, weights: Tensors, biases: Tensors, cells: Tensor, h: Tensor) -> list[Tensor]:
    size = h.shape[1]
    inner_bias = cells.new_zeros(())
    if biases:
        outer_bias, inner_bias = biases[1].split_with_sizes([2 * size, size])
        biases = biases[0], torch.cat([outer_bias, torch.zeros_like(inner_bias)])
    gates = _input_gates(cells, weights[0], biases)
    # inner is the state's share of the gate n, before r scales it.
    y, inner = gates.new_empty(2, len(cells), size)
    of_state = weights[1].t()
    outer_weights, inner_weights = of_state.split_with_sizes([2 * size, size], 1)
    r, z, n_gate = gates.chunk(3, 1)
    outer = gates[:, : 2 * size]
    for n, step, at_inner, at_outer, at_r, at_z, at_n in _along(
        grid, y, inner, outer, r, z, n_gate
    ):
        h = h[:n]
        at_outer.addmm_(h, outer_weights).sigmoid_()
        torch.addmm(inner_bias, h, inner_weights, out=at_inner)
        h = torch.lerp(at_n.addcmul_(at_r, at_inner).tanh_(), h, at_z, out=step)
    return [y, gates, inner]


def _gru_back(
    grid: Grid, of_state: Tensor, h: Tensor, y: Tensor, kept: Tensors, dy: Tensor, dh: Tensor
) -> tuple[Tensor, Tensor]:
    gates, inner = kept
    r, z, n_gate = gates.chunk(3, 1)
    d_gates = torch.empty_like(gates)
    three = d_gates.view(len(y), 3, -1)
    d_r, d_z, d_n = three.unbind(1)
    factor = tanh_backward(1 - z, n_gate, grad_input=torch.empty_like(y))
    torch.mul(factor, r, out=d_n)
    sigmoid_backward(_before(grid, h, y) - n_gate, z, grad_input=d_z)
    sigmoid_backward(factor * inner, r, grad_input=d_r)
    for n, gate, step, g, through in reversed(_along(grid, three, d_gates, dy, z)):
        running = dh[:n]
        gate.mul_(g.add_(running).unsqueeze(1))
        torch.mm(step, of_state, out=running).addcmul_(g, through)
    return d_gates, factor.mul_(dy)


def _lstm(
    grid: Grid,
    gates: Tensor,
    of_state: Tensor,
    projection: Tensor | None,
    h: Tensor,
    c: Tensor,
) -> list[Tensor]:
    size = c.shape[1]
    states, bent, hidden = gates.new_empty(3, len(gates), size)  # c, tanh(c), o · tanh(c)
    y = hidden if projection is None else gates.new_empty(len(gates), h.shape[1])
    i, f, n_gate, o = gates.chunk(4, 1)
    both = gates[:, : 2 * size]  # i and f
    for n, step, gate, at_c, at_bent, at_hidden, at_i, at_f, at_both, at_n, at_o in _along(
        grid, y, gates, states, bent, hidden, i, f, both, n_gate, o
    ):
        gate.addmm_(h[:n], of_state)
        at_both.sigmoid_()
        c = torch.mul(at_f, c[:n], out=at_c).addcmul_(at_i, at_n.tanh_())
        h = torch.mul(at_o.sigmoid_(), torch.tanh(c, out=at_bent), out=at_hidden)
        if projection is not None:
            h = torch.mm(h, projection.t(), out=step)
    return [y, states, gates, bent]


def _lstm_back(
    grid: Grid,
    of_state: Tensor,
    projection: Tensor | None,
    kept: Tensors,
    dy: Tensor,
    dh: Tensor,
    dc: Tensor,
) -> tuple[Tensor, list[Tensor]]:
    c, states, gates, bent = kept
    i, f, n_gate, o = gates.chunk(4, 1)
    d_gates = torch.empty_like(gates)
    four = d_gates.view(len(gates), 4, -1)
    d_i, d_f, d_n, d_o = four.unbind(1)
    sigmoid_backward(n_gate, i, grad_input=d_i)
    sigmoid_backward(_before(grid, c, states), f, grad_input=d_f)
    tanh_backward(i, n_gate, grad_input=d_n)
    sigmoid_backward(bent, o, grad_input=d_o)
    through = tanh_backward(o, bent, grad_input=torch.empty_like(bent))
    steps = _along(grid, four[:, :3], d_o, d_gates, dy, through, f)
    for n, by_c, by_h, step, g, into_c, keep in reversed(steps):
        running = dh[:n]
        cell = dc[:n]
        g.add_(running)
        if projection is not None:
            g = g @ projection
        by_c.mul_(cell.addcmul_(g, into_c).unsqueeze(1))
        by_h.mul_(g)
        cell.mul_(keep)
        torch.mm(step, of_state, out=running)
    return d_gates, [] if projection is None else [dy.t() @ (o * bent)]
