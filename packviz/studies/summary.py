"""What a recording says in few numbers: those that the notebooks' texts are about."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from packviz.bench.timing import RATIOS, Timing
from packviz.draw.table import Table
from packviz.draw.text import milliseconds
from packviz.studies import race
from packviz.studies.forum.points import PASSES, At

_RACES = (
    race.Point("LSTM", "triangle", 512, 512, 16, 32),
    race.Point("LSTM", "evenly", 128, 200, 128, 256),
    race.Point("GRU", "uniform", 64, 128, 32, 64),
)
_PACKED = [race.Point("none", "triangle", 512, steps, 32, 32) for steps in (128, 256, 512)]


def summary(found: Mapping[str, Any]) -> Table | None:
    """Ratios with quartiles, each within the rounds of one run, and memory.

    Args:
        found: results of studies, by name: of `benchmark` and `race` as far as they are there.

    Returns:
        A table; none where there is nothing to say.
    """
    rows = [*_of_benchmark(found.get("benchmark")), *_of_race(found.get("race"))]
    captions = list(dict.fromkeys(found[name].caption for name in ("benchmark", "race") if name in found))
    notes = [RATIOS, *(f"Measured on {caption}." for caption in captions)]
    head = ["", "ms", "÷", "ms", "ratio", "quartiles", "memory"]
    return Table(rows, head, "In a few numbers", notes, form="<  >  <  >  >  <  >") if rows else None


def _of_benchmark(found: Any) -> Iterator[list[str]]:
    """The forum's network at its largest."""
    for setup in "BA":
        if not found or At(setup, 512) not in found.values:
            continue
        for which, timing in found.timed(found.point(setup, 512)).items():
            for name, to in (("packed", "padded"), ("packed", "run"), ("run", "padded")):
                if {name, to} <= timing.seconds.keys():
                    said = f"forum's network, setup {setup}, 512 time steps, {which}: {name}"
                    yield _row(said, timing, name, to)


def _of_race(found: Any) -> Iterator[list[str]]:
    for which in PASSES:
        for point in (*_PACKED, *_RACES):
            if not found or point not in found.values:
                continue
            pairs = [(race.PACKED, race.AUTO), (race.AUTO, race.PADDED)]
            timing = found.values[point][which]
            for name, to in [(race.PACKED, race.OURS)] if point.mode == "none" else pairs:
                if {name, to} <= timing.seconds.keys():
                    yield _row(f"{point}, {which}: {name}", timing, name, to)


def _row(said: str, timing: Timing, name: str, to: str) -> list[str]:
    ratio, (ours, theirs) = timing.ratio(name, to), map(timing.memory.get, (name, to))
    times = milliseconds(timing.median(name)), to, milliseconds(timing.median(to))
    spread = f"{ratio.low:.3g} to {ratio.high:.3g}" + ", not told apart" * (not ratio.is_clear)
    return [said, *times, f"{ratio.value:.3g}", spread, f"× {ours / theirs:.3g}" if ours and theirs else "–"]
