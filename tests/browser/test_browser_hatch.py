"""Checks that the second picture of a batch keeps its hatch when the first has scrolled away."""

from __future__ import annotations

import io

import numpy as np
import pytest
from browser.lab import Lab, Notebook
from PIL import Image, ImageColor

from packviz.draw import palette

AWAY = "from IPython.display import HTML\nHTML('<div style=\"height: 6000px\"></div>')"
SHOWN = "import packviz as pv\npv.show([9, 1])"
PANEL = "from packviz.panels import AlignPanel\nAlignPanel([9, 1])"
CELLS = [SHOWN, PANEL, AWAY, SHOWN, PANEL]


# As a reader's JupyterLab may: what is out of sight is not displayed. The other tests have it off.
HIDE = """() => {
  const notebook = jupyterapp.shell.currentWidget.content;
  notebook.notebookConfig = { ...notebook.notebookConfig, windowingMode: 'full' };
}"""


def is_hatched(notebook: Notebook, cell: int, theme: palette.Theme) -> bool:
    """Scrolls to the picture in a cell, and returns whether its padding is hatched."""
    cells = notebook.page.locator(".jp-Notebook .jp-Cell")
    picture = cells.nth(cell).locator("svg.packviz, .jp-OutputArea-output img").first
    picture.scroll_into_view_if_needed()
    notebook.settle(quiet=0.3)
    cells.first.wait_for(state="hidden")
    image = Image.open(io.BytesIO(picture.screenshot(animations="disabled"))).convert("RGB")
    pixels = np.asarray(image).astype(int)

    def share(colour: str) -> float:
        distances = abs(pixels - ImageColor.getrgb(colour)).max(axis=-1)
        return (distances < 12).mean()

    return share(theme.padding) > 0.01 and share(theme.hatch) > 0.0005


def test_a_second_picture_keeps_its_hatch(lab: Lab, subtests: pytest.Subtests) -> None:
    with lab.open(lab.server.write_notebook("hatch.ipynb", CELLS)) as notebook:
        notebook.run_all()
        notebook.page.evaluate(HIDE)
        for dark, theme in ((False, palette.LIGHT), (True, palette.DARK)):
            notebook.set_theme(dark=dark)
            for cell, name in ((3, "pv.show"), (4, "panel")):
                with subtests.test(f"{name}, {'dark' if dark else 'light'}"):
                    assert is_hatched(notebook, cell, theme)
