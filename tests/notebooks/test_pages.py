"""Checks that each page states its time, and has its required parts."""

import re
from pathlib import Path

import pytest

SOURCES = sorted((Path(__file__).parents[2] / "notebooks" / "source").glob("*.py"))
BROWSED = "15_error_museum"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_a_page_states_its_time_and_takes_at_most_20_minutes(path):
    source = path.read_text(encoding="utf-8")
    if path.stem != BROWSED:
        (stated,) = re.findall(r"^# Time: (\d+) minutes", source, re.M)
        assert int(stated) <= 20


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_a_page_opens_and_closes_alike_and_has_an_exercise(path):
    source = path.read_text(encoding="utf-8")
    opened = re.search(r"^# After this (?:notebook|page),? you can\n#\n((?:# .*\n)+)", source, re.M)
    closed = re.search(r"^# ## You can now\n#\n((?:# .*\n)+)", source, re.M)
    assert opened
    assert closed
    assert opened[1].count("# - ") == closed[1].count("# - ")
    assert 'tags=["exercise"]' in source
