"""The picture: what must hold for the drawing of any batch."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
from drawings import ParsedSvg
from hypothesis import example, given
from hypothesis import strategies as st

from packviz.core import lengths as sources
from packviz.core.layout import Layout
from packviz.draw import layouts, palette, text
from packviz.draw.palette import DARK, LIGHT, SEQUENCES, contrast

few = st.lists(st.integers(1, 16), min_size=1, max_size=16)
many = st.lists(st.integers(1, 600), min_size=17, max_size=120)
words = st.text(st.characters(codec="utf-8"), max_size=20)


def drawn(lengths, *labels, **kwargs):
    layout = lengths if isinstance(lengths, Layout) else Layout(lengths)
    return ParsedSvg(layouts.draw(layout, *labels, **kwargs).svg())


def parts(layout, *labels, **kwargs):
    """The rectangles in a sequence's colour, by the part of the picture that they stand in."""
    drawing = drawn(layout, *labels, **kwargs)
    steps, data = drawing.text("packed: longest first"), drawing.text("data: ")
    mistake = [t.y for t in drawing.texts if t.said.startswith("✗")]
    beside = steps.y == 14  # else it stands below the padded grid
    found = SimpleNamespace(padded=[], steps=[], data=[], mistaken=[], drawing=drawing)
    for box in drawing.boxes:
        if box.fill in SEQUENCES:
            if mistake and box.y > mistake[0]:
                found.mistaken.append(box)
            elif box.y > data.y:
                found.data.append(box)
            elif box.x >= steps.x if beside else box.y > steps.y:
                found.steps.append(box)
            else:
                found.padded.append(box)
    return found


# What is drawn is what there is.


@given(few, st.integers(0, 3))
def test_every_real_cell_is_drawn_once_in_each_part(lengths, extra):
    layout = Layout(lengths, min(max(lengths) + extra, 16))
    found = parts(layout, mistaken=True)
    width = found.padded[0].width
    for boxes in (found.padded, found.steps, found.data, found.mistaken):
        assert len(set(boxes)) == len(boxes) == layout.n_real

    left, top = min(b.x for b in found.padded), min(b.y for b in found.padded)
    places = {(round((b.y - top) / 28), round((b.x - left) / width)): b.fill for b in found.padded}
    assert [list(place) for place in sorted(places)] == np.argwhere(layout.mask).tolist()
    assert all(fill == palette.sequence_colour(b) for (b, _), fill in places.items())

    left, top = min(b.x for b in found.steps), min(b.y for b in found.steps)
    places = {(round((b.x - left) / width), round((b.y - top) / 28)): b.fill for b in found.steps}
    by_step = [palette.sequence_colour(int(b)) for b in layout.source[:, 0]]
    assert [
        places[t, rank] for t, size in enumerate(layout.batch_sizes) for rank in range(size)
    ] == by_step


@given(many, st.integers(0, 50))
def test_runs_are_as_long_as_their_sequences(lengths, extra):
    layout = Layout(lengths, max(lengths) + extra)
    found = parts(layout)
    grid = next(b for b in found.drawing.boxes if b.fill == LIGHT.padding)
    step = grid.width / layout.max_len
    for boxes, order in ((found.padded, range(len(lengths))), (found.steps, layout.sorted_indices)):
        rows = sorted(boxes, key=lambda box: box.y)
        assert [box.fill for box in rows] == [palette.sequence_colour(int(b)) for b in order]
        assert [box.width / step for box in rows] == pytest.approx(
            [lengths[b] for b in order], abs=0.02 / step
        )
    assert sum(box.width / step for box in found.padded) == pytest.approx(layout.n_real, rel=0.01)
    assert len({round(box.height, 1) for box in found.padded}) == 1
    assert grid.height == pytest.approx(
        len(lengths) * found.padded[0].height, abs=0.01 * len(lengths)
    )


@given(few, st.integers(0, 3))
def test_padding_and_nothing_else_is_hatched_cell_by_cell(lengths, extra):
    layout = Layout(lengths, min(max(lengths) + extra, 16))
    found = parts(layout)
    left, top, width = found.padded[0].x, found.padded[0].y, found.padded[0].width
    hatched = [b for b in found.drawing.boxes if b.fill == LIGHT.padding]
    places = sorted([round((b.y - top) / 28), round((b.x - left) / width)] for b in hatched)
    assert places == np.argwhere(~layout.mask).tolist()
    assert {(round(b.width, 2), b.height, b.stroke) for b in hatched} <= {
        (round(width, 2), 28, LIGHT.line)
    }


@given(many)
def test_ticks_of_a_large_batch_tell_the_truth(lengths):
    layout = Layout(lengths)
    drawing = drawn(layout)
    steps_left = drawing.text("packed: longest").x
    scale = next(b.width for b in drawing.boxes if b.fill == LIGHT.padding) / layout.max_len
    sizes = [
        t for t in drawing.texts if t.anchor == "middle" and t.y == drawing.text("batch_sizes").y
    ]
    assert len(sizes) > 1 or layout.max_len < 10
    for t in sizes:
        assert int(t.said) == layout.batch_sizes[round((t.x - steps_left) / scale - 0.5)]


# The step pointed at.


@given(few, st.data())
def test_a_step_is_framed_in_every_part(lengths, data):
    layout = Layout(lengths)
    t = data.draw(st.integers(0, max(lengths) - 1))
    drawing = drawn(layout, step=t, mistaken=True)
    frames = [b for b in drawing.boxes if b.stroke == LIGHT.accent]
    size = int(layout.batch_sizes[t])
    grid, column, *cells = frames
    assert (grid.height, column.height) == (28 * len(lengths), 28 * size)
    assert len(cells) == 2 * size
    truth, mistake = drawing.text("data: ").y, drawing.text("✗").y
    framed = [b for b in cells if truth < b.y < mistake]
    assert [label_in(drawing, box).said for box in framed] == [
        f"{'abcdefghijklmnop'[b]}{t}" for b in layout.sorted_indices[:size]
    ]
    start, end = layout.offsets[t : t + 2]
    assert any(said.endswith(f"data[{start}:{end}]") for said in drawing.said())
    # What is not packed yet is an empty, dashed place.
    assert len(parts(layout, step=t).data) == end


def test_the_rows_of_a_step_are_marked_in_a_bar():
    layout = Layout([30, 20, 40] * 6)
    drawing = drawn(layout, step=25, mistaken=True)
    bars = [b for b in drawing.boxes if b.height == 18]
    found = sorted(
        round((b.x - 4) * layout.n_real / bars[0].width) for b in bars if b.fill == LIGHT.accent
    )
    flat = np.flatnonzero(np.argwhere(layout.mask)[:, 1] == 25)
    assert bars[0].x == 4
    assert found == sorted([layout.offsets[25], *flat])


@pytest.mark.parametrize("step", [-1, 3])
def test_a_step_that_is_not_there_is_refused(step):
    with pytest.raises(
        ValueError, match=f"step is {step}; the longest sequence has time steps 0 … 2"
    ):
        layouts.draw(Layout([3, 2], max_len=5), step=step).svg()


# From each packed row to its flat row.

WAY = re.compile(r"M([\d.]+) ([\d.]+)C[\d. ]+ ([\d.]+) ([\d.]+)")


@given(st.lists(st.integers(1, 5), min_size=1, max_size=5))
def test_a_line_goes_from_each_packed_row_to_its_flat_row(lengths):
    layout = Layout(lengths)
    drawing = drawn(layout, flat=True)
    said = text.flat(layout)
    cells = [
        (label_in(drawing, b), b)
        for b in drawing.boxes
        if b.fill in SEQUENCES and drawing.text("data: ").y < b.y
    ]
    packed, flat = (
        sorted((b for _, b in cells if b.y == y), key=lambda b: b.x)
        for y in sorted({b.y for _, b in cells})
    )
    names = {b: label.said for label, b in cells}
    order = [f"{'abcde'[b]}{t}" for b, t in layout.source]
    assert [names[b] for b in packed] == order
    assert [names[b] for b in flat] == [f"{'abcde'[b]}{t}" for b, t in np.argwhere(layout.mask)]
    found = []
    for element in drawing.elements:
        if element.get("stroke") in SEQUENCES:
            ways = [tuple(map(float, way)) for way in WAY.findall(element.get("d"))]
            found += [(way, element.get("stroke")) for way in ways if way[1] >= packed[0].bottom]
    assert len(found) == layout.n_real
    for (x0, y0, x1, y1), colour in found:
        (start,) = [i for i, b in enumerate(packed) if b.x < x0 < b.right]
        (end,) = [i for i, b in enumerate(flat) if b.x < x1 < b.right]
        assert end == layout.flat_rows[start]
        assert (y0, y1) == (packed[0].bottom, flat[0].y)
        assert colour == packed[start].fill == flat[end].fill
        assert (x0 == x1) == (start == end)  # what stays in place stands below itself
    assert drawing.text("flat").said == said
    starts = [
        t.said
        for t in sorted(drawing.texts, key=lambda t: t.x)
        if flat[0].bottom < t.y < drawing.text("flat").y
    ]
    assert starts == [*(str(start) for start in layout.starts), "starts"]


@given(few | many, st.booleans())
@example([4, 6, 8, 5, 4, 3, 7, 8], False)  # its rows take all the width
@example([1, 501], True)  # the number of its last time step reaches beyond the grid
def test_flat_rows_lie_below_the_data_whatever_its_size(lengths, words):
    layout = Layout(lengths)
    drawing = drawn(layout, flat=True, indices=words, explain=words)
    assert drawing.text("flat").said == text.flat(layout)
    assert drawing.text("flat").y > drawing.text("data: ").y
    assert drawing.outside() == drawing.covered() == []


# From each packed column to its stretch of data.

FALL = re.compile(r"M([\d.]+) [\d.]+C[\d. ]+ ([\d.]+) [\d.]+M([\d.]+) ([\d.]+)v-6H([\d.]+)v6")


def falls(drawing):
    """Where each line begins, and where it and its bracket end."""
    d = "".join(
        e.get("d", "") for e in drawing.elements if e.get("stroke") in (LIGHT.muted, LIGHT.accent)
    )
    return [tuple(map(float, fall)) for fall in FALL.findall(d)]


@given(st.lists(st.integers(1, 8), min_size=1, max_size=5))
def test_a_bracket_ties_each_column_to_its_rows(lengths):
    layout = Layout(lengths)
    found = parts(layout)
    tied = sorted(falls(found.drawing))
    assert len(tied) == max(lengths)
    columns = sorted({b.x + b.width / 2 for b in found.steps})
    data = sorted(found.data)
    for t, (start, middle, left, foot, right) in enumerate(tied):
        rows = data[layout.offsets[t] : layout.offsets[t + 1]]
        assert start == pytest.approx(columns[t], abs=0.01)
        assert (left, right) == (
            pytest.approx(rows[0].x + 1, abs=0.02),
            pytest.approx(rows[-1].right - 1, abs=0.02),
        )
        assert middle == pytest.approx((left + right) / 2, abs=0.01)
        assert foot < rows[0].y


# The lists of indices, names, and words beside the parts.


@given(few)
def test_index_lists_stand_at_their_rows(lengths):
    layout = Layout(lengths)
    drawing = drawn(layout, indices=True)
    unsorted, sorted_ = drawing.text("unsorted_indices"), drawing.text("sorted_indices")
    if unsorted.y > 40:  # no room beside each other
        assert unsorted.said == f"unsorted_indices {text.numbers(layout.unsorted_indices)}"
        assert sorted_.said == f"sorted_indices {text.numbers(layout.sorted_indices)}"
        return
    slope = [
        t
        for t in drawing.texts
        if unsorted.x < t.x < sorted_.x + 34 and t.y > 40 and t.said.isdigit()
    ]
    ends = {t.x for t in slope if t.y < 44 + 28 * len(lengths)}
    columns = [[t.said for t in sorted(slope, key=lambda t: t.y) if t.x == x] for x in sorted(ends)]
    assert columns == [
        [str(i) for i in layout.unsorted_indices],
        [str(i) for i in layout.sorted_indices],
    ]


# Whatever the layout, labels and theme: valid, the same again, and inside its frame.


def check_form(layout, labels=None, **kwargs):
    for theme in palette.THEMES:
        picture = layouts.draw(layout, labels, theme=theme, **kwargs).svg()
        assert picture == layouts.draw(layout, labels, theme=theme, **kwargs).svg()
        drawing = ParsedSvg(picture)
        assert drawing.root.get("role") == "img"
        assert drawing.root.get("aria-label") == text.summary(layout)
        assert ("var(" in picture) == ("<style>" in picture) == (theme == "live")
    assert drawing.outside() == drawing.covered() == []


steps = st.none() | st.integers(0, 10**9)


def at(layout, step):
    return step if step is None else step % int(layout.batch_sizes.size)


@given(few, st.integers(0, 3), steps, st.booleans())
@example([16] * 16, 0, 15, True)
@example([1], 15, None, False)
def test_form_of_small_pictures(lengths, extra, step, mistaken):
    layout = Layout(lengths, min(max(lengths) + extra, 16))
    check_form(layout, step=at(layout, step), mistaken=mistaken, indices=mistaken, explain=mistaken)


@given(many, st.integers(0, 50), steps, st.booleans())
@example([1] * 20, 0, None, False)
@example([20_000] + [1] * 40, 0, 19_999, True)
@example([2] * 15_000, 0, 1, True)
@example([135] * 200_000, 0, None, False)
def test_form_of_large_pictures(lengths, extra, step, mistaken):
    layout = Layout(lengths, max(lengths) + extra)
    check_form(layout, step=at(layout, step), mistaken=mistaken)


@given(few | many, st.integers(0, 3), st.sampled_from(text.PARTS))
@example([135] * 200_000, 0, text.DATA)
@example([20_000] + [1] * 40, 0, text.PACKED)
@example([2] * 15_000, 0, text.PADDED)
def test_form_of_a_part(lengths, extra, part):
    check_form(Layout(lengths, max(lengths) + extra), part=part)


@given(st.lists(st.lists(words, min_size=1, max_size=16), min_size=1, max_size=16), steps)
@example([["<b>", "&amp;", '"', "'"], ["]]>"]], None)
@example([["internationalisation"] * 2] * 16, 1)
@example([["internationalisation"]] * 7 + [["a", "b"]], None)
@example([["x"] * 15 + ["donaudampfschifffahrt"]], None)
@example([["\x00", "\ud800", "\uffff", "\n"]], None)
def test_any_labels_and_names_can_be_drawn(labels, step):
    layout = Layout([len(row) for row in labels])
    check_form(layout, labels, step=at(layout, step), mistaken=True)
    check_form(layout, labels, names=[row[0] for row in labels], indices=True)
    check_form(layout, names=[row[0] for row in labels])


@given(st.lists(st.lists(words, min_size=1, max_size=16), min_size=1, max_size=8))
def test_labels_stay_in_their_cells(labels):
    drawing = drawn([len(row) for row in labels], labels)
    pairs = [(label_in(drawing, box), box) for box in drawing.boxes if box.fill in SEQUENCES]
    assert sum(label is not None for label, _ in pairs) == 3 * sum(
        bool(label) for row in labels for label in row
    )
    assert all(label.box.width <= box.width for label, box in pairs if label)


def label_in(drawing, box):
    """The text in the middle of this cell."""
    x, y = box.x + box.width / 2, box.y + box.height / 2 + 4
    return next(
        (t for t in drawing.texts if t.y == y and abs(t.x - x) < 0.1 and t.anchor == "middle"), None
    )


# Large batches stay small, and say what they leave out.


@pytest.mark.parametrize("kind", sources.DISTRIBUTIONS)
def test_512_by_512_stays_small(kind):
    layout = Layout(sources.DISTRIBUTIONS[kind](512, 512, 0))
    picture = layouts.draw(
        layout, theme="live", step=min(200, layout.lengths.max() - 1), mistaken=True
    ).svg()
    assert len(picture.encode()) < 60_000
    assert len(ParsedSvg(picture).elements) < 200


def test_what_is_left_out_is_said():
    assert not any("is drawn" in said for said in drawn([9] * 512).said())
    note = "One in 3 of 1,000 sequences is drawn. The counts include all."
    assert note in drawn([9] * 1000).said()


# Colours.


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_theme_reads(theme):
    assert all(
        contrast(ink, theme.ground) >= 4.5
        for ink in (theme.text, theme.muted, theme.accent, theme.wrong)
    )
    assert contrast(theme.muted, theme.padding) >= 4.5
    assert all(contrast(palette.ink_on(fill), fill) >= 4.5 for fill in SEQUENCES)
    assert contrast(theme.line, theme.ground) >= 3
    assert (
        contrast(theme.hatch, theme.padding) >= 2
    )  # decoration: the outline and the missing colour say it too


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_text_reads_on_what_is_under_it(theme):
    layout = Layout([3, 5, 2, 4, 1, 1, 1, 1])
    drawing = ParsedSvg(layouts.draw(layout, theme=theme, step=1, mistaken=True).svg())
    for said in drawing.texts:
        under = [
            b
            for b in drawing.boxes
            if b.x < said.x < b.right and b.y < said.y - 4 < b.bottom and b.fill != "none"
        ]
        assert contrast(said.fill, under[-1].fill) >= 4.5, said


def test_the_live_picture_follows_the_page_and_stands_without_it():
    picture = layouts.draw(Layout([2, 1]), theme="live").svg()
    for name, colour in vars(LIGHT).items():
        assert f"--packviz-{name}:{vars(DARK)[name]}" in picture
        assert f"var(--packviz-{name}, {vars(DARK)[name]})" not in picture
        if name not in ("accent", "wrong"):
            assert f"var(--packviz-{name}, {colour})" in picture
