"""The exercises on time: measured on simulated machines, saved by cuts, shared by workers (notebooks 08, 10 to 12)."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from packviz.core.cuts import Prediction, Rates, best_cuts, every_cut, predict
from packviz.core.layout import Layout
from packviz.draw.chart import COLOURS
from packviz.draw.palette import sequence_colour
from packviz.draw.stairs import Stairs
from packviz.draw.sweep import Curve, Plot, Sweep
from packviz.lessons.exercise import Comparison, Verdict, exercise

_A, _COLD = 1e-3, 4  # s; calls until the machine is warm
_PATIENCE = 10_000
_CLOSE = 0.05

_TRUTHS = {"a quiet machine": 3.0, "a cold machine": 2.0, "a tiring machine": 4.0, "a busy machine": 1.5}
_MACHINES = {
    "a quiet machine": "Divide the time of b by that of a. A time is clock() after the call less clock() before it.",
    "a cold machine": "Its first calls are slow. Call both a few times before you start to time them.",
    "a tiring machine": "Every call is a little slower than the one before. Take turns, and divide within a turn.",
    "a busy machine": "Now and then a call is interrupted. Such a pause spoils a mean: take a median of enough turns.",
}


class _Simulated:
    """A machine with a clock of its own, on which only `a` and `b` take time.

    Attributes:
        calls: what was called, and the seconds that it took.
    """

    def __init__(self, kind: str) -> None:
        """Takes a key of the machines above."""
        self._kind = kind
        self._now = 0.0
        self.calls: list[tuple[str, float]] = []

    def a(self) -> None:
        """Takes a millisecond, on a good day."""
        self._work("a", _A)

    def b(self) -> None:
        """Takes some times as long."""
        self._work("b", _TRUTHS[self._kind] * _A)

    def clock(self) -> float:
        """The seconds that have gone by."""
        return self._now

    def _work(self, name: str, seconds: float) -> None:
        i = len(self.calls)
        if i == _PATIENCE:
            raise ValueError(f"{_PATIENCE:,} calls are enough")
        if self._kind == "a cold machine" and i < _COLD:
            seconds += 0.02
        if self._kind == "a tiring machine":
            seconds *= 1.02 ** min(i, 100)
        if self._kind == "a busy machine" and i % 7 == 6:
            seconds += 0.02
        self._now += seconds
        self.calls.append((name, seconds))


@exercise
def fair_ratio(answer: Callable[[Any, Any, Callable[[], float]], Any]) -> Verdict:
    """Checks a function of `(a, b, clock)` that says how many times as long b takes as a (notebook 08)."""
    runs = {kind: _Simulated(kind) for kind in _MACHINES}
    ratios = {kind: float(answer(machine.a, machine.b, machine.clock)) for kind, machine in runs.items()}
    drawing = [_drawn(runs, ratios)]
    for kind, hint in _MACHINES.items():
        if not abs(ratios[kind] / _TRUTHS[kind] - 1) <= _CLOSE:
            message = f"Not yet on {kind}: {ratios[kind]:.3g}, and b takes {_TRUTHS[kind]:g} times as long as a."
            return Verdict(False, f"{message} {hint}", drawing)
    return Verdict(True, f"Within {_CLOSE:.0%} of the truth on every machine.", drawing)


def _drawn(runs: dict[str, _Simulated], ratios: dict[str, float]) -> Sweep:
    """Every call that the reader's function made, in order."""
    plots, lines = [], ["Your calls, and what you make of them:"]
    for kind, machine in runs.items():
        curves = []
        for number, name in enumerate("ab"):
            calls = [(i, 1e3 * seconds) for i, (called, seconds) in enumerate(machine.calls, 1) if called == name]
            if calls:
                x, y = zip(*calls, strict=True)
                curves.append(Curve(name, COLOURS.index(sequence_colour(number)), 0, x, y, y, y))
        plots.append(Plot(f"{kind}: yours {ratios[kind]:.3g}, true {_TRUTHS[kind]:g}", curves))
        order = "".join(name for name, _ in machine.calls)
        short = order if len(order) <= 60 else f"{order[:56]}… ({len(order)} calls)"
        lines.append(f"  {kind.ljust(17)} yours {ratios[kind]:<5.3g} true {_TRUTHS[kind]:g}   {short}")
    rows = [plots[:2], plots[2:]]
    return Sweep("Milliseconds of each call that you made", rows, [], [], "\n".join(lines), x="call")


@exercise
def cheapest_staircase(lengths: Sequence[int], cuts: Any, call: int) -> Verdict:
    """Checks cuts of a staircase that no other beats, when a call costs as much as `call` cells (notebook 10)."""
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
    return Verdict(False, f"{cost} {_cuts_hint(stairs, yours, alike, best)}", [stairs, rows])


def _row(one: Prediction) -> list[str]:
    return [str(one.calls), str(one.wasted), f"{one.seconds:g}"]


def _cuts_hint(stairs: Stairs, yours: Prediction, alike: Prediction | None, best: Prediction) -> str:
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


@exercise
def worker_loss(answer: Callable[[Any, int, int], Any]) -> Verdict:
    """Checks a worker's loss that makes the average of the workers' gradients that of all tokens' mean.

    It belongs to notebook 12.
    """
    from torch import Tensor, arange, autograd  # noqa: PLC0415

    right = []
    for tokens in ([6, 2], [3, 3], [5, 1, 2], [7]):
        workers, total = len(tokens), sum(tokens)
        weights = []
        for count in tokens:
            losses = (1.0 + arange(count)).requires_grad_()
            yours = answer(losses, total, workers)
            if not isinstance(yours, Tensor) or yours.numel() != 1 or not yours.requires_grad:
                return Verdict(False, "Return one number, a tensor made from `losses`: backward() starts at it.")
            (gradient,) = autograd.grad(yours.reshape(()), losses)
            weights.append((gradient / workers).tolist())  # DDP averages over the workers
        shown = Comparison(
            f"weight of each token in the averaged gradient, %: workers with {' + '.join(map(str, tokens))} tokens",
            [f"{100 * w:.3g}" for own in weights for w in own],
            [f"{100 / total:.3g}"] * total,
        )
        if shown.yours != shown.target:
            hint = _weight_hint(weights, tokens)
            return Verdict(False, f"Not yet for workers with {tokens} tokens. {hint}", [shown])
        right.append(shown)
    return Verdict(True, "Every token counts the same, whoever works on it; here for 6 and 2 tokens.", right[:1])


def _weight_hint(weights: Sequence[Sequence[float]], tokens: Sequence[int]) -> str:
    workers = len(tokens)
    own_means = [[1 / (count * workers)] * count for count in tokens]
    if _near(weights, own_means):
        return "Each worker divides by its own tokens, so a token of a small share weighs more. Divide by all tokens."
    if _near(weights, [[1 / (sum(tokens) * workers)] * count for count in tokens]):
        return "All tokens weigh the same, but too little: the average divides by the number of workers once more."
    if _near(weights, [[1 / workers] * count for count in tokens]):
        return "That is a sum, and grows with the batch. Divide by the tokens of all workers."
    return "Add up the losses, divide by the tokens of all workers, and undo the division by the number of workers."


def _near(found: Sequence[Sequence[float]], expected: Sequence[Sequence[float]]) -> bool:
    pairs = (pair for both in zip(found, expected, strict=True) for pair in zip(*both, strict=True))
    return all(abs(a - b) < 1e-4 for a, b in pairs)


@exercise
def fastest_exact(answer: Callable[[list[dict[str, float]], set[str]], Any]) -> Verdict:
    """Checks a choice of the fastest method among those whose results are right (notebook 11)."""
    quiet = [{"padded": 1.0, "packed": 3.0, "run": 2.0}] * 5
    busy = [*quiet[:4], {"padded": 1.0, "packed": 3.0, "run": 90.0}]
    cases = [
        (quiet, {"padded", "packed", "run"}, "padded", "All three are exact here."),
        (quiet, {"packed", "run"}, "run", "The fastest of all methods is not among those whose results are right."),
        (busy, {"packed", "run"}, "run", "In one round the machine was busy, and a mean follows it. Take the median."),
    ]
    chosen = list[str]()
    for rounds, exact, right, hint in cases:
        chosen.append(str(answer([dict(one) for one in rounds], set(exact))))
        drawn = Comparison("your choices", chosen, [case[2] for case in cases[: len(chosen)]])
        if chosen[-1] != right:
            times = [f"{name} {', '.join(f'{one[name]:g}' for one in rounds)} s" for name in rounds[0]]
            return Verdict(False, f"Exact: {', '.join(sorted(exact))}. {'; '.join(times)}. {hint}", [drawn])
    return Verdict(True, "The fastest of the exact methods, also with a busy round.", [drawn])
