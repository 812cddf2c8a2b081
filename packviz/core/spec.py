"""Describes the sizes of an RNN, and computes from them the number of operations per cell."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from packviz.core.validation import at_least, kind_of, one_of

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
"""`G`, the number of gates of a cell. The weights of the input and the state have `G` times `hidden_size` rows."""


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
        mode = one_of(
            "mode", str(self.mode).upper().removesuffix("_TANH").removesuffix("_RELU"), GATES
        )
        object.__setattr__(self, "mode", mode)
        for name, least in (
            ("input_size", 1),
            ("hidden_size", 1),
            ("num_layers", 1),
            ("proj_size", 0),
        ):
            object.__setattr__(self, name, at_least(name, getattr(self, name), least))
        if self.proj_size and mode != "LSTM":
            raise ValueError(
                f"proj_size is {self.proj_size}, but only an LSTM has a projection; leave it out"
            )
        if self.proj_size >= self.hidden_size:
            raise ValueError(
                f"proj_size is {self.proj_size}; it must be smaller than hidden_size={self.hidden_size}"
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
            sizes = (
                rnn.mode,
                rnn.input_size,
                rnn.hidden_size,
                rnn.num_layers,
                rnn.bidirectional,
                rnn.proj_size,
            )
            return _checked(*sizes, rnn.bias)
        except AttributeError:
            raise TypeError(
                f"rnn is {kind_of(rnn)}: give an nn.RNN, nn.GRU or nn.LSTM, or Spec('LSTM', input_size, …)"
            ) from None

    @property
    def directions(self) -> int:
        """`D`, the number of directions: 2 if bidirectional, else 1."""
        return 1 + bool(self.bidirectional)

    @property
    def gates(self) -> int:
        """`G · H`, the number of rows of each weight matrix of the input or the state."""
        return GATES[self.mode] * self.hidden_size

    @property
    def products(self) -> tuple[tuple[int, int, int], ...]:
        """The GEMM FLOPs per cell and direction in each layer, for the input, the state and the projection."""
        rows, state = 2 * self.gates, self.proj_size or self.hidden_size
        inputs = [self.input_size] + [self.directions * state] * (self.num_layers - 1)
        return tuple(
            (rows * i, rows * state, 2 * self.hidden_size * self.proj_size) for i in inputs
        )

    @property
    def gemm_per_cell(self) -> int:
        """The GEMM FLOPs of the forward pass for one time step of one sequence, in all layers and directions."""
        return self.directions * sum(map(sum, self.products))

    @property
    def weights(self) -> int:
        """The number of weights in all matrices. Each weight takes one multiplication and one addition per cell."""
        return self.gemm_per_cell // 2

    @property
    def elementwise_per_cell(self) -> int:
        """The element-wise FLOPs of the forward pass for one time step of one sequence, in all
        layers and directions.

        For each hidden unit, these are the additions of the biases, the sum of the two products for
        each gate, the activations, and the update of the state. Below, `a` and `b` are the products
        with the input and with the state:

        * RNN: bias 2, sum 1, activation 1. `h = tanh(a + b)`.
        * GRU: bias 6, sum 3, activation 3, update 4. `n = tanh(a + r · b)`, `h = n + z · (h − n)`.
        * LSTM: bias 8, sum 4, activation 4, update 5. `c = f · c + i · g`, `h = o · tanh(c)`.
        """
        update = {"RNN": 0, "GRU": 4, "LSTM": 5}[self.mode]
        per_unit = GATES[self.mode] * (4 if self.bias else 2) + update
        return self.directions * self.num_layers * self.hidden_size * per_unit

    def __str__(self) -> str:
        extras = [f"{self.num_layers} layers"] if self.num_layers > 1 else []
        extras += ["bidirectional"] if self.bidirectional else []
        extras += [f"proj_size {self.proj_size}"] if self.proj_size else []
        extras += [] if self.bias else ["no bias"]
        return ", ".join([f"{self.mode}({self.input_size}, {self.hidden_size})", *extras])


_checked = lru_cache(maxsize=64, typed=True)(
    Spec
)  # avoids repeating the checks when `of` reads the same sizes again
