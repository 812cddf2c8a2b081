"""Defines small example models around an LSTM, written the way users write them.

The models in `GUIDE` follow the LSTM page in the guide to PyTorch Neuron (Inf1), a compiler for
fixed shapes. That compiler accepts the first four of them and rejects the last two. The models in
`TAGGERS` are for torch's own compilers.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import partial
from textwrap import dedent
from typing import Any

import torch
from torch import Tensor, nn

from packviz.ops.original import pack_padded_sequence, pad_packed_sequence
from packviz.ops.rnn import Ragged

Three = tuple[Tensor, Tensor, Tensor]
_disabled: Callable[[Any], Any] = torch.compiler.disable


class ExampleModel(nn.Module):
    """A time-first LSTM between two linear layers, for `x` of shape `(T, B, 3)`.

    Subclasses add `forward`.
    """

    def __init__(self) -> None:
        """Creates the layers, with random weights."""
        super().__init__()
        self.before, self.lstm, self.after = nn.Linear(3, 3), nn.LSTM(3, 7), nn.Linear(7, 2)


class FixedLength(ExampleModel):
    """A model that runs its LSTM on all time steps, including the padding, without packing."""

    def forward(self, x: Tensor) -> Three:
        output, (h_n, c_n) = self.lstm(x)
        return output, h_n, c_n


class Sorted(ExampleModel):
    """A model that packs a batch sorted by length, runs its LSTM, and pads the output."""

    def forward(self, x: Tensor, lengths: Tensor) -> Three:
        packed = pack_padded_sequence(x, lengths, enforce_sorted=True)
        result, (h_n, c_n) = self.lstm(packed)
        output, _ = pad_packed_sequence(result)
        return output, h_n, c_n


class Unsorted(ExampleModel):
    """A model that packs a batch in any order, which torch sorts by length, and pads the output."""

    def forward(self, x: Tensor, lengths: Tensor) -> Three:
        packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
        result, (h_n, c_n) = self.lstm(packed)
        output, _ = pad_packed_sequence(result)
        return output, h_n, c_n


class FinalStates(ExampleModel):
    """A model that packs, and returns only the final states of its LSTM."""

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        packed = pack_padded_sequence(x, lengths)
        _, (h_n, c_n) = self.lstm(packed)
        return h_n, c_n


class Returned(ExampleModel):
    """A model that returns the data of a `PackedSequence`."""

    def forward(self, x: Tensor, lengths: Tensor) -> Three:
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
    """A model that masks the padding before it takes the maximum of padded outputs.

    Otherwise the padding's zeros could be the maximum.
    """

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


class _PackedTagger(ExampleModel):
    """A tagger that packs, and pads again before the next layer."""

    def __init__(self, pack: Any = pack_padded_sequence, full_width: bool = True) -> None:
        """Stores the function that packs, and whether to pad to the width of `x`."""
        super().__init__()
        self.pack = pack
        self.full_width = full_width

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed = self.pack(torch.tanh(self.before(x)), lengths, enforce_sorted=False)
        result, _ = self.lstm(packed)
        output, _ = pad_packed_sequence(result, total_length=x.size(0) if self.full_width else None)
        return torch.tanh(self.after(torch.relu(output)))


class _EscapedTagger(ExampleModel):
    """A tagger that packs, and passes the packed data on to the next layer."""

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(torch.tanh(self.before(x)), lengths, enforce_sorted=False)
        result, _ = self.lstm(packed)
        return torch.tanh(self.after(torch.relu(result.data)))


class _MaximumTagger(ExampleModel):
    """A tagger that takes the maximum of negative outputs over time.

    Zeros in the padding would exceed this maximum.
    """

    def __init__(self, masked: bool) -> None:
        """Makes every output negative.

        If `masked` is True, a mask sets the padding to −inf; otherwise, `pad_packed_sequence` does.
        """
        super().__init__()
        self.masked = masked
        with torch.no_grad():
            self.lstm.get_parameter("bias_hh_l0")[14:21] = -9  # the bias of the cell input

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(torch.tanh(self.before(x)), lengths, enforce_sorted=False)
        result, _ = self.lstm(packed)
        value = 0.0 if self.masked else float("-inf")
        output, _ = pad_packed_sequence(result, padding_value=value, total_length=x.size(0))
        if self.masked:
            output = output.masked_fill(
                (torch.arange(x.size(0)).unsqueeze(1) >= lengths).unsqueeze(2), float("-inf")
            )
        return torch.tanh(self.after(torch.relu(1 + output.amax(0))))


class _WholeTagger(ExampleModel):
    """A tagger that runs its LSTM in one call, which may pack and pad.

    A compiler keeps it or leaves it out.
    """

    def __init__(self, whole: Callable[[nn.LSTM], Any]) -> None:
        """Stores the function to call, which `whole` makes from the LSTM."""
        super().__init__()
        self.whole = whole(self.lstm)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        output, _ = self.whole(torch.tanh(self.before(x)), lengths=lengths, total_length=x.size(0))
        return torch.tanh(self.after(torch.relu(output)))


def _island(lstm: nn.LSTM) -> Any:
    """Returns a function that packs, runs and pads outside the graphs of `torch.compile`."""

    def run(x: Tensor, lengths: Tensor, total_length: int) -> Any:
        packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
        return pad_packed_sequence(lstm(packed)[0], total_length=total_length)

    return _disabled(run)


TAGGERS: dict[str, Callable[[], ExampleModel]] = {
    "padded": _PaddedTagger,
    "packed, padded again": _PackedTagger,
    "… no total_length": partial(_PackedTagger, full_width=False),
    "maximum, padded with −inf": partial(_MaximumTagger, masked=False),
    "maximum, masked": partial(_MaximumTagger, masked=True),
    "packed, escaped": _EscapedTagger,
    "packed if ragged": ConditionalTagger,
    "only pack disabled": partial(_PackedTagger, _disabled(pack_padded_sequence)),
    "disabled island": partial(_WholeTagger, _island),
    "Ragged": partial(_WholeTagger, Ragged),
}
"""The functions that make the taggers, by the names that tables show."""


def source(model: type[nn.Module]) -> str:
    """Returns the code of a model's `forward`, without annotations."""
    code = dedent(inspect.getsource(model.forward))
    names = ", ".join(inspect.signature(model.forward).parameters)
    return re.sub(r"\Adef forward\([^\n]*:\n", f"def forward({names}):\n", code)


def example(steps: int = 5, lengths: Any = (5, 3), seed: int = 0) -> tuple[Tensor, Tensor]:
    """Returns inputs for a model: a random `x`, `(steps, B, 3)`, and the lengths."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(steps, len(lengths), 3, generator=generator), torch.tensor(lengths)
