"""Runs a layer on packed data one time step at a time, with its own backward pass.

Each step computes only the sequences that are still running, so no cell is wasted. The input's
share of all gates is a single matrix product over all real cells, and so is the gradient of each
weight. Only the work that depends on the
state stays in the loop: one matrix product per step, and a few in-place element-wise operations.

The gates and their order are the same as in torch. In the backward pass, the gradient that arrives
at a step's state `h` is multiplied by factors that are known in advance, so these factors are
computed for many steps at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor

from packviz.core.layout import IntArray
from packviz.core.padded import Padded
from packviz.ops.index import Route, packed_rows, placed
from packviz.ops.torch_kernels import Layer, Result, gradients_again
from packviz.ops.private import kernel, is_batched, sigmoid_backward, tanh_backward

MOST_SHAPES = 8
"""The largest number of padded shapes for which the indices of one batch are kept."""

BLOCK = 1 << 16
"""The approximate number of state elements whose factors are computed at once on a CPU, so that they stay in cache."""


Gradients = list[Tensor | None]
"""The gradients of one direction's weights, in the order of the weights; `None` for an unused weight."""


class Steps:
    """The rows of each time step in the packed data of a ragged batch.

    The *rank* of a sequence is its position in the packed batch, where the longest sequence comes
    first. All tensors except `batch_sizes` are on the same device.

    Attributes:
        batch_sizes: `(max(lengths),)` number of sequences at each time step, on the CPU.
        sizes: the batch sizes as a list.
        order: `(B,)` the caller's index of the sequence at each rank.
        rank: `(B,)` the rank of each sequence.
        first: for each direction, `(B,)` the packed row at which the sequence at each rank begins.
        route: a function that takes the shape of a padded tensor, and returns the `Route` between
            the rows of that tensor and the packed rows.
    """

    def __init__(self, lengths: Sequence[int], device: torch.device) -> None:
        """Computes the rows of a batch with these lengths."""
        n = np.array(lengths)
        order = np.argsort(-n, kind="stable")
        self._lengths, self._device = n[order], device
        sizes = len(n) - np.cumsum(np.bincount(n))[:-1]
        self._starts = np.cumsum(sizes) - sizes
        self._step = np.repeat(np.arange(len(sizes)), sizes)
        self._rank = np.arange(len(self._step)) - self._starts[self._step]
        self._sequence = order[self._rank]
        self.sizes: list[int] = sizes.tolist()
        self.batch_sizes = torch.from_numpy(sizes)
        rank = np.arange(len(n))
        last = self._starts[self._lengths - 1] + rank
        self.order, self.rank, *first = placed(device, order, np.argsort(order), rank, last)
        self.first = tuple(first)
        self.route = lru_cache(MOST_SHAPES)(partial(_route, self._sequence, self._step, device))
        self._before: dict[bool, Tensor] = {}

    def before(self, reverse: bool) -> Tensor:
        """Returns, for each packed row, the row of the step before it in a direction, `(N,)`.

        A sequence's first step has none before it, and gets its own row.
        """
        if reverse not in self._before:
            last = self._lengths[self._rank] - 1
            step = np.minimum(self._step + 1, last) if reverse else np.maximum(self._step - 1, 0)
            (self._before[reverse],) = placed(self._device, self._starts[step] + self._rank)
        return self._before[reverse]


def _route(sequence: IntArray, step: IntArray, device: torch.device, shape: Padded) -> Route:
    (rows,) = placed(device, shape.rows(sequence, step))
    return Route(rows, shape.batch * shape.steps)


def run(
    layer: Layer,
    x: Tensor,
    h: Tensor,
    c: Tensor | None,
    steps: Steps,
    source: Padded,
    target: Padded,
    padding_value: float = 0.0,
) -> Result:
    """Runs a layer on a padded tensor.

    The arguments and results are the same as those of `staircase.run`, except that `steps` replaces
    `grid`, that there is no `from_zero`, and that both the input and the output are padded tensors.
    """
    data = packed_rows(x.reshape(-1, x.shape[-1]), steps.route(source))
    return _Split.apply((layer, steps, target, padding_value), data, h, c, *layer.flat)  # type: ignore[no-untyped-call,no-any-return]


def packed(how: Any, data: Tensor, h: Tensor, c: Tensor | None, *weights: Tensor) -> Result:
    """Runs a layer with torch's kernel for packed data. On a CPU, this can be differentiated any number of times."""
    layer, steps, target, padding_value = how
    hx = [state.index_select(1, steps.order) for state in (h, c) if state is not None]
    options = (layer.bias, 1, 0.0, torch.is_grad_enabled(), layer.directions == 2)
    data, *final = kernel(layer.mode)(
        data, steps.batch_sizes, hx if c is not None else hx[0], weights, *options
    )
    out = data.new_full(target.shape(data.shape[1]), padding_value).view(-1, data.shape[1])
    out = out.index_copy(0, steps.route(target).rows, data).view(target.shape(data.shape[1]))
    h_n, c_n = [state.index_select(1, steps.rank) for state in final] + [None] * (c is None)
    return out, h_n, c_n


class _Split(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, how: Any, data: Tensor, h: Tensor, c: Tensor | None, *weights: Tensor
    ) -> Result:
        layer, steps, target, padding_value = how
        ctx.set_materialize_grads(False)
        directions, size = layer.directions, layer.output_size
        out = data.new_full(target.shape(directions * size), padding_value)
        h_n, c_n, saved = [], [], []
        for d, own in enumerate(layer.holding(weights).weights):
            walk = _Walk(steps, d == 1, own, layer.bias)
            first = [s if s is None else s[d].index_select(0, steps.order) for s in (h, c)]
            y, *kept = _PASSES[layer.mode][0](walk, data, *first)
            out.view(-1, size).index_copy_(0, _of(d, directions, steps.route(target).rows), y)
            last = steps.first[1 - d].index_select(
                0, steps.rank
            )  # a direction ends where the other one begins
            h_n.append(y.index_select(0, last))
            if c is not None:
                c_n.append(kept[0].index_select(0, last))
            saved += [y, *kept]
        if any(ctx.needs_input_grad):
            ctx.how = how
            ctx.save_for_backward(data, h, c, *weights, *saved)
        return out, torch.stack(h_n), torch.stack(c_n) if c_n else None

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        saved = ctx.saved_tensors  # accessed once, because a checkpoint recomputes them
        with torch.autocast(saved[0].device.type, enabled=False):
            return _backward(ctx.how, saved, ctx.needs_input_grad[1], gradients)


def _backward(
    how: Any, kept: Sequence[Tensor], needs_data: bool, gradients: Sequence[Tensor | None]
) -> Any:
    layer, steps, target, _ = how
    inputs, saved = kept[: 3 + len(layer.flat)], kept[3 + len(layer.flat) :]
    if torch.is_grad_enabled() or any(map(is_batched, gradients)):
        return None, *gradients_again(partial(packed, how), inputs, gradients)
    data, h, c, *weights = inputs
    directions, size, each = layer.directions, layer.output_size, len(saved) // layer.directions
    d_data: Tensor | None = None
    states: list[tuple[Tensor, Tensor | None]] = []
    dw: Gradients = []
    # After a single step, c_n does not depend on the projection, so torch gives it no gradient.
    # (cuDNN returns 0.)
    unprojected = (
        gradients[0] is None and gradients[1] is None and len(steps.sizes) == 1 and data.is_cpu
    )
    for d, own in enumerate(layer.holding(weights).weights):
        walk = _Walk(steps, d == 1, own, layer.bias)
        first = [s if s is None else s[d].index_select(0, steps.order) for s in (h, c)]
        # The gradients of the final states become, step by step, those of the initial states.
        running = [
            s
            if s is None
            else torch.zeros_like(s)
            if g is None
            else g[d].index_select(0, steps.order)
            for s, g in zip(first, gradients[1:], strict=True)
        ]
        if gradients[0] is None:
            dy = data.new_zeros(len(data), size)
        else:
            dy = (
                gradients[0]
                .reshape(-1, size)
                .index_select(0, _of(d, directions, steps.route(target).rows))
            )
        gates, found = _PASSES[layer.mode][1](
            walk, data, *first, saved[d * each : (d + 1) * each], dy, *running
        )
        if needs_data:
            d_data = gates @ own[0] if d_data is None else d_data.addmm_(gates, own[0])
        states.append(tuple(g if g is None else g.index_select(0, steps.rank) for g in running))  # type: ignore[arg-type]
        if walk.projection is not None and unprojected:
            found[-1] = None
        dw += found
    dh, dc = (torch.stack(s) if s[0] is not None else None for s in zip(*states, strict=True))
    return None, d_data, dh, dc, *dw


def _of(direction: int, directions: int, rows: Tensor) -> Tensor:
    """Converts cell numbers to the row numbers of one direction in a tensor that has `D` rows for each cell."""
    return rows if directions == 1 else rows * directions + direction


class _Walk:
    """The weights of one direction, and the time steps in the order of this direction."""

    def __init__(self, steps: Steps, reverse: bool, weights: Sequence[Tensor], bias: bool) -> None:
        self.reverse, self.sizes = reverse, steps.sizes
        self._steps = steps
        self.of_input, self.of_state, *rest = weights
        self.biases = rest[:2] if bias else None
        self.projection = rest[-1] if len(weights) % 2 else None

    def along(self, *tensors: Tensor) -> Iterator[Any]:
        """Yields, for each step in the direction's order, the number of running sequences and each tensor's rows."""
        every = [self.sizes, *(t.split(self.sizes) for t in tensors)]  # type: ignore[no-untyped-call]
        return zip(*(map(reversed, every) if self.reverse else every), strict=True)

    def back(self, numbers: int, *tensors: Tensor) -> Iterator[tuple[slice, list[Any]]]:
        """Yields blocks of rows, from the direction's last step to its first, each with its steps
        as in `along`.

        Each row counts as `numbers` elements. On a CPU, a block ends once it has at least `BLOCK`
        elements; on a GPU, there is a single block.
        """
        every = list(zip(self.sizes, *(t.split(self.sizes) for t in tensors), strict=True))  # type: ignore[no-untyped-call]
        ends = list(accumulate(self.sizes))
        order = range(len(ends)) if self.reverse else range(len(ends) - 1, -1, -1)
        low, high, some = ends[-1], 0, []
        for t in order:
            some.append(every[t])
            low, high = min(low, ends[t] - self.sizes[t]), max(high, ends[t])
            if (tensors[0].is_cpu and (high - low) * numbers >= BLOCK) or t == order[-1]:
                yield slice(low, high), some
                low, high, some = ends[-1], 0, []

    def start(self, first: Tensor) -> tuple[int, Tensor]:
        """Returns the number of sequences with a state before the first step, and these states.

        In the reverse direction, there are none, because each sequence begins at a step of its own
        (see `_on`).
        """
        return (0, first[:0]) if self.reverse else (len(first), first)

    def states_before(self, first: Tensor, states: Tensor) -> Tensor:
        """Returns, for each packed row, the state before its step, `(N, …)`."""
        return states.index_select(0, self._steps.before(self.reverse)).index_copy_(
            0, self._steps.first[self.reverse], first
        )

    def gradients(
        self, data: Tensor, before: Tensor, gates: Tensor, inner: Tensor | None = None
    ) -> Gradients:
        """Computes the gradients of the weights and biases from those of the gates.

        If `inner` is passed, it is the gradient of the input's share of the last gate, and
        overwrites that gate in `gates`.
        """
        of_state, state_bias = gates.t() @ before, gates.sum(0)
        bias = state_bias.clone()
        if inner is not None:
            gates[:, -inner.shape[1] :] = inner
            bias = gates.sum(0)
        biases = [bias, state_bias] if self.biases else []
        return [gates.t() @ data, of_state, *biases]

    def gates(self, data: Tensor, bias: Tensor | None) -> Tensor:
        """Returns the input's share of the gates, `(N, G · H)`."""
        weights = self.of_input.t()
        return data @ weights if bias is None else torch.addmm(bias, data, weights)


def _on(state: Tensor, before: int, first: Tensor, n: int) -> Tensor:
    """Returns the states of the `n` sequences that run now, given those of the `before` sequences
    at the step before.

    In the forward direction, some of those sequences may have ended. In the reverse direction,
    others may begin, with the states in `first`.
    """
    if n == before:
        return state
    return state[:n] if n < before else torch.cat([state, first[before:n]])


def _rnn(walk: _Walk, data: Tensor, h0: Tensor, c0: None, activate: Any) -> list[Tensor]:
    y = walk.gates(data, walk.biases and walk.biases[0] + walk.biases[1])  # type: ignore[arg-type]
    before, h = walk.start(h0)
    of_state = walk.of_state.t()
    for n, step in walk.along(y):
        h = activate(step.addmm_(_on(h, before, h0, n), of_state))
        before = n
    return [y]


def _rnn_back(
    walk: _Walk,
    data: Tensor,
    h0: Tensor,
    c0: None,
    saved: Sequence[Tensor],
    dy: Tensor,
    dh: Tensor,
    dc: None,
    slope: Any,
) -> tuple[Tensor, Gradients]:
    (y,) = saved
    gates, before, running = torch.empty_like(y), len(dh), dh
    for rows, steps in walk.back(y.shape[1], gates, dy):
        slope(y[rows], gates[rows])
        for n, gate, g in steps:
            if n != before:
                before, running = n, dh[:n]
            torch.mm(gate.mul_(g.add_(running)), walk.of_state, out=running)
    return gates, walk.gradients(data, walk.states_before(h0, y), gates)


def _gru(walk: _Walk, data: Tensor, h0: Tensor, c0: None) -> list[Tensor]:
    size = h0.shape[1]
    bias, inner_bias = None, data.new_zeros(())
    if walk.biases:
        bias, inner_bias = walk.biases[0].clone(), walk.biases[1][2 * size :]
        bias[: 2 * size] += walk.biases[1][: 2 * size]
    gates = walk.gates(data, bias)
    y, inner = gates.new_empty(
        2, len(data), size
    )  # inner: the state's share of the gate n, before r scales it
    outer_weights, inner_weights = walk.of_state.t().split((2 * size, size), 1)  # type: ignore[no-untyped-call]
    outer, n_gate = gates.split((2 * size, size), 1)  # type: ignore[no-untyped-call]
    before, h = walk.start(h0)
    for n, step, at_inner, at_outer, at_r, at_z, at_n in walk.along(
        y, inner, outer, *outer.chunk(2, 1), n_gate
    ):
        h = _on(h, before, h0, n)
        at_outer.addmm_(h, outer_weights).sigmoid_()
        torch.addmm(inner_bias, h, inner_weights, out=at_inner)
        h = torch.lerp(at_n.addcmul_(at_r, at_inner).tanh_(), h, at_z, out=step)
        before = n
    return [y, gates, inner]


def _gru_back(
    walk: _Walk,
    data: Tensor,
    h0: Tensor,
    c0: None,
    saved: Sequence[Tensor],
    dy: Tensor,
    dh: Tensor,
    dc: None,
) -> tuple[Tensor, Gradients]:
    y, gates, inner = saved
    states = walk.states_before(h0, y)
    d_gates, d_n = torch.empty_like(gates), torch.empty_like(y)
    three, z = d_gates.view(len(y), 3, -1), gates.chunk(3, 1)[1]
    before, running = len(dh), dh
    for rows, steps in walk.back(y.shape[1], three, d_gates, dy, z):
        at_r, at_z, at_n = gates[rows].chunk(3, 1)
        of_r, of_z, of_n = three[rows].unbind(1)
        factor = tanh_backward(1 - at_z, at_n, grad_input=d_n[rows])
        torch.mul(factor, at_r, out=of_n)
        sigmoid_backward(states[rows] - at_n, at_z, grad_input=of_z)
        sigmoid_backward(factor * inner[rows], at_r, grad_input=of_r)
        for n, each, step, g, through in steps:
            if n != before:
                before, running = n, dh[:n]
            each.mul_(g.add_(running).unsqueeze(1))
            torch.mm(step, walk.of_state, out=running).addcmul_(g, through)
    return d_gates, walk.gradients(data, states, d_gates, d_n.mul_(dy))


def _lstm(walk: _Walk, data: Tensor, h0: Tensor, c0: Tensor) -> list[Tensor]:
    size = c0.shape[1]
    gates = walk.gates(data, walk.biases and walk.biases[0] + walk.biases[1])  # type: ignore[arg-type]
    cells, bent, hidden = gates.new_empty(3, len(data), size)  # c, tanh(c), o · tanh(c)
    y = hidden if walk.projection is None else gates.new_empty(len(data), h0.shape[1])
    i, f, n_gate, o = gates.chunk(4, 1)
    (before, h), (_, c), of_state = walk.start(h0), walk.start(c0), walk.of_state.t()
    for n, step, gate, at_c, at_bent, at_hidden, at_i, at_f, at_if, at_n, at_o in walk.along(
        y, gates, cells, bent, hidden, i, f, gates[:, : 2 * size], n_gate, o
    ):
        gate.addmm_(_on(h, before, h0, n), of_state)
        at_if.sigmoid_()
        c = torch.mul(at_f, _on(c, before, c0, n), out=at_c).addcmul_(at_i, at_n.tanh_())
        h = torch.mul(at_o.sigmoid_(), torch.tanh(c, out=at_bent), out=at_hidden)
        if walk.projection is not None:
            h = torch.mm(h, walk.projection.t(), out=step)
        before = n
    return [y, cells, gates, bent]


def _lstm_back(
    walk: _Walk,
    data: Tensor,
    h0: Tensor,
    c0: Tensor,
    saved: Sequence[Tensor],
    dy: Tensor,
    dh: Tensor,
    dc: Tensor,
) -> tuple[Tensor, Gradients]:
    y, cells, gates, bent = saved
    earlier = walk.states_before(c0, cells)
    d_gates, through = torch.empty_like(gates), torch.empty_like(cells)
    four, f = d_gates.view(len(y), 4, -1), gates.chunk(4, 1)[1]
    before, running, c = len(dh), dh, dc
    for rows, steps in walk.back(cells.shape[1], four[:, :3], four[:, 3], d_gates, dy, through, f):
        at_i, at_f, at_n, at_o = gates[rows].chunk(4, 1)
        of_i, of_f, of_n, of_o = four[rows].unbind(1)
        sigmoid_backward(at_n, at_i, grad_input=of_i)
        sigmoid_backward(earlier[rows], at_f, grad_input=of_f)
        tanh_backward(at_i, at_n, grad_input=of_n)
        sigmoid_backward(bent[rows], at_o, grad_input=of_o)
        tanh_backward(at_o, bent[rows], grad_input=through[rows])
        for n, by_c, by_h, step, g, into_c, keep in steps:
            if n != before:
                before, running, c = n, dh[:n], dc[:n]
            g.add_(running)
            if walk.projection is not None:
                g = g @ walk.projection
            by_c.mul_(c.addcmul_(g, into_c).unsqueeze(1))
            by_h.mul_(g)
            c.mul_(keep)
            torch.mm(step, walk.of_state, out=running)
    found = walk.gradients(data, walk.states_before(h0, y), d_gates)
    if walk.projection is not None:
        found.append(dy.t() @ (gates.chunk(4, 1)[3] * bent))
    return d_gates, found


def _slope_of_tanh(y: Tensor, out: Tensor) -> None:
    torch.mul(y, y, out=out).neg_().add_(1)


def _slope_of_relu(y: Tensor, out: Tensor) -> None:
    out.copy_(y > 0)


# The forward and backward passes of one direction, by `rnn.mode`.
_PASSES: dict[str, tuple[Any, Any]] = {
    "LSTM": (_lstm, _lstm_back),
    "GRU": (_gru, _gru_back),
    "RNN_TANH": (partial(_rnn, activate=torch.tanh_), partial(_rnn_back, slope=_slope_of_tanh)),
    "RNN_RELU": (partial(_rnn, activate=torch.relu_), partial(_rnn_back, slope=_slope_of_relu)),
}
