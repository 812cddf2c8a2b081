"""Drawings of autograd graphs: every node is there, says what it did, and covers no other."""

from itertools import pairwise

import pytest
from drawings import ParsedSvg
from hypothesis import given
from hypothesis import strategies as st

from packviz.count import profile
from packviz.draw import graphs, palette
from packviz.draw.graphs import Graph, Node

themes = st.sampled_from(sorted(palette.THEMES))


def chain(d, whole=1000):
    """What autograd records for `d` distinct lengths, made by hand: CopySlices → … with View and Slice below each."""
    nodes, end = [], 3 * d
    for i in range(d):
        on = 3 * (i + 1) if i + 1 < d else None
        nodes.append(Node("CopySlices", (("copy_", whole), ("clone", 10)), (on, 3 * i + 1)))
        nodes.append(Node("ViewBackward", (), (3 * i + 2,)))
        nodes.append(Node("SliceBackward", (("slice_backward", whole // 2),), (end,)))
    return Graph(
        "made by hand",
        (*nodes, Node("AccumulateGrad", (("add", whole // 2),) * (d - 1), ())),
        whole,
    )


def frames(drawing):
    """The frames of the nodes: the bars in them are lower."""
    return [box for box in drawing.boxes if box.height == 24]


@given(st.integers(1, 40), themes)
def test_every_node_has_its_box(d, theme):
    drawing = ParsedSvg(chain(d).to_svg(theme))
    drawn, few = frames(drawing), d <= graphs.MOST
    assert len(drawn) == (3 * d + 1 if few else 3 * (graphs.MOST - 1) + 1)
    assert any(f"… {d - graphs.MOST + 1} more …" == text.said for text in drawing.texts) != few
    assert all(one.bottom < other.y for one, other in pairwise(drawn))
    assert all(
        0 <= box.x < box.right <= drawing.width and box.bottom <= drawing.height for box in drawn
    )
    assert len({box.x for box in drawn}) == 2, "what branches off is moved to the right"
    for text in drawing.texts:
        inside = [b for b in drawn if b.x <= text.x <= b.right and b.y <= text.y <= b.bottom]
        assert all(b.x <= text.box.x + 1 and text.box.right <= b.right + 1 for b in inside)


def test_of_a_chain_the_slices_are_solid_and_the_rest_is_hatched():
    """What a node is there for, in torch's own graph: its slice once taken out, and once put in."""
    lengths = [5, 4, 2, 2]
    pad = profile.count(lengths, 8).pad
    if pad.formula:
        pytest.skip(f"changed upstream: {pad.verdict}")
    useful = {
        name: [node.useful for node in pad.graph().nodes if node.name == name]
        for name in ("CopySlices", "SliceBackward", "ViewBackward")
    }
    row = 8 * 4  # bytes of a cell
    slices = [row * (a - b) * n for a, b, n in ((5, 4, 1), (4, 2, 2), (2, 0, 4))]
    assert useful == {"CopySlices": slices, "SliceBackward": slices, "ViewBackward": [None] * 3}
    assert [node.useful for node in pad.graph().nodes if node.name == "AccumulateGrad"] == [0]
    drawing, words = ParsedSvg(pad.graph().to_svg()), pad.graph().to_text()
    said = drawing.said()
    assert all(said.count(name) == words.count(f" {name} ") == 3 for name in useful)
    assert "2 × copy_ 672 B, clone 32 B, zeros_like 32 B" in words
    assert "adds up 3 gradients of the input" in said
    bars = [box for box in drawing.boxes if box.height == 10]
    solid, hatched = (
        sum(b.width for b in bars if (b.fill == graphs._BAR) == kind) for kind in (True, False)
    )
    written = sum(node.bytes for node in pad.graph().nodes)
    assert solid / (solid + hatched) == pytest.approx(2 * sum(slices) / written, rel=0.02)
    assert "written for nothing" in drawing.said()
    assert (
        "written for nothing"
        not in ParsedSvg(profile.count(lengths, 8).pack.graph().to_svg()).said()
    )


def test_columns_follow_the_edges():
    assert chain(3).columns == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert chain(1).columns == [[0, 1, 2]]
    assert profile.count([3, 1]).pack.graph().columns == [[0]]


names = st.sampled_from([*graphs.DOES, "AccumulateGrad", "SomethingNobodyKnowsBackward" * 2, "<&>"])
operators = st.lists(
    st.tuples(st.sampled_from(["copy_", "add", "<x>"]), st.integers(0, 10**13)), max_size=6
)


@st.composite
def any_graph(draw):
    """Nodes whose edges lead forward, as autograd's do."""
    n = draw(st.integers(1, 12))
    nodes = []
    for i in range(n):
        on = draw(st.lists(st.one_of(st.none(), st.integers(i + 1, n)), max_size=3))
        nodes.append(
            Node(draw(names), tuple(draw(operators)), tuple(None if j == n else j for j in on))
        )
    return Graph(
        draw(st.text(min_size=1, max_size=200)), tuple(nodes), draw(st.integers(0, 10**13))
    )


@given(any_graph(), themes)
def test_whatever_torch_records_can_be_drawn(graph, theme):
    drawing = ParsedSvg(graph.to_svg(theme))
    assert graph.to_text() == repr(graph)
    assert all(text.box.right <= drawing.width + 1 for text in drawing.texts)
