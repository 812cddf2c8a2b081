"""What the forum's experiment measured: as a value, as text and as a picture. Needs no torch.

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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np

from packviz.bench.study import Results
from packviz.bench.timing import RATIOS, Ratio, Timing
from packviz.core import lengths
from packviz.core.layout import IntArray
from packviz.draw.chart import Curve, Plot, Sweep
from packviz.draw.drawn import Drawn
from packviz.draw.palette import METHODS
from packviz.draw.sheet import Sheet
from packviz.draw.text import milliseconds, table

SETUPS = {"A": "no padding", "B": "triangle", "evenly": "evenly spread"}
"""The forum's two ways to fill a batch, and one more."""

PASSES = {"forward": "forward pass", "training": "forward and backward pass"}

DTYPES = ("float32", "float64", "bfloat16", "float16")

AUTOCAST = ("bfloat16", "float16")
"""What torch.autocast takes. It casts float32, and leaves weights of another dtype as they are or fails on them."""


def setup_lengths(setup: str, batch_size: int, steps: int) -> IntArray:
    """`(B,)` lengths, longest first: all `steps` (A), counting down over and over (B), or even from `steps` to 1.

    Raises:
        ValueError: there is no such setup.
    """
    if setup not in SETUPS:
        raise ValueError(f"setup is {setup!r}; choose from {', '.join(SETUPS)}")
    make = {"A": lengths.equal, "B": lengths.triangle, "evenly": lengths.evenly}[setup]
    return np.sort(make(batch_size, steps))[::-1]


@dataclass(frozen=True)
class Parameters:
    """What decides how a point is measured, its setup and its time steps apart.

    Attributes:
        methods: names of `forum.METHODS`; the others are compared to the first.
        batch_size: sequences.
        rounds: timed rounds.
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
            _at_least(name, getattr(self, name), least)
        for name in ("batch_size", "rounds", "threads", "features", "hidden", "classes"):
            _at_least(name, getattr(self, name), 1)
        for name, value, choices in (("dtype", self.dtype, DTYPES), ("autocast", self.autocast, (None, *AUTOCAST))):
            if value not in choices:
                raise ValueError(f"{name} is {value!r}; choose from {', '.join(filter(None, choices))}")
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
        _at_least(name, value, 1)
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
        setup, steps = at.setup, _at_least("steps", at.steps, 1)
        if setup not in SETUPS:
            raise ValueError(f"setup is {setup!r}; this version knows {', '.join(SETUPS)}")
        timing = Timing.from_dict(data["timing"])
        times = [seconds for some in timing.seconds.values() for seconds in some]
        if not all(0 <= seconds < math.inf for seconds in times):
            raise ValueError(f"setup {setup}, steps {steps}: a time is not a number of seconds")
        if len({len(some) for some in timing.seconds.values()}) > 1:
            raise ValueError(f"setup {setup}, steps {steps}: not every call has a time in every round")
        missing = {str(name): str(why) for name, why in data["missing"].items()}
        apart = {str(m): math.nan if value is None else float(value) for m, value in data["difference"].items()}
        return cls(setup, steps, timing, missing, apart, float(data["tolerance"]))


class Benchmark(Drawn, Results[At, Point]):
    """Points measured on one machine, with the same parameters."""

    @property
    def parameters(self) -> Parameters:
        """How each was measured."""
        return Parameters.of(self.provenance["parameters"])

    @property
    def points(self) -> tuple[Point, ...]:
        """What was measured, in this order."""
        return tuple(self.values.values())

    @property
    def timings(self) -> list[Timing]:
        """Those of all points."""
        return [point.timing for point in self.points]

    @property
    def setups(self) -> list[str]:
        """Those that have a point, in the order of `SETUPS`."""
        return [setup for setup in SETUPS if any(point.setup == setup for point in self.points)]

    def steps(self, setup: str) -> list[int]:
        """The sizes of a setup, ascending."""
        return sorted(point.steps for point in self.points if point.setup == setup)

    def point(self, setup: str, steps: int) -> Point:
        """One of the points.

        Raises:
            ValueError: it was not measured.
        """
        if point := self.values.get(At(setup, steps)):
            return point
        there = "; ".join(f"{s}: {', '.join(map(str, self.steps(s)))}" for s in self.setups) or "none"
        raise ValueError(f"setup {setup!r} at {steps} time steps was not measured; there are {there}")

    def ratio(self, name: str, to: str, setup: str, steps: int, which: str = "training") -> Ratio:
        """How many times as long one method takes as another, taken within rounds.

        Raises:
            ValueError: one of them was not measured there.
        """
        return self.point(setup, steps).timing.ratio(call_name(name, which), call_name(to, which))

    def to_text(self) -> str:
        """A table for each setup and pass."""
        return "\n".join([f"{self.parameters.to_text()}.", *self._tables(), *self._remarks()])

    def sheet(self, theme: str) -> Sheet:
        """A row of two plots for each setup."""
        return beside({"": self}).sheet(theme)

    def _tables(self) -> Iterator[str]:
        for setup in self.setups:
            for which, said in PASSES.items():
                yield f"\nSetup {setup} ({SETUPS[setup]}), {said}:"
                yield from self._table(setup, which)

    def _table(self, setup: str, which: str) -> list[str]:
        first, *others = self.parameters.methods
        heads = [f"{m} ms" for m in (first, *others)] + [f"{m}/{first}" for m in others]
        rows = [["steps", *heads, *(f"{m} MB" for m in (first, *others))]]
        for steps in self.steps(setup):
            timing = self.point(setup, steps).timing
            calls = {method: call_name(method, which) for method in (first, *others)}
            there = {method for method, call in calls.items() if call in timing.seconds}
            cells = [milliseconds(timing.median(calls[m])) if m in there else "–" for m in calls]
            for method in others:
                ratio = timing.ratio(calls[method], calls[first]) if {first, method} <= there else None
                cells.append(f"{ratio.value:.3g}{'' if ratio.is_clear else '?'}" if ratio else "–")
            cells += [f"{timing.memory[c] / 1e6:.3g}" if c in timing.memory else "–" for c in calls.values()]
            rows.append([f"{steps}", *cells])
        return table(rows, ">7  >9")

    def _remarks(self) -> Iterator[str]:
        yield "\nms: median. MB: the most memory in use at once. ?: the spread is larger than the effect. –: no number."
        yield RATIOS
        for point in self.points:
            where = f"Setup {point.setup} at {point.steps} time steps"
            yield from (f"{where}: {name}: {why}." for name, why in point.missing.items())
            for method in point.wrong:
                apart = point.difference[method]
                yield f"✗ {where}: {method} gives other results (off by {apart:.2g}), so its times mean nothing."
        yield f"Measured on {self.caption}."


def beside(
    results: Mapping[str, Benchmark | None],
    setups: Sequence[str] = (),
    planned: Sequence[int] = (),
    notes: Sequence[str] = (),
) -> Sweep:
    """Results side by side: a row for each setup, a column for each pass.

    Args:
        results: by what to call them; the first is drawn with solid lines, the others dashed. None is one to come.
        setups: to draw; those that were measured, if none are given.
        planned: sizes to mark on the axes.
        notes: lines to put beneath.
    """
    there = {name: result for name, result in results.items() if result}
    wanted = setups or [s for s in SETUPS if any(s in result.setups for result in there.values())]
    # Those of the palette first: a method has the same colour in every picture, whoever else is in it.
    methods = list(dict.fromkeys([*METHODS, *(m for result in there.values() for m in result.parameters.methods)]))
    rows = []
    for setup in wanted:
        plots = []
        for which, said in PASSES.items():
            curves = [
                _curve(result, method, methods.index(method), source, setup, which)
                for source, result in enumerate(results.values())
                if result
                for method in result.parameters.methods
            ]
            drawn = [curve for curve in reversed(curves) if curve]
            plots.append(Plot(f"{setup} ({SETUPS[setup]}): {said}", drawn, planned))
        rows.append(plots)
    networks = {name: result.parameters.to_text() for name, result in there.items()}
    alike = len(set(networks.values())) == 1
    title = f"Milliseconds: {next(iter(networks.values()))}" if alike else "Milliseconds of the forum's network"
    sources, below = [], [*notes]
    for name, result in results.items():
        prefix = f"{name}: " if name else ""
        sources.append(prefix + (result.caption if result else "nothing measured yet"))
        if result:
            below += [f"{prefix}{networks[name]}"] if not alike else []
            below += [f"{prefix}{line}" for line in _gaps(result)]
    text = "\n\n".join([*notes, *(f"{name}\n{result}" if name else f"{result}" for name, result in there.items())])
    return Sweep(title, rows, sources, below, text)


def _gaps(result: Benchmark) -> Iterator[str]:
    for point in result.points:
        yield from (f"{point}, {name}: {why}" for name, why in point.missing.items())
        yield from (f"✗ {point}: {method} gives other results" for method in point.wrong)


def _curve(result: Benchmark, method: str, number: int, source: int, setup: str, which: str) -> Curve | None:
    name = call_name(method, which)
    timed = [(steps, result.point(setup, steps).timing) for steps in result.steps(setup)]
    timed = [(steps, timing) for steps, timing in timed if name in timing.seconds]
    if not timed:
        return None
    spread = [timing.quartiles(name) for _, timing in timed]
    return Curve(
        method,
        number,
        source,
        [steps for steps, _ in timed],
        [1e3 * timing.median(name) for _, timing in timed],
        [1e3 * low for low, _ in spread],
        [1e3 * high for _, high in spread],
    )


def call_name(method: str, which: str) -> str:
    """What the timing of a method's pass is called."""
    return f"{method}, {which}"


def checked(provenance: Mapping[str, Any], values: Mapping[At, Point]) -> Benchmark:
    """The benchmark of these points.

    Raises:
        ValueError: its parameters cannot be, or a time is missing and nothing says why.
    """
    result = Benchmark(provenance, values)
    for point, method, which in product(result.points, result.parameters.methods, PASSES):
        if (call := call_name(method, which)) not in {*point.timing.seconds, *point.missing}:
            raise ValueError(f"setup {point.setup}, steps {point.steps}: {call} has no time, and nothing says why")
    return result


def _at_least(name: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} is {value!r}; it must be a whole number of at least {least}")
    return value
