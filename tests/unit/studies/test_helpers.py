"""The race of the helpers: everybody in it computes the same, and the file comes back as it was."""

import pytest
import torch

from packviz.bench.timing import RATIOS, Timing
from packviz.studies import helpers


@pytest.mark.parametrize("lengths", [[3, 5, 1], [5, 5], [1]])
@pytest.mark.parametrize("name", helpers.NAMES)
def test_all_contestants_agree(name, lengths):
    comparison = helpers.helper_calls(name, lengths, 6, 2)
    assert list(comparison.alike) == list(comparison.calls)  # so that the form compares them as well
    target = comparison.calls[helpers.LOOP]()
    for call in comparison.calls.values():
        found = call()
        assert type(found) is type(target), name
        for one, other in zip(*((f if isinstance(f, tuple) else (f,)) for f in (found, target)), strict=True):
            assert torch.allclose(one.float(), other.float(), atol=1e-6), name


def test_a_small_run_for_real():
    found = helpers.run([helpers.HelperPoint(name, 3, 5, 2) for name in helpers.NAMES], rounds=2)
    assert [point.helper for point in found.points] == list(helpers.NAMES)
    assert found.to_text().count("3 sequences of 1 to 5 time steps, 2 features") == 1


def test_how_many_times_as_long():
    timing = Timing({"helper": (1e-3, 2e-3, 1.5e-3) * 2, "loop": (4e-3, 8e-3, 6e-3) * 2})
    point = helpers.HelperPoint("align", 2, 3, 4)
    found = helpers.Helpers({"device_name": "abacus", "torch": "2", "threads": 1}, {point: timing})
    assert found.faster(point) == 4
    assert found.to_text().splitlines() == [
        "A plain Python loop takes 4.0 to 4.0 times as long as the helper",
        "       helper, ms  loop, ms  loop / helper  torch, ms  torch / helper",
        "2 sequences of 1 to 3 time steps, 4 features:",
        "align         1.5         6          4.0 ×          –               –",
        "",
        RATIOS,
        "Measured on abacus (CPU), torch 2, 1 thread, 6 rounds.",
    ]
    assert "<td" in found.to_html()


def test_what_is_not_clear_says_so():
    timing = Timing({"helper": (1.0,) * 6, "loop": (0.5, 1.1, 3.0) * 2, "torch": (2.0,) * 6})
    provenance, point = {"device_name": "abacus", "torch": "2"}, helpers.HelperPoint("align", 2, 3, 4)
    said = helpers.Helpers(provenance, {point: timing}).to_text()
    assert "?1.1 ×" in said
    assert " 2.0 ×" in said
    assert "?: not told apart." in said


def test_recorded():
    found = helpers.recorded()
    assert all(found.faster(point) > 1 for point in found.points)
