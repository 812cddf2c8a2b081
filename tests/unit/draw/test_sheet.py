"""The pen: what is on a sheet, how large it is, and a hatch that needs no name."""

import math
import re

import pytest
from drawings import ParsedSvg
from hypothesis import given
from hypothesis import strategies as st

from packviz.draw.sheet import HATCHED, Sheet

sides = st.integers(0, 300).map(lambda tenths: tenths / 2)
boxes = st.tuples(sides, sides, sides.map(lambda side: side + 1), sides.map(lambda side: side + 1))


def diagonals(svg: str) -> list[tuple[float, float, float]]:
    """The lines of the hatch as (x, y of the lower end, extent to the right and up)."""
    lines = re.findall(r"M([-\d.]+) ([-\d.]+)l([\d.]+)-[\d.]+", svg)
    return [tuple(map(float, line)) for line in lines]


def hatched(*boxes):
    sheet = Sheet("light")
    for box in boxes:
        sheet.box(*box, HATCHED)
    return sheet.svg()


@given(boxes)
def test_the_hatch_stays_inside_its_box_and_covers_it(box):
    x, y, width, height = box
    lines = diagonals(hatched(box))
    for left, low, extent in lines:
        assert x - 0.1 <= left
        assert left + extent <= x + width + 0.2
        assert y - 0.2 <= low - extent
        assert low <= y + height + 0.1
    # Lines 6 px apart: their length is a sixth of the area, give or take one line.
    length = math.sqrt(2) * sum(extent for _, _, extent in lines)
    assert length == pytest.approx(width * height / 6, abs=math.sqrt(2) * min(width, height) + 3)


@given(boxes, st.floats(0.1, 0.9))
def test_boxes_that_touch_share_their_lines(box, share):
    x, y, width, height = box
    cut = round(width * share, 1)
    both = diagonals(hatched((x, y, cut, height), (x + cut, y, width - cut, height)))
    whole = diagonals(hatched(box))
    extents = [sum(extent for *_, extent in lines) for lines in (both, whole)]
    assert extents[0] == pytest.approx(extents[1], abs=0.2 * len(both) + 0.2)
    assert len(both) <= len(whole) + 2


@given(st.floats(-1e4, 1e4), st.floats(1e-7, 1e3))
def test_coordinates_have_two_decimals_at_most(x, width):
    sheet = Sheet("light")
    sheet.path(f"M{x} {width}h{width}l.1-.25")
    numbers = re.search(r'd="M(\S+) (\S+)h(\S+)l.1-.25"', sheet.svg()).groups()
    assert [float(number) for number in numbers] == pytest.approx([x, width, width], abs=0.0051)
    assert all(len(number.partition(".")[2]) <= 2 for number in numbers)


def test_nothing_on_a_sheet_has_a_name():
    """A browser looks for a name in the whole page, and may find that of a hidden picture."""
    svg = hatched((0, 0, 50, 50))
    assert "url(" not in svg
    assert " id=" not in svg


def test_shapes_of_one_look_are_one_path_and_layers_cover_each_other():
    sheet = Sheet("light")
    for i in range(9):
        sheet.box(10 * i, 0, 10, 10, "#111111")
        sheet.text(10 * i, 8, "a")
    sheet.start_layer()
    sheet.box(0, 0, 10, 10, "#222222")
    svg = sheet.svg()
    assert svg.count("<path") == 3  # the ground too
    assert svg.index("#111111") < svg.index("<text") < svg.index("#222222")


def test_words_are_escaped():
    sheet = Sheet("live", 'a <b> & "c"')
    sheet.text(0, 10, "<b> & \x00 中")
    assert ParsedSvg(sheet.svg()).said() == ["<b> & \ufffd 中"]


def test_a_narrow_sheet_has_room_for_its_title_in_a_wide_typeface():
    sheet = Sheet("light")
    sheet.title("Every sequence begins in column 0, and its padding follows")
    assert sheet.width > 409  # where this title ends in DejaVu Sans, if Helvetica is missing
