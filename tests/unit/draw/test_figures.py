"""Charts to hover over: their stored output, and that their text and colours can be read."""

import json

import pytest

from packviz.draw import figures, theme
from packviz.draw.figures import CONFIG
from packviz.draw.palette import DARK, LIGHT, contrast


def points():
    chart = figures.axes("Title", "in words", x="padding", y="work", panels=["one", "two"])
    return chart.points([1, 2], [3.0, 4.0], "packed").points(
        [1, 2], [3.0, 4.0], "padded", 1, panel=1
    )


def in_rows():
    return figures.axes("Title", "in words", x="cells", rows=["a", "b"], tall=50).points(
        [3, 4], ["a", "b"], "real"
    )


@pytest.mark.parametrize("made", [points, in_rows])
def test_stored_output(made, monkeypatch):
    monkeypatch.setattr(theme, "_dark", False)
    chart = made()
    bundle = chart._repr_mimebundle_()
    assert set(bundle) == {
        "application/vnd.plotly.v1+json",
        "text/plain",
    }  # plotly's HTML would ask a CDN
    assert bundle["text/plain"] == repr(chart) == chart.to_text() != ""
    figure = bundle["application/vnd.plotly.v1+json"]
    stored = json.dumps(figure)
    assert figure["config"] == CONFIG
    assert CONFIG["displayModeBar"] is False
    assert "bdata" not in stored  # numbers in words: nbval and a diff can read them
    assert stored == json.dumps(made()._repr_mimebundle_()["application/vnd.plotly.v1+json"])


def backgrounds(figure):
    layout = figure["layout"]["template"]["layout"]
    return layout["paper_bgcolor"], layout["font"]["color"]


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
    monkeypatch.setattr(
        display, "display", lambda bundle, raw, display_id: shown.append(bundle) or handle
    )
    monkeypatch.setattr(theme, "_dark", False)
    monkeypatch.setattr(theme, "_followers", [])
    points()._ipython_display_()
    assert backgrounds(shown[0]["application/vnd.plotly.v1+json"])[0] == LIGHT.ground
    theme.announce(True)
    assert backgrounds(handle.updates[-1]["application/vnd.plotly.v1+json"])[0] == DARK.ground
    theme.announce(False)
    assert backgrounds(handle.updates[-1]["application/vnd.plotly.v1+json"])[0] == LIGHT.ground


@pytest.mark.parametrize("dark", [False, True])
def test_charts_can_be_read(dark, monkeypatch):
    monkeypatch.setattr(theme, "_dark", dark)
    shown = points()._repr_mimebundle_()["application/vnd.plotly.v1+json"]
    layout, outline = shown["layout"]["template"]["layout"], shown["data"][0]["marker"]["line"]
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
    chart = in_rows()
    chart.points(
        [2], ["b"], LIGHT.text.upper(), error_x={"type": "data", "array": [1], "color": LIGHT.line}
    )
    drawn = json.dumps(chart._repr_mimebundle_()["application/vnd.plotly.v1+json"])
    assert not [
        colour for colour in vars(LIGHT).values() if f'"{colour}"' in drawn and colour != DARK.text
    ]
    assert LIGHT.text.upper() in drawn


def test_the_key_has_each_name_once():
    chart = points().points([1], [2], "packed", panel=1).points([1], [2], "")
    assert [trace.name for trace in chart.figure.data if trace.showlegend] == ["packed", "padded"]
