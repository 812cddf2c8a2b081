"""Drawings of data flow: every box and arrow, none over another, whatever the graph."""

import re
from itertools import pairwise

from drawings import ParsedSvg
from hypothesis import given
from hypothesis import strategies as st

from packviz.draw.flowchart import Arrow, Box, Flow
from packviz.draw.palette import LIGHT, THEMES

BOXES = (
    Box("x", "input", "(5, 2, 3)"),
    Box("pack_padded_sequence", "pack", "line 2"),
    Box("LSTM", "rnn", "lstm, line 3"),
    Box("max", "operator", "line 4"),
    Box("return", "output", "line 4"),
)
FLOW = Flow(
    "Data flow",
    BOXES,
    (Arrow(0, 1), Arrow(1, 2, packed=True), Arrow(2, 3, True, "aten::max"), Arrow(2, 4), Arrow(3, 4)),
)


def test_in_words():
    assert FLOW.to_text() == (
        "Data flow (⇐ takes a PackedSequence, ← a tensor)\n"
        "  x (5, 2, 3), an input\n"
        "  pack_padded_sequence (line 2) ← x\n"
        "  LSTM (lstm, line 3) ⇐ pack_padded_sequence\n"
        "  max (line 4) ⇐ LSTM ✗ aten::max\n"
        "  return (line 4) ← LSTM, ← max"
    )


def test_packed_is_thick_and_wrong_is_dashed_marked_and_coloured():
    paths = re.findall(r'<path d="([^"]*)" (fill="none"[^>]*)>', FLOW.to_svg())
    assert sum(d.count("M") for d, _ in paths) == 5
    assert sum(d.count("M") for d, look in paths if 'stroke-width="3.5"' in look) == 2
    ((dashed, look),) = [(d, look) for d, look in paths if "stroke-dasharray" in look]
    assert dashed.count("M") == 1
    assert LIGHT.wrong in look
    assert ParsedSvg(FLOW.to_svg()).text("✗ aten::max").fill == LIGHT.wrong
    fine = Flow("f", BOXES, FLOW.arrows[:2])
    assert LIGHT.wrong not in fine.to_svg()
    assert "not allowed" not in fine.to_svg()


@st.composite
def flows(draw):
    n = draw(st.integers(0, 9))
    names = st.text("abcdefgh_", min_size=1, max_size=24)
    boxes = [Box(draw(names), draw(st.sampled_from(["input", "operator", "rnn"])), draw(names)) for _ in range(n)]
    pairs = [(i, k) for k in range(n) for i in range(k) if boxes[k].kind != "input"]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=12)) if pairs else []
    wrong = st.sampled_from(["", "", "aten::max"])
    sizes = st.sampled_from(["", "(8, 3)", "2 × (1, 128, 512) + 1"])
    arrows = [Arrow(i, k, draw(st.booleans()), draw(wrong), draw(sizes)) for i, k in chosen]
    return Flow("a flow", boxes, arrows)


@given(flows())
def test_arrows_lead_down_and_no_words_cover_others(flow):
    for theme in THEMES:
        drawing = ParsedSvg(flow.to_svg(theme))
        order = flow._rows()
        names = sorted(
            (text for text in drawing.texts if text.anchor == "middle" and text.size == 12), key=lambda t: t.y
        )
        assert [flow.boxes[order.index(row)].name for row in range(len(names))] == [name.said for name in names]
        assert all(lower.y - upper.y > 38 for upper, lower in pairwise(names))  # a box is 38 px high
        assert all(text.box.x >= 0 and text.box.right <= drawing.width for text in drawing.texts)
        assert all(order[arrow.source] < order[arrow.target] for arrow in flow.arrows)
        assert drawing.covered() == []


@given(flows())
def test_the_text_has_a_line_per_box(flow):
    lines = flow.to_text().splitlines()
    assert len(lines) == 1 + len(flow.boxes)
    assert sum(line.count("✗") for line in lines) == sum(bool(arrow.wrong) for arrow in flow.arrows)


def test_a_warning_is_marked_in_its_box_and_sizes_stand_at_arrows():
    boxes = (Box("pack", "pack", mark="!"), Box("LSTM", "rnn"), Box("return", "output"))
    arrows = (Arrow(0, 1, True, size="(8, 3)"), Arrow(1, 2, size="(1, 2, 7)"))
    flow = Flow("f", boxes, arrows)
    assert flow.to_text().splitlines()[1:] == ["! pack", "  LSTM ⇐ pack (8, 3)", "  return ← LSTM (1, 2, 7)"]
    drawing = ParsedSvg(flow.to_svg())
    mark, name = drawing.text("!"), drawing.text("pack")
    assert name.box.right < mark.box.x
    assert abs(mark.y - name.y) < 10
    heights = [drawing.text(said).y for said in ("pack", "(8, 3)", "LSTM", "(1, 2, 7)", "return")]
    assert heights == sorted(heights)
