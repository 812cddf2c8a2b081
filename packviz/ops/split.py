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
from packviz.ops.rectangles import BackwardResult, ForwardResult, Staircase
from packviz.ops.torch_kernels import Layer, Tensors


def forward(
    layer: Layer,
    staircase: Staircase,
    weights: Tensors,
    cells: Tensor,
    h: Tensor,
    c: Tensor | None = None,
) -> ForwardResult:
    """Runs one direction, for `backward`. The cells are those of `Staircase.make_unpadded`."""
    cells = cells.reshape(staircase.n_cells, -1)
    biases = weights[2:4] if layer.bias else ()
    if layer.mode == "GRU":
        y, *intermediates = _gru_forward(staircase, weights, biases, cells, h)
        return [y], None, [cells, h, y, *intermediates]
    gates = _input_share_of_gates(cells, weights[0], biases)
    weight_hh_t = weights[1].t()
    if c is None:
        _rnn_forward(staircase, gates, weight_hh_t, h, layer.mode == "RNN_RELU")
        return [gates], None, [cells, h, gates]
    projection = weights[-1] if layer.is_projected else None
    y, *intermediates = _lstm_forward(staircase, gates, weight_hh_t, projection, h, c)
    return (
        [y],
        intermediates[0].index_select(0, staircase.last_cells),
        [cells, h, y, c, *intermediates],
    )


def backward(
    layer: Layer,
    staircase: Staircase,
    weights: Tensors,
    intermediates: Tensors,
    dy: Tensor,
    d_final_c: Tensor | None,
    needs_input_grad: bool,
) -> BackwardResult:
    """Computes the gradients of what `forward` takes. It overwrites `dy` and `d_final_c`."""
    cells, h, y, *other_intermediates = intermediates
    dh = torch.zeros_like(h)
    weight_ih, weight_hh = weights[:2]
    # The gradient of the input's share of the last gate, if that differs.
    d_candidate_from_input = None
    d_projection: Tensors = []
    if d_final_c is not None:
        projection = weights[-1] if layer.is_projected else None
        d_gates, d_projection = _lstm_backward(
            staircase, weight_hh, projection, other_intermediates, dy, dh, d_final_c
        )
    elif layer.mode == "GRU":
        d_gates, d_candidate_from_input = _gru_backward(
            staircase, weight_hh, h, y, other_intermediates, dy, dh
        )
    else:
        d_gates = _rnn_backward(staircase, weight_hh, y, dy, dh, layer.mode == "RNN_RELU")
    d_weight_hh = d_gates.t() @ _previous_states(staircase, h, y)
    d_bias_hh = d_gates.sum(0)
    if d_candidate_from_input is not None:
        d_gates[:, -d_candidate_from_input.shape[1] :] = d_candidate_from_input
    d_biases = [d_gates.sum(0), d_bias_hh] if layer.bias else []
    d_cells = [d_gates @ weight_ih] if needs_input_grad else []
    return d_cells, dh, d_final_c, [d_gates.t() @ cells, d_weight_hh, *d_biases, *d_projection]


def _input_share_of_gates(cells: Tensor, weight_ih: Tensor, biases: Tensors) -> Tensor:
    """Returns the input's share of the gates, `(N, G · H)`, with two biases or none."""
    if not biases:
        return cells @ weight_ih.t()
    return torch.addmm(biases[0] + biases[1], cells, weight_ih.t())


def _previous_states(staircase: Staircase, initial_state: Tensor, states: Tensor) -> Tensor:
    """Returns the state before each cell's step."""
    return torch.cat([initial_state, states.index_select(0, staircase.previous_cells)])


def _split_by_step(staircase: Staircase, *tensors: Tensor) -> list[Any]:
    """Returns, for each time step, the number of running sequences and each tensor's rows."""
    batch_sizes = staircase.batch_sizes
    parts = [tensor.split_with_sizes(batch_sizes) for tensor in tensors]
    return list(zip(batch_sizes, *parts, strict=True))


def _rnn_forward(
    staircase: Staircase, gates: Tensor, weight_hh_t: Tensor, h: Tensor, is_relu: bool
) -> None:
    """Turns the input's share of the gates into the outputs, in place."""
    activate = torch.relu_ if is_relu else torch.tanh_
    for n, gates_t in _split_by_step(staircase, gates):
        h = activate(gates_t.addmm_(h[:n], weight_hh_t))


def _rnn_backward(
    staircase: Staircase, weight_hh: Tensor, y: Tensor, dy: Tensor, dh: Tensor, is_relu: bool
) -> Tensor:
    d_gates = (~(y <= 0)).to(y.dtype) if is_relu else 1 - y * y  # NaN counts, as in torch
    for n, d_gates_t, dy_t in reversed(_split_by_step(staircase, d_gates, dy)):
        dh_t = dh[:n]
        torch.mm(d_gates_t.mul_(dy_t.add_(dh_t)), weight_hh, out=dh_t)
    return d_gates


def _gru_forward(
    staircase: Staircase, weights: Tensors, biases: Tensors, cells: Tensor, h: Tensor
) -> Tensors:
    hidden_size = h.shape[1]
    candidate_bias = cells.new_zeros(())
    if biases:
        rz_bias, candidate_bias = biases[1].split_with_sizes([2 * hidden_size, hidden_size])
        biases = biases[0], torch.cat([rz_bias, torch.zeros_like(candidate_bias)])
    gates = _input_share_of_gates(cells, weights[0], biases)
    # candidate_from_state is the state's share of the candidate, torch's n, before r scales it.
    y, candidate_from_state = gates.new_empty(2, len(cells), hidden_size)
    weight_hh_t = weights[1].t()
    rz_weights, candidate_weights = weight_hh_t.split_with_sizes([2 * hidden_size, hidden_size], 1)
    r, z, candidate = gates.chunk(3, 1)
    rz_gates = gates[:, : 2 * hidden_size]
    for n, y_t, candidate_from_state_t, rz_t, r_t, z_t, candidate_t in _split_by_step(
        staircase, y, candidate_from_state, rz_gates, r, z, candidate
    ):
        h = h[:n]
        rz_t.addmm_(h, rz_weights).sigmoid_()
        torch.addmm(candidate_bias, h, candidate_weights, out=candidate_from_state_t)
        h = torch.lerp(candidate_t.addcmul_(r_t, candidate_from_state_t).tanh_(), h, z_t, out=y_t)
    return [y, gates, candidate_from_state]


def _gru_backward(
    staircase: Staircase,
    weight_hh: Tensor,
    h: Tensor,
    y: Tensor,
    intermediates: Tensors,
    dy: Tensor,
    dh: Tensor,
) -> tuple[Tensor, Tensor]:
    gates, candidate_from_state = intermediates
    r, z, candidate = gates.chunk(3, 1)
    d_gates = torch.empty_like(gates)
    d_gates_3d = d_gates.view(len(y), 3, -1)
    d_r, d_z, d_candidate_from_state = d_gates_3d.unbind(1)
    d_candidate_from_input = tanh_backward(1 - z, candidate, grad_input=torch.empty_like(y))
    torch.mul(d_candidate_from_input, r, out=d_candidate_from_state)
    sigmoid_backward(_previous_states(staircase, h, y) - candidate, z, grad_input=d_z)
    sigmoid_backward(d_candidate_from_input * candidate_from_state, r, grad_input=d_r)
    for n, d_gates_3d_t, d_gates_t, dy_t, z_t in reversed(
        _split_by_step(staircase, d_gates_3d, d_gates, dy, z)
    ):
        dh_t = dh[:n]
        d_gates_3d_t.mul_(dy_t.add_(dh_t).unsqueeze(1))
        torch.mm(d_gates_t, weight_hh, out=dh_t).addcmul_(dy_t, z_t)
    return d_gates, d_candidate_from_input.mul_(dy)


def _lstm_forward(
    staircase: Staircase,
    gates: Tensor,
    weight_hh_t: Tensor,
    projection: Tensor | None,
    h: Tensor,
    c: Tensor,
) -> Tensors:
    hidden_size = c.shape[1]
    states, tanh_c, unprojected_h = gates.new_empty(
        3, len(gates), hidden_size
    )  # c, tanh(c), o · tanh(c)
    y = unprojected_h if projection is None else gates.new_empty(len(gates), h.shape[1])
    i, f, candidate, o = gates.chunk(4, 1)
    input_forget = gates[:, : 2 * hidden_size]  # i and f
    for (
        n,
        y_t,
        gates_t,
        c_t,
        tanh_c_t,
        unprojected_h_t,
        i_t,
        f_t,
        input_forget_t,
        candidate_t,
        o_t,
    ) in _split_by_step(
        staircase, y, gates, states, tanh_c, unprojected_h, i, f, input_forget, candidate, o
    ):
        gates_t.addmm_(h[:n], weight_hh_t)
        input_forget_t.sigmoid_()
        c = torch.mul(f_t, c[:n], out=c_t).addcmul_(i_t, candidate_t.tanh_())
        h = torch.mul(o_t.sigmoid_(), torch.tanh(c, out=tanh_c_t), out=unprojected_h_t)
        if projection is not None:
            h = torch.mm(h, projection.t(), out=y_t)
    return [y, states, gates, tanh_c]


def _lstm_backward(
    staircase: Staircase,
    weight_hh: Tensor,
    projection: Tensor | None,
    intermediates: Tensors,
    dy: Tensor,
    dh: Tensor,
    dc: Tensor,
) -> tuple[Tensor, Tensors]:
    c, states, gates, tanh_c = intermediates
    i, f, candidate, o = gates.chunk(4, 1)
    d_gates = torch.empty_like(gates)
    d_gates_3d = d_gates.view(len(gates), 4, -1)
    d_i, d_f, d_candidate, d_o = d_gates_3d.unbind(1)
    sigmoid_backward(candidate, i, grad_input=d_i)
    sigmoid_backward(_previous_states(staircase, c, states), f, grad_input=d_f)
    tanh_backward(i, candidate, grad_input=d_candidate)
    sigmoid_backward(tanh_c, o, grad_input=d_o)
    dh_dc = tanh_backward(o, tanh_c, grad_input=torch.empty_like(tanh_c))
    steps = _split_by_step(staircase, d_gates_3d[:, :3], d_o, d_gates, dy, dh_dc, f)
    for n, d_cell_gates_t, d_o_t, d_gates_t, dy_t, dh_dc_t, f_t in reversed(steps):
        dh_t = dh[:n]
        dc_t = dc[:n]
        dy_t.add_(dh_t)
        if projection is not None:
            dy_t = dy_t @ projection
        d_cell_gates_t.mul_(dc_t.addcmul_(dy_t, dh_dc_t).unsqueeze(1))
        d_o_t.mul_(dy_t)
        dc_t.mul_(f_t)
        torch.mm(d_gates_t, weight_hh, out=dh_t)
    return d_gates, [] if projection is None else [dy.t() @ (o * tanh_c)]
