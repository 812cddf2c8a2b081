"""The picture: exactly what is drawn for a small batch, and what must hold for the drawing of any."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
from drawings import Drawing
from hypothesis import example, given
from hypothesis import strategies as st

from packviz.core import lengths as sources
from packviz.core.layout import Layout
from packviz.draw import layouts as svg
from packviz.draw import palette, text
from packviz.draw.palette import DARK, LIGHT, SEQUENCES, contrast

few = st.lists(st.integers(1, 16), min_size=1, max_size=16)
many = st.lists(st.integers(1, 600), min_size=17, max_size=120)
words = st.text(st.characters(codec="utf-8"), max_size=20)


def drawn(lengths, *labels, **kwargs):
    layout = lengths if isinstance(lengths, Layout) else Layout(lengths)
    return Drawing(svg.draw(layout, *labels, **kwargs))


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


def test_all_of_a_small_batch():
    """Margin 70, cells of 26 × 24 from y = 46; the second panel 110 beyond the room of the first, at 70 + 70 + 110.

    The data starts 48 below the panels; the labels in cells stand 4 below the middle.
    """
    picture = svg.draw(Layout([1, 2]))
    hatch = re.search(r'id="(packviz-[0-9a-f]{8})"', picture)[1]
    first, second = 'fill="#56B4E9"', 'fill="#E69F00"'  # a and b
    line, muted = 'stroke="#4a4a4a" stroke-width=".5"', 'fill="#5c5c5c"'
    assert picture.replace(hatch, "HATCH").replace("><", ">\n<").splitlines() == [
        '<svg xmlns="http://www.w3.org/2000/svg" class="packviz" role="img" width="560" height="232"'
        ' viewBox="0 0 560 232" style="max-width:100%;height:auto"'
        ' font-family="ui-monospace,Menlo,Consolas,monospace" font-size="12" fill="#1f1f1f"'
        ' aria-label="2 sequences padded to 2 time steps: 4 cells, 3 real, 1 padding (25 % wasted).">',
        '<path d="M0 0h560v232h-560z" fill="#ffffff"/>',
        '<pattern id="HATCH" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">',
        '<path d="M0 0h6v6H0z" fill="#f2f2f2"/>',
        '<path d="M0 0v6" stroke="#8f8f8f" stroke-width="2"/>',
        "</pattern>",
        # the padded grid: everything hatched, and the real cells over it
        '<text x="70" y="14" font-weight="bold">padded: 4 cells</text>',
        f'<text x="62" y="28" text-anchor="end" font-size="11" {muted}>t =</text>',
        f'<text x="83" y="28" text-anchor="middle" font-size="11" {muted}>0</text>',
        f'<text x="109" y="28" text-anchor="middle" font-size="11" {muted}>1</text>',
        f'<path d="M70 46h52v48h-52z" fill="url(#HATCH)" {line}/>',
        f'<path d="M70 46h26v24h-26z" {first} {line}/>',
        f'<path d="M70 70h26v24h-26zM96 70h26v24h-26z" {second} {line}/>',
        '<g fill="#000000" text-anchor="middle">',
        '<text x="83" y="62">a0</text>',
        '<text x="83" y="86">b0</text>',
        '<text x="109" y="86">b1</text>',
        "</g>",
        f'<text x="62" y="40" text-anchor="end" font-size="10" {muted}>length</text>',
        '<text x="6" y="62" font-weight="bold">a</text>',
        f'<text x="62" y="62" text-anchor="end" {muted}>1</text>',
        '<text x="6" y="86" font-weight="bold">b</text>',
        f'<text x="62" y="86" text-anchor="end" {muted}>2</text>',
        # the steps: b first
        '<text x="250" y="14" font-weight="bold">packed: longest first, no padding</text>',
        f'<text x="242" y="28" text-anchor="end" font-size="11" {muted}>t =</text>',
        f'<text x="263" y="28" text-anchor="middle" font-size="11" {muted}>0</text>',
        f'<text x="289" y="28" text-anchor="middle" font-size="11" {muted}>1</text>',
        f'<path d="M250 46h26v24h-26zM276 46h26v24h-26z" {second} {line}/>',
        f'<path d="M250 70h26v24h-26z" {first} {line}/>',
        '<g fill="#000000" text-anchor="middle">',
        '<text x="263" y="62">b0</text>',
        '<text x="289" y="62">b1</text>',
        '<text x="263" y="86">a0</text>',
        "</g>",
        # the sort, from 6 right of the grid to 20 left of the steps: b's row is the first, a's the second
        '<path d="M128 82C179 82 179 58 230 58" fill="none" stroke="#4a4a4a" stroke-width="3.5"/>',
        '<path d="M128 82C179 82 179 58 230 58" fill="none" stroke="#E69F00" stroke-width="2.5"/>',
        '<text x="244" y="62" text-anchor="end" font-weight="bold">b</text>',
        '<path d="M128 58C179 58 179 82 230 82" fill="none" stroke="#4a4a4a" stroke-width="3.5"/>',
        '<path d="M128 58C179 58 179 82 230 82" fill="none" stroke="#56B4E9" stroke-width="2.5"/>',
        '<text x="244" y="86" text-anchor="end" font-weight="bold">a</text>',
        f'<text x="228" y="109" text-anchor="end" {muted}>batch_sizes</text>',
        '<text x="263" y="109" text-anchor="middle">2</text>',
        '<text x="289" y="109" text-anchor="middle">1</text>',
        # the data: b0 a0, a gap of 5, b1
        '<text x="4" y="142" font-weight="bold">data: 3 rows, time step by time step</text>',
        f'<text x="5" y="160" font-size="10" {muted}>t=0</text>',
        f'<text x="62" y="160" font-size="10" {muted}>t=1</text>',
        f'<path d="M4 164h26v22h-26zM61 164h26v22h-26z" {second} {line}/>',
        f'<path d="M30 164h26v22h-26z" {first} {line}/>',
        '<g fill="#000000" text-anchor="middle">',
        '<text x="17" y="179">b0</text>',
        '<text x="43" y="179">a0</text>',
        '<text x="74" y="179">b1</text>',
        "</g>",
        f'<text x="4" y="204" font-size="11" {muted}>sorted_indices [1, 0]</text>',
        f'<text x="4" y="220" font-size="11" {muted}>unsorted_indices [1, 0]</text>',
        "</svg>",
    ]


# What is drawn is what there is.


@given(few, st.integers(0, 3))
def test_every_real_cell_is_drawn_once_in_each_part(lengths, extra):
    layout = Layout(lengths, min(max(lengths) + extra, 16))
    found = parts(layout, mistaken=True)
    width = found.padded[0].width
    for boxes in (found.padded, found.steps, found.data, found.mistaken):
        assert len(set(boxes)) == len(boxes) == layout.n_valid

    left, top = min(b.x for b in found.padded), min(b.y for b in found.padded)
    places = {(round((b.y - top) / 24), round((b.x - left) / width)): b.fill for b in found.padded}
    assert [list(place) for place in sorted(places)] == np.argwhere(layout.mask).tolist()
    assert all(fill == palette.sequence_colour(b) for (b, _), fill in places.items())

    left, top = min(b.x for b in found.steps), min(b.y for b in found.steps)
    places = {(round((b.x - left) / width), round((b.y - top) / 24)): b.fill for b in found.steps}
    by_step = [palette.sequence_colour(int(b)) for b in layout.source[:, 0]]
    assert [places[t, rank] for t, size in enumerate(layout.batch_sizes) for rank in range(size)] == by_step


def reading_order(texts):
    return [t.said for t in sorted(texts, key=lambda t: (t.y, t.x))]


@given(few)
@example([16] * 16)
def test_the_strips_are_in_the_order_that_they_claim(lengths):
    layout = Layout(lengths)
    drawing = drawn(layout, mistaken=True)
    truth, mistake = drawing.text("data: ").y, drawing.text("✗").y
    below = drawing.text("sorted").y if not layout.is_sorted else drawing.height
    cells = [t for t in drawing.texts if t.anchor == "middle" and re.fullmatch(r"[a-p]\d+", t.said)]
    name = "abcdefghijklmnop"
    assert reading_order(t for t in cells if truth < t.y < mistake) == [f"{name[b]}{t}" for b, t in layout.source]
    assert reading_order(t for t in cells if mistake < t.y < below) == [
        f"{name[b]}{t}" for b, t in np.argwhere(layout.mask)
    ]


@given(many, st.integers(0, 50))
def test_runs_are_as_long_as_their_sequences(lengths, extra):
    layout = Layout(lengths, max(lengths) + extra)
    found = parts(layout)
    (grid,) = [b for b in found.drawing.boxes if b.fill.startswith("url")]
    step = grid.width / layout.max_len
    for boxes, order in ((found.padded, range(len(lengths))), (found.steps, layout.sorted_indices)):
        rows = sorted(boxes, key=lambda box: box.y)
        assert [box.fill for box in rows] == [palette.sequence_colour(int(b)) for b in order]
        assert [box.width / step for box in rows] == pytest.approx([lengths[b] for b in order], abs=0.02 / step)
    assert sum(box.width / step for box in found.padded) == pytest.approx(layout.n_valid, rel=0.01)
    assert len({round(box.height, 1) for box in found.padded}) == 1
    assert grid.height == pytest.approx(len(lengths) * found.padded[0].height, abs=0.01 * len(lengths))


def test_padding_is_what_stays_hatched():
    drawing = drawn(Layout([1, 2], max_len=4))
    (grid,) = [b for b in drawing.boxes if b.fill.startswith("url")]
    assert (grid.width, grid.height) == (4 * 26, 2 * 24)
    assert drawing.boxes.index(grid) == 1  # right after the ground: the real cells are painted over it


def test_batch_sizes_stand_under_their_steps():
    layout = Layout([3, 5, 2, 4])
    drawing = drawn(layout)
    y = drawing.text("batch_sizes").y
    row = sorted((t for t in drawing.texts if t.y == y and t.anchor == "middle"), key=lambda t: t.x)
    assert [t.said for t in row] == ["4", "4", "3", "2", "1"]
    columns = sorted({b.x + b.width / 2 for b in parts(layout).steps})
    assert [t.x for t in row] == columns


@given(many)
def test_ticks_of_a_large_batch_tell_the_truth(lengths):
    layout = Layout(lengths)
    drawing = drawn(layout)
    steps_left = drawing.text("packed: longest").x
    scale = next(b.width for b in drawing.boxes if b.fill.startswith("url")) / layout.max_len
    sizes = [t for t in drawing.texts if t.anchor == "middle" and t.y == drawing.text("batch_sizes").y]
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
    assert (grid.height, column.height) == (24 * len(lengths), 24 * size)
    assert len(cells) == 2 * size
    truth, mistake = drawing.text("data: ").y, drawing.text("✗").y
    framed = [b for b in cells if truth < b.y < mistake]
    assert [label_in(drawing, box).said for box in framed] == [
        f"{'abcdefghijklmnop'[b]}{t}" for b in layout.sorted_indices[:size]
    ]
    start, end = layout.offsets[t : t + 2]
    assert drawing.text("data: ").said.endswith(f"; step {t} fills data[{start}:{end}]")
    # What is not packed yet is an empty, dashed place.
    assert len(parts(layout, step=t).data) == end


@given(many, st.data())
def test_a_step_of_a_large_batch_is_framed(lengths, data):
    layout = Layout(lengths)
    t = data.draw(st.integers(0, max(lengths) - 1))
    drawing = drawn(layout, step=t, mistaken=True)
    grid, column = [b for b in drawing.boxes if b.stroke == LIGHT.accent]
    assert column.height / grid.height == pytest.approx(layout.batch_sizes[t] / len(lengths), abs=0.01)
    bands = [b for b in drawing.boxes if b.fill == LIGHT.accent]
    whole = drawing.width - 8
    start, end = layout.offsets[t : t + 2] / layout.n_valid * whole + 4
    assert (bands[0].x, bands[0].width) == (
        pytest.approx(start, abs=0.01),
        pytest.approx(max(end - start, 1), abs=0.02),
    )
    assert len(bands) == 1 + layout.batch_sizes[t]  # in the mistaken order its rows lie apart


@pytest.mark.parametrize("step", [-1, 3])
def test_a_step_that_is_not_there_is_refused(step):
    with pytest.raises(ValueError, match=f"step is {step}; the longest sequence has time steps 0 … 2"):
        svg.draw(Layout([3, 2], max_len=5), step=step)


def test_the_mistake_is_marked_as_one():
    assert "✗ not so: one sequence after another" in drawn([3, 2], mistaken=True).said()
    assert not any(t.said.startswith("✗") for t in drawn([3, 2]).texts)
    pointed = drawn([3, 2], mistaken=True, step=1).text("✗")
    assert pointed.said == "✗ not so: one sequence after another (the rows of step 1 would lie apart)"
    assert pointed.fill == LIGHT.wrong


# Whatever the layout, labels and theme: valid, the same again, and inside its frame.


def check_form(layout, labels=None, **kwargs):
    for theme in palette.THEMES:
        picture = svg.draw(layout, labels, theme=theme, **kwargs)
        assert picture == svg.draw(layout, labels, theme=theme, **kwargs)
        drawing = Drawing(picture)
        assert drawing.root.get("role") == "img"
        assert drawing.root.get("aria-label") == text.summary(layout)
        assert ("var(" in picture) == ("<style>" in picture) == (theme == "live")
    inside(drawing)


def inside(drawing):
    for shape in [*drawing.boxes, *(t.box for t in drawing.texts if t.said)]:
        assert shape.x >= 0, shape
        assert shape.y >= 0, shape
        assert shape.right <= drawing.width + 0.01, shape
        assert shape.bottom <= drawing.height, shape
    said = sorted((t.box.y, t.box, t.said) for t in drawing.texts if t.said.strip())
    for i, (_, one, words) in enumerate(said):
        for top, other, others in said[i + 1 :]:
            if top >= one.bottom:
                break
            assert one.right <= other.x or other.right <= one.x, (words, one, others, other)


steps = st.none() | st.integers(0, 10**9)


def at(layout, step):
    return step if step is None else step % int(layout.batch_sizes.size)


@given(few, st.integers(0, 3), steps, st.booleans())
@example([16] * 16, 0, 15, True)
@example([1], 15, None, False)
def test_form_of_small_pictures(lengths, extra, step, mistaken):
    layout = Layout(lengths, min(max(lengths) + extra, 16))
    check_form(layout, step=at(layout, step), mistaken=mistaken)


@given(many, st.integers(0, 50), steps, st.booleans())
@example([1] * 20, 0, None, False)
@example([20_000] + [1] * 40, 0, 19_999, True)
@example([2] * 15_000, 0, 1, True)
@example([135] * 200_000, 0, None, False)
def test_form_of_large_pictures(lengths, extra, step, mistaken):
    layout = Layout(lengths, max(lengths) + extra)
    check_form(layout, step=at(layout, step), mistaken=mistaken)


@given(st.lists(st.lists(words, min_size=1, max_size=16), min_size=1, max_size=16), steps)
@example([["<b>", "&amp;", '"', "'"], ["]]>"]], None)
@example([["internationalisation"] * 2] * 16, 1)
@example([["internationalisation"]] * 7 + [["a", "b"]], None)
@example([["x"] * 15 + ["donaudampfschifffahrt"]], None)
@example([["\x00", "\ud800", "\uffff", "\n"]], None)
def test_any_labels_can_be_drawn(labels, step):
    layout = Layout([len(row) for row in labels])
    check_form(layout, labels, step=at(layout, step), mistaken=True)


@given(st.lists(st.lists(words, min_size=1, max_size=16), min_size=1, max_size=8))
def test_labels_stay_in_their_cells(labels):
    drawing = drawn([len(row) for row in labels], labels)
    pairs = [(label_in(drawing, box), box) for box in drawing.boxes if box.fill in SEQUENCES]
    assert sum(label is not None for label, _ in pairs) == 3 * sum(bool(label) for row in labels for label in row)
    assert all(label.box.width <= box.width for label, box in pairs if label)


def label_in(drawing, box):
    """The text in the middle of this cell."""
    x, y = box.x + box.width / 2, box.y + box.height / 2 + 4
    return next((t for t in drawing.texts if t.y == y and abs(t.x - x) < 0.1 and t.anchor == "middle"), None)


def test_long_labels_are_clipped_and_chinese_ones_take_twice_the_room():
    said = drawn([3], [["short", "supercalifragilistic", "数据结构与算法分析导论"]]).said()
    # A cell is 100 wide at most, 96 within: 13 characters of 7.3, the last of them the dots.
    assert [said.count(cell) for cell in ("short", "supercalifra…", "数据结构与算…")] == [3, 3, 3]


def test_a_missing_label_leaves_its_cell_blank():
    assert drawn(Layout([2, 1], max_len=3), [["x", "y"], ["z"]]).said().count("x") == 3


def test_what_the_padding_holds_is_shown_where_it_is_known():
    drawing = drawn([2, 1], [["x", "y"], ["z", "0.25"]])
    assert drawing.text("0.25").fill == LIGHT.muted  # once, in the padded grid alone


# Large batches stay small, and say what they leave out.


@pytest.mark.parametrize("kind", sources.DISTRIBUTIONS)
@pytest.mark.parametrize("theme", palette.THEMES)
def test_512_by_512_stays_small(kind, theme):
    layout = Layout(sources.DISTRIBUTIONS[kind](512, 512, 0))
    picture = svg.draw(layout, theme=theme, step=min(200, layout.lengths.max() - 1), mistaken=True)
    assert len(picture.encode()) < 60_000
    assert len(Drawing(picture).elements) < 200


def test_what_is_left_out_is_said():
    assert not any("is drawn" in said for said in drawn([9] * 512).said())
    note = "One in 3 of 1,000 sequences is drawn. Counts are of all."
    assert note in drawn([9] * 1000).said()
    found = parts(Layout([9] * 1000))
    assert len(found.padded) == len(found.steps) == 334
    drawing = found.drawing
    assert "padded: 9,000 cells" in drawing.said()
    assert "data: 9,000 rows, time step by time step" in drawing.said()


@pytest.mark.parametrize("lengths", [[5] * 18 + [4] * 4, [5] * 40, [9] * 512])
def test_batch_sizes_are_written_in_full_or_it_is_said(lengths):
    layout = Layout(lengths)
    said = drawn(lengths).said()
    sizes = [str(size) for size in layout.batch_sizes]
    assert said[said.index("batch_sizes") + 1 :][: len(sizes)] == sizes or any("left out" in s for s in said)


def test_every_colour_is_met_however_many_sequences_are_left_out():
    assert len({b.fill for b in parts(Layout([3] * 100_000)).padded}) == len(palette.SEQUENCES)


def test_a_sequence_of_millions_of_steps_is_drawn():
    picture = svg.draw(Layout([5_000_000, 3]), step=5)
    assert len(picture) < 20_000
    assert Drawing(picture).text("padded").said == "padded: 10,000,000 cells"


# Colours.


@pytest.mark.parametrize("fill", SEQUENCES)
def test_ink_reads_on_every_sequence(fill):
    assert contrast(palette.ink_on(fill), fill) >= 4.5


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_theme_reads(theme):
    assert all(contrast(ink, theme.ground) >= 4.5 for ink in (theme.text, theme.muted, theme.accent, theme.wrong))
    assert contrast(theme.muted, theme.padding) >= 4.5
    assert contrast(theme.line, theme.ground) >= 3
    assert contrast(theme.hatch, theme.padding) >= 2  # decoration: the outline and the missing colour say it too


def test_contrast_is_that_of_wcag():
    assert contrast("#000000", "#ffffff") == contrast("#ffffff", "#000000") == 21
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)
    assert contrast("#0000ff", "#0000ff") == 1


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_text_reads_on_what_is_under_it(theme):
    colours = palette.THEMES[theme]
    layout = Layout([3, 5, 2, 4, 1, 1, 1, 1])
    drawing = Drawing(svg.draw(layout, theme=theme, step=1, mistaken=True))
    for said in drawing.texts:
        under = [
            b for b in drawing.boxes if b.x < said.x < b.right and b.y < said.y - 4 < b.bottom and b.fill != "none"
        ]
        fill = colours.padding if under[-1].fill.startswith("url") else under[-1].fill
        assert contrast(said.fill, fill) >= 4.5, said


def test_coloured_shapes_are_outlined():
    outlined = [b for b in drawn([3, 5, 2]).boxes if b.fill in SEQUENCES]
    assert {b.stroke for b in outlined} == {LIGHT.line}


def test_the_live_picture_follows_the_page_and_stands_without_it():
    picture = svg.draw(Layout([2, 1]), theme="live")
    for name, colour in vars(LIGHT).items():
        assert f"--packviz-{name}:{vars(DARK)[name]}" in picture
        assert f"var(--packviz-{name}, {vars(DARK)[name]})" not in picture
        if name not in ("accent", "wrong"):
            assert f"var(--packviz-{name}, {colour})" in picture


def test_an_unknown_theme_is_refused():
    with pytest.raises(ValueError, match="theme is 'sepia'; choose one of 'light', 'dark', 'live'"):
        svg.draw(Layout([1]), theme="sepia")


def hatch(*args, **kwargs):
    (found,) = re.findall(r'<pattern id="([\w-]+)"', picture := svg.draw(*args, **kwargs))
    assert picture.count(f"url(#{found})") == 1
    return found


def test_no_two_different_pictures_share_a_hatch():
    tied = [3, 2, 2]
    pictures = [
        hatch(Layout(tied)),
        hatch(Layout([2, 3, 2])),
        hatch(Layout(tied, 4)),
        hatch(Layout(tied, sorted_indices=[0, 2, 1])),
        hatch(Layout(tied), [["x"] * 3, ["y"] * 2, ["z"] * 2]),
        hatch(Layout(tied), step=0),
        hatch(Layout(tied), step=1),
        hatch(Layout(tied), mistaken=True),
        hatch(Layout(tied), theme="dark"),
        hatch(Layout(tied), theme="live"),
    ]
    assert len(set(pictures)) == len(pictures)
