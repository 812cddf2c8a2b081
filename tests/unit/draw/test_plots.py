"""Charts of counts: the picture shows what the layouts hold."""

import numpy as np
import pytest
from drawings import ParsedSvg
from hypothesis import given
from hypothesis import strategies as st

import packviz as pv
from packviz.core.layout import Layout
from packviz.draw import plots
from packviz.draw.palette import LIGHT, REAL

layouts = st.builds(
    lambda lengths, extra: Layout(lengths, max(lengths) + extra),
    st.lists(st.integers(1, 200), min_size=1, max_size=60),
    st.integers(0, 9),
)
names = st.text("abcd ", min_size=1, max_size=40) | st.integers(0, 9)
X = [2, 4, 8, 16]


def boxes(chart, fill):
    """The boxes of a fill, without the one in the key."""
    return [box for box in ParsedSvg(chart.to_svg()).boxes if box.fill == fill][1:]


@given(st.dictionaries(names, st.lists(layouts, max_size=5), min_size=1, max_size=4))
def test_padding_waste(groups):
    chart = plots.padding_waste({name: iter(batches) for name, batches in groups.items()})
    padding = []
    cells = []
    for batches in groups.values():
        padding.append(sum(int((~layout.mask).sum()) for layout in batches))
        cells.append(sum(layout.n_cells for layout in batches))
    wasted = np.array([box.width for box in boxes(chart, LIGHT.padding)])
    whole = wasted + [box.width for box in boxes(chart, REAL)]
    scale = max(whole.max(), 1) / max(*cells, 1)
    assert np.allclose(wasted, np.array(padding) * scale, atol=1)
    assert np.allclose(whole, np.array(cells) * scale, atol=1)
    drawing = ParsedSvg(chart.to_svg())
    assert not [text for text in drawing.texts if text.box.x < 0]
    title, *others = drawing.texts
    assert not [text for text in others if text.y == title.y and text.x < title.box.right]


@given(st.lists(st.integers(1, 50), min_size=1, max_size=200), st.integers(1, 40))
def test_padding_waste_of_lengths(lengths, batch_size):
    chart = pv.padding_waste(lengths, batch_size)
    orders = ("as they come", "shuffled", "bucketed")
    for order, line in zip(orders, str(chart).splitlines(), strict=True):
        groups = pv.batches.batches(lengths, batch_size, order)
        batches = [[lengths[i] for i in group] for group in groups]
        padding = sum(max(n) * len(n) - sum(n) for n in batches)
        assert line.startswith(f"{order}: {len(batches):,} batch")
        assert f" {padding:,} padding" in line


def test_padding_waste_of_groups_takes_layouts():
    with pytest.raises(TypeError, match="the batches of 'train' must be layouts"):
        pv.padding_waste({"train": [5, 3, 2]})


def test_length_histogram_takes_lengths():
    assert str(plots.length_histogram([5, 3])) == str(plots.length_histogram(Layout([5, 3])))


@given(layouts)
def test_length_histogram(layout):
    chart = plots.length_histogram(layout)
    width = -(-layout.max_len // 20)
    edges = np.arange(0.5, layout.max_len + width, width)
    counts, _ = np.histogram(layout.lengths, edges)
    heights = [box.height for box in boxes(chart, REAL)]
    assert len(heights) == (counts > 0).sum()
    assert np.allclose(heights, 120 * counts[counts > 0] / counts.max(), atol=0.1)
    assert not ParsedSvg(chart.to_svg()).outside()
