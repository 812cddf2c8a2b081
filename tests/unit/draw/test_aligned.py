"""Small grids of cells: batches with padding on either side and the panel that moves it, attention,
vectors.
"""

import numpy as np
import pytest
import torch
from controls import move
from drawings import ParsedSvg
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import packviz as pv
from packviz.draw import palette
from packviz.draw.aligned import Aligned
from packviz.draw.palette import SEQUENCE_FILLS
from packviz.draw.text import format_difference
from packviz.panels import AlignPanel
from packviz.panels.align import ZERO_PLACES, guess_alignment

batches = st.lists(st.integers(1, 16), min_size=1, max_size=16)


def batch(lengths, side="right", **options):
    x = torch.arange(1, 1 + len(lengths) * max(lengths)).reshape(len(lengths), -1)
    return Aligned.of(x, lengths, padding_side=side, title="title", batch_first=True, **options)


def test_in_words():
    x = np.array([[0, 0, 7, 8], [1.5, -0.25, 3, 0]])
    picture = Aligned.of(
        x,
        [2, 3],
        padding_side="left",
        title="moved",
        batch_first=True,
        like=np.array([[0, 0, 7, 9], x[1]]),
    )
    assert picture.to_text().splitlines() == [
        "moved (· marks padding, ! marks a wrong cell)",
        " a    ·0     ·0  7  !8",
        " b  ·1.5  -0.25  3   0",
    ]
    assert (
        Aligned.of(x.T, [2, 3], padding_side="left")
        .to_text()
        .startswith("padded batch (· marks padding)\n a ")
    )


@given(batches, st.sampled_from(["left", "right"]))
def test_every_real_cell_has_its_colour_and_no_other(lengths, side):
    picture = batch(lengths, side)
    drawing = ParsedSvg(picture.to_svg())
    cells = [box for box in drawing.boxes if box.fill in SEQUENCE_FILLS]
    assert len(cells) == sum(lengths)
    tops = sorted({box.y for box in drawing.boxes if box.stroke})
    left = min(box.x for box in drawing.boxes if box.stroke)
    for b, n in enumerate(lengths):
        row = sorted(box for box in cells if box.y == tops[b])
        assert {box.fill for box in row} == {palette.sequence_colour(b)}
        start = 0 if side == "right" else max(lengths) - n
        assert [round((box.x - left) / box.width) for box in row] == list(range(start, start + n))
    padding = [box for box in drawing.boxes if box.fill == palette.LIGHT.padding]
    hatched = [box for box in padding if box.stroke]  # the boxes behind numbers have no outline
    assert len(hatched) == len(lengths) * max(lengths) - sum(lengths)
    assert not drawing.outside()


def test_wrong_cells_are_framed():
    x = torch.tensor([[1, 2, torch.nan]])
    picture = Aligned.of(x, [2], batch_first=True, like=torch.tensor([[1, 9, torch.nan]]))
    wrong = [box for box in ParsedSvg(picture.to_svg()).boxes if box.stroke == palette.LIGHT.wrong]
    assert len(wrong) == 1
    assert picture.wrong.tolist() == [[False, True, False]]


@pytest.mark.parametrize(
    ("shape", "lengths", "options", "message"),
    [
        (
            (3, 2),
            [1, 2],
            {"like": torch.ones(3, 1)},
            r"like must have the shape of x, \(3, 2\), got \(3, 1\)",
        ),
        (
            (3, 2),
            [1, 2],
            {"padding_side": "up"},
            "padding_side is 'up'; choose one of 'right', 'left'",
        ),
        (
            (2, 3),
            torch.ones(3, 2).bool(),
            {"padding_side": "left"},
            "'left', but a mask shows where the padding is",
        ),
        ((2, 3, 4), [1, 2], {}, r"x must be \(T, B\), one number per cell, got shape"),
        ((17, 3), [1] * 3, {}, r"x has shape \(17, 3\); give at most 16 seq"),
        (
            (3, 2),
            [1] * 3,
            {},
            r"B = 3, but x of shape \(3, 2\), read as \(T, B, …\), has B = 2; did you mean",
        ),
        ((3, 2), torch.ones(3, 2).bool(), {}, r"is a mask of shape \(3, 2\), but x needs"),
    ],
)
def test_refusals(shape, lengths, options, message):
    with pytest.raises(ValueError, match=message):
        Aligned.of(torch.ones(shape), lengths, **options)


# Attention weights.


@st.composite
def attentions(draw):
    steps = draw(st.integers(1, 16))
    length = draw(st.integers(1, steps))
    torch.manual_seed(draw(st.integers(0, 99)))
    scores = 3 * torch.randn(steps, steps)
    masked = scores.masked_fill(torch.arange(steps) >= length, -torch.inf)
    return pv.draw.Attention(
        length, {"blind": scores.softmax(1), "masked": masked.softmax(1)}, "weights of a"
    )


@given(attentions(), st.sampled_from(["light", "dark"]))
def test_what_is_drawn_is_what_the_weights_say(attention, theme):
    drawing = ParsedSvg(attention.to_svg(theme))
    assert not drawing.outside()
    blind, _ = attention.maps.values()
    steps, n = len(blind), attention.length
    assert np.allclose(attention.lost("blind"), 1 - blind[:n, :n].sum(1), atol=1e-6)
    assert attention.lost("masked") == [0] * n
    boxes = [box for box in drawing.boxes if box.height == 24]
    assert len(boxes) == 2 * n * steps
    assert sum(box.fill == palette.THEMES[theme].padding for box in boxes) == 2 * n * (steps - n)
    shades = [palette.RAMP.index(box.fill) for box in boxes if box.fill in palette.RAMP]
    assert len(shades) == 2 * n * n
    said = [text.said for text in drawing.texts if text.said.endswith("%")]
    assert sorted(said) == sorted(
        f"{100 * w:.0f}".rjust(3) + " %" for w in [*attention.lost("blind"), *[0] * n]
    )


def test_the_maps_of_a_picture_share_one_scale():
    maps = {"little": [[0.8, 0.2], [0.5, 0.5]], "much": [[0.2, 0.8], [0.5, 0.5]]}
    drawing = ParsedSvg(pv.draw.Attention(1, maps).to_svg())
    little, much = [box.width for box in drawing.boxes if box.fill == palette.REAL]
    assert little == pytest.approx(much / 4)


@pytest.mark.parametrize(
    ("length", "maps"),
    [
        (1, {}),
        (1, {"a": torch.zeros(2, 3)}),
        (1, {"a": torch.zeros(2, 2), "b": torch.zeros(3, 3)}),
        (3, {"a": torch.zeros(2, 2)}),
        (0, {"a": torch.zeros(2, 2)}),
        (2, {"a": torch.zeros(17, 17)}),
    ],
)
def test_weights_that_do_not_fit_are_refused(length, maps):
    with pytest.raises(
        ValueError,
        match=r"maps must be one or more \(T, T\) arrays of the same size",
    ):
        pv.draw.Attention(length, maps)


# Vectors.


@given(
    arrays(
        float, st.tuples(st.integers(1, 5), st.integers(1, 16)), elements=st.floats(-3, 3, width=32)
    )
)
def test_numbers_and_distances(vectors):
    strips = pv.draw.Strips({f"v{i}": vector for i, vector in enumerate(vectors)}, "Title")
    apart = [torch.dist(torch.tensor(v), torch.tensor(vectors[0])).item() for v in vectors]
    largest = max(np.abs(v).max() for v in vectors)
    assert strips.distances == pytest.approx(apart, abs=max(1.01e-5 * largest, 1e-12))
    for theme in palette.THEMES:
        drawing = ParsedSvg(strips.to_svg(theme))
        assert not drawing.outside()
    lines = strips.to_text().splitlines()[2:]
    for line, vector, distance in zip(lines, vectors, strips.distances, strict=True):
        name, *cells, last = line.split()
        assert [float(cell) for cell in cells] == pytest.approx(vector, abs=0.0051)
        assert last == ("=" if distance == 0 else format_difference(distance))
        assert name in drawing.said()
        assert set(cells) <= set(drawing.said())


def test_cells_have_numbers_or_names():
    vectors = {"x": [0.0, 1]}
    assert {"unit", "0", "1"} <= set(ParsedSvg(pv.draw.Strips(vectors).to_svg()).said())
    named = pv.draw.Strips(vectors, axis=["a0", "b0"])
    assert {"a0", "b0"} <= set(ParsedSvg(named.to_svg()).said())
    assert named.to_text().split()[:2] == ["a0", "b0"]
    with pytest.raises(ValueError, match="give a name for each number of a vector, 2 in all"):
        pv.draw.Strips(vectors, axis=["a0"])


@pytest.mark.parametrize(
    "vectors", [{}, {"x": [1.0], "y": [1.0, 2]}, {"x": [[1.0]]}, {"x": [0.0] * 17}, {"x": []}]
)
def test_vectors_that_do_not_fit_are_refused(vectors):
    with pytest.raises(
        ValueError,
        match="the vectors have the shapes: ",
    ):
        pv.draw.Strips(vectors)


# The panel.


def test_the_guess():
    x = torch.tensor([[0, 0, 7, 8, 0, 0], [0, 0, 0, 0, 0, 0], [1, 2, 3, 4, 5, 6]])
    assert guess_alignment(x, "right").tolist() == [[7, 8, 0, 0, 0, 0], [0] * 6, [1, 2, 3, 4, 5, 6]]
    assert guess_alignment(x, "left").tolist() == [[0, 0, 0, 0, 7, 8], [0] * 6, [1, 2, 3, 4, 5, 6]]


@given(
    st.sampled_from(ZERO_PLACES),
    st.sampled_from(["left", "right"]),
    st.sampled_from(["left", "right"]),
)
def test_the_panel_says_where_the_guess_is_wrong(zeros, before, after):
    panel = AlignPanel()
    for control, value in (
        (panel.typed, "4, 6, 3"),
        (panel.zeros, zeros),
        (panel.source_side, before),
        (panel.padding_side, after),
    ):
        move(control, value)
    said = panel.to_text()
    assert f"x: padding on the {before} (" in said
    assert f"padding on the {after}, by lengths (" in said
    assert (panel.wrong_cells > 0) == ("!" in said) == ("✗ guessed" in said)
    assert (panel.wrong_cells > 0) == (
        {"none": "", ZERO_PLACES[1]: "right", ZERO_PLACES[2]: "left"}[zeros] == after
    )


def test_the_panel_moves_by_align():
    panel = AlignPanel([3, 2], source_side="right", padding_side="left", zeros="none")
    x = torch.tensor([[1, 2, 3], [1, 2, 0]])
    moved = pv.align(x, [3, 2], padding_side="left", batch_first=True)
    title = "✓ padding on the left, by lengths"
    target = Aligned.of(moved, [3, 2], padding_side="left", title=title, batch_first=True)
    assert target.to_text() in panel.to_text()
