"""Checks that the second picture of a batch keeps its hatch when the first has scrolled away."""

from __future__ import annotations

import io

import pytest
from browser.lab import Lab, Notebook
from PIL import Image

from packviz.draw import palette

AWAY = "from IPython.display import HTML\nHTML('<div style=\"height: 6000px\"></div>')"
SHOWN = "import packviz as pv\npv.show([9, 1])"
PANEL = "from packviz.panels import PackedPanel\nPackedPanel([9, 1])"
# As pictures were drawn until they had their pen: a pattern with a name, which the second one looks
# up in the page.
NAMED = """
from ipywidgets import HTML
HTML('<svg class="packviz" width="300" height="100"><pattern id="same" width="6" height="6"'
     ' patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><path d="M0 0h6v6H0z" fill="#f2f2f2"/>'
     '<path d="M0 0v6" stroke="#8f8f8f" stroke-width="2"/></pattern>'
     '<path d="M0 0h300v100h-300z" fill="url(#same)"/></svg>')
"""
CELLS = [SHOWN, PANEL, NAMED, AWAY, SHOWN, PANEL, NAMED]


# As a reader's JupyterLab may: what is out of sight is not displayed. The other tests have it off.
HIDE = """() => {
  const notebook = jupyterapp.shell.currentWidget.content;
  notebook.notebookConfig = { ...notebook.notebookConfig, windowingMode: 'full' };
}"""


def is_hatched(notebook: Notebook, cell: int, theme: palette.Theme) -> bool:
    """Scrolls to the picture in a cell, and tells whether it shows much of both the padding's colour and its lines."""
    cells = notebook.page.locator(".jp-Notebook .jp-Cell")
    picture = cells.nth(cell).locator("svg.packviz")
    picture.scroll_into_view_if_needed()
    notebook.settle(quiet=0.3)
    cells.first.wait_for(state="hidden")
    image = Image.open(io.BytesIO(picture.screenshot(animations="disabled"))).convert("RGB")
    pixels = image.get_flattened_data()

    def share(colour: str) -> float:
        wanted = tuple(int(colour[i : i + 2], 16) for i in (1, 3, 5))
        return sum(
            max(abs(a - b) for a, b in zip(p, wanted, strict=True)) < 12 for p in pixels
        ) / len(pixels)

    return share(theme.padding) > 0.01 and share(theme.hatch) > 0.0005


def test_a_second_picture_keeps_its_hatch(lab: Lab, subtests: pytest.Subtests) -> None:
    with lab.open(lab.write_notebook("hatch.ipynb", CELLS)) as notebook:
        notebook.run_all()
        notebook.page.evaluate(HIDE)
        for dark, theme in ((False, palette.LIGHT), (True, palette.DARK)):
            notebook.set_theme(dark=dark)
            for cell, name in ((4, "pv.show"), (5, "panel")):
                with subtests.test(f"{name}, {'dark' if dark else 'light'}"):
                    assert is_hatched(notebook, cell, theme)
        notebook.set_theme(dark=False)
        with subtests.test("a hatch that has a name is lost, and that is seen"):
            assert not is_hatched(notebook, 6, palette.LIGHT)
