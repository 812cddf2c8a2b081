"""The exercise on where to cut (notebook 08)."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from packviz.core.cuts import Prediction, Rates, best_cuts, every_cut, predict
from packviz.core.layout import Layout
from packviz.draw.stairs import Stairs
from packviz.lessons.exercise import Comparison, Verdict, exercise


@exercise
def cheapest_staircase(lengths: Sequence[int], cuts: Any, call: int) -> Verdict:
    """Cuts of a staircase that no other beats, when a call costs as much as `call` cells (notebook 08)."""
    n, price = Layout(lengths).lengths.tolist(), Rates(fixed=0, call=call, step=0, cell=1)
    try:
        stairs = Stairs(n, list(map(operator.index, cuts)))
    except TypeError:
        raise TypeError(f"give whole time steps, as in (0, 8, 16), not {cuts!r}") from None
    yours = predict(n, stairs.cuts, price)
    best = predict(n, best_cuts(n, price), price)
    alike = None  # the best with as many rectangles; none if they are more than there are lengths
    if yours.calls < len(every_cut(n)):
        alike = predict(n, best_cuts(n, price, yours.calls), price)
    target = alike or best
    rows = Comparison(
        f"rectangles, wasted cells, cost; target: the best with {target.calls}", _row(yours), _row(target)
    )
    cost = f"{yours.cells} cells and {yours.calls} × {call} for the calls make {yours.seconds:g}."
    if yours.seconds == best.seconds:
        return Verdict(True, f"{cost} No staircase costs less.", [stairs, rows])
    return Verdict(False, f"{cost} {_hint(stairs, yours, alike, best)}", [stairs, rows])


def _row(one: Prediction) -> list[str]:
    return [str(one.calls), str(one.wasted), f"{one.seconds:g}"]


def _hint(stairs: Stairs, yours: Prediction, alike: Prediction | None, best: Prediction) -> str:
    lengths = set(stairs.layout.lengths.tolist())
    if yours.calls == 1:
        return f"That is the padded batch. {best.seconds:g} is possible: cut it."
    if alike is not None and yours.wasted == alike.wasted:
        more = "fewer" if best.calls < yours.calls else "more"
        return f"No {yours.calls} rectangles waste fewer cells. But {best.seconds:g} is possible, with {more} of them."
    between = [cut for cut in stairs.cuts[1:] if cut not in lengths]
    if between:
        return f"No sequence ends at step {between[0]}: a cut right after some sequence's end leaves out more."
    return "Look at the hatched cells: which cut, moved to another sequence's end, makes them fewer?"
