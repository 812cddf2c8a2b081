"""The parts of a packed training step: replaced one by one, and their shares."""

import numpy as np
import pytest
from drawings import ParsedSvg
from hypothesis import given
from hypothesis import strategies as st

from packviz.draw.palette import THEMES
from packviz.measure.study import Results
from packviz.measure.timing import Timing
from packviz.studies import forum, parts
from packviz.studies.parts import STEP_NAMES_BY_PART, TORCH

NAMES = [TORCH, *STEP_NAMES_BY_PART.values()]
POINT = forum.point("B", 8, 4)
PLACE = {"device_name": "a test", "torch": "9", "threads": 1}


def made(*seconds):
    timing = Timing({name: (s,) * 6 for name, s in zip(NAMES, seconds, strict=True)})
    return Results(PLACE, {POINT: {"training": timing}})


@given(st.lists(st.floats(0.1, 100), min_size=4, max_size=4))
def test_shares_are_never_negative_and_add_up(seconds):
    shares = parts.shares(made(*seconds), POINT)
    assert all(share >= 0 for share in shares.values())
    assert sum(shares.values()) == pytest.approx(1)
    if seconds == sorted(seconds, reverse=True):  # no replacement seems to cost time
        expected = [*(-np.diff(seconds) / seconds[0]), seconds[-1] / seconds[0]]
        assert [*shares.values()] == pytest.approx(expected)


@pytest.mark.parametrize("theme", THEMES)
def test_all_steps_are_drawn_on_one_scale(theme):
    values = {}
    for steps, seconds in [(8, (10.0, 6.0, 5.0, 1.0)), (16, (40.0, 20.0, 20.0, 2.0))]:
        (value,) = made(*seconds).values.values()
        values[forum.point("B", steps, 4)] = value
    chart = parts.chart({"": Results(PLACE, values)})
    title, first, second, *_ = chart.to_text().splitlines()
    slow = "pad and the packed LSTM take 95 % of a packed step"
    assert title == f"At 16 steps, {slow}: 40,000 ms, and 2,000 ms with pv.run"
    listed = "pad 40 %, pack 10 %, packed LSTM 40 %, the rest 10 %"
    assert first == f"8 steps: 10,000 ms ({listed}), 1,000 ms with pv.run"
    assert second.startswith("16 steps: 40,000 ms (pad 50 %, pack 0 %,")
    drawing = ParsedSvg(chart.to_svg(theme))
    boxes = sorted(
        (box for box in drawing.boxes if box.height == 20), key=lambda box: (box.y, box.x)
    )
    widths = [box.width for box in boxes if box.width > 0.1]
    assert [w / widths[0] * 4 for w in widths] == pytest.approx(
        [4, 1, 4, 1, 1, 20, 18, 2, 2], abs=0.01
    )
    assert not drawing.outside()


def test_the_total_has_quartiles():
    seconds = dict.fromkeys(NAMES, (5.0, 6.0, 7.0))
    results = Results(PLACE, {POINT: {"training": Timing(seconds)}})
    assert [bar.whisker for bar in parts._step_bars(results, POINT).values()] == [(5.5, 6.5)] * 2


def test_several_machines_are_drawn_in_one_picture():
    machines = {"CPU": made(10.0, 6.0, 5.0, 1.0), "GPU": made(1.0, 0.5, 0.4, 0.3)}
    drawing = ParsedSvg(parts.chart(machines).to_svg())
    groups = [text[:12] for text in drawing.said() if ", 8 steps" in text]
    assert groups == ["CPU, 8 steps", "GPU, 8 steps"]
    captions = [text for text in drawing.said() if "a test" in text]
    assert captions == [f"{name}: {machines[name].caption}." for name in machines]


def test_all_steps_give_the_same_logits_and_gradients():
    """They are compared before anything is timed."""
    point = forum.point("B", 5, 6)
    timing = parts.STUDY.run([point], rounds=3).timing(point)
    assert list(timing.seconds) == NAMES
    assert list(parts.make_comparison(point, "cpu").agreeing_calls) == NAMES
