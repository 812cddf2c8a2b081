"""Repeats a benchmark from a forum question, to measure how the time of packing grows with the
sequence length.

At every size and in every setup, each method is timed in two passes: *forward* (the network alone,
without a graph for autograd), and *training* (forward, loss, backward). In each pass the methods
take turns.

This table compares the original with this benchmark:

| the original | here |
|---|---|
| takes one mean over a block of 20 calls | takes the median of interleaved rounds, with quartiles |
| times one curve after the other, so a machine that warms up or throttles distorts them | times all
methods in turn, in a new random order each round, and takes ratios within rounds |
| warms up with the forward pass only, so the first backward passes are timed cold | warms up each
pass that it times |
| includes the loss and the clearing of gradients in the time, even for the forward pass | keeps no
    gradients, and times the network alone in the forward pass |
| sets gradients to zero, so that every backward pass adds to existing gradients | never adds to
existing gradients |
| uses the token 1 everywhere, so a sequence in the wrong place would not be noticed | uses random
tokens, and compares the logits and gradients of all methods at every point (on a GPU without TF32)
|
| repeats the mask to the size of the output | broadcasts the mask |
| runs on CUDA only | uses CUDA events on a GPU, and on a CPU a monotonic clock and an allocator
that keeps its pages |
| records no seed, spread or memory | records all three, as well as the machine |

As in the original, the time does not include sorting the batch. Sizes are still measured in
ascending order, so compare methods at one size rather than sizes with each other.

A file made up for a test has `"fake"` in its provenance, and every picture and text made from it
says so. You can read and draw results without torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from packviz.core import lengths
from packviz.core.layout import IntArray
from packviz.core.validation import at_least, one_of
from packviz.draw import palette
from packviz.draw.curves import Curve, Plot, Sweep
from packviz.draw.drawing import Drawing
from packviz.draw.quantities import plain
from packviz.draw.sheet import Point, Sheet
from packviz.draw.text import count, table
from packviz.measure.study import PASSES, Comparison, MeasureOptions, Results, Study, by_pass
from packviz.measure.timing import RATIOS, Ratio, Timing

SETUPS = {"A": "no padding", "B": "triangle", "evenly": "evenly spread"}
"""The two setups of lengths from the forum question, and one more."""

METHODS = ("padded", "packed", "drop-in", "run")
"""The names in `network.METHODS`, repeated here because importing that module needs torch."""

FULL = {"batch_size": 512, "shortest": 32, "longest": 512, "step": 32, "rounds": 11}
"""The sizes from the forum question, and the number of rounds."""

QUICK = {"batch_size": 64, "shortest": 32, "longest": 128, "step": 32, "rounds": 6}
"""Small sizes, which take seconds on a CPU, and the number of rounds."""

NETWORK = "Embedding(10, 16) → LSTM(16, 32) → Linear(32, 2), batch size {}, float32"

QUANTITIES = {
    "ratio": ("times as long as {}", "×"),
    "time": ("time", "ms"),
    "memory": ("peak memory", "MB"),
}
"""The quantities that can be drawn, each with its label and unit. Ratios are relative to the first method."""


def setup_lengths(setup: str, batch_size: int, steps: int) -> IntArray:
    """Returns `(B,)` lengths, longest first: all equal to `steps` (A), repeated countdowns to 1
    (B), or evenly spread.

    Raises:
        ValueError: there is no such setup.
    """
    make = {"A": lengths.equal, "B": lengths.triangle, "evenly": lengths.evenly}[
        one_of("setup", setup, SETUPS)
    ]
    return np.sort(make(batch_size, steps))[::-1]


@dataclass(frozen=True)
class BenchmarkPoint:
    """One setup at one size.

    Attributes:
        setup: the setup of the lengths, one of `SETUPS`.
        steps: number of time steps of the padded batch.
    """

    setup: str
    steps: int

    def __str__(self) -> str:
        return f"setup {self.setup}, {self.steps} time steps"


def sizes(shortest: int, longest: int, step: int) -> range:
    """Returns the numbers of time steps to measure, from the shortest to the longest.

    Raises:
        ValueError: a number is below 1, or `shortest` is greater than `longest`.
    """
    for name, value in (("shortest", shortest), ("longest", longest), ("step", step)):
        at_least(name, value)
    if shortest > longest:
        raise ValueError(
            f"shortest is {shortest} and longest {longest}; give a shortest of at most the longest"
        )
    return range(shortest, longest + 1, step)


def grid(setups: Sequence[str] = ("A", "B"), steps: Sequence[int] = ()) -> list[BenchmarkPoint]:
    """Returns the points for every setup at every size, smallest sizes first. The default sizes are those in `FULL`."""
    every = sorted({*(steps or sizes(FULL["shortest"], FULL["longest"], FULL["step"]))})
    return [BenchmarkPoint(setup, size) for size in every for setup in dict.fromkeys(setups)]


class Benchmark(Drawing, Results[BenchmarkPoint, Mapping[str, Timing]]):
    """The results of one machine with one set of parameters: the `Timing` of all methods, by point and pass."""

    @property
    def methods(self) -> list[str]:
        """The methods that were measured. The first is the reference for the others."""
        return [*self.provenance["parameters"]["methods"]]

    @property
    def network(self) -> str:
        """The network and the batch size."""
        return NETWORK.format(self.provenance["parameters"]["batch_size"])

    @property
    def setups(self) -> list[str]:
        """The setups that were measured, in the order of `SETUPS`."""
        return [setup for setup in SETUPS if any(point.setup == setup for point in self.points)]

    def steps(self, setup: str) -> list[int]:
        """Returns the sizes of a setup in ascending order."""
        return sorted(point.steps for point in self.points if point.setup == setup)

    def at(self, setup: str, steps: int) -> Mapping[str, Timing]:
        """Returns the timing of each pass at one point.

        Raises:
            ValueError: the point was not measured.
        """
        for point, timings in self.values.items():
            if (point.setup, point.steps) == (setup, steps):
                return timings
        there = (
            "; ".join(f"{s}: {', '.join(map(str, self.steps(s)))}" for s in self.setups) or "none"
        )
        raise ValueError(
            f"setup {setup!r} at {steps} time steps was not measured; measured sizes: {there}"
        )

    def ratio(self, name: str, to: str, setup: str, steps: int, which: str = "training") -> Ratio:  # type: ignore[override]
        """Returns the time of `name` as a multiple of the time of `to`.

        Raises:
            ValueError: one of the two methods was not measured at this point.
        """
        return self.at(setup, steps)[which].ratio(name, to)

    def only(self, methods: Sequence[str]) -> Benchmark:
        """Returns the results of these methods and of the first method, which is the reference."""
        first, *others = self.methods
        kept = [first, *(method for method in others if method in methods)]
        parameters = {**self.provenance["parameters"], "methods": kept}
        return Benchmark({**self.provenance, "parameters": parameters}, self.values)

    def to_text(
        self, what: Sequence[str] = ("time", "ratio", "memory"), setups: Sequence[str] = ()
    ) -> str:
        """Returns a table of some of `QUANTITIES` for each pass and setup.

        By default, it covers all quantities and setups.
        """
        drawn = [setup for setup in self.setups if setup in (setups or SETUPS)]
        return "\n".join([f"{self.network}.", *self._tables(what, drawn), *self._remarks()])

    def sheet(self, theme: str) -> Sheet:
        """Draws a row of plots for each quantity, with a plot for each setup."""
        return self.chart().sheet(theme)

    def chart(self, *what: str) -> Sweep:
        """Returns, for each setup, plots of these quantities (by default all) against the number of
        time steps.

        Raises:
            ValueError: there is no such quantity.
        """
        return beside(
            {"": self}, what=[one_of("what", one, QUANTITIES) for one in what] or [*QUANTITIES]
        )

    def finding(self, quantity: str, setup: str = "") -> str:
        """Returns a sentence about a quantity in training, at the largest size of a setup (by default B)."""
        setup = next(one for one in (setup, "B", self.setups[-1]) if one in self.setups)
        (first, *others), steps = self.methods, self.steps(setup)[-1]
        timing, verb = (
            self.at(setup, steps)["training"],
            "needs" if quantity == "memory" else "takes",
        )
        found = {
            m: some[1]
            for m in self.methods
            if (some := _spread(timing, quantity, m, first)) and some[1]
        }
        texts, unit = {m: plain(value) for m, value in found.items()}, "ms"
        if quantity != "time":
            texts = {
                m: f"{found[m] / found[first]:#.2g}".rstrip(".")
                for m in others
                if {m, first} <= found.keys()
            }
            unit = f"times {'as long as' if quantity == 'ratio' else 'the memory of'} {first}"
        name, _, numbers = ", ".join(map(" ".join, texts.items())).partition(" ")
        title = f"{name.capitalize()} {verb} {numbers} {unit}" if numbers else "No number"
        return f"{title} (training, setup {setup}, {steps} steps)"

    def _tables(self, what: Sequence[str], setups: Sequence[str]) -> Iterator[str]:
        for setup, (which, label) in product(setups, PASSES.items()):
            yield f"\nSetup {setup} ({SETUPS[setup]}), {label}:"
            columns = {"time": "{} ms", "ratio": f"{{}}/{self.methods[0]}", "memory": "{} MB"}
            every = [(one, method) for one in what for method in self.methods[one == "ratio" :]]
            rows = [["steps", *(columns[one].format(method) for one, method in every)]]
            for steps in self.steps(setup):
                timing = self.at(setup, steps)[which]
                rows.append(
                    [f"{steps}", *(self._cell(timing, one, method) for one, method in every)]
                )
            yield from table(rows, ">7  .9")

    def _cell(self, timing: Timing, quantity: str, method: str) -> str:
        spread = _spread(timing, quantity, method, self.methods[0])
        if not spread:
            return "–"
        if quantity == "time":
            return plain(spread[1])
        doubt = (
            ""
            if quantity == "memory"
            else " "
            if timing.ratio(method, self.methods[0]).is_clear
            else "?"
        )
        return f"{spread[1]:.3g}{doubt}"

    def _busy(self, point: BenchmarkPoint) -> str:
        """Returns the reason why the machine looked busy at a point, or an empty string."""
        timings = [timing for timing in self.values[point].values() if timing.rounds]
        whole = (
            replace(timing, provenance={**self.provenance, **timing.provenance})
            for timing in timings
        )
        return next((timing.busy for timing in whole if timing.busy), "")

    def _remarks(self) -> Iterator[str]:
        yield "\nms: median. MB: peak memory. ?: not told apart. –: not measured."
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
    """Returns plots of several results: a row for each quantity and a column for each setup, with
    logarithmic axes.

    A result whose network or batch size differs from the first result's is drawn only in the plots
    of ratios.

    Args:
        results: the results by name. The first has solid lines, and the others have dashed lines.
            `None` marks a result that is still to come.
        setups: the setups to draw. Defaults to all that were measured.
        planned: sizes to mark on the axes.
        notes: lines of text to place below the plots.
        what: the quantities to draw, some of `QUANTITIES`.
        title: the title. Defaults to the finding of the first result.
    """
    there = {name: result for name, result in results.items() if result}
    drawn = setups or [
        setup for setup in SETUPS if any(setup in result.setups for result in there.values())
    ]
    rows = [[_plot(results, quantity, setup, planned) for setup in drawn] for quantity in what]
    name, first = next(iter(there.items()), ("", None))
    only = setups[0] if len(setups) == 1 else ""
    if not title:
        title = (
            first.finding(what[0], only)
            if first and first.points
            else "The network from the forum question"
        )
    sources, below = _sources(results)
    below = [*notes, *below]
    texts = {
        name: one.to_text(what, setups) if len(what) == 1 else f"{one}"
        for name, one in there.items()
    }
    text = "\n\n".join([*notes, *(f"{name}\n{words}".lstrip() for name, words in texts.items())])
    whiskers = "" if [*what] == ["memory"] else " Whiskers: quartiles."
    key = f"Filled marks: training. Hollow marks: forward.{whiskers}"
    return Sweep(
        f"{title} ({name})" if len(there) > 1 else title, rows, sources, [*below, key], text
    )


def by_machine(
    found: Mapping[str, Benchmark], quantity: str, setup: str = "", title: str = ""
) -> Sweep:
    """Returns plots of a quantity that show the results of all machines on the same axes.

    Args:
        found: the results by machine name.
        quantity: the quantity to draw, one of `QUANTITIES`.
        setup: the only setup to draw. Defaults to all that were measured.
        title: the title. Defaults to the finding of the first machine.

    Raises:
        ValueError: there is no such quantity.
    """
    one_of("quantity", quantity, QUANTITIES)
    found = {name if len(found) > 1 else "": result for name, result in found.items()}
    sweep = beside(
        found,
        [setup] if setup else [],
        what=[quantity],
        title=title if found else "Nothing was recorded",
    )
    return replace(sweep, text=f"{sweep.title}\n\n{sweep.text}")


def _comparable(results: Mapping[str, Benchmark | None], quantity: str) -> dict[str, Benchmark]:
    """Returns the results to draw: all for ratios, and otherwise all with the first one's network and batch size."""
    there = {name: result for name, result in results.items() if result}
    network = next((result.network for result in there.values()), "")
    return {
        name: found
        for name, found in there.items()
        if quantity == "ratio" or found.network == network
    }


def _plot(
    results: Mapping[str, Benchmark | None], quantity: str, setup: str, planned: Sequence[int]
) -> Plot:
    """Returns the plot of a quantity in a setup, with a curve for each result, method and pass."""
    drawn = _comparable(results, quantity)
    first = next(iter(drawn.values()), None)
    curves = []
    for source, name in enumerate(results):
        if name in drawn:
            methods = drawn[name].methods[quantity == "ratio" :]
            for method, which in product(methods, PASSES):
                label = which if quantity == "ratio" and len(methods) == 1 else f"{method}, {which}"
                curves.append(_curve(drawn[name], quantity, method, source, setup, which, label))
    shown = [curve for curve in reversed(curves) if curve]
    label, unit = QUANTITIES[quantity]
    title = f"{setup} ({SETUPS[setup]}): {label.format(first.methods[0] if first else '…')}"
    return Plot(title, shown, planned, _guides(quantity, shown, planned, first), unit, log=True)


def _sources(results: Mapping[str, Benchmark | None]) -> tuple[list[str], list[str]]:
    """Returns a line about the source of each named result, and the notes to place below the plots."""
    alike = _comparable(results, "time")
    sources, below = [], []
    for name, result in results.items():
        prefix = f"{name}: " if name else ""
        if result is None:
            sources.append(f"{prefix}nothing measured yet")
            continue
        below.append(
            f"{prefix}{result.network}{'' if name in alike else '; only its ratios are drawn'}."
        )
        if prefix:
            sources.append(prefix + result.caption)
        else:
            below.append(f"Measured on {result.caption}.")
        below += [f"{prefix}✗ {line}" for line in result.left_out]
    return sources, below


def _guides(
    quantity: str, curves: Sequence[Curve], planned: Sequence[int], first: Benchmark | None
) -> dict[str, tuple[Point, Point]]:
    """Returns guide lines by name: a line at 1 for ratios, and lines of linear and quadratic growth for times."""
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


def _spread(
    timing: Timing, quantity: str, method: str, first: str
) -> tuple[float, float, float] | None:
    """Returns the three quartiles of a quantity, or `None` if it was not measured.

    Memory is measured once, so its quartiles are equal.
    """
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
    return Curve(
        label, _number_of(method, result), source, list(values), middles, lows, highs, hollow=hollow
    )


def _number_of(method: str, result: Benchmark) -> int:
    """Returns the number of a method's colour, which is the same in every picture."""
    return [*dict.fromkeys([*palette.METHODS, *result.methods])].index(method)


def _methods(point: BenchmarkPoint, which: str, how: MeasureOptions) -> Comparison:
    from packviz.studies import network

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
    """Returns the recorded results that include all of these methods, by machine name.

    The errors are those of `recorded`.
    """
    found = STUDY.recordings()
    return {
        name: result.only(methods)
        for name, result in found.items()
        if {*methods} <= {*result.methods}
    }
