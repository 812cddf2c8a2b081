"""What a run costs by each method, as a small model, and the choice that follows from it.

A run takes some time for each layer and direction, and in each of these for every call of a kernel, every time step and
every cell: constants, and shares that grow with the layer's sizes. `packviz.bench.calibration` measures them. In force
are those in `packviz/ops`, until `Costs.use` puts others in their place.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from packviz.core.cuts import Rates, best_cuts, predict

TERMS = (
    "run",
    "layer",
    "call",
    "call, weight",
    "step",
    "step, weight",
    "cell",
    "cell, gate",
    "cell, weight",
    "cell, step, gate",
)
"""What a constant is for. Layer: each one of each direction. Weight: each number of a layer's weights. Gate: each of
the `G · H` numbers that a cell computes first. The last: torch's packed backward on the CPU goes through all cells at
every step."""

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
"""`G`, the gates of a cell."""

_VERSION = 1


class Sizes(NamedTuple):
    """The sizes of an RNN: what its time depends on besides the batch.

    Attributes:
        mode: `"RNN"`, `"GRU"` or `"LSTM"`.
        input_size: `I`.
        hidden_size: `H`.
        num_layers: `L`.
        directions: `D`.
        proj_size: `P`, or 0.
    """

    mode: str
    input_size: int
    hidden_size: int
    num_layers: int = 1
    directions: int = 1
    proj_size: int = 0

    @classmethod
    def of(cls, rnn: Any) -> Sizes:
        """Those of an `nn.RNN`, `nn.GRU` or `nn.LSTM`, or of anything else with the same attributes."""
        mode = rnn.mode.removesuffix("_TANH").removesuffix("_RELU")
        return cls(mode, rnn.input_size, rnn.hidden_size, rnn.num_layers, 1 + bool(rnn.bidirectional), rnn.proj_size)

    @property
    def is_fusable(self) -> bool:
        """Whether oneDNN's fused LSTM does this."""
        return self.mode == "LSTM" and not self.proj_size

    @property
    def gates(self) -> int:
        """`G · H` of one direction of one layer."""
        return GATES[self.mode] * self.hidden_size

    @property
    def weights(self) -> int:
        """The numbers in all weight matrices."""
        state = self.proj_size or self.hidden_size
        inputs = self.input_size + (self.num_layers - 1) * self.directions * state
        return self.directions * (
            self.gates * (inputs + self.num_layers * state) + self.num_layers * self.hidden_size * self.proj_size
        )

    def amounts(self, calls: int, steps: int, cells: int) -> tuple[float, ...]:
        """How much of each of `TERMS` a run takes, with so many calls, time steps and cells in every layer."""
        layers, weights = self.num_layers * self.directions, self.weights
        gates = layers * self.gates
        each = (layers * calls, weights * calls, layers * steps, weights * steps)
        return 1, layers, *each, layers * cells, gates * cells, weights * cells, gates * cells * steps


@dataclass(frozen=True, repr=False)
class Costs:
    """The constants of the model for one kind of device.

    Attributes:
        device: `"cpu"` or `"cuda"`.
        seconds: the constants of `TERMS`, by key, such as `"fused LSTM training"`. A key names how the RNN runs, see
            `key`, its mode, and whether there is a backward pass: `training`, or else `forward`.
        provenance: what they were measured on; empty if they are guesses.
    """

    device: str
    seconds: Mapping[str, Sequence[float]]
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def use(self) -> None:
        """Puts them in force, for this process: from here on `method="auto"` decides by them."""
        _in_force[self.device] = self
        rates.cache_clear()
        choose.cache_clear()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes them to a JSON file."""
        data = {"packviz": "costs", "version": _VERSION, "terms": TERMS, "device": self.device}
        data |= {"seconds": dict(self.seconds), "provenance": dict(self.provenance)}
        Path(path).write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Costs:
        """Reads what `save` wrote.

        Raises:
            ValueError: the file holds something else.
        """
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
            seconds = {str(name): tuple(map(float, values)) for name, values in data["seconds"].items()}
            fits = (data["packviz"], data["version"], tuple(data["terms"])) == ("costs", _VERSION, TERMS)
            if fits and all(len(values) == len(TERMS) for values in seconds.values()):
                return cls(data["device"], MappingProxyType(seconds), data["provenance"])
        except (KeyError, TypeError, ValueError, AttributeError):
            pass
        raise ValueError(f"{os.fspath(path)} does not hold the costs of a run, version {_VERSION}")

    def to_text(self) -> str:
        """A line for each key, in nanoseconds."""
        wide = max(map(len, self.seconds))
        heads = [f"{term:>17}" for term in TERMS]
        lines = [f"{self.device}, nanoseconds for each", " " * wide + "".join(heads)]
        lines += [name.ljust(wide) + "".join(f"{1e9 * v:17.3g}" for v in row) for name, row in self.seconds.items()]
        where = (
            f"{self.provenance['device_name']}, torch threads: {self.provenance['threads']}" if self.provenance else ""
        )
        return "\n".join([*lines, f"measured on {where}" if where else "guesses, not measured"])

    def __repr__(self) -> str:
        return self.to_text()


@dataclass(frozen=True)
class Choice:
    """What the model says of one batch.

    Attributes:
        method: the one with the shortest time.
        cuts: its cuts, if it has rectangles.
        seconds: the time of each method that may be the fastest.
    """

    method: str
    cuts: tuple[int, ...]
    seconds: Mapping[str, float]


def key(method: str, sizes: Sizes, training: bool, fused: bool) -> str:
    """Under which key of `Costs.seconds` a method's constants are.

    Args:
        method: `"packed"` and `"split"` have constants of their own, and so has `"whole"`, which is padded data without
            padding. The rectangles of `"padded"` and `"staircase"` run on the `fused` kernel or on one of torch's
            others, `rectangles`.
        sizes: of the RNN.
        training: whether there is a backward pass.
        fused: as in `rates`.
    """
    if method in ("padded", "staircase"):
        method = "fused" if fused and sizes.is_fusable else "rectangles"
    return f"{method} {sizes.mode} {'training' if training else 'forward'}"


@functools.lru_cache(maxsize=256)
def rates(method: str, sizes: Sizes, training: bool = True, device: str = "cpu", fused: bool = True) -> Rates:
    """What a method's calls, steps and cells cost for an RNN, all layers and directions together.

    Args:
        method: as in `key`. `"packed"` and `"split"` have no calls; for `"padded"` and `"staircase"` they are the
            rectangles.
        sizes: of the RNN.
        training: whether there is a backward pass.
        device: `"cpu"` or `"cuda"`.
        fused: whether torch runs padded data of an LSTM without projection on oneDNN's fused kernel: in float32, on a
            CPU.
    """
    constants = in_force(device).seconds[key(method, sizes, training, fused)]
    each = [c * a for c, a in zip(constants, sizes.amounts(1, 1, 1), strict=True)]
    return Rates(sum(each[:2]), sum(each[2:4]), sum(each[4:6]), sum(each[6:9]), each[9])


@functools.lru_cache(maxsize=64)
def choose(
    sizes: Sizes, lengths: tuple[int, ...], training: bool = True, device: str = "cpu", fused: bool = True
) -> Choice:
    """The method and the cuts that should be fastest for a batch. Deterministic; it measures nothing.

    Args:
        sizes: of the RNN.
        lengths: `(B,)` in any order.
        training: whether there is a backward pass.
        device: `"cpu"` or `"cuda"`.
        fused: as in `rates`.
    """
    steps, real = max(lengths), sum(lengths)
    seconds = {m: rates(m, sizes, training, device, fused).seconds(0, steps, real) for m in ("packed", "split")}
    if steps == min(lengths):
        method = "whole" if fused or sizes.mode != "LSTM" else "padded"
        seconds["padded"] = rates(method, sizes, training, device, fused).seconds(1, steps, real)
    elif fused and sizes.is_fusable:  # no other kernel is better on padded data than on packed
        padded = rates("padded", sizes, training, device, fused)
        seconds["padded"] = padded.seconds(1, steps, steps * len(lengths))
        if min(seconds.values()) > padded.seconds(2, steps, real):  # else no staircase can be the fastest
            cuts = best_cuts(lengths, padded)
            if len(cuts) > 2:
                seconds["staircase"] = predict(lengths, cuts, padded).seconds
    method = min(seconds, key=seconds.__getitem__)
    return Choice(method, cuts if method == "staircase" else (0, steps), MappingProxyType(seconds))


def staircase(
    sizes: Sizes, lengths: tuple[int, ...], training: bool = True, device: str = "cpu", fused: bool = True
) -> tuple[int, ...]:
    """The cuts of the staircase that should be fastest, among staircases. Takes what `choose` does."""
    return best_cuts(lengths, rates("staircase", sizes, training, device, fused))


def in_force(device: str) -> Costs:
    """The constants that `choose` goes by on a kind of device; those that come with the package if no others are.

    Args:
        device: `"cpu"` or `"cuda"`.
    """
    if device not in _in_force:
        _in_force[device] = Costs.load(Path(__file__).with_name(f"costs_{device}.json"))
    return _in_force[device]


_in_force: dict[str, Costs] = {}
