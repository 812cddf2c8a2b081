"""Runs a layer on a staircase of rectangles.

torch's kernel for padded data runs one rectangle after another, each with only the sequences that
are still running. Most sequences end inside a rectangle. Their final states are still exact, for
three reasons:

* `h_n` is the output at a sequence's last step.
* The `c_n` of an LSTM is frozen in the padding by an additional input column. The column is 1 at
  padding and 0 elsewhere; its weights are -`FREEZE_WEIGHT` into the input gate and
  +`FREEZE_WEIGHT` into the forget gate. In the padding, the sigmoids of these gates are exactly 0
  and 1, so `c = 1 · c + 0 · g`, and the padding adds exactly 0 to any gradient.
  `can_freeze_cell_state` checks whether the weights allow this.
* The reverse direction begins at the end of each sequence.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from packviz.core.cuts import cut_into_rectangles, cuts_at_lengths
from packviz.core.layout import IntArray
from packviz.core.padded import PaddedShape
from packviz.ops.index import arrays_to_device
from packviz.ops.private import fused_lstm, fused_lstm_backward, rnn_kernel
from packviz.ops.torch_kernels import Layer, Tensors, copy_to_one_buffer

FREEZE_WEIGHT = 1e38
"""The weight that freezes a cell state. It is finite in float32, float64 and bfloat16."""

MAX_WEIGHT_NORM = 1e15
"""The largest norm of a weight for which `FREEZE_WEIGHT` outweighs everything else in a gate."""

MAX_CACHED_SHAPES = 8
"""The largest number of padded shapes for which the indices of one batch are kept."""

INTERMEDIATES_PER_RECTANGLE = 11
"""The number of tensors kept for each rectangle: the fused kernel's 7 inputs and 4 results."""

ForwardResult = tuple[Tensors, Tensor | None, Tensors]
"""What a kernel computes for one direction: the outputs, which follow each other; the final `c` of
an LSTM, in the staircase's order; and what the backward pass needs."""

BackwardResult = tuple[Tensors, Tensor, Tensor | None, Tensors]
"""The gradients for one direction: of the cells, in parts that follow each other; of `h` and `c`,
in the staircase's order; and of the weights."""


def can_freeze_cell_state(weights: Tensors) -> bool:
    """Returns whether the cell state of an LSTM with these weights can be frozen exactly.

    In the padding, a gate receives its biases, and its weights times numbers that are at most 1, or
    that a projection computes from such numbers. With weights whose norm is at most
    `MAX_WEIGHT_NORM`, all of this is less than `FREEZE_WEIGHT`, which float16 cannot hold. On a
    GPU, the norms are not checked, because the processor would have to wait for them.
    """
    if weights[0].dtype == torch.float16:
        return False
    if not weights[0].is_cpu:
        return True
    with torch.no_grad():  # a comparison with NaN is false
        return all(float(torch.linalg.vector_norm(weight)) <= MAX_WEIGHT_NORM for weight in weights)


class Staircase:
    """The cells of a staircase, rectangle by rectangle.

    Each rectangle is time-major, with the longest sequences first. A single rectangle has the
    sequences in the caller's order, so that it can be a view of the padded batch.

    Attributes:
        lengths: the lengths of the batch.
        rectangle_sizes: for each rectangle, the numbers of time steps and sequences.
        cell_counts: for each rectangle, the number of its cells.
        batch_sizes: the number of sequences at each time step.
        continuing_counts: for each rectangle, the number of sequences that continue after it.
        n_cells: the number of cells.
        order: `(B,)` the caller's index of each sequence of the staircase; `None` if they are in
            the caller's order.
        ranks: `(B,)` the position of each of the caller's sequences in `order`, or `None`.
        padding_indices: the indices of the padding among all cells.
        last_cells: `(B,)` the index of the last real cell of each sequence of the staircase.
        source_rows: a function that takes the shape of a padded batch and a direction, and returns
            the row of the batch for each cell. Direction 1 begins at the end of each sequence.
        source_cells: a function that takes the shape of a padded batch and a range of directions,
            and returns, for each row and direction, the index of its cell among the cells of all
            these directions. At padding, the index is the number of cells.
    """

    def __init__(self, lengths: Sequence[int], cuts: Sequence[int], device: torch.device) -> None:
        """Computes the staircase of a batch. See `packviz.core.cuts.cut_into_rectangles`."""
        rectangle_bounds = cut_into_rectangles(lengths, cuts)
        n = np.array(lengths)
        order = np.argsort(-n, kind="stable") if len(rectangle_bounds) > 1 else np.arange(len(n))
        self.rectangle_sizes = [(end - start, count) for start, end, count in rectangle_bounds]
        self.cell_counts = [steps * count for steps, count in self.rectangle_sizes]
        step_counts, sequence_counts = zip(*self.rectangle_sizes, strict=True)
        batch_sizes = np.repeat(sequence_counts, step_counts)
        self.batch_sizes = batch_sizes.tolist()
        step_of_cell = np.repeat(np.arange(len(batch_sizes)), batch_sizes)
        rank_of_cell = np.arange(len(step_of_cell)) - np.repeat(
            np.cumsum(batch_sizes) - batch_sizes, batch_sizes
        )
        self._step_of_cell = step_of_cell
        self._sequence_of_cell = order[rank_of_cell]
        self._last_step_of_cell = n[self._sequence_of_cell] - 1
        self._is_real = step_of_cell <= self._last_step_of_cell
        ends = np.flatnonzero(step_of_cell == self._last_step_of_cell)
        last_cells = np.empty_like(n)
        last_cells[rank_of_cell[ends]] = ends
        self.lengths = tuple(lengths)
        self.continuing_counts = [*sequence_counts[1:], 0]
        self.n_cells = len(step_of_cell)
        padding_indices = np.flatnonzero(~self._is_real)
        self._device = device
        self.order: Tensor | None = None
        self.ranks: Tensor | None = None
        if (order[:-1] > order[1:]).any():
            self.order, self.ranks = arrays_to_device(device, order, np.argsort(order))
        self.padding_indices, self.last_cells = arrays_to_device(
            device, padding_indices, last_cells
        )
        self.source_rows = functools.lru_cache(MAX_CACHED_SHAPES)(self._compute_source_rows)
        self.source_cells = functools.lru_cache(MAX_CACHED_SHAPES)(self._compute_source_cells)

    @classmethod
    def make_unpadded(cls, lengths: Sequence[int], device: torch.device) -> Staircase:
        """Returns the staircase with the fewest cells. They are in the order of the packed data."""
        return cls(lengths, cuts_at_lengths(lengths), device)

    @functools.cached_property
    def previous_cells(self) -> Tensor:
        """The index of the cell one step before each cell, without those of the first step."""
        sizes = np.array(self.batch_sizes)
        cell_numbers = np.arange(sizes[0], self.n_cells)
        cells = cell_numbers - np.repeat(sizes[:-1], sizes[1:])
        return arrays_to_device(self._device, cells)[0]

    def is_padded_batch(self, shape: PaddedShape, directions: range) -> bool:
        """Returns whether the cells of these directions are a padded batch with this shape."""
        return (
            len(self.rectangle_sizes) == 1
            and directions == range(1)
            and shape.steps == self.rectangle_sizes[0][0]
        )

    def cells(self, x: Tensor, shape: PaddedShape, direction: int) -> Tensor:
        """Returns the cells of a padded batch, `(n_cells, …)`, with any values at padding.

        If they are a padded batch, too, they are a view, `(T, B, …)`.
        """
        if self.is_padded_batch(shape, range(direction, direction + 1)):
            return x.transpose(0, 1) if shape.batch_first else x
        return x.reshape(-1, x.shape[2]).index_select(0, self.source_rows(shape, direction))

    def join_parts(
        self, parts: Sequence[Tensor], shape: PaddedShape, directions: range, value: float
    ) -> Tensor:
        """Returns the parts of some directions' cells in one tensor, for `pad_cells`."""
        if self.is_padded_batch(shape, directions):
            return parts[0]
        return torch.cat([*parts, parts[0].new_full((1, parts[0].shape[1]), value)])

    def pad_cells(
        self, cells: Tensor, shape: PaddedShape, directions: range, value: float, is_saved: bool
    ) -> Tensor:
        """Returns the rows of a padded batch, given what `join_parts` returns.

        It overwrites the padding of the cells, unless `is_saved`.
        """
        if self.is_padded_batch(shape, directions):
            out = cells
            if is_saved or shape.batch_first:
                rows = cells.view(shape.steps, shape.batch, -1)
                rows = rows.transpose(0, 1) if shape.batch_first else rows
                out = cells.new_empty(cells.shape)  # a view could not be changed in place
                out.view(rows.shape).copy_(rows)
            padding = shape.row_index(
                self.padding_indices % shape.batch, self.padding_indices // shape.batch
            )
            return out.index_fill_(0, padding, value)
        # A gather is faster than a scatter, because it writes in order and fills the padding in the
        # same pass.
        return cells.index_select(0, self.source_cells(shape, directions))

    def _padded_row_indices(self, shape: PaddedShape, direction: int) -> IntArray:
        step_of_cell = self._step_of_cell
        if direction:
            step_of_cell = np.where(
                self._is_real, self._last_step_of_cell - step_of_cell, step_of_cell
            )
        rows: IntArray = shape.row_index(self._sequence_of_cell, step_of_cell)
        return rows

    def _compute_source_rows(self, shape: PaddedShape, direction: int) -> Tensor:
        return arrays_to_device(self._device, self._padded_row_indices(shape, direction))[0]

    def _compute_source_cells(self, shape: PaddedShape, directions: range) -> Tensor:
        cells = np.full(
            (shape.batch * shape.steps, len(directions)), len(directions) * self.n_cells
        )
        real = np.flatnonzero(self._is_real)
        for column, direction in enumerate(directions):
            cells[self._padded_row_indices(shape, direction)[real], column] = (
                real + column * self.n_cells
            )
        return arrays_to_device(self._device, cells.ravel())[0]


def forward(
    layer: Layer,
    staircase: Staircase,
    weights: Tensors,
    cells: Tensor,
    h: Tensor,
    c: Tensor | None = None,
) -> ForwardResult:
    """Runs one direction with torch's kernel for padded data, all of it under autograd."""
    weights, cells = _add_freeze_column(staircase, weights, cells, c)
    if not cells.is_cpu:
        weights = copy_to_one_buffer(weights)
    options = layer.bias, 1, 0.0, torch.is_grad_enabled(), False, False

    def call(x: Tensor, h: Tensor, c: Tensor | None) -> Tensors:
        hx = h[None] if c is None else (h[None], c[None])
        out, *final_states = rnn_kernel(layer.mode)(x, hx, weights, *options)
        return out, *(state[0] for state in final_states)

    return *_call_per_rectangle(staircase, cells, h, c, call), []


def forward_fused(
    layer: Layer, staircase: Staircase, weights: Tensors, cells: Tensor, h: Tensor, c: Tensor
) -> ForwardResult:
    """Runs one direction of an LSTM with oneDNN's kernel, for `backward_fused`."""
    weights, cells = _add_freeze_column(staircase, weights, cells, c)
    if len(weights) == 2:
        zero_bias = weights[0].new_zeros(len(weights[0]))
        weights = [*weights, zero_bias, zero_bias]
    intermediates: list[Tensor] = []

    def call(x: Tensor, h: Tensor, c: Tensor | None) -> Tensors:
        call_inputs = (x, *weights, h, cast(Tensor, c))
        inputs = [t.detach().contiguous() for t in call_inputs]  # oneDNN ignores strides
        results = fused_lstm(inputs)
        intermediates.extend([*inputs, *results])
        return results[:3]

    return *_call_per_rectangle(staircase, cells, h, c, call), intermediates


def _call_per_rectangle(
    staircase: Staircase,
    cells: Tensor,
    h: Tensor,
    c: Tensor | None,
    call: Callable[[Tensor, Tensor, Tensor | None], Tensors],
) -> tuple[Tensors, Tensor | None]:
    """Calls a kernel for each rectangle.

    It takes a rectangle `(t, n, I)`, `h` and `c`, and returns the output and the final states.
    """
    outputs = []
    ended_states = []
    cell_parts = cells.split_with_sizes(staircase.cell_counts)
    for cell_part, size, n_continuing in zip(
        cell_parts, staircase.rectangle_sizes, staircase.continuing_counts, strict=True
    ):
        output, h, *final_c = call(cell_part.view(*size, -1), h, c)
        outputs.append(output.flatten(0, 1))
        h = h[:n_continuing]
        for state in final_c:
            ended_states.append(state[n_continuing:])
            c = state[:n_continuing]
    return outputs, torch.cat(ended_states[::-1]) if ended_states else None


def backward_fused(
    layer: Layer,
    staircase: Staircase,
    weights: Tensors,
    intermediates: Tensors,
    d_cells: Tensor,
    d_final_c: Tensor | None,
    needs_input_grad: bool,
) -> BackwardResult:
    """Computes the gradients of what `forward_fused` takes."""
    assert d_final_c is not None
    features = weights[0].shape[1]
    d_h = d_c = d_final_c[:0]
    d_cell_parts: list[Tensor] = []
    d_weights: list[Tensor] = []
    d_output_parts = d_cells.split_with_sizes(staircase.cell_counts)
    for i in reversed(range(len(staircase.rectangle_sizes))):
        n_continuing = staircase.continuing_counts[i]
        count = staircase.rectangle_sizes[i][1]
        *inputs, output, h_n, c_n, workspace = intermediates[
            i * INTERMEDIATES_PER_RECTANGLE : (i + 1) * INTERMEDIATES_PER_RECTANGLE
        ]
        d_h = torch.cat([d_h, torch.zeros_like(d_final_c[n_continuing:count])])
        d_c = torch.cat([d_c, d_final_c[n_continuing:count]])
        results = [output, h_n, c_n, d_output_parts[i].view(output.shape), d_h, d_c]
        d_rectangle, *d_rectangle_weights, d_h, d_c = fused_lstm_backward(
            inputs, results, workspace
        )
        d_cell_parts.insert(0, d_rectangle.flatten(0, 1)[:, :features])
        if d_weights:
            d_rectangle_weights = [
                a + b for a, b in zip(d_weights, d_rectangle_weights, strict=True)
            ]
        d_weights = d_rectangle_weights
    d_weights[0] = d_weights[0][:, :features]
    return d_cell_parts, d_h, d_c, d_weights[: len(weights)]


def _add_freeze_column(
    staircase: Staircase, weights: Tensors, cells: Tensor, c: Tensor | None
) -> tuple[Tensors, Tensor]:
    """Returns weights and cells, `(n_cells, …)`, with zeros at padding.

    Those of an LSTM have the additional column that freezes its state.
    """
    if c is None or not len(staircase.padding_indices):
        cells = cells.reshape(staircase.n_cells, -1)
        if len(staircase.padding_indices):
            cells = cells.index_fill(0, staircase.padding_indices, 0)
        return weights, cells
    cells_with_freeze_column = nn.functional.pad(cells, (0, 1)).view(staircase.n_cells, -1)
    cells_with_freeze_column.index_fill_(0, staircase.padding_indices, 0)
    cells_with_freeze_column[:, -1].index_fill_(0, staircase.padding_indices, 1)
    column = weights[0].new_zeros(len(weights[0]), 1)
    input_gate, forget_gate, *_ = column.chunk(4)
    input_gate.fill_(-FREEZE_WEIGHT)
    forget_gate.fill_(FREEZE_WEIGHT)
    weight_with_freeze_column = torch.cat([weights[0], column], 1)
    return [weight_with_freeze_column, *weights[1:]], cells_with_freeze_column
