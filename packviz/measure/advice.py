"""Defines `pv.advise`, which times each method of running an RNN on batches with your lengths, and recommends one."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any

import numpy as np
import torch
from torch import nn

from packviz.core import batches as buckets
from packviz.core import lengths as sources
from packviz.core.batches import BUCKETED, SHUFFLED, WINDOW, Load
from packviz.core.layout import IntArray, Layout, require_steps
from packviz.core.spec import Spec
from packviz.core.validation import at_least, kind_of, require_seconds
from packviz.draw import bars, palette, quantities, text
from packviz.draw.drawing import Drawing
from packviz.draw.sheet import HATCHED, Sheet, stack
from packviz.measure.comparison import METHODS, PACKED, PADDED, batch_of, every_method, look, passes
from packviz.measure.terminal import Bar
from packviz.measure.timing import FEWEST_ROUNDS, RATIOS, Ratio, Timing, measure

_RENAMED = {
    "gain": "speedup",
    "saved": "seconds_per_epoch",
    "in_buckets": "recommended",
    "seconds": "spent",
}
# "pv.run, packed" runs torch's kernel between packviz's pack and pad.
_COLOURS = {
    PADDED: "padded",
    PACKED: "packed",
    f"pv.run, {METHODS[0]}": "run",
    "pv.run, packed": "drop-in",
}

SAMPLE = 5
"""The largest number of batches that are measured to represent an epoch."""

SLOW = 3.0
"""A method that takes more than this many times as long as the fastest exact method is not measured further."""

# This many rounds give narrow intervals on a quiet machine. The sample is small enough for them to
# fit the budget.
_ENOUGH_ROUNDS = 11


class _Estimate(float):
    """A number: the median of the rounds. Its 95 % confidence interval runs from `low` to `high`."""

    low: float
    high: float

    def __new__(cls, median: float, low: float = -math.inf, high: float = math.inf) -> _Estimate:
        made = super().__new__(cls, median)
        made.low, made.high = low, high
        return made

    def __repr__(self) -> str:
        return f"{self:.3g} (95 % interval {quantities.between((self.low, self.high))})"


@dataclass(frozen=True, repr=False)
class Advice(Drawing):
    """A recommendation, and the measurement behind it.

    Attributes:
        spec: sizes of the RNN.
        training: True if the forward and backward passes were measured, False if only the forward
            pass was.
        lengths: `(N,)` lengths of the whole data set.
        batch_size: number of sequences per batch.
        window: number of batches that are sorted together to form buckets.
        loads: the numbers of cells in the batches of an epoch, for the orders `"shuffled"` and
            `"bucketed"`.
        sample: number of batches that were measured in each order.
        timing: the times of one pass over the measured batches. Times on shuffled batches are
            listed under the name of the method, and times on bucketed batches under
            `bucketed(method)`. If there was too little time for a round, `warmup` is 0, and the
            only round consists of one call of each method on one batch.
        once: the seconds for one batch, by method, for methods that were too slow to be measured
            further.
        failed: the reasons why methods were not measured at all, by method.
        spent: the seconds that it took to try each method on one batch (`"looking"`), and to run
            the rounds (`"measuring"`).
    """

    spec: Spec
    training: bool
    lengths: IntArray
    batch_size: int
    window: int
    loads: Mapping[str, Load]
    sample: int
    timing: Timing
    once: Mapping[str, float]
    failed: Mapping[str, str]
    spent: Mapping[str, float]

    def __getattr__(self, name: str) -> Any:
        """Raises an `AttributeError`. If the attribute was renamed, the message contains its new name."""
        renamed = f"advice.{name} is now advice.{_RENAMED[name]}" if name in _RENAMED else ""
        raise AttributeError(renamed or f"Advice has no attribute {name!r}")

    @property
    def device(self) -> str:
        """The device that the advice applies to, such as `"cpu"` or `"cuda:0"`. `timing.caption` gives its name."""
        return str(self.timing.provenance["device"])

    @property
    def batches(self) -> int:
        """The number of batches in an epoch."""
        return int(self.loads[SHUFFLED].real.size)

    @property
    def recommended(self) -> str:
        """The name in `timing` of the method to use.

        It is `best`, unless the best method on buckets is clearly faster.
        """
        ratio = self.bucketing
        return ratio.name if ratio and ratio.is_clear and ratio.value < 1 else self.best

    @property
    def best(self) -> str:
        """The method to use on shuffled batches: the simplest exact one that is not clearly slower
        than the fastest.

        If there is padding, and the rounds cannot tell torch's packing and the fastest method
        apart, this is torch's packing.
        """
        return self._best(SHUFFLED)

    @property
    def speedup(self) -> _Estimate:
        """The time of torch's packing on shuffled batches, divided by the time of `recommended`."""
        ratio = self.timing.ratio(PACKED, self.recommended)
        return _Estimate(ratio.value, *ratio.interval)

    @property
    def seconds_per_epoch(self) -> _Estimate:
        """The seconds that an epoch takes with the recommended method."""
        return self.epoch(self.recommended)

    @property
    def is_clear(self) -> bool:
        """True if the rounds show how each exact method compares with torch's packing.

        This holds if there are at least `FEWEST_ROUNDS` rounds, and the interval of each ratio
        either excludes 1 or is so narrow that both methods take about the same time.
        """
        ratios = [self.timing.ratio(name, PACKED) for name in self._exact(SHUFFLED)]
        return self.timing.rounds >= FEWEST_ROUNDS and all(
            ratio.is_clear or ratio.is_narrow for ratio in ratios
        )

    @property
    def bucketing(self) -> Ratio | None:
        """The ratio of the best time on buckets to that on shuffled batches, or `None` if buckets were not measured."""
        return self.timing.ratio(self._best(BUCKETED), self.best) if self._exact(BUCKETED) else None

    @property
    def code(self) -> str:
        """Code for the recommended method, and for the buckets if they are recommended."""
        chosen = _method(self.recommended)
        method = chosen.removeprefix("pv.run, ")
        code = _CODE.get(chosen) or _CODE["run"].format(
            "" if method == "auto" else f", method={method!r}"
        )
        code = code.replace("h_n", "(h_n, c_n)") if self.spec.mode == "LSTM" else code
        if self.recommended == chosen:
            return code
        loader = _CODE[BUCKETED].format(self.batch_size, self.window)
        return f"{loader}\n\n{code.removeprefix('import packviz as pv').lstrip()}"

    def is_exact(self, name: str) -> bool:
        """Returns whether a method gives the results of packing.

        torch's padded run gives them only if nothing is padded.
        """
        return _method(name) != PADDED or bool(self.lengths.min() == self.lengths.max())

    def epoch(self, name: str) -> _Estimate:
        """Returns the seconds per epoch of a method, given its name in `timing`."""
        return _Estimate(
            *(
                self._scale * each
                for each in (self.timing.median(name), *self.timing.interval(name))
            )
        )

    def to_text(self) -> str:
        """Returns the recommendation, the table behind it, and the conditions of the measurement."""
        return "\n".join([self.verdict, "", *self._table(), RATIOS, "", *self._notes()])

    def sheet(self, theme: str) -> Sheet:
        """Draws the recommendation, and below it a bar for each method."""
        rows = {}
        for name in self.timing.seconds:
            ratio = self.timing.ratio(name, PACKED)
            rows[name] = _bar(ratio, hatched=not self.is_exact(name), bold=name == self.recommended)
        title = f"times as long as {PACKED}: median of the rounds' ratios, and its 95 % interval"
        together = [f"bucketed: {self._together}."] if self._exact(BUCKETED) else []
        notes = [*together, f"Measured on {self.timing.caption}."]
        key = [] if all(map(self.is_exact, rows)) else [(HATCHED, "results differ from packing")]
        picture = bars.rows(title, {"": rows}, theme, key=key, line=1, notes=notes)
        return stack(self.verdict.replace("\n", " "), [picture], theme)

    @property
    def verdict(self) -> str:
        """The recommendation as text, with the time that the recommended method and bucketing save."""
        where = ", on buckets of similar lengths" if self.recommended != self.best else ""
        known = where or self.timing.ratio(self.best, PACKED).is_clear or self.is_clear
        use = "Use" if known else "Cannot tell which is fastest; take the simplest,"
        return "\n".join(
            [f"{use} {_method(self.recommended)}{where}.", *self._gain_lines(), self._bucketing()]
        )

    def _gain_lines(self) -> list[str]:
        """Returns lines that say how much time the best method saves on shuffled batches, or why this is unknown."""
        gain, rounds = self.timing.ratio(self.best, PACKED), self.timing.rounds
        busy = [f"The machine is busy: {self.timing.busy}."] if self.timing.busy else []
        again = [*busy, "Give a larger budget, or repeat this on a quiet machine."]
        if gain.is_clear:
            fast, slow = gain.interval
            share = 100 * (1 - slow), 100 * (1 - fast)
            it = f"On shuffled batches, {self.best}" if self.recommended != self.best else "It"
            percent = f"{quantities.known(100 * (1 - gain.value), share)} % of the time of {PACKED}"
            seconds = self.epoch(PACKED) - self.epoch(self.best)
            sure = f"(95 % interval {quantities.between(share)} %), about {seconds:.2g} s per epoch"
            return [f"{it} saves {percent} {sure}.", *busy]
        exact = self._exact(SHUFFLED)
        if exact == [PACKED]:
            return ["Nothing else was measured.", *(busy if self.is_clear else again)]
        if self.is_clear:
            return ["Nothing with the same results is clearly faster.", *busy]
        if rounds < FEWEST_ROUNDS:
            fastest = min(exact, key=self.timing.median)
            return [
                f"{text.count(rounds, 'round')} cannot tell the methods apart; the fastest was {fastest}.",
                *again,
            ]
        unclear = [
            ratio for name in exact if not (ratio := self.timing.ratio(name, PACKED)).is_clear
        ]
        ranges = "; ".join(
            f"{ratio.name} {ratio.between}" for ratio in unclear if ratio.name != PACKED
        )
        return [
            f"These cannot be told apart from {PACKED} (times as long, 95 % interval): {ranges}.",
            *again,
        ]

    def _bucketing(self) -> str:
        """Returns a sentence about how bucketing changes the padding and the time."""
        before, after = (self.loads[order] for order in (SHUFFLED, BUCKETED))
        if after.padding >= before.padding:
            return f"Bucketing by length ({self._together}) does not reduce the padding here."
        wasted = [text.percent(load.padding, int(load.cells.sum())) for load in (before, after)]
        sentence = f"Bucketing by length ({self._together}) reduces the padding from {wasted[0]} to {wasted[1]}"
        ratio = self.bucketing
        if ratio is None:
            return f"{sentence}; its effect on the time was not measured."
        if not ratio.is_clear:
            return f"{sentence}; the rounds cannot tell whether this changes the time."
        low, high = sorted(100 * abs(1 - end) for end in ratio.interval)
        share = quantities.known(100 * abs(1 - ratio.value), (low, high))
        more = f"{share} % {'less' if ratio.value < 1 else 'more'} time per epoch"
        return f"{sentence}, and takes {more}, with {_method(ratio.name)}."

    def _table(self) -> list[str]:
        rows = [["seconds per epoch", "median", "× packed", "95 % interval", "results of packing"]]
        for name in self.timing.seconds:
            ratio, epoch = self.timing.ratio(name, PACKED), self.epoch(name)
            same = "yes" if self.is_exact(name) else "no, it reads padding"
            rows.append(
                [
                    name,
                    quantities.known(epoch, (epoch.low, epoch.high)),
                    ratio.number,
                    ratio.between,
                    same,
                ]
            )
        for name, seconds in self.once.items():
            rows.append(
                [name, f"~ {float(f'{seconds * self.batches:.1g}'):g}", "", "(from one batch)"]
            )
        return text.table([*rows, *map(list, self.failed.items())], "<  >8  >8  >20  <")

    def _notes(self) -> list[str]:
        n = self.lengths
        what = "forward and backward" if self.training else "forward alone"
        looking, measuring = (f"{self.spent[name]:.2g} s" for name in ("looking", "measuring"))
        each = text.count(self.sample, "batch", "batches")
        return [
            f"{self.spec}, {what}. The times cover only the RNN, not the rest of a model.",
            f"{text.count(n.size, 'sequence')} of {n.min()} to {n.max()} time steps in"
            f" {text.count(self.batches, 'batch', 'batches')} of {self.batch_size}.",
            f"The time per epoch is that of {each}, times {self._scale:.3g}. Batches are ranked by cells and cut into"
            " equal groups, and the middle batch of each group is measured.",
            f"bucketed: {self._together}, as BucketSampler(lengths, {self.batch_size}, window={self.window}) does.",
            f"Time spent: {looking} to try each method on one batch, {measuring} for interleaved rounds.",
            f"Measured on {self.timing.caption}.",
        ]

    @property
    def _together(self) -> str:
        """A description of the window that forms the buckets."""
        together = "all" if self.window >= self.batches else f"{self.window} of"
        return f"window {self.window}, with {together} {text.count(self.batches, 'batch', 'batches')} sorted together"

    @property
    def _scale(self) -> float:
        return self.batches / self.sample

    def _exact(self, order: str) -> list[str]:
        """Returns the names of the exact methods in `timing` for one order of batches, simplest first."""
        names = [
            name for name in self.timing.seconds if (_method(name) != name) == (order == BUCKETED)
        ]
        return [name for name in names if self.is_exact(name)]

    def _best(self, order: str) -> str:
        exact = self._exact(order)
        fastest = min(exact, key=self.timing.median)
        return next(
            name
            for name in exact
            if name == fastest or not self.timing.ratio(name, fastest).is_clear
        )


def advise(
    rnn: nn.RNNBase,
    lengths: Any,
    *,
    batch_size: int = 64,
    window: int = WINDOW,
    budget: float = 20.0,
    seed: int = 0,
) -> Advice:
    """Times each method of running an RNN on batches with these lengths, and recommends one.

    `advise` compares torch's packing (pack, RNN, pad), every method of `pv.run`, and torch's padded
    run. It recommends the padded run only if nothing is padded, because otherwise the results
    differ. It measures the forward and backward passes if the RNN is in training mode, and the
    forward pass alone after `rnn.eval()`. It uses the RNN's own device and dtype, and does not
    change the RNN's gradients.

    An epoch is formed as in training: all sequences are shuffled and cut into batches. A second
    epoch uses buckets (see `pv.BucketSampler`). In each epoch, the batches are ranked by number of
    cells, including padding, and divided into up to five equal groups. The middle batch of each
    group is measured. Every call with the same arguments measures the same batches.

    Args:
        rnn: an `nn.RNN`, `nn.GRU` or `nn.LSTM`.
        lengths: `(N,)` lengths of the whole data set, each at least 1, as a list, an array, a
            tensor or a `Layout`; or the path of a file for `pv.lengths.read`.
        batch_size: number of sequences per batch.
        window: number of batches that are sorted together to form buckets.
        budget: seconds for the whole measurement. Every method is called on one batch, and once
            more if there is time. Methods that take over three times as long as the fastest exact
            one are not measured further, except for the two that use only torch. Interleaved rounds
            follow until the ratios to torch's packing are known to about 5 %, or the budget is
            spent. If there is too little time for a round, the calls on one batch count as a round.
            A call that has begun is always finished, and torch's packing is called at least once.
            Methods are left out if no time remains for them.
        seed: seed for the shuffling and the data.

    Returns:
        An `Advice` with the `.recommended` method, the `.code` to paste, the `.speedup`, the
        `.seconds_per_epoch`, and the `.device` to which it applies. Its text includes a table of
        all methods. If the rounds cannot tell the methods apart, or the machine is busy, the text
        says so.

    Raises:
        TypeError: `rnn` is not an RNN.
        ValueError: the lengths or the file are not valid, a number is out of range, or the RNN is
            on the meta device, where weights have no values.

    Examples:
        >>> import packviz as pv, torch
        >>> advice = pv.advise(torch.nn.GRU(2, 3), [5, 3, 2] * 8, batch_size=8, budget=0.1)
        >>> advice.recommended in advice.to_text()
        True
    """
    began, device, n = time.monotonic(), _device_of(rnn), _lengths(lengths)
    budget = require_seconds("budget", budget)
    at_least("window", window)
    orders = {
        order: buckets.batches(n, batch_size, order, window=window, seed=seed)
        for order in (SHUFFLED, BUCKETED)
    }
    loads = {order: Load.of(n, groups) for order, groups in orders.items()}
    methods, end = every_method(), began + budget
    gpus = [] if device.type == "cpu" else [device]
    with (
        closing(Bar(sys.stderr)) as bar,
        torch.random.fork_rng(gpus, device_type=device.type),
    ):  # for dropout
        first = batch_of(rnn, n[_middle(orders[SHUFFLED], loads[SHUFFLED], 1)[0]], seed)
        looks, failed = look(rnn, methods, first, lambda: end - time.monotonic())
        looked = time.monotonic()
        known = {name: looks[name] for name in methods if name in looks}
        buckets_help = loads[BUCKETED].padding < loads[SHUFFLED].padding
        kept, in_buckets, sample, rounds = _effort(
            end - looked, known, len(orders[SHUFFLED]), buckets_help
        )
        both: dict[str, Any] = {}
        for order in (SHUFFLED, BUCKETED)[: 1 + in_buckets]:
            some = [
                batch_of(rnn, n[group], seed)
                for group in _middle(orders[order], loads[order], sample)
            ]
            for name in kept:
                both[name if order == SHUFFLED else bucketed(name)] = passes(
                    rnn, methods[name], some
                )
        timing = measure(
            {name: call for name, (call, _) in both.items()},
            rounds=max(1, rounds),
            warmup=1,
            device=device,
            before={name: reorder for name, (_, reorder) in both.items()},
            progress=lambda done, of: bar.show(done / of, f"measuring, round {done} of {of}"),
            stop=lambda: rounds < 1 or time.monotonic() >= end,
            parameters={
                "rnn": str(rnn),
                "sequences": n.size,
                "batch_size": batch_size,
                "seed": seed,
            },
            until_narrow=True,
            to=PACKED,
        )
    spent = {"looking": looked - began, "measuring": time.monotonic() - looked}
    once = {name: took for name, took in looks.items() if name not in kept}
    if not timing.rounds:  # the calls on one batch count as a round
        timing, sample = (
            replace(timing, seconds={name: (looks[name],) for name in kept}, warmup=0),
            1,
        )
    return Advice(
        Spec.of(rnn),
        rnn.training,
        n,
        batch_size,
        window,
        loads,
        sample,
        timing,
        once,
        failed,
        spent,
    )


def _effort(
    left: float, looks: Mapping[str, float], batches: int, buckets_help: bool
) -> tuple[list[str], bool, int, int]:
    """Chooses what to measure in the remaining time. `looks` contains the seconds that each method
    took for one batch.

    Returns the methods to measure, whether to measure them on buckets as well, the number of
    batches in each order, and the largest number of rounds after one warm-up round. The number of
    rounds is below 1 if there is no time for a round.
    """
    fastest = min(took for name, took in looks.items() if name != PADDED)
    kept = [
        name for name, took in looks.items() if name in (PADDED, PACKED) or took <= SLOW * fastest
    ]
    each = sum(looks[name] for name in kept)
    share = left / (_ENOUGH_ROUNDS + 1) / each  # the number of orders times the number of batches
    in_buckets = share >= 2 and buckets_help
    sample = min(SAMPLE, batches, max(1, int(share / (1 + in_buckets))))
    return kept, in_buckets, sample, int(left / ((1 + in_buckets) * each * sample)) - 1


def _device_of(rnn: Any) -> torch.device:
    """Returns the device of an RNN, and rejects an RNN that cannot be measured."""
    if not isinstance(rnn, torch.nn.RNNBase):
        raise TypeError(
            f"rnn is {kind_of(rnn)}; give an nn.RNN, nn.GRU or nn.LSTM, such as model.rnn"
        )
    device = next(rnn.parameters()).device
    if device.type == "meta":
        raise ValueError(
            "rnn is on the meta device, where nothing can be measured; give it weights with to_empty()"
        )
    return device


def bucketed(method: str) -> str:
    """Returns the name under which `timing` lists a method's times on bucketed batches."""
    return f"{method}, bucketed"


def _bar(ratio: Ratio, hatched: bool, bold: bool) -> bars.Bar:
    """Returns a bar for a ratio, in the colour of its method and with its interval if there is one."""
    method = _method(ratio.name)
    fill = palette.METHODS.get(_COLOURS.get(method, method.removeprefix("pv.run, ")), bars.SOLID)
    low, high = ratio.interval if ratio.rounds >= FEWEST_ROUNDS else (ratio.value, ratio.value)
    return bars.Bar([(ratio.value, HATCHED if hatched else fill)], ratio.number, (low, high), bold)


def _method(name: str) -> str:
    return name.removesuffix(", bucketed")


def _lengths(values: Any) -> IntArray:
    if values is None:
        raise ValueError("lengths is None; give a list, an array, a tensor, a Layout or a file")
    if isinstance(values, (str, PathLike)):
        values = sources.read(str(values))
    return require_steps(Layout(values)).lengths


def _middle(groups: Sequence[IntArray], load: Load, sample: int) -> list[IntArray]:
    """Ranks batches by number of cells, cuts them into equal groups, and returns the middle batch of each group."""
    ranked = np.argsort(load.cells, kind="stable")
    return [groups[stretch[stretch.size // 2]] for stretch in np.array_split(ranked, sample)]


_CODE = {
    PADDED: "output, h_n = rnn(x)  # every length is the same",
    PACKED: """\
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

packed = pack_padded_sequence(x, lengths, batch_first=rnn.batch_first, enforce_sorted=False)
output, h_n = rnn(packed)
output, lengths = pad_packed_sequence(output, batch_first=rnn.batch_first)""",
    "run": """\
import packviz as pv

output, h_n = pv.run(rnn, x, lengths{})""",
    BUCKETED: """\
import packviz as pv
from torch.utils.data import DataLoader

sampler = pv.BucketSampler(all_lengths, {}, window={})  # all_lengths: of the whole data set
loader = DataLoader(dataset, batch_sampler=sampler, collate_fn=collate)  # dataset, collate: yours""",
}
