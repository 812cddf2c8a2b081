"""Checks the required parts of each page."""

import re
from pathlib import Path

import pytest

SOURCES = sorted((Path(__file__).parents[2] / "notebooks" / "source").glob("*.py"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_a_page_opens_and_closes_alike_and_has_an_exercise(path):
    source = path.read_text(encoding="utf-8")
    opened = re.search(r"^# After this (?:notebook|page),? you can\n#\n((?:# .*\n)+)", source, re.M)
    closed = re.search(r"^# ## You can now\n#\n((?:# .*\n)+)", source, re.M)
    assert opened
    assert closed
    assert opened[1].count("# - ") == closed[1].count("# - ")
    assert 'tags=["exercise"]' in source
