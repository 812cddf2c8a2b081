"""pv.advise: pad, pack, or something better? Measured on this device, with your RNN and your lengths."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from os import PathLike
from typing import Any

import numpy as np
import torch
from torch import nn

from packviz.bench.contest import METHODS, OWN_BOTH, OWN_PAD, PACKED, PADDED, Pass, batch_of, contestants, look, shares
from packviz.bench.terminal import Bar
from packviz.bench.timing import FEWEST_ROUNDS, RATIOS, Ratio, Timing, measure, median_interval
from packviz.core import batches as buckets
from packviz.core import lengths as sources
from packviz.core.batches import BUCKETED, SHUFFLED, WINDOW, Load
from packviz.core.given import at_least
from packviz.core.layout import IntArray, Layout
from packviz.core.spec import Spec
from packviz.draw import bars, palette, text
from packviz.draw.drawn import Drawn
from packviz.draw.sheet import Sheet, stack

_PARTS = {
    "pad": "pad_packed_sequence",
    "pack": "pack_padded_sequence",
    "RNN": "the RNN on packed data",
    "rest": "what is left: pv.run",
}
_EXCHANGED = (PACKED, "its pad exchanged", "its pack, too", "its RNN, too: pv.run")
_AUTO = f"pv.run, {METHODS[0]}"
_COLOURS = {
    PADDED: palette.METHODS["padded"],
    PACKED: palette.METHODS["packed"],
    OWN_PAD: palette.METHODS["drop-in"],
    OWN_BOTH: palette.METHODS["drop-in"],
    _AUTO: palette.METHODS["run"],
    "pv.run, padded": palette.METHODS["padded"],
    "pv.run, packed": palette.METHODS["drop-in"],
    "pv.run, split": palette.METHODS["split"],
    "pv.run, staircase": palette.METHODS["staircase"],
}

SAMPLE = 5
"""Batches that stand for an epoch, at most."""

SLOW, SLOW_IF_TIGHT = 3.0, 2.0
"""A method that takes more times as long as the fastest (padding aside) is only looked at; the second where time is
short."""

_ENOUGH_ROUNDS = 11
"""What the number of batches is chosen for: on a quiet machine so many rounds make the intervals narrow."""


@dataclass(frozen=True, repr=False)
class Advice(Drawn):
    """What to do, and the measurement behind it.

    Attributes:
        rnn: the RNN in words.
        spec: its sizes.
        training: whether forward and backward were measured; else forward alone.
        lengths: `(N,)` of the whole data set.
        batch_size: sequences per batch.
        window: batches that are sorted together, in buckets.
        loads: under `"shuffled"` and `"bucketed"` the cells of all batches of an epoch.
        sample: how many batches were measured of each.
        timing: the time of one pass over these batches, by method, or `bucketed(method)`. Where its `warmup` is 0 there
            was no time for one, and its first round is the look: a call of each on one batch.
        once: seconds that one batch took with each method that was only looked at, because it is slow.
        failed: why a method was not measured at all.
        seconds: how the time was spent: `"looking"` and `"measuring"`.
    """

    rnn: str
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
    seconds: Mapping[str, float]

    @property
    def batches(self) -> int:
        """Batches of an epoch."""
        return int(self.loads[SHUFFLED].real.size)

    @property
    def best(self) -> str:
        """The method to use: the fastest with the right results, or a simpler one that is not told apart from it.

        Where the rounds cannot tell any method apart from torch's packing (see `is_clear`), that is torch's packing.
        """
        return self._best(SHUFFLED)

    @property
    def gain(self) -> Ratio:
        """The best method against torch's packing: `value` under 1 is a gain."""
        return self.timing.ratio(self.best, PACKED)

    @property
    def saved(self) -> tuple[float, float, float]:
        """Seconds that the best method saves per epoch, against torch's packing: median and confidence interval."""
        rounds = zip(self.timing.seconds[PACKED], self.timing.seconds[self.best], strict=True)
        differences = [self._scale * (packed - best) for packed, best in rounds]
        return float(np.median(differences)), *median_interval(differences)

    @property
    def is_clear(self) -> bool:
        """Whether the rounds tell, of each method with the right results, how it compares with torch's packing.

        They do if the interval of the ratio leaves out 1, or if it is narrow: both then take about the same time.
        """
        ratios = [self.timing.ratio(name, PACKED) for name in self._measured(SHUFFLED) if self.is_exact(name)]
        return self.timing.rounds >= FEWEST_ROUNDS and all(ratio.is_clear or ratio.is_narrow for ratio in ratios)

    @property
    def bucketing(self) -> Ratio | None:
        """The best method on buckets against the best one on shuffled batches; none if that was not measured."""
        if self._measured(BUCKETED):
            return self.timing.ratio(bucketed(self._best(BUCKETED)), self.best)
        return None

    @property
    def in_buckets(self) -> bool:
        """Whether batches of similar lengths are part of the advice: they clearly take less time."""
        ratio = self.bucketing
        return ratio is not None and ratio.is_clear and ratio.value < 1

    @property
    def recommended(self) -> str:
        """The method to use on the batches that are recommended: `best`, or the best one on buckets."""
        return self._best(BUCKETED) if self.in_buckets else self.best

    @property
    def code(self) -> str:
        """What to write for what is recommended: buckets, if they are, and the method."""
        method = self.recommended.removeprefix("pv.run, ")
        code = _CODE.get(self.recommended) or _CODE["run"].format("" if method == "auto" else f", method={method!r}")
        code = code.replace("h_n", "(h_n, c_n)") if self.spec.mode == "LSTM" else code
        if not self.in_buckets:
            return code
        return f"{self.bucket_code}\n\n{code.removeprefix('import packviz as pv').lstrip()}"

    @property
    def bucket_code(self) -> str:
        """What to write for batches of similar lengths."""
        return _CODE[BUCKETED].format(self.batch_size, self.window)

    @property
    def parts(self) -> Mapping[str, Ratio]:
        """What is left of the time of torch's packing as one part after the other is exchanged for packviz's.

        First `pad_packed_sequence`, then `pack_padded_sequence`, then the RNN in between; each with its way back, if
        there is one. Empty if that was not measured.
        """
        names = (PACKED, OWN_PAD, OWN_BOTH, _AUTO)
        if not all(name in self.timing.seconds for name in names):
            return {}
        return {name: self.timing.ratio(name, PACKED) for name in names}

    @property
    def shares(self) -> Mapping[str, float]:
        """The share of torch's packed time that each exchange saves, and the rest: in sum 1. Empty as `parts` is."""
        _, *left = [ratio.value for ratio in self.parts.values()] or [1.0]
        return shares(dict(zip(("pad", "pack", "RNN"), left, strict=True))) if left else {}

    def is_exact(self, method: str) -> bool:
        """Whether a method gives the results of packing on these lengths; torch's padding only where none is padded."""
        return method != PADDED or bool(self.lengths.min() == self.lengths.max())

    def epoch(self, name: str) -> tuple[float, float, float]:
        """Seconds per epoch: median and confidence interval. `name` is one of `timing`."""
        low, high = self.timing.interval(name)
        return self._scale * self.timing.median(name), self._scale * low, self._scale * high

    def to_text(self) -> str:
        """The recommendation, the table behind it, and how it was measured."""
        return "\n".join([self.verdict(), "", *self._table(), RATIOS, *self._said_shares(), "", *self._notes()])

    def sheet(self, theme: str) -> Sheet:
        """The recommendation above a bar per method; and what torch's packed run spends its time on."""
        pictures = [self._bars(theme), *([self._exchanged(theme)] if self.parts else [])]
        return stack(self.verdict().replace("\n", " "), pictures, theme)

    def verdict(self) -> str:
        """What to do, what it gains, and what bucketing would add."""
        where = ", on buckets of similar lengths" if self.in_buckets else ""
        known = self.in_buckets or self.gain.is_clear or self.is_clear
        use = "Use" if known else "Cannot tell which is fastest; take the simplest,"
        lines = [f"{use} {self.recommended}{where}.", *self._said_gain(), *self._said_bucketing()]
        return "\n".join(lines)

    def _said_gain(self) -> list[str]:
        exact = [name for name in self._measured(SHUFFLED) if self.is_exact(name)]
        fastest = min(exact, key=self.timing.median)
        busy = [f"The machine is busy: {self.timing.busy}."] if self.timing.busy else []
        again = [*busy, "Give a larger budget, or repeat it on a quiet machine."]
        if exact == [PACKED]:
            return ["Nothing else was measured.", *(busy if self.is_clear else again)]
        if self.timing.rounds < FEWEST_ROUNDS:
            rounds = text.count(self.timing.rounds, "round")
            return [f"{rounds} cannot tell the methods apart; the fastest was {fastest}.", *again]
        if self.is_clear and not self.gain.is_clear:
            return ["Nothing with the same results is clearly faster.", *busy]
        if not self.gain.is_clear:
            unclear = [self.timing.ratio(name, PACKED) for name in exact if name != PACKED]
            ranges = [f"{ratio.name} {ratio.between}" for ratio in unclear if not ratio.is_clear]
            return [f"Not told apart from {PACKED} (times as long, 95 % interval): {'; '.join(ranges)}.", *again]
        slow, fast = self.gain.interval[1], self.gain.interval[0]
        share = 100 * (1 - slow), 100 * (1 - fast)
        percent = f"{text.known(100 * (1 - self.gain.value), share)} %"
        middle, low, high = self.saved
        it = f"On shuffled batches {self.best}" if self.in_buckets else "It"
        said = f"{it} saves {percent} of the time of {PACKED} (95 % interval {text.between(share)} %)"
        doubt = "" if fastest == self.best else f" {fastest} has a lower median, but is not told apart from it."
        return [f"{said}, some {text.known(middle, (low, high))} s per epoch.{doubt}", *busy]

    def _said_bucketing(self) -> list[str]:
        before, after = (self.loads[order] for order in (SHUFFLED, BUCKETED))
        if after.padding >= before.padding:
            return [f"Bucketing by length ({self._together}) leaves no less padding here."]
        wasted = [text.percent(load.padding, int(load.cells.sum())) for load in (before, after)]
        said = f"Bucketing by length ({self._together}) leaves {wasted[1]} padding of {wasted[0]}"
        ratio = self.bucketing
        if ratio is None:
            return [f"{said}; its time was not measured."]
        if not ratio.is_clear:
            return [f"{said}; in time it is not told apart from shuffled batches."]
        ends = sorted(100 * abs(1 - end) for end in ratio.interval)
        share = text.known(100 * abs(1 - ratio.value), (ends[0], ends[1]))
        more = f"{share} % {'less' if ratio.value < 1 else 'more'} time per epoch"
        return [f"{said}, and takes {more}, with {self._best(BUCKETED)}."]

    def _table(self) -> list[str]:
        rows = [["seconds per epoch", "median", "× packed", "95 % interval", "results of packing"]]
        for name in self._compared:
            middle, low, high = self.epoch(name)
            ratio = self.timing.ratio(name, PACKED)
            same = "yes" if self.is_exact(_method(name)) else "no: padding is read"
            rows.append([name, text.known(middle, (low, high)), ratio.number, ratio.between, same])
        for name, seconds in self.once.items():
            if name in (OWN_PAD, OWN_BOTH):
                continue
            rows.append([name, f"~ {float(f'{seconds * self.batches:.1g}'):g}", "", "(a look at one batch)"])
        rows += [[name, why] for name, why in self.failed.items() if name not in (OWN_PAD, OWN_BOTH)]
        return text.table(rows, "<  >8  >8  >20  <")

    def _said_shares(self) -> list[str]:
        """What torch's packed run spends its time on."""
        if not self.shares:
            there = OWN_PAD in {**self.once, **self.failed}
            return [f"What {PACKED} spends its time on was not measured: give a larger budget."] if there else []
        rows = []
        for name, (part, share) in zip((*[*self.parts][1:], ""), self.shares.items(), strict=True):
            told = not name or self._tells(name)
            rows.append([f"  {_PARTS[part]}", text.whole_percent(share) if told else "not told apart from 0 %"])
        title = (
            f"What {PACKED} spends its time on: what is saved when one part after the other is exchanged for packviz's"
        )
        return ["", title, *text.table(rows, "<  <")]

    def _tells(self, name: str) -> bool:
        """Whether an exchange clearly takes less time than the one before it."""
        names = [*self.parts]
        ratio = self.timing.ratio(name, names[names.index(name) - 1])
        return ratio.is_clear and ratio.value < 1

    def _notes(self) -> list[str]:
        n = self.lengths
        what = "forward and backward" if self.training else "forward alone"
        looking, measuring = (f"{self.seconds[name]:.2g} s" for name in ("looking", "measuring"))
        each = text.count(self.sample, "batch", "batches")
        return [
            f"{self.rnn}, {what}. The RNN alone, not the rest of a model.",
            f"{text.count(n.size, 'sequence')} of {n.min()} to {n.max()} time steps in"
            f" {text.count(self.batches, 'batch', 'batches')} of {self.batch_size}.",
            f"An epoch is {each}, times {self._scale:.3g}: batches ranked by their cells, cut into equal groups, and"
            " the middle one of each taken.",
            f"bucketed: {self._together}, as BucketSampler(lengths, {self.batch_size}, window={self.window}) does.",
            f"Time spent: {looking} for a look at each method, {measuring} in interleaved rounds"
            f"{'' if self.timing.warmup else ', the look being the first'}.",
            f"Measured on {self.timing.caption}.",
        ]

    @property
    def _together(self) -> str:
        """The window of the buckets, in words."""
        together = "all" if self.window >= self.batches else f"{self.window}"
        return f"window {self.window}: {together} of {text.count(self.batches, 'batch', 'batches')} sorted together"

    @property
    def _compared(self) -> list[str]:
        """What is measured to be chosen from."""
        return [name for name in self.timing.seconds if name not in (OWN_PAD, OWN_BOTH)]

    @property
    def _scale(self) -> float:
        return self.batches / self.sample

    def _measured(self, order: str) -> list[str]:
        """The methods measured in an order, simplest first."""
        return [_method(name) for name in self._compared if (_method(name) != name) == (order == BUCKETED)]

    def _best(self, order: str) -> str:
        named = {method: bucketed(method) if order == BUCKETED else method for method in self._measured(order)}
        exact = [method for method in named if self.is_exact(method)]
        fastest = min(exact, key=lambda method: self.timing.median(named[method]))
        return next(
            method
            for method in exact
            if method == fastest or not self.timing.ratio(named[method], named[fastest]).is_clear
        )

    def _bars(self, theme: str) -> Sheet:
        rows = {}
        for name in self._compared:
            ratio, method = self.timing.ratio(name, PACKED), _method(name)
            chosen = name == (bucketed(self.recommended) if self.in_buckets else self.recommended)
            rows[name] = _spread(ratio, ratio.number, hatched=not self.is_exact(method), bold=chosen)
        title = f"times as long as {PACKED}: median of the rounds' ratios, and its 95 % interval"
        together = [f"bucketed: {self._together}."] if self._measured(BUCKETED) else []
        notes = [*together, f"Measured on {self.timing.caption}."]
        return bars.spreads(title, rows, theme, hatched="other results than packing", line=1, notes=notes)

    def _exchanged(self, theme: str) -> Sheet:
        rows = {}
        for said, (name, ratio), part in zip(_EXCHANGED, self.parts.items(), ("", *self.shares), strict=False):
            saved = f": {part} was {text.whole_percent(self.shares[part])}" if part and self._tells(name) else ""
            rows[said] = _spread(ratio, f"{ratio.number}{saved}")
        title = f"what {PACKED} spends its time on: one part after the other exchanged for packviz's"
        return bars.spreads(title, rows, theme, line=1)


def advise(
    rnn: nn.RNNBase,
    lengths: Any,
    *,
    batch_size: int = 64,
    window: int = WINDOW,
    longest: int | None = None,
    count: int = 2000,
    budget: float = 20.0,
    seed: int = 0,
    progress: Callable[[int, int], object] | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Advice:
    """Measures the ways to run an RNN on batches of these lengths, and recommends one.

    What is compared: torch's packing (pack, RNN, pad), every method of `pv.run`, and torch's padded run, which is
    recommended only where nothing is padded, because elsewhere it changes results. Forward and backward if the RNN is
    in training mode, forward alone after `rnn.eval()`. On the RNN's own device, with its dtype; its gradients stay as
    they are.

    And torch's packing once more with one part after the other exchanged for packviz's, which shows what its time is
    made of: the pad, the pack, the run of the RNN, the rest.

    An epoch is made up as training does it: all sequences shuffled and cut into batches; and once more in buckets (see
    `pv.BucketSampler`), `window` batches sorted together. Of the batches of each, ranked by their padded
    cells and cut into up to five equal groups, the middle one of each group is measured. So the same call measures the
    same batches.

    Args:
        rnn: an `nn.RNN`, `nn.GRU` or `nn.LSTM`.
        lengths: `(N,)` of the whole data set: a list, an array, a tensor or a `Layout`; or the path of a CSV or JSON
            file; or a distribution, a key of `pv.lengths.DISTRIBUTIONS` such as `"log-normal"`.
        batch_size: sequences per batch.
        window: batches that are sorted together, in buckets.
        longest: the upper end of a distribution in time steps; only with one.
        count: the number of sequences of a distribution.
        budget: seconds for everything. First every method is called on one batch, and once more where that leaves
            time. Those that take over three times as long as the fastest are left at that (torch's own two are not);
            over twice, torch's padded run too, where time is short. Interleaved rounds follow, with as many batches as
            allow for a dozen of them, until the ratios to torch's packing are known to about 5 % or the budget is
            spent. Where it allows for fewer than a dozen, the look counts as the first. Nothing is begun after the end
            of the budget, except that torch's packing is always called once; but what has begun is finished. So it
            takes longer by about one call at most, and where the budget does not suffice for one call of each method,
            some are left out.
        seed: of the shuffling, the distribution and the data.
        progress: called with the rounds done and the rounds in all. If not given, a bar on standard error, where that
            is a terminal.
        stop: asked before every call whether to stop; what is measured by then is used, at least the look.

    Returns:
        An `Advice`: `.best`, `.is_clear`, `.gain`, `.saved`, `.bucketing`, `.shares`, `.code`; its text has the table.
            Where the rounds cannot tell the methods apart, or the machine is busy, it says so.

    Raises:
        TypeError: `rnn` is not an RNN.
        ValueError: the lengths or the file are not valid, a number is out of range, or the RNN has no values (meta
            device); or it was stopped before every method was looked at.
    """
    began = time.monotonic()
    if not isinstance(rnn, torch.nn.RNNBase):
        raise TypeError(f"rnn is a {type(rnn).__name__}: give an nn.RNN, nn.GRU or nn.LSTM (say, model.rnn)")
    if not isinstance(budget, Real) or not 0 < budget < float("inf"):
        raise ValueError(f"budget is {budget!r}; give a number of seconds over 0")
    device = next(rnn.parameters()).device
    if device.type == "meta":
        raise ValueError("rnn is on the meta device, where nothing can be measured: give it weights with to_empty()")
    n = _lengths(lengths, longest, count, seed)
    at_least("window", window)
    orders = {order: buckets.batches(n, batch_size, order, window=window, seed=seed) for order in (SHUFFLED, BUCKETED)}
    loads = {order: Load.of(n, groups) for order, groups in orders.items()}
    methods, bar = contestants(), Bar(sys.stderr)

    def left() -> float:
        return budget - (time.monotonic() - began)

    with torch.random.fork_rng([] if device.type == "cpu" else [device], device_type=device.type):  # for dropout
        first = batch_of(rnn, n[_middle(orders[SHUFFLED], loads[SHUFFLED], 1)[0]], seed)
        looks, failed = look(rnn, methods, first, left, stop)
        fastest = min(took for name, took in looks.items() if name != PADDED)
        looked, rest = time.monotonic(), left()

        def fast(times: float, always: tuple[str, ...]) -> list[str]:
            return [name for name in methods if name in always or looks.get(name, math.inf) <= times * fastest]

        kept = fast(SLOW, tuple(looks.keys() & {PADDED, PACKED, OWN_PAD, OWN_BOTH}))
        if rest < (_ENOUGH_ROUNDS + 1) * sum(looks[name] for name in kept):
            kept = fast(SLOW_IF_TIGHT, (PACKED,))
        each = sum(looks[name] for name in kept)  # of a batch, in one order
        share = rest / (_ENOUGH_ROUNDS + 1) / each  # orders times batches
        warmup = int(share >= 1)  # else the look is one
        both = share >= 2 and loads[BUCKETED].padding < loads[SHUFFLED].padding
        sample = min(SAMPLE, len(orders[SHUFFLED]), max(1, int(share / (1 + both))))
        calls: dict[str, Pass] = {}
        for order in (SHUFFLED, BUCKETED)[: 1 + both]:
            some = [batch_of(rnn, n[group], seed) for group in _middle(orders[order], loads[order], sample)]
            for name in kept:
                if order == BUCKETED and name in (OWN_PAD, OWN_BOTH):
                    continue
                calls[bucketed(name) if order == BUCKETED else name] = Pass(rnn, methods[name], some)
        rounds = int(rest / ((1 + both) * each * sample)) - warmup
        timing = measure(
            calls,
            rounds=max(1, rounds),
            warmup=warmup,
            device=device,
            before={name: call.reorder for name, call in calls.items()},
            progress=progress or bar.show_rounds,
            stop=lambda: rounds < 1 or left() <= 0 or stop(),
            parameters={"rnn": str(rnn), "sequences": n.size, "batch_size": batch_size, "seed": seed},
            until_narrow=True,
            to=PACKED,
        )
    bar.clear()
    measured = time.monotonic()
    if not warmup or not timing.rounds:  # the look is a round too, on one batch
        seconds = {name: (looks[name], *timing.seconds[name]) for name in kept}
        timing, sample = replace(timing, seconds=seconds, warmup=0), 1
    return Advice(
        rnn=str(Spec.of(rnn)),
        spec=Spec.of(rnn),
        training=rnn.training,
        lengths=n,
        batch_size=batch_size,
        window=window,
        loads=loads,
        sample=sample,
        timing=timing,
        once={name: took for name, took in looks.items() if name not in kept},
        failed=failed,
        seconds={"looking": looked - began, "measuring": measured - looked},
    )


def bucketed(method: str) -> str:
    """What the timing of a method on buckets is called."""
    return f"{method}, bucketed"


def _spread(ratio: Ratio, said: str, **more: bool) -> bars.Spread:
    """The bar of a ratio, in the colour of its method, with its interval if the rounds give one."""
    fill = _COLOURS.get(_method(ratio.name), bars.SOLID)
    low, high = ratio.interval if ratio.rounds >= FEWEST_ROUNDS else (ratio.value, ratio.value)
    return bars.Spread(low, ratio.value, high, said, fill=fill, **more)


def _method(name: str) -> str:
    return name.removesuffix(", bucketed")


def _lengths(given: Any, longest: int | None, count: int, seed: int) -> IntArray:
    distribution = sources.DISTRIBUTIONS.get(given) if isinstance(given, str) else None
    if distribution is None:
        if longest is not None:
            names = ", ".join(map(repr, sources.DISTRIBUTIONS))
            raise ValueError(f"longest is for a distribution ({names}); lengths of your own have their longest")
        if given is None:
            raise ValueError("lengths is None; give a list, an array, a tensor, a Layout, a file or a distribution")
        if isinstance(given, (str, PathLike)):
            given = sources.read(str(given))
        return given.lengths if isinstance(given, Layout) else Layout(given).lengths
    for name, value, least in (("longest", longest, 1), ("count", count, 1), ("seed", seed, 0)):
        at_least(name, value, least)
    return Layout(distribution(count, int(longest or 1), seed)).lengths


def _middle(groups: Sequence[IntArray], load: Load, sample: int) -> list[IntArray]:
    """Batches that stand for all: ranked by their cells and cut into equal stretches, the middle one of each."""
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
