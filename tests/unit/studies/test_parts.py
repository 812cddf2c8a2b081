"""The parts of a packed training step: replaced one after the other, and what their shares add up to."""

from itertools import pairwise

import numpy as np
import pytest
from drawings import ParsedSvg
from hypothesis import given
from hypothesis import strategies as st

from packviz.draw.palette import THEMES
from packviz.measure.study import Results
from packviz.measure.timing import Timing
from packviz.studies import forum, parts
from packviz.studies.parts import REPLACED, TORCH

NAMES = [TORCH, *REPLACED.values()]
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
def test_each_share_begins_where_the_one_before_ends_and_is_hatched_if_saved(theme):
    chart = parts.chart({"": made(10.0, 6.0, 5.0, 1.0)})
    shares = "pad 40 %, pack 10 %, packed LSTM 40 %, the rest 10 %"
    assert chart.to_text().startswith(f"At 8 steps, a packed step consists of {shares}\n")
    drawing = ParsedSvg(chart.to_svg(theme))
    boxes = sorted((box for box in drawing.boxes if box.height == 20), key=lambda box: box.y)
    whole = sum(box.width for box in boxes)
    assert [box.width / whole for box in boxes] == pytest.approx([0.4, 0.1, 0.4, 0.1], abs=1e-3)
    assert all(left.right == pytest.approx(right.x, abs=0.02) for left, right in pairwise(boxes))
    hatched = [box.fill == THEMES[theme].padding for box in boxes]
    assert hatched == [True, True, True, False]
    assert not drawing.outside()


def test_where_a_part_ends_has_quartiles():
    seconds = {
        TORCH: (10.0, 10.0, 10.0),
        "pad replaced": (5.0, 6.0, 7.0),
        "pack too": (4.0, 4.0, 14.0),
        NAMES[-1]: (1.0, 1.0, 1.0),
    }
    results = Results(PLACE, {POINT: {"training": Timing(seconds)}})
    pad, pack, lstm, rest = parts._bars(results, POINT).values()
    assert pad.whisker == pytest.approx((0.35, 0.45))
    assert pack.whisker == pytest.approx((0.1, 0.6))
    assert lstm.whisker == pytest.approx((0.9, 0.9))
    assert rest.whisker is None


def test_several_machines_are_drawn_in_one_picture():
    machines = {"CPU": made(10.0, 6.0, 5.0, 1.0), "GPU": made(1.0, 0.5, 0.4, 0.3)}
    drawing = ParsedSvg(parts.chart(machines).to_svg())
    groups = [text[:12] for text in drawing.said() if ", 8 steps, " in text]
    assert groups == ["CPU, 8 steps", "GPU, 8 steps"]
    captions = [text for text in drawing.said() if "a test" in text]
    assert captions == [f"{name}: {machines[name].caption}." for name in machines]


def test_all_steps_give_the_same_logits_and_gradients():
    """They are compared before anything is timed."""
    point = forum.point("B", 5, 6)
    timing = parts.STUDY.run([point], rounds=3).timing(point)
    assert list(timing.seconds) == NAMES
    assert list(parts.replaced_steps(point, "cpu").alike) == NAMES
