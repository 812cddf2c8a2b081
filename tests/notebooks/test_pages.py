"""Checks the reading time of each page, as defined in docs/reading-time.md, and its required parts."""

import re
from pathlib import Path

import pytest

SOURCES = sorted((Path(__file__).parents[2] / "notebooks" / "source").glob("*.py"))
BROWSED = "15_error_museum"


def minutes(source):
    """Returns the reading time of a page."""
    total = 0.0
    for cell in re.split(r"^# %%", source, flags=re.M)[1:]:
        head, _, body = cell.partition("\n")
        if "[markdown]" in head:
            total += len(re.findall(r"[\w’'`-]+", body)) / 150
        elif "claims" not in head:
            total += (
                0.25 + 0.5 * ("\nask(" in f"\n{body}") + 2 * bool(re.search(r"\wPanel\(", body))
            )
            total += 5 * ("exercise" in head)
    return total


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_a_page_states_its_time_and_takes_at_most_20_minutes(path):
    source = path.read_text(encoding="utf-8")
    if path.stem != BROWSED:
        (stated,) = re.findall(r"^# Time: (\d+) minutes", source, re.M)
        assert int(stated) == round(minutes(source)) <= 20


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_a_page_opens_and_closes_alike_and_has_an_exercise(path):
    source = path.read_text(encoding="utf-8")
    opened = re.search(r"^# After this (?:notebook|page),? you can\n#\n((?:# .*\n)+)", source, re.M)
    closed = re.search(r"^# ## You can now\n#\n((?:# .*\n)+)", source, re.M)
    assert opened
    assert closed
    assert opened[1].count("# - ") == closed[1].count("# - ")
    assert 'tags=["exercise"]' in source
