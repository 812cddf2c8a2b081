"""Compares an RNN's results on a padded batch with those on a packed batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple, overload
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from packviz.core.layout import (
    BoolArray,
    Layout,
    make_read_only,
    require_nonempty_sequences,
    sequence_name,
)
from packviz.core.numbers import HasNumbers, Row
from packviz.core.validation import kind_of, reject_meta, require_nonnegative, require_one_of
from packviz.draw import text
from packviz.draw.differences import Differences, draw
from packviz.draw.drawing import Drawing
from packviz.draw.sheet import Sheet
from packviz.draw.text import is_small, table, with_noun
from packviz.ops.arguments import require_input_shape, require_padded, require_rnn, require_states
from packviz.ops.masks import lengths_tensor, require_mask_width
from packviz.ops.original import pack_padded_sequence, pad_packed_sequence
from packviz.ops.tolerance import state_tolerance

if TYPE_CHECKING:
    from packviz.check.whole_model import PaddingComparison

FloatArray = npt.NDArray[np.float64]

LOSSES = {
    "outputs": "the sum of the outputs at real steps, each times a fixed random weight",
    "h_n": "the sum of h_n, each entry times a fixed random weight",
}
"""The losses whose gradients are compared, each with its definition."""

DIRECTIONS = ("forward", "reverse")

RESULTS = {
    "outputs": "the outputs at real steps",
    "outputs_forward": "the forward half of these outputs; with one direction, all of them",
    "outputs_reverse": "the reverse half of these outputs",
    "h_n": "the final hidden states of all layers and directions",
    "c_n": "the final cell states of an LSTM",
    "gradients": "the gradients of both losses, to x at real steps and to every trainable weight",
    "gradients_outputs": "the gradients of the loss on the outputs",
    "gradients_h_n": "the gradients of the loss on h_n",
}
"""The names that `StatesComparison.agrees` and `needs_packing` accept, each with its meaning."""


class RunResult(NamedTuple):
    """The results of an RNN, detached, in the shapes that the RNN returns.

    The RNN has `L` layers, `D` directions and states of size `H`. `P` is its `proj_size`, or `H`
    without a projection.

    Attributes:
        output: `(T, B, D·P)`, or `(B, T, D·P)` with `batch_first`; a packed output is padded with
            zeros.
        h_n: `(L·D, B, P)` the final hidden states.
        c_n: `(L·D, B, H)` the final cell states; `None` unless the RNN is an LSTM.
    """

    output: Tensor
    h_n: Tensor
    c_n: Tensor | None


@dataclass(frozen=True, eq=False)
class Difference:
    """The difference between a padded and a packed result.

    A cell is one vector of features, or one weight tensor.

    Attributes:
        axis: the axis along which the sequences lie in the arrays below; `None` if there is no such
            axis.
        absolute: for each cell, the largest absolute difference in any feature. It is NaN if only
            one of two compared values is NaN. Two NaN values agree.
        differs: for each cell, true if `absolute` is greater than `tolerance · scale`, or NaN.
        both_nan: for each cell, true if the two vectors have a NaN in the same place.
        scale: `(B,)` the largest finite magnitude in each sequence of the packed result, or `()`
            the largest in a weight tensor. Each sequence has a scale of its own, so that large
            values in one sequence cannot hide an error in another.
    """

    axis: int | None
    absolute: FloatArray
    differs: BoolArray
    both_nan: BoolArray
    scale: FloatArray

    def __getitem__(self, cells: Any) -> Difference:
        """Returns a part of the cells."""
        return replace(
            self,
            absolute=self.absolute[cells],
            differs=self.differs[cells],
            both_nan=self.both_nan[cells],
        )


@dataclass(frozen=True, eq=False)
class _Line:
    """One line of a comparison: how many cells of a result differ, and by how much.

    Attributes:
        name: the name of the result, or of its part, such as a half.
        difference: the difference in all cells.
        results: the `RESULTS` to which the line belongs. A line about padding does not belong to
            any, because values in the padding are neither right nor wrong.
        mask: a mask of the cells that the line is about; True for all.
        noun: the name of a cell.
        parent_name: the name of the result to which the part belongs; empty if it is not a part.
    """

    name: str
    difference: Difference
    results: tuple[str, ...] = ()
    mask: BoolArray | bool = True
    noun: str = "cell"
    parent_name: str = ""

    @cached_property
    def n_cells(self) -> int:
        """The number of cells."""
        return self._count_cells(np.ones_like(self.difference.differs))

    @cached_property
    def n_differing(self) -> int:
        """The number of cells that differ."""
        return self._count_cells(self.difference.differs)

    @cached_property
    def n_both_nan(self) -> int:
        """The number of cells in which both runs have a NaN in the same place."""
        return self._count_cells(self.difference.both_nan)

    def _count_cells(self, cells: BoolArray) -> int:
        return int((cells & self.mask).sum())

    @property
    def largest_difference(self) -> float:
        """The largest absolute difference; may be NaN."""
        return float(self.difference.absolute.max(where=self.mask, initial=0))

    @property
    def sequences(self) -> list[str]:
        """The names of the sequences that differ."""
        axis = self.difference.axis
        if axis is None:
            return []
        rows = (self.difference.differs & self.mask).nonzero()[axis]
        return list(map(sequence_name, np.unique(rows).tolist()))

    @property
    def result_text(self) -> str:
        """The line without its name."""
        if not self.n_cells:
            return "nothing to compare"
        cells_text = with_noun(self.n_cells, self.noun)
        if not self.n_differing:
            return (
                f"agree (NaN in both at {self.n_both_nan:,} of {cells_text})"
                if self.n_both_nan
                else "agree"
            )
        sequences_text = f" (in {join_words(self.sequences, 6)})" if self.sequences else ""
        return (
            f"differ at {self.n_differing:,} of {cells_text}{sequences_text}, by up to"
            f" {text.format_difference(self.largest_difference)}"
        )


def _merge_names(lines: list[_Line], all_lines: list[_Line]) -> str:
    """Returns the names of lines, or of a result if all its parts are among them."""
    incomplete_results = {line.parent_name for line in all_lines if line not in lines}
    names = [
        line.name if line.parent_name in {"", *incomplete_results} else line.parent_name
        for line in lines
    ]
    return join_words(list(dict.fromkeys(names)))


@dataclass(frozen=True, eq=False)
class StatesComparison(Drawing, HasNumbers):
    """A comparison of an RNN's results on a padded batch with those on the same batch, packed.

    The RNN has `L` layers and `D` directions.

    Attributes:
        rnn: the module as text.
        layout: the layout of the batch, with its lengths and `T`.
        dtype: the dtype of the weights.
        tolerance: two values agree if they differ by at most this share of the largest value of
            their sequence or weight tensor.
        padded: the results on the padded batch.
        packed: the results on the packed batch; the output is padded with zeros.
        outputs: `(B, T, D)` the difference in the last layer's outputs.
        h_n: `(L, D, B)` the difference in the final hidden states.
        c_n: `(L, D, B)` the difference in the final cell states; `None` unless the RNN is an LSTM.
        batch_first: whether the two outputs are batch first, as `x` was.
        gradients: for each of `LOSSES`, the differences in that loss's gradients with respect to
            `"x"`, `(B, T)`, and to each trainable parameter, by name; empty if `compare` was called
            with `gradients=False`.
        notes: further remarks, such as a note that dropout was left out.
    """

    rnn: str
    layout: Layout
    dtype: str
    tolerance: float
    padded: RunResult
    packed: RunResult
    outputs: Difference
    h_n: Difference
    c_n: Difference | None
    batch_first: bool
    gradients: Mapping[str, Mapping[str, Difference]]
    notes: tuple[str, ...] = ()

    @cached_property
    def agrees(self) -> SimpleNamespace:
        """Which results agree between the two runs, as in `comparison.agrees.h_n`."""
        agrees: dict[str, bool] = {}
        for line in self._lines:
            for name in line.results:
                agrees[name] = agrees.get(name, True) and not line.n_differing
        return SimpleNamespace(**agrees)

    def needs_packing(self, name: str) -> bool:
        """Returns whether a result differs between the two runs, and so needs packing.

        NaN in the same places of both runs is not a difference, but `verdict` mentions it.

        Args:
            name: one of `RESULTS`.

        Raises:
            ValueError: there is no result with this name, or this comparison does not have it.
        """
        require_one_of("name", name, RESULTS)
        if name not in vars(self.agrees):
            raise ValueError(
                f"this comparison has no {name}; c_n needs an LSTM, a reverse half needs two"
                " directions, and gradients need gradients=True"
            )
        return not getattr(self.agrees, name)

    @property
    def verdict(self) -> str:
        """A summary of which results need packing on this batch, and which do not."""
        lines = [line for line in self._lines if line.results and line.n_cells]
        differing_lines = [line for line in lines if line.n_differing]
        both_nan_lines = [line for line in lines if line.n_both_nan and not line.n_differing]
        agreeing_lines = [line for line in lines if not line.n_both_nan and not line.n_differing]
        sentences = []
        if both_nan_lines:
            sentences.append(
                f"In {_merge_names(both_nan_lines, lines)}, both runs have NaN in the same places,"
                " where they cannot be compared."
            )
        if not self.layout.n_padding and not differing_lines:
            sentences.append(
                "There is no padding, so padded and packed results agree. Packing is not needed for"
                " correctness."
            )
            return " ".join(sentences)
        if agreeing_lines:
            sentences.append(f"Packing is not needed for {_merge_names(agreeing_lines, lines)}.")
        if differing_lines:
            sentences.append(
                f"The padded results are wrong for {_merge_names(differing_lines, lines)}."
            )
        differing_sequences = list(
            dict.fromkeys(name for line in differing_lines for name in line.sequences)
        )
        if differing_sequences:
            is_every_sequence = len(differing_sequences) == self.layout.batch_size
            sentences.append(
                "This affects"
                f" {'every sequence' if is_every_sequence else join_words(differing_sequences, 6)}."
            )
        nan_difference_lines = [
            line for line in differing_lines if math.isnan(line.largest_difference)
        ]
        if nan_difference_lines:
            nan_results_text = (
                "every wrong result"
                if nan_difference_lines == differing_lines
                else _merge_names(nan_difference_lines, lines)
            )
            sentences.append(f"NaN reaches {nan_results_text}.")
        return " ".join(sentences)

    @property
    def summary(self) -> str:
        """The RNN, and the verdict."""
        return f"{self.rnn}, padded against packed. {self.verdict}"

    def numbers(self) -> list[Row]:
        """Returns a row for each compared result. `agrees` is `None` for values in the padding."""
        return [
            {
                "result": line.name,
                "agrees": not line.n_differing if line.results else None,
                "cells": line.n_cells,
                "differing": line.n_differing,
                "largest difference": line.largest_difference,
            }
            for line in self._lines
        ]

    def to_text(self) -> str:
        """Returns the verdict, the size of every difference and, for a small batch, every cell."""
        sequence_count_text = with_noun(self.layout.batch_size, "sequence")
        step_count_text = with_noun(self.layout.max_len, "time step")
        title = (
            f"{self.rnn}, padded against packed: {sequence_count_text}, {step_count_text},"
            f" {self.dtype}"
        )
        rows = [[line.name, line.result_text] for line in self._lines]
        lines = [title, self.verdict, "", *table(rows, "  <  <"), ""]
        scale_scope = "sequence or, for weights, in their tensor" if self.gradients else "sequence"
        lines.append(
            f"Two values agree if they differ by at most {self.tolerance:g} of the largest value in"
            f" their {scale_scope}."
        )
        lines += [
            f"The loss on {loss_name} is {LOSSES[loss_name]}." for loss_name in self.gradients
        ]
        lines += self.notes
        if is_small(self.layout):
            for grid in self.panels():
                lines += ["", *grid.to_text()]
        return "\n".join(lines)

    def sheet(self, theme: str) -> Sheet:
        """Draws grids of the differences in the outputs, the states and the gradients to `x`."""
        return draw(self.panels(), self.verdict, theme)

    @property
    def _output_halves(self) -> dict[str, Difference]:
        """The outputs of each direction, by its label, which is empty if there is only one."""
        names = [f", {direction} half" for direction in DIRECTIONS]
        if self.outputs.absolute.shape[2] == 1:
            names = [""]
        return {name: self.outputs[..., d] for d, name in enumerate(names)}

    @property
    def _state_differences(self) -> dict[str, Difference]:
        return {"h_n": self.h_n} if self.c_n is None else {"h_n": self.h_n, "c_n": self.c_n}

    @cached_property
    def _lines(self) -> list[_Line]:
        """Every difference, separately for real steps and padding."""
        mask = self.layout.mask
        lines = []
        name = "outputs at real steps"
        for direction, (suffix, outputs) in zip(
            DIRECTIONS, self._output_halves.items(), strict=False
        ):
            results = ("outputs", f"outputs_{direction}")
            lines.append(_Line(name + suffix, outputs, results, mask, parent_name=name))
        if self.layout.n_padding:
            lines.append(_Line("outputs at padding", self.outputs, mask=~mask[..., None]))
        for name, difference in self._state_differences.items():
            lines.append(_Line(name, difference, (name,), noun="state"))
        for loss_name, gradients in self.gradients.items():
            results = ("gradients", f"gradients_{loss_name}")
            loss_suffix = f" (loss on {loss_name})"
            result_name = f"gradients{loss_suffix}"
            x_difference, *weight_differences = gradients.values()
            lines.append(
                _Line(
                    f"gradient to x{loss_suffix}",
                    x_difference,
                    results,
                    mask,
                    parent_name=result_name,
                )
            )
            if self.layout.n_padding:
                lines.append(_Line(f"gradient to padding{loss_suffix}", x_difference, mask=~mask))
            if weight_differences:
                joined_difference = _join_differences(weight_differences)
                name = f"gradient to weights{loss_suffix}"
                lines.append(
                    _Line(name, joined_difference, results, noun="tensor", parent_name=result_name)
                )
        return lines

    def panels(self) -> list[Differences]:
        """Returns grids of the outputs of each direction, the states and the gradients to `x`."""
        rows = [sequence_name(b) for b in range(self.layout.batch_size)]
        steps = [str(t) for t in range(self.layout.max_len)]
        padding = ~self.layout.mask
        panels: list[Differences] = []

        def add_panel(
            title: str, d: Difference, columns: list[str], padding: BoolArray | None
        ) -> None:
            values = np.moveaxis(d.absolute, d.axis or 0, 0).reshape(len(rows), -1)
            differs = np.moveaxis(d.differs, d.axis or 0, 0).reshape(len(rows), -1)
            panels.append(Differences(title, rows, columns, values, differs, d.scale, padding))

        for suffix, outputs in self._output_halves.items():
            add_panel(
                f"outputs{suffix.removesuffix(' half')}: |padded − packed|",
                outputs,
                steps,
                padding,
            )
        arrows = ["→", "←"] if len(panels) > 1 else [""]
        columns = [f"{i}{arrow}" for i in range(len(self.h_n.absolute)) for arrow in arrows]
        for name, difference in self._state_differences.items():
            add_panel(f"{name}, by layer", difference, columns, None)
        for loss_name, gradients in self.gradients.items():
            add_panel(f"gradient to x (loss on {loss_name})", gradients["x"], steps, padding)
        return panels


@overload
def compare(
    rnn: nn.RNNBase,
    x: Tensor,
    lengths: Any,
    hx: Any = None,
    *,
    batch_first: bool | None = None,
    gradients: bool = True,
    tolerance: float | None = None,
) -> StatesComparison: ...


@overload
def compare(
    rnn: Callable[[Tensor], object],
    x: Tensor,
    lengths: Any,
    *,
    batch_first: bool | None = None,
    tolerance: float | None = None,
) -> PaddingComparison: ...


def compare(
    rnn: Any,
    x: Tensor,
    lengths: Any,
    hx: Any = None,
    *,
    batch_first: bool | None = None,
    gradients: bool = True,
    tolerance: float | None = None,
) -> StatesComparison | PaddingComparison:
    """Runs an RNN on a batch, padded and packed, and reports which results agree.

    Given a whole model instead of an RNN, it runs the model with other values in the padding and
    with more padding, and reports which outputs change. In a correct model, none does. Sequences in
    a wrong order change nothing, nor does padding that the model adds itself, unless it calls
    `pad_packed_sequence` or `pad_sequence`. The model takes the batch alone; to pass it the lengths
    or a mask, too, write
    `pv.compare(lambda x: model(x, lengths), x, lengths, batch_first=True)`. An output with a
    dimension for the batch and one for time, or with both in one, is compared at real cells. One
    with exactly one dimension of the batch's size is compared by sequence. All others are compared
    entry by entry. What cannot be judged is named with the reason. For example, a model that
    depends on the values in the padding, but not on how much there is, is right only if the padding
    always holds the same value. And if a model takes only one width, more padding is not tested.

    Every module that is called runs in eval mode, because dropout would draw different numbers in
    the two runs. So BatchNorm uses its stored mean and variance. (On a GPU, an RNN with gradients
    is in training mode, without its dropout, as cuDNN requires.) Afterwards, the modules' modes and
    buffers, every `.grad` and torch's random state are as they were before.

    Args:
        rnn: an `nn.RNN`, `nn.GRU` or `nn.LSTM` with any number of layers and directions, and any
            `proj_size`, dtype and device; or another module or function, which is run as a whole.
        x: `(T, B, I)`, or `(B, T, I)` with `batch_first`, with the padding at the end.
        lengths: `(B,)` whole numbers from 1 to `T`, in any order: the number of real time steps of
            each sequence; or a mask `(B, T)`, True at real cells.
        hx: the initial state in the format the module expects. Defaults to zeros.
        batch_first: whether `x` is `(B, T, I)`. Defaults to the module's own `batch_first`.
        gradients: whether to compare the gradients of two losses, too: a weighted sum of the
            outputs at real steps, and one of `h_n` (see `LOSSES`).
        tolerance: two values agree if they differ by at most this share of the largest value of
            their sequence or weight tensor; of a whole model's, the largest that changes. Defaults
            to what `packviz.ops.tolerance.state_tolerance` returns for the dtype and the device.

    Returns:
        A `StatesComparison`, whose `.verdict` is a summary. Its `.agrees` and `.needs_packing(…)`
        take the names in `RESULTS`, such as `outputs`, `h_n`, `c_n` and `gradients`. A notebook
        draws the comparison, and `print` writes it as text. For a whole model, it is a
        `PaddingComparison`, whose `.agrees` is True, False, or `None` if this cannot be determined.

    Raises:
        TypeError: `rnn` cannot be called, or `x` is not a dense tensor.
        ValueError: shapes or dtypes do not fit together; `x` is empty or on the meta device; a
            length is not valid; or the batch for a whole model has as many sequences as steps.
        RuntimeError: `x` and the RNN are on different devices.

    Examples:
        >>> import packviz as pv, torch
        >>> lstm = torch.nn.LSTM(3, 4, batch_first=True)
        >>> comparison = pv.compare(lstm, torch.zeros(3, 5, 3), [5, 3, 2])
        >>> comparison.agrees.outputs, comparison.agrees.h_n  # the padding changes h_n alone
        (True, False)
    """
    require_padded(x)
    reject_meta("x", x)
    if callable(rnn) and not isinstance(rnn, nn.RNNBase):
        if hx is not None:
            raise TypeError(
                "hx is given, but a model that is not an RNN is called with x alone: leave hx out"
            )
        from packviz.check.whole_model import compare_padding  # noqa: PLC0415 - rarely needed

        return compare_padding(rnn, x, lengths, batch_first, tolerance)
    require_rnn(rnn)
    is_batch_first = bool(rnn.batch_first if batch_first is None else batch_first)
    require_input_shape(rnn, x.shape, is_batch_first)
    if not x.numel():
        raise ValueError(f"x of shape {tuple(x.shape)} is empty, so there is nothing to compare")
    layout = require_nonempty_sequences(
        Layout.from_padded(x.shape, lengths_tensor(lengths), is_batch_first)
    )
    require_mask_width(lengths, layout.max_len)
    if hx is not None:
        require_states(rnn, hx, x, layout.batch_size)
    if tolerance is None:
        tolerance = state_tolerance(x.dtype, x.device.type)
    tolerance = require_nonnegative("tolerance", tolerance)

    runs = []
    gradients_by_run = []
    with _temporary_settings(rnn, is_batch_first, gradients):
        # cuDNN's backward pass needs training mode; without dropout it equals eval mode.
        rnn.training = gradients and x.is_cuda
        if hx is not None:
            hx = _copy_state(hx)
        for pack in (False, True):
            # With any other dtype, the RNN raises an error.
            needs_gradient = gradients and x.is_floating_point()
            x_copy = x.detach().clone().requires_grad_(needs_gradient)
            result = run_rnn(rnn, x_copy, layout, hx, pack)
            gradients_by_run.append(_gradients(rnn, x_copy, layout, result) if gradients else {})
            runs.append(RunResult._make(None if part is None else part.detach() for part in result))
    padded, packed = runs
    n_directions = 1 + rnn.bidirectional
    shape = (rnn.num_layers, n_directions, layout.batch_size, -1)
    h_n = _difference(2, tolerance, padded.h_n.reshape(shape), packed.h_n.reshape(shape))
    c_n = None
    if padded.c_n is not None and packed.c_n is not None:
        c_n = _difference(2, tolerance, padded.c_n.reshape(shape), packed.c_n.reshape(shape))
    outputs = (split_directions(result.output, is_batch_first, n_directions) for result in runs)
    differences: dict[str, dict[str, Difference]] = {}
    for loss_name, padded_gradients in gradients_by_run[0].items():
        differences[loss_name] = {}
        for name, gradient in padded_gradients.items():
            axis = 0 if name == "x" else None
            packed_gradient = gradients_by_run[1][loss_name][name]
            differences[loss_name][name] = _difference(axis, tolerance, gradient, packed_gradient)
    return StatesComparison(
        rnn=str(rnn),
        layout=layout,
        dtype=str(x.dtype).removeprefix("torch."),
        tolerance=tolerance,
        padded=padded,
        packed=packed,
        outputs=_difference(0, tolerance, *outputs),
        h_n=h_n,
        c_n=c_n,
        batch_first=is_batch_first,
        gradients=differences,
        notes=tuple(_notes(rnn, gradients)),
    )


def _notes(rnn: nn.RNNBase, gradients: bool) -> Iterator[str]:
    """Yields a remark for each part of the RNN that the comparison leaves out."""
    if rnn.training and rnn.dropout and rnn.num_layers > 1:
        yield (
            f"Dropout ({rnn.dropout:g}) was left out, as in eval mode, because even with the same"
            " seed it draws different numbers for padded and packed data."
        )
    if gradients and not all(p.requires_grad for p in rnn.parameters()):
        yield "Frozen parameters have no gradient and were not compared."


def _copy_state(state: Any) -> Any:
    """Returns a copy of an initial state, or of a pair of them."""
    if isinstance(state, (tuple, list)):
        return tuple(map(_copy_state, state))
    return state.detach().clone()


@contextmanager
def _temporary_settings(rnn: nn.RNNBase, batch_first: bool, gradients: bool) -> Iterator[None]:
    """Sets `batch_first`, turns gradients on or off and disables dropout. Undoes it afterwards."""
    settings_patch = patch.multiple(rnn, dropout=0.0, batch_first=batch_first)
    modes = [(module, module.training) for module in rnn.modules()]
    try:
        with torch.inference_mode(False), torch.set_grad_enabled(gradients), settings_patch:
            rnn.eval()
            yield
    finally:
        for module, mode in modes:
            module.training = mode


def run_rnn(rnn: nn.RNNBase, x: Tensor, layout: Layout, hx: Any, packed: bool) -> RunResult:
    """Runs the RNN on the padded or the packed batch.

    In both cases, the output is padded to `layout.max_len`.
    """
    rnn_input: Any = x
    if packed:
        lengths = torch.tensor(layout.lengths)
        rnn_input = pack_padded_sequence(x, lengths, rnn.batch_first, enforce_sorted=False)
    result = rnn(rnn_input, hx)
    if not isinstance(result, tuple) or len(result) != 2:
        raise TypeError(
            f"rnn is {kind_of(rnn)} whose forward returns {kind_of(result)} instead of (output,"
            " state); to judge it as a whole model, pass lambda x: rnn(x)"
        )
    output, state = result
    if packed:
        output, _ = pad_packed_sequence(output, rnn.batch_first, total_length=layout.max_len)
    if isinstance(state, tuple):
        return RunResult(output, *state)
    return RunResult(output, state, None)


def _gradients(
    rnn: nn.RNNBase, x: Tensor, layout: Layout, result: RunResult
) -> dict[str, dict[str, Tensor]]:
    """Returns each loss's gradients: to `"x"`, `(B, T, I)`, and to each weight, flattened."""
    weights = {name: p for name, p in rnn.named_parameters() if p.requires_grad}
    mask = torch.tensor(layout.mask, device=x.device)
    if not rnn.batch_first:
        mask = mask.T
    # The outputs are indexed, not multiplied, because 0 · NaN is NaN.
    values = {"outputs": result.output[mask], "h_n": result.h_n}
    gradients = {}
    for seed, (loss_name, value) in enumerate(values.items()):
        generator = torch.Generator().manual_seed(seed)
        factors = torch.randn(value.shape, generator=generator, dtype=torch.float64).to(value)
        loss = (value * factors).sum()
        inputs = [x, *weights.values()]
        x_gradient, *weight_gradients = torch.autograd.grad(
            loss, inputs, retain_graph=True, materialize_grads=True
        )
        gradients[loss_name] = {"x": x_gradient if rnn.batch_first else x_gradient.transpose(0, 1)}
        for name, gradient in zip(weights, weight_gradients, strict=True):
            gradients[loss_name][name] = gradient.flatten()
    return gradients


def _difference(axis: int | None, tolerance: float, padded: Tensor, packed: Tensor) -> Difference:
    """Compares two tensors cell by cell. The last dimension of each is that of the features."""
    p, q = (result.detach().to("cpu", torch.float64).numpy() for result in (padded, packed))
    both_nan = np.isnan(p) & np.isnan(q)
    is_equal = (p == q) | both_nan
    with np.errstate(invalid="ignore", over="ignore"):
        abs_difference = np.where(is_equal, 0.0, abs(p - q))
    absolute = abs_difference.max(axis=-1)
    magnitudes = np.where(np.isfinite(q), abs(q), 0.0)
    cell_maxima = magnitudes.max(axis=-1)
    other_axes = tuple(i for i in range(cell_maxima.ndim) if i != axis)
    scale = cell_maxima.max(axis=other_axes, keepdims=True)
    differs = ~(absolute <= tolerance * scale)  # negated, so that NaN counts as a difference
    if axis is not None:
        scale = scale.reshape(-1)
    arrays = map(np.asarray, (absolute, differs, both_nan.any(axis=-1), scale))
    return Difference(axis, *map(make_read_only, arrays))


def _join_differences(differences: list[Difference]) -> Difference:
    """Returns the differences of several weights as one, after each was judged by its own scale."""
    names = ("absolute", "differs", "both_nan", "scale")
    arrays = (np.array([getattr(difference, name) for difference in differences]) for name in names)
    return Difference(None, *arrays)


def split_directions(output: Tensor, batch_first: bool, n_directions: int) -> Tensor:
    """Returns an output as `(B, T, D, H)`."""
    if not batch_first:
        output = output.transpose(0, 1)
    return output.reshape(*output.shape[:2], n_directions, -1)


def join_words(words: Sequence[str], max_words: int = 100) -> str:
    """Joins words into a list for a sentence. Any after the first `max_words` are only counted."""
    if len(words) > max_words:
        words = [*words[:max_words], f"{len(words) - max_words} more"]
    *others, last = words or [""]
    return f"{', '.join(others)} and {last}" if others else last
