"""Tests of the picture of a batch: what must hold for any batch."""

from types import SimpleNamespace

import numpy as np
import pytest
from contrast import contrast
from drawings import ParsedSvg
from hypothesis import example, given
from hypothesis import strategies as st

from packviz.core import lengths as sources
from packviz.core.layout import Layout
from packviz.draw import batch_picture, palette, text
from packviz.draw.palette import DARK, LIGHT, SEQUENCE_FILLS

small = st.lists(st.integers(1, 16), min_size=1, max_size=16)
large = st.lists(st.integers(1, 600), min_size=17, max_size=120)
words = st.text(st.characters(codec="utf-8"), max_size=20)


def svg(lengths, *labels, theme="light", **choices):
    view = batch_picture.BatchView(Layout(lengths), *labels, **choices)
    return batch_picture.draw(view, theme).svg()


def drawn(*batch, **choices):
    return ParsedSvg(svg(*batch, **choices))


def parts(layout, **choices):
    """Returns the rectangles in a sequence's colour, by the part of the picture."""
    drawing = drawn(layout, **choices)
    steps, data = drawing.text("packed: longest first"), drawing.text("data: ")
    beside = steps.y == 14  # else the steps are below the padded grid
    boxes = SimpleNamespace(padded=[], steps=[], data=[], drawing=drawing)
    for box in drawing.boxes:
        if box.fill not in SEQUENCE_FILLS:
            continue
        if box.y > data.y:
            boxes.data.append(box)
        elif box.x >= steps.x if beside else box.y > steps.y:
            boxes.steps.append(box)
        else:
            boxes.padded.append(box)
    return boxes


def places(boxes, grid):
    """Returns the row and the column of boxes in a grid, whose first box is at the top left."""
    left, top = min(box.x for box in grid), min(box.y for box in grid)
    width, height = grid[0].width, grid[0].height
    return [(round((b.y - top) / height), round((b.x - left) / width)) for b in boxes]


def label_in(drawing, box):
    """Returns the text in the middle of a cell."""
    x, y = box.x + box.width / 2, box.y + box.height / 2 + 4
    inside = [t for t in drawing.texts if t.y == y and abs(t.x - x) < 0.1 and t.anchor == "middle"]
    return inside[0] if inside else None


# The cells.


@given(small, st.integers(0, 3))
def test_every_cell_is_drawn_once_in_each_part(lengths, extra):
    layout = Layout(lengths, min(max(lengths) + extra, 16))
    boxes = parts(layout)
    for part in (boxes.padded, boxes.steps, boxes.data):
        assert len(set(part)) == len(part) == layout.n_real
    cells = dict(zip(places(boxes.padded, boxes.padded), boxes.padded, strict=True))
    assert sorted(cells) == [(b, t) for b, t in np.argwhere(layout.mask)]
    assert all(box.fill == palette.sequence_colour(b) for (b, _), box in cells.items())
    steps = dict(zip(places(boxes.steps, boxes.steps), boxes.steps, strict=True))
    ranks = [(rank, t) for t, size in enumerate(layout.batch_sizes) for rank in range(size)]
    colours = [palette.sequence_colour(b) for b in layout.source[:, 0]]
    assert [steps[place].fill for place in ranks] == colours
    hatched = [box for box in boxes.drawing.boxes if box.fill == LIGHT.padding]
    assert sorted(places(hatched, boxes.padded)) == [(b, t) for b, t in np.argwhere(~layout.mask)]


@given(large, st.integers(0, 50))
def test_bars_are_as_long_as_their_sequences(lengths, extra):
    layout = Layout(lengths, max(lengths) + extra)
    boxes = parts(layout)
    grid = next(box for box in boxes.drawing.boxes if box.fill == LIGHT.padding)
    step, orders = grid.width / layout.max_len, (range(len(lengths)), layout.sorted_indices)
    for bars, order in zip((boxes.padded, boxes.steps), orders, strict=True):
        rows = sorted(bars, key=lambda box: box.y)
        assert [box.fill for box in rows] == [palette.sequence_colour(int(b)) for b in order]
        widths = [step * lengths[b] for b in order]
        assert [box.width for box in rows] == pytest.approx(widths, abs=0.02)


@given(large)
def test_batch_sizes_of_a_large_batch_are_below_their_steps(lengths):
    layout = Layout(lengths)
    drawing = drawn(layout)
    left, y = drawing.text("packed: longest").x, drawing.text("batch_sizes").y
    step = next(b.width for b in drawing.boxes if b.fill == LIGHT.padding) / layout.max_len
    sizes = [t for t in drawing.texts if t.anchor == "middle" and t.y == y]
    assert len(sizes) > 1 or layout.max_len < 10
    for size in sizes:
        assert int(size.said) == layout.batch_sizes[round((size.x - left) / step - 0.5)]


# Flat rows, and lists of indices.


@given(st.lists(st.integers(1, 5), min_size=1, max_size=5))
def test_flat_rows_are_below_the_packed_rows(lengths):
    layout = Layout(lengths)
    boxes = parts(layout, flat=True)
    tops = sorted({box.y for box in boxes.data})
    rows = [sorted(box for box in boxes.data if box.y == y) for y in tops]
    labels = [[label_in(boxes.drawing, box).said for box in row] for row in rows]
    for places_, named in zip((layout.source, np.argwhere(layout.mask)), labels, strict=True):
        assert named == [f"{'abcde'[b]}{t}" for b, t in places_]
    assert [box.x for box in rows[0]] == [box.x for box in rows[1]]
    flat = boxes.drawing.text("flat").y
    starts = [
        t for t in sorted(boxes.drawing.texts, key=lambda t: t.x) if tops[1] + 24 < t.y < flat
    ]
    assert [t.said for t in starts] == [*map(str, layout.starts), "starts"]


@given(small)
def test_indices_are_beside_their_rows(lengths):
    layout = Layout(lengths)
    drawing = drawn(layout, indices=True)
    above, below = drawing.text("unsorted_indices"), drawing.text("sorted_indices")
    if above.y > 40:  # the panels are not side by side
        said = [line.said.replace("\xa0", " ") for line in (below, above)]
        assert said == text.index_lines(layout)
        return
    between = [t for t in drawing.texts if above.x < t.x < below.x + 34 and t.said.isdigit()]
    rows = [t for t in between if 44 < t.y < 44 + 28 * len(lengths)]
    columns = [[t.said for t in sorted(rows, key=lambda t: t.y) if t.x == x] for x in
               sorted({t.x for t in rows})]  # fmt: skip
    expected = [layout.unsorted_indices, layout.sorted_indices]
    assert columns == [[str(i) for i in indices] for indices in expected]


def test_a_bold_name_has_room_beside_the_indices():
    view = batch_picture.BatchView(Layout([1]), names=["sentence number"])
    assert view.name_width >= 128  # in DejaVu Sans, which is wider than Helvetica


def test_no_value_is_cut_if_it_has_room_below():
    said = drawn([4], [["-0.00032"] * 4], indices=True).said()
    assert said.count("-0.00032") == 3 * 4


# Whatever the layout, labels and theme: valid, the same again, and within the frame.


def check_form(layout, labels=None, **choices):
    for theme in palette.THEMES:
        picture = svg(layout, labels, theme=theme, **choices)
        assert picture == svg(layout, labels, theme=theme, **choices)
        drawing = ParsedSvg(picture)
        assert drawing.root.get("aria-label") == text.summary(layout)
        assert ("var(" in picture) == ("<style>" in picture) == (theme == "live")
    assert drawing.outside() == drawing.covered() == []


@given(small | large, st.integers(0, 3), st.booleans())
@example([16] * 16, 0, True)
@example([1], 15, True)
@example([1] * 20, 0, False)
@example([20_000] + [1] * 40, 0, False)
@example([2] * 15_000, 0, False)
@example([135] * 200_000, 0, False)
def test_form(lengths, extra, more):
    check_form(Layout(lengths, max(lengths) + extra), indices=more)


@given(small | large, st.booleans())
@example([4, 6, 8, 5, 4, 3, 7, 8], False)  # its rows take all the width
@example([1, 501], True)  # the number of its last time step reaches beyond the grid
def test_form_with_flat_rows(lengths, more):
    check_form(Layout(lengths), flat=True, indices=more)


@given(small | large, st.integers(0, 3), st.sampled_from(text.BATCH_PARTS))
@example([135] * 200_000, 0, text.PACKED_DATA)
@example([20_000] + [1] * 40, 0, text.PACKED)
@example([2] * 15_000, 0, text.PADDED)
def test_form_of_a_part(lengths, extra, part):
    check_form(Layout(lengths, max(lengths) + extra), part=part)


@given(st.lists(st.lists(words, min_size=1, max_size=16), min_size=1, max_size=16))
@example([["<b>", "&amp;", '"', "'"], ["]]>"]])
@example([["internationalisation"] * 2] * 16)
@example([["internationalisation"]] * 7 + [["a", "b"]])
@example([["x"] * 15 + ["donaudampfschifffahrt"]])
@example([["\x00", "\ud800", "\uffff", "\n"]])
def test_any_labels_and_names_can_be_drawn(labels):
    layout = Layout([len(row) for row in labels])
    check_form(layout, labels)
    check_form(layout, labels, names=[row[0] for row in labels], indices=True)
    drawing = drawn(layout, labels)
    cells = [(label_in(drawing, b), b) for b in drawing.boxes if b.fill in SEQUENCE_FILLS]
    labelled = [(label, box) for label, box in cells if label]
    assert len(labelled) == 3 * sum(bool(label) for row in labels for label in row)
    assert all(label.box.width <= box.width for label, box in labelled)


@pytest.mark.parametrize("kind", sources.DISTRIBUTIONS)
def test_512_by_512_stays_small(kind):
    layout = Layout(sources.DISTRIBUTIONS[kind](512, 512, 0))
    picture = svg(layout, theme="live", flat=True)
    assert len(picture.encode()) < 60_000
    assert len(ParsedSvg(picture).elements) < 200


def test_a_note_says_what_is_left_out():
    assert not any("is drawn" in words for words in drawn([9] * 512).said())
    note = "Of 1,000 sequences, one in 3 is drawn. The counts include all."
    assert note in drawn([9] * 1000).said()


# Colours.


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_contrast_of_the_themes(theme):
    inks = (theme.text, theme.muted, theme.accent, theme.wrong)
    assert all(contrast(ink, theme.ground) >= 4.5 for ink in inks)
    assert contrast(theme.muted, theme.padding) >= 4.5
    assert all(contrast(palette.ink_on(fill), fill) >= 4.5 for fill in SEQUENCE_FILLS)
    assert contrast(theme.line, theme.ground) >= 3
    assert contrast(theme.hatch, theme.padding) >= 2


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_text_is_readable_on_what_is_under_it(theme):
    drawing = drawn([3, 5, 2, 4, 1, 1, 1, 1], theme=theme)
    filled = [box for box in drawing.boxes if box.fill != "none"]
    for words_ in drawing.texts:
        x, y = words_.x, words_.y - 4
        under = [box.fill for box in filled if box.x < x < box.right and box.y < y < box.bottom]
        assert contrast(words_.fill, under[-1]) >= 4.5, words_


def test_the_live_picture_follows_the_page():
    picture = svg([2, 1], theme="live")
    for name, colour in vars(DARK).items():
        assert f"--packviz-{name}:{colour}" in picture
