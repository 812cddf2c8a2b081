"""The benchmark of a forum question: how long packing takes, forward and backward, as sequences grow.

At every size and in every setup each method is timed in two passes: *forward* (the network alone, without a graph for
autograd), and *training* (forward, loss, backward). In each pass the methods take turns.

What the original did, and what is done here:

| the original | here |
|---|---|
| one mean over a block of 20 calls | the median of interleaved rounds, with quartiles |
| one curve after the other: a machine that warms up or throttles bends them | all methods in turn, in an order drawn anew each round; ratios within rounds |
| warms up with the forward pass only, so the first backward passes are timed cold | warms up what is timed |
| clears gradients and takes the loss within the time, of the forward pass too | no gradient is kept; the forward pass is the network alone |
| sets gradients to zero, so that every backward pass adds to the last one | adds to none |
| every token is 1, so a sequence in a wrong place would show nowhere | random tokens; logits and gradients of all methods are compared at every point, on a GPU without TF32 |
| repeats the mask to the size of the output | broadcasts it |
| CUDA only | CUDA events on a GPU, a monotonic clock on a CPU with an allocator that keeps its pages |
| neither seed nor spread nor memory | all three, and a record of the machine |

Its sorting of the batch stays outside of the time, as there. Sizes still come in ascending order: compare methods at a
size rather than sizes with each other.

A file made up for a test has `"fake"` in its provenance, and every picture and text of it says so. To read results and
to draw them no torch is needed.
"""  # noqa: E501 - a table

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from packviz.bench.study import Comparison, MeasureOptions, Results, Study, by_pass
from packviz.bench.timing import RATIOS, Ratio, Timing
from packviz.core import lengths
from packviz.core.layout import IntArray
from packviz.core.validation import at_least, one_of
from packviz.draw import palette
from packviz.draw.drawing import Drawing
from packviz.draw.quantities import milliseconds, plain
from packviz.draw.sheet import Point, Sheet
from packviz.draw.sweep import Curve, Plot, Sweep
from packviz.draw.text import count, table

SETUPS = {"A": "no padding", "B": "triangle", "evenly": "evenly spread"}
"""The forum's two setups of lengths, and one more."""

PASSES = {"forward": "forward pass", "training": "forward and backward pass"}

METHODS = ("padded", "packed", "drop-in", "run")
"""The names of `network.METHODS`, which needs torch."""

FULL = {"batch_size": 512, "shortest": 32, "longest": 512, "step": 32, "rounds": 11}
"""The forum's sizes."""

QUICK = {"batch_size": 64, "shortest": 32, "longest": 128, "step": 32, "rounds": 6}
"""A try: seconds on a CPU."""

NETWORK = "Embedding(10, 16) → LSTM(16, 32) → Linear(32, 2), batch size {}, float32"

QUANTITIES = {"ratio": ("times as long as {}", "×"), "time": ("time", "ms"), "memory": ("peak memory", "MB")}
"""What is drawn: how many times as long as the first method, the times, and the memory."""


def setup_lengths(setup: str, batch_size: int, steps: int) -> IntArray:
    """`(B,)` lengths, longest first: all `steps` (A), counting down over and over (B), or even from `steps` to 1.

    Raises:
        ValueError: there is no such setup.
    """
    make = {"A": lengths.equal, "B": lengths.triangle, "evenly": lengths.evenly}[one_of("setup", setup, SETUPS)]
    return np.sort(make(batch_size, steps))[::-1]


@dataclass(frozen=True)
class BenchmarkPoint:
    """One setup at one size.

    Attributes:
        setup: a key of `SETUPS`.
        steps: time steps of the padded batch.
    """

    setup: str
    steps: int

    def __post_init__(self) -> None:
        """Checks the values."""
        one_of("setup", self.setup, SETUPS)
        at_least("steps", self.steps)

    def __str__(self) -> str:
        return f"setup {self.setup}, {self.steps} time steps"


def sizes(shortest: int, longest: int, step: int) -> range:
    """The time steps to measure: from the shortest to the longest.

    Raises:
        ValueError: there are none.
    """
    for name, value in (("shortest", shortest), ("longest", longest), ("step", step)):
        at_least(name, value)
    if shortest > longest:
        raise ValueError(f"shortest is {shortest} and longest {longest}: there is nothing between them")
    return range(shortest, longest + 1, step)


def grid(setups: Sequence[str] = ("A", "B"), steps: Sequence[int] = ()) -> list[BenchmarkPoint]:
    """The points of every setup at every size, from the smallest up; the forum's sizes if none are given."""
    every = sorted({*(steps or sizes(FULL["shortest"], FULL["longest"], FULL["step"]))})
    return [BenchmarkPoint(setup, size) for size in every for setup in dict.fromkeys(setups)]


class Benchmark(Drawing, Results[BenchmarkPoint, Mapping[str, Timing]]):
    """Points measured on one machine, with the same parameters: by point and pass, the `Timing` of every method."""

    @property
    def methods(self) -> list[str]:
        """Those that were measured; the others are compared with the first."""
        return [*self.provenance["parameters"]["methods"]]

    @property
    def network(self) -> str:
        """The network and the batch."""
        return NETWORK.format(self.provenance["parameters"]["batch_size"])

    @property
    def setups(self) -> list[str]:
        """Those that have a point, in the order of `SETUPS`."""
        return [setup for setup in SETUPS if any(point.setup == setup for point in self.points)]

    def steps(self, setup: str) -> list[int]:
        """The sizes of a setup, ascending."""
        return sorted(point.steps for point in self.points if point.setup == setup)

    def at(self, setup: str, steps: int) -> Mapping[str, Timing]:
        """What was measured at one of the points, by pass.

        Raises:
            ValueError: it was not measured.
        """
        for point, timings in self.values.items():
            if (point.setup, point.steps) == (setup, steps):
                return timings
        there = "; ".join(f"{s}: {', '.join(map(str, self.steps(s)))}" for s in self.setups) or "none"
        raise ValueError(f"setup {setup!r} at {steps} time steps was not measured; there are {there}")

    def ratio(self, name: str, to: str, setup: str, steps: int, which: str = "training") -> Ratio:
        """How many times as long one method takes as another, taken within rounds.

        Raises:
            ValueError: one of them was not measured there.
        """
        return self.at(setup, steps)[which].ratio(name, to)

    def only(self, methods: Sequence[str]) -> Benchmark:
        """The same of these methods alone, and of the first: the others are compared with it."""
        first, *others = self.methods
        kept = [first, *(method for method in others if method in methods)]
        parameters = {**self.provenance["parameters"], "methods": kept}

        def of_kept(timing: Timing) -> Timing:
            some = {what: getattr(timing, what) for what in ("seconds", "memory", "missing")}
            changed: dict[str, Any] = {what: {m: v[m] for m in v if m in kept} for what, v in some.items()}
            return replace(timing, **changed)

        values = {point: {which: of_kept(t) for which, t in timings.items()} for point, timings in self.values.items()}
        return Benchmark({**self.provenance, "parameters": parameters}, values)

    def to_text(self) -> str:
        """A table for each setup and pass."""
        return "\n".join([f"{self.network}.", *self._tables(), *self._remarks()])

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
        first = self.methods[0]
        if quantity == "time":
            return self._growth("B" if "B" in self.setups else self.setups[-1])
        if (most := self._most(quantity)) is None:
            return f"{', '.join(self.methods)}: {QUANTITIES[quantity][0].format(first)}"
        value, (method, which, setup, steps) = most
        texts = {"ratio": "takes up to {:.2g} times as long as", "memory": "needs as little as {:.2g} of the memory of"}
        what = texts[quantity].format(value)
        return f"{method.capitalize()} {what} {first} ({which}, setup {setup}, {steps} time steps)"

    def _most(self, quantity: str) -> tuple[float, tuple[str, str, str, int]] | None:
        """The largest ratio of times, or the smallest of memory, to the first method's; and where it was found."""
        first, *others = self.methods
        shares, clear = {}, {}
        for (point, timings), method, which in product(self.values.items(), others, PASSES):
            where, timing = (method, which, point.setup, point.steps), timings[which]
            if quantity == "ratio" and {method, first} <= timing.seconds.keys():
                ratio = timing.ratio(method, first)
                shares[where] = ratio.value
                if ratio.is_clear:
                    clear[where] = ratio.value
            elif quantity == "memory" and {method, first} <= timing.memory.keys():
                shares[where] = timing.memory[method] / max(timing.memory[first], 1)
        shares = clear or shares  # what noise has made large is no finding
        if not shares:
            return None
        where = (max if quantity == "ratio" else min)(shares, key=lambda one: shares[one])
        return shares[where], where

    def _growth(self, setup: str) -> str:
        """How many times as long each method trains at about four times the length."""
        sizes = self.steps(setup)
        long, short = sizes[-1], min(sizes, key=lambda size: abs(size - sizes[-1] / 4))
        before, after = (self.at(setup, size)["training"] for size in (short, long))
        there = [method for method in self.methods if method in before.seconds.keys() & after.seconds.keys()]
        if short == long or not there:
            return f"Milliseconds per batch, up to {long} time steps"
        grown = ", ".join(f"{method} × {after.median(method) / before.median(method):.2g}" for method in there)
        return f"From {short} to {long} time steps, training in setup {setup}: {grown}"

    def _tables(self) -> Iterator[str]:
        for setup in self.setups:
            for which, label in PASSES.items():
                yield f"\nSetup {setup} ({SETUPS[setup]}), {label}:"
                yield from self._table(setup, which)

    def _table(self, setup: str, which: str) -> list[str]:
        first, *others = methods = self.methods
        ratios, memory = (f"{m}/{first}" for m in others), (f"{m} MB" for m in methods)
        rows = [["steps", *(f"{m} ms" for m in methods), *ratios, *memory]]
        for steps in self.steps(setup):
            timing = self.at(setup, steps)[which]
            cells = [milliseconds(timing.median(m)) if m in timing.seconds else "–" for m in methods]
            for method in others:
                ratio = timing.ratio(method, first) if {first, method} <= timing.seconds.keys() else None
                cells.append(f"{ratio.value:.3g}{' ' if ratio.is_clear else '?'}" if ratio else "–")
            cells += [f"{timing.memory[m] / 1e6:.3g}" if m in timing.memory else "–" for m in methods]
            rows.append([f"{steps}", *cells])
        return table(rows, ">7  .9")

    def _busy(self, point: BenchmarkPoint) -> str:
        """Why the machine looked busy at a point; empty if it did not."""
        timings = [timing for timing in self.values[point].values() if timing.rounds]
        whole = (replace(timing, provenance={**self.provenance, **timing.provenance}) for timing in timings)
        return next((timing.busy for timing in whole if timing.busy), "")

    def _remarks(self) -> Iterator[str]:
        yield "\nms: median. MB: peak memory. ?: not told apart. –: no number."
        yield RATIOS
        if busy := [reason for point in self.points if (reason := self._busy(point))]:
            yield f"The machine was busy at {len(busy)} of {count(len(self.points), 'point')}: {busy[-1]}."
        yield from (f"✗ {line}." for line in self.left_out)
        yield f"Measured on {self.caption}."


def beside(
    results: Mapping[str, Benchmark | None],
    setups: Sequence[str] = (),
    planned: Sequence[int] = (),
    notes: Sequence[str] = (),
    what: Sequence[str] = tuple(QUANTITIES),
    title: str = "",
) -> Sweep:
    """Results side by side: a row for each quantity, a column for each setup, both axes logarithmic.

    Times and memory of another network or batch than the first result's are left out; ratios are not.

    Args:
        results: by what to call them; the first is drawn with solid lines, the others dashed. None is one to come.
        setups: to draw; those that were measured, if none are given.
        planned: sizes to mark on the axes.
        notes: lines to put beneath.
        what: some of `QUANTITIES`.
        title: stands above, in place of what the first result found.
    """
    there = {name: result for name, result in results.items() if result}
    first = next(iter(there.values()), None)
    drawn = setups or _setups(there)
    rows = [[_plot(results, quantity, setup, planned) for setup in drawn] for quantity in what]
    title = title or (first.finding(what[0]) if first and first.points else "The forum's network")
    sources, below = _sources(results)
    below = [*notes, *below]
    text = "\n\n".join([*notes, *(f"{name}\n{result}" if name else f"{result}" for name, result in there.items())])
    if len(what) == 1 and len(there) == 1:  # no more than is drawn
        text = _all_in_words(title, rows, below)
    return Sweep(title, rows, sources, [*below, *_key(what)], text)


def by_machine(found: Mapping[str, Benchmark], quantity: str, setup: str = "", title: str = "") -> Sweep:
    """A quantity on every machine, on the same axes.

    Times and memory are those of training alone, but for a single machine in plots of both setups; those of another
    network or batch than the first machine's are left out.

    Args:
        found: results by what to call the machine.
        quantity: one of `QUANTITIES`.
        setup: to draw the ratios of this one alone, each machine in a plot of its own: for more than two methods. If
            empty, there is a plot for each setup, and all machines are in it.
        title: stands above these, in place of what the first machine found.

    Raises:
        ValueError: there is no such quantity, or it is not the ratio of a setup.
    """
    one_of("quantity", quantity, ["ratio"] if setup else QUANTITIES)
    found = {name: result for name, result in found.items() if setup in ("", *result.setups) and result.points}
    if not found:
        return Sweep("Nothing was recorded", [], [], [], "Nothing was recorded.")
    if len(found) == 1:
        found = {"": next(iter(found.values()))}
        if not setup:
            return beside(found, what=[quantity], title=title)
    passes = [*PASSES] if quantity == "ratio" else ["training"]
    sources, below = _sources(found)
    if setup:
        plots = [_plot({name: result}, quantity, setup, passes=passes, before=name) for name, result in found.items()]
        rows = [plots[i : i + 2] for i in range(0, len(plots), 2)]
        size = min(result.steps(setup)[-1] for result in found.values())
        texts = []
        for name, result in found.items():
            own, timing = result.methods[0], result.at(setup, size)["training"]
            there = [method for method in result.methods[1:] if {method, own} <= timing.seconds.keys()]
            ratios = ", ".join(f"{method} {timing.ratio(method, own).value:.2g}" for method in there)
            texts.append(f"{name}: {ratios}" if name else ratios)
        to = next(iter(found.values())).methods[0]
        title = f"Times as long as {to}, training in {setup} at {size} time steps: {'; '.join(texts)}"
        sources, below = list[str](), [*sources, *below]
    else:
        rows = [[_plot(found, quantity, one, passes=passes, named=True) for one in _setups(found)]]
        name, first = next(iter(found.items()))
        title = title or f"{first.finding(quantity)} ({name})"
    text = _all_in_words(title, rows, [*sources, *below])
    return Sweep(title, rows, sources, [*below, *_key([quantity], passes)], text)


def _setups(results: Mapping[str, Benchmark]) -> list[str]:
    return [setup for setup in SETUPS if any(setup in result.setups for result in results.values())]


def _comparable(results: Mapping[str, Benchmark | None], quantity: str) -> dict[str, Benchmark]:
    """Those whose numbers can stand on the axes of the first: of the same network and batch, or ratios."""
    there = {name: result for name, result in results.items() if result}
    network = next((result.network for result in there.values()), "")
    return {name: found for name, found in there.items() if quantity == "ratio" or found.network == network}


def _plot(
    results: Mapping[str, Benchmark | None],
    quantity: str,
    setup: str,
    planned: Sequence[int] = (),
    passes: Sequence[str] = tuple(PASSES),
    named: bool = False,
    before: str = "",
) -> Plot:
    """A quantity in a setup: a curve for each result, method and pass.

    Args:
        results: by their names; the number of each gives the dashes.
        quantity: one of `QUANTITIES`.
        setup: one of `SETUPS`.
        planned: sizes to mark on the axis.
        passes: to draw.
        named: whether curves have the name of the result as well.
        before: stands before the name of the setup.
    """
    drawn = _comparable(results, quantity)
    first = next(iter(drawn.values()), None)
    curves = []
    for source, name in enumerate(results):
        if name in drawn:
            result = drawn[name]
            for method, which in product(result.methods[quantity == "ratio" :], passes):
                label = _end_name(quantity, method, which if len(passes) > 1 else "", result)
                label = ", ".join(filter(None, (label, name if named else "")))
                curves.append(_curve(result, quantity, method, source, setup, which, label))
    shown = [curve for curve in reversed(curves) if curve]
    label, unit = QUANTITIES[quantity]
    what = label.format(first.methods[0] if first else "…")
    where = f"{before}, {setup}" if before else f"{setup} ({SETUPS[setup]})"
    title = ", ".join([f"{where}: {what}", *passes][: 2 if len(passes) == 1 else 1])
    return Plot(title, shown, planned, _guides(quantity, shown, planned, first), unit, log=True)


def _sources(results: Mapping[str, Benchmark | None]) -> tuple[list[str], list[str]]:
    """Lines for where each result comes from, if it has a name; and further notes on it."""
    there = {name: result for name, result in results.items() if result}
    alike = _comparable(results, "time")
    sources, below = [], []
    if there and len(alike) == len(there):
        name, first = next(iter(there.items()))
        below.append(f"{f'{name}: ' if len(there) < len(results) else ''}{first.network}.")
    for name, result in results.items():
        prefix = f"{name}: " if name else ""
        if result is None:
            sources.append(f"{prefix}nothing measured yet")
            continue
        if prefix:
            sources.append(prefix + result.caption)
        else:
            below.append(f"Measured on {result.caption}.")
        if len(alike) < len(there):
            below.append(f"{prefix}{result.network}{'' if name in alike else '; only its ratios are drawn'}.")
        below += [f"{prefix}✗ {line}" for line in result.left_out]
    return sources, below


def _key(what: Sequence[str], passes: Sequence[str] = tuple(PASSES)) -> list[str]:
    """What marks and bands mean, in a line, if there are any."""
    notes = [_MARKS] * (len(passes) > 1) + [_BANDS] * ([*what] != ["memory"])
    return [" ".join(notes)] if notes else []


def _all_in_words(title: str, rows: Sequence[Sequence[Plot]], below: Sequence[str]) -> str:
    return "\n".join([title, *(line for row in rows for plot in row for line in _in_words(plot)), *below])


def _in_words(plot: Plot) -> list[str]:
    """A line for each size, a column for each curve."""
    curves = [dict(zip(curve.x, curve.y, strict=True)) for curve in plot.curves]
    rows = [["time steps", *(curve.name for curve in plot.curves)]]
    for size in sorted({x for curve in curves for x in curve}):
        rows.append([f"{size:g}", *(plain(curve[size]) if size in curve else "–" for curve in curves)])
    return ["", f"{plot.title}, {plot.y}", *table(rows, ">10  .8")]


_MARKS, _BANDS = "Filled marks: training. Hollow marks: forward.", "Bands and whiskers: quartiles."


def _guides(
    quantity: str, curves: Sequence[Curve], planned: Sequence[int], first: Benchmark | None
) -> dict[str, tuple[Point, Point]]:
    """The line at 1, or how times grow with the length and with its square, from where the first method's begin."""
    sizes = [*planned, *(x for curve in curves for x in curve.x)]
    start, end = min(sizes, default=1), max(sizes, default=1)
    if first is None or start == end:
        return {}
    method = first.methods[0]
    if quantity == "ratio":
        return {f"1: as {method}": ((start, 1), (end, 1))}
    look = (_number_of(method, first), 0, False)
    own = [c for c in curves if (c.method, c.source, c.hollow) == look and len(c.x) > 1]
    if quantity != "time" or not own:
        return {}
    x, y, last = own[-1].x[0], own[-1].y[0], own[-1].x[-1]
    slopes = {"slope 1: T": last / x, "slope 2: T²": (last / x) ** 2}
    return {name: ((x, y), (last, y * rise)) for name, rise in slopes.items()}


def _spread(timing: Timing, quantity: str, method: str, first: str) -> tuple[float, float, float] | None:
    """First quartile, median and third quartile; None if there is no number. Memory is counted, once."""
    if quantity == "memory":
        return (timing.memory[method] / 1e6,) * 3 if method in timing.memory else None
    if not {method, first if quantity == "ratio" else method} <= timing.seconds.keys():
        return None
    if quantity == "time":
        low, middle, high = timing.spread(method)
        return 1e3 * low, 1e3 * middle, 1e3 * high
    ratio = timing.ratio(method, first)
    return ratio.low, ratio.value, ratio.high


def _curve(
    result: Benchmark, quantity: str, method: str, source: int, setup: str, which: str, label: str
) -> Curve | None:
    spreads = {
        steps: _spread(result.at(setup, steps)[which], quantity, method, result.methods[0])
        for steps in result.steps(setup)
    }
    values = {steps: spread for steps, spread in spreads.items() if spread}
    if not values:
        return None
    lows, middles, highs = zip(*values.values(), strict=True)
    hollow = which != "training"
    return Curve(label, _number_of(method, result), source, list(values), middles, lows, highs, hollow=hollow)


def _number_of(method: str, result: Benchmark) -> int:
    """Those of the palette first: a method has the same colour in every picture, whoever else is in it."""
    return [*dict.fromkeys([*palette.METHODS, *result.methods])].index(method)


def _end_name(quantity: str, method: str, which: str, result: Benchmark) -> str:
    """What stands at the end of a curve; nothing of the pass where there is but one."""
    if quantity == "ratio" and len(result.methods) == 2:
        return which
    return f"{method}, {which}" if which else method


def _methods(point: BenchmarkPoint, which: str, how: MeasureOptions) -> Comparison:
    from packviz.studies import network  # noqa: PLC0415 - torch

    n = setup_lengths(point.setup, how.parameters["batch_size"], point.steps)
    return network.comparison(n, point.steps, how.parameters["methods"], which, how.device)


STUDY = Study(
    "benchmark",
    BenchmarkPoint,
    by_pass(_methods),
    Benchmark,
    full=grid(),
    quick=grid(steps=(32, 64)),
    parameters={"methods": METHODS, "batch_size": 512, "rounds": 7},
    version=2,
)
run, recorded = STUDY.run, STUDY.load


def recordings(methods: Sequence[str] = ("padded", "packed")) -> dict[str, Benchmark]:
    """What was recorded of these methods, by machine as `Study.recordings` calls it. Raises as `recorded` does."""
    found = STUDY.recordings()
    return {name: result.only(methods) for name, result in found.items() if {*methods} <= {*result.methods}}
