"""Describes the sizes of an RNN, and computes from them the number of operations per cell."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from packviz.core.validation import kind_of, require_at_least, require_one_of

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
"""`G`, the number of gates of a cell. The weights of the input and the state have `G` times
`hidden_size` rows."""

UPDATE_FLOPS = {"LSTM": 5, "GRU": 4, "RNN": 0}
"""The FLOPs per hidden unit that compute the new state from the gates (see
`Spec.elementwise_per_cell`)."""


@dataclass(frozen=True)
class Spec:
    """The sizes of an `nn.RNN`, `nn.GRU` or `nn.LSTM`, which determine its FLOPs.

    Attributes:
        mode: `"RNN"`, `"GRU"` or `"LSTM"`; torch's `"RNN_TANH"` and `"RNN_RELU"` become `"RNN"`.
        input_size: `I`, the number of features of the input.
        hidden_size: `H`, the number of features of the hidden state.
        num_layers: the number of stacked layers.
        bidirectional: whether each layer also runs backwards.
        proj_size: `P`, the size that an LSTM's output is projected to; 0 for no projection.
        bias: whether biases are added. Biases have no effect on the GEMM FLOPs.

    Examples:
        >>> import packviz as pv
        >>> spec = pv.Spec("LSTM", 64, 128, bidirectional=True)
        >>> counted = pv.flops(spec, [5, 3, 2])
        >>> counted.packed < counted.padded
        True
    """

    mode: str
    input_size: int
    hidden_size: int
    num_layers: int = 1
    bidirectional: bool = False
    proj_size: int = 0
    bias: bool = True

    def __post_init__(self) -> None:
        """Checks the sizes.

        Raises:
            ValueError: `mode` is unknown, a size is not a whole number of at least 1 (0 for
                `proj_size`), or `proj_size` does not fit `mode` or `hidden_size`.
        """
        mode = str(self.mode).upper().removesuffix("_TANH").removesuffix("_RELU")
        if mode not in GATES:
            require_one_of("mode", self.mode, GATES)
        object.__setattr__(self, "mode", mode)
        for name in ("input_size", "hidden_size", "num_layers", "proj_size"):
            minimum = 0 if name == "proj_size" else 1
            object.__setattr__(self, name, require_at_least(name, getattr(self, name), minimum))
        if self.proj_size and mode != "LSTM":
            raise ValueError(
                f"proj_size is {self.proj_size}, but only an LSTM has a projection; leave it out"
            )
        if self.proj_size >= self.hidden_size:
            raise ValueError(
                f"proj_size is {self.proj_size}; it must be smaller than"
                f" hidden_size={self.hidden_size}"
            )

    @classmethod
    def of(cls, rnn: Any) -> Spec:
        """Reads the sizes of an `nn.RNN`, `nn.GRU` or `nn.LSTM`, or returns a `Spec` as it is.

        Raises:
            TypeError: `rnn` is neither an RNN nor a `Spec`.
        """
        if isinstance(rnn, cls):
            return rnn
        try:
            sizes = [getattr(rnn, field.name) for field in fields(cls)]
        except AttributeError:
            raise TypeError(
                f"rnn is {kind_of(rnn)}: give an nn.RNN, nn.GRU or nn.LSTM, or Spec('LSTM',"
                " input_size, …)"
            ) from None
        return cls(*sizes)

    @property
    def directions(self) -> int:
        """`D`, the number of directions: 2 if bidirectional, else 1."""
        return 2 if self.bidirectional else 1

    @property
    def gates(self) -> int:
        """`G · H`, the number of rows of each weight matrix of the input or the state."""
        return GATES[self.mode] * self.hidden_size

    @property
    def products(self) -> tuple[tuple[int, int, int], ...]:
        """The GEMM FLOPs per cell and direction in each layer: of input, state and projection."""
        rows = 2 * self.gates
        state_size = self.proj_size or self.hidden_size
        projection_flops = 2 * self.hidden_size * self.proj_size
        deeper_input_size = self.directions * state_size  # the input of each layer but the first
        input_sizes = [self.input_size] + [deeper_input_size] * (self.num_layers - 1)
        return tuple((rows * size, rows * state_size, projection_flops) for size in input_sizes)

    @property
    def gemm_per_cell(self) -> int:
        """The GEMM FLOPs of the forward pass for a cell, in all layers and directions."""
        return self.directions * sum(map(sum, self.products))

    @property
    def weights(self) -> int:
        """The number of weights in all matrices.

        Each weight takes one multiplication and one addition per cell.
        """
        return self.gemm_per_cell // 2

    @property
    def elementwise_per_cell(self) -> int:
        """The element-wise FLOPs of the forward pass for a cell, in all layers and directions.

        For each hidden unit, these are the additions of the biases, the sum of the two products for
        each gate, the activations, and the update of the state. Below, `a` and `b` are the products
        with the input and with the state:

        * RNN: bias 2, sum 1, activation 1. `h = tanh(a + b)`.
        * GRU: bias 6, sum 3, activation 3, update 4. `n = tanh(a + r · b)`, `h = n + z · (h − n)`.
        * LSTM: bias 8, sum 4, activation 4, update 5. `c = f · c + i · g`, `h = o · tanh(c)`.
        """
        flops_per_gate = 4 if self.bias else 2
        flops_per_unit = GATES[self.mode] * flops_per_gate + UPDATE_FLOPS[self.mode]
        return self.directions * self.num_layers * self.hidden_size * flops_per_unit

    def __str__(self) -> str:
        name = f"{self.mode}({self.input_size}, {self.hidden_size})"
        if self.num_layers > 1:
            name += f", {self.num_layers} layers"
        if self.bidirectional:
            name += ", bidirectional"
        if self.proj_size:
            name += f", proj_size {self.proj_size}"
        if not self.bias:
            name += ", no bias"
        return name
