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
