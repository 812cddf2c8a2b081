"""Configures Sphinx for the web site, whose sources build.py writes."""

from __future__ import annotations

import contextlib
import doctest
import io
from typing import Any

from figures import box, figure

import packviz

project = html_title = "packviz"
author = copyright = "packviz contributors"
release = packviz.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
html_theme = "furo"
html_css_files = ["palette.css", "batch.css", "site.css"]
html_favicon = "favicon.svg"
templates_path = ["templates"]
html_context = {
    "working": [
        ("CONTRIBUTING", "Working on packviz"),
        ("docs/visual-language", "The visual language"),
        ("docs/measuring", "Measuring"),
        ("docs/upstream", "Reports to PyTorch"),
        ("CHANGELOG", "Changes"),
    ]
}
html_js_files = [("colours.js", {"defer": "defer"}), ("site.js", {"defer": "defer"})]
suppress_warnings = ["toc.not_included"]  # the footer links to these pages
html_copy_source = html_show_sourcelink = html_show_sphinx = False
html_use_index = html_domain_indices = False
# GitHub Pages must not drop folders whose names begin with _.
html_extra_path = [".nojekyll"]
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-dark"
default_role = "code"  # docstrings write `x` for code
autoclass_content = "both"
autodoc_type_aliases = dict.fromkeys(["IntArray", "BoolArray", "FloatArray"], "array")
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
napoleon_use_ivar = True
toc_object_entries = False
myst_heading_anchors = 4
myst_heading_slug_func = "conf.slug"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True


def slug(title: str) -> str:
    """Returns the anchor that Jupyter gives a heading, so that the notebooks' own links work."""
    return title.strip().replace(" ", "-")


def draw_examples(
    app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]
) -> None:
    """Runs the examples of a docstring, and puts their pictures below it."""
    if getattr(value, "__module__", "").startswith("packviz.measure"):
        return  # these examples take seconds, and draw nothing
    names: dict[str, Any] = {}
    for example in doctest.DocTestParser().get_examples("\n".join(lines)):
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(example.source, name, "exec"), names)
    for drawn in names.values():
        if not hasattr(drawn, "to_svg") or isinstance(drawn, type):
            continue
        picture = box("picture", figure(drawn.to_svg()))
        lines += ["", ".. raw:: html", "", *(f"   {line}" for line in picture.splitlines()), ""]


def setup(app: Any) -> None:
    """Registers the two functions above, which must run after napoleon."""
    app.connect("autodoc-process-docstring", draw_examples, priority=900)
