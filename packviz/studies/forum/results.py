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
from packviz.core.given import one_of
from packviz.core.layout import IntArray
from packviz.draw.chart import Curve, Guide, Plot, Sweep
from packviz.draw.drawn import Drawn
from packviz.draw.palette import METHODS
from packviz.draw.sheet import Sheet
from packviz.draw.text import milliseconds, plain, table

SETUPS = {"A": "no padding", "B": "triangle", "evenly": "evenly spread"}
"""The forum's two ways to fill a batch, and one more."""

PASSES = {"forward": "forward pass", "training": "forward and backward pass"}

QUANTITIES = {"ratio": ("times as long as {}", "×"), "time": ("time", "ms"), "memory": ("most memory in use", "MB")}
"""What is drawn: how many times as long as the first method, the times, and the memory."""

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
        """A row of plots for each quantity, with a plot for each setup."""
        return self.chart().sheet(theme)

    def chart(self, *what: str) -> Sweep:
        """Some of `QUANTITIES` against the time steps, a plot for each setup; all if none are given.

        Raises:
            ValueError: there is no such quantity.
        """
        return beside({"": self}, what=[one_of("what", one, QUANTITIES) for one in what] or [*QUANTITIES])

    def finding(self, quantity: str) -> str:
        """What the measurement says of a quantity, in a line."""
        first, *others = self.parameters.methods
        setup = "B" if "B" in self.setups else self.setups[-1]
        if quantity == "time":
            return self._growth(setup) or f"Milliseconds per batch, up to {self.steps(setup)[-1]} time steps"
        shares, clear = {}, {}
        for point, method, which in product(self.points, others, PASSES):
            name, to, timing = call_name(method, which), call_name(first, which), point.timing
            if quantity == "ratio" and {name, to} <= timing.seconds.keys():
                ratio = timing.ratio(name, to)
                shares[method, which, point.setup, point.steps] = ratio.value
                if ratio.is_clear:
                    clear[method, which, point.setup, point.steps] = ratio.value
            elif quantity == "memory" and {name, to} <= timing.memory.keys():
                shares[method, which, point.setup, point.steps] = timing.memory[name] / max(timing.memory[to], 1)
        if not shares:
            return f"{', '.join(self.parameters.methods)}: {QUANTITIES[quantity][0].format(first)}"
        shares = clear or shares  # what noise has made large is no finding
        where = (max if quantity == "ratio" else min)(shares, key=lambda one: shares[one])
        method, which, setup, steps = where
        said = {"ratio": "takes up to {:.2g} times as long as", "memory": "needs as little as {:.2g} of the memory of"}
        what = said[quantity].format(shares[where])
        return f"{method.capitalize()} {what} {first} ({which}, setup {setup}, {steps} time steps)"

    def _growth(self, setup: str) -> str:
        """How many times as long each method trains at about four times the length."""
        sizes = self.steps(setup)
        long, short = sizes[-1], min(sizes, key=lambda size: abs(size - sizes[-1] / 4))
        timings = [self.point(setup, size).timing for size in (short, long)]
        names = {method: call_name(method, "training") for method in self.parameters.methods}
        grown = [
            f"{method} × {timings[1].median(name) / timings[0].median(name):.2g}"
            for method, name in names.items()
            if all(name in timing.seconds for timing in timings)
        ]
        said = f"From {short} to {long} time steps, training in setup {setup}: {', '.join(grown)}"
        return said if short < long and grown else ""

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
        yield "\nms: median. MB: the most memory in use at once. ?: not told apart. –: no number."
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
    what: Sequence[str] = tuple(QUANTITIES),
) -> Sweep:
    """Results side by side: a row for each quantity, a column for each setup, both axes logarithmic.

    Times and memory of another network or batch than the first result's are left out; ratios are not.

    Args:
        results: by what to call them; the first is drawn with solid lines, the others dashed. None is one to come.
        setups: to draw; those that were measured, if none are given.
        planned: sizes to mark on the axes.
        notes: lines to put beneath.
        what: some of `QUANTITIES`.
    """
    there = {name: result for name, result in results.items() if result}
    first = next(iter(there.values()), None)
    wanted = setups or [s for s in SETUPS if any(s in result.setups for result in there.values())]
    networks = {name: result.parameters.to_text() for name, result in there.items()}
    alike = {name for name, network in networks.items() if first and network == first.parameters.to_text()}
    rows = []
    for quantity in what:
        plots = []
        for setup in wanted:
            curves = [
                _curve(result, quantity, method, source, setup, which)
                for source, (name, result) in enumerate(results.items())
                if result and (quantity == "ratio" or name in alike)
                for method in result.parameters.methods[quantity == "ratio" :]
                for which in PASSES
            ]
            drawn = [curve for curve in reversed(curves) if curve]
            said, unit = QUANTITIES[quantity]
            title = f"{setup} ({SETUPS[setup]}): {said.format(first.parameters.methods[0] if first else '…')}"
            plots.append(Plot(title, drawn, planned, _guides(quantity, drawn, planned, first), unit, log=True))
        rows.append(plots)
    title = first.finding(what[0]) if first and first.points else "The forum's network"
    sources, below = [], [*notes]
    if first and len(alike) == len(there):
        name = f"{next(iter(there))}: " if len(there) < len(results) else ""
        below.append(f"{name}{first.parameters.to_text()}.")
    for name, result in results.items():
        prefix = f"{name}: " if name else ""
        if prefix or not result:
            sources.append(prefix + (result.caption if result else "nothing measured yet"))
        else:
            below.append(f"Measured on {result.caption}.")
        if result:
            if len(alike) < len(there):
                apart = "" if name in alike else "; only its ratios are drawn"
                below.append(f"{prefix}{networks[name]}{apart}.")
            below += [f"{prefix}{line}" for line in _gaps(result)]
    text = "\n\n".join([*notes, *(f"{name}\n{result}" if name else f"{result}" for name, result in there.items())])
    if len(what) == 1 and len(there) == 1:  # no more than is drawn
        text = "\n".join([title, *(line for plot in rows[0] for line in _in_words(plot)), *below])
    key = _MARKS if [*what] == ["memory"] else f"{_MARKS} {_BANDS}"
    return Sweep(title, rows, sources, [*below, key], text)


def _in_words(plot: Plot) -> list[str]:
    """A line for each size, a column for each curve."""
    curves = [dict(zip(curve.x, curve.y, strict=True)) for curve in plot.curves]
    rows = [["time steps", *(curve.name for curve in plot.curves)]]
    for size in sorted({x for curve in curves for x in curve}):
        rows.append([f"{size:g}", *(plain(curve[size]) if size in curve else "–" for curve in curves)])
    return ["", f"{plot.title}, {plot.y}", *table(rows, ">10  >8")]


_SLOPES = (("slope 1: T", 1), ("slope 2: T²", 2))
_MARKS, _BANDS = "Filled marks: training. Hollow marks: forward.", "Bands and whiskers: quartiles."


def _guides(quantity: str, curves: Sequence[Curve], planned: Sequence[int], first: Benchmark | None) -> list[Guide]:
    """The line at 1, or how times grow with the length and with its square, from where the first method's begin."""
    sizes = [*planned, *(x for curve in curves for x in curve.x)]
    start, end = min(sizes, default=1), max(sizes, default=1)
    if first is None or start == end:
        return []
    method = first.parameters.methods[0]
    if quantity == "ratio":
        return [Guide(f"1: as {method}", ((start, 1), (end, 1)))]
    name = _end_name(quantity, method, "training", first)
    own = [curve for curve in curves if curve.name == name and len(curve.x) > 1]
    if quantity != "time" or not own:
        return []
    x, y, last = own[-1].x[0], own[-1].y[0], own[-1].x[-1]
    return [Guide(said, ((x, y), (last, y * (last / x) ** power))) for said, power in _SLOPES]


def _gaps(result: Benchmark) -> Iterator[str]:
    for point in result.points:
        yield from (f"{point}, {name}: {why}" for name, why in point.missing.items())
        yield from (f"✗ {point}: {method} gives other results" for method in point.wrong)


def _curve(result: Benchmark, quantity: str, method: str, source: int, setup: str, which: str) -> Curve | None:
    values: dict[int, tuple[float, float, float]] = {}  # first quartile, median, third quartile
    name, to = (call_name(one, which) for one in (method, result.parameters.methods[0]))
    for steps in result.steps(setup):
        timing = result.point(setup, steps).timing
        if quantity == "ratio" and {name, to} <= timing.seconds.keys():
            ratio = timing.ratio(name, to)
            values[steps] = (ratio.low, ratio.value, ratio.high)
        elif quantity == "time" and name in timing.seconds:
            low, middle, high = timing.spread(name)
            values[steps] = (1e3 * low, 1e3 * middle, 1e3 * high)
        elif quantity == "memory" and name in timing.memory:
            most = timing.memory[name] / 1e6
            values[steps] = (most, most, most)
    if not values:
        return None
    # Those of the palette first: a method has the same colour in every picture, whoever else is in it.
    number = [*dict.fromkeys([*METHODS, *result.parameters.methods])].index(method)
    lows, middles, highs = ([spread[i] for spread in values.values()] for i in range(3))
    said = _end_name(quantity, method, which, result)
    return Curve(said, number, source, list(values), middles, lows, highs, hollow=which != "training")


def _end_name(quantity: str, method: str, which: str, result: Benchmark) -> str:
    """What stands at the end of a curve."""
    return which if quantity == "ratio" and len(result.parameters.methods) == 2 else call_name(method, which)


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
