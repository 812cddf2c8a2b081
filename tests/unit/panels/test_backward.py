"""Tests of the panel of pad's backward pass, whose numbers are those that torch writes."""

import numpy as np
import pytest
from controls import move, words
from drawings import ParsedSvg
from hypothesis import given
from hypothesis import strategies as st

from packviz.core.layout import Layout
from packviz.count import profile
from packviz.draw.copies import BackwardCopies
from packviz.draw.palette import REAL, SEQUENCE_FILLS, THEMES
from packviz.panels import BackwardPanel
from packviz.panels.backward import cells_written_by_packviz, cells_written_by_torch

LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=7).map(lambda n: sorted([2, *n])[::-1])


@given(LENGTHS)
def test_the_cells_are_those_that_torch_writes(lengths):
    layout = Layout(lengths)
    pad = profile.count(layout, features=3).pad
    written = cells_written_by_torch(layout)
    assert sum(written) == pad.backward.bytes / 12
    if pad.formula is None:
        assert len(written) == len({*lengths})
        assert min(written) >= layout.n_cells + layout.n_real
    assert cells_written_by_packviz(layout) == layout.n_real


@given(LENGTHS, st.sampled_from([*THEMES]))
def test_the_slices_are_coloured_and_cover_each_real_cell_once(lengths, theme):
    layout = Layout(lengths)
    copies = BackwardCopies(layout, cells_written_by_torch(layout), layout.n_real)
    covered = np.zeros((layout.batch_size, layout.max_len), int)
    for start, end in copies.slices:
        covered[layout.lengths >= end, start:end] += 1
    assert np.array_equal(covered, layout.mask)
    drawing = ParsedSvg(copies.to_svg(theme))
    assert not drawing.outside()
    coloured = [box for box in drawing.boxes if box.fill in SEQUENCE_FILLS]
    assert len(coloured) == 2 * layout.n_real  # in the padded and in the packed gradients
    solid = [box.width for box in drawing.boxes if (box.fill, box.height) == (REAL, 20)]
    assert len(solid) == 2
    assert solid[0] == pytest.approx(solid[1])  # both bars have one scale


def test_more_distinct_lengths_write_more():
    panel = BackwardPanel()
    totals = []
    for distinct in range(1, 7):
        move(panel.distinct, distinct)
        totals.append(panel.shown.total)
        assert words(panel.summary) == panel.shown.summary()
        assert f"{totals[-1]:,} cells" in panel.to_text()
    assert totals == sorted({*totals})
    with pytest.raises(ValueError, match="distinct is 7; give a whole number from 1 to 6"):
        BackwardPanel(7)
