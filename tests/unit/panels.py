"""What a browser does to a panel, and what a reader sees of it: used by the tests of every explorer."""

import re
from html import unescape


def move(control, value):
    """What the browser sends; a choice travels by its place in the list."""
    options = getattr(control, "options", None)
    control.set_state({"index": options.index(value)} if options else {"value": value})


def words(html):
    """What a reader sees of a piece of HTML."""
    return unescape(re.sub(r"<[^>]*>", "", html.value))


def visible(control):
    return control.layout.display != "none"


def move_each_and_back(explorer, table):
    """Moves every control over its values, of which the last is where it began: each has a picture of its own."""
    for control, values in table:
        first = before = explorer.picture.value
        for value in values:
            move(control, value)
            assert explorer.error.value == ""
            assert explorer.picture.value != before, (control.description, value)
            before = explorer.picture.value
        assert explorer.picture.value == first  # back where it was
