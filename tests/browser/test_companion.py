"""Tests what a screen reader hears of the controls of a panel."""

CELL = """
from packviz.panels import StaircasePanel
StaircasePanel()
"""


def test_a_slider_has_its_own_label_and_the_value_that_it_shows(lab):
    with lab.open(lab.server.write_notebook("sliders.ipynb", [CELL])) as notebook:
        notebook.run_all()
        slider = notebook.page.get_by_role("slider", name="rectangles")
        slider.press("ArrowRight")
        notebook.settle()
        assert slider.get_attribute("aria-valuetext") == "5"
