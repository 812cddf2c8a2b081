"""Shows staircases in a panel: choose a number of rectangles, see the wasted cells, and predict and measure times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets

from packviz.core.cuts import Rates, best_cuts, every_cut, predict
from packviz.core.spec import GATES, Spec
from packviz.draw import quantities, text
from packviz.draw.stairs import Stairs, TradeOff, beside
from packviz.ops.costs import rates
from packviz.panels.job import Job, Progress, Stop
from packviz.panels.lengths import TYPED, LengthsPicker
from packviz.panels.panel import Panel, View, dropdown, row, slider

if TYPE_CHECKING:
    from packviz.measure.timing import Timing

EACH = 12
"""The slider offers every number of rectangles up to this one, and some larger numbers."""

ROUNDS = 25
"""The most rounds of a measurement after two warm-up rounds. It stops earlier if the ratio is known to about 5 %."""

Cuts = tuple[int, ...]

_CELLS = Rates(fixed=0, call=0, step=0, cell=1)


class StaircasePanel(Panel):
    """The best staircase with a chosen number of rectangles, from padding (one rectangle) to
    packing.

    For a given number of rectangles, the best cuts are those that waste the fewest cells, so they
    depend only on the lengths. The best number of rectangles depends on the cost of a call compared
    with the cost of a cell, and therefore on the RNN.

    Attributes:
        picker: the controls for choosing the lengths.
        mode: the drop-down list for the kind of RNN.
        input_size: the slider for the input size of the RNN.
        hidden_size: the slider for the hidden size of the RNN.
        rectangles: the slider for the number of rectangles.
        job: the job that times the staircase in the picture against one rectangle. `job.run()` runs
            it in the calling thread.
        shown: the `Stairs` in the picture.
        trade_off: the `TradeOff` beside the `Stairs` in the picture.
        timing: the last measurement, or `None` if there is none yet.
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
        """Makes the panel with your lengths or, if you give none, with lengths from a distribution.

        Args:
            lengths: your lengths.
            kind: the distribution to use if you give no lengths, one of `pv.lengths.DISTRIBUTIONS`.
            many: number of sequences to draw from the distribution, up to 512.
            longest: greatest length that may be drawn, up to 512 time steps.
            mode: the kind of RNN, `"LSTM"`, `"GRU"` or `"RNN"`.
            input_size: input size of the RNN.
            hidden_size: hidden size of the RNN.
            rectangles: number of rectangles at the start. The panel takes the nearest number that
                the slider offers.

        Raises:
            ValueError: a length is not valid, a number is out of its range, or `kind` or `mode` is
                unknown.
        """
        self.picker = LengthsPicker(
            lengths, kind if lengths is None else TYPED, many=many, longest=longest
        )
        self.mode = dropdown("mode", mode, [*GATES], "RNN", width="210px")
        self.input_size = slider("input_size", input_size, 1, max(256, input_size))
        self.hidden_size = slider("hidden_size", hidden_size, 1, max(256, hidden_size))
        self.rectangles = widgets.SelectionSlider(
            options=[rectangles], description="rectangles", layout=widgets.Layout(width="480px")
        )
        self.job = Job("Measure here", self._measure)
        self.timing = None
        self._measured: dict[Any, dict[int, tuple[float, float, float]]] = {}
        rows = row(self.mode, self.input_size, self.hidden_size), row(self.rectangles, self.job)
        super().__init__(self.picker, *rows, quiet=(self.job,))

    def view(self) -> View:
        """Returns a view of the staircase, with its cost beside the costs of other staircases."""
        layout, spec = self.picker.lengths(), self._spec()
        n = tuple(layout.lengths.tolist())
        stops = staircases(n)
        if list(self.rectangles.options) != [*stops]:  # keep the value, or move to the nearest one
            before = self.rectangles.value
            self.rectangles.options = [*stops]
            self.rectangles.value = min(stops, key=lambda k: abs(k - before))
        at, price = self.rectangles.value, rates(spec)["staircase"]
        predictions = [predict(n, cuts, price) for cuts in stops.values()]
        wasted, seconds = [p.wasted for p in predictions], [p.seconds for p in predictions]
        self.shown = stairs = Stairs(layout, stops[at])
        self.trade_off = trade_off = TradeOff(tuple(stops), wasted, seconds, at)
        ratio = trade_off.ratios[trade_off.calls.index(at)]
        return View(
            draw=lambda theme: beside(stairs, trade_off, theme),
            summary=f"{stairs.summary()} The predicted time is {ratio:.2f} times that of one rectangle.",
            describe=lambda: (
                f"{spec}, forward and backward\n{stairs.to_text()}\n\n{trade_off.to_text()}"
            ),
        )

    def _spec(self) -> Spec:
        return Spec(self.mode.value, self.input_size.value, self.hidden_size.value)

    def _measure(self, progress: Progress, stop: Stop) -> str:
        """Times the staircase in the picture against one rectangle."""
        import torch

        from packviz.measure import rnn_calls
        from packviz.measure.timing import measure
        from packviz.ops.running import run

        stairs, spec = self.shown, self._spec()
        n = stairs.layout.lengths.tolist()
        with torch.random.fork_rng(devices=[]):  # leaves the reader's random numbers alone
            torch.manual_seed(0)
            rnn = rnn_calls.rnn_of(spec)
            x = torch.randn(max(n), len(n), spec.input_size).requires_grad_()

        def step(cuts: Cuts) -> Callable[[], Any]:
            return rnn_calls.one_pass(lambda: run(rnn, x, n, method=cuts), [x, *rnn.parameters()])

        one, name = (text.count(many, "rectangle") for many in (1, stairs.calls))
        calls, threads = {one: step((0, max(n))), name: step(stairs.cuts)}, torch.get_num_threads()
        torch.set_num_threads(
            1
        )  # more threads gain little on products this small, and may wait for each other
        try:
            timing = measure(
                calls, rounds=ROUNDS, warmup=2, progress=progress, stop=stop, until_narrow=True
            )
        finally:
            torch.set_num_threads(threads)
        self.timing = timing
        if not timing.rounds:
            return "stopped"
        ratio = timing.ratio(name, one)
        found = self._measured.setdefault((spec, tuple(n)), {1: (1.0, 1.0, 1.0)})
        found[stairs.calls] = (ratio.value, ratio.low, ratio.high)
        self._refresh()
        took = f"{name}: {quantities.milliseconds(timing.median(name))} ms"
        busy = f"the machine is busy: {timing.busy}" if timing.busy else ""
        return "; ".join(filter(None, [took, str(ratio) * (stairs.calls > 1), busy]))


@lru_cache(32)
def staircases(lengths: tuple[int, ...]) -> dict[int, Cuts]:
    """Returns the best cuts for all small and some larger numbers of rectangles, and the cuts for packing."""
    packing = every_cut(lengths)
    most = len(packing) - 1
    found = {k: best_cuts(lengths, _CELLS, k) for k in range(1, min(most, EACH) + 1)}
    # The more a call costs, the fewer rectangles are best, so other prices lead to other
    # staircases.
    price = float(max(lengths) * len(lengths))
    while price > 1 and most > EACH:
        cuts = best_cuts(lengths, Rates(fixed=0, call=price, step=0, cell=1))
        found.setdefault(len(cuts) - 1, cuts)
        price /= 2
    found[most] = packing
    return dict(sorted(found.items()))
