"""A staircase of rectangles over a padded batch: choose how many, see what is wasted, predict the time, measure it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets

from packviz.core.cuts import Rates, best_cuts, every_cut, predict
from packviz.core.spec import GATES, Spec
from packviz.draw import quantities
from packviz.draw.stairs import Stairs, TradeOff, beside
from packviz.explorers.job import Job, Progress, Stop, Work
from packviz.explorers.lengths import TYPED, LengthsPicker
from packviz.explorers.panel import Panel, View, dropdown, row, slider
from packviz.ops.costs import rates

if TYPE_CHECKING:
    from packviz.bench.timing import Timing

EACH = 12
"""Up to this many rectangles the slider has every number, then some."""

ROUNDS = 25
"""Of a measurement, at most, after two to warm up: it stops when the ratio is known to about 5 %."""

ONE = "1 rectangle"

Cuts = tuple[int, ...]

_CELLS = Rates(fixed=0, call=0, step=0, cell=1)


class StaircaseExplorer(Panel):
    """The best staircase of so many rectangles over a batch of your choice, from padding (one) to packing.

    Where to cut, for a given number of rectangles, depends on the lengths alone: fewest wasted cells is best. How many
    rectangles are best depends on what a call costs beside a cell, and so on the RNN.

    Attributes:
        picker: the controls that choose the lengths.
        mode: the kind of RNN.
        input_size: of the RNN.
        hidden_size: of the RNN.
        rectangles: how many.
        job: measures the staircase in the picture against one rectangle: `job.run()` does it here and now.
        shown: the `Stairs` in the picture.
        trade_off: the `TradeOff` beside them.
        timing: the last measurement.
    """

    shown: Stairs
    trade_off: TradeOff
    timing: Timing | None

    def __init__(
        self,
        lengths: Sequence[int] | None = None,
        *,
        kind: str = "uniform",
        many: int = 64,
        longest: int = 128,
        mode: str = "LSTM",
        input_size: int = 16,
        hidden_size: int = 32,
        rectangles: int = 4,
    ) -> None:
        """Starts with these lengths, or with a distribution.

        Args:
            lengths: your own.
            kind: of the distribution, if there are none.
            many: its sequences, up to 512.
            longest: its upper end in time steps, up to 512.
            mode: `"LSTM"`, `"GRU"` or `"RNN"`.
            input_size: of the RNN.
            hidden_size: of the RNN.
            rectangles: how many at the start, or the nearest number there is.
        """
        self.picker = LengthsPicker(
            (9, 8, 6, 4, 3, 2) if lengths is None else lengths,
            kind if lengths is None else TYPED,
            many=many,
            longest=longest,
        )
        self.mode = dropdown("mode", mode, [*GATES], "RNN", width="210px")
        self.input_size = slider("input_size", input_size, 1, max(256, input_size))
        self.hidden_size = slider("hidden_size", hidden_size, 1, max(256, hidden_size))
        self.rectangles = widgets.SelectionSlider(
            options=[rectangles], description="rectangles", layout=widgets.Layout(width="480px")
        )
        self.job = Job("Measure here", self._measuring)
        self.timing = None
        self._measured: dict[Any, dict[int, tuple[float, float, float]]] = {}
        rows = row(self.mode, self.input_size, self.hidden_size), row(self.rectangles, self.job)
        super().__init__(self.picker, *rows, quiet=(self.job,))

    def view(self) -> View:
        """The staircase, and what it costs beside others."""
        layout, spec = self.picker.lengths(), self._spec()
        n = tuple(layout.lengths.tolist())
        stops = staircases(n)
        if list(self.rectangles.options) != [*stops]:  # stay where it is, or near
            before = self.rectangles.value
            self.rectangles.options = [*stops]
            self.rectangles.value = min(stops, key=lambda k: abs(k - before))
        at, price = self.rectangles.value, rates(spec)["staircase"]
        predictions = [predict(n, cuts, price) for cuts in stops.values()]
        wasted, seconds = [p.wasted for p in predictions], [p.seconds for p in predictions]
        self.shown = stairs = Stairs(layout, stops[at])
        measured = dict(self._measured.get((spec, n), {}))
        self.trade_off = trade_off = TradeOff(tuple(stops), wasted, seconds, at, measured)
        ratio = trade_off.ratios[trade_off.calls.index(at)]
        summary = f"{stairs.summary()} Predicted: {ratio:.2f} times as long as one rectangle."
        return View(
            draw=lambda theme: beside(stairs, trade_off, theme),
            summary=summary,
            describe=lambda: f"{spec}, forward and backward\n{stairs.to_text()}\n\n{trade_off.to_text()}",
        )

    def _spec(self) -> Spec:
        return Spec(self.mode.value, self.input_size.value, self.hidden_size.value)

    def _measuring(self) -> Work:
        """What is in the picture, ready to be timed against one rectangle."""
        import torch  # noqa: PLC0415 - a second or two, for those who measure

        from packviz.bench.rnn_calls import one_pass  # noqa: PLC0415
        from packviz.bench.timing import measure  # noqa: PLC0415
        from packviz.ops.running import run  # noqa: PLC0415

        stairs, spec = self.shown, self._spec()
        n = stairs.layout.lengths.tolist()
        with torch.random.fork_rng(devices=[]):  # the reader's random numbers stay the reader's
            torch.manual_seed(0)
            rnn = getattr(torch.nn, spec.mode)(spec.input_size, spec.hidden_size)
            x = torch.randn(max(n), len(n), spec.input_size).requires_grad_()

        def step(cuts: Cuts) -> Callable[[], Any]:
            return one_pass(lambda: run(rnn, x, n, method=cuts), [x, *rnn.parameters()])

        name = ONE if stairs.calls == 1 else f"{stairs.calls} rectangles"
        calls = {ONE: step((0, max(n))), name: step(stairs.cuts)}

        def work(progress: Progress, stop: Stop) -> str:
            threads = torch.get_num_threads()
            torch.set_num_threads(1)  # more gain little on products this small, and may wait for each other
            try:
                timing = measure(calls, rounds=ROUNDS, warmup=2, progress=progress, stop=stop, until_narrow=True)
            finally:
                torch.set_num_threads(threads)
            self.timing = timing
            if not timing.rounds:
                return "stopped"
            found = self._measured.setdefault((spec, tuple(n)), {1: (1.0, 1.0, 1.0)})
            ratio = timing.ratio(name, ONE)
            found[stairs.calls] = (ratio.value, ratio.low, ratio.high)
            self._refresh()
            took = f"{name}: {quantities.milliseconds(timing.median(name))} ms"
            compared = [f"{ratio}"] if stairs.calls > 1 else []
            busy = [f"the machine is busy: {timing.busy}"] if timing.busy else []
            return "; ".join([took, *compared, *busy])

        return work


@lru_cache(32)
def staircases(lengths: tuple[int, ...]) -> dict[int, Cuts]:
    """The best cuts by number of rectangles: every number of few, some of many, and always one for every length."""
    packing = every_cut(lengths)
    most = len(packing) - 1
    found = {k: best_cuts(lengths, _CELLS, k) for k in range(1, min(most, EACH) + 1)}
    # The more a call may cost, the fewer rectangles: each price has its best staircase.
    price = float(max(lengths) * len(lengths))
    while price > 1 and most > EACH:
        cuts = best_cuts(lengths, Rates(fixed=0, call=price, step=0, cell=1))
        found.setdefault(len(cuts) - 1, cuts)
        price /= 2
    found[most] = packing
    return dict(sorted(found.items()))
