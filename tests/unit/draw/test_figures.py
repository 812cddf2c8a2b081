"""Charts: their bars are the layout's numbers, and their text and colours can be read."""

import json

import numpy as np
import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packviz.core.layout import Layout
from packviz.draw import figures, palette, text, theme
from packviz.draw.figures import CONFIG, PADDING, REAL
from packviz.draw.palette import DARK, FONT, LIGHT, contrast

layouts = st.builds(
    lambda lengths, extra: Layout(lengths, max(lengths) + extra),
    st.lists(st.integers(1, 200), min_size=1, max_size=60),
    st.integers(0, 9),
)


def charts():
    layout = Layout([3, 5, 2, 4], max_len=6)
    return [
        figures.batch_sizes(layout),
        figures.padding_waste({"as they come": [layout, Layout([1, 9])], "sorted": [Layout([2, 2])]}),
        figures.length_histogram(layout),
    ]


@given(layouts)
def test_batch_sizes(layout):
    chart = figures.batch_sizes(layout)
    running, finished = chart.data
    assert list(running.x) == list(finished.x) == list(range(layout.max_len))
    assert list(running.y) == layout.mask.sum(axis=0).tolist()
    assert list(finished.y) == (~layout.mask).sum(axis=0).tolist()
    assert list(running.y)[: layout.batch_sizes.size] == layout.batch_sizes.tolist()
    assert chart.layout.barmode == "stack"
    assert chart.to_text() == (
        f"batch_sizes, sequences still running at each time step: {text.numbers(layout.batch_sizes)}\n"
        f"{text.summary(layout)}"
    )


@given(st.dictionaries(st.text(min_size=1, max_size=9), st.lists(layouts, max_size=5), min_size=1, max_size=4))
def test_padding_waste(groups):
    chart = figures.padding_waste({name: iter(batches) for name, batches in groups.items()})
    real, padding = chart.data
    assert list(real.y) == list(padding.y)
    ends = {note.y: note for note in chart.layout.annotations if "wasted" in note.text}
    for name, layouts in groups.items():
        wasted, cells = sum(b.n_padding for b in layouts), sum(b.n_cells for b in layouts)
        assert (ends[name].x, ends[name].text) == (cells, f"{100 * wasted / max(cells, 1):.3g} % wasted")
    assert list(real.x) == [sum(int(b.lengths.sum()) for b in batches) for batches in groups.values()]
    assert list(padding.x) == [sum(int((~b.mask).sum()) for b in batches) for batches in groups.values()]


def test_padding_waste_of_nothing_is_refused():
    with pytest.raises(ValueError, match=r"^groups is empty; give a name with its batches"):
        figures.padding_waste({})


def test_padding_waste_in_words():
    groups = {"one": [Layout([1, 3])], "none": [], "two": [Layout([2, 1]), Layout([1])]}
    assert figures.padding_waste(groups).layout.title.text == "Padding: 33.3 % of the cells (one), 0 % (none)"
    assert figures.padding_waste({"one": groups["one"]}).layout.title.text == "Padding: 33.3 % of the cells (one)"
    assert figures.padding_waste(groups).to_text() == (
        "one: 1 batch, 4 real cells, 2 padding (33.3 % wasted)\n"
        "none: 0 batches, 0 real cells, 0 padding (0 % wasted)\n"
        "two: 2 batches, 4 real cells, 1 padding (20 % wasted)"
    )


@given(layouts, st.integers(1, 40))
def test_length_histogram(layout, bins):
    (bars,) = figures.length_histogram(layout, bins).data
    assert len(bars.x) <= bins
    assert sum(bars.y) == layout.batch_size
    assert bars.width == int(bars.width)  # every bar holds equally many lengths, or bars would not compare
    edges = [(x - bars.width / 2, x + bars.width / 2) for x in bars.x]
    assert edges[0][0] == 0.5
    assert edges[-1][1] > layout.max_len
    for (low, high), count in zip(edges, bars.y, strict=True):
        assert count == np.sum((layout.lengths > low) & (layout.lengths < high))


def test_length_histogram_in_words():
    assert figures.length_histogram(Layout([1, 2, 2, 5]), bins=3).to_text() == (
        "4 sequences: shortest 1, median 2, mean 2.5, longest 5\nsequences per 2 lengths, from 1 up: [3, 0, 1]"
    )


@pytest.mark.parametrize("number", range(3))
def test_stored_output(number, monkeypatch):
    monkeypatch.setattr(theme, "_dark", False)
    chart = charts()[number]
    bundle = chart._repr_mimebundle_()
    assert set(bundle) == {"application/vnd.plotly.v1+json", "text/plain"}  # plotly's HTML would ask a CDN
    assert chart._repr_html_ is None
    assert bundle["text/plain"] == repr(chart) == chart.to_text() != ""
    figure = bundle["application/vnd.plotly.v1+json"]
    stored = json.dumps(figure)
    assert figure["config"] == CONFIG
    assert CONFIG["displayModeBar"] is False
    assert "bdata" not in stored  # numbers in words: nbval and a diff can read them
    assert stored == json.dumps(charts()[number]._repr_mimebundle_()["application/vnd.plotly.v1+json"])
    assert go.Figure(chart).to_json() == go.Figure(charts()[number]).to_json()


def backgrounds(figure):
    layout = figure["layout"]["template"]["layout"]
    return layout["paper_bgcolor"], layout["font"]["color"]


def test_colours_follow_the_page(monkeypatch):
    chart = charts()[0]
    for dark, colours in ((False, LIGHT), (True, DARK)):
        monkeypatch.setattr(theme, "_dark", dark)
        shown = chart._repr_mimebundle_()["application/vnd.plotly.v1+json"]
        assert backgrounds(shown) == (colours.ground, colours.text)
    assert backgrounds(json.loads(chart.to_json())) == (LIGHT.ground, LIGHT.text)  # the chart itself is as it was


class Shown:
    """Stands in for the handle of an output in a front end."""

    def __init__(self):
        self.updates = []

    def update(self, bundle, raw):
        assert raw
        self.updates.append(bundle)


def test_a_chart_on_a_page_that_turns_dark_is_drawn_again(monkeypatch):
    from IPython import display

    handle, shown = Shown(), []
    monkeypatch.setattr(display, "display", lambda bundle, raw, display_id: shown.append(bundle) or handle)
    monkeypatch.setattr(theme, "_dark", False)
    monkeypatch.setattr(theme, "_followers", [])
    charts()[0]._ipython_display_()
    assert backgrounds(shown[0]["application/vnd.plotly.v1+json"])[0] == LIGHT.ground
    theme.announce(True)
    assert backgrounds(handle.updates[-1]["application/vnd.plotly.v1+json"])[0] == DARK.ground
    theme.announce(False)
    assert backgrounds(handle.updates[-1]["application/vnd.plotly.v1+json"])[0] == LIGHT.ground


def test_without_a_front_end_nothing_waits_for_the_theme(monkeypatch):
    from IPython import display

    monkeypatch.setattr(display, "display", lambda *args, **kwargs: None)
    monkeypatch.setattr(theme, "_followers", [])
    charts()[0]._ipython_display_()
    assert theme._followers == []


@pytest.mark.parametrize("dark", [False, True])
def test_charts_can_be_read(dark, monkeypatch):
    monkeypatch.setattr(theme, "_dark", dark)
    shown = charts()[0]._repr_mimebundle_()["application/vnd.plotly.v1+json"]
    template = shown["layout"]["template"]
    layout, outline = template["layout"], template["data"]["bar"][0]["marker"]["line"]
    ground = layout["paper_bgcolor"]
    assert layout["plot_bgcolor"] == ground
    assert contrast(layout["font"]["color"], ground) >= 4.5
    assert contrast(layout["xaxis"]["tickfont"]["color"], ground) >= 4.5
    assert contrast(layout["xaxis"]["linecolor"], ground) >= 3
    assert contrast(outline["color"], ground) >= 3
    assert outline["width"] > 0


def test_no_colour_of_the_light_theme_stays_in_the_dark(monkeypatch):
    """Hatches, outlines and whiskers carry colours of the theme too, and words that look like one stay as they are."""
    monkeypatch.setattr(theme, "_dark", True)
    (chart,) = charts()[1:2]
    chart.label(1, "sorted", LIGHT.text.upper())
    chart.points([2], ["sorted"], "more", error_x=figures._whiskers([2], [1], [3]))
    drawn = json.dumps(chart._repr_mimebundle_()["application/vnd.plotly.v1+json"])
    assert not [colour for colour in vars(LIGHT).values() if f'"{colour}"' in drawn and colour != DARK.text]
    assert LIGHT.text.upper() in drawn


def test_padding_is_told_apart_by_more_than_its_colour():
    for chart in charts()[:2]:
        real, padding = chart.data
        assert (real.marker.color, padding.marker.color) == (REAL.colour, PADDING.colour)
        assert (real.marker.pattern.shape, padding.marker.pattern.shape) == (None, "/")
        assert real.name
        assert padding.name


def test_every_axis_has_a_title():
    for chart in charts():
        assert chart.layout.title.text
        assert {note.text for note in chart.layout.annotations} & {"time step t", "cells", "length in time steps"}


def named(chart):
    """The traces that have a name; the others are outlines."""
    return [trace for trace in chart.data if trace.name]


def test_training_curves():
    chart = figures.training_curves({"one": [0.12345, 0.1], "two": [1.0, 0.5]}, "Trained", "error")
    assert [list(line.y) for line in named(chart)] == [[0.12, 0.1], [1.0, 0.5]]
    assert [list(line.x) for line in named(chart)] == [[1, 2], [1, 2]]
    assert len({(line.line.dash, line.marker.symbol) for line in named(chart)}) == 2  # not by colour alone
    assert {colour for line in named(chart) for colour in (line.line.color, line.marker.color)} == {palette.REAL}
    assert [(note.x, note.y) for note in chart.layout.annotations if note.text == "one"] == [(2, 0.1)]
    title, *lines = chart.to_text().splitlines()
    assert title == "Trained (error after each epoch)"
    assert lines == ["one    0.12    0.1", "two       1    0.5"]
    with pytest.raises(ValueError, match="curves holds 8 lines; at most 7"):
        figures.training_curves({str(i): [1.0] for i in range(8)}, "Trained")


def test_names_of_lines_that_end_close_together_are_apart():
    chart = figures.training_curves({"one": [1.0, 1.0], "two": [1.0, 0.99]}, "Trained")
    one, two = (note for note in chart.layout.annotations if note.text in ("one", "two"))
    assert one.yshift - two.yshift >= 12


def test_keys_that_do_not_fit_beside_the_title_stand_below_it():
    beside, below = (figures.axes("A title", "", rows=["a"]) for _ in range(2))
    for i in range(2):
        beside.bars(["a"], [1], f"part {i}")
    for i in range(12):
        below.bars(["a"], [1], f"part {i}")
    assert below.layout.height - beside.layout.height == below.layout.margin.t - beside.layout.margin.t == 36
    assert below.layout.legend.y < beside.layout.legend.y


def test_charts_have_the_face_and_the_axes_of_pictures():
    layout = charts()[0].layout.template.layout
    assert (layout.font.family, layout.font.size, layout.title.font.weight) == (FONT, 12, "bold")
    assert (layout.paper_bgcolor, layout.xaxis.linecolor, layout.yaxis.gridcolor) == (
        LIGHT.ground,
        LIGHT.line,
        LIGHT.hatch,
    )


@pytest.mark.parametrize("panels", [{}, {"nodes": {}}, {"nodes": {"pad": [1, 2]}, "bytes": {}}])
def test_a_chart_of_nothing_is_refused(panels):
    with pytest.raises(ValueError, match=r"panels is .*; give at least one, each with at least one curve"):
        figures.log_log([1, 2], panels, "Growth")


def test_what_stands_below_is_never_cut():
    chart = figures.axes("Title", "words", below=["measured on " * 30])
    lines = chart.layout.annotations[-1].text.split("<br>")
    assert len(lines) > 2
    assert max(map(len, lines)) * 6.7 < figures.WIDTH
    assert chart.layout.margin.b - figures.axes("Title", "words").layout.margin.b == 17 * len(lines)


def test_keys_that_wrap_stand_below_the_title():
    """plotly makes the columns of a legend equally wide as soon as it wraps: so many lines need room."""
    chart = figures.axes("Title", "words", rows=["a" * 40])
    bare = chart.layout.height
    names = ["a rather long name", *(f"n{i}" for i in range(6))]
    for name in names:
        chart.points([1], ["a" * 40], name)
    room = figures.WIDTH - chart.layout.margin.l - chart.layout.margin.r
    columns = int(room // (figures.width_of(names[0]) + 48))
    assert columns < len(names)
    assert chart.layout.height - bare == 18 * -(-len(names) // columns)
