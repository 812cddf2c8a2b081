"""Helpers for the tests of panels: they act like a browser, and read what a reader sees."""

import re
from html import unescape


def move(control, value):
    """Moves a control as the browser does, which sends a choice by its index."""
    options = getattr(control, "options", None)
    control.set_state({"index": options.index(value)} if options else {"value": value})


def words(html):
    """Returns the text that a reader sees of a piece of HTML."""
    return unescape(re.sub(r"<[^>]*>", "", html.value))


def visible(control):
    return control.layout.display != "none"


def move_each_and_back(panel, table):
    """Moves every control over its values, which must all change the picture.

    The last value is the first one.
    """
    for control, values in table:
        first = before = panel.picture.value
        for value in values:
            move(control, value)
            assert panel.error.value == ""
            assert panel.picture.value != before, (control.description, value)
            before = panel.picture.value
        assert panel.picture.value == first  # back where it was
