"""The exercise on measuring (notebook 06), on machines that are simulated: nothing here depends on yours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from packviz.draw.chart import Curve, Plot, Sweep
from packviz.lessons.exercise import NOT_YET, Verdict, exercise

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


class Simulated:
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
    """A function of `(a, b, clock)` that says how many times as long b takes as a (notebook 06)."""
    runs = {kind: Simulated(kind) for kind in _MACHINES}
    found = {kind: answer(machine.a, machine.b, machine.clock) for kind, machine in runs.items()}
    if any(ratio is None or ratio is ... for ratio in found.values()):
        return Verdict(False, NOT_YET)
    ratios = {kind: float(ratio) for kind, ratio in found.items()}
    drawing = [_drawn(runs, ratios)]
    for kind, hint in _MACHINES.items():
        if not abs(ratios[kind] / _TRUTHS[kind] - 1) <= _CLOSE:
            said = f"Not yet on {kind}: {ratios[kind]:.3g}, and b takes {_TRUTHS[kind]:g} times as long as a."
            return Verdict(False, f"{said} {hint}", drawing)
    return Verdict(True, f"Within {_CLOSE:.0%} of the truth on every machine.", drawing)


def _drawn(runs: dict[str, Simulated], ratios: dict[str, float]) -> Sweep:
    """Every call that the reader's function made, in order."""
    plots, lines = [], ["Your calls, and what you make of them:"]
    for kind, machine in runs.items():
        curves = []
        for number, name in enumerate("ab"):
            calls = [(i, 1e3 * seconds) for i, (called, seconds) in enumerate(machine.calls, 1) if called == name]
            if calls:
                x, y = zip(*calls, strict=True)
                curves.append(Curve(name, number, 0, x, y, y, y))
        plots.append(Plot(f"{kind}: yours {ratios[kind]:.3g}, true {_TRUTHS[kind]:g}", curves))
        order = "".join(name for name, _ in machine.calls)
        short = order if len(order) <= 60 else f"{order[:56]}… ({len(order)} calls)"
        lines.append(f"  {kind.ljust(17)} yours {ratios[kind]:<5.3g} true {_TRUTHS[kind]:g}   {short}")
    rows = [plots[:2], plots[2:]]
    return Sweep("Milliseconds of each call that you made", rows, [], [], "\n".join(lines), x="call")
