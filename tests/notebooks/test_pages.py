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
def test_a_page_says_what_it_teaches_and_recalls_it_and_has_an_exercise(path):
    source = path.read_text(encoding="utf-8")
    assert re.search(r"^# After this (notebook|page),? you can\b", source, re.M)
    assert re.search(r"^# ## You can now$", source, re.M)
    assert 'tags=["exercise"]' in source


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_no_line_begins_with_a_comment(path):
    # In Markdown, it would end the paragraph, and the rest of the line would not be set as text.
    assert not re.search(r"^# <!--", path.read_text(encoding="utf-8"), re.M)
