"""Uses a small model to predict how long each method takes to run a batch, and chooses a method.

A run spends time on each layer and direction, and within these on every kernel call, time step and
cell. Some of these times are constant, and some grow with the layer's sizes.
`packviz.measure.calibration` measures these times. On a CPU, it does so separately for each number
of torch threads, because two threads halve the time of a large matrix product but not the time of a
step or a copy. The measurements yield the constants of the model, which uses those for the number
of threads that is nearest to the current one. The constants come from files in `packviz/ops`, until
`Costs.use` replaces them. Without measured constants, nothing is predicted.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from packviz.core import results
from packviz.core.cuts import Rates, best_cuts, predict
from packviz.core.has_text import HasText
from packviz.core.machine import cpu_name
from packviz.core.spec import Spec

Term = tuple[str, Callable[[Spec], int]]
"""The two factors by which a constant of the model is multiplied. The first is a count, given by
the name of a field of
`Rates`: 1 for the whole run, or the number of calls, of steps, of cells, or of steps times cells.
The second is a function of the RNN's sizes. It returns 1, the number of layers times directions,
the number of weights, or the number of gates, which is `G · H` for each layer and direction."""


def _layers(spec: Spec) -> int:
    return spec.num_layers * spec.directions


def _gates(spec: Spec) -> int:
    return _layers(spec) * spec.gates


TERMS: Mapping[str, Term] = MappingProxyType(
    {
        "run": ("fixed", lambda spec: 1),
        "layer": ("fixed", _layers),
        "call": ("call", _layers),
        "call, weight": ("call", lambda spec: spec.weights),
        "step": ("step", _layers),
        "step, weight": ("step", lambda spec: spec.weights),
        "cell": ("cell", _layers),
        "cell, gate": ("cell", _gates),
        "cell, weight": ("cell", lambda spec: spec.weights),
        "cell, step, gate": ("square", _gates),
        "step of all": ("step", lambda spec: 1),
    }
)
"""The terms of the model, by name. The last two describe torch's packed backward pass on the CPU,
which goes through all cells at every step, and cuDNN, which works on several layers and directions
at the same time if it is given all of them."""

NEAR = 1.05
"""The factor within which predicted times count as equal, because predictions are off by a few per
cent. If several methods are this close to the fastest, the simplest of them is chosen. From simple
to complex, the methods are `"packed"`, `"padded"`, `"staircase"` and `"split"`. But if all lengths
are equal, `"padded"` is the simplest."""

_VERSION = 1


@dataclass(frozen=True, repr=False)
class Costs(HasText):
    """The constants of the model for one kind of device and, on a CPU, for one number of threads.

    Attributes:
        device: `"cpu"` or `"cuda"`.
        seconds: for each key, such as `"fused LSTM training"`, the constants by the names in
            `TERMS`; a constant that is left out is 0. A key consists of the way in which the RNN
            runs (see `key`), the RNN's mode, and `training` if there is a backward pass, or
            `forward` otherwise.
        provenance: the machine and conditions of the measurement; empty if nothing was measured.
    """

    device: str
    seconds: Mapping[str, Mapping[str, float]]
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @property
    def threads(self) -> int:
        """The number of torch threads during the measurement; 0 if it does not matter, as on CUDA."""
        return int(self.provenance.get("threads", 0)) if self.device == "cpu" else 0

    def measured_on(self, mode: str) -> Mapping[str, Any]:
        """Returns the provenance of the constants for an RNN's mode, such as `"LSTM"`.

        It differs from `provenance` if `calibrate` did not measure this mode, but copied older
        constants.
        """
        taken_over: Mapping[str, Any] = self.provenance.get("taken_over", {}).get(
            mode, self.provenance
        )
        return taken_over

    def use(self) -> None:
        """Makes `method="auto"` use these constants for the rest of this process.

        They replace the constants measured with the same number of threads. If the number of
        threads does not matter, they replace all constants for this kind of device.
        """
        known = _known(self.device)
        if not self.threads:
            known.clear()
        known.pop(0, None)
        known[self.threads] = self
        forget()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the constants to a JSON file.

        Raises:
            ValueError: the path does not end in `.json`.
            OSError: the file cannot be written.
        """
        rows = {name: [row.get(term, 0.0) for term in TERMS] for name, row in self.seconds.items()}
        data = {
            "terms": [*TERMS],
            "device": self.device,
            "seconds": rows,
            "provenance": dict(self.provenance),
        }
        results.save(path, "costs", _VERSION, data)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Costs:
        """Reads constants that `save` wrote.

        Raises:
            ValueError: the file does not exist, or does not contain such constants.
        """
        data = results.load(path, "costs", _VERSION)
        try:
            named = {
                str(name): dict(zip(data["terms"], row, strict=True))
                for name, row in data["seconds"].items()
            }
            seconds = {
                name: {term: float(row.get(term, 0)) for term in TERMS}
                for name, row in named.items()
            }
            if set(data["terms"]) <= set(TERMS):
                return cls(data["device"], MappingProxyType(seconds), data["provenance"])
        except (KeyError, TypeError, ValueError, AttributeError):
            pass
        raise ValueError(f"{os.fspath(path)} does not contain the costs of a run")

    def to_text(self) -> str:
        """Returns a heading, the non-zero constants of each key in nanoseconds, and the origin of the constants."""
        lines = [f"{self.device}, constants in nanoseconds"]
        for name, row in self.seconds.items():
            lines.append(
                f"{name}: {'; '.join(f'{term} {1e9 * row[term]:.3g}' for term in row if row[term])}"
            )
        return "\n".join([*lines, origin(self.provenance) if self.provenance else "not measured"])


def origin(provenance: Mapping[str, Any]) -> str:
    """Names the machine on which constants were measured, and says if this machine has a different processor."""
    on_cpu = not str(provenance.get("device", "cpu")).startswith("cuda")
    name, threads, date = (
        str(provenance.get(name, "")) for name in ("device_name", "threads", "date")
    )
    parts = [
        f"constants measured on {name}",
        f"torch threads: {threads}" if on_cpu else "",
        date[:10],
    ]
    here = cpu_name() if on_cpu else _gpu_name()
    other = f"; this machine has a different processor, {here}" if here and here != name else ""
    return ", ".join(filter(None, parts)) + other


def amounts(spec: Spec, calls: int, steps: int, cells: int) -> dict[str, int]:
    """Returns the factor of each constant for a run with these numbers of calls, time steps and cells in each layer."""
    counts = {"fixed": 1, "call": calls, "step": steps, "cell": cells, "square": steps * cells}
    return {name: share(spec) * counts[rate] for name, (rate, share) in TERMS.items()}


@dataclass(frozen=True, repr=False)
class Plan(HasText):
    """The method chosen for a batch, and the reason for the choice.

    Attributes:
        method: the method to use.
        cuts: the time steps at which the method cuts the batch, including 0 and `T`; `(0, T)` if it
            does not cut the batch.
        seconds: the predicted time, in seconds, of each method that may be the fastest; empty if a
            rule decides.
        reason: the rule that decides, or the machine on which the constants behind the predictions
            were measured.
    """

    method: str
    cuts: tuple[int, ...]
    seconds: Mapping[str, float]
    reason: str

    def to_text(self) -> str:
        """Returns the predicted times (shortest first), the method and the reason."""
        times = sorted(self.seconds.items(), key=lambda pair: pair[1])
        stairs = f", {len(self.cuts) - 1} rectangles" if len(self.cuts) > 2 else ""
        lines = [
            f"{method:9} {float(f'{1e3 * seconds:.2g}'):8g} ms predicted"
            for method, seconds in times
        ]
        near = (
            f", simpler and within {NEAR - 1:.0%} of the fastest"
            if times and self.method != times[0][0]
            else ""
        )
        return "\n".join(
            [*lines, f"auto takes: {self.method}{stairs}{near}", f"reason: {self.reason}"]
        )


def key(method: str, spec: Spec, training: bool, fused: bool, device: str = "cpu") -> str:
    """Returns the key of a method's constants in `Costs.seconds`.

    Args:
        method: the name of the method. `"packed"` and `"split"` have their own constants, and so
            does `"whole"`, which stands for a padded batch without any padding. `"padded"` and
            `"staircase"` share their constants. The key of these constants begins with `fused` if a
            kernel that accepts only padded data can run the RNN, and with `rectangles` otherwise.
        spec: the RNN.
        training: whether there is a backward pass.
        fused: whether torch has a kernel that accepts only padded data (see `rates`).
        device: `"cpu"` or `"cuda"`.
    """
    if method in ("padded", "staircase"):
        method = "fused" if fused and _is_fusable(spec, training, device) else "rectangles"
    return f"{method} {spec.mode} {'training' if training else 'forward'}"


@functools.lru_cache(maxsize=64)
def rates(
    spec: Spec, training: bool = True, device: str = "cpu", fused: bool = True, threads: int = 1
) -> Mapping[str, Rates]:
    """Returns what calls, steps and cells cost with each method, summed over all layers and
    directions of an RNN.

    Args:
        spec: the RNN.
        training: whether there is a backward pass.
        device: `"cpu"` or `"cuda"`.
        fused: whether torch has a kernel that accepts only padded data, even if the RNN's sizes do
            not suit it. On a CPU, this kernel is oneDNN's LSTM in float32; on CUDA, it is cuDNN's
            kernel for small `H`, in any dtype but float64.
        threads: number of torch threads; it matters only on a CPU.

    Returns:
        The rates by method, under the names that `key` accepts. For `"padded"` and `"staircase"`,
        each rectangle is a call. For `"packed"` and `"split"`, each distinct length counts as a
        call, because the number of sequences changes after it. The result is empty if the constants
        of any method have not been measured.
    """
    known, found, one = in_force(device, threads), {}, amounts(spec, 1, 1, 1)
    names = {name: key(name, spec, training, fused, device) for name in _METHODS}
    if not known.measured_on(spec.mode) or not known.seconds.keys() >= set(names.values()):
        return {}
    for method, name in names.items():
        sums = dict.fromkeys(("fixed", "call", "step", "cell", "square"), 0.0)
        for term, seconds in known.seconds[name].items():
            sums[TERMS[term][0]] += seconds * one[term]
        found[method] = Rates(**sums)
    return MappingProxyType(found)


def choose(
    rnn: Any,
    lengths: tuple[int, ...],
    training: bool = True,
    device: str = "cpu",
    fused: bool = True,
    threads: int = 1,
) -> Plan:
    """Chooses the method and the cuts that should be fastest for a batch, or a simpler method that
    is about as fast.

    The choice is deterministic, and nothing is measured. In three cases, torch's own kernel runs
    the batch, and nothing is predicted:

    * All lengths are equal, so there is nothing to pack, and either there is no backward pass or
      oneDNN's LSTM runs the batch on a CPU.
    * A GRU runs on a CPU without a backward pass. The method `"split"` would gain nothing: on 23
      ragged batches, it took 0.92 to 1.27 times as long as torch's kernel for packed data, with a
      median of 1.00.
    * No constants have been measured for this kind of RNN on this kind of device.

    Args:
        rnn: an RNN, or the `Spec` of one. An RNN with ReLU is not padded, because its state may
            grow without bound in the padding.
        lengths: `(B,)` lengths in any order.
        training: whether there is a backward pass.
        device: `"cpu"` or `"cuda"`.
        fused: whether torch has a kernel that accepts only padded data (see `rates`).
        threads: number of torch threads; it matters only on a CPU.
    """
    steps = max(lengths)
    on_fused = device == "cpu" and fused and _is_fusable(rnn, training, device)
    if steps == min(lengths) and (on_fused or not training):
        return _by_rule("padded", steps, "all lengths are equal, so there is nothing to pack")
    if rnn.mode == "GRU" and device == "cpu" and not training:
        return _by_rule(
            "packed", steps, "in a GRU's forward pass on a CPU, no other method is faster"
        )
    return weighed(Spec.of(rnn), lengths, training, device, fused, threads, rnn.mode == "RNN_RELU")


@functools.lru_cache(maxsize=64)
def _by_rule(method: str, steps: int, rule: str) -> Plan:
    return Plan(method, (0, steps), {}, rule)


@functools.lru_cache(maxsize=64)
def weighed(
    spec: Spec,
    lengths: tuple[int, ...],
    training: bool,
    device: str,
    fused: bool,
    threads: int,
    relu: bool,
) -> Plan:
    """Chooses a method by its predicted time, if there are measured constants. See `choose`."""
    steps, equal = max(lengths), max(lengths) == min(lengths)
    each = rates(spec, training, device, fused, threads)
    if not each:
        remedy = f"packviz.calibrate({device!r}).use() measures them"
        rule = f"no constants have been measured on {_PLACE[device]} for this kind of RNN; {remedy}"
        return _by_rule("padded" if equal else "packed", steps, rule)
    real, changes = sum(lengths), len(set(lengths))
    packed, split = (
        each["packed"].seconds(changes, steps, real),
        each["split"].seconds(changes, steps, real),
    )
    seconds = {"packed": packed}  # the simplest methods come first
    uncut: tuple[int, ...] = (0, steps)
    cuts = uncut
    if equal:
        method = "whole" if fused or spec.mode != "LSTM" or device == "cuda" else "padded"
        seconds = {"padded": each[method].seconds(1, steps, real), "packed": packed}
    elif (
        (fused and _is_fusable(spec, training, device)) if device == "cpu" else not relu
    ):  # otherwise, never pad
        padded = each["padded"]
        seconds["padded"] = padded.seconds(1, steps, steps * len(lengths))
        if min(split, *seconds.values()) > padded.seconds(
            2, steps, real
        ):  # otherwise a staircase cannot be fastest
            cuts = best_cuts(lengths, padded)
            if len(cuts) > 2:
                seconds["staircase"] = predict(lengths, cuts, padded).seconds
    seconds["split"] = split
    most = NEAR * min(seconds.values())
    method = next(method for method in seconds if seconds[method] <= most)
    cuts = cuts if method == "staircase" else uncut
    reason = origin(in_force(device, threads).measured_on(spec.mode))
    return Plan(method, cuts, MappingProxyType(seconds), reason)


def staircase(spec: Spec, lengths: tuple[int, ...], *place: Any) -> tuple[int, ...]:
    """Returns the cuts of the staircase that should be fastest.

    If no constants have been measured, the staircase has at most four rectangles, with as few cells
    as possible. `place` stands for the arguments of `choose` that follow `lengths`.
    """
    if each := rates(spec, *place):
        return best_cuts(lengths, each["staircase"])
    return best_cuts(lengths, Rates(0, 0, 0, 1), min(4, len(set(lengths))))


@functools.lru_cache(maxsize=64)
def in_force(device: str, threads: int = 1) -> Costs:
    """Returns the constants that `choose` uses for a kind of device: the shipped ones, or those set
    by `Costs.use`.

    Args:
        device: `"cpu"` or `"cuda"`.
        threads: number of torch threads; it matters only on a CPU. If there are no constants for
            this number, those for the nearest number, by ratio, are used.

    Returns:
        The constants; if nothing was measured, an empty `Costs`.
    """
    known = _known(device)
    nearest = min(
        known, key=lambda measured: abs(math.log((measured or threads) / threads)), default=0
    )
    return known.get(nearest, Costs(device, {}))


def forget() -> None:
    """Clears the caches of constants and choices."""
    for remembered in (in_force, rates, weighed):
        remembered.cache_clear()


def _known(device: str) -> dict[int, Costs]:
    """Returns the constants in use on a kind of device, by number of threads."""
    if device not in _in_force:
        every = map(Costs.load, sorted(Path(__file__).parent.glob(f"costs_{device}*.json")))
        _in_force[device] = {costs.threads: costs for costs in every}
    return _in_force[device]


def _gpu_name() -> str:
    """Returns the name of the GPU in use, or an empty string if there is none."""
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else ""


def _is_fusable(spec: Spec, training: bool, device: str) -> bool:
    """Returns whether an RNN's mode and sizes suit the kernel that accepts only padded data."""
    if spec.proj_size:
        return False
    return (
        spec.mode == "LSTM" if device == "cpu" else spec.hidden_size <= _SMALL[spec.mode][training]
    )


_METHODS = ("packed", "padded", "staircase", "split", "whole")
_PLACE = {"cpu": "a CPU", "cuda": "a GPU"}

# For each mode, the largest `H` for which torch uses cuDNN's kernel for small weights: first
# without a backward pass, then with one. This kernel keeps the weights on a GPU's cores from step
# to step, and takes a fraction of the time that the other kernels take. See
# `use_rnn_persist_small_h` in torch's `cudnn/RNN.cpp`.
_SMALL = {"RNN": (384, 256), "GRU": (192, 128), "LSTM": (192, 128)}


_in_force: dict[str, dict[int, Costs]] = {}
