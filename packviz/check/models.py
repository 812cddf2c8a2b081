"""Defines small example models around an LSTM, written the way users write them.

The models in `GUIDE` follow the LSTM page in the guide to PyTorch Neuron (Inf1), a compiler for
fixed shapes. That compiler accepts the first four of them and rejects the last two. The models in
`TAGGERS` are for torch's own compilers.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from functools import partial
from textwrap import dedent
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from packviz.ops.original import pack_padded_sequence, pad_packed_sequence
from packviz.ops.rnn import Ragged

TwoTensors = tuple[Tensor, Tensor]
ThreeTensors = tuple[Tensor, Tensor, Tensor]
_disable_compiler: Callable[[object], Callable[..., Any]] = torch.compiler.disable


class ExampleModel(nn.Module):
    """A time-first LSTM between two linear layers, for `x` of shape `(T, B, 3)`.

    Subclasses add `forward`.
    """

    def __init__(self) -> None:
        """Creates the layers, with random weights."""
        super().__init__()
        self.before = nn.Linear(3, 3)
        self.lstm = nn.LSTM(3, 7)
        self.after = nn.Linear(7, 2)


class FixedLength(ExampleModel):
    """A model that runs its LSTM on all time steps, including the padding, without packing."""

    def forward(self, x: Tensor) -> ThreeTensors:
        output, (h_n, c_n) = self.lstm(x)
        return output, h_n, c_n


class Sorted(ExampleModel):
    """A model that packs a batch sorted by length, runs its LSTM, and pads the output."""

    def forward(self, x: Tensor, lengths: Tensor) -> ThreeTensors:
        packed = pack_padded_sequence(x, lengths, enforce_sorted=True)
        result, (h_n, c_n) = self.lstm(packed)
        output, _ = pad_packed_sequence(result)
        return output, h_n, c_n


class Unsorted(ExampleModel):
    """A model that packs a batch in any order, which torch sorts by length, and pads the output."""

    def forward(self, x: Tensor, lengths: Tensor) -> ThreeTensors:
        packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
        result, (h_n, c_n) = self.lstm(packed)
        output, _ = pad_packed_sequence(result)
        return output, h_n, c_n


class FinalStates(ExampleModel):
    """A model that packs, and returns only the final states of its LSTM."""

    def forward(self, x: Tensor, lengths: Tensor) -> TwoTensors:
        packed = pack_padded_sequence(x, lengths)
        _, (h_n, c_n) = self.lstm(packed)
        return h_n, c_n


class Returned(ExampleModel):
    """A model that returns the data of a `PackedSequence`."""

    def forward(self, x: Tensor, lengths: Tensor) -> ThreeTensors:
        packed = pack_padded_sequence(x, lengths)
        result, (h_n, c_n) = self.lstm(packed)
        return result.data, h_n, c_n


class UsedByMax(ExampleModel):
    """A model that passes the data of a `PackedSequence` to an operator that is not an RNN."""

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(x, lengths)
        result, _ = self.lstm(packed)
        return torch.max(result.data)


class MaxOfPadded(ExampleModel):
    """A model that takes the maximum of padded outputs, without the zeros of the padding."""

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(x, lengths)
        result, _ = self.lstm(packed)
        output, _ = pad_packed_sequence(result, total_length=x.size(0))
        padding = torch.arange(x.size(0)).unsqueeze(1) >= lengths
        return torch.max(output.masked_fill(padding.unsqueeze(2), float("-inf")))


GUIDE = (FixedLength, Sorted, Unsorted, FinalStates, Returned, UsedByMax)
"""The models of the guide: four that its compiler accepts, then two that it rejects."""


class ConditionalTagger(ExampleModel):
    """A tagger that packs only if the lengths differ, to save time."""

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        x = torch.tanh(self.before(x))
        if lengths.min() == lengths.max():
            output, _ = self.lstm(x)
        else:
            packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
            result, _ = self.lstm(packed)
            output, _ = pad_packed_sequence(result, total_length=x.size(0))
        return torch.tanh(self.after(torch.relu(output)))


class _PaddedTagger(ExampleModel):
    """A tagger that never packs. It calls its LSTM in `forward`, where `torch.compile` stops."""

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        x = torch.tanh(self.before(x))
        output, _ = self.lstm(x)
        return torch.tanh(self.after(torch.relu(output)))


def _pad_to_width(
    result: PackedSequence, lengths: Tensor, width: int | None, padding_value: float = 0.0
) -> Tensor:
    """Pads a packed output to a width, or to the longest sequence if the width is `None`."""
    return pad_packed_sequence(result, padding_value=padding_value, total_length=width)[0]


def _pad_to_longest(result: PackedSequence, lengths: Tensor, width: int) -> Tensor:
    """Pads a packed output to the longest sequence."""
    return _pad_to_width(result, lengths, None)


def _return_packed_data(result: PackedSequence, lengths: Tensor, width: int) -> Tensor:
    """Does not pad a packed output again."""
    return result.data


def _take_maximum(result: PackedSequence, lengths: Tensor, width: int) -> Tensor:
    """Takes the maximum over time after padding with −inf."""
    return 1 + _pad_to_width(result, lengths, width, float("-inf")).amax(0)


def _take_masked_maximum(result: PackedSequence, lengths: Tensor, width: int) -> Tensor:
    """Takes the maximum over time after masking the padding with −inf."""
    output = _pad_to_width(result, lengths, width)
    padding = torch.arange(width).unsqueeze(1) >= lengths
    return 1 + output.masked_fill(padding.unsqueeze(2), float("-inf")).amax(0)


class _PackedTagger(ExampleModel):
    """A tagger that packs, and whose last layer reads the outputs in one of the ways above."""

    def __init__(
        self,
        read_output: Callable[[PackedSequence, Tensor, int], Tensor] = _pad_to_width,
        pack: Callable[..., PackedSequence] = pack_padded_sequence,
    ) -> None:
        """Stores the functions, and makes all outputs negative for a maximum."""
        super().__init__()
        self.read_output = read_output
        self.pack = pack
        # Zeros in the padding would exceed the maximum.
        if read_output in (_take_maximum, _take_masked_maximum):
            with torch.no_grad():
                self.lstm.get_parameter("bias_hh_l0")[14:21] = -9  # the bias of the cell input

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed = self.pack(torch.tanh(self.before(x)), lengths, enforce_sorted=False)
        result, _ = self.lstm(packed)
        output = self.read_output(result, lengths, x.size(0))
        return torch.tanh(self.after(torch.relu(output)))


class _OneCallTagger(ExampleModel):
    """A tagger that runs its LSTM in one call. A compiler keeps this call or leaves it out."""

    def __init__(
        self, wrap_lstm: Callable[[nn.LSTM], Callable[..., tuple[Tensor, object]]]
    ) -> None:
        """Stores the function to call, which `wrap_lstm` makes from the LSTM."""
        super().__init__()
        self.call_lstm = wrap_lstm(self.lstm)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        output, _ = self.call_lstm(torch.tanh(self.before(x)), lengths=lengths)
        return torch.tanh(self.after(torch.relu(output)))


def _wrap_uncompiled(lstm: nn.LSTM) -> Callable[..., TwoTensors]:
    """Returns a function that packs, runs the LSTM and pads, and that is never compiled."""

    def pack_run_pad(x: Tensor, lengths: Tensor) -> TwoTensors:
        packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
        result, _ = lstm(packed)
        return pad_packed_sequence(result, total_length=x.size(0))

    return _disable_compiler(pack_run_pad)


TAGGERS: dict[str, Callable[[], ExampleModel]] = {
    "padded": _PaddedTagger,
    "packed, padded again": _PackedTagger,
    "… no total_length": partial(_PackedTagger, _pad_to_longest),
    "maximum, padded with −inf": partial(_PackedTagger, _take_maximum),
    "maximum, masked": partial(_PackedTagger, _take_masked_maximum),
    "packed, escaped": partial(_PackedTagger, _return_packed_data),
    "packed if ragged": ConditionalTagger,
    "only pack disabled": partial(_PackedTagger, pack=_disable_compiler(pack_padded_sequence)),
    "disabled island": partial(_OneCallTagger, _wrap_uncompiled),
    "Ragged": partial(_OneCallTagger, Ragged),
}
"""The functions that make the taggers, by the names that tables show."""


def source(model: type[nn.Module]) -> str:
    """Returns the code of a model's `forward`, without annotations."""
    code = dedent(inspect.getsource(model.forward))
    names = ", ".join(inspect.signature(model.forward).parameters)
    return re.sub(r"\Adef forward\([^\n]*:\n", f"def forward({names}):\n", code)


def example(steps: int = 5, lengths: Sequence[int] = (5, 3)) -> TwoTensors:
    """Returns inputs for a model: a random `x` of shape `(steps, B, 3)`, and the lengths."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(steps, len(lengths), 3, generator=generator)
    return x, torch.tensor(lengths)
