"""Shows staircases in a panel: choose a number of rectangles, and see the wasted cells."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial

import ipywidgets as widgets

from packviz.core.cuts import Cuts, best_cuts, count_work, cuts_at_lengths
from packviz.core.validation import require_at_least, require_one_of
from packviz.draw.stairs import Stairs, plot_trade_off
from packviz.draw.text import with_noun
from packviz.panels.panel import Panel, View, draw_side_by_side, row
from packviz.panels.picker import OWN_LIST, LengthsPicker

ALL_COUNTS_UP_TO = 12
"""The slider offers every number of rectangles up to this one, and some larger numbers."""

CALL_COSTS = (1, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
"""The costs of a call on offer, each as the number of cells that cost as much."""


class StaircasePanel(Panel):
    """The best staircase with a chosen number of rectangles.

    One rectangle is padding, and the largest number is packing.

    For a given number of rectangles, the best cuts are those that waste the fewest cells, so they
    depend only on the lengths. The best number of rectangles depends on the cost of a call compared
    with the cost of a cell, and therefore on the RNN.

    Attributes:
        picker: the controls for choosing the lengths.
        call: the slider for the cost of a call, as the number of cells that cost as much.
        rectangles: the slider for the number of rectangles.
        shown: the `Stairs` in the picture.
        costs: the cost of each number of rectangles on offer, as a multiple of the cost of one.
        trade_off: the plots of these costs and of the wasted cells, below the `Stairs`.
    """

    def __init__(
        self,
        lengths: Sequence[int] | None = None,
        *,
        kind: str = "uniform",
        sequences: int = 64,
        longest: int = 128,
        call: int = 200,
        rectangles: int = 4,
    ) -> None:
        """Makes the panel with your lengths or, if you give none, with lengths from a distribution.

        Args:
            lengths: your lengths.
            kind: the distribution to use if you give no lengths, one of `pv.lengths.DISTRIBUTIONS`.
            sequences: number of sequences to draw from the distribution, up to 2,000.
            longest: greatest length that may be drawn, up to 512 time steps.
            call: the number of cells that cost as much as a call, one of `CALL_COSTS`.
            rectangles: number of rectangles at the start. The panel takes the nearest number that
                the slider offers.

        Raises:
            ValueError: a length is not valid, a number is out of its range, or `kind` is unknown.
        """
        kind = kind if lengths is None else OWN_LIST
        self.picker = LengthsPicker(lengths, kind, sequences=sequences, longest=longest)
        require_one_of("call", call, CALL_COSTS)
        self.call = _option_slider("cells that cost as much as a call", CALL_COSTS)
        self.call.value = call
        self.call.style.description_width = "initial"
        self.rectangles = _option_slider("rectangles", [require_at_least("rectangles", rectangles)])
        super().__init__(self.picker, row(self.call, self.rectangles))

    def view(self) -> View:
        """Returns a view of the staircase, with its cost beside the costs of other staircases."""
        layout = self.picker.lengths()
        n = tuple(layout.lengths.tolist())
        cuts_by_count = best_staircases(n)
        if list(self.rectangles.options) != [*cuts_by_count]:
            # The slider keeps its value, or moves to the nearest one.
            before = self.rectangles.value
            self.rectangles.options = [*cuts_by_count]
            self.rectangles.value = min(cuts_by_count, key=lambda k: abs(k - before))
        n_rectangles = self.rectangles.value
        call = self.call.value
        works = [count_work(n, cuts) for cuts in cuts_by_count.values()]
        wasted = [work.wasted for work in works]
        costs = [work.cells + call * work.calls for work in works]
        ratios = [cost / costs[0] for cost in costs]
        self.costs = dict(zip(cuts_by_count, ratios, strict=True))
        self.shown = stairs = Stairs(layout, cuts_by_count[n_rectangles])
        self.trade_off = plots = plot_trade_off(tuple(cuts_by_count), wasted, ratios, n_rectangles)
        call_cost_text = f"a call costs as much as {with_noun(call, 'cell')}"
        ratio_text = f"{self.costs[n_rectangles]:.2f} times"
        cost = f"this staircase costs {ratio_text} as much as a single rectangle"
        summary = f"{stairs.summary()} If {call_cost_text}, {cost}."

        def describe() -> str:
            return f"If {call_cost_text}:\n{stairs.to_text()}\n\n{plots.to_text()}"

        return View(partial(draw_side_by_side, [stairs, plots]), summary, describe)


def _option_slider(description: str, options: Sequence[int]) -> widgets.SelectionSlider:
    return widgets.SelectionSlider(
        options=options, description=description, layout=widgets.Layout(width="480px")
    )


@lru_cache(32)
def best_staircases(lengths: tuple[int, ...]) -> dict[int, Cuts]:
    """Returns the best cuts for small and some larger numbers of rectangles, and for packing."""
    packing_cuts = cuts_at_lengths(lengths)
    max_rectangles = len(packing_cuts) - 1
    cuts_by_count = {}
    for k in range(1, min(max_rectangles, ALL_COUNTS_UP_TO) + 1):
        cuts_by_count[k] = best_cuts(lengths, 0, k)
    # The more a call costs, the fewer rectangles are best, so other costs lead to other staircases.
    call = max(lengths) * len(lengths)
    while call > 1 and max_rectangles > ALL_COUNTS_UP_TO:
        cuts = best_cuts(lengths, call)
        cuts_by_count.setdefault(len(cuts) - 1, cuts)
        call //= 2
    cuts_by_count[max_rectangles] = packing_cuts
    return dict(sorted(cuts_by_count.items()))
