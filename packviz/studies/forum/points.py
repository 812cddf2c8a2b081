"""What the forum's experiment measures: how a batch is filled, by which methods, and one point of it.

A result file is one of a study, of kind `benchmark`:

    {"packviz": "benchmark", "version": 1,
     "provenance": {…},         what it was measured on (see `provenance`); under "parameters" those of `Parameters`
     "points": [
       {"setup": "B",           a key of `SETUPS`
        "steps": 512,           time steps of the padded batch
        "timing": {             what `Timing.to_dict` gives, by "METHOD, PASS", as in "packed, training"
          "seconds": {…},       the time of every round; entry i of each list is of the same round
          "warmup": 1, "stopped": false,
          "provenance": {…},    what changes from point to point: date, load, page faults per round
          "memory": {…}},       the most bytes in use at once (see `machine.peak`), where they could be counted
        "missing": {…},         why a "METHOD, PASS" has no time, as in "out of memory"
        "difference": {…},      by method, how far its results are from those of the first, relative to these
        "tolerance": 0.001}     what rounding explains of that
     ]}

A file made up for a test has `"fake"` in its provenance, and every picture and text of it says so.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from packviz.bench.timing import Timing
from packviz.core import lengths
from packviz.core.given import at_least, one_of
from packviz.core.layout import IntArray

SETUPS = {"A": "no padding", "B": "triangle", "evenly": "evenly spread"}
"""The forum's two ways to fill a batch, and one more."""

PASSES = {"forward": "forward pass", "training": "forward and backward pass"}

METHODS = ("padded", "packed", "drop-in", "run")
"""The names of `network.METHODS`, which brings torch."""

DTYPES = ("float32", "float64", "bfloat16", "float16")

AUTOCAST = ("bfloat16", "float16")
"""What torch.autocast takes. It casts float32, and leaves weights of another dtype as they are or fails on them."""


def setup_lengths(setup: str, batch_size: int, steps: int) -> IntArray:
    """`(B,)` lengths, longest first: all `steps` (A), counting down over and over (B), or even from `steps` to 1.

    Raises:
        ValueError: there is no such setup.
    """
    make = {"A": lengths.equal, "B": lengths.triangle, "evenly": lengths.evenly}[one_of("setup", setup, SETUPS)]
    return np.sort(make(batch_size, steps))[::-1]


@dataclass(frozen=True)
class Parameters:
    """What decides how a point is measured, its setup and its time steps apart.

    Attributes:
        methods: names of `forum.METHODS`; the others are compared to the first.
        batch_size: sequences.
        rounds: timed rounds, at most.
        until_narrow: whether to stop as soon as all ratios are known to about 5 %, as `bench.measure` does.
        warmup: rounds before that, not counted.
        dtype: of the weights: one of `DTYPES`.
        autocast: one of `AUTOCAST`, for a `torch.autocast` around the forward pass of float32 weights, or none.
        threads: torch's CPU threads meanwhile. More than one gain little on products this small, and on a machine that
            is shared they wait for each other.
        seed: of the weights, the tokens, the targets, and the order within the rounds.
        vocabulary: tokens; 0 is padding.
        features: of the embedding.
        hidden: of the LSTM.
        classes: of the linear layer.

    Raises:
        ValueError: one of them cannot be.
    """

    methods: tuple[str, ...] = ("padded", "packed")
    batch_size: int = 512
    rounds: int = 11
    until_narrow: bool | None = None
    warmup: int = 1
    dtype: str = "float32"
    autocast: str | None = None
    threads: int = 1
    seed: int = 0
    vocabulary: int = 10
    features: int = 16
    hidden: int = 32
    classes: int = 2

    def __post_init__(self) -> None:
        """Checks the values."""
        for name, least in (("warmup", 0), ("seed", 0), ("vocabulary", 2)):
            at_least(name, getattr(self, name), least)
        for name in ("batch_size", "rounds", "threads", "features", "hidden", "classes"):
            at_least(name, getattr(self, name))
        one_of("dtype", self.dtype, DTYPES)
        one_of("autocast", self.autocast, (*AUTOCAST, None))
        if self.autocast and self.dtype != "float32":
            raise ValueError(f"autocast is {self.autocast!r} and dtype {self.dtype!r}; autocast needs dtype float32")
        if not self.methods or len(set(self.methods)) < len(self.methods):
            raise ValueError(f"methods is {', '.join(self.methods) or 'empty'}; name at least one, each once")

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Parameters:
        """Reads what `dataclasses.asdict` gave, as a file has it.

        Raises:
            ValueError: one of them is not known, or cannot be.
        """
        if unknown := sorted(given.keys() - {field.name for field in dataclasses.fields(cls)}):
            raise ValueError(f"this version knows no parameter {unknown[0]!r}")
        return cls(**{**given, "methods": tuple(given["methods"])})

    def to_text(self) -> str:
        """The network and the batch."""
        network = (
            f"Embedding({self.vocabulary}, {self.features}) → LSTM({self.features}, {self.hidden})"
            f" → Linear({self.hidden}, {self.classes})"
        )
        autocast = f", autocast {self.autocast}" if self.autocast else ""
        return f"{network}, batch size {self.batch_size}, {self.dtype}{autocast}"


def sizes(shortest: int, longest: int, step: int) -> tuple[int, ...]:
    """The time steps to measure: from the shortest to the longest.

    Raises:
        ValueError: there are none.
    """
    for name, value in (("shortest", shortest), ("longest", longest), ("step", step)):
        at_least(name, value)
    if shortest > longest:
        raise ValueError(f"shortest is {shortest} and longest {longest}: there is nothing between them")
    return tuple(range(shortest, longest + 1, step))


@dataclass(frozen=True)
class At:
    """A point to measure: one setup at one size.

    Attributes:
        setup: a key of `SETUPS`.
        steps: time steps of the padded batch.
    """

    setup: str
    steps: int

    def __str__(self) -> str:
        return f"setup {self.setup}, {self.steps} time steps"


@dataclass(frozen=True)
class Point(At):
    """A point, and what was measured there.

    Attributes:
        timing: by `call_name`; of its provenance only what is its own.
        missing: by `call_name`, why there is no timing.
        difference: by method, the largest difference of its logits and gradients from the first method's, relative to
            the largest of these.
        tolerance: the largest difference that rounding explains.
    """

    timing: Timing
    missing: Mapping[str, str] = field(default_factory=dict)
    difference: Mapping[str, float] = field(default_factory=dict)
    tolerance: float = 0.0

    @property
    def wrong(self) -> list[str]:
        """Methods that give something else: their times mean nothing."""
        return [method for method, apart in self.difference.items() if not apart <= self.tolerance]

    @property
    def remark(self) -> str:
        """What went wrong there."""
        lost = "".join(f", {name}: {why}" for name, why in self.missing.items())
        return lost + "".join(f", {method} gives other results" for method in self.wrong)

    def of(self, which: str) -> Timing:
        """One of `PASSES` alone, by method."""

        def own(some: Mapping[str, Any]) -> dict[str, Any]:
            end = call_name("", which)
            return {name.removesuffix(end): value for name, value in some.items() if name.endswith(end)}

        timing = self.timing
        return replace(timing, seconds=own(timing.seconds), memory=own(timing.memory), missing=own(self.missing))

    def only(self, methods: Sequence[str]) -> Point:
        """The same of these methods alone."""

        def kept(some: Mapping[str, Any]) -> dict[str, Any]:
            return {name: value for name, value in some.items() if name.rpartition(", ")[0] in methods}

        timing = replace(self.timing, seconds=kept(self.timing.seconds), memory=kept(self.timing.memory))
        apart = {method: value for method, value in self.difference.items() if method in methods}
        return replace(self, timing=timing, missing=kept(self.missing), difference=apart)

    def to_dict(self) -> dict[str, Any]:
        """What was measured, as plain data for a JSON file."""
        # JSON has no NaN and no infinity, and a method that goes so wrong must be kept.
        apart = {method: value if math.isfinite(value) else None for method, value in self.difference.items()}
        rest = {"missing": dict(self.missing), "difference": apart, "tolerance": self.tolerance}
        return {"timing": self.timing.to_dict()} | rest

    @classmethod
    def from_dict(cls, at: At, data: Mapping[str, Any]) -> Point:
        """Reads what `to_dict` gave.

        Raises:
            ValueError: `data` is something else.
        """
        setup, steps = one_of("setup", at.setup, SETUPS), at_least("steps", at.steps)
        timing = Timing.from_dict(data["timing"])
        times = [seconds for some in timing.seconds.values() for seconds in some]
        if not all(0 <= seconds < math.inf for seconds in times):
            raise ValueError(f"setup {setup}, steps {steps}: a time is not a number of seconds")
        if len({len(some) for some in timing.seconds.values()}) > 1:
            raise ValueError(f"setup {setup}, steps {steps}: not every call has a time in every round")
        missing = {str(name): str(why) for name, why in data["missing"].items()}
        apart = {str(m): math.nan if value is None else float(value) for m, value in data["difference"].items()}
        return cls(setup, steps, timing, missing, apart, float(data["tolerance"]))


def call_name(method: str, which: str) -> str:
    """What the timing of a method's pass is called."""
    return f"{method}, {which}"
