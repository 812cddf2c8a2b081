"""Charts of what is counted: what is drawn is what the layouts hold, and their texts say the same."""

import numpy as np
import pytest
from drawings import ParsedSvg
from hypothesis import given
from hypothesis import strategies as st

from packviz.core.layout import Layout
from packviz.draw import plots
from packviz.draw.palette import LIGHT, REAL

layouts = st.builds(
    lambda lengths, extra: Layout(lengths, max(lengths) + extra),
    st.lists(st.integers(1, 200), min_size=1, max_size=60),
    st.integers(0, 9),
)
X = [2, 4, 8, 16]


def bars(chart, fill, wide=15):
    """The boxes of a fill, without those of the key."""
    return [
        box for box in ParsedSvg(chart.to_svg()).boxes if box.fill == fill and box.height > wide
    ]


@given(
    st.dictionaries(
        st.text("abcd ", min_size=1, max_size=40),
        st.lists(layouts, max_size=5),
        min_size=1,
        max_size=4,
    )
)
def test_padding_waste(groups):
    chart = plots.padding_waste({name: iter(batches) for name, batches in groups.items()})
    cells = [sum(layout.n_cells for layout in batches) for batches in groups.values()]
    padding = [sum(int((~layout.mask).sum()) for layout in batches) for batches in groups.values()]
    scale = max(max(cells), 1)
    reals, wastes = bars(chart, REAL), bars(chart, LIGHT.padding)
    longest = max(real.width + waste.width for real, waste in zip(reals, wastes, strict=True))
    for real, waste, whole, wasted in zip(reals, wastes, cells, padding, strict=True):
        assert waste.width / max(longest, 1) == pytest.approx(wasted / scale, abs=0.001)
        assert real.width / max(longest, 1) == pytest.approx((whole - wasted) / scale, abs=0.001)
    drawing = ParsedSvg(chart.to_svg())
    assert not [text for text in drawing.texts if text.box.x < 0]
    title = drawing.texts[0]
    assert not [
        text for text in drawing.texts[1:] if text.y == title.y and text.box.x < title.box.right
    ]


@given(layouts)
def test_length_histogram(layout):
    chart = plots.length_histogram(layout)
    each = -(-layout.max_len // 20)
    counts = [
        int(np.sum((layout.lengths > i) & (layout.lengths <= i + each)))
        for i in range(0, layout.max_len, each)
    ]
    boxes = bars(chart, REAL, 0)[1:]  # without the key
    assert len(boxes) == sum(map(bool, counts))
    heights = [count / max(counts) for count in counts if count]
    assert [box.height / max(box.height for box in boxes) for box in boxes] == pytest.approx(
        heights, abs=0.001
    )
    assert not ParsedSvg(chart.to_svg()).outside()


@given(st.floats(-2, 3), st.floats(0.1, 1e6))
def test_the_slope_is_the_power(power, factor):
    sweep = plots.log_log(X, {"": {"one": [factor * x**power for x in X]}}, "t")
    assert float(sweep.rows[0][0].curves[0].name.split()[-1]) == pytest.approx(power, abs=0.0051)


@pytest.mark.parametrize(
    ("methods", "value"), [({"one": "nix"}, "'nix'"), ({"two": "packed"}, "''")]
)
def test_an_unknown_method_is_named(methods, value):
    with pytest.raises(
        ValueError, match=rf"methods\['one'\] is {value}; choose one of 'padded', 'packed'"
    ):
        plots.log_log([1, 2], {"": {"one": [1, 2]}}, "t", methods=methods)
