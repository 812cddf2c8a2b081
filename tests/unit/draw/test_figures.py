"""Charts by plotly: their stored output, and that their text and colours can be read."""

import json

import pytest
from contrast import contrast

from packviz.draw import figures, theme
from packviz.draw.palette import DARK, LIGHT

PLOTLY = "application/vnd.plotly.v1+json"


@pytest.fixture(autouse=True)
def _light(monkeypatch):
    monkeypatch.setattr(theme, "_dark", False)
    monkeypatch.setattr(theme, "_callbacks", [])


def in_panels():
    chart = figures.empty_chart("Title", "in words", x="padding", y="work", panels=["a", "b"])
    chart.add_points([1, 2], [3.0, 4.0], "packed")
    return chart.add_points([1, 2], [3.0, 4.0], "padded", 1, panel_index=1)


def test_stored_output():
    chart = in_panels()
    bundle = chart._repr_mimebundle_()
    assert set(bundle) == {PLOTLY, "text/plain"}  # plotly's HTML would ask a CDN
    assert bundle["text/plain"] == repr(chart) == chart.to_text() != ""
    assert bundle[PLOTLY]["config"]["displayModeBar"] is False
    stored = json.dumps(bundle[PLOTLY])
    assert "bdata" not in stored  # numbers in words: nbval and a diff can read them
    assert stored == json.dumps(in_panels()._repr_mimebundle_()[PLOTLY])


class Handle:
    """Stands in for the handle of an output in a front end."""

    def __init__(self):
        self.grounds = []

    def show(self, bundle, **_):
        if PLOTLY in bundle:
            self.grounds.append(bundle[PLOTLY]["layout"]["template"]["layout"]["paper_bgcolor"])
        return self

    update = show


def test_a_chart_on_a_page_that_turns_dark_is_drawn_again(monkeypatch):
    handle = Handle()
    monkeypatch.setattr("IPython.display.display", handle.show)
    in_panels()._ipython_display_()
    theme.set_dark(True)
    theme.set_dark(False)
    assert handle.grounds == [LIGHT.ground, DARK.ground, LIGHT.ground]


@pytest.mark.parametrize("dark", [False, True])
def test_charts_can_be_read(dark):
    theme.set_dark(dark)
    shown = in_panels()._repr_mimebundle_()[PLOTLY]
    layout = shown["layout"]["template"]["layout"]
    ground = layout["paper_bgcolor"]
    assert layout["plot_bgcolor"] == ground
    assert contrast(layout["font"]["color"], ground) >= 4.5
    assert contrast(layout["xaxis"]["tickfont"]["color"], ground) >= 4.5
    assert contrast(layout["xaxis"]["linecolor"], ground) >= 3
    outline = shown["data"][0]["marker"]["line"]
    assert contrast(outline["color"], ground) >= 3
    assert outline["width"] > 0


def test_no_colour_of_the_light_theme_stays_in_the_dark():
    """Whiskers have colours of the theme too. A name that contains a colour stays as it is."""
    theme.set_dark(True)
    name = f"not {LIGHT.text}"
    whiskers = {"type": "data", "array": [1], "color": LIGHT.line}
    chart = in_panels().add_points([2], [3.5], name, error_x=whiskers)
    drawn = json.dumps(chart._repr_mimebundle_()[PLOTLY])
    light = set(vars(LIGHT).values()) - set(vars(DARK).values())
    assert not [colour for colour in light if f'"{colour}"' in drawn]
    assert name in drawn


def test_the_key_has_each_name_once():
    chart = in_panels().add_points([1], [2], "packed", panel_index=1).add_points([1], [2], "")
    assert [trace.name for trace in chart.figure.data if trace.showlegend] == ["packed", "padded"]
