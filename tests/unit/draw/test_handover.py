"""States handed over: the lines join the rows that they say, and the wrong ones are marked."""

import re

import pytest
from drawings import ParsedSvg
from hypothesis import given
from hypothesis import strategies as st

import packviz as pv
from packviz.core.layout import sequence_name


@given(
    st.integers(1, 8).flatmap(lambda n: st.tuples(*[st.permutations(range(n))] * 2)), st.sampled_from(["light", "dark"])
)
def test_lines_join_the_same_sequence(orders, theme):
    states, rows = orders
    handover = pv.draw.Handover(states, rows)
    assert [states[j] for j in handover.taken] == list(rows)
    svg = handover.to_svg(theme)
    drawing = ParsedSvg(svg)
    assert not drawing.outside()
    wrong = sum(i != j for i, j in zip(states, rows, strict=True))
    assert drawing.said().count("✗") == wrong
    assert f"as the rows lie: {wrong} of {len(rows)} wrong" in drawing.said()
    lines = {
        tuple(map(float, c))
        for c in re.findall(r"M([\d.]+) ([\d.]+)C[\d.]+ [\d.]+ [\d.]+ [\d.]+ ([\d.]+) ([\d.]+)", svg)
    }
    assert len(lines) == 2 * len(rows)
    places = {(text.said, round(text.x > 400), text.y - 4): text for text in drawing.texts}
    for start, y0, _, y1 in lines:
        if start > 300:  # by sequence
            (one,) = [said for said, right, y in places if said.startswith("state of") and right and y == y0]
            (other,) = [said for said, right, y in places if said.startswith("target of") and right and y == y1]
            assert one[-1] == other[-1]
        else:
            assert y0 == y1


def test_in_words():
    assert repr(pv.draw.Handover([1, 0, 2], [0, 1, 2])) == (
        "state of → decoder of (✗ another sequence)\n"
        "as the rows lie: 2 of 3 wrong: b → a ✗, a → b ✗, c → c\n"
        "by sequence: all right: a → a, b → b, c → c"
    )
    assert sequence_name(0) == "a"


@pytest.mark.parametrize("orders", [([0, 1], [0, 2]), ([0, 0], [0, 0]), ([], []), ([0], [0, 0])])
def test_orders_of_other_sequences_are_refused(orders):
    with pytest.raises(ValueError, match="must hold the same sequences, each once"):
        pv.draw.Handover(*orders)
