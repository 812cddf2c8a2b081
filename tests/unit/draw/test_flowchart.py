"""Drawings of data flow: every box and arrow, none over another, whatever the graph."""

import re

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


def rectangles(svg):
    """The boxes of a drawing, in the order of their names: left, top, right, bottom."""
    root, number, found, names = ParsedSvg(svg).root, r"(-?[\d.]+)", [], []
    for element in root.iter():
        # The upper side, a corner, and the side down: a box is told by its round corners.
        for match in re.findall(
            rf"M{number} {number}h{number}a{number} \4 0 0 1 \4 \4v{number}a", element.get("d", "")
        ):
            x, y, across, r, down = map(float, match)
            found.append((x - r, y, x + across + r, y + down + 2 * r))
        if element.get("font-weight") == "bold" and element.get("text-anchor") == "middle":
            names += [
                (float(one.get("x")), float(one.get("y"))) for one in list(element) or [element] if one.text != "!"
            ]
    assert len(found) == len(names)
    return [next(box for box in found if box[0] < x < box[2] and box[1] < y < box[3]) for x, y in names]


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
def test_no_box_lies_over_another_and_all_are_inside(flow):
    for theme in THEMES:
        svg = flow.to_svg(theme)
        boxes, drawing = rectangles(svg), ParsedSvg(svg)
        assert len(boxes) == len(flow.boxes)
        for i, (left, top, right, bottom) in enumerate(boxes):
            assert left >= 0
            assert right <= drawing.width
            assert bottom <= drawing.height
            for other in boxes[:i]:
                assert left >= other[2] or right <= other[0] or top >= other[3] or bottom <= other[1]
        assert all(text.box.x >= 0 and text.box.right <= drawing.width for text in drawing.texts)
        for arrow in flow.arrows:  # top down
            assert boxes[arrow.source][3] <= boxes[arrow.target][1]


def test_a_size_beside_the_first_of_many_arrows_has_room():
    boxes = [Box("x", "input", "________"), Box("y", "input"), Box("a"), Box("b"), Box("c")]
    arrows = [Arrow(i, k) for i, k in ((0, 2), (1, 2), (1, 3), (2, 3), (0, 4), (1, 4))] + [Arrow(0, 3, size="(8, 3)")]
    drawing = ParsedSvg(Flow("a flow", boxes, arrows).to_svg())
    assert all(text.box.x >= 0 and text.box.right <= drawing.width for text in drawing.texts)


@given(flows())
def test_the_text_has_a_line_per_box(flow):
    lines = flow.to_text().splitlines()
    assert len(lines) == 1 + len(flow.boxes)
    assert sum(line.count("✗") for line in lines) == sum(bool(arrow.wrong) for arrow in flow.arrows)


def test_a_mark_is_not_on_the_side_that_its_arrow_comes_from():
    boxes = (Box("pack", "pack"), Box("left"), Box("right"))
    drawing = ParsedSvg(Flow("f", boxes, (Arrow(0, 1, True, "aten::relu"), Arrow(0, 2, True, "aten::max"))).to_svg())
    left, right = drawing.text("✗ aten::relu"), drawing.text("✗ aten::max")
    assert (left.anchor, right.anchor) == ("end", "")
    assert 0 <= left.box.x < left.box.right < right.box.x


def test_a_warning_is_marked_in_its_box_and_sizes_stand_at_arrows():
    boxes = (Box("pack", "pack", mark="!"), Box("LSTM", "rnn"), Box("return", "output"))
    arrows = (Arrow(0, 1, True, size="(8, 3)"), Arrow(1, 2, size="(1, 2, 7)"))
    flow = Flow("f", boxes, arrows)
    assert flow.to_text().splitlines()[1:] == ["! pack", "  LSTM ⇐ pack (8, 3)", "  return ← LSTM (1, 2, 7)"]
    drawing = ParsedSvg(flow.to_svg())
    left, _, right, _ = rectangles(flow.to_svg())[0]
    mark, name = drawing.text("!"), drawing.text("pack")
    assert left < name.box.right < mark.box.x < mark.box.right < right
    assert abs(mark.y - name.y) < 10
    sizes = drawing.text("(8, 3)"), drawing.text("(1, 2, 7)")
    assert name.y < sizes[0].y < drawing.text("LSTM").y < sizes[1].y < drawing.text("return").y


def test_arrows_turn_below_their_sizes():
    boxes = (Box("pack", "pack"), Box("left"), Box("right"))
    arrows = (Arrow(0, 1, size="(5,)"), Arrow(0, 2, size="(8, 3)"))
    svg = Flow("f", boxes, arrows).to_svg()
    drawing = ParsedSvg(svg)
    left, right = drawing.text("(5,)"), drawing.text("(8, 3)")
    turns = [(float(x), float(down)) for x, down in re.findall(r"M([\d.]+) [\d.]+v([\d.]+)C", svg)]
    lowest = left.box.bottom - drawing.text("pack").y - 14  # below the box, whose name stands 14 px above its foot
    assert all(down >= lowest for _, down in turns)
    assert left.box.right < turns[0][0] < turns[1][0] < right.box.x


def test_names_are_text_not_markup():
    svg = Flow("<b>", (Box("<lambda>", "operator", "a & b"),), ()).to_svg()
    assert ParsedSvg(svg).text("<lambda>")
