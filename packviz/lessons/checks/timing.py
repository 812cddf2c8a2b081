"""Checks the exercises on timing, staircases, choosing a method, and several workers (notebooks 08 and 10 to 12)."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any

from packviz.core.cuts import Prediction, Rates, best_cuts, every_cut, predict
from packviz.core.layout import Layout
from packviz.draw.stairs import Stairs
from packviz.lessons.exercise import Comparison, Verdict, exercise, hint_for

_A = 1e-3  # seconds
_PATIENCE = 10_000
_CLOSE = 0.05

_Slow = Callable[[int, float], float]
# For each machine, the time of `b` relative to `a`, and a function that returns how long call `i`
# really takes if it should take `seconds`.
_MACHINES: dict[str, tuple[float, _Slow]] = {
    "a quiet machine": (3.0, lambda i, seconds: seconds),
    "a cold machine": (2.0, lambda i, seconds: seconds + 0.02 * (i < 4)),
    "a tiring machine": (4.0, lambda i, seconds: seconds * 1.02 ** min(i, 100)),
    "a busy machine": (1.5, lambda i, seconds: seconds + 0.02 * (i % 7 == 6)),
}
_HINTS = (
    "Divide the time of b by that of a. A time is clock() after the call minus clock() before it.",
    "The first calls are slow. Call both functions a few times before you time them.",
    "Every call is a little slower than the one before. Take turns, and divide within a turn.",
    "Now and then a call is interrupted. Such a pause spoils a mean, so take the median of many turns.",
)


def _simulated(
    ratio: float, slow: _Slow
) -> tuple[Callable[[], None], Callable[[], None], Callable[[], float]]:
    """Returns the functions `a`, `b` and `clock` of a simulated machine on which only `a` and `b` take time."""
    now, calls = 0.0, itertools.count()

    def work(seconds: float) -> None:
        nonlocal now
        if (i := next(calls)) == _PATIENCE:
            raise ValueError(f"you made over {_PATIENCE:,} calls; far fewer are enough")
        now += slow(i, seconds)

    return functools.partial(work, _A), functools.partial(work, ratio * _A), lambda: now


@exercise
def fair_ratio(answer: Callable[[Any, Any, Callable[[], float]], Any]) -> Verdict:
    """Checks a function that measures how many times as long `b` takes as `a` (notebook 08)."""
    truths = [ratio for ratio, _ in _MACHINES.values()]
    ratios = [float(answer(*_simulated(*machine))) for machine in _MACHINES.values()]
    title = f"b's time as a multiple of a's, on {', '.join(_MACHINES)}"
    drawn = [Comparison(title, *([f"{ratio:.3g}" for ratio in some] for some in (ratios, truths)))]
    for kind, yours, truth, hint in zip(_MACHINES, ratios, truths, _HINTS, strict=True):
        if not abs(yours / truth - 1) <= _CLOSE:
            message = f"Not yet on {kind}: your ratio is {yours:.3g}, but b takes {truth:g} times as long as a."
            return Verdict(False, f"{message} {hint}", drawn)
    return Verdict(True, f"Your ratio is within {_CLOSE:.0%} of the truth on every machine.", drawn)


@exercise
def cheapest_staircase(lengths: Sequence[int], cuts: Any, call: int) -> Verdict:
    """Checks that no staircase costs less than these cuts if a call costs as much as `call` cells (notebook 10)."""
    n, price = Layout(lengths).lengths.tolist(), Rates(fixed=0, call=call, step=0, cell=1)
    try:
        stairs = Stairs(n, list(map(operator.index, cuts)))
    except TypeError:
        raise TypeError(f"give whole time steps, as in (0, 8, 16), not {cuts!r}") from None
    yours = predict(n, stairs.cuts, price)
    best = predict(n, best_cuts(n, price), price)
    alike = None  # the best with as many rectangles, or None if there are too few distinct lengths
    if yours.calls < len(every_cut(n)):
        alike = predict(n, best_cuts(n, price, yours.calls), price)
    target = alike or best
    title = f"rectangles, wasted cells, cost; target: the best with {target.calls}"
    rows = Comparison(
        title, *([one.calls, one.wasted, f"{one.seconds:g}"] for one in (yours, target))
    )
    cost = f"{yours.cells} cells and {yours.calls} × {call} for the calls make {yours.seconds:g}."
    if yours.seconds == best.seconds:
        return Verdict(True, f"{cost} No staircase costs less.", [stairs, rows])
    return Verdict(False, f"{cost} {_cuts_hint(stairs, yours, alike, best)}", [stairs, rows])


def _cuts_hint(
    stairs: Stairs, yours: Prediction, alike: Prediction | None, best: Prediction
) -> str:
    if yours.calls == 1:
        return f"That is the padded batch. If you cut it, {best.seconds:g} is possible."
    if alike is not None and yours.wasted == alike.wasted:
        more = "fewer" if best.calls < yours.calls else "more"
        return f"No {yours.calls} rectangles waste fewer cells. But {best.seconds:g} is possible, with {more} of them."
    between = [cut for cut in stairs.cuts[1:] if cut not in stairs.layout.lengths]
    if between:
        return f"No sequence ends at step {between[0]}. A cut right after the end of a sequence leaves out more."
    return (
        "Look at the hatched cells: which cut, moved to the end of another sequence, reduces them?"
    )


@exercise
def worker_loss(answer: Callable[[Any, int, int], Any]) -> Verdict:
    """Checks a function that computes the loss of one of several workers (notebook 12).

    The average of the workers' gradients must be the gradient of the mean over all tokens.
    """
    from torch import Tensor, arange, autograd

    right = []
    for tokens in ([6, 2], [3, 3], [5, 1, 2], [7]):
        workers, total = len(tokens), sum(tokens)
        weights = list[str]()
        for count in tokens:
            losses = (1.0 + arange(count)).requires_grad_()
            yours = answer(losses, total, workers)
            if not isinstance(yours, Tensor) or yours.numel() != 1 or not yours.requires_grad:
                return Verdict(
                    False,
                    "Return one number, a tensor made from `losses`, for backward() to start at.",
                )
            (gradient,) = autograd.grad(yours.reshape(()), losses)
            weights += map(_percent, (gradient / workers).tolist())  # DDP averages over the workers
        title = f"weight of each token in the averaged gradient, %: workers with {' + '.join(map(str, tokens))} tokens"
        shown = Comparison(title, weights, [_percent(1 / total)] * total)
        if shown.yours != shown.target:
            hint = _weight_hint(weights, tokens)
            return Verdict(False, f"Not yet for workers with {tokens} tokens. {hint}", [shown])
        right.append(shown)
    return Verdict(
        True,
        "Every token counts the same, whichever worker has it. Here are shares of 6 and 2.",
        right[:1],
    )


def _percent(share: float) -> str:
    return f"{100 * share:.3g}"


def _weight_hint(weights: Sequence[str], tokens: Sequence[int]) -> str:
    workers, total = len(tokens), sum(tokens)
    divisors = [(own * workers, total * workers, workers) for own in tokens for _ in range(own)]
    hints = (
        "Each worker divides by its own tokens, so a token of a small share weighs more. Divide by all tokens.",
        "All tokens weigh the same, but too little, because the average divides by the number of workers again.",
        "That is a sum, which grows with the batch. Divide by the tokens of all workers.",
    )
    made = ([_percent(1 / divisor) for divisor in some] for some in zip(*divisors, strict=True))
    otherwise = "Add up the losses, divide by the tokens of all workers, and undo the division by the workers."
    return hint_for(weights, zip(made, hints, strict=True), otherwise)


@exercise
def fastest_exact(answer: Callable[[list[dict[str, float]], set[str]], Any]) -> Verdict:
    """Checks a function that chooses the fastest of the methods that give the right results (notebook 11)."""
    quiet = [{"padded": 1.0, "packed": 3.0, "run": 2.0}] * 5
    busy = [*quiet[:4], {"padded": 1.0, "packed": 3.0, "run": 90.0}]
    cases = [
        (quiet, {"padded", "packed", "run"}, "padded", "All three are exact here."),
        (
            quiet,
            {"packed", "run"},
            "run",
            "The results of the fastest method of all are not right.",
        ),
        (
            busy,
            {"packed", "run"},
            "run",
            "The machine was busy in one round, and a mean follows it. Take the median.",
        ),
    ]
    chosen = list[str]()
    for rounds, exact, right, hint in cases:
        chosen.append(str(answer([dict(one) for one in rounds], set(exact))))
        drawn = Comparison("your choices", chosen, [case[2] for case in cases[: len(chosen)]])
        if chosen[-1] != right:
            times = [
                f"{name} {', '.join(f'{one[name]:g}' for one in rounds)} s" for name in rounds[0]
            ]
            return Verdict(
                False, f"Exact: {', '.join(sorted(exact))}. {'; '.join(times)}. {hint}", [drawn]
            )
    return Verdict(
        True, "You chose the fastest exact method every time, even with a busy round.", [drawn]
    )
