"""Small networks around an LSTM, written as a user would write them: what a compiler is given.

`GUIDE` follows the LSTM page of a guide to a compiler with fixed shapes (PyTorch Neuron, Inf1): four networks that it
takes, two that it refuses. The taggers are for compilers of other kinds.
"""

from __future__ import annotations

import inspect
import re
from textwrap import dedent
from typing import Any

import torch
from torch import Tensor, nn

from packviz.ops.operator import Ragged
from packviz.ops.original import pack_padded_sequence, pad_packed_sequence

Three = tuple[Tensor, Tensor, Tensor]


class Network(nn.Module):
    """One LSTM, time first: `x` is `(T, B, 3)`. What differs between networks is `forward`."""

    def __init__(self) -> None:
        """Draws the weights."""
        super().__init__()
        self.lstm = nn.LSTM(input_size=3, hidden_size=7)


class FixedLength(Network):
    """Nothing is packed: the LSTM runs over all time steps, padding too."""

    def forward(self, x: Tensor) -> Three:
        output, (h_n, c_n) = self.lstm(x)
        return output, h_n, c_n


class Sorted(Network):
    """Packed in, padded out; the batch comes longest first."""

    def forward(self, x: Tensor, lengths: Tensor) -> Three:
        packed = pack_padded_sequence(x, lengths, enforce_sorted=True)
        result, (h_n, c_n) = self.lstm(packed)
        output, _ = pad_packed_sequence(result)
        return output, h_n, c_n


class Unsorted(Network):
    """Packed in, padded out; the batch comes in any order, and torch sorts it."""

    def forward(self, x: Tensor, lengths: Tensor) -> Three:
        packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
        result, (h_n, c_n) = self.lstm(packed)
        output, _ = pad_packed_sequence(result)
        return output, h_n, c_n


class FinalStates(Network):
    """Packed in; only the final states go out."""

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        packed = pack_padded_sequence(x, lengths)
        _, (h_n, c_n) = self.lstm(packed)
        return h_n, c_n


class Returned(Network):
    """The data of a PackedSequence go out."""

    def forward(self, x: Tensor, lengths: Tensor) -> Three:
        packed = pack_padded_sequence(x, lengths)
        result, (h_n, c_n) = self.lstm(packed)
        return result.data, h_n, c_n


class UsedByMax(Network):
    """The data of a PackedSequence go into an operator that is no RNN."""

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(x, lengths)
        result, _ = self.lstm(packed)
        return torch.max(result.data)


class FullWidth(Network):
    """Sorted, padded to all time steps: the size of no tensor depends on the lengths."""

    def forward(self, x: Tensor, lengths: Tensor) -> Three:
        packed = pack_padded_sequence(x, lengths, enforce_sorted=True)
        result, (h_n, c_n) = self.lstm(packed)
        output, _ = pad_packed_sequence(result, total_length=x.size(0))
        return output, h_n, c_n


class MaxOfPadded(Network):
    """Padded, and the padding masked before the maximum, where zero may be the largest value."""

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(x, lengths)
        result, _ = self.lstm(packed)
        output, _ = pad_packed_sequence(result, total_length=x.size(0))
        padding = torch.arange(x.size(0)).unsqueeze(1) >= lengths
        return torch.max(output.masked_fill(padding.unsqueeze(2), float("-inf")))


GUIDE = (FixedLength, Sorted, Unsorted, FinalStates, Returned, UsedByMax)
"""The networks of the guide: four that it supports, then two that it does not."""


class Tagger(nn.Module):
    """Layers before and after an LSTM, which a compiler can take even if it leaves out the LSTM."""

    def __init__(self) -> None:
        """Draws the weights."""
        super().__init__()
        self.before = nn.Linear(3, 3)
        self.lstm: nn.Module = nn.LSTM(3, 7)
        self.after = nn.Linear(7, 2)


class _PaddedTagger(Tagger):
    """Never packs."""

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        x = torch.tanh(self.before(x))
        output, _ = self.lstm(x)
        return torch.tanh(self.after(torch.relu(output)))


class PackedTagger(Tagger):
    """Packs, and pads again before the next layer."""

    full_width = True
    pack: Any = staticmethod(pack_padded_sequence)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        x = torch.tanh(self.before(x))
        packed = self.pack(x, lengths, enforce_sorted=False)
        result, _ = self.lstm(packed)
        output, _ = pad_packed_sequence(result, total_length=x.size(0) if self.full_width else None)
        return torch.tanh(self.after(torch.relu(output)))


class _NarrowTagger(PackedTagger):
    """Packs, and pads again without `total_length`: to the longest sequence of the batch."""

    full_width = False


class MaximumTagger(Tagger):
    """Takes the maximum over time, where the padding is −inf. All outputs are negative: 0 would be the largest."""

    def __init__(self) -> None:
        """Draws the weights, and makes every output of the LSTM negative."""
        super().__init__()
        with torch.no_grad():
            self.lstm.get_parameter("bias_hh_l0")[14:21] = -9  # of the cell input

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        x = torch.tanh(self.before(x))
        packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
        result, _ = self.lstm(packed)
        output, _ = pad_packed_sequence(result, padding_value=float("-inf"), total_length=x.size(0))
        return torch.tanh(self.after(torch.relu(1 + output.amax(0))))


class _MaskedMaximumTagger(MaximumTagger):
    """The same, where the padding is masked by the lengths."""

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        x = torch.tanh(self.before(x))
        packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
        result, _ = self.lstm(packed)
        output, _ = pad_packed_sequence(result, total_length=x.size(0))
        padding = torch.arange(x.size(0)).unsqueeze(1) >= lengths
        output = output.masked_fill(padding.unsqueeze(2), float("-inf"))
        return torch.tanh(self.after(torch.relu(1 + output.amax(0))))


class _EscapedTagger(Tagger):
    """Packs, and passes the data of the PackedSequence to the next layer."""

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        x = torch.tanh(self.before(x))
        packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
        result, _ = self.lstm(packed)
        return torch.tanh(self.after(torch.relu(result.data)))


class ConditionalTagger(Tagger):
    """Packs only where the lengths differ, to be fast."""

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        x = torch.tanh(self.before(x))
        if lengths.min() == lengths.max():
            output, _ = self.lstm(x)
        else:
            packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
            result, _ = self.lstm(packed)
            output, _ = pad_packed_sequence(result, total_length=x.size(0))
        return torch.tanh(self.after(torch.relu(output)))


class _PackDisabledTagger(PackedTagger):
    """Hides `pack_padded_sequence` from `torch.compile`, and nothing else."""

    def __init__(self) -> None:
        """Draws the weights."""
        super().__init__()
        self.pack = torch.compiler.disable(pack_padded_sequence)  # type: ignore[no-untyped-call]


class _IslandTagger(Tagger):
    """Hides pack, LSTM and pad together from `torch.compile`."""

    def __init__(self) -> None:
        """Draws the weights."""
        super().__init__()
        self.run_packed = torch.compiler.disable(self._run_packed)  # type: ignore[no-untyped-call]

    def _run_packed(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
        result, _ = self.lstm(packed)
        output, _ = pad_packed_sequence(result, total_length=x.size(0))
        return output

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        x = torch.tanh(self.before(x))
        output = self.run_packed(x, lengths)
        return torch.tanh(self.after(torch.relu(output)))


class _OperatorTagger(Tagger):
    """Packs, runs and pads within one custom operator."""

    def __init__(self) -> None:
        """Draws the weights."""
        super().__init__()
        self.lstm = Ragged(nn.LSTM(3, 7))

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        x = torch.tanh(self.before(x))
        output, _ = self.lstm(x, lengths, total_length=x.size(0))
        return torch.tanh(self.after(torch.relu(output)))


TAGGERS = {
    "padded": _PaddedTagger,
    "packed, padded again": PackedTagger,
    "… no total_length": _NarrowTagger,
    "maximum, padded with −inf": MaximumTagger,
    "maximum, masked": _MaskedMaximumTagger,
    "packed, escaped": _EscapedTagger,
    "packed if ragged": ConditionalTagger,
    "only pack disabled": _PackDisabledTagger,
    "disabled island": _IslandTagger,
    "Ragged": _OperatorTagger,
}
"""The taggers by the name that a table gives them."""


def source(network: type[nn.Module]) -> str:
    """The code of a network's `forward`, without annotations, as one would type it."""
    code = dedent(inspect.getsource(network.forward))
    names = ", ".join(inspect.signature(network.forward).parameters)
    return re.sub(r"\Adef forward\([^\n]*:\n", f"def forward({names}):\n", code)


def example(steps: int = 5, lengths: Any = (5, 3), seed: int = 0) -> tuple[Tensor, Tensor]:
    """Inputs for a network: `x` of shape `(steps, B, 3)`, and the lengths. Leaves torch's random numbers alone."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(steps, len(lengths), 3, generator=generator), torch.tensor(lengths)
