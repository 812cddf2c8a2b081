"""The parts of a packed training step: replaced one after the other, and what their shares add up to."""

from itertools import pairwise

import numpy as np
import pytest
from drawings import ParsedSvg
from hypothesis import given
from hypothesis import strategies as st

from packviz.draw.palette import THEMES
from packviz.measure.timing import Timing
from packviz.studies import parts
from packviz.studies.parts import REPLACED, TORCH, Parts, PartsPoint

NAMES = [TORCH, *REPLACED.values()]
POINT = PartsPoint(8, 4)


def made(*seconds):
    place = {"device_name": "a test", "torch": "9", "threads": 1}
    return Parts(
        place, {POINT: Timing({name: (s,) * 6 for name, s in zip(NAMES, seconds, strict=True)})}
    )


@given(st.lists(st.floats(0.1, 100), min_size=4, max_size=4))
def test_shares_are_never_negative_and_add_up(seconds):
    shares = made(*seconds).shares(POINT)
    assert all(share >= 0 for share in shares.values())
    assert sum(shares.values()) == pytest.approx(1)
    if seconds == sorted(seconds, reverse=True):  # nothing is turned round by noise
        assert [*shares.values()] == pytest.approx(
            [*(-np.diff(seconds) / seconds[0]), seconds[-1] / seconds[0]]
        )


def test_in_words():
    said = "pad 40 %, pack 10 %, packed LSTM 40 %, the rest 10 %."
    lines = repr(made(10.0, 6.0, 5.0, 1.0)).splitlines()
    assert lines[0] == f"At 8 steps, a packed step consists of {said}"
    assert lines[4].split() == ["pad", "replaced", "6,000", "0.6", "(0.6", "to", "0.6)"]
    assert (lines[7], lines[-1]) == (
        f"Shares: {said}",
        "Measured on a test (CPU), torch 9, 1 thread, 6 rounds.",
    )


@pytest.mark.parametrize("theme", THEMES)
def test_each_share_begins_where_the_one_before_ends_and_what_is_wasted_is_hatched(theme):
    drawing = ParsedSvg(parts.ByMachine({"": made(10.0, 6.0, 5.0, 1.0)}).to_svg(theme))
    bars = sorted((box for box in drawing.boxes if box.height == 20), key=lambda box: box.y)
    whole = sum(bar.width for bar in bars)
    assert [bar.width / whole for bar in bars] == pytest.approx([0.4, 0.1, 0.4, 0.1], abs=1e-3)
    assert all(one.right == pytest.approx(other.x, abs=0.02) for one, other in pairwise(bars))
    assert [bar.fill == THEMES[theme].padding for bar in bars] == [True, True, True, False]
    assert [said for said in drawing.said() if said.endswith(" %") and len(said) == 4] == [
        "40 %",
        "10 %",
        "40 %",
        "10 %",
    ]
    assert not drawing.outside()


def test_where_a_part_ends_has_quartiles():
    place = {"device_name": "a test", "torch": "9", "threads": 1}
    seconds = {
        TORCH: (10.0, 10.0, 10.0),
        "pad replaced": (5.0, 6.0, 7.0),
        "pack too": (4.0, 4.0, 14.0),
    }
    found = Parts(place, {POINT: Timing(seconds | {NAMES[-1]: (1.0, 1.0, 1.0)})})
    pad, pack, lstm, rest = found.bars(POINT).values()
    assert pad.whisker == pytest.approx((0.35, 0.45))
    assert pack.whisker == pytest.approx((0.1, 0.6))
    assert lstm.whisker == pytest.approx((0.9, 0.9))
    assert rest.whisker is None


def test_several_machines_stand_in_one_picture():
    found = {"CPU": made(10.0, 6.0, 5.0, 1.0), "GPU": made(1.0, 0.5, 0.4, 0.3)}
    drawing = ParsedSvg(parts.ByMachine(found).to_svg())
    assert [said[:12] for said in drawing.said() if ", 8 steps, " in said] == [
        "CPU, 8 steps",
        "GPU, 8 steps",
    ]
    assert [said for said in drawing.said() if "a test" in said] == [
        f"{name}: {found[name].caption}." for name in found
    ]
    assert not drawing.outside()
    assert repr(parts.ByMachine(found)) == f"{found['CPU']}\n\n{found['GPU']}"


def test_all_of_them_take_the_same_step():
    """Logits and gradients are compared before anything is timed."""
    found = parts.run([PartsPoint(5, 6)], rounds=3)
    (timing,) = found.values.values()
    assert list(timing.seconds) == NAMES
    assert list(parts.replaced_steps(PartsPoint(5, 6), "cpu").alike) == NAMES
