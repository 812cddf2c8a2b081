"""The race on a grid that nothing was tuned to: other RNNs and batches than those of calibration and of the race.

Nine RNNs and five kinds of lengths, one of them a single sequence. Everybody takes part as in the race.

`packviz study untuned --threads 2 --out FILE` runs it and prints the table.
"""

from __future__ import annotations

from packviz.bench.study import Study
from packviz.studies.race import STUDY as RACE
from packviz.studies.race import Point, Race

_SIZES = ((24, 40, 1, 64, 150), (100, 100, 2, 128, 60), (48, 96, 1, 32, 80))  # I, H, directions, B, T
_KINDS = ("evenly", "uniform", "log-normal", "nearly equal", "equal")  # the last of a single sequence

STUDY = Study(
    "untuned",
    Point,
    RACE.measure,
    Race,
    full=[
        Point(mode, kind, 1 if kind == "equal" else batch, steps, inputs, hidden, directions)
        for mode in ("LSTM", "GRU", "RNN")
        for inputs, hidden, directions, batch, steps in _SIZES
        for kind in _KINDS
    ],
    quick=[Point(mode, "uniform", 4, 16, 8, 12) for mode in ("LSTM", "GRU", "RNN")],
    parameters={"budget": 1.0},
    read=RACE.read,
    write=RACE.write,
)
run, recorded = STUDY.run, STUDY.load
